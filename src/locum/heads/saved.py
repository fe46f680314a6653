"""A head in one file: no pickle, no torch, with the claim of the release that it was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from locum._version import __version__
from locum.errors import ConfigError, DataError, FormatError, NotFittedError, PrivacyError
from locum.io import check_output_file
from locum.release import (
    MAX_MANIFEST_BYTES,
    Activation,
    Document,
    Label,
    Linear,
    Release,
    SimpleOp,
    check_values,
    parse_document,
    parse_tensors,
    run_program,
    to_space,
    trace_program,
)
from locum.types import EmbeddingInfo, PrivacyClaim

if TYPE_CHECKING:
    from locum.heads.head import TorchHead


SUFFIX = ".safetensors"
CHUNK = 8192
# Safetensors metadata holds only text: the manifest is one entry, which also fixes the order of its bytes.
ENTRY = "locum"
# Room for everything that a head repeats from a release's manifest, even if JSON inside JSON doubles its length.
MAX_HEADER = 2 * MAX_MANIFEST_BYTES + 2**20


class HeadManifest(Document):
    """The manifest of a head.

    `program` maps a receiver's vectors, in `space`, to one score per class; the scaling is part of the first layer.
    `release` is the fingerprint of the release, if it had one.
    """

    format: Literal["locum-head"] = "locum-head"
    schema_version: Literal[1] = 1
    head: Literal["linear", "mlp"]
    classes: Annotated[tuple[Label, ...], Field(min_length=2, max_length=100_000)]
    program: Annotated[tuple[SimpleOp, ...], Field(min_length=1, max_length=16)]
    release: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None


@dataclass(frozen=True, eq=False)
class SavedHead:
    """A classifier trained only on a release, which predicts with numpy only.

    Since it is made only from the release, it has the release's guarantee. Probabilities are not calibrated unless
    `with_temperature` was used. Numbers are float64: a feature with a large mean and a small spread would lose
    precision in float32. `from_fitted` and `open` make one.

    Parameters
    ----------
    manifest
        Classes, settings, the release's claim, and the program that maps vectors to scores.
    tensors
        The weights by the names that the program uses. They are checked.

    Attributes
    ----------
    claim
        The privacy claim: the release's own.
    classes
        The labels, in the order of the probabilities.
    info
        The description of the vectors that this head takes.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.heads import LinearHead, SavedHead
    >>> tumors = load_sample("breast-cancer")
    >>> release = ClassGaussian(random_state=0).fit(tumors.X, tumors.y).release(no_dp=True)
    >>> fitted = LinearHead(max_epochs=20, random_state=0).fit(*release.sample(2000, random_state=0))
    >>> head = SavedHead.from_fitted(fitted, release)
    >>> float((head.predict(tumors.X) == tumors.y).mean()) > 0.9
    True
    """

    manifest: HeadManifest
    tensors: Mapping[str, npt.NDArray[Any]]

    def __post_init__(self) -> None:
        shapes = {name: tuple(value.shape) for name, value in self.tensors.items()}
        used: set[str] = set()
        scores = trace_program(self.manifest.program, shapes, self.manifest.embedding.dim, used.add)
        if scores != len(self.manifest.classes):
            raise FormatError(f"The head gives {scores} scores for {len(self.manifest.classes)} classes.")
        check_values(self.tensors, used)

    @classmethod
    def from_fitted(cls, head: TorchHead, release: Release, settings: Mapping[str, Any] | None = None) -> SavedHead:
        """A head that was trained on `release.sample()`, with classes in the release's order.

        The head's settings are recorded; `settings` adds to them (for instance the number of samples). Nothing checks
        that the head saw no other data: `locum train` guarantees it.
        """
        if not hasattr(head, "module_"):
            raise NotFittedError(f"This {type(head).__name__} is not fitted yet; call `fit` first.")
        if head.augment is not None and head.augment is not release:
            raise PrivacyError(
                "This head also learned from another generator, whose records the release's claim does not cover: "
                "fit it without `augment`, or with the release itself."
            )
        known = [c.item() if isinstance(c, np.generic) else c for c in head.classes_]
        place = {label: i for i, label in enumerate(release.manifest.classes)}
        if unknown := [c for c in known if c not in place]:
            raise ConfigError(
                f"The head knows a class {unknown[0]!r} that the release does not have: fit it on `release.sample()`."
            )
        order = sorted(range(len(known)), key=lambda i: place[known[i]])
        program, tensors = _exported(head, order)
        source = release.manifest
        names = [source.class_names[place[known[i]]] for i in order]
        # The device belongs to the machine, not to the head.
        chosen = {name: value for name, value in head.get_params(deep=False).items() if name != "device"}
        manifest = HeadManifest(
            written_by=f"locum {__version__}",
            settings={**_plain(chosen), **_plain(settings or {})},
            embedding=source.embedding,
            classes=tuple(known[i] for i in order),
            class_names=tuple(names),
            space=source.space,
            claim=release.claim,
            head="linear" if len(tensors) == 2 else "mlp",
            program=program,
            release=release.fingerprint,
        )
        return cls(manifest, tensors)

    @classmethod
    def open(cls, path: str | Path) -> SavedHead:
        """Read a file after checking all of it; a malicious file raises a `ReleaseError` and runs nothing.

        The checks show that the file is consistent, not who made it or from what.
        """
        if Path(path).is_dir():
            raise FormatError(f"{str(path)!r} is a folder; a head is one file. Make one with `locum train`.")
        if not Path(path).is_file():
            raise FormatError(f"There is no head at {str(path)!r}: check the spelling.")
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise FormatError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
        tensors, metadata = parse_tensors(raw, repr(str(path)), MAX_HEADER)
        if ENTRY not in metadata:
            raise FormatError(f"{str(path)!r} holds tensors but is not a head. Make one with `locum train`.")
        manifest = parse_document(metadata[ENTRY].encode(), HeadManifest, "The head's description", "head")
        return cls(manifest, tensors)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one .safetensors file atomically, readable only by its owner.

        `path` must end in .safetensors. An existing file is replaced only with `overwrite`.
        """
        from safetensors.numpy import save

        from locum.io import write_bytes

        target = Path(path)
        check_output_file(target, overwrite=overwrite, suffixes=(SUFFIX,))
        raw = save({k: np.ascontiguousarray(v) for k, v in self.tensors.items()}, {ENTRY: self.manifest.dumps()})
        write_bytes(str(target), raw)
        return target

    @property
    def claim(self) -> PrivacyClaim:
        """The privacy claim: the release's own."""
        return self.manifest.claim

    @property
    def info(self) -> EmbeddingInfo:
        """The description of the vectors that this head takes."""
        return self.manifest.embedding.info(self.manifest.class_names)

    @property
    def classes(self) -> npt.NDArray[Any]:
        """The labels that `predict` returns, in the order of the columns of `predict_proba`."""
        return np.asarray(self.manifest.classes)

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Map vectors into the space of the release; `predict_proba` does it too, and doing it twice is harmless."""
        with np.errstate(over="ignore"):
            a = np.asarray(X, dtype=np.float32)
        if a.ndim != 2 or a.shape[1] != self.manifest.embedding.dim:
            raise DataError(
                f"The head takes vectors of {self.manifest.embedding.dim} features; got shape {a.shape}. "
                "Embed the data with the backbone that the head names."
            )
        if not np.isfinite(a).all():
            raise DataError("Vectors must be finite; got NaN or infinity. Drop or repair those records.")
        return to_space(a, self.manifest.space)

    def with_temperature(self, temperature: float) -> SavedHead:
        """The same head with every score divided by `temperature`, which becomes part of the last layer.

        No prediction changes. The settings record the temperature.
        """
        if not 0 < temperature < np.inf:
            raise ConfigError(
                f"`temperature` must be above 0 and finite; got {temperature!r}. Above 1, the head is less confident."
            )
        last = self.manifest.program[-1]
        if not isinstance(last, Linear):
            raise ConfigError(f"A temperature needs a linear layer at the end of the head; it ends in {last.op!r}.")
        scaled = {name: self.tensors[name] / temperature for name in (last.weight, last.bias)}
        settings = {**self.manifest.settings, "temperature": float(temperature)}
        manifest = self.manifest.model_copy(update={"settings": settings})
        return replace(self, manifest=manifest, tensors={**self.tensors, **scaled})

    def decision_function(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Score of each class before the softmax, in the order of `classes`."""
        rows = self.transform(X)
        out = np.empty((len(rows), len(self.manifest.classes)))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rows), CHUNK):
                part = slice(start, start + CHUNK)
                out[part] = run_program(self.manifest.program, self.tensors, rows[part].astype(np.float64))
        if not np.isfinite(out).all():
            raise DataError("The head's scores are not finite: its weights or these vectors are far too large.")
        return out

    def predict_proba(self, X: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Probability of each class, in the order of `classes`."""
        scores = self.decision_function(X)
        with np.errstate(over="ignore"):
            weight = np.exp(scores - scores.max(axis=1, keepdims=True))
        out: npt.NDArray[np.float64] = weight / weight.sum(axis=1, keepdims=True)
        return out

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The most likely class."""
        best: npt.NDArray[Any] = self.classes[self.predict_proba(X).argmax(axis=1)]
        return best


def _exported(
    head: TorchHead, order: list[int]
) -> tuple[tuple[Linear | Activation, ...], dict[str, npt.NDArray[np.float64]]]:
    """The head's layers as operations and tensors, with z-scoring in the first layer and classes in `order`."""
    from torch import nn

    program: list[Linear | Activation] = []
    weights: list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]] = []
    for layer in head.module_ if isinstance(head.module_, nn.Sequential) else [head.module_]:
        if isinstance(layer, nn.Linear):
            program.append(Linear(weight=f"layer{len(weights)}.weight", bias=f"layer{len(weights)}.bias"))
            weights.append((_float64(layer.weight), _float64(layer.bias)))
        elif isinstance(layer, nn.ReLU):
            program.append(Activation(op="relu"))
        elif not isinstance(layer, nn.Dropout):
            raise ConfigError(
                f"A head with a layer {type(layer).__name__} cannot be saved: use only Linear, ReLU and Dropout."
            )
    weight, bias = weights[0]
    weight = weight / _float64(head.scale_)
    weights[0] = weight, bias - weight @ _float64(head.mean_)
    weight, bias = weights[-1]
    weights[-1] = weight[order], bias[order]
    tensors: dict[str, npt.NDArray[np.float64]] = {}
    for i, (weight, bias) in enumerate(weights):
        tensors |= {f"layer{i}.weight": weight, f"layer{i}.bias": bias}
    return tuple(program), tensors


def _float64(tensor: Any) -> npt.NDArray[np.float64]:
    out: npt.NDArray[np.float64] = tensor.detach().double().numpy()
    return out


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Only numbers, booleans and text: an object could carry private data."""
    return {k: v for k, v in settings.items() if v is None or isinstance(v, bool | int | float | str)}
