"""`obfuscate trade-off`: what attackers and receivers find in obfuscated records, at every setting of the knobs."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.io import write_bytes
from locum.obfuscate import ImageObfuscator, Masking, SavedObfuscator, TradeOff, open_obfuscator, trade_off
from locum.recipes.inputs import choose_split
from locum.recipes.obfuscate import default_lambda, records_for, utility_of
from locum.recipes.obfuscate_data import Rows, column, taken
from locum.report import BLIND, judges_see, obfuscation_html, obfuscation_markdown, obfuscation_report, to_json

Array = npt.NDArray[Any]
# Images in each cell, in rows of two.
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class ImageGrid:
    """Cells for `obfuscation_report`, and one PNG with a row for each lambda. Both show real images."""

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
    """A few test images at every setting, with the same coins, as the seed's Fig. 8."""
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


def _tile(images: Array) -> Array:
    """Images in rows of two, with a light line around."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=255)
    if len(framed) % 2:
        framed = np.concatenate([framed, np.full_like(framed[:1], 255)])
    return np.concatenate([np.concatenate([a, b], axis=1) for a, b in zip(framed[::2], framed[1::2], strict=True)])


def _png(image: Array) -> bytes:
    from PIL import Image

    raw = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[2] == 1 else image).save(raw, format="PNG")
    return raw.getvalue()


Progress = Callable[[int, int, str], None]

STATE = "state.json"
_LEAST_TEST = 20
_MOST_VALUES = 1000
_SAME_DATA = (
    "A share of DATA that was kept from the judges. If the obfuscator was fitted on DATA it has seen these records, "
    "and the figures may flatter it: fit it on other records, or give --test."
)


@dataclass(frozen=True, slots=True)
class TradeOffSummary:
    """What was measured, and where it is. It depends on records: it stays in the building."""

    folder: str
    files: tuple[str, ...]
    found: TradeOff
    report: dict[str, Any]
    # Why no point was picked, where one was asked for.
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
    """Judge an obfuscator at every pair of noise and lambda, and write curve, table and an internal report to `out`.

    Judges learn on `data` (of data with splits: train) and are tried on `test`, else on the split test, else on
    `holdout` of the records. `private` names the column that an attacker wants; the obfuscator never sees it. A run
    that was killed goes on where it stopped, and values can be added to a folder that is done; `overwrite` begins
    anew.
    """
    saved = open_obfuscator(obfuscator)
    lambdas = (default_lambda(saved),) if lambdas is None else tuple(lambdas)
    for noise in noises:
        for lambda_ in lambdas:
            saved.model.masking(noise=noise, lambda_=lambda_)
    if attacker_at_most is not None and not 0 < attacker_at_most <= 1:
        raise ConfigError(f"--attacker-at-most is an accuracy above 0, at most 1; got {attacker_at_most!r}.")
    if private in saved.model.labels_.names:
        raise ConfigError(f"{private!r} is what the obfuscator keeps: --private names what it should hide.")
    train, held, tested_on = _parts(saved, data, test, holdout, attributes, test_attributes, limit, seed)
    triples = [_triple(saved, rows, where, private) for rows, where in ((train, data), (held, test or data))]
    _check_folder(out, overwrite=overwrite)
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
            "judges": ", ".join(found.points[0].judgement.strong),
            "releases that are averaged": copies,
        },
        target=attacker_at_most,
        picked=picked,
        problem=problem,
        grid=None if grid is None else grid.report,
    )
    return TradeOffSummary(str(out), _write(out, found, report, grid), found, report, problem)


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
    """Records to learn from, records to try on, and a sentence on where the latter come from."""
    splits = records_for(saved, data, attributes, limit)
    train = choose_split(splits, data, "train")
    if test is not None:
        held = choose_split(records_for(saved, test, test_attributes, limit), test, "test", "val")
        said = "Records of --test. They count only if the obfuscator was not fitted on them."
    elif "test" in splits and splits["test"] is not train:
        held, said = splits["test"], "The split test of DATA. It counts only if the obfuscator was not fitted on it."
    else:
        if not 0 < holdout < 1:
            raise ConfigError(f"--holdout is a share between 0 and 1; got {holdout!r}.")
        order = np.random.default_rng(seed).permutation(len(train))
        size = round(holdout * len(train))
        train, held, said = taken(train, order[size:]), taken(train, order[:size]), _SAME_DATA
    if len(held) < _LEAST_TEST or len(train) < _LEAST_TEST:
        raise DataError(
            f"Judges need {_LEAST_TEST} records to learn from and {_LEAST_TEST} to be tried on; got {len(train)} and "
            f"{len(held)}. Give more."
        )
    return train, held, said


def _triple(saved: SavedObfuscator, rows: Rows, data: str, private: str) -> tuple[Any, dict[str, Array], Array]:
    wanted = column(rows, private, data, "--private")
    if wanted.dtype.kind == "O":
        wanted = wanted.astype(np.str_)
    if not 2 <= (values := len(np.unique(wanted))) <= _MOST_VALUES:
        raise DataError(
            f"--private names {private!r}, which has {values} values in {data!r}; an attacker guesses among 2 to "
            f"{_MOST_VALUES}. Make classes of it."
        )
    model = saved.model
    records = rows.images if isinstance(model, ImageObfuscator) else rows[list(model.codec_.columns)]
    return records, utility_of(saved, rows, data), wanted


@dataclass(frozen=True, slots=True)
class _Guessing:
    """An obfuscator that writes its own guess of the utility labels."""

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
    """The point that meets the target, or why none does. Where judges are blind, nothing is called safe."""
    if target is None:
        return None, ""
    alone = found.points[0].judgement.label_only
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
        "labels written": "true ones" if true_label else "its own guess",
        "takes": (" x " if isinstance(model, ImageObfuscator) else ", ").join(map(str, takes)),
        "parameters": model.parameters_,
        "fingerprint": saved.fingerprint,
    }


def _check_folder(out: Path, *, overwrite: bool) -> None:
    """The folder is new, empty or one of an earlier run."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{str(out)!r} is no folder: give the name of one.")
    if out.is_dir() and any(out.iterdir()):
        if not (out / STATE).is_file():
            raise ConfigError(f"{str(out)!r} holds other things than a trade-off: choose another folder.")
        if overwrite:
            (out / STATE).unlink()
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{str(out)!r} cannot be made: {error.strerror}. Choose another folder.") from None


def _write(out: Path, found: TradeOff, report: Mapping[str, Any], grid: ImageGrid | None) -> tuple[str, ...]:
    """Every file whole, for its owner alone."""
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
    # The page has the curve in any case.
    if find_spec("matplotlib") is not None:
        found.plot(out / "curve.svg")
        return (*texts, "curve.svg")
    return tuple(texts)
