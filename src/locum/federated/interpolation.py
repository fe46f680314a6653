"""Lambda, the share of a site's own head in its mix with the global head, and whether the mix is used at all.

Two rules:

- "paper", the federated paper's: the lambda in {0, 0.1, ..., 1} with the best value of the measure on the site's
  validation records. Some twenty records cannot tell most of these choices apart, so it varies from site to site.
- "robust", the default. The loss is the log loss, with equal weights for classes if the measure has them. Candidates
  are the lambdas whose loss is within one standard error of the least, those near 0.5 first. The first that beats the
  local head in the measure by more than one standard error is used, and without one the site falls back to its local
  head: joining does not make a site worse beyond chance, by its own measure and records.

Both differences are paired over units (subjects, or else records). One standard error, and 0.5 to start from, were
chosen on partitions with seeds that no study uses. A stricter limit turns away more sites of 100 records that gain.

Balanced accuracy and F1 are means over the classes that occur in the records that lambda is chosen on, or for F1 are
predicted there. A class without records has no part in the choice otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics import accuracy, balanced_accuracy, f1
from locum.types import Estimate

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]
Measure = Literal["balanced_accuracy", "accuracy", "f1", "log_loss"]
Rule = Literal["robust", "paper"]

LAMBDAS = tuple(round(0.1 * k, 1) for k in range(11))
# Where the search starts: with equal shares, the errors of the two heads cancel best.
_START = 0.5
# Standard errors: a lambda that is no worse than this is a candidate, and the mix must gain more than this.
_SAME, _GAIN = 1.0, 1.0
_LEAST, _PAPER_LEAST = 1e-6, 1e-12


@dataclass(frozen=True, slots=True)
class Choice:
    """The lambda that was chosen, and what the mix gains over the local head. Private.

    Parameters
    ----------
    lam
        The share of the local head.
    gain
        The measure of the mix less that of the local head, on the records that lambda was chosen on. If the site
        falls back to its local head, that of the best candidate, which was not used.
    fallback
        Whether no mix was better than the local head beyond chance.
    """

    lam: float
    gain: Estimate
    fallback: bool


def choose_lambda(
    local: Floats,
    shared: Floats,
    y: Codes,
    *,
    unit: npt.ArrayLike | None = None,
    measure: Measure = "balanced_accuracy",
    rule: Rule = "robust",
) -> Choice:
    """Choose lambda from the probabilities of both heads for records that the local head was not trained on.

    `unit` has one code per record: records with the same code belong to one subject. None: each record is a unit.

    >>> local, shared = np.array([[0.9, 0.1], [0.3, 0.7]] * 20), np.array([[0.4, 0.6], [0.4, 0.6]] * 20)
    >>> choose_lambda(local, shared, np.array([0, 1] * 20)).fallback
    True
    """
    check_choice(measure, rule)
    if not len(y) or local.shape != shared.shape or len(local) != len(y):
        raise DataError(
            "Lambda is chosen from one row of probabilities per record and head; "
            f"got shapes {local.shape} and {shared.shape} for {len(y)} records."
        )
    who = np.arange(len(y)) if unit is None else np.unique(np.asarray(unit), return_inverse=True)[1]
    mixes = [lam * local + (1 - lam) * shared for lam in LAMBDAS]
    if rule == "paper":
        best = int(np.argmax([_value(p, y, measure) for p in mixes]))
        return Choice(LAMBDAS[best], _estimate(*_gain(local, mixes[best], y, who, measure), who), False)
    weights = _weights(y, measure)
    losses = [-np.log(np.maximum(p[np.arange(len(y)), y], _LEAST)) for p in mixes]
    totals = [float((weights * loss).mean()) for loss in losses]
    best = int(np.argmin(totals))
    found: list[tuple[float, float]] = []
    for k in sorted(range(len(LAMBDAS)), key=lambda k: (abs(LAMBDAS[k] - _START), totals[k])):
        worse, error = _paired(weights * (losses[k] - losses[best]), weights, who)
        if LAMBDAS[k] == 1 or worse > _SAME * error + 1e-12:
            continue
        gain, error = _gain(local, mixes[k], y, who, measure)
        if gain > _GAIN * error:
            return Choice(LAMBDAS[k], _estimate(gain, error, who), False)
        found.append((gain, error))
    return Choice(1.0, _estimate(*max(found, default=(0.0, 0.0)), who), True)


def pick_lambda(
    local: Floats,
    shared: Floats,
    y: Codes,
    *,
    unit: npt.ArrayLike | None = None,
    measure: Measure = "balanced_accuracy",
    rule: Rule = "robust",
) -> float:
    """The lambda of `choose_lambda` alone; among equals under the rule "paper", the smallest.

    >>> pick_lambda(np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]]), np.array([0]), measure="log_loss", rule="paper")
    1.0
    """
    return choose_lambda(local, shared, y, unit=unit, measure=measure, rule=rule).lam


def check_choice(measure: str, rule: str) -> None:
    """Refuse an unknown measure or rule."""
    for name, value, known in (("measure", measure, get_args(Measure)), ("rule", rule, get_args(Rule))):
        if value not in known:
            raise ConfigError(f"`{name}` must be one of {', '.join(known)}; got {value!r}.")


def _value(p: Floats, y: Codes, measure: Measure) -> float:
    """The measure; larger is better."""
    if measure == "log_loss":
        return float(np.log(np.maximum(p[np.arange(len(y)), y], _PAPER_LEAST)).mean())
    guess = p.argmax(axis=1)
    return {"accuracy": accuracy, "balanced_accuracy": balanced_accuracy, "f1": f1}[measure](y, guess)


def _weights(y: Codes, measure: Measure) -> Floats:
    """One weight per record, 1 on average; every class has the same sum if the measure is a mean over classes."""
    if measure in ("accuracy", "log_loss"):
        return np.ones(len(y))
    counts = np.bincount(y)
    out: Floats = len(y) / (np.count_nonzero(counts) * counts[y].astype(np.float64))
    return out


def _gain(local: Floats, mix: Floats, y: Codes, who: Codes, measure: Measure) -> tuple[float, float]:
    """How much better the mix is than the local head, and the standard error of that.

    One more unit that differs is assumed: two or three records that agree must not look like certainty.
    """
    weights, rows = _weights(y, measure), np.arange(len(y))
    if measure == "f1":
        # F1 is no mean over records: to first order it is the mean of these.
        parts = _f1_parts(mix.argmax(axis=1), y) - _f1_parts(local.argmax(axis=1), y)
        _, error = _paired(parts, np.zeros(len(y)), who, more=1.0)
        return _value(mix, y, "f1") - _value(local, y, "f1"), error
    if measure == "log_loss":
        parts = np.log(np.maximum(mix[rows, y], _LEAST)) - np.log(np.maximum(local[rows, y], _LEAST))
    else:
        parts = (mix.argmax(axis=1) == y).astype(np.float64) - (local.argmax(axis=1) == y)
    return _paired(weights * parts, weights, who, more=1.0)


def _paired(parts: Floats, weights: Floats, who: Codes, more: float = 0.0) -> tuple[float, float]:
    """The mean of weighted differences, and its standard error over units; `more` counts as further units."""
    n, of_unit = len(parts), np.bincount(who, weights=parts)
    size = np.bincount(who, weights=weights)
    mean = float(parts.mean())
    spread = np.square(of_unit - mean * size).sum()
    typical = np.square(size if size.any() else np.bincount(who)).mean()
    return mean, float(np.sqrt(spread + more * typical)) / n


def _f1_parts(guess: Codes, y: Codes) -> Floats:
    """For each record, n times its first-order effect on macro F1; their sum is 0."""
    classes = np.union1d(y, guess)
    true, said = y[:, None] == classes, guess[:, None] == classes
    size = true.sum(axis=0) + said.sum(axis=0)
    both = true & said
    score = 2 * both.sum(axis=0) / size
    out: Floats = ((2.0 * both - score * (true * 1.0 + said)) / size).mean(axis=1) * len(y)
    return out


def _estimate(gain: float, error: float, who: Codes) -> Estimate:
    return Estimate(gain, gain - 1.96 * error, gain + 1.96 * error, int(who.max()) + 1)
