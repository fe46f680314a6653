"""Methods of training together: each takes what the sites have and returns their guesses about test records."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fed_sets import PAPER_DELTA, Array, Deal, joined
from sklearn.model_selection import GroupKFold, KFold
from torch import nn

from locum.accounting import PlanSteps, PoissonGaussian, epsilon_of, plan_sgd
from locum.data import REFERENCES, Reference, load_reference
from locum.federated import (
    FederationSettings,
    PersonalModel,
    Site,
    average,
    fit_personal,
    make_site_key,
    plan_site,
    simulate,
)
from locum.federated.baselines import federated_head, scores
from locum.federated.interpolation import choose_lambda
from locum.federated.masked_run import total_noise
from locum.federated.personal import local_head, out_of_fold, softmax, units
from locum.federated.queries import SiteQueries, program_for
from locum.federated.result import TOGETHER, Learned, build_result
from locum.federated.site_file import SiteRecords
from locum.federated.terms import read_terms
from locum.generate import ClassGaussian
from locum.generate.private import reference_hash, subjects, unit_vectors
from locum.heads import LinearHead
from locum.mechanisms import noisy
from locum.metrics import accuracy, balanced_accuracy, f1
from locum.release import GaussianSpec, Release
from locum.train import RowLossByAutograd
from locum.train.dp import PrivateRun
from locum.types import DP, EmbeddingSet

# The federated paper's network, rounds and batches; vectors are scaled by public statistics (faults F6, F7).
PAPER: dict[str, Any] = {
    "mode": "decoder",
    "initial_query": "public",
    "beta": 0.1,
    "rounds": 50,
    "local_epochs": 5,
    "batch": 256,
    "clip": 1.5,
}
HEAD: dict[str, Any] = {"mode": "head"}
SUMS: dict[str, Any] = {"mode": "sums", "secure": True}
KINDS = {"interpolated": None, "global": 0.0, "local": 1.0}
LAMBDAS = [round(0.1 * k, 1) for k in range(11)]


@dataclass(slots=True)
class Guesses:
    """By site and kind of head, the guessed class of each test record; the lambda of each site; other figures."""

    sites: list[dict[str, Array]]
    lams: list[float] = field(default_factory=list)
    more: dict[str, float] = field(default_factory=dict)


Method = Callable[[Deal, int], Guesses]


def federation(
    settings: Mapping[str, Any],
    epsilon: float | None,
    *,
    delta: float | None = None,
    validation: bool = False,
    balanced: bool = False,
) -> Method:
    """A federation: masked sums without their masks; decoders as a simulation with the code of a real run."""

    def run(deal: Deal, seed: int) -> Guesses:
        privacy = None if epsilon is None else deal.budget(epsilon, delta)
        if settings["mode"] != "decoder":
            release = together_without_masks(settings, privacy, deal, seed)
            out = personal(release, deal, seed, balanced=balanced)
            return out if epsilon is None else replace(out, more={"epsilon": epsilon})
        with tempfile.TemporaryDirectory() as folder:
            found, models = simulated(settings, privacy, deal, seed, Path(folder), validation, balanced)
            out = from_models(models, deal)
        if found.sites[0].epsilon_spent is not None:
            out.more["epsilon"] = found.sites[0].epsilon_spent
        return out

    return run


def simulated(
    settings: Mapping[str, Any],
    privacy: DP | None,
    deal: Deal,
    seed: int,
    work: Path,
    validation: bool = False,
    balanced: bool = False,
) -> tuple[Any, list[PersonalModel]]:
    """The simulation and the personal model of every site; each site trains on all that it was dealt."""
    own, named = named_reference(deal, load_reference(deal.reference, deal.dim))
    terms = FederationSettings(
        classes=deal.classes, dim=deal.dim, seed=seed, balanced=balanced, **{**named, **settings}
    )
    found = simulate(
        deal.train,
        terms,
        privacy,
        out=work / "out",
        work=work / "sites",
        seed=seed,
        validation=validation,
        test=joined(list(dict.fromkeys(deal.test.values()))),
        reference=own,
    )
    files = [work / "sites" / f"site-{i}" / "site.toml" for i in range(len(deal.train))]
    return found, [PersonalModel.open(Site(file).personal_folder) for file in files]


def named_reference(deal: Deal, reference: Reference) -> tuple[str | None, dict[str, str]]:
    """The file of public statistics, if they do not ship, and how terms name them."""
    if deal.reference in ("none", *REFERENCES):
        return None, {"reference": deal.reference}
    return deal.reference, {"reference": "own", "reference_sha256": reference_hash(reference)}


def together_without_masks(settings: Mapping[str, Any], privacy: DP | None, deal: Deal, seed: int) -> Release:
    """The release of masked sums, computed without the masks, which cancel: the same numbers in a tenth of the time.

    Every site has the sums, the grid, the share of the noise and the seed that it has in a simulation. A test
    compares the release with that of a simulation, number by number.
    """
    with tempfile.TemporaryDirectory() as folder:
        names = [f"site-{i}" for i in range(len(deal.train))]
        for name in names:
            make_site_key(folder, name)
        keys = {name: (Path(folder) / f"{name}.pub").read_text().strip() for name in names}
    budget = {} if privacy is None else {k: getattr(privacy, k) for k in ("epsilon", "delta", "unit", "relation")}
    reference = load_reference(deal.reference, deal.dim)
    own, named = named_reference(deal, reference)
    terms = FederationSettings(deal.classes, deal.dim, seed=seed, sites=keys, **{**settings, **budget, **named})
    plan, honest = plan_site(terms, privacy), len(names) - terms.absent - terms.colluding
    found = dict.fromkeys(names, read_terms({"noise": plan.sums_noise, "size": 1, "terms": None}))
    sites = [
        SiteQueries(p, subjects(p.subject) if deal.subjects else None, terms, reference) for p in deal.train.values()
    ]
    program, step, total = program_for(terms, total_noise(terms, found)), 0, np.zeros(0)
    while not program.done:
        query = program.query()
        words = np.zeros(query.size(terms), dtype=np.int64)
        for i, site in enumerate(sites):
            sums = site.sums(query)
            if plan.sums_noise:
                noise = plan.sums_noise / np.sqrt(query.share) * (1 + 1e-9)
                sums = noisy(sums, noise, parts=honest, insecure_seed=1000 * seed + i, step=step)
            words += sums.integers
        total = (words * query.steps(terms)).astype(np.float32).astype(np.float64)
        program.take(total)
        step += 1
    return build_result(terms, "", Learned(found, {TOGETHER: total}, {}, program), own)


def from_models(models: Sequence[PersonalModel], deal: Deal) -> Guesses:
    """What each site's mix, the global head and its own head say."""
    pairs = zip(models, deal.test.values(), strict=True)
    guesses = [{kind: m.predict(t.X, lam) for kind, lam in KINDS.items()} for m, t in pairs]
    return Guesses(guesses, [m.lam for m in models])


def trusted_center(epsilon: float, *, balanced: bool = False) -> Method:
    """All records in one place and the same mechanism, then a mix at every site as in a federation."""

    def run(deal: Deal, seed: int) -> Guesses:
        return personal(in_one_place(deal, epsilon, seed), deal, seed, balanced=balanced)

    return run


def in_one_place(deal: Deal, epsilon: float, seed: int) -> Release:
    """The private head that one holder of all records would release."""
    pooled = deal.pooled()
    model = ClassGaussian(
        privacy=DP(epsilon, deal.delta, deal.unit),
        classes=list(range(len(deal.classes))),
        reference=deal.reference,
        insecure_seed=seed,
        random_state=seed,
    )
    return model.fit(pooled.X, pooled.y, subject=pooled.subject if deal.subjects else None).release(pooled.info)


def personal(release: Any, deal: Deal, seed: int, *, balanced: bool = False) -> Guesses:
    """The two heads of each site, given a common release."""
    trains = deal.train.values()
    models = [fit_personal(release, SiteRecords(mine), balanced=balanced, seed=seed) for mine in trains]
    return from_models(models, deal)


def as_sharp(epsilon: float) -> Method:
    """Ours with the release's own Bayes rule as the global head: several times sharper than the head that it carries.

    Its probabilities outvote the local ones. `fit_personal` takes the root of that off; the root was chosen on 10
    sites of 100 records with seeds 10, 11 and 12, which no study uses.
    """

    def run(deal: Deal, seed: int) -> Guesses:
        classes, models = len(deal.classes), []
        release = together_without_masks(HEAD, deal.budget(epsilon), deal, seed)
        decoder = release.manifest.decoder
        assert isinstance(decoder, GaussianSpec)
        assert decoder.head is not None
        root = np.sqrt(max(decoder.head.sharpness, 1.0))
        weight, bias = fit_personal(release, SiteRecords(next(iter(deal.train.values()))), seed=seed).shared
        shared = (weight * root, bias * root)
        for mine in deal.train.values():
            local = local_head(mine.X, mine.y, classes, seed, balanced=False)
            ours, theirs = out_of_fold(mine, classes, seed, balanced=False), softmax(mine.X, *shared)
            lam = choose_lambda(ours, theirs, mine.y, unit=units(mine)).lam
            models.append(PersonalModel(release.manifest.class_names, lam, local, shared))
        return from_models(models, deal)

    return run


def centralized(deal: Deal, seed: int) -> Guesses:
    """A head on all records in one place, without a guarantee."""
    pooled = deal.pooled()
    head = LinearHead(random_state=seed).fit(pooled.X, pooled.y)
    return Guesses([{"global": head.predict(t.X)} for t in deal.test.values()])


def fedavg(
    *,
    rounds: int = 20,
    proximal: float = 0.0,
    whiten: bool = True,
    epsilon: float | None = None,
    mixed: bool = False,
    balanced: bool = False,
) -> Method:
    """FedAvg of a linear head; `mixed`: FedLambda; `balanced`: with priors of all sites taken off the scores."""

    def run(deal: Deal, seed: int) -> Guesses:
        train, reference = list(deal.train.values()), load_reference(deal.reference, deal.dim)
        classes = len(deal.classes)
        if epsilon is None:
            shared = federated_head(
                train, classes, reference, rounds=rounds, proximal=proximal, whiten=whiten, seed=seed
            )
        else:
            shared = private_head(deal, epsilon, rounds=10, seed=seed)
        counts = np.bincount(deal.pooled().y, minlength=classes)
        offset = np.log(np.maximum(counts, 1) / counts.sum()) if balanced else np.zeros(classes)

        def proba(X: Array) -> Array:
            return _softmax(np.log(np.maximum(scores(shared, X, reference, whiten=whiten), 1e-300)) - offset)

        sites, lams = [], []
        for mine, other in zip(train, deal.test.values(), strict=True):
            theirs = proba(other.X)
            found = {"global": theirs.argmax(axis=1)}
            if mixed:
                ours, lam = interpolated(mine, proba, classes, seed)
                lams.append(lam)
                found["interpolated"] = (lam * ours(other.X) + (1 - lam) * theirs).argmax(axis=1)
            sites.append(found)
        return Guesses(sites, lams)

    return run


def private_head(deal: Deal, epsilon: float, *, rounds: int, seed: int) -> tuple[Array, Array]:
    """DP-FedAvg: each site trains the common head by DP-SGD, with one plan for all rounds; per record or subject."""
    reference, classes = load_reference(deal.reference, deal.dim), len(deal.classes)
    budget, root = deal.budget(epsilon), np.sqrt(deal.dim)
    steps = max(1, round(5 * budget.size() / min(256, budget.size())))
    plan = plan_sgd(budget, batch=256, steps=rounds * steps, clip=1.0)
    loss = RowLossByAutograd(lambda out, rows: nn.functional.cross_entropy(out, rows[:, -1].long(), reduction="none"))
    rows, subjects = [], []
    for site in deal.train.values():
        vectors = unit_vectors(site.X, reference)[0] * root
        rows.append(torch.from_numpy(np.concatenate([vectors, site.y[:, None]], axis=1).astype(np.float32)))
        subjects.append(np.unique(site.subject, return_inverse=True)[1] if deal.subjects else None)
    state = {"0.weight": np.zeros((classes, deal.dim), np.float32), "0.bias": np.zeros(classes, np.float32)}
    for number in range(rounds):
        updates = []
        for i, (mine, who) in enumerate(zip(rows, subjects, strict=True)):
            local = nn.Sequential(nn.Linear(deal.dim, classes))
            local.load_state_dict({k: torch.from_numpy(v) for k, v in state.items()})
            part = PlanSteps(number * steps, (number + 1) * steps, None)
            PrivateRun(local, mine, loss, plan, part=part, subject=who, insecure_seed=1000 * seed + i).run()
            updates.append({k: v.detach().numpy().copy() for k, v in local.state_dict().items()})
        state = {k: v.astype(np.float32) for k, v in average(updates, [1.0] * len(updates)).items()}
    return state["0.weight"].astype(np.float64), state["0.bias"].astype(np.float64)


def interpolated(
    mine: EmbeddingSet, shared: Callable[[Array], Array], classes: int, seed: int
) -> tuple[Callable[[Array], Array], float]:
    """FedLambda: a site's own head, and the lambda with the smallest log loss in five folds."""

    def fitted(rows: Array) -> Callable[[Array], Array]:
        head = LinearHead(
            batch_size=len(rows), max_epochs=100, weight_decay=5e-4, patience=None, random_state=seed
        ).fit(mine.X[rows], mine.y[rows])

        def proba(X: Array) -> Array:
            out = np.zeros((len(X), classes))
            out[:, head.classes_] = head.predict_proba(X)
            return out

        return proba

    rows = np.arange(len(mine))
    folds = KFold(5, shuffle=True, random_state=seed).split(mine.X)
    if mine.subject is not None:
        folds = GroupKFold(5).split(mine.X, groups=mine.subject)
    ours = np.empty((len(mine), classes))
    for a, b in folds:
        ours[b] = fitted(a)(mine.X[b])
    a, b = ours[rows, mine.y], shared(mine.X)[rows, mine.y]
    losses = [-np.log(np.maximum(lam * a + (1 - lam) * b, 1e-12)).mean() for lam in LAMBDAS]
    return fitted(rows), LAMBDAS[int(np.argmin(losses))]


def published(deal: Deal) -> float:
    """What the paper's noise really costs: calibrated to epsilon 1 for 20 passes, used for 250."""
    budget = deal.budget(1.0, PAPER_DELTA)
    short = plan_sgd(budget, batch=256, epochs=20)
    steps = PAPER["rounds"] * max(1, round(PAPER["local_epochs"] * budget.size() / short.batch))
    return epsilon_of([PoissonGaussian(short.rate, short.noise_multiplier, steps)], budget.delta, budget.relation)


def the_paper(epsilon: float | str | None, rounds: int) -> Method:
    """The federated paper: decoders are averaged, encoders stay, lambda is chosen on held-out records."""

    def run(deal: Deal, seed: int) -> Guesses:
        spent = published(deal) if isinstance(epsilon, str) else epsilon
        settings = PAPER | {"rounds": rounds}
        return federation(settings, spent, delta=PAPER_DELTA, validation=True)(deal, seed)

    return run


def scored(y: Array, guess: Array) -> dict[str, float]:
    return {"acc": accuracy(y, guess), "bacc": balanced_accuracy(y, guess), "f1": f1(y, guess)}


def together(method: Method, given: Sequence[Deal], seed: int) -> tuple[Guesses, list[Array]]:
    """Guesses and labels of each site over all deals (folds)."""
    found = [method(deal, seed) for deal in given]
    sites = [
        {kind: np.concatenate([f.sites[i][kind] for f in found]) for kind in found[0].sites[i]}
        for i in range(len(found[0].sites))
    ]
    labels = [np.concatenate([list(deal.test.values())[i].y for deal in given]) for i in range(len(sites))]
    more = {k: float(np.mean([f.more[k] for f in found])) for k in found[0].more}
    return Guesses(sites, [lam for f in found for lam in f.lams], more), labels


def summary(found: Guesses, labels: Sequence[Array]) -> dict[str, float | str]:
    """Means over sites, and every site's balanced accuracy for pairing."""
    out: dict[str, float | str] = {**found.more}
    if found.lams:
        out["lambda"] = float(np.median(found.lams))
    by_site = [{k: scored(y, g) for k, g in site.items()} for site, y in zip(found.sites, labels, strict=True)]
    for kind in by_site[0]:
        for metric in ("acc", "bacc", "f1"):
            out[f"{kind} {metric}"] = float(np.mean([site[kind][metric] for site in by_site]))
        out[f"{kind} sites"] = json.dumps([round(site[kind]["bacc"], 6) for site in by_site])
    return out


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
