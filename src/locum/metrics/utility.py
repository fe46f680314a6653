"""Scores of classifiers: AUC, accuracy, F1 and kappa, robustness to noise, and the AUC of membership by distance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics._checks import IntArray, at_least, column, labels, table
from locum.metrics.calibration import expected_calibration_error
from locum.metrics.intervals import auc_interval, mean_interval, share_below
from locum.types import Estimate


def auc_macro(y_true: npt.ArrayLike, proba: npt.ArrayLike, classes: Sequence[Any] | npt.NDArray[Any]) -> float:
    """Macro one-vs-rest AUC: the mean, over classes, of the AUC of that class's column.

    With two classes it is the ordinary AUC of the second. A class without records in the test set, or with all of
    them, has no AUC and is skipped. Ties count half.

    Parameters
    ----------
    y_true
        The true label of each record.
    proba
        Scores (n, classes), more is more likely; they need not sum to 1.
    classes
        The labels of the columns of `proba`.

    Returns
    -------
    float
        From 0 to 1; 0.5 is chance.

    Raises
    ------
    DataError
        If the test set holds only one class.

    Examples
    --------
    >>> from locum.metrics import auc_macro
    >>> auc_macro([0, 0, 1, 1], [[0.9, 0.1], [0.6, 0.4], [0.65, 0.35], [0.2, 0.8]], [0, 1])
    0.75
    """
    p, code = _scores(y_true, proba, classes)
    columns = [1] if p.shape[1] == 2 else range(p.shape[1])
    found = [_auc(p[:, c], code == c) for c in columns if 0 < np.count_nonzero(code == c) < len(code)]
    if not found:
        raise DataError(f"AUC needs two classes in the test set; got {len(np.unique(code))}. Use a larger test set.")
    return float(np.mean(found))


def accuracy(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Share of records with the right label.

    Parameters
    ----------
    y_true, y_pred
        True and predicted labels, both text or both whole numbers.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from locum.metrics import accuracy
    >>> accuracy([0, 1, 1, 1], [0, 1, 0, 1])
    0.75
    """
    t, p = _pair(y_true, y_pred)
    return float(np.mean(t == p))


def balanced_accuracy(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Mean recall over the classes in `y_true`.

    Parameters
    ----------
    y_true, y_pred
        True and predicted labels, both text or both whole numbers.

    Returns
    -------
    float
        From 0 to 1; 1 / classes for a constant prediction.

    Examples
    --------
    >>> from locum.metrics import balanced_accuracy
    >>> balanced_accuracy([0, 1, 1, 1], [0, 0, 0, 0])
    0.5
    """
    m = _confusion(y_true, y_pred)
    present = m.sum(axis=1) > 0
    return float(np.mean(np.diag(m)[present] / m.sum(axis=1)[present]))


def f1(y_true: npt.ArrayLike, y_pred: npt.ArrayLike, *, average: Literal["macro", "weighted"] = "macro") -> float:
    """F1 averaged over the classes in `y_true` or `y_pred`.

    A class that is never predicted correctly has 0.

    Parameters
    ----------
    y_true, y_pred
        True and predicted labels, both text or both whole numbers.
    average
        "macro": all classes count equally; "weighted": each by its true records.

    Returns
    -------
    float
        From 0 to 1.

    Examples
    --------
    >>> from locum.metrics import f1
    >>> round(f1([0, 0, 1, 1], [0, 0, 0, 1]), 3)
    0.733
    """
    if average not in ("macro", "weighted"):
        raise ConfigError(f'`average` must be "macro" or "weighted"; got {average!r}.')
    m = _confusion(y_true, y_pred)
    # Every class occurs in one of the two, so no denominator is 0.
    each = 2 * np.diag(m) / (m.sum(axis=0) + m.sum(axis=1))
    return float(np.average(each, weights=m.sum(axis=1) if average == "weighted" else None))


def cohen_kappa(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> float:
    """Agreement beyond chance.

    Parameters
    ----------
    y_true, y_pred
        True and predicted labels, both text or both whole numbers.

    Returns
    -------
    float
        1 is perfect, 0 is chance, below 0 is worse than chance. Also 0 if both sides have only one and the same
        class.

    Examples
    --------
    >>> from locum.metrics import cohen_kappa
    >>> cohen_kappa([0, 0, 1, 1], [0, 0, 0, 1])
    0.5
    """
    m = _confusion(y_true, y_pred)
    n = m.sum()
    chance = float(m.sum(axis=0) @ m.sum(axis=1)) / float(n) ** 2
    return float((np.trace(m) / n - chance) / (1 - chance)) if len(m) > 1 else 0.0


def score_all(
    y_true: npt.ArrayLike, proba: npt.ArrayLike, classes: Sequence[Any] | npt.NDArray[Any]
) -> dict[str, float]:
    """Every classification score by name; the predicted label is the most likely class.

    Parameters
    ----------
    y_true
        The true label of each record.
    proba
        Probabilities (n, classes): every row sums to 1.
    classes
        The labels of the columns of `proba`.

    Returns
    -------
    dict
        "auc" (macro one-vs-rest), "accuracy", "balanced_accuracy", "f1_macro", "f1_weighted", "cohen_kappa" and
        "calibration_error" (`expected_calibration_error`, the only one of which less is better).

    Raises
    ------
    DataError
        If the test set holds only one class, or a row does not sum to 1.

    Examples
    --------
    >>> from locum.metrics import score_all
    >>> s = score_all([0, 1], [[0.8, 0.2], [0.3, 0.7]], [0, 1])
    >>> s["auc"], s["accuracy"], s["cohen_kappa"]
    (1.0, 1.0, 1.0)
    """
    p, code = _scores(y_true, proba, classes)
    guess = p.argmax(axis=1)
    return {
        "auc": auc_macro(y_true, proba, classes),
        "accuracy": accuracy(code, guess),
        "balanced_accuracy": balanced_accuracy(code, guess),
        "f1_macro": f1(code, guess, average="macro"),
        "f1_weighted": f1(code, guess, average="weighted"),
        "cohen_kappa": cohen_kappa(code, guess),
        "calibration_error": expected_calibration_error(code, p),
    }


def _scores(
    y_true: npt.ArrayLike, proba: npt.ArrayLike, classes: Sequence[Any] | npt.NDArray[Any]
) -> tuple[npt.NDArray[np.floating[Any]], IntArray]:
    """Checked scores, and each record's class as a column number."""
    p = table("proba", proba)
    names = np.asarray(classes)
    if names.ndim != 1 or len(names) != p.shape[1] or len(np.unique(names)) != len(names) or len(names) < 2:
        raise DataError(
            f"`classes` must name each column of `proba` once, two or more; got {names.tolist()!r} for {p.shape[1]}."
        )
    y = labels("y_true", y_true, len(p))
    if (y.dtype.kind in "US") != (names.dtype.kind in "US"):
        raise DataError(f"`y_true` and `classes` must be labels of one kind; got {y.dtype} and {names.dtype}.")
    order = np.argsort(names)
    place = np.minimum(np.searchsorted(names[order], y), len(names) - 1)
    code = order[place]
    wrong = names[code] != y
    if wrong.any():
        raise DataError(f"`y_true` holds {y[wrong][0].item()!r}, which is not among `classes`. Add it there.")
    return p, code


def _auc(score: npt.NDArray[np.floating[Any]], positive: npt.NDArray[np.bool_]) -> float:
    """Chance that a positive scores above a negative, from ranks; ties count half."""
    return float(share_below(np.sort(score[~positive]), score[positive]).mean())


def _pair(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Both columns, checked."""
    t = np.asarray(y_true)
    t = labels("y_true", t, t.shape[0] if t.ndim else 0)
    p = labels("y_pred", y_pred, len(t))
    if len(t) == 0:
        raise DataError("A score needs at least one record; got none.")
    if (t.dtype.kind in "US") != (p.dtype.kind in "US"):
        raise DataError(f"`y_true` and `y_pred` must be labels of one kind; got {t.dtype} and {p.dtype}.")
    return t, p


def _confusion(y_true: npt.ArrayLike, y_pred: npt.ArrayLike) -> IntArray:
    """Counts by true class (rows) and predicted class (columns), over the classes of either."""
    t, p = _pair(y_true, y_pred)
    names, code = np.unique(np.concatenate([t, p]), return_inverse=True)
    c = len(names)
    return np.bincount(code[: len(t)] * c + code[len(t) :], minlength=c * c).reshape(c, c)


def noise_robustness(
    score_fn: Callable[[npt.NDArray[np.float32]], float],
    X_test_z: npt.ArrayLike,
    rng: np.random.Generator,
    *,
    sigmas: Sequence[float] = (0, 1, 2, 3),
    repeats: int = 3,
) -> dict[float, Estimate]:
    """`score_fn` on test embeddings with Gaussian noise of each deviation.

    All sigmas share the draws, so the curve is smooth.

    Parameters
    ----------
    score_fn
        A function of vectors (n, d) that gives a score.
    X_test_z
        Test embeddings, z-scored by the scaler fitted on the REAL training set, the same for every method that is
        compared, so that noise of size 1 means the same for all.
    rng
        Draws the noise.
    sigmas
        Standard deviations of the noise, 0 or more, each once.
    repeats
        How many draws of noise, 2 or more.

    Returns
    -------
    dict
        An `Estimate` by sigma. The interval covers only the noise; at sigma 0 there is none, and the value is exact.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import noise_robustness
    >>> curve = noise_robustness(lambda x: float(x.std()), np.zeros((400, 25)), np.random.default_rng(0))
    >>> [round(e.value) for e in curve.values()]
    [0, 1, 2, 3]
    """
    x = table("X_test_z", X_test_z).astype(np.float32)
    levels = [float(s) for s in sigmas]
    at_least("repeats", repeats, 2)
    if not levels or len(set(levels)) < len(levels) or not all(0 <= s < np.inf for s in levels):
        raise ConfigError(f"`sigmas` must be different numbers of 0 or more; got {list(sigmas)!r}.")
    runs: dict[float, list[float]] = {s: [] for s in levels}
    for _ in range(repeats):
        noise = rng.standard_normal(x.shape, dtype=np.float32)
        for s in levels:
            if s > 0:
                runs[s].append(float(score_fn(x + np.float32(s) * noise)))
    return {s: mean_interval(r) if s > 0 else Estimate.exact(float(score_fn(x))) for s, r in runs.items()}


def membership_auc(member_distances: npt.ArrayLike, non_member_distances: npt.ArrayLike) -> Estimate:
    """Chance that a record used for the release lies closer to it than one that was not.

    Members and non-members must come from one population and share no subject, or a difference between populations is
    mistaken for a leak. An AUC of 0.5 proves nothing about a better attack, nor about single records: a leak of one
    in a thousand hardly changes it.

    Parameters
    ----------
    member_distances, non_member_distances
        The distance of each record to the release, two or more records each.

    Returns
    -------
    Estimate
        0.5 means that distance reveals nothing; 1 that every member stands out. DeLong's 95 % interval.

    Examples
    --------
    >>> from locum.metrics import membership_auc
    >>> membership_auc([0.0, 0.1, 0.0], [0.9, 1.1, 0.8]).value
    1.0
    """
    members = column("member_distances", member_distances, rows=2)
    others = column("non_member_distances", non_member_distances, rows=2)
    return auc_interval(-members, -others)
