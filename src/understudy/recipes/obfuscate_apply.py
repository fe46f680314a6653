"""`obfuscate apply`: records that may leave, with a claim that says what they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from understudy.embed.image_attributes import ImageTable
from understudy.errors import ConfigError, DataError, UnderstudyError
from understudy.obfuscate import ImageObfuscator, SavedObfuscator, TableObfuscator, open_obfuscator
from understudy.obfuscate.manifest import written_by
from understudy.recipes.obfuscate_data import Rows, column, columns_of, joined, read_rows, taken
from understudy.recipes.obfuscate_files import check_place, write_images, write_table
from understudy.types import PrivacyClaim
from understudy.types.digits import at_least

__all__ = ["AppliedSummary", "apply_obfuscator", "default_lambda", "records_for", "utility_of"]

Array = npt.NDArray[Any]
# Images that are worked on at once.
_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class AppliedSummary:
    """What was written; the claim lies beside it too."""

    file: str
    claim_file: str
    records: int
    left_out: tuple[str, ...]
    about: dict[str, Any]
    claim: PrivacyClaim

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {name: getattr(self, name) for name in ("file", "claim_file", "records", "left_out", "about")}


def apply_obfuscator(
    obfuscator: Path,
    data: str,
    out: Path,
    *,
    noise: float,
    lambda_: float | Literal["own"] | None = None,
    true_label: bool = True,
    delta: float = 1e-5,
    keep_order: bool = False,
    attributes: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
) -> AppliedSummary:
    """Obfuscate the records of `data` and write them, their utility labels and a claim.

    A table becomes `out` (.csv or .parquet); images become an .npz, or a folder of neutrally named PNGs with the
    labels in `attributes.csv`. Columns that the obfuscator does not know are left out. Records come in a new order
    unless `keep_order`. `lambda_` is the obfuscator's usual one if not given; "own" writes labels as C sees them.
    Without `seed` coins are fresh; with it, whoever guesses the seed takes the noise off, and the claim says so.
    """
    saved = open_obfuscator(obfuscator)
    kind = saved.manifest.data.kind
    check_place(out, kind, overwrite=overwrite)
    if not 0 < delta < 1:
        raise ConfigError(f"--delta must lie between 0 and 1; got {delta!r}. 1e-5 is usual.")
    plain = default_lambda(saved) if lambda_ is None else None if lambda_ == "own" else lambda_
    # Wrong knobs are told before data are read.
    saved.model.masking(noise=noise, lambda_=plain, use_true_label=true_label)
    rows = joined(records_for(saved, data, attributes, limit))
    labels = utility_of(saved, rows, data) if true_label else None
    rng = np.random.default_rng(seed)
    if not keep_order:
        # In the order of the data a row's place would tell whose record it was.
        order = rng.permutation(len(rows))
        rows = taken(rows, order)
        labels = None if labels is None else {name: values[order] for name, values in labels.items()}
    about = _about(saved, noise, plain, true_label, delta, seeded=seed is not None, ordered=keep_order)
    knobs: dict[str, Any] = {"noise": noise, "lambda_": plain, "use_true_label": true_label, "random_state": rng}
    model = saved.model
    if isinstance(model, ImageObfuscator):
        known = [*model.labels_.names]
        pixels, carried = _images(model, rows.images, labels, knobs)
        claim_file = write_images(out, pixels, carried, about, overwrite=overwrite)
    else:
        known = [*model.codec_.columns, *model.labels_.names]
        frame = rows[list(model.codec_.columns)]
        released = model.transform(frame, labels, **knobs)
        guessed = {} if labels else model.predict(frame)
        for name in model.labels_.names:
            released[name] = guessed[name] if guessed else rows[name].to_numpy()
        order_of = [name for name in columns_of(rows) if name in known]
        order_of += [name for name in known if name not in order_of]
        claim_file = write_table(out, released[order_of], about)
    return AppliedSummary(
        file=str(out),
        claim_file=str(claim_file),
        records=len(rows),
        left_out=tuple(name for name in columns_of(rows) if name not in known),
        about=about,
        claim=PrivacyClaim.from_dict(about["claim"]),
    )


def records_for(saved: SavedObfuscator, data: str, attributes: str | None, limit: int | None) -> dict[str, Rows]:
    """Every split of `data`, as this obfuscator takes it; a sentence where it is of another kind."""
    model = saved.model
    shape = model.shape_ if isinstance(model, ImageObfuscator) else (3, 64, 64)
    splits = read_rows(data, attributes=attributes, side=shape[1], channels=shape[0], limit=limit)
    for rows in splits.values():
        if isinstance(rows, ImageTable) != isinstance(model, ImageObfuscator):
            raise DataError(f"The obfuscator takes {saved.manifest.data.kind}s, and {data!r} holds none.")
        if isinstance(model, TableObfuscator):
            if lacking := [name for name in model.codec_.columns if name not in columns_of(rows)]:
                raise DataError(f"{data!r} lacks columns that the obfuscator was fitted on: {', '.join(lacking)}.")
            if both := set(model.codec_.columns) & set(model.labels_.names):
                raise ConfigError(f"{sorted(both)[0]!r} is both a column and a utility attribute: fit without it.")
    return splits


def utility_of(saved: SavedObfuscator, rows: Rows, data: str) -> dict[str, Array]:
    """The utility labels of each record, known to be some that the obfuscator was fitted on."""
    names = saved.model.labels_.names
    labels = {name: column(rows, name, data, "the obfuscator's utility") for name in names}
    try:
        saved.model.codes(labels)
    except UnderstudyError:
        raise
    except ValueError:
        raise DataError(f"The utility labels of {data!r} are of another kind than those that were fitted.") from None
    return labels


def default_lambda(saved: SavedObfuscator) -> float:
    """What writes a label plainly: the seed's own values."""
    return -3000.0 if saved.manifest.data.kind == "image" and saved.model.preset == "seed" else -50.0


def _images(
    model: ImageObfuscator, images: Array, labels: Mapping[str, Array] | None, knobs: Mapping[str, Any]
) -> tuple[Array, dict[str, Array]]:
    """Obfuscated images and the labels that they carry, some at a time."""
    made, guessed = [], []
    for start in range(0, len(images), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        some = None if labels is None else {name: values[part] for name, values in labels.items()}
        made.append(model.transform(images[part], some, **knobs))
        if labels is None:
            guessed.append(model.predict(images[part]))
    if labels is None:
        labels = {name: np.concatenate([part[name] for part in guessed]) for name in model.labels_.names}
    return np.concatenate(made), dict(labels)


def _about(
    saved: SavedObfuscator,
    noise: float,
    lambda_: float | None,
    true_label: bool,
    delta: float,
    *,
    seeded: bool,
    ordered: bool,
) -> dict[str, Any]:
    """What travels with obfuscated records: knobs, the obfuscator's fingerprint, and a claim of kind none."""
    told = [
        "utility labels: each record carries its own, by design"
        if true_label
        else "utility labels: each record carries what the obfuscator took them for, by design",
        "what an attacker finds out: measured, not proven; `understudy obfuscate trade-off` measures it",
        "repeated releases of one record: they add up, and their mean has less noise",
        "records that the obfuscator was fitted on: nothing is proven about them",
        "that a record is here: there is a row for each",
    ]
    epsilon = saved.model.local_epsilon(noise, delta=delta)
    local = None
    if seeded:
        told.append("the coins: they were seeded, as for a test; whoever guesses the seed takes the noise off")
    elif lambda_ is None:
        told.append("what C sees of the utility labels: it is written without noise")
    elif math.isfinite(epsilon):
        local = {"epsilon": epsilon, "delta": delta}
        told.append(
            "local differential privacy, which is no part of this claim: one release of a record that the "
            f"obfuscator was not fitted on, beside the labels written with it, has epsilon {at_least(epsilon)} at "
            f"delta {delta:g} if nobody knows the coins, which come from a generator that is not cryptographic"
        )
    if ordered:
        told.append("whose record is whose: they are in the order of the data")
    claim = PrivacyClaim(kind="none", not_covered=tuple(told))
    return {
        "format": "understudy-obfuscated",
        "schema_version": 1,
        "written_by": written_by(),
        "obfuscator": saved.fingerprint,
        "preset": saved.model.preset,
        "knobs": {
            "noise": noise if math.isfinite(noise) else "infinite",
            "lambda": "own" if lambda_ is None else lambda_,
            "labels": "true" if true_label else "guessed",
        },
        "utility": list(saved.model.labels_.names),
        "local": local,
        "claim": claim.to_dict(),
    }
