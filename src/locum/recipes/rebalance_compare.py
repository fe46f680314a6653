"""`rebalance compare`: methods for rare classes, compared on one test set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from locum.data import check_trainable, kfold
from locum.errors import ConfigError, DataError
from locum.generate import BaseGenerator, CVAEGenerator
from locum.heads import LinearHead
from locum.io import FORMATS, check_output_file
from locum.metrics import balanced_accuracy, clopper_pearson, compare, paired_bootstrap, paired_difference
from locum.rebalance import (
    METHODS,
    BySampler,
    ClassAccuracy,
    Method,
    Resampled,
    accuracy_by_shots,
    plot_accuracy_by_class,
    shot_group,
)
from locum.recipes.inputs import check_source, choose_split, only_real, pick_split, read_sets
from locum.train import pick_device
from locum.types import EmbeddingSet, Estimate, Progress, no_progress

HEADS = ("default", "thesis")
# Of the default head. Not only epochs: a method that adds rows would then train longer, and win because of that.
STEPS, EPOCHS = 1500, 10
# Methods that add no records: the others must beat the best of these. Simplest first.
SIMPLE = ("none", "weights", "logit-adjustment")
FOLDS = 3

Codes = npt.NDArray[np.int64]
Labels = npt.NDArray[np.str_]
Matrix = npt.NDArray[np.float32]
Verdict = Literal["reference", "better", "worse", "tie", "one run"]


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One method: scores with intervals over seeds, and how far it is from the reference in balanced accuracy.

    `difference` has its interval over test records, `over_seeds` over seeds; the verdict is "better" or "worse" only
    if neither contains 0, and "one run" with one seed. `by_class` has means over seeds, with exact intervals over the
    class's test records.
    """

    method: str
    scores: dict[str, Estimate]
    difference: Estimate | None
    over_seeds: Estimate | None
    verdict: Verdict
    by_class: tuple[ClassAccuracy, ...]
    note: str

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "method": self.method,
            "scores": {name: value.to_dict() for name, value in self.scores.items()},
            "difference": None if self.difference is None else self.difference.to_dict(),
            "over_seeds": None if self.over_seeds is None else self.over_seeds.to_dict(),
            "verdict": self.verdict,
            "by_class": [asdict(row) for row in self.by_class],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """The table of methods for rare classes. Internal: it depends on records.

    Attributes
    ----------
    head
        "default" or "thesis".
    seeds
        How many heads per method.
    records, test_records
        How many records were trained and tested on.
    reference
        The method that the others are compared with: the best of `simple` by cross-validation.
    simple
        The methods that add no records and were candidates for the reference.
    left_out
        Methods that were not run because they are slow.
    rows
        One per method: `scores`, `difference` from the reference, `verdict`, and accuracy `by_class`.
    figure
        The file of the figure, or None.

    Examples
    --------
    >>> from locum.recipes import compare_methods
    >>> found = compare_methods("data.npz", "data.npz#test")  # doctest: +SKIP
    >>> {row.method: row.verdict for row in found.rows}  # doctest: +SKIP
    """

    head: str
    seeds: int
    records: int
    test_records: int
    reference: str
    simple: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: tuple[MethodRow, ...]
    figure: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "simple": list(self.simple),
            "left_out": list(self.left_out),
            "rows": [row.to_dict() for row in self.rows],
        }


def compare_methods(
    data: str,
    test: str,
    *,
    methods: Sequence[str] | None = None,
    every: bool = False,
    seeds: int = 3,
    head: str = "default",
    figure: Path | None = None,
    backbone: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Train a linear head with each method for rare classes, and score all on the same test records.

    Seeds vary weights, batches and generated records; the data stay the same. The reference is the best of "none",
    "weights" and "logit-adjustment" in cross-validation on `data`: nothing is chosen on the test data. If you choose
    a method from this table, report its accuracy on other data. With one seed there is no verdict: it is "one run".

    Parameters
    ----------
    data
        File or folder of records; with splits, "train" is used.
    test
        File or folder of other records; with splits, "test" is used, else "val".
    methods
        Names from `locum.rebalance.METHODS`; None: those that train no CVAE.
    every
        Run all methods, also the slow ones.
    seeds
        How many heads per method.
    head
        "default" takes 1500 steps, or ten epochs of the records if that is more, for every method; "thesis" takes ten
        epochs of a method's output.
    figure
        File for a figure of accuracy by class; None: no figure.
    backbone
        Model that embeds images, or the path of a custom one.
    device
        Where heads and CVAEs are trained, as in `LinearHead`.
    overwrite
        Replace `figure` if it exists.
    progress
        Called as the work proceeds.

    Returns
    -------
    Comparison
        The table. Internal: it depends on records.

    Examples
    --------
    >>> from locum.recipes import compare_methods
    >>> found = compare_methods("data.npz", "data.npz#test", methods=["none", "smote", "gaussian"])  # doctest: +SKIP
    >>> {row.method: row.verdict for row in found.rows}  # doctest: +SKIP
    """
    chosen, left_out = _chosen(methods, every)
    if head not in HEADS:
        raise ConfigError(f"`head` must be one of {', '.join(HEADS)}; got {head!r}.")
    if seeds < 1:
        raise ConfigError(f"`seeds` must be 1 or more; got {seeds!r}. Intervals need 2.")
    _check_figure(figure, overwrite=overwrite)
    pick_device(device)
    train = only_real(choose_split(read_sets(data, backbone=backbone, progress=progress), data, "train"), "given")
    check_trainable(train, min_per_class=1)
    unseen = _aligned(train, only_real(pick_split(test, "test", "val", like=train.info, backbone=backbone), "test"))
    task = _Task(train, unseen, head, device)
    simple = tuple(name for name in SIMPLE if name in chosen) or SIMPLE
    tell = progress or no_progress
    reference = _best(task, simple, tell)
    if reference not in chosen:
        chosen.insert(0, reference)
    guesses: dict[str, list[Labels]] = {name: [] for name in chosen}
    notes: dict[str, str] = {}
    for seed in range(seeds):
        fitted: dict[str, BaseGenerator] = {}
        for i, name in enumerate(chosen):
            tell(seed * len(chosen) + i, seeds * len(chosen), name)
            model, note = _trained(task, name, np.arange(len(train)), seed, fitted)
            guesses[name].append(task.names[model.predict(unseen.X)])
            notes[name] = note or notes.get(name, "")
    rows = tuple(_row(task, name, guesses, reference, notes[name]) for name in chosen)
    if figure is not None:
        plot_accuracy_by_class({row.method: row.by_class for row in rows}, figure)
    tell(1, 1, "done")
    return Comparison(
        head=head,
        seeds=seeds,
        records=len(train),
        test_records=len(unseen),
        reference=reference,
        simple=simple,
        left_out=left_out,
        rows=rows,
        figure=None if figure is None else str(figure),
    )


class _Task:
    """Both sets, the kind of head, and codes `y` of the training records into `names`, the classes they have."""

    def __init__(self, train: EmbeddingSet, test: EmbeddingSet, head: str, device: str) -> None:
        self.train, self.test, self.head, self.device = train, test, head, device
        self.names, y = np.unique(train.labels, return_inverse=True)
        self.y = y.astype(np.int64)


def _trained(
    task: _Task, name: str, index: Codes, seed: int, fitted: dict[str, BaseGenerator]
) -> tuple[LinearHead, str]:
    """A head trained with this method, and its note; fitted generators are kept in `fitted` and reused."""
    X, y = task.train.X[index], task.y[index]
    method, source = METHODS[name], _generator(METHODS[name])
    if isinstance(source, CVAEGenerator):
        source = clone(source).set_params(device=task.device)
    # Seeded by its place among all methods, so that the result does not depend on which others are compared.
    rng = np.random.default_rng([seed, list(METHODS).index(name)])
    extra = dict(method.head)
    if "augment" in extra:
        if repr(source) not in fitted:
            fitted[repr(source)] = clone(source).set_params(random_state=seed).fit(X, y)
        extra["augment"] = fitted[repr(source)]
    if isinstance(method.resample, BySampler) and source is not None:
        sampler = clone(method.resample.sampler)
        sampler.set_params(generator=clone(source))
        sampler.set_params(random_state=int(rng.integers(2**31 - 1)), generator__random_state=seed)
        rows = Resampled(*sampler.fit_resample(X, y))
        if sampler.generator_ is not None:
            # Its labels are codes, as in `y`.
            fitted[repr(source)] = sampler.generator_
    else:
        rows = method.resample(X, y, rng)
    settings = _settings(task.head, len(y), len(rows.y))
    model = LinearHead(**settings, **extra, random_state=seed, device=task.device)
    return model.fit(rows.X, rows.y, rows.sample_weight), rows.note


def _settings(head: str, records: int, rows: int) -> dict[str, Any]:
    """Settings of a head on `rows` rows, which a method made from `records` records."""
    if head == "thesis":
        return {"standardize": False, "batch_size": 256, "max_epochs": 10, "patience": None}
    batch = 128
    steps = max(STEPS, EPOCHS * math.ceil(records / batch))
    return {"batch_size": batch, "max_epochs": math.ceil(steps / math.ceil(rows / batch)), "patience": None}


def _generator(method: Method) -> BaseGenerator | None:
    """The generator of a method."""
    sampler = getattr(method.resample, "sampler", None)
    found: BaseGenerator | None = method.head.get("augment", getattr(sampler, "generator", None))
    return found


def _best(task: _Task, names: Sequence[str], tell: Progress) -> str:
    """The method with the best balanced accuracy in cross-validation on the training records; the first of equals."""
    if len(names) == 1:
        return names[0]
    found = []
    for i, name in enumerate(names):
        tell(i, len(names) + 1, f"cross-validation of {name}")
        found.append(_cross_validated(task, name))
    return names[int(np.argmax(found))]


def _cross_validated(task: _Task, name: str) -> float:
    """Balanced accuracy on training records, each predicted by a head that did not see it."""
    units = len(task.y) if task.train.subject is None else len(np.unique(task.train.subject))
    guess = np.full(len(task.y), -1)
    for seen, held in kfold(task.train, min(FOLDS, units), np.random.default_rng(0)) if units > 1 else ():
        # With only one class left there is nothing to learn, and the fold counts as wrong.
        if len(np.unique(task.y[seen])) > 1:
            model, _ = _trained(task, name, seen, 0, {})
            guess[held] = model.predict(task.train.X[held])
    return balanced_accuracy(task.y, guess)


def _row(task: _Task, name: str, guesses: dict[str, list[Labels]], reference: str, note: str) -> MethodRow:
    truth, y = task.test.labels, task.test.y
    runs = []
    for guess in guesses[name]:
        found = accuracy_by_shots(task.train.labels, truth, guess)
        groups = {group: e.value for group, e in found.items() if group != "overall"}
        runs.append(
            {"balanced_accuracy": _class_mean(y, guess == truth), "accuracy": found["overall"].value, **groups}
        )
    scores = {metric: Estimate.from_runs([run[metric] for run in runs]) for metric in runs[0]}
    if len(runs) > 1:
        scores = {metric: e.clipped(0.0, 1.0) for metric, e in scores.items()}
    mine = np.mean([guess == truth for guess in guesses[name]], axis=0)
    by_class = _by_class(task, mine)
    if name == reference:
        return MethodRow(name, scores, None, None, "reference", by_class, note)
    theirs = np.mean([guess == truth for guess in guesses[reference]], axis=0)
    difference = paired_bootstrap(_class_mean, y, mine, theirs, np.random.default_rng(0))
    over_seeds = paired_difference(*([_class_mean(y, g == truth) for g in guesses[m]] for m in (name, reference)))
    verdict: Verdict = "tie"
    decided = compare(over_seeds)
    if decided == "not decided":
        verdict = "one run"
    elif decided == compare(difference):
        verdict = decided
    return MethodRow(name, scores, difference, over_seeds, verdict, by_class, note)


def _class_mean(y: Codes, right: npt.NDArray[Any]) -> float:
    """Mean of class accuracies; `right` may hold shares."""
    counts = np.bincount(y)
    return float(np.mean(np.bincount(y, right)[counts > 0] / counts[counts > 0]))


def _by_class(task: _Task, right: npt.NDArray[np.float64]) -> tuple[ClassAccuracy, ...]:
    """Means over seeds; the interval is that of the nearest integer number of records."""
    rows = []
    for c in np.unique(task.test.y):
        mine = right[task.test.y == c]
        value, n = float(mine.mean()), int(task.train.counts[c])
        exact = clopper_pearson(round(float(mine.sum())), len(mine))
        accuracy = Estimate(value, min(exact.low, value), max(exact.high, value), len(mine))
        rows.append(ClassAccuracy(task.train.info.class_names[c], n, shot_group(n), accuracy))
    return tuple(sorted(rows, key=lambda row: -row.records))


def _chosen(methods: Sequence[str] | None, every: bool) -> tuple[list[str], tuple[str, ...]]:
    """The methods in the order of METHODS, and those left out because they are slow."""
    if methods is not None and every:
        raise ConfigError("--methods and --all cannot be combined: use one of them.")
    if methods is None:
        slow = [name for name in METHODS if isinstance(_generator(METHODS[name]), CVAEGenerator)]
        left_out = () if every else tuple(slow)
        return [name for name in METHODS if name not in left_out], left_out
    if unknown := [name for name in methods if name not in METHODS]:
        raise ConfigError(f"There is no method {unknown[0]!r}: choose from {', '.join(METHODS)}.")
    if not methods:
        raise ConfigError("--methods must name at least one method; got none.")
    # In a fixed order, so that the over-sampler's CVAE is fitted when others reuse it.
    return [name for name in METHODS if name in methods], ()


def _check_figure(figure: Path | None, *, overwrite: bool) -> None:
    """Check the figure before any work."""
    if figure is None:
        return
    if find_spec("matplotlib") is None:
        raise ConfigError("Figures need matplotlib: pip install 'locum[figures]'.")
    check_output_file(figure, overwrite=overwrite, suffixes=FORMATS)


def _aligned(train: EmbeddingSet, test: EmbeddingSet) -> EmbeddingSet:
    """The test records with the codes of the training set; an error if they are of another kind, or the same."""
    check_source(train.info, test.info, "test")
    if test.dim != train.dim:
        raise DataError(
            f"Records have {train.dim} features and test records {test.dim}: embed both with the same model."
        )
    test = test.with_classes(train.info.class_names)
    if np.count_nonzero(test.counts) < 2:
        raise DataError("The test data have only one class: no classifier can be judged on them.")
    if train.subject is not None and test.subject is not None:
        # One side may have numbers and the other text.
        shared = np.intersect1d(train.subject.astype(np.str_), test.subject.astype(np.str_))
        if len(shared):
            raise DataError(f"{len(shared)} subjects are in both training and test data: test on other subjects.")
    known = {row.tobytes() for row in train.X}
    copies = sum(row.tobytes() in known for row in test.X)
    if copies > 0.05 * len(test):
        raise DataError(
            f"{copies} of {len(test)} test records equal a training record: test on records that no method saw."
        )
    return test
