"""`obfuscate trade-off`: accuracy of attackers and receivers at every setting of the knobs, with a grid of images."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.generate.table import is_table
from locum.io import check_output_folder, private_folder, write_bytes
from locum.obfuscate import ImageObfuscator, Masking, SavedObfuscator, TradeOff, open_obfuscator, trade_off
from locum.recipes.inputs import choose_split
from locum.recipes.obfuscate import default_lambda, records_for, utility_of
from locum.recipes.obfuscate_data import Rows, column, taken
from locum.report import BLIND, judges_see, obfuscation_html, obfuscation_markdown, obfuscation_report, to_json
from locum.types import Progress

Array = npt.NDArray[Any]
STATE = "state.json"
# Images in each cell of a grid, in rows of two.
_SHOWN = 4
_LEAST_TEST = 20
_MOST_VALUES = 1000
_SAME_DATA = (
    "A share of DATA that the judges did not train on. If the obfuscator was fitted on DATA, it has seen these "
    "records, and the figures may be too good: fit it on other records, or use --test."
)


@dataclass(frozen=True, slots=True)
class TradeOffSummary:
    """What was measured, and where it was written. It depends on private records: do not share it.

    Attributes
    ----------
    folder, files
        Where the results are, and their names.
    found
        The points: the accuracy of attackers and receivers at each setting.
    report
        The internal report as a plain dict.
    problem
        Why no point was picked, if one was requested.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import measure_trade_off
    >>> summary = measure_trade_off(  # doctest: +SKIP
    ...     Path("obfuscator"), "patients.csv", Path("trade-off"), private="sex", noises=[1.0, 5.0]
    ... )
    >>> summary.found.to_markdown()  # doctest: +SKIP
    """

    folder: str
    files: tuple[str, ...]
    found: TradeOff
    report: dict[str, Any]
    # Why no point was picked, if one was requested.
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        keys = ("obfuscator", "measured", "baselines", "points", "target", "hull_auc")
        facts = {key: self.report[key] for key in keys}
        return {"folder": self.folder, "files": list(self.files), "problem": self.problem, **facts}


def measure_trade_off(
    obfuscator: Path,
    data: str,
    out: Path,
    *,
    private: str,
    noises: Sequence[float],
    lambdas: Sequence[float] | None = None,
    test: str | None = None,
    holdout: float = 0.2,
    attacker_at_most: float | None = None,
    true_label: bool = True,
    judges: Sequence[str] | None = None,
    copies: int = 10,
    epochs: int | None = None,
    attributes: str | None = None,
    test_attributes: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> TradeOffSummary:
    """Judge an obfuscator at every pair of noise and lambda, and write curve, table and an internal report.

    An interrupted run resumes, and values can be added to a finished one.

    Parameters
    ----------
    obfuscator
        Folder of the obfuscator.
    data
        Records that judges train on; with splits, "train" is used.
    out
        Folder for the results, readable only by its owner.
    private
        The column that an attacker wants, with 2 to 1000 values. The obfuscator never sees it.
    noises, lambdas
        Values of the two knobs. `lambdas` None: the one that writes labels fully.
    test
        Records to test on, which the obfuscator was not fitted on; None: the split "test" of `data`, else a share of
        it.
    holdout
        That share, above 0 and below 1.
    attacker_at_most
        Pick the point of the least noise where the strongest attacker is at most this accurate.
    true_label
        Write true utility labels; False: the obfuscator's prediction.
    judges
        Kinds of judges; None: those that suit the records.
    copies
        How many releases of each record the averaging attacker has.
    epochs
        Passes over the data of judges that are networks; None: the default.
    attributes, test_attributes
        Tables about the images in the folders `data` and `test`.
    limit
        Use only the first records of each split.
    seed
        Seed of judges, noise and holdout.
    overwrite
        Start over.
    progress
        Called as the work proceeds.

    Returns
    -------
    TradeOffSummary
        The points and the report. Private: it depends on test records.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import measure_trade_off
    >>> summary = measure_trade_off(  # doctest: +SKIP
    ...     Path("obfuscator"), "patients.csv", Path("trade-off"), private="sex", noises=[1.0, 5.0]
    ... )
    >>> [point.name for point in summary.found.points]  # doctest: +SKIP
    """
    if is_table(obfuscator):
        raise ConfigError("A private table has no knobs to measure: `locum obfuscate sample` draws its rows.")
    saved = open_obfuscator(obfuscator)
    lambdas = (default_lambda(saved),) if lambdas is None else tuple(lambdas)
    for noise in noises:
        for lambda_ in lambdas:
            saved.model.masking(noise=noise, lambda_=lambda_)
    if attacker_at_most is not None and not 0 < attacker_at_most <= 1:
        raise ConfigError(f"--attacker-at-most must be an accuracy above 0 and at most 1; got {attacker_at_most!r}.")
    if private in saved.model.labels_.names:
        raise ConfigError(f"{private!r} is what the obfuscator keeps: --private names what it should hide.")
    train, held, tested_on = _parts(saved, data, test, holdout, attributes, test_attributes, limit, seed)
    triples = [_triple(saved, rows, where, private) for rows, where in ((train, data), (held, test or data))]
    check_output_folder(out, overwrite=overwrite, resumes=STATE)
    if overwrite:
        (out / STATE).unlink(missing_ok=True)
    private_folder(out)
    found = trade_off(
        saved.model if true_label else _Guessing(saved.model),
        *triples,
        noises=noises,
        lambdas=lambdas,
        judges=judges,
        seed=seed,
        copies=copies,
        epochs=epochs,
        state=out / STATE,
        progress=progress,
    )
    picked, problem = _pick(found, attacker_at_most)
    grid = None
    if isinstance(saved.model, ImageObfuscator):
        grid = image_grid(saved.model, held.images, triples[1][1], noises, lambdas, true_label=true_label, seed=seed)
    report = obfuscation_report(
        found,
        obfuscator=_facts(saved, true_label),
        claim=saved.claim,
        measured={
            "private": private,
            "values of it": len(np.unique(triples[0][2])),
            "tested on": tested_on,
            "records to learn from": len(train),
            "test records": len(held),
            "judges": ", ".join(found.points[0].judgment.strong),
            "releases averaged": copies,
        },
        target=attacker_at_most,
        picked=picked,
        problem=problem,
        grid=None if grid is None else grid.report,
    )
    return TradeOffSummary(str(out), _write(out, found, report, grid), found, report, problem)


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """Cells for `obfuscation_report`, and one PNG with a row per lambda. Both show real images."""

    report: dict[str, Any]
    picture: bytes


def image_grid(
    model: ImageObfuscator,
    images: Array,
    labels: Mapping[str, Array],
    noises: Sequence[float],
    lambdas: Sequence[float],
    *,
    true_label: bool = True,
    seed: int = 0,
) -> ImageGrid:
    """A few test images at every setting, with the same noise, as in Fig. 8 of the adjustable paper."""
    rows = np.random.default_rng(seed).permutation(len(images))[:_SHOWN]
    some, known = images[rows], {name: values[rows] for name, values in labels.items()}
    made = [
        [
            model.transform(some, known, noise=n, lambda_=v, use_true_label=true_label, random_state=seed)
            for n in noises
        ]
        for v in lambdas
    ]
    tiles = [[_tile(some), *map(_tile, row)] for row in made]
    report = {
        "noises": [f"{n:g}" for n in noises],
        "lambdas": [f"{v:g}" for v in lambdas],
        "originals": _png(_tile(some)),
        "cells": [[_png(tile) for tile in row[1:]] for row in tiles],
    }
    return ImageGrid(report, _png(np.concatenate([np.concatenate(row, axis=1) for row in tiles])))


def _parts(
    saved: SavedObfuscator,
    data: str,
    test: str | None,
    holdout: float,
    attributes: str | None,
    test_attributes: str | None,
    limit: int | None,
    seed: int,
) -> tuple[Rows, Rows, str]:
    """Training records, test records, and a sentence on where the test records come from."""
    splits = records_for(saved, data, attributes, limit)
    train = choose_split(splits, data, "train")
    if test is not None:
        held = choose_split(records_for(saved, test, test_attributes, limit), test, "test", "val")
        said = "Records of --test. They count only if the obfuscator was not fitted on them."
    elif "test" in splits and splits["test"] is not train:
        held, said = splits["test"], "The test split of DATA. It counts only if the obfuscator was not fitted on it."
    else:
        if not 0 < holdout < 1:
            raise ConfigError(f"--holdout must be a share between 0 and 1; got {holdout!r}.")
        order = np.random.default_rng(seed).permutation(len(train))
        size = round(holdout * len(train))
        train, held, said = taken(train, order[size:]), taken(train, order[:size]), _SAME_DATA
    if len(held) < _LEAST_TEST or len(train) < _LEAST_TEST:
        raise DataError(
            f"Judges need {_LEAST_TEST} training and {_LEAST_TEST} test records; got {len(train)} and {len(held)}. "
            "Pass more data."
        )
    return train, held, said


def _triple(saved: SavedObfuscator, rows: Rows, data: str, private: str) -> tuple[Any, dict[str, Array], Array]:
    wanted = column(rows, private, data, "--private")
    if wanted.dtype.kind == "O":
        wanted = wanted.astype(np.str_)
    if not 2 <= (values := len(np.unique(wanted))) <= _MOST_VALUES:
        raise DataError(
            f"--private names {private!r}, which has {values} values in {data!r}; an attacker guesses among 2 to "
            f"{_MOST_VALUES}. Group its values into classes."
        )
    model = saved.model
    records = rows.images if isinstance(model, ImageObfuscator) else rows[list(model.codec_.columns)]
    return records, utility_of(saved, rows, data), wanted


@dataclass(frozen=True, slots=True)
class _Guessing:
    """An obfuscator that writes its own prediction of the utility labels."""

    model: Any

    def matrix(self, X: Any) -> Array:
        out: Array = self.model.matrix(X)
        return out

    def codes(self, utility: Any) -> Array:
        out: Array = self.model.codes(utility)
        return out

    def masking(self, *, noise: float, lambda_: float) -> Masking:
        made: Masking = self.model.masking(noise=noise, lambda_=lambda_, use_true_label=False)
        return made


def _pick(found: TradeOff, target: float | None) -> tuple[str | None, str]:
    """The point that meets the target, or why none does. If judges find nothing in originals, none is called safe."""
    if target is None:
        return None, ""
    alone = found.points[0].judgment.label_only
    if alone.high > target:
        return None, f"The utility label alone gives an attacker {alone:.3f}: no noise hides it. Allow more."
    if not judges_see(found):
        return None, BLIND
    try:
        return found.pick(attacker_at_most=target).name, ""
    except ConfigError as error:
        return None, str(error)


def _facts(saved: SavedObfuscator, true_label: bool) -> dict[str, Any]:
    model = saved.model
    takes = model.shape_ if isinstance(model, ImageObfuscator) else model.codec_.columns
    return {
        "kind": saved.manifest.data.kind,
        "preset": model.preset,
        "utility": ", ".join(model.labels_.names),
        "labels written": "true ones" if true_label else "its own prediction",
        "takes": (" x " if isinstance(model, ImageObfuscator) else ", ").join(map(str, takes)),
        "parameters": model.parameters_,
        "fingerprint": saved.fingerprint,
    }


def _write(out: Path, found: TradeOff, report: Mapping[str, Any], grid: ImageGrid | None) -> tuple[str, ...]:
    """Write every file atomically, readable only by its owner."""
    facts = {key: value for key, value in report.items() if key != "grid"}
    texts = {
        "trade-off.json": to_json(facts).encode(),
        "trade-off.md": obfuscation_markdown(report, found.to_markdown()).encode(),
        "report.html": obfuscation_html(report).encode(),
    }
    if grid is not None:
        texts["grid.png"] = grid.picture
    for name, raw in texts.items():
        write_bytes(str(out / name), raw)
    # The page shows the curve in any case.
    if find_spec("matplotlib") is not None:
        found.plot(out / "curve.svg")
        return (*texts, "curve.svg")
    return tuple(texts)


def _tile(images: Array) -> Array:
    """Images in rows of two, each with a white frame."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
    if len(framed) % 2:
        framed = np.concatenate([framed, np.full_like(framed[:1], 255)])
    return np.concatenate([np.concatenate([a, b], axis=1) for a, b in zip(framed[::2], framed[1::2], strict=True)])


def _png(image: Array) -> bytes:
    from PIL import Image

    raw = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(raw, format="PNG")
    return raw.getvalue()
