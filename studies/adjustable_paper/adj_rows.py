"""UCI Adult for the studies of this folder: rows of one seed, fits that several cells share, trees as judges."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.data import TableCodec, read_adult
from locum.obfuscate import Labeled, Masking, TableObfuscator
from locum.obfuscate.evaluation import Originals
from locum.recipes.study import data_folder

if TYPE_CHECKING:
    import pandas as pd

Array = npt.NDArray[Any]
TEST = 9045
LAMBDA = -50.0
FIGURES = ("weak", "strong", "informed", "utility", "released")
SHOWN = (
    "weak attacker",
    "strong attacker",
    "who knows the label",
    "receiver on original rows",
    "receiver on released rows",
)


@cache
def adult() -> pd.DataFrame:
    """All complete rows, with income and sex as codes."""
    table = read_adult(data_folder() / "adult")
    return table.assign(income=(table["income"] == ">50K").astype(int), sex=(table["sex"] == "Male").astype(int))


class Rows:
    """The rows of one seed without income and sex, to learn from and to test on, as tables and as numbers."""

    def __init__(self, seed: int, most: int) -> None:
        table = adult()
        order = np.random.default_rng(seed).permutation(len(table))
        self.seed, places = seed, (order[TEST:][:most], order[:TEST])
        frame = table.drop(columns=["income", "sex"])
        # Categories and bounds of all rows are taken to be public.
        self.codec = TableCodec.fit(frame)
        self.train_frame, self.test_frame = (frame.iloc[p] for p in places)
        utility, private = (table[name].to_numpy(dtype=np.int64) for name in ("income", "sex"))
        self.train, self.test = (
            Labeled(self.codec.encode(part), utility[p], private[p])
            for part, p in zip((self.train_frame, self.test_frame), places, strict=True)
        )

    def few(self, most: int) -> Labeled:
        """The first rows to learn from."""
        return self.train.take(np.arange(min(most, len(self.train))))


@cache
def rows_of(seed: int, most: int) -> Rows:
    """Those that most cells work on."""
    return Rows(seed, most)


@cache
def fitted(seed: int, most: int, preset: str, epochs: int) -> TableObfuscator:
    """One fit for all cells that ask for it."""
    rows = rows_of(seed, most)
    model = TableObfuscator(preset, max_epochs=epochs, random_state=seed)  # type: ignore[arg-type]
    return model.fit(rows.train_frame, rows.train.utility, codec=rows.codec)


@cache
def originals(seed: int, most: int, judge_rows: int) -> Originals:
    """Trees who learn from the first `judge_rows` rows."""
    rows = rows_of(seed, most)
    return Originals.learn(rows.few(judge_rows), rows.test, ["trees"], seed)


def judged(found: Originals, masking: Masking) -> dict[str, float]:
    """The accuracies of a release."""
    seen = found.judge(masking, copies=1)
    by = (seen.weak, seen.strong, seen.informed, seen.utility_original, seen.utility_released)
    return {name: one["trees"].value for name, one in zip(FIGURES, by, strict=True)}


def prefixed(prefix: str, figures: Mapping[str, float]) -> dict[str, float]:
    """The same figures under longer names."""
    return {f"{prefix}/{name}": value for name, value in figures.items()}
