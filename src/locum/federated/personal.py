"""A site's personal model: a head trained on its records, a head from the federation's release, and their mix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold

from locum.errors import DataError, FormatError
from locum.federated.site_file import SiteRecords
from locum.federated.state import UNREADABLE, read_tensors, write_tensors
from locum.heads import LinearHead
from locum.release import GaussianSpec, Release

Floats = npt.NDArray[np.float64]
LAMBDAS = tuple(round(0.1 * k, 1) for k in range(11))
_FOLDS = 5
# Samples drawn per class, on average.
_SAMPLES = 500
# As in the federated paper: 100 steps of Adam on all rows at once.
_STEPS, _DECAY = 100, 5e-4
_FILE = "personal.safetensors"
_TENSORS = ("local.weight", "local.bias", "shared.weight", "shared.bias")
# The bias of a class that a head has never seen.
_UNSEEN = -1e30


@dataclass(frozen=True, slots=True, eq=False)
class PersonalModel:
    """A mix of probabilities: the share `lam` from the local head, the rest from the global one.

    All of it is private and stays at the site: the local head and `lam` come from its records without noise.

    Parameters
    ----------
    classes
        Class names.
    lam
        The share of the local head, 0 to 1.
    local, shared
        Weights (classes, features) and biases (classes,) of the two linear heads.
    backbone
        The model that made the vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.federated import PersonalModel
    >>> sure, undecided = np.array([50.0, -50.0]), np.zeros(2)
    >>> model = PersonalModel(("ant", "bee"), 0.5, (np.zeros((2, 3)), sure), (np.zeros((2, 3)), undecided))
    >>> model.predict_proba(np.zeros((1, 3))).tolist()
    [[0.75, 0.25]]
    """

    classes: tuple[str, ...]
    lam: float
    local: tuple[Floats, Floats]
    shared: tuple[Floats, Floats]
    backbone: str = "unknown"

    def predict_proba(self, X: npt.ArrayLike, lam: float | None = None) -> Floats:
        """Probabilities by class; `lam` replaces the chosen share: 1 uses the local head only, 0 the global one."""
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.local[0].shape[1]:
            raise DataError(f"The model takes vectors of {self.local[0].shape[1]} features; got shape {x.shape}.")
        share = self.lam if lam is None else lam
        return share * _softmax(x, *self.local) + (1 - share) * _softmax(x, *self.shared)

    def predict(self, X: npt.ArrayLike, lam: float | None = None) -> npt.NDArray[np.int64]:
        """The most likely class, as an index into `classes`."""
        best: npt.NDArray[np.int64] = self.predict_proba(X, lam).argmax(axis=1)
        return best

    def save(self, folder: Path) -> None:
        """Write one private file atomically."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        meta = {
            "format": "locum-personal",
            "classes": list(self.classes),
            "lambda": self.lam,
            "backbone": self.backbone,
        }
        write_tensors(folder / _FILE, dict(zip(_TENSORS, (*self.local, *self.shared), strict=True)), meta)

    @classmethod
    def open(cls, folder: Path) -> PersonalModel:
        """Undo `save`."""
        file = folder / _FILE
        if not file.is_file():
            raise FormatError(f"There is no personal model in {str(folder)!r}: take part in a federation first.")
        try:
            meta, tensors = read_tensors(file)
            parts = [tensors[name] for name in _TENSORS]
            heads = (parts[0], parts[1]), (parts[2], parts[3])
            return cls(tuple(meta["classes"]), float(meta["lambda"]), *heads, backbone=str(meta["backbone"]))
        except UNREADABLE as error:
            raise FormatError(f"{str(file)!r} is not a personal model, or is damaged.") from error


def fit_personal(release: Release, records: SiteRecords, *, balanced: bool = False, seed: int = 0) -> PersonalModel:
    """Fit a local head, trained as in the federated paper, a global head, and the lambda that fits the records best.

    For a class Gaussian the global head is the Bayes rule; for other releases it is trained on samples. Without
    validation records lambda is chosen by cross-validation, and the local head is trained on all records.

    Parameters
    ----------
    release
        The release of the federation.
    records
        The site's records, with the classes of the release.
    balanced
        Both heads weight classes equally: the global one by prior or by equally many samples per class, the local one
        by balanced softmax.
    seed
        Seed of training, samples and folds.

    Returns
    -------
    PersonalModel
        The mix. Private: it stays at the site.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample
    >>> from locum.federated import fit_personal
    >>> from locum.federated.site_file import SiteRecords
    >>> from locum.generate import ClassGaussian
    >>> data = load_sample("breast-cancer")
    >>> release = ClassGaussian().fit(data.X, data.y).release(data.info, no_dp=True)
    >>> model = fit_personal(release, SiteRecords(data.take(range(0, 60)), data.take(range(60, 90))))
    >>> 0 <= model.lam <= 1
    True
    """
    names, backbone = release.manifest.class_names, release.manifest.embedding.backbone
    train, held = records.train, records.validation
    shared = _global_head(release, balanced, seed)
    local = _head(train.X, train.y, len(names), seed, balanced=balanced)
    if held is not None:
        theirs, ours = _softmax(held.X, *shared), _softmax(held.X, *local)
        return PersonalModel(names, pick_lambda(ours, theirs, held.y), local, shared, backbone)
    # A subject's records stay in one fold: a head trained on some of them would look too good on the others.
    _, who = np.unique(np.arange(len(train)) if train.subject is None else train.subject, return_inverse=True)
    subjects = int(who.max()) + 1
    if subjects < 2:
        return PersonalModel(names, 0.0, local, shared, backbone)
    ours = np.empty((len(train), len(names)))
    folds = KFold(min(_FOLDS, subjects), shuffle=True, random_state=seed)
    for some, others in folds.split(np.arange(subjects)):
        a, b = np.isin(who, some), np.isin(who, others)
        ours[b] = _softmax(train.X[b], *_head(train.X[a], train.y[a], len(names), seed, balanced=balanced))
    return PersonalModel(names, pick_lambda(ours, _softmax(train.X, *shared), train.y), local, shared, backbone)


def pick_lambda(local: Floats, shared: Floats, y: npt.NDArray[np.int64]) -> float:
    """The share of the local probabilities with the smallest log loss; among equals the smallest share.

    Accuracy on some twenty records could not tell most of the choices apart.

    >>> pick_lambda(np.array([[0.9, 0.1]]), np.array([[0.2, 0.8]]), np.array([0]))
    1.0
    """
    rows = np.arange(len(y))
    mine, theirs = local[rows, y], shared[rows, y]
    losses = [-np.log(np.maximum(lam * mine + (1 - lam) * theirs, 1e-12)).mean() for lam in LAMBDAS]
    return LAMBDAS[int(np.argmin(losses))]


def _global_head(release: Release, balanced: bool, seed: int) -> tuple[Floats, Floats]:
    manifest = release.manifest
    classes = len(manifest.classes)
    if isinstance(manifest.decoder, GaussianSpec) and not manifest.conditions:
        means, factor, scale = (release.tensors[k].astype(np.float64) for k in ("means", "factor", "scale"))
        covariance = factor.T @ factor + np.diag(np.maximum(scale, 1e-6) ** 2)
        weight: Floats = np.linalg.solve(covariance, means.T).T.astype(np.float64)
        prior = np.full(classes, 1e-6)
        for (code, *_), p in manifest.joint:
            prior[code] += 1.0 if balanced else p
        return weight, np.log(prior) - 0.5 * (weight * means).sum(axis=1)
    how: dict[str, Any] = {"n": _SAMPLES * classes}
    if balanced:
        how = {"per_class": dict.fromkeys(manifest.classes, _SAMPLES)}
    X, labels = release.sample(random_state=seed, **how)
    place = {label: i for i, label in enumerate(manifest.classes)}
    codes = np.array([place[label] for label in labels.tolist()])
    return _head(X, codes, classes, seed, balanced=False)


def _head(
    X: npt.NDArray[np.float32], codes: npt.NDArray[np.int64], classes: int, seed: int, *, balanced: bool
) -> tuple[Floats, Floats]:
    """Weights and biases of a linear head over all classes; classes without records get probability 0."""
    weight, bias = np.zeros((classes, X.shape[1])), np.full(classes, _UNSEEN)
    seen = np.unique(codes)
    if len(seen) == 1:
        bias[seen] = 0.0
        return weight, bias
    head = LinearHead(
        batch_size=len(X),
        max_epochs=_STEPS,
        weight_decay=_DECAY,
        patience=None,
        loss="balanced_softmax" if balanced else "cross_entropy",
        random_state=seed,
    ).fit(X, codes)
    scale, mean = head.scale_.double().numpy(), head.mean_.double().numpy()
    weight[seen] = head.module_.weight.detach().double().numpy() / scale  # type: ignore[operator]
    bias[seen] = head.module_.bias.detach().double().numpy() - weight[seen] @ mean  # type: ignore[operator]
    return weight, bias


def _softmax(x: npt.ArrayLike, weight: Floats, bias: Floats) -> Floats:
    scores = np.asarray(x, dtype=np.float64) @ weight.T + bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: Floats = scores / scores.sum(axis=1, keepdims=True)
    return out
