"""`evaluate`: how well a classifier trained on the release does on real data, compared with baselines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum._threads import threads_for
from locum.audit import check_membership
from locum.errors import ConfigError, DataError
from locum.generate import KSame
from locum.heads import LinearHead, MLPHead, SavedHead, bayes_head, carries_head
from locum.metrics import average_nearest_distance, feature_scale, k_nearest, score_all
from locum.recipes.evaluate_groups import Breakdown, break_down, check_attributes
from locum.recipes.inputs import aligned, choose_split, pick_split, read_sets
from locum.recipes.sample import check_rows
from locum.release import Release, load
from locum.types import AttackResult, Estimate, Progress

HEADS = {"linear": LinearHead, "mlp": MLPHead}
Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Row:
    """One source of training rows: its scores over seeds and, if the records are given, its distance D.

    `distance` is D itself, which says nothing to a reader; `distance_ratio` is D in units of the usual distance from
    a record to the nearest other one.
    """

    method: str
    rows: int
    scores: dict[str, Estimate]
    distance: Estimate | None
    distance_ratio: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "method": self.method,
            "rows": self.rows,
            "scores": {k: v.to_dict() for k, v in self.scores.items()},
            "distance": None if self.distance is None else self.distance.to_dict(),
            "distance_ratio": None if self.distance_ratio is None else self.distance_ratio.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The table of scores, and the membership check if the records were given. Internal: it depends on records.

    Attributes
    ----------
    head
        Kind of head that was trained.
    seeds
        How many heads per source of training rows.
    test_records
        How many real records they were tested on.
    rows
        One per source of training rows: `method`, `rows`, `scores` over seeds, `distance` to the records, and
        `distance_ratio`, the same in units of the usual distance among records.
    membership
        The membership check; None without the records.
    fingerprint
        That of the release.
    groups
        With `by`: the scores per group of each attribute, for heads trained on the release and on real data, and the
        gap between the best and the worst group. Otherwise empty.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import evaluate_release
    >>> found = evaluate_release(Path("release"), "data.npz#test")  # doctest: +SKIP
    >>> found.rows[0].scores["balanced_accuracy"].value  # doctest: +SKIP
    """

    head: str
    seeds: int
    test_records: int
    rows: tuple[Row, ...]
    membership: AttackResult | None
    fingerprint: str | None = None
    groups: tuple[Breakdown, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "head": self.head,
            "seeds": self.seeds,
            "test_records": self.test_records,
            "rows": [row.to_dict() for row in self.rows],
            "membership": None if self.membership is None else self.membership.to_dict(),
            "fingerprint": self.fingerprint,
            "groups": [found.to_dict() for found in self.groups],
        }


def evaluate_release(
    path: Path,
    test: str,
    *,
    train: str | None = None,
    head: str = "linear",
    samples: int | None = None,
    seeds: int = 3,
    by: Sequence[str] = (),
    backbone: str | None = None,
    ks: Sequence[int] = (2, 5, 10, 15),
    progress: Progress | None = None,
) -> Evaluation:
    """Train a head on samples of a release and test it on real data; seeds vary draws and training.

    With `train` it adds real data and k-Same as baselines, the distance D of each to the records (on z-scored
    vectors), and the membership check, with the validation split of `train` as non-members, or else the test records.
    Intervals cover seeds: they do not cover another test set. Those of groups (`by`) cover seeds and test records.

    Parameters
    ----------
    path
        Folder of the release.
    test
        File of real records that were not used for the fit; with splits, "test" is used, else "val".
    train
        File of the records behind the release.
    head
        "linear" or "mlp".
    samples
        How many vectors to draw from a decoder; None: as many as `train` has, or 5000. With None and a linear head,
        a release that carries a private head is tested by its own rule, as `train_head` makes it.
    seeds
        How many heads per source of training rows; intervals need 2.
    by
        Attributes of the test records: adds the scores of each of their groups. Groups of under 20 records or
        subjects, or of one class, get none.
    backbone
        Path of a custom model, if images have to be embedded with one.
    ks
        Group sizes of k-Same; those above the number of records are left out.
    progress
        Called as the work proceeds.

    Returns
    -------
    Evaluation
        The table. Internal: it depends on records.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import evaluate_release
    >>> found = evaluate_release(Path("release"), "data.npz", train="data.npz")  # doctest: +SKIP
    >>> [row.method for row in found.rows]  # doctest: +SKIP
    ['release (ClassGaussian)', 'real data', '2-Same', '5-Same', '10-Same', '15-Same']
    """
    if head not in HEADS:
        raise ConfigError(f"`head` must be one of {', '.join(HEADS)}; got {head!r}.")
    if seeds < 1:
        raise ConfigError(f"`seeds` must be 1 or more; got {seeds!r}. Intervals need 2.")
    if samples is not None and samples < 1:
        raise ConfigError(f"--samples must be 1 or more; got {samples!r}. Leave it out for the default.")
    release = load(path)
    check_rows("--samples", samples, release)
    test_set = pick_split(test, "test", "val", like=release.info, backbone=backbone)
    check_attributes(test_set, by)
    target = aligned(release, test_set, "test")
    if len(np.unique(target[1])) < 2:
        raise DataError("The test data hold one class only: a classifier needs at least two to be tested.")
    splits = {} if train is None else read_sets(train, like=release.info, backbone=backbone)
    train_set = None if train is None else choose_split(splits, train, "train")
    real = None if train_set is None else aligned(release, train_set, "train")
    used = len(target[1]) + (samples or 5000 if real is None else len(real[1]))
    with threads_for(used * release.manifest.embedding.dim):
        sources = _sources(release, real, samples, ks)
        own = bayes_head(release) if head == "linear" and samples is None and carries_head(release) else None
        if own is not None:
            name, draw = sources[0]
            sources[0] = f"{name}, own rule", draw
        usual = None if real is None else _usual_distance(real[0])
        rows, groups = [], []
        for done, (name, draw) in enumerate(sources):
            if progress is not None:
                progress(done, len(sources), name)
            known = None if name == "real data" else real
            ready = own if done == 0 else None
            row, probas = _row(name, draw, target, known, HEADS[head], seeds, len(release.classes), ready)
            rows.append(_in_units(row, usual))
            # k-Same would double the tables; the release and real data answer whether a gap is the release's own.
            for attribute in dict.fromkeys(by) if done == 0 or name == "real data" else ():
                rng = np.random.default_rng(0)
                groups.append(break_down(attribute, name, test_set, target[1], probas, rng))
        membership = None
        if train_set is not None:
            others = splits["val"] if {"train", "val"} <= set(splits) else test_set
            membership = check_membership(release, train_set, others, np.random.default_rng(0))
    if progress is not None:
        progress(len(sources), len(sources), "done")
    return Evaluation(head, seeds, len(target[1]), tuple(rows), membership, release.fingerprint, tuple(groups))


def _sources(
    release: Release, real: Rows | None, samples: int | None, ks: Sequence[int]
) -> list[tuple[str, Callable[[int], Rows]]]:
    def released(seed: int) -> Rows:
        wanted = samples if samples is not None else len(real[1]) if real else 5000
        n = None if release.manifest.kind == "data" else wanted
        drawn = release.sample_set(n, random_state=seed)
        return drawn.X, drawn.y

    sources: list[tuple[str, Callable[[int], Rows]]] = [(f"release ({release.manifest.generator})", released)]
    if real is None:
        return sources
    sources.append(("real data", lambda seed: real))
    for k in ks:
        if k <= len(real[1]):
            rows = KSame(k=k, random_state=0).fit(*real).sample()
            sources.append((f"{k}-Same", lambda seed, rows=rows: rows))  # type: ignore[misc]
    return sources


def _row(
    name: str,
    draw: Callable[[int], Rows],
    target: Rows,
    real: Rows | None,
    head: type[Any],
    seeds: int,
    classes: int,
    ready: SavedHead | None,
) -> tuple[Row, list[npt.NDArray[np.float64]]]:
    """The row of the table, and each seed's probabilities for the test records."""
    runs: list[dict[str, float]] = []
    probas = []
    distance: Estimate | None = None
    for seed in range(seeds):
        X, y = draw(seed)
        if len(np.unique(y)) < 2:
            raise DataError(f"{name} gave rows of one class only: draw more with --samples.")
        # A class that was not drawn gets probability 0, and counts as missed.
        proba = np.zeros((len(target[1]), classes))
        if ready is not None:
            proba[:, : len(ready.manifest.classes)] = ready.predict_proba(target[0])
        else:
            fitted = head(random_state=seed).fit(X, y)
            proba[:, fitted.classes_] = fitted.predict_proba(target[0])
        probas.append(proba)
        runs.append(score_all(target[1], proba, np.arange(classes)))
        if seed == 0 and real is not None:
            distance = _distance(X, real[0])
    scores = {metric: Estimate.from_runs([run[metric] for run in runs]) for metric in runs[0]}
    if seeds > 1:
        # No score is above 1, and only kappa can be below 0. A single run keeps its open interval.
        scores = {m: e.clipped(-1.0 if m == "cohen_kappa" else 0.0, 1.0) for m, e in scores.items()}
    return Row(name, len(X), scores, distance), probas


def _scaler(real: npt.NDArray[np.float32]) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]:
    """Z-scores by the records (fault F11): no feature decides by its unit."""
    mean, scale = real.mean(axis=0), feature_scale(real, floor=0.0)
    return lambda X: (X - mean) / scale


def _distance(released: npt.NDArray[np.float32], real: npt.NDArray[np.float32]) -> Estimate:
    """D on one scale."""
    scaled = _scaler(real)
    return average_nearest_distance(scaled(released), scaled(real))


def _usual_distance(real: npt.NDArray[np.float32]) -> float | None:
    """The median distance from a record to the nearest other one, of at most 2,000; None if there is none above 0."""
    if len(real) < 2:
        return None
    scaled = _scaler(real)(real)
    asked = np.random.default_rng(0).permutation(len(real))[:2000]
    # The second nearest: the nearest is the record itself, or a copy of it.
    among = k_nearest(scaled[asked], scaled, 2)[0][:, 1]
    return float(np.median(among)) or float(np.mean(among)) or None


def _in_units(row: Row, usual: float | None) -> Row:
    if row.distance is None or usual is None:
        return row
    far = row.distance
    return replace(
        row, distance_ratio=replace(far, value=far.value / usual, low=far.low / usual, high=far.high / usual)
    )
