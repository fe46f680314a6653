"""The Bayes rule of a release whose classes are Gaussians with one covariance: a linear head, without training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from locum._version import __version__
from locum.errors import ConfigError
from locum.heads.saved import HeadManifest, SavedHead
from locum.release import GaussianSpec, Linear, Release

Array = npt.NDArray[np.float64]

# Added to every variance, as a share of it: tensors have 32 bits, and a rounding error must not decide.
_RIDGE = 1e-6
# With fewer directions than this share of the features their own system is smaller, and well conditioned.
_FEW = 0.25


def bayes_head(release: Release, *, balanced: bool = False) -> SavedHead:
    """The classifier that a Gaussian release implies, in closed form.

    A release that carries a private head gives that head: its class means are placed farther apart than the head
    says, and the rule is as many times less sharp.

    Parameters
    ----------
    release
        A release with a Gaussian decoder, such as that of `ClassGaussian`.
    balanced
        Assume classes of equal size in place of the frequencies that the release names. Rare classes are then
        predicted more often; a private head hardly ever predicts them otherwise.

    Returns
    -------
    SavedHead
        A linear head over the classes that the release can draw, with the claim of the release.

    Raises
    ------
    ConfigError
        If the release is no Gaussian, has conditions besides the class, or draws only one class.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.heads import bayes_head
    >>> tumors = load_sample("breast-cancer")
    >>> head = bayes_head(ClassGaussian(random_state=0).fit(tumors.X, tumors.y).release(no_dp=True))
    >>> float((head.predict(tumors.X) == tumors.y).mean()) > 0.9
    True
    """
    source, decoder = release.manifest, release.manifest.decoder
    if not isinstance(decoder, GaussianSpec):
        raise ConfigError(
            "Only a release of Gaussian classes has a rule of its own: train a head on its samples instead."
        )
    if source.conditions:
        raise ConfigError(
            f"The release is conditioned on {source.conditions[0].name!r}, so a class has several means and its rule "
            "is not linear: train a head on its samples instead (--head linear)."
        )
    prior = np.zeros(len(source.classes))
    for codes, weight in source.joint:
        prior[codes[0]] += weight
    known = np.flatnonzero(prior > 0)
    if len(known) < 2:
        raise ConfigError("The release gives vectors of one class only: a classifier needs at least two.")
    means, factor, scale = (release.tensors[name].astype(np.float64) for name in ("means", "factor", "scale"))
    means = means[known]
    weights = _solve(factor, scale, means)
    offsets = np.log(prior[known]) - np.einsum("ij,ij->i", weights, means) / 2
    sharpness = 1.0 if decoder.head is None else decoder.head.sharpness
    bias = offsets / sharpness
    if balanced:
        # All of it: the head that a release carries has the whole log prior in its scores, however sharp the rule.
        bias = bias - np.log(prior[known])
    manifest = HeadManifest(
        written_by=f"locum {__version__}",
        settings={"rule": "bayes", **({"balanced": True} if balanced else {})},
        embedding=source.embedding,
        classes=tuple(source.classes[c] for c in known),
        class_names=tuple(source.class_names[c] for c in known),
        space=source.space,
        claim=release.claim,
        head="linear",
        program=(Linear(weight="layer0.weight", bias="layer0.bias"),),
        release=release.fingerprint,
    )
    return SavedHead(manifest, {"layer0.weight": weights / sharpness, "layer0.bias": bias})


def carries_head(release: Release) -> bool:
    """Whether a release carries a private head, which its own Bayes rule is.

    Parameters
    ----------
    release
        Any release.

    Returns
    -------
    bool
        Not with conditions: the rule for the class is then not linear.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import ClassGaussian
    >>> from locum.heads import carries_head
    >>> tumors = load_sample("breast-cancer")
    >>> carries_head(ClassGaussian(random_state=0).fit(tumors.X, tumors.y).release(no_dp=True))
    False
    """
    decoder = release.manifest.decoder
    return isinstance(decoder, GaussianSpec) and decoder.head is not None and not release.manifest.conditions


def _solve(factor: Array, scale: Array, means: Array) -> Array:
    """`means` times the inverse of `factor.T @ factor + diag(scale**2)`, in units of each feature's own spread."""
    spread = np.sqrt(np.square(factor).sum(axis=0) + np.square(scale))
    spread = np.where(spread > 0, spread, 1.0)
    rows, rest = factor / spread, np.square(scale / spread) + _RIDGE
    if len(factor) < _FEW * len(scale):
        # Woodbury's identity: no matrix of all features is formed.
        alone = means / spread / rest
        small = np.eye(len(rows)) + (rows / rest) @ rows.T
        white: npt.NDArray[Any] = alone - np.linalg.solve(small, rows @ alone.T).T @ (rows / rest)
    else:
        white = np.linalg.solve(rows.T @ rows + np.diag(rest), (means / spread).T).T
    out: Array = white / spread
    return out
