"""A site's personal model: a head trained on its records, a head from the federation's release, and their mix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import KFold

from locum.errors import ConfigError, DataError, FormatError
from locum.federated.interpolation import (
    Choice,
    Measure,
    Rule,
    Unseen as Unseen,
    check_choice,
    choose_lambda,
    pick_lambda as pick_lambda,
)
from locum.federated.site_file import SiteRecords
from locum.federated.state import UNREADABLE, read_tensors, write_tensors
from locum.heads import LinearHead
from locum.metrics import accuracy, balanced_accuracy
from locum.release import GaussianSpec, Release
from locum.types import EmbeddingSet, Estimate

Floats = npt.NDArray[np.float64]
_FOLDS = 5
# Samples drawn per class, on average.
_SAMPLES = 500
# As in the federated paper: 100 steps of Adam on all rows at once.
_STEPS, _DECAY = 100, 5e-4
_FILE, _VERSION = "personal.safetensors", 2
_TENSORS = ("local.weight", "local.bias", "shared.weight", "shared.bias")
# The bias of a class that a head has never seen.
_UNSEEN = -1e30
# Above these a site is warned: accuracy less balanced accuracy, and the share of records with clipped gradients.
_UNBALANCED, _CLIPPED = 0.1, 0.5


@dataclass(frozen=True, slots=True, eq=False)
class PersonalModel:
    """A mix of probabilities: the share `lam` from the local head, the rest from the global one.

    All of it is private and stays at the site: the local head, `lam`, `gain`, `clipped` and the notes come from its
    records without noise.

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
    measure
        What lambda was chosen by.
    unseen
        Classes that the local head has never seen: "mix" gives them their share of the global head's probability,
        "global" all of it, whatever lambda is; the mix then fills the rest.
    fallback
        Whether lambda is 1 because no mix was better than the local head beyond chance.
    gain
        How much better the mix was than the local head, by `measure`; None: unknown.
    clipped
        The share of the site's records whose gradients were clipped; None: unknown.
    notes
        Warnings, one sentence each.

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
    measure: str = "log_loss"
    unseen: Unseen = "mix"
    fallback: bool = False
    gain: Estimate | None = None
    clipped: float | None = None
    notes: tuple[str, ...] = ()

    def predict_proba(self, X: npt.ArrayLike, lam: float | None = None) -> Floats:
        """Probabilities by class; `lam` replaces the chosen share: 1 uses the local head only, 0 the global one."""
        x = np.asarray(X, dtype=np.float64)
        if x.ndim != 2 or x.shape[1] != self.local[0].shape[1]:
            raise DataError(f"The model takes vectors of {self.local[0].shape[1]} features; got shape {x.shape}.")
        share = self.lam if lam is None else lam
        ours, theirs = softmax(x, *self.local), softmax(x, *self.shared)
        if self.unseen == "mix" or lam == 1:
            return share * ours + (1 - share) * theirs
        seen = self.local[1] > _UNSEEN
        out = np.where(seen, share * ours + (1 - share) * _among(theirs, seen), 0.0)
        out *= theirs[:, seen].sum(axis=1, keepdims=True)
        return out + np.where(seen, 0.0, theirs)

    def predict(self, X: npt.ArrayLike, lam: float | None = None) -> npt.NDArray[np.int64]:
        """The most likely class, as an index into `classes`."""
        best: npt.NDArray[np.int64] = self.predict_proba(X, lam).argmax(axis=1)
        return best

    def save(self, folder: Path) -> None:
        """Write one private file atomically."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        meta = {
            "format": "locum-personal",
            "version": _VERSION,
            "classes": list(self.classes),
            "lambda": self.lam,
            "backbone": self.backbone,
            "measure": self.measure,
            "unseen": self.unseen,
            "fallback": self.fallback,
            "gain": None if self.gain is None else [self.gain.value, self.gain.low, self.gain.high, self.gain.n],
            "clipped": self.clipped,
            "notes": list(self.notes),
        }
        write_tensors(folder / _FILE, dict(zip(_TENSORS, (*self.local, *self.shared), strict=True)), meta)

    @classmethod
    def open(cls, folder: Path) -> PersonalModel:
        """Undo `save`; files of earlier versions open too."""
        file = folder / _FILE
        if not file.is_file():
            raise FormatError(f"There is no personal model in {str(folder)!r}: take part in a federation first.")
        try:
            meta, tensors = read_tensors(file)
            version = int(meta.get("version", 1))
            parts = [tensors[name] for name in _TENSORS]
            heads = (parts[0], parts[1]), (parts[2], parts[3])
            found = cls(tuple(meta["classes"]), float(meta["lambda"]), *heads, backbone=str(meta["backbone"]))
            if version == 1:
                return found
            if version == _VERSION:
                return replace(found, **_details(meta))
        except UNREADABLE as error:
            raise FormatError(f"{str(file)!r} is not a personal model, or is damaged.") from error
        raise FormatError(f"{str(file)!r} was written by a newer Locum (version {version}): update Locum to read it.")


def fit_personal(
    release: Release,
    records: SiteRecords,
    *,
    balanced: bool = False,
    seed: int = 0,
    measure: Measure = "balanced_accuracy",
    rule: Rule = "robust",
    unseen: Unseen = "mix",
    clipped: float | None = None,
) -> PersonalModel:
    """Fit a local head, trained as in the federated paper, a global head, and lambda, the share of the local one.

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
    measure
        What the site wants to be good at: "balanced_accuracy", "accuracy", "f1" or "log_loss". The first and third
        are means over the classes that the site has records of.
    rule
        "robust": prefers equal shares where records cannot tell, and falls back to the local head unless the mix is
        better by more than one standard error. "paper": the federated paper's, the lambda with the best measure.
    unseen
        Classes without records here: "mix" is best where they hardly occur, as in the site's records; with "global"
        they are as likely as the global head says, for a site that has to recognize them. Then nothing checks that
        the release is good enough: the site has no records of them.
    clipped
        The share of the site's records whose gradients were clipped in training, if the caller knows it.

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
    check_choice(measure, rule)
    if unseen not in ("mix", "global"):
        raise ConfigError(f"`unseen` must be mix or global; got {unseen!r}.")
    if clipped is not None and not 0 <= clipped <= 1:
        raise ConfigError(f"`clipped` must be a share from 0 to 1, or None if unknown; got {clipped!r}.")
    names, backbone = release.manifest.class_names, release.manifest.embedding.backbone
    train, held = records.train, records.validation
    shared = _global_head(release, balanced, seed)
    local = local_head(train.X, train.y, len(names), seed, balanced=balanced)
    found = PersonalModel(names, 0.0, local, shared, backbone, measure, unseen, clipped=clipped)
    if held is not None:
        judged, ours, who = held, softmax(held.X, *local), units(held)
    else:
        judged, who = train, units(train)
        if who.max() == 0:
            note = "This site has too few records to choose lambda: the global head is used alone (lambda 0)."
            return replace(found, notes=(note, *_notes(found, train.y)))
        ours = out_of_fold(train, len(names), seed, balanced=balanced)
    theirs = softmax(judged.X, *shared)
    if unseen == "global":
        # Lambda mixes the other classes only.
        theirs = _among(theirs, np.isin(np.arange(len(names)), train.y))
    choice = choose_lambda(ours, theirs, judged.y, unit=who, measure=measure, rule=rule)
    found = replace(found, lam=choice.lam, fallback=choice.fallback, gain=choice.gain)
    guess = (choice.lam * ours + (1 - choice.lam) * theirs).argmax(axis=1)
    return replace(
        found, notes=(*_lambda_notes(found, choice), *_score_notes(judged.y, guess), *_notes(found, train.y))
    )


def _lambda_notes(model: PersonalModel, choice: Choice) -> list[str]:
    if choice.fallback:
        return [
            f"Joining brought no gain beyond chance on this site's records ({_words(model.measure)}): its local head "
            "is used alone (lambda 1)."
        ]
    if choice.lam == 1:
        return ["Lambda is 1: this site gains nothing from the federation."]
    if choice.lam == 0:
        return ["Lambda is 0: this site's own records add nothing. Are they too few, or badly labeled?"]
    return []


def _score_notes(y: npt.NDArray[np.int64], guess: npt.NDArray[np.int64]) -> list[str]:
    acc, bacc = accuracy(y, guess), balanced_accuracy(y, guess)
    if acc - bacc <= _UNBALANCED:
        return []
    return [f"Balanced accuracy ({bacc:.2f}) is far below accuracy ({acc:.2f}): rare classes are often missed."]


def _notes(model: PersonalModel, y: npt.NDArray[np.int64]) -> list[str]:
    out = []
    absent = [name for code, name in enumerate(model.classes) if not (y == code).any()]
    if absent:
        out.append(
            f"This site has no records of {', '.join(absent)}: nothing here shows how well they are recognized."
        )
    if model.clipped is not None and model.clipped > _CLIPPED:
        out.append(
            f"The gradients of {model.clipped:.0%} of this site's records were cut to their bound: the common model "
            "gets many of them wrong, or is unsure."
        )
    return out


def _words(measure: str) -> str:
    return measure.replace("_", " ").replace("f1", "F1")


def _details(meta: dict[str, Any]) -> dict[str, Any]:
    """What version 2 of a file adds."""
    gain, clipped = meta["gain"], meta["clipped"]
    if meta["unseen"] not in ("mix", "global"):
        raise ValueError("unknown `unseen`")
    return {
        "measure": str(meta["measure"]),
        "unseen": meta["unseen"],
        "fallback": bool(meta["fallback"]),
        "gain": None if gain is None else Estimate(float(gain[0]), float(gain[1]), float(gain[2]), int(gain[3])),
        "clipped": None if clipped is None else float(clipped),
        "notes": tuple(map(str, meta["notes"])),
    }


def _among(p: Floats, seen: npt.NDArray[np.bool_]) -> Floats:
    """The same probabilities, given that the class is one of those."""
    out = np.where(seen, p, 0.0)
    total = out.sum(axis=1, keepdims=True)
    found: Floats = np.where(total > 0, out / np.maximum(total, 1e-300), seen / seen.sum())
    return found


def _global_head(release: Release, balanced: bool, seed: int) -> tuple[Floats, Floats]:
    manifest = release.manifest
    classes = len(manifest.classes)
    if isinstance(manifest.decoder, GaussianSpec) and not manifest.conditions:
        means, factor, scale = (release.tensors[k].astype(np.float64) for k in ("means", "factor", "scale"))
        covariance = factor.T @ factor + np.diag(np.maximum(scale, 1e-6) ** 2)
        weight: Floats = np.linalg.solve(covariance, means.T).T.astype(np.float64)
        prior = np.full(classes, 1e-6)
        for (code, *_), p in manifest.joint:
            prior[code] += p
        bias = np.log(prior) - 0.5 * (weight * means).sum(axis=1)
        # A private head is made sharper, so that it survives in samples. Frequencies can be taken off it as it was
        # learned; halfway between, by a root, its probabilities do not outvote those of the local head.
        head = manifest.decoder.head
        sharp = 1.0 if head is None else max(head.sharpness, 1.0)
        weight, bias = weight / sharp, bias / sharp - (np.log(prior) if balanced else 0.0)
        return weight * np.sqrt(sharp), bias * np.sqrt(sharp)
    how: dict[str, Any] = {"n": _SAMPLES * classes}
    if balanced:
        how = {"per_class": dict.fromkeys(manifest.classes, _SAMPLES)}
    X, labels = release.sample(random_state=seed, as_frame=False, **how)
    place = {label: i for i, label in enumerate(manifest.classes)}
    codes = np.array([place[label] for label in labels.tolist()])
    return local_head(X, codes, classes, seed, balanced=False)


def units(records: EmbeddingSet) -> npt.NDArray[np.int64]:
    """A code per record: that of its subject, or its own."""
    if records.subject is None:
        return np.arange(len(records))
    codes: npt.NDArray[np.int64] = np.unique(records.subject, return_inverse=True)[1]
    return codes


def out_of_fold(train: EmbeddingSet, classes: int, seed: int, *, balanced: bool = False) -> Floats:
    """Probabilities for each record by a local head that was trained without its fold.

    A subject's records stay in one fold: a head trained on some of them would look too good on the others.
    """
    who = units(train)
    out = np.empty((len(train), classes))
    folds = KFold(min(_FOLDS, int(who.max()) + 1), shuffle=True, random_state=seed)
    for some, others in folds.split(np.arange(who.max() + 1)):
        a, b = np.isin(who, some), np.isin(who, others)
        out[b] = softmax(train.X[b], *local_head(train.X[a], train.y[a], classes, seed, balanced=balanced))
    return out


def local_head(
    X: npt.NDArray[np.float32], codes: npt.NDArray[np.int64], classes: int, seed: int, *, balanced: bool = False
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


def softmax(x: npt.ArrayLike, weight: Floats, bias: Floats) -> Floats:
    scores = np.asarray(x, dtype=np.float64) @ weight.T + bias
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    out: Floats = scores / scores.sum(axis=1, keepdims=True)
    return out
