"""Previews: what a budget, or a size of groups, does to a map of the data, to its usefulness, and to attacks.

Whoever chooses epsilon by a look at the records makes a choice that no budget pays for. So the usual previews read no
record: curves come from measured releases of other data, maps from made-up records. Previews on the records are noted
in the ledger before anything is read, and every later claim says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import HEAD_STEPS, Gaussian, Ledger, epsilon_of, plan_head
from locum.audit import SumLiRA, check_membership
from locum.data import check_trainable, copies_of, ledger_for, load_reference, reference_for, split
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.generate import ClassGaussian, KSame, k_groups
from locum.heads import LinearHead, bayes_head
from locum.io import split_path
from locum.recipes.dial import epsilons_of, limit_of
from locum.recipes.fit_privacy import check_not_lost, with_unit_of
from locum.recipes.forecasting import REAL_AUC, forecast
from locum.recipes.inputs import choose_split, only_real, read_sets, scored
from locum.recipes.preview_map import MOST_POINTS, MadeUp, Plane, class_means, listed, plane_of, rounded, shown_points
from locum.release import Release
from locum.types import DP, EmbeddingInfo, EmbeddingSet, Estimate, Progress, Relation, SetBatches, Unit, no_progress

Codes = npt.NDArray[np.int64]
OnStep = Callable[[dict[str, Any]], None]

GROUP_SIZES = (2, 3, 5, 8, 10, 15, 20, 30, 50)
# The most records that are used for one fit; noise is scaled to match.
_MADE_UP, _USED, _GROUPED = 4_000, 10_000, 2_000
# Members, and as many non-members, of the release that is attacked.
_ATTACKED, _SHADOWS, _ATTACKS = 500, 16, 4
_TESTED = 1_000
# The share of records that is held out for tests where there is no other split.
_HELD_OUT = 0.25
# Less noise than this cannot be seen, and has no finite price.
_LEAST_NOISE = 0.1
# For the trial fit that finds how far apart class means are placed.
_TRIAL = 50.0

WARNING = (
    "This preview was made on the records, and is for you alone. Settings that are chosen by it are not covered by "
    "any guarantee: the look was noted in the ledger, and the claims of later releases say so."
)
FEWER_NEIGHBORS = (
    "Made-up records have fewer near neighbors than real ones: on real records attacks find less, and classifiers "
    "lose less."
)


def preview_budgets(
    *,
    units: int,
    class_names: Sequence[str],
    features: int = 1280,
    reference: str = "auto",
    real_auc: float = REAL_AUC,
    delta: float,
    unit: Unit = "record",
    relation: Relation = "add-or-remove",
    epsilons: Sequence[float] | None = None,
    points: int = 600,
    seed: int = 0,
    progress: Progress | None = None,
    on_start: OnStep | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Show what budgets do to a map of made-up records; no record is read, and nothing is spent.

    Records are drawn from public statistics, around class means at equal distances such that the best classifier has
    an AUC of about `real_auc`. At most 4,000 are drawn per fit. If `units` is more, the noise is scaled by the same
    factor: it has the size, against a class mean, that it has for `units` records; only the made-up records vary a
    little more than so many would. With subjects as the unit, each has one record here.

    Fits have seeded noise, the same for every epsilon, and are tests: their claims prove nothing, and they are not
    kept. Class means are placed where those of the records are, not as far apart as `fit` places them, so that the
    map shows what noise does.

    Parameters
    ----------
    units
        About how many records, or subjects if they are the unit.
    class_names
        Two or more.
    features
        The number of features of the vectors.
    reference
        Public statistics: a name, a file or "none"; "auto" are those of EfficientNet-Lite 0 for 1280 features, and
        none otherwise.
    real_auc
        What a classifier trained on the real data reaches, as far as you know.
    delta, unit, relation
        Of the budget.
    epsilons
        The budgets; None: twelve, in equal ratios from 0.1 to 10.
    points
        How many points a map has, at most 5000. Point i has the same class and the same random numbers in every step.
    seed
        Of records, noise and points.
    progress
        Called after each step.
    on_start
        Called before the first step with everything that is returned but `steps`.
    on_step
        Called with each step as soon as it is there.

    Returns
    -------
    dict
        As plain JSON. `mode` ("public"), `units`, `classes` (names), `features`, `delta`, `unit`, `relation`,
        `real_auc`, `used` (records per fit), `noise_scaled` (the factor on the noise, 1 if `used` is `units`),
        `auc_from` ("forecast"), `attacked` (members and non-members of the attacks), `axes` (two titles),
        `real` (`means` and `points` of the records) and `steps`, in the order of epsilons. A step has `epsilon`,
        `means` ([x, y] per class) and `points` ([x, y, class]) of the release, `auc` (the forecast), `limit` (no
        attack has a higher AUC on average) and `attack`: None at most epsilons, at four of them `name`, `value`,
        `low`, `high` and `n`. The attacked release is one of up to 500 made-up records with the full noise: fewer
        records around a member make the attack easier, not harder. With one draw of the noise it can come out above
        the limit.

    Examples
    --------
    >>> from locum.recipes import preview_budgets
    >>> found = preview_budgets(units=300, class_names=["no", "yes"], features=20, delta=1e-6, epsilons=[1.0, 8.0])
    >>> found["mode"], [len(step["points"]) for step in found["steps"]]
    ('public', [600, 600])
    """
    names = _names(class_names)
    budgets = _budgets(epsilons, DP(1.0, delta, unit, _whole(units), relation))
    _check_points(points)
    info = EmbeddingInfo(class_names=names, reference=_own(reference))
    used, tested = min(units, _MADE_UP), min(units, _ATTACKED)
    world = _made_up(names, features, reference, real_auc, used, tested, seed, info)
    expected = [
        forecast(b, units=units, classes=len(names), features=features, real_auc=real_auc).auc for b in budgets
    ]
    steps = _budget_steps(world, budgets, used / units, lambda _, place: expected[place], points, seed)
    about = {
        "mode": "public",
        "units": units,
        **_about(world, budgets[0]),
        "real_auc": real_auc,
        "used": used,
        "noise_scaled": used / units,
        "auc_from": "forecast",
        "attacked": {"members": tested, "non_members": tested},
        **world.shown(points, seed),
    }
    return _collect(about, steps, len(budgets), progress, on_start, on_step)


def preview_records(
    data: str,
    *,
    delta: float,
    unit: str = "auto",
    relation: Relation = "add-or-remove",
    backbone: str | None = None,
    reference: str = "auto",
    ledger: Path | None = None,
    holding: str = "default",
    epsilons: Sequence[float] | None = None,
    points: int = 600,
    seed: int = 0,
    progress: Progress | None = None,
    on_start: OnStep | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Show what budgets do to the records themselves: for the data holder's eyes only.

    A choice by such a preview is not paid for. Before any record is used, the look is noted in the ledger of the
    data, and the claims of all later private fits with that ledger say so. Nothing is charged, and nothing may leave.

    Everything is as in `preview_budgets`, with records in the place of made-up ones: at most 10,000 per fit. Records
    for tests and attacks are the validation or test split, else a quarter of the records, by subject; the noise is
    scaled to match. The AUC is that of the release's own rule on them.

    Parameters
    ----------
    data
        File or folder of records; with splits, "train" is used unless `FILE#split` says otherwise. Images are
        embedded first.
    delta, relation
        Of the budget.
    unit
        "record", "subject", or "auto": subjects where the data have them.
    backbone
        Model that embeds images; None: EfficientNet-Lite 0.
    reference
        Public statistics for whitening; "auto": those that `fit` uses.
    ledger
        Where the look is noted; None: the ledger of the data.
    holding
        Name of the data holding.
    epsilons, points, seed, progress, on_start, on_step
        As in `preview_budgets`.

    Returns
    -------
    dict
        As `preview_budgets` returns it, with `mode` "records", `real_auc` as an estimate (a linear head that was
        trained on the records), `auc_from` "records", and a `warning`. Private.

    Examples
    --------
    >>> from locum.accounting import Ledger
    >>> from locum.data import ledger_for, load_sample, write_embeddings
    >>> from locum.recipes import preview_records
    >>> write_embeddings("previewed.npz", load_sample("breast-cancer"))
    >>> found = preview_records("previewed.npz", delta=1e-5, epsilons=[1.0])
    >>> found["mode"], Ledger(ledger_for("previewed.npz")).looks()
    ('records', 1)
    """
    asked = _budgets(epsilons, DP(1.0, delta, "record" if unit == "auto" else _unit(unit), None, relation))
    _check_points(points)
    read = _Read.of(data, "preview of budgets", ledger, holding, unit, backbone, reference, _USED, seed, progress)
    budgets = [replace(budget, unit=read.unit, n_public=read.units) for budget in asked]
    world, share = read.world, read.used / read.units

    def measured(release: Release, place: int) -> Estimate | None:
        head = bayes_head(release)
        known = [int(label) for label in head.manifest.classes]
        return _auc_of(head.predict_proba(world.others.X), known, world)

    steps = _budget_steps(world, budgets, share, measured, points, seed)
    about = {
        "mode": "records",
        "warning": WARNING,
        "units": read.units,
        **_about(world, budgets[0]),
        "real_auc": _estimate(_real_auc(world, seed)),
        "used": read.used,
        "noise_scaled": share,
        "auc_from": "records",
        "attacked": {"members": len(world.attacked), "non_members": len(world.fresh)},
        **world.shown(points, seed),
    }
    return _collect(about, steps, len(budgets), progress, on_start, on_step)


def preview_groups(
    data: str | None = None,
    *,
    units: int | None = None,
    class_names: Sequence[str] = (),
    features: int = 1280,
    reference: str = "auto",
    real_auc: float = REAL_AUC,
    backbone: str | None = None,
    ledger: Path | None = None,
    holding: str = "default",
    ks: Sequence[int] = GROUP_SIZES,
    points: int = 600,
    seed: int = 0,
    progress: Progress | None = None,
    on_start: OnStep | None = None,
    on_step: OnStep | None = None,
) -> dict[str, Any]:
    """Show what k-Same does, by the size of its groups: on made-up records, or on `data`, for the holder's eyes only.

    With `data` the look is noted in the ledger first, as in `preview_records`. Groups take time that grows with the
    square of the records, so at most 2,000 are used. k-Same has no guarantee of differential privacy: the attack is
    one that was tried, and no limit is proven.

    Parameters
    ----------
    data
        File or folder of records; None: made-up records, for which `units` and `class_names` must be given.
    units, class_names, features, reference, real_auc
        Without `data`, as in `preview_budgets`. With `data`, only `reference` is used.
    backbone, ledger, holding
        With `data`, as in `preview_records`.
    ks
        Sizes of groups; those that the records do not allow are left out.
    points, seed, progress, on_start, on_step
        As in `preview_budgets`.

    Returns
    -------
    dict
        As plain JSON: `mode` ("public" or "records"), `units`, `classes`, `features`, `unit`, `real_auc` (a number,
        or an estimate), `used`, `auc_from` ("made-up records" or "records"), `attacked`, `axes`, `real`, `steps` and
        a `warning`. A step has `k`, `means`, `points` (point i is the group mean of record i),
        `auc` of a linear head that is trained on the released rows, `reidentification` (1 / k, the chance to pick
        the right record of a group) and `attack` (nearest distance), or None.

    Examples
    --------
    >>> from locum.recipes import preview_groups
    >>> found = preview_groups(units=100, class_names=["no", "yes"], features=10, ks=[2, 10])
    >>> [(step["k"], step["reidentification"]) for step in found["steps"]]
    [(2, 0.5), (10, 0.1)]
    """
    _check_points(points)
    if (data is None) == (units is None):
        raise ConfigError("Give either `data`, or `units` and `class_names` for made-up records.")
    if data is not None:
        purpose = "preview of groups"
        read = _Read.of(data, purpose, ledger, holding, "auto", backbone, reference, _GROUPED, seed, progress)
        world, count, used, unit = read.world, read.units, read.used, read.unit
        told: dict[str, Any] = {"mode": "records", "warning": WARNING}
        real: Any = _estimate(_real_auc(world, seed))
    else:
        count, names = _whole(units), _names(class_names)
        used, unit = min(count, _GROUPED), "record"
        tested = min(count, _TESTED)
        info = EmbeddingInfo(class_names=names)
        world = _made_up(names, features, reference, real_auc, used, tested, seed, info)
        told, real = {"mode": "public", "warning": FEWER_NEIGHBORS}, real_auc
    subjects = world.records.subject
    most = len(world.records) if subjects is None else len(np.unique(subjects))
    sizes = [k for k in sorted(set(ks)) if k <= most]
    steps = _group_steps(world, sizes, points, seed)
    about = {
        **told,
        "units": count,
        "classes": list(world.names),
        "features": world.records.dim,
        "unit": unit,
        "real_auc": real,
        "used": used,
        "auc_from": "made-up records" if data is None else "records",
        "attacked": {"members": len(world.records), "non_members": len(world.fresh)},
        **world.shown(points, seed),
    }
    return _collect(about, steps, len(sizes), progress, on_start, on_step)


@dataclass(frozen=True, slots=True, eq=False)
class _World:
    """What is shown: records that are fitted, others that are not, and the plane of the map."""

    names: tuple[str, ...]
    records: EmbeddingSet
    others: EmbeddingSet
    reference: str
    means: npt.NDArray[np.float64]
    plane: Plane
    attacked: EmbeddingSet
    fresh: EmbeddingSet

    @classmethod
    def of(
        cls,
        records: EmbeddingSet,
        others: EmbeddingSet,
        reference: str,
        seed: int,
        means: npt.NDArray[np.float64] | None = None,
    ) -> _World:
        names, statistics = records.info.class_names, load_reference(reference, records.dim)
        center = class_means(records.X, records.y, len(names)) if means is None else means
        plane = plane_of(records.X, records.y, center, statistics)
        rng = np.random.default_rng([seed, 2])
        attacked = records.take(np.sort(rng.permutation(len(records))[:_ATTACKED]))
        # A copy of a member is no non-member.
        fresh = others.take(~copies_of(others, records))
        fresh = fresh.take(np.sort(rng.permutation(len(fresh))[:_ATTACKED]))
        return cls(names, records, others, reference, center, plane, attacked, fresh)

    def picked(self, points: int, seed: int) -> Codes:
        """Rows of the records that are drawn: the same for every step."""
        rng, y = np.random.default_rng([seed, 3]), self.records.y
        wanted = shown_points(points, self.records.counts)
        return np.sort(np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n] for c, n in wanted.items()]))

    def shown(self, points: int, seed: int) -> dict[str, Any]:
        """The records on the map."""
        rows = self.picked(points, seed)
        return {
            "axes": list(self.plane.titles),
            "real": {
                "means": self.plane.places(self.means).tolist(),
                "points": listed(self.plane.places(self.records.X[rows]), self.records.y[rows]),
            },
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """Records that were read after the look was noted."""

    world: _World
    unit: Unit
    units: int
    used: int

    @classmethod
    def of(
        cls,
        data: str,
        purpose: str,
        ledger: Path | None,
        holding: str,
        unit: str,
        backbone: str | None,
        reference: str,
        most: int,
        seed: int,
        progress: Progress | None,
    ) -> _Read:
        if not Path(split_path(data)[0]).exists():
            raise ConfigError(f"There is no {split_path(data)[0]!r}: check the name of the data.")
        place = ledger or ledger_for(data)
        check_not_lost(data, place)
        # Before anything is shown or measured: whoever stops halfway has looked all the same.
        Ledger(place).note_look(holding, purpose)
        splits = read_sets(data, backbone=backbone, reference=reference == "auto", progress=progress)
        given = only_real(choose_split(splits, data, "train"), "given")
        check_trainable(given)
        counted = with_unit_of(DP(1.0, 1e-6), SetBatches(given)).unit if unit == "auto" else _unit(unit)
        if counted == "subject" and given.subject is None:
            raise PrivacyError("The unit `subject` needs subjects, which the data do not have: use `record`.")
        units = len(_unit_codes(given, counted)[1])
        rng, records = np.random.default_rng([seed, 4]), given
        spare = [splits[name] for name in ("val", "test") if name in splits and splits[name] is not given]
        if spare:
            others = spare[0].with_classes(given.info.class_names)
        else:
            parts = split(given, {"train": 1 - _HELD_OUT, "held": _HELD_OUT}, rng=rng)
            records, others = parts["train"], parts["held"]
        records = _fewer(records, counted, most, rng)
        if reference == "auto":
            reference = reference_for(given.info)
        load_reference(reference, given.dim, given.info)
        used = len(_unit_codes(records, counted)[1])
        return cls(_World.of(records, others, reference, seed), counted, units, used)


def _made_up(
    names: tuple[str, ...],
    features: int,
    reference: str,
    real_auc: float,
    used: int,
    tested: int,
    seed: int,
    info: EmbeddingInfo,
) -> _World:
    """A world without any record of anybody."""
    if not 0.5 < real_auc <= 1:
        raise ConfigError(f"`real_auc` must be above 0.5 and at most 1; got {real_auc!r}.")
    if reference == "auto":
        reference = "efflite0" if features == load_reference("efflite0").dim else "none"
    model = MadeUp.of(load_reference(reference, features), len(names), real_auc, seed)
    records, others = (EmbeddingSet(*model.draw(n, [seed, k]), info=info) for k, n in ((5, used), (6, tested)))
    return _World.of(records, others, reference, seed, model.means)


def _budget_steps(
    world: _World,
    budgets: Sequence[DP],
    share: float,
    auc: Callable[[Release, int], Estimate | None],
    points: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    """One step per budget: a release with noise that is `share` of the budget's, on the map."""
    separation = _separation(world, budgets[0], seed)
    counts = shown_points(points, world.records.counts)
    tried = {round(place) for place in np.linspace(0, len(budgets) - 1, _ATTACKS)}
    for place, budget in enumerate(budgets):
        release = _release(world.records, world, _scaled(budget, share), separation, seed)
        # The same seed draws the same classes and the same normal numbers from every release.
        X, y = release.sample(per_class=counts, random_state=seed, as_frame=False)
        yield {
            "epsilon": budget.epsilon,
            "means": world.plane.places(release.tensors["means"]).tolist(),
            "points": listed(world.plane.places(X), y),
            "auc": _estimate(auc(release, place)),
            "limit": limit_of(budget),
            "attack": _sum_attack(world, budget, seed) if place in tried else None,
        }


def _release(data: EmbeddingSet, world: _World, budget: DP, separation: float, seed: int) -> Release:
    """A test with seeded noise: it carries no claim of differential privacy and is not saved."""
    model = ClassGaussian(
        privacy=budget,
        classes=list(range(len(world.names))),
        reference=world.reference,
        separation=separation,
        insecure_seed=seed,
        random_state=seed,
    ).fit(data.X, data.y, data.subject if budget.unit == "subject" else None)
    return model.release(data.info, class_names=world.names)


def _scaled(budget: DP, share: float) -> DP:
    """A budget whose noise is `share` of that of `budget`: so many fewer units have it against their sums."""
    if share >= 1:
        return replace(budget, n_public=None)
    noise = max(share * plan_head(budget).noise_multiplier, _LEAST_NOISE)
    price = epsilon_of((Gaussian(noise, 2 + HEAD_STEPS),), budget.delta, budget.relation)
    return replace(budget, epsilon=price, n_public=None)


def _separation(world: _World, budget: DP, seed: int) -> float:
    """How far apart a release must place class means for them to lie where those of the records do.

    A trial fit with hardly any noise places them at a distance of 1; distances on the map are compared.
    """
    trial = replace(budget, epsilon=max(_TRIAL, budget.epsilon), n_public=None)
    placed = world.plane.places(_release(_fewer_rows(world.records), world, trial, 1.0, seed).tensors["means"])
    real = world.plane.places(world.means)
    wide, found = (float(np.linalg.norm(flat - flat.mean(axis=0))) for flat in (real, placed))
    return min(max(wide / max(found, 1e-9), 0.1), 20.0)


def _fewer_rows(data: EmbeddingSet) -> EmbeddingSet:
    return data.take(np.sort(np.random.default_rng(0).permutation(len(data))[:_TESTED]))


def _sum_attack(world: _World, budget: DP, seed: int) -> dict[str, Any] | None:
    """LiRA on the sums of a release of few members with the full noise; None where there are too few records."""
    attack = SumLiRA(shadows=_SHADOWS, seed=seed)
    try:
        release = _release(world.attacked, world, replace(budget, n_public=None), 4.0, seed)
        found = attack.run(release, world.attacked, world.fresh, np.random.default_rng([seed, 7])).attack
    except LocumError:
        return None
    return {"name": attack.name, **found.to_dict()}


def _group_steps(world: _World, sizes: Sequence[int], points: int, seed: int) -> Iterator[dict[str, Any]]:
    """One step per size of groups."""
    records, rows = world.records, world.picked(points, seed)
    flat = world.plane.places(records.X)
    for k in sizes:
        groups = k_groups(records.X, k, records.subject)
        sizes_of = np.bincount(groups)
        # Projecting a mean is the same as the mean of projections.
        means = np.stack([np.bincount(groups, weights=axis) / sizes_of for axis in flat.T], axis=1)[groups]
        model = KSame(k=k, random_state=seed).fit(records.X, records.y, records.subject)
        head = LinearHead(random_state=seed).fit(*model.sample())
        yield {
            "k": int(k),
            "means": rounded(class_means(means, records.y, len(world.names))).tolist(),
            "points": listed(rounded(means[rows]), records.y[rows]),
            "auc": _estimate(_auc_of(head.predict_proba(world.others.X), head.classes_.tolist(), world)),
            "reidentification": 1 / k,
            "attack": _near_attack(model, world, seed),
        }


def _near_attack(model: KSame, world: _World, seed: int) -> dict[str, Any] | None:
    try:
        release = model.release(world.records.info, no_dp=True)
        found = check_membership(release, world.records, world.fresh, np.random.default_rng([seed, 8]))
    except LocumError:
        return None
    return {"name": found.name, **found.attack.to_dict()}


def _real_auc(world: _World, seed: int) -> Estimate | None:
    """The AUC of a linear head that is trained on the records."""
    head = LinearHead(random_state=seed).fit(world.records.X, world.records.y)
    return _auc_of(head.predict_proba(world.others.X), head.classes_.tolist(), world)


def _auc_of(proba: npt.NDArray[Any], columns: Sequence[int], world: _World) -> Estimate | None:
    """The AUC on the other records; None if they are of one class. A class without a column gets probability 0."""
    wide = np.zeros((len(proba), len(world.names)))
    wide[:, list(columns)] = proba
    return scored(world.others.y, wide).get("auc")


def _collect(
    about: dict[str, Any],
    steps: Iterator[dict[str, Any]],
    total: int,
    progress: Progress | None,
    on_start: OnStep | None,
    on_step: OnStep | None,
) -> dict[str, Any]:
    """The whole preview; its steps are reported as soon as they are there."""
    out, report = [], progress or no_progress
    if on_start is not None:
        on_start(about)
    for step in steps:
        out.append(step)
        if on_step is not None:
            on_step(step)
        turned = "k" if "k" in step else "epsilon"
        report(len(out), total, f"{turned} {step[turned]:g}")
    return {**about, "steps": out}


def _about(world: _World, budget: DP) -> dict[str, Any]:
    return {
        "classes": list(world.names),
        "features": world.records.dim,
        "delta": budget.delta,
        "unit": budget.unit,
        "relation": budget.relation,
    }


def _estimate(found: Estimate | None) -> dict[str, Any] | None:
    return None if found is None else found.to_dict()


def _budgets(epsilons: Sequence[float] | None, like: DP) -> list[DP]:
    return [replace(like, epsilon=epsilon) for epsilon in epsilons_of(epsilons, 12)]


def _names(given: Sequence[str]) -> tuple[str, ...]:
    names = () if isinstance(given, str) else tuple(given)
    if len(names) < 2 or len(set(names)) < len(names) or not all(isinstance(name, str) and name for name in names):
        raise ConfigError(f"`class_names` must name two classes or more, each once; got {given!r}.")
    return names


def _whole(units: object) -> int:
    if isinstance(units, bool) or not isinstance(units, (int, np.integer)) or units < 10:
        raise ConfigError(f"`units` must be a whole number, 10 or more; got {units!r}.")
    return int(units)


def _check_points(points: int) -> None:
    if isinstance(points, bool) or not 1 <= points <= MOST_POINTS:
        raise ConfigError(f"`points` must be a whole number from 1 to {MOST_POINTS}; got {points!r}.")


def _unit(unit: str) -> Unit:
    if unit == "record":
        return "record"
    if unit == "subject":
        return "subject"
    raise ConfigError(f"`unit` must be auto, record or subject; got {unit!r}.")


def _own(reference: str) -> str:
    """A file of statistics, which attacks on a release must be given; those that ship are known by name."""
    return reference if reference.endswith(".safetensors") else ""


def _unit_codes(data: EmbeddingSet, unit: Unit) -> tuple[Codes, Codes]:
    """The unit of each record, and how many records each unit has."""
    if unit == "record" or data.subject is None:
        return np.arange(len(data)), np.ones(len(data), dtype=np.int64)
    _, codes, counts = np.unique(data.subject, return_inverse=True, return_counts=True)
    return codes, counts


def _fewer(data: EmbeddingSet, unit: Unit, most: int, rng: np.random.Generator) -> EmbeddingSet:
    """Units at random with at most so many records in all."""
    if len(data) <= most:
        return data
    codes, counts = _unit_codes(data, unit)
    order = rng.permutation(len(counts))
    kept = order[np.cumsum(counts[order]) <= most]
    return data.take(np.isin(codes, kept))
