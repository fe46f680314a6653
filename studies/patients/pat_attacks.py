"""Membership of a record and of a patient: releases with a guarantee for either, and what attackers find in them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from locum.accounting import Gaussian, attack_limit, plan_head
from locum.audit import LikelihoodRatio, LiRA, NearestDistance, ScoreAttack, Scores, SumLiRA
from locum.audit.statistics import evaluate_scores
from locum.audit.view import one_per_subject
from locum.generate import BaseGenerator, ClassGaussian, KSame
from locum.release import Release
from locum.types import DP, EmbeddingSet, Unit

Floats = npt.NDArray[np.float64]
# Releases by the name of their guarantee; a number is an epsilon.
NAMES = {
    "none": "none (ClassGaussian)",
    "5-same": "5-anonymity per record (5-Same)",
    "5-same-patients": "5-anonymity per patient (5-Same)",
    "record-1": "epsilon 1 per record",
    "record-3": "epsilon 3 per record",
    "patient-1": "epsilon 1 per patient",
    "patient-3": "epsilon 3 per patient",
}
# Patients by their number of records: the last bin has no end.
BINS = {"1": (1, 1), "2-4": (2, 4), "5-9": (5, 9), "10+": (10, 10**9)}


def probe() -> Pipeline:
    """The classifier of all figures on vectors, with the penalty that `private-epsilon` chose on training folds."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=300))


def budget(release: str, delta: float) -> DP | None:
    """The budget behind the name of a release; None if it has none."""
    unit, _, epsilon = release.partition("-")
    if unit not in ("record", "patient"):
        return None
    kind: Unit = "record" if unit == "record" else "subject"
    return DP(float(epsilon), delta, unit=kind)


def released(name: str, data: EmbeddingSet, delta: float, reference: str, seed: int) -> Release:
    """A release of `data` by the name of its guarantee. Insecure seeds: the noise is distributed the same."""
    privacy = budget(name, delta)
    if privacy is not None:
        classes = range(len(data.info.class_names))
        model = ClassGaussian(
            privacy=privacy, classes=classes, reference=reference, insecure_seed=seed, random_state=seed
        )
        found = model.fit(data.X, data.y, data.subject).release(class_names=data.info.class_names)
        # Without a charge there is no claim, but the attacker knows what the noise was made for.
        claim = replace(found.claim, unit=privacy.unit)
        return replace(found, manifest=found.manifest.model_copy(update={"claim": claim}))
    plain: BaseGenerator = ClassGaussian(random_state=seed) if name == "none" else KSame(5, random_state=seed)
    owners = None if name == "5-same" else data.subject
    return plain.fit(data.X, data.y, owners).release(data.info, no_dp=True)


def attacks_on(name: str, shadows: int, seed: int) -> list[ScoreAttack]:
    """The attacks that were strongest on releases of this kind in `audit-table` and `audit-gaussians`."""
    if name == "none":
        return [LikelihoodRatio(), LiRA(shadows=shadows, seed=seed)]
    if name.startswith("5-same"):
        return [NearestDistance()]
    return [SumLiRA(shadows=shadows, seed=seed)]


def found_by(scores: Scores, inside: EmbeddingSet, outside: EmbeddingSet, seed: int) -> dict[str, float | str]:
    """The AUC for one record of each patient, as an audit has it, and for whole patients, by their number of records.

    A patient's score is the sum over the records, each less the mean over all patients of both sets: a sum that is
    not around 0 would tell how many records a patient has.
    """
    out: dict[str, float | str] = {}
    record = evaluate_scores("record", scores, inside, outside, np.random.default_rng(seed))
    out |= {"record/auc": record.attack.value, "record/verdict": record.verdict}
    a, b = (_by_patient(values, data) for values, data in ((scores.inside, inside), (scores.outside, outside)))
    middle = float(np.concatenate([a[0] / a[1], b[0] / b[1]]).mean())
    totals = Scores(a[0] - middle * a[1], b[0] - middle * b[1])
    # One record stands for each patient: only its label and its place are used.
    rng = np.random.default_rng(seed)
    ones = [_first_of_each(data) for data in (inside, outside)]
    patient = evaluate_scores("patient", totals, ones[0], ones[1], rng)
    out |= {"patient/auc": patient.attack.value, "patient/verdict": patient.verdict}
    for words, (low, high) in BINS.items():
        mine, theirs = (t[(n >= low) & (n <= high)] for t, n in ((totals.inside, a[1]), (totals.outside, b[1])))
        if min(len(mine), len(theirs)) >= 10:
            out[f"patient/{words}/auc"] = rank_auc(mine, theirs)
            out[f"patient/{words}/patients"] = float(len(mine) + len(theirs))
    return out


def rank_auc(inside: Floats, outside: Floats) -> float:
    """How often a member has the higher score; a tie counts one half."""
    order = np.sort(outside)
    below, upto = (np.searchsorted(order, inside, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / 2 / len(outside))


def alone(scores: Scores, inside: EmbeddingSet, outside: EmbeddingSet, seed: int) -> dict[str, float | str]:
    """The AUC and the verdict of an audit that does not know patients: each record stands for itself."""
    strangers = [replace(data, subject=None) for data in (inside, outside)]
    found = evaluate_scores("record", scores, strangers[0], strangers[1], np.random.default_rng(seed))
    return {"record/auc": found.attack.value, "record/verdict": found.verdict}


def _by_patient(values: Floats, data: EmbeddingSet) -> tuple[Floats, npt.NDArray[np.int64]]:
    assert data.subject is not None
    _, place, counts = np.unique(data.subject, return_inverse=True, return_counts=True)
    return np.bincount(place, weights=values), counts


def _first_of_each(data: EmbeddingSet) -> EmbeddingSet:
    assert data.subject is not None
    return data.take(np.unique(data.subject, return_index=True)[1])


@cache
def limit(epsilon: float, delta: float, records: int) -> float:
    """The highest AUC of any test of whether `records` records of one patient took part, by a plan per record.

    Each of them moves a sum by at most 1, so that together they are one record with noise that is that much less.
    """
    plan = plan_head(DP(epsilon, delta))
    events = [
        replace(e, noise_multiplier=e.noise_multiplier / records) for e in plan.events if isinstance(e, Gaussian)
    ]
    assert len(events) == len(plan.events)
    return attack_limit(events)


def halves(data: EmbeddingSet, by: str, seed: int) -> tuple[EmbeddingSet, EmbeddingSet]:
    """Members and others: whole patients on one side, or single records so that patients are on both."""
    rng = np.random.default_rng(seed)
    assert data.subject is not None
    units = np.unique(data.subject, return_inverse=True)[1] if by == "patient" else np.arange(len(data))
    chosen = rng.permutation(int(units.max()) + 1)[: (int(units.max()) + 1) // 2]
    inside = np.isin(units, chosen)
    return data.take(inside), data.take(~inside)


def attacked(
    config: Mapping[str, Any], data: EmbeddingSet, name: str, by: str, reference: str, seed: int
) -> dict[str, float | str]:
    """All attacks on one release, with members and others divided by patient or by record."""
    inside, outside = halves(data, by, seed)
    release = released(name, inside, config["delta"], reference, seed)
    out: dict[str, float | str] = {}
    for attack in attacks_on(name, config["shadows"], seed):
        if by == "patient":
            scores = attack.score(release, inside, outside, np.random.default_rng(seed))
            found = found_by(scores, inside, outside, seed)
        else:
            # An audit that knows the patients refuses these sets, so it is not told.
            strangers = [replace(part, subject=None) for part in (inside, outside)]
            scores = attack.score(release, strangers[0], strangers[1], np.random.default_rng(seed))
            found = alone(scores, inside, outside, seed)
        out |= {f"{attack.name}/{key}": value for key, value in found.items()}
    return out


def one_each(data: EmbeddingSet, seed: int) -> EmbeddingSet:
    """One record of each patient, drawn at random."""
    return data.take(one_per_subject(data, np.random.default_rng(seed)))
