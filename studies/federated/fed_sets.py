"""Which records each site has: artificial partitions, and real hospitals and patients."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import StratifiedKFold

from locum.data import (
    partition_by,
    partition_dirichlet,
    partition_iid,
    read_embeddings,
    read_splits,
    reference_for,
    stratified_split,
)
from locum.errors import DataError
from locum.recipes import StudySet, embed_to_file, study_set, study_splits
from locum.recipes.study import data_folder
from locum.recipes.study_sets import SITE_COLUMNS, backbone_label
from locum.types import DP, EmbeddingInfo, EmbeddingSet, Unit

Array = npt.NDArray[Any]
Parts = Mapping[str, EmbeddingSet]

# Sites of a set that does not say how many it has, and the fewest records of a site.
SITES, FEWEST = 5, 40
# At most a tenth of one record among all sites.
DELTA = 1e-5
# The federated paper's own.
PAPER_DELTA = 1e-4
# From UCI's documentation of the attributes and common medical ranges, not from these records.
RANGES = {
    "age": (20, 80),
    "trestbps": (80, 200),
    "chol": (100, 600),
    "thalach": (60, 220),
    "oldpeak": (-3, 7),
    "ca": (0, 3),
    "sex": (0, 1),
    "fbs": (0, 1),
    "exang": (0, 1),
}
# A value of 0 stands for a missing one here.
ZERO_IS_MISSING = ("chol", "trestbps")
CODES = {"cp": "1234", "restecg": "012", "slope": "123", "thal": "367"}
FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Deal:
    """What each site trains on, and what it is tested on."""

    train: dict[str, EmbeddingSet]
    test: dict[str, EmbeddingSet]
    reference: str = "efflite0"
    unit: Unit = "record"
    # Whether test records are a fifth of each site's own, or common to all sites.
    own_test: bool = False
    delta: float = DELTA

    @property
    def classes(self) -> tuple[str, ...]:
        return next(iter(self.train.values())).info.class_names

    @property
    def dim(self) -> int:
        return next(iter(self.train.values())).dim

    @property
    def subjects(self) -> bool:
        return self.unit == "subject"

    def pooled(self) -> EmbeddingSet:
        """All training records in one place."""
        return joined(list(self.train.values()))

    def budget(self, epsilon: float, delta: float | None = None) -> DP:
        """Each site declares four fifths of the mean number of units, rounded down to tens."""
        return DP(epsilon, min(delta or self.delta, 1 / (10 * self.declared)), self.unit, n_public=self.declared)

    @property
    def declared(self) -> int:
        """The number of units that every site declares."""
        sizes = [len(np.unique(p.subject)) if self.subjects else len(p) for p in self.train.values()]
        return max(10, 10 * int((0.1 if self.own_test else 0.08) * float(np.mean(sizes))))


def joined(sets: Sequence[EmbeddingSet]) -> EmbeddingSet:
    """Several sets as one, with subjects if they have them."""
    subject = None if sets[0].subject is None else np.concatenate([s.subject for s in sets])  # type: ignore[misc]
    return replace(
        sets[0],
        X=np.concatenate([s.X for s in sets]),
        y=np.concatenate([s.y for s in sets]),
        subject=subject,
        attributes={k: np.concatenate([s.attributes[k] for s in sets]) for k in sets[0].attributes},
    )


def deals(name: str, seed: int, sites: int | None = None, backbone: str = "efflite0") -> list[Deal]:
    """The records of each site, the same for all methods of a seed.

    Hospitals are small: each of their records is tested once, in one of five folds, which are five deals.
    """
    found, rng = study_set(name), np.random.default_rng(seed)
    how, each = found.more.get("partition"), found.more.get("each", 0)
    if how is None:
        return [_dealt(found, sites, rng)]
    if how == "hospitals":
        return _hospital_folds(seed)
    if how == "patients":
        return [by_patient(int(found.more["sites"]), rng)]
    count = sites or int(found.more["sites"])
    if backbone == "efflite0":
        data = study_splits(name)["train"]
        reference = found.reference_of(data)
    else:
        data = embedded(backbone)
        reference = reference_for(data.info)
    if each:
        if count * each >= len(data):
            raise DataError(
                f"The set {name!r} has {len(data)} records: too few for {count} sites of {each} and a test."
            )
        some = stratified_split(data, {"train": count * each, "test": min(3000, len(data) - count * each)}, rng=rng)
        parts = partition_iid(some["train"], count, rng)
        return [Deal(parts, dict.fromkeys(parts, some["test"]), reference)]
    if how == "dirichlet":
        parts = partition_dirichlet(data, count, 0.3, rng, min_records=20)
    else:
        parts = partition_iid(data, count, rng)
    return [Deal(*held_out(parts, seed), own_test=True)]


def _dealt(found: StudySet, sites: int | None, rng: np.random.Generator) -> Deal:
    """Any set: so many sites alike, else by an attribute that names the site if there is one, with one test split."""
    splits = study_splits(found.name)
    train, test = joined([splits[part] for part in ("train", "val") if part in splits]), splits["test"]
    column = next((c for c in SITE_COLUMNS if c in train.attributes), None)
    if sites is None and column is None and found.more.get("hospitals"):
        raise DataError(
            f"The set {found.name!r} needs an attribute that names the hospital: {', '.join(SITE_COLUMNS)}."
        )
    if sites is None and column is not None:
        parts = partition_by(train, column)
    else:
        parts = partition_iid(train, sites or int(found.more.get("sites", SITES)), rng)
    # At most a tenth of one record among all sites.
    delta = min(DELTA, 10.0 ** -float(np.ceil(np.log10(10 * len(train)))))
    reference = found.reference_of(train)
    return Deal(parts, dict.fromkeys(parts, test), reference, unit=found.unit, delta=delta)


def check_sites(names: Sequence[str], sites: int | None = None) -> None:
    """Raise `DataError` for a set whose sites, as it has them or so many, would have too few records."""
    for name in names:
        if sites is None and "partition" in study_set(name).more:
            continue
        for deal in deals(name, 0, sites):
            small = min(deal.train, key=lambda site: len(deal.train[site]))
            size, classes = len(deal.train[small]), len(np.unique(deal.train[small].y))
            if len(deal.train) < 3 or size < FEWEST or classes < 2:
                raise DataError(
                    f"The set {name!r} gives {len(deal.train)} sites, the smallest with {size} records of {classes} "
                    f"class(es): a federation needs 3 sites or more, each with {FEWEST} records of two classes."
                )


def held_out(parts: Mapping[str, EmbeddingSet], seed: int) -> tuple[dict[str, EmbeddingSet], dict[str, EmbeddingSet]]:
    """Records to train on, and per label a fifth to test on, at each site."""
    shares = {"test": 0.2, "train": 0.8}
    split = {
        site: stratified_split(part, shares, rng=np.random.default_rng([seed, i]))
        for i, (site, part) in enumerate(parts.items())
    }
    return {k: v["train"] for k, v in split.items()}, {k: v["test"] for k, v in split.items()}


@cache
def embedded(backbone: str) -> EmbeddingSet:
    """The training images of CIFAR-10 through another backbone; vectors are kept in `out/`."""
    file = Path("out/federated-factors") / f"{backbone_label(backbone)}.npz"
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        embed_to_file(str(data_folder() / "cifar10_12k.npz"), file, backbone=backbone, workers=1)
    return read_splits(file)["train"]


def by_patient(sites: int, rng: np.random.Generator, label: str = "sex") -> Deal:
    """Chest X-rays with all images of a patient at one site; tested on other patients, the same for all sites."""
    train, test = xrays(label)
    parts = partition_iid(train, sites, rng)
    return Deal(parts, dict.fromkeys(parts, test), unit="subject")


@cache
def xrays(label: str = "sex") -> tuple[EmbeddingSet, EmbeddingSet]:
    """Chest X-rays of real patients for training and for testing; the label is the sex or the effusion."""
    file = data_folder() / "nih_cxr14_efflite0.npz"
    found = [read_embeddings(file, split) for split in ("train", "val", "test")]
    if label == "effusion":
        found = [_relabeled(s) for s in found]
    elif label != "sex":
        raise DataError(f"The label must be sex or effusion; got {label!r}.")
    return joined(found[:2]), found[2]


def _relabeled(data: EmbeddingSet) -> EmbeddingSet:
    """Effusion as the label, and the sex among the attributes."""
    info = replace(data.info, class_names=("no", "yes"))
    sex = np.array(data.info.class_names)[data.y]
    y = (data.attributes["effusion"] == "yes").astype(np.int64)
    return replace(data, y=y, attributes={**data.attributes, "sex": sex}, info=info)


@cache
def hospitals() -> EmbeddingSet:
    """Heart disease as a table: numbers scaled by public ranges to -1..1, codes one-hot, missing in the middle."""
    with (data_folder() / "heart4.csv").open() as f:
        rows = list(csv.DictReader(f))
    X = [[*(_scaled(row, k) for k in RANGES), *(float(row[k] == c) for k in CODES for c in CODES[k])] for row in rows]
    return EmbeddingSet(
        X=np.array(X, dtype=np.float32),
        y=np.array([int(row["num"]) > 0 for row in rows], dtype=np.int64),
        attributes={"site": np.array([row["site"] for row in rows])},
        info=EmbeddingInfo(class_names=("healthy", "disease")),
    )


def _scaled(row: Mapping[str, str], name: str) -> float:
    low, high = RANGES[name]
    text = row[name]
    if text == "" or (name in ZERO_IS_MISSING and float(text) == 0):
        return 0.0
    return float(np.clip(2 * (float(text) - low) / (high - low) - 1, -1, 1))


def _hospital_folds(seed: int) -> list[Deal]:
    parts = partition_by(hospitals(), "site")
    out: list[tuple[dict[str, EmbeddingSet], dict[str, EmbeddingSet]]] = [({}, {}) for _ in range(FOLDS)]
    for name, part in parts.items():
        folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(part.X, part.y)
        for (train, test), (a, b) in zip(out, folds, strict=True):
            train[name], test[name] = part.take(a), part.take(b)
    return [Deal(train, test, reference="none", own_test=True) for train, test in out]
