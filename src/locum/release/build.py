"""Build a release from what a generator learned: the only place that puts a manifest together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from locum._version import __version__
from locum.errors import ConfigError
from locum.release.manifest import (
    Condition,
    EmbeddingEntry,
    GaussianSpec,
    Manifest,
    MixtureSpec,
    NetworkSpec,
    RowsSpec,
    first_fault,
)
from locum.release.release import Release
from locum.types import PrivacyClaim

Joint = tuple[tuple[tuple[int, ...], float], ...]


def build_release(
    *,
    generator: str,
    settings: Mapping[str, Any],
    embedding: EmbeddingEntry,
    classes: Sequence[Any],
    class_names: Sequence[str] | None,
    joint: Joint,
    conditions: Sequence[Condition] = (),
    space: str,
    decoder: NetworkSpec | GaussianSpec | MixtureSpec | RowsSpec,
    tensors: Mapping[str, npt.NDArray[Any]],
    claim: PrivacyClaim,
) -> Release:
    """Build a checked release in memory.

    Parameters
    ----------
    generator
        Name of the generator, as reports show it.
    settings
        Its public settings; whatever is not a JSON type is stored as text.
    embedding
        The backbone and preprocessing of the vectors.
    classes
        The labels that `sample` returns: whole numbers stay numbers, everything else becomes text.
    class_names
        One name per class. None: the labels as text.
    joint
        The probability of each combination of class and conditions, from `rounded_joint`.
    conditions
        Attributes besides the label that the decoder is conditioned on.
    space
        The space of the vectors: "raw" or "unit"; see `to_space`.
    decoder
        How to read the tensors.
    tensors
        The numbers, by name. Floats are stored as float32, everything else as int64.
    claim
        What the release guarantees, and what it does not.

    Returns
    -------
    Release
        Not saved yet, so it has no fingerprint.

    Raises
    ------
    ConfigError
        If the manifest would break the rules of the format.
    FormatError
        If the tensors are not those that the decoder needs.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import EmbeddingEntry, GaussianSpec, build_release
    >>> from locum.types import PrivacyClaim
    >>> release = build_release(
    ...     generator="by hand", settings={}, embedding=EmbeddingEntry(backbone="none", dim=2), classes=[0, 1],
    ...     class_names=["cat", "dog"], joint=(((0,), 0.5), ((1,), 0.5)), space="raw", decoder=GaussianSpec(),
    ...     tensors={"means": np.eye(2), "factor": np.zeros((0, 2)), "scale": np.zeros(2)},
    ...     claim=PrivacyClaim("none", not_covered=("everything",)),
    ... )
    >>> release.sample(per_class={1: 1})[0].tolist()
    [[0.0, 1.0]]
    """
    labels = tuple(c.item() if isinstance(c, np.generic) else c for c in classes)
    labels = tuple(c if isinstance(c, int) and not isinstance(c, bool) else str(c) for c in labels)
    try:
        manifest = Manifest(
            written_by=f"locum {__version__}",
            kind="data" if isinstance(decoder, RowsSpec) else "decoder",
            generator=generator,
            settings=_plain(dict(settings)),
            embedding=embedding,
            classes=labels,
            class_names=tuple(class_names) if class_names else tuple(str(c) for c in labels),
            conditions=tuple(conditions),
            joint=joint,
            space=space,  # type: ignore[arg-type]  # pydantic checks it
            decoder=decoder,
            claim=claim,
        )
    except ValidationError as error:
        place, fault = first_fault(error)
        raise ConfigError(f"A release cannot hold this at {place[:80]!r}: {fault[:160]}.") from error
    return Release(manifest, {k: _float32(v) for k, v in tensors.items()})


def rounded_joint(codes: npt.NDArray[np.int64], counts: npt.NDArray[np.int64] | None = None) -> Joint:
    """Frequency of each combination, rounded to three digits, at least 0.001, summing to 1.

    Exact frequencies would narrow down the number of records. Combinations with conditions that only one record has
    are left out: they would point to that record.

    Parameters
    ----------
    codes
        Class codes of shape (n,), or of shape (n, 1 + conditions): the class, then each condition.
    counts
        How many records each row stands for, if no row occurs twice; None: one.

    Returns
    -------
    tuple of ((int, ...), float)
        Each combination that occurs, with its probability.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.release import rounded_joint
    >>> rounded_joint(np.array([0, 0, 1]))
    (((0,), 0.667), ((1,), 0.333))
    """
    combos = np.asarray(codes).reshape(len(codes), -1)
    if counts is None:
        combos, counts = np.unique(combos, axis=0, return_counts=True)
    if combos.shape[1] > 1 and (counts > 1).any():
        combos, counts = combos[counts > 1], counts[counts > 1]
    thousandths = np.maximum(np.round(1000 * counts / counts.sum()), 1)
    p = thousandths / thousandths.sum()
    return tuple((tuple(int(c) for c in row), float(w)) for row, w in zip(combos, p, strict=True))


def _plain(value: Any) -> Any:
    """Convert to JSON types."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _float32(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    a = np.ascontiguousarray(value)
    return a.astype(np.float32) if a.dtype.kind == "f" else a.astype(np.int64)
