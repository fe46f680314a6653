"""The Bayes rule of a release whose classes are Gaussians with one covariance: a linear head, without training."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum._version import __version__
from locum.errors import ConfigError
from locum.heads.saved import HeadManifest, SavedHead
from locum.release import GaussianSpec, Linear, Release

Array = npt.NDArray[np.float64]


def bayes_head(release: Release) -> SavedHead:
    """The classifier that a Gaussian release implies, in closed form.

    A release that carries a private head gives that head: its class means are placed farther apart than the head
    says, and the rule is as many times less sharp.

    Parameters
    ----------
    release
        A release with a Gaussian decoder, such as that of `ClassGaussian`.

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
    manifest = HeadManifest(
        written_by=f"locum {__version__}",
        settings={"rule": "bayes"},
        embedding=source.embedding,
        classes=tuple(source.classes[c] for c in known),
        class_names=tuple(source.class_names[c] for c in known),
        space=source.space,
        claim=release.claim,
        head="linear",
        program=(Linear(weight="layer0.weight", bias="layer0.bias"),),
        release=release.fingerprint,
    )
    return SavedHead(manifest, {"layer0.weight": weights / sharpness, "layer0.bias": offsets / sharpness})


def _solve(factor: Array, scale: Array, means: Array) -> Array:
    """`means` times the inverse of `factor.T @ factor + diag(scale**2)`, without forming it (Woodbury's identity)."""
    # A feature that never varies would decide alone; its weight is limited by the smallest spread that counts.
    spread = np.square(np.maximum(scale, 1e-6 * max(float(scale.max(initial=0.0)), 1e-30)))
    alone = means / spread
    if not len(factor):
        return alone
    small = np.eye(len(factor)) + (factor / spread) @ factor.T
    out: Array = alone - np.linalg.solve(small, factor @ alone.T).T @ (factor / spread)
    return out
