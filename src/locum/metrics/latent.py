"""Checks of a latent space: does it follow the prior, and does it reveal classes?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError, DataError
from locum.metrics._checks import FloatArray, at_least, labels, table
from locum.metrics.intervals import clopper_pearson
from locum.types import Estimate


@dataclass(frozen=True, slots=True, eq=False)
class LatentKS:
    """Kolmogorov-Smirnov statistics of latents, as `latent_ks` returns them.

    Attributes
    ----------
    classes
        The labels, sorted: one per row of the arrays.
    statistic
        The largest gap to N(0, 1), from 0 to 1: one row per class, one column per dimension.
    pvalue
        Exact p-values, in the same shape.

    Examples
    --------
    >>> from locum.metrics import latent_ks
    >>> latent_ks([[0.0, 9.0], [0.0, 9.0]], ["a", "a"]).statistic
    array([[0.5, 1. ]])
    """

    classes: tuple[Any, ...]
    statistic: npt.NDArray[np.float64]
    pvalue: npt.NDArray[np.float64]


def latent_ks(Z: npt.ArrayLike, y: npt.ArrayLike) -> LatentKS:
    """Largest gap between each class's latents and N(0, 1), dimension by dimension, with exact p-values.

    0 is a perfect fit. Each dimension is tested alone: correlated latents can still pass. With thousands of records
    even a harmless gap is significant; read the statistic.

    Parameters
    ----------
    Z
        Latents (n, dim).
    y
        One label per latent.

    Returns
    -------
    LatentKS
        Statistics and p-values, one row per class.

    Examples
    --------
    >>> from locum.metrics import latent_ks
    >>> latent_ks([[0.0], [0.0]], [1, 1]).statistic
    array([[0.5]])
    """
    from scipy.special import ndtr
    from scipy.stats import kstwo

    z = table("Z", Z).astype(np.float64)
    code = labels("y", y, len(z))
    classes = np.unique(code)
    statistic = np.empty((len(classes), z.shape[1]))
    pvalue = np.empty_like(statistic)
    for i, c in enumerate(classes):
        below = ndtr(np.sort(z[code == c], axis=0))
        n = len(below)
        steps = np.arange(1, n + 1)[:, None] / n
        statistic[i] = np.maximum((steps - below).max(axis=0), (below - steps + 1 / n).max(axis=0))
        pvalue[i] = kstwo.sf(statistic[i], n)
    return LatentKS(tuple(classes.tolist()), statistic, np.clip(pvalue, 0.0, 1.0))


def separability(
    Z: npt.ArrayLike, y: npt.ArrayLike, rng: np.random.Generator, *, hidden: int = 2, test_share: float = 0.2
) -> Estimate:
    """Accuracy of a tiny classifier that predicts the class from latents; chance level means that it cannot.

    Linear layers dim -> `hidden` -> classes with one ReLU, trained on one part of the records and scored on the rest;
    latents are z-scored by the training part. The best of three initializations on the training part is used, since
    so small a network can fail to train. A low accuracy holds only for this classifier; a larger one may do better.

    Parameters
    ----------
    Z
        Latents (n, dim), 10 or more.
    y
        One label per latent, of two classes or more.
    rng
        Draws the split and the initial weights.
    hidden
        The number of hidden units.
    test_share
        The share of records for the test, between 0 and 1.

    Returns
    -------
    Estimate
        The accuracy. Its interval (exact binomial) covers only the test records: average over runs for more.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.metrics import separability
    >>> Z = np.repeat([[-3.0, 0.0], [3.0, 0.0]], 50, axis=0)
    >>> separability(Z, np.repeat([0, 1], 50), np.random.default_rng(0)).value
    1.0
    """
    z = table("Z", Z, rows=10).astype(np.float64)
    code = labels("y", y, len(z))
    at_least("hidden", hidden, 1)
    if not 0 < test_share < 1:
        raise ConfigError(f"`test_share` must lie between 0 and 1; got {test_share!r}.")
    order = rng.permutation(len(z))
    test, train = np.split(order, [max(1, round(test_share * len(z)))])
    if len(np.unique(code[train])) < 2:
        raise DataError("The training part has one class only; give latents of two classes or more.")
    mean, scale = z[train].mean(axis=0), z[train].std(axis=0)
    z = (z - mean) / np.where(scale > 0, scale, 1.0)
    guess = _tiny_network(z[train], code[train], z[test], hidden, rng)
    return clopper_pearson(int(np.count_nonzero(guess == code[test])), len(test))


def _tiny_network(
    z: FloatArray, y: npt.NDArray[Any], z_test: FloatArray, hidden: int, rng: np.random.Generator
) -> npt.NDArray[Any]:
    """Predictions for `z_test` by the best of three initializations."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    best, best_loss = None, np.inf
    for _ in range(3):
        net = MLPClassifier((hidden,), max_iter=200, random_state=int(rng.integers(2**31)))
        net.set_params(learning_rate_init=0.02, batch_size=min(256, len(z)))
        with warnings.catch_warnings():
            # The fixed number of iterations is part of the definition, so running out is expected.
            warnings.simplefilter("ignore", ConvergenceWarning)
            net.fit(z, y)
        if net.loss_ < best_loss:
            best, best_loss = net, net.loss_
    if best is None:
        raise DataError("The classifier's loss was never finite; check the latents for extreme values.")
    return np.asarray(best.predict(z_test))
