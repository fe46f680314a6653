"""`obfuscate fit`: from records to an obfuscator that can be shared."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.embed.image_attributes import ImageTable
from understudy.errors import ConfigError, DataError
from understudy.obfuscate import ImageObfuscator, TableObfuscator, open_obfuscator, save_obfuscator
from understudy.recipes.common import choose_split
from understudy.recipes.images import parted
from understudy.recipes.obfuscate_data import Rows, column, columns_of, read_rows
from understudy.release import check_target
from understudy.train import RichBar
from understudy.types import PrivacyClaim

__all__ = ["ObfuscatorSummary", "fit_obfuscator"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ObfuscatorSummary:
    """What was fitted. It tells how many records there were: it stays in the building."""

    obfuscator: str
    fingerprint: str
    kind: str
    preset: str
    takes: tuple[str, ...]
    utility: dict[str, tuple[str | int, ...]]
    left_out: tuple[str, ...]
    records: int
    parameters: int
    epochs: int
    megabytes: float
    seconds: float
    claim: PrivacyClaim

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        facts = asdict(self) | {"claim": self.claim.to_dict()}
        return facts | {"megabytes": round(self.megabytes, 3), "seconds": round(self.seconds, 2)}


def fit_obfuscator(
    data: str,
    out: Path,
    *,
    utility: Sequence[str],
    drop: Sequence[str] = (),
    preset: str = "calibrated",
    epochs: int | None = None,
    beta: float | None = None,
    authors_compat: bool = False,
    attributes: str | None = None,
    side: int | None = None,
    channels: int = 3,
    limit: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    resume: bool = True,
    verbose: bool = False,
) -> ObfuscatorSummary:
    """Fit an obfuscator on `data` and write it to the folder `out`.

    The columns named in `utility` are what must stay useful: of a table they are taken out before the fit, and so are
    those in `drop`. Of data with splits "train" is taken. A private attribute is not asked for.
    """
    check_target(out, overwrite=overwrite)
    if not utility:
        raise ConfigError("Name what must stay useful: --utility COLUMN, once or more.")
    if len(set(utility)) < len(utility):
        raise ConfigError(f"--utility names a column twice; got {list(utility)}.")
    settings: dict[str, Any] = {
        "preset": preset,
        "max_epochs": epochs,
        "beta": beta,
        "authors_compat": authors_compat,
    }
    # Wrong settings are told before data are read.
    TableObfuscator(**settings)._check()
    rows = choose_split(
        read_rows(data, attributes=attributes, side=side, channels=channels, limit=limit), data, "train"
    )
    labels = {name: column(rows, name, data, "--utility") for name in utility}
    images = isinstance(rows, ImageTable)
    kind = ImageObfuscator if images else TableObfuscator
    records = _images_to_learn(rows, drop) if images else _table_to_learn(rows, data, utility, drop)
    _check_groups(labels)
    started = time.monotonic()
    model = kind(
        **settings,
        random_state=seed,
        # Elsewhere than on a terminal a bar leaves an empty line.
        progress=RichBar("fitting an obfuscator") if verbose and sys.stderr.isatty() else None,
        checkpoint=_checkpoint(data, kind.__name__, settings, utility, drop, seed) if resume else None,
    )
    model.fit(records, labels)
    save_obfuscator(model, out, overwrite=overwrite)
    if model.checkpoint is not None:
        Path(model.checkpoint).unlink(missing_ok=True)
    saved = open_obfuscator(out)
    takes = tuple(str(n) for n in model.shape_) if isinstance(model, ImageObfuscator) else model.codec_.columns
    return ObfuscatorSummary(
        obfuscator=str(out),
        fingerprint=saved.fingerprint,
        kind=saved.manifest.data.kind,
        preset=preset,
        takes=takes,
        utility=dict(zip(model.labels_.names, model.labels_.values, strict=True)),
        left_out=tuple(name for name in columns_of(rows) if name not in (*takes, *utility)),
        records=len(rows),
        parameters=model.parameters_,
        epochs=model.history_.best_epoch,
        megabytes=sum(entry.bytes for entry in saved.manifest.files.values()) / 1e6,
        seconds=time.monotonic() - started,
        claim=saved.claim,
    )


def _table_to_learn(rows: Rows, data: str, utility: Sequence[str], drop: Sequence[str]) -> Rows:
    import pandas as pd

    for name in drop:
        if name not in columns_of(rows):
            raise ConfigError(f"{data!r} has no column {name!r}, which --drop names: check the spelling.")
    frame = rows.drop(columns=[*utility, *(name for name in drop if name not in utility)])
    if not len(frame.columns):
        raise ConfigError("--utility and --drop leave no column to obfuscate: drop fewer.")
    for name in frame.columns:
        dtype, types = frame[name].dtype, pd.api.types
        if types.is_numeric_dtype(dtype) or types.is_bool_dtype(dtype) or types.is_datetime64_any_dtype(dtype):
            continue
        if frame[name].astype(str).nunique() > max(20, len(frame) // 2):
            # Categories leave with the obfuscator: these would be names.
            raise DataError(
                f"Column {name!r} has a value of its own for most records: it would name them, and its values would "
                f"leave. Leave it out with --drop {name}."
            )
    return frame


def _images_to_learn(rows: ImageTable, drop: Sequence[str]) -> Array:
    if drop:
        raise ConfigError("--drop is for columns of tables: of images only what --utility names is kept.")
    return rows.images


def _check_groups(labels: dict[str, Array]) -> None:
    """The means by utility labels leave: the mean of one record would be that record."""
    codes = np.stack([np.unique(values, return_inverse=True)[1].ravel() for values in labels.values()], axis=1)
    if np.unique(codes, axis=0, return_counts=True)[1].min() < 2:
        raise DataError(
            "A combination of utility labels has a single record, which means by label would give away: join rare "
            "values, or leave that record out."
        )


def _checkpoint(data: str, *identity: Any) -> Path | None:
    """A private file beside the data, one for each fit; None where there is no leave to write."""
    file = Path(parted(data)[0]).resolve()
    folder = file.parent / ".understudy"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    text = json.dumps([str(file), data, *identity], sort_keys=True, default=str)
    return folder / f"obfuscator-{hashlib.sha256(text.encode()).hexdigest()[:16]}.checkpoint"
