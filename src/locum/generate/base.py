"""What every generator shares: checks, labels, sampling through its own release."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from locum.errors import ConfigError, DataError, NotFittedError, PrivacyError
from locum.generate.private.guarantee import Guarantee
from locum.release import Condition, EmbeddingEntry, Release, build_release, rounded_joint, to_space
from locum.types import EmbeddingInfo, PrivacyClaim

Attributes = Mapping[str, npt.ArrayLike]


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Checked private data inside `fit`: `codes` holds the class, then one column a condition."""

    X: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]
    subject: npt.NDArray[Any] | None
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Learnt:
    """What a fit leaves behind: the numbers that leave, and how to read them."""

    decoder: Any
    tensors: Mapping[str, npt.NDArray[Any]]
    claim: PrivacyClaim
    settings: Mapping[str, Any]
    # Why this may be sampled at home but must not leave, if so.
    refusal: str | None = None
    # How often each combination of class and conditions occurs, where the true frequencies must not leave.
    joint: Any = None


def _encoded(y: npt.NDArray[Any], classes: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Classes and codes: those that occur, or those that were named."""
    if classes is None:
        found, codes = np.unique(y, return_inverse=True)
        return found, codes.astype(np.int64)
    named = np.asarray(list(classes))
    if named.ndim != 1 or len(named) < 1 or len(np.unique(named)) != len(named):
        raise ConfigError(f"`classes` must name each class once; got {classes!r}.")
    place = {label: code for code, label in enumerate(named.tolist())}
    if not set(y.tolist()) <= set(place):
        raise DataError("There is a label that is not among `classes`: name all classes there can be.")
    return named, np.array([place[label] for label in y.tolist()], dtype=np.int64)


def lone_class(classes: npt.NDArray[Any], records: Records) -> str | None:
    """A reason to refuse a release that holds class means: the mean of one record, or one person, is theirs."""
    for c, name in enumerate(classes):
        rows = np.flatnonzero(records.codes[:, 0] == c)
        subjects = rows if records.subject is None else records.subject[rows]
        alike = (records.X[rows] == records.X[rows[0]]).all()
        if len(np.unique(subjects)) == 1 or alike:
            return (
                f"Class {str(name)!r} has a single record or person, and the release would show it as the class's "
                "mean. Leave the class out, or join it to another."
            )
    return None


def lone_condition(records: Records) -> str | None:
    """A reason to refuse a release that names its conditions: a value that one record has points at it."""
    for column, condition in enumerate(records.conditions, start=1):
        counts = np.bincount(records.codes[:, column])
        if (counts == 1).any():
            value = condition.values[int(np.argmax(counts == 1))]
            return (
                f"{condition.name!r} has a value that a single record holds ({value!r}), and the release would name "
                "it. Join it to another value, or leave the attribute out."
            )
    return None


class BaseGenerator(Guarantee, BaseEstimator):
    """`fit` private records, then `sample` or `release` what stands in for them.

    Settings are public and live in `__init__`; records are given to methods only.
    """

    space: str
    random_state: int | None
    # Names in here would tell an attacker the coins, or a path of the holder's machine; privacy is told by the claim.
    _UNRELEASED = (
        "random_state", "checkpoint", "verbose", "privacy", "condition_on",
        "classes", "ledger", "holding", "insecure_seed", "reference", "covariance",
    )  # fmt: skip

    def fit(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        subject: npt.ArrayLike | None = None,
        *,
        attributes: Attributes | None = None,
        validation: Sequence[npt.ArrayLike] | None = None,
    ) -> Self:
        """Learn from vectors `X` and labels `y`.

        `subject` says which records belong to one person. `attributes` holds the columns named in
        `condition_on`. `validation`, a pair of vectors and labels, serves early stopping where there is any.
        """
        records = self._check(X, y, subject, attributes or {})
        learnt = self._learn(records, validation)
        self._built = {
            "generator": type(self).__name__,
            "settings": learnt.settings,
            "classes": self.classes_.tolist(),
            # The rounded frequencies are all that is kept of the records' labels.
            "joint": rounded_joint(records.codes) if learnt.joint is None else learnt.joint,
            "conditions": records.conditions,
            "space": self.space,
            "decoder": learnt.decoder,
            "tensors": learnt.tensors,
            "claim": learnt.claim,
        }
        self._refusal = learnt.refusal
        self._release = self._build_release(EmbeddingInfo())
        self._sample_rng = np.random.default_rng(self._seed(1))
        return self

    @abstractmethod
    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learnt:
        """Do the work of this generator."""

    @property
    def claim_(self) -> PrivacyClaim:
        """What a release of this generator promises."""
        return self._fitted().claim

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        attributes: Mapping[str, str] | None = None,
        random_state: int | None = None,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
        """Fresh vectors and labels; see `Release.sample`, which does the work.

        Without a `random_state` each call goes on where the last one ended: no draw is repeated, and a
        program that starts again with the same generator seed draws the same.
        """
        release = self._fitted()
        rng = self._sample_rng if random_state is None else np.random.default_rng(random_state)
        return release.sample(n, per_class=per_class, variance=variance, attributes=attributes, random_state=rng)

    def stream(self, batch_size: int = 256, *, variance: float | None = None, random_state: int | None = None) -> Any:
        """An endless torch dataset of fresh batches; see `Release.stream`."""
        return self._fitted().stream(batch_size, variance=variance, random_state=random_state)

    def release(self, info: EmbeddingInfo | None = None, *, class_names: Sequence[str] | None = None) -> Release:
        """What may leave. `info` says where the vectors come from and what the classes are called.

        With a promise of privacy the names in `info` stay at home, since they are mostly collected from the records:
        `class_names` says, in the order of `classes`, what classes may be called.
        """
        self._check_fitted()
        if self._refusal:
            raise PrivacyError(self._refusal)
        if class_names is not None and len(class_names) != len(self.classes_):
            raise ConfigError(f"`class_names` needs {len(self.classes_)} names, one a class; got {len(class_names)}.")
        return self._build_release(info or EmbeddingInfo(), None if class_names is None else list(class_names))

    def _build_release(self, info: EmbeddingInfo, names: list[str] | None = None) -> Release:
        codes = self.classes_.tolist()
        known = info.class_names if names is None and self.privacy is None else ()
        if known and all(isinstance(c, int) and 0 <= c < len(known) for c in codes):
            names = [known[c] for c in codes]
        embedding = EmbeddingEntry(
            backbone=info.backbone, revision=info.revision, preprocessing=info.preprocessing, dim=self.n_features_in_
        )
        return build_release(embedding=embedding, class_names=names, **self._built)

    def _fitted(self) -> Release:
        self._check_fitted()
        return self._release

    def _check_fitted(self) -> None:
        if not hasattr(self, "_built"):
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call `fit` first.")

    def _seed(self, purpose: int) -> int:
        """A seed for one purpose; different purposes never share coins."""
        entropy = None if self.random_state is None else [int(self.random_state), purpose]
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _public_settings(self) -> dict[str, Any]:
        told = {k: v for k, v in self.get_params(deep=False).items() if k not in self._UNRELEASED}
        # Public by definition; whoever merges releases weighs sites by it.
        return told if self.privacy is None else {**told, "n_public": self.privacy.n_public}

    def _check(self, X: Any, y: Any, subject: Any, attributes: Attributes) -> Records:
        self._check_privacy(subject)
        X, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(y)
        if y.dtype.kind in "fb":
            # Labels leave as whole numbers or text: 1.0 and True are the class 1.
            y = y.astype(np.int64)
        self.classes_, labels = _encoded(y, None if self.privacy is None else self.classes)
        conditions, columns = [], [labels.astype(np.int64)]
        wanted = getattr(self, "condition_on", None) or ()
        wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        for name in wanted:
            if name not in attributes:
                raise ConfigError(
                    f"`condition_on` names {name!r}, which fit was not given; it got {sorted(attributes) or 'none'}."
                )
            column = np.asarray(attributes[name])
            if column.shape != (len(X),):
                raise DataError(f"Attribute {name!r} needs one entry a record ({len(X)}); got shape {column.shape}.")
            values, codes = np.unique(column.astype(np.str_), return_inverse=True)
            conditions.append(Condition(name=name, values=tuple(values.tolist())))
            columns.append(codes.astype(np.int64))
        subjects = None if subject is None else np.asarray(subject)
        if subjects is not None and subjects.shape != (len(X),):
            raise DataError(f"`subject` needs one entry a record ({len(X)}); got shape {subjects.shape}.")
        return Records(to_space(X, self.space), np.stack(columns, axis=1), subjects, tuple(conditions))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = self.random_state is None
        return tags
