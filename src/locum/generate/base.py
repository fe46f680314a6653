"""What all generators share: checks, labels, and sampling through their own release."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from locum.data import Engine, LocalEngine, by_subject
from locum.errors import ConfigError, DataError, NotFittedError, PrivacyError
from locum.generate.coding import Census, Coder, census, classes_that_occur, values_that_occur
from locum.generate.private.guarantee import Guarantee, one_by_one
from locum.release import (
    MOST_NAMES,
    Condition,
    EmbeddingEntry,
    GaussianSpec,
    Joint,
    NetworkSpec,
    Release,
    RowsSpec,
    build_release,
    rounded_joint,
    to_space,
)
from locum.types import Batches, EmbeddingInfo, PrivacyClaim

_log = logging.getLogger(__name__)

Attributes = Mapping[str, npt.ArrayLike]
Decoder = NetworkSpec | GaussianSpec | RowsSpec
# As many as a manifest holds.
_MOST_CONDITIONS = 16
# What a fit on a DataFrame adds to the claim.
NAMES_LEAVE = (
    "the names of the columns: the release holds them as they were given, as public settings; a name that was made "
    "from a value, as one-hot encoding does, reveals that the value occurs"
)


@dataclass(frozen=True, slots=True, eq=False)
class Records:
    """Checked private data inside `fit`.

    Parameters
    ----------
    X
        Vectors (n, d), in the generator's space.
    codes
        The class of each record as a whole number from 0, then one column per condition: shape (n, 1 + conditions).
    subject
        The subject of each record; None if unknown.
    conditions
        Names and values of the conditions.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import Records
    >>> records = Records(np.zeros((4, 3), np.float32), np.array([[0], [1], [0], [1]]), None, ())
    >>> np.bincount(records.codes[:, 0]).tolist()
    [2, 2]
    """

    X: npt.NDArray[np.float32]
    codes: npt.NDArray[np.int64]
    subject: npt.NDArray[Any] | None
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What a fit learned: the numbers that a release holds, and how to read them."""

    decoder: Decoder
    tensors: Mapping[str, npt.NDArray[Any]]
    claim: PrivacyClaim
    settings: Mapping[str, Any]
    # Why `release` is refused, if it is; sampling is still allowed.
    refusal: str | None = None
    # Frequency of each combination of class and conditions, where the records' own must not leave.
    joint: Joint | None = None


def _encoded(y: npt.NDArray[Any], classes: Any) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Classes and codes: the declared classes, or else those that occur."""
    if classes is None:
        found, codes = np.unique(y, return_inverse=True)
        return found, codes.astype(np.int64)
    named = np.asarray(list(classes))
    if named.ndim != 1 or len(named) < 1 or len(np.unique(named)) != len(named):
        raise ConfigError(f"`classes` must name each class once; got {classes!r}.")
    place = {label: code for code, label in enumerate(named.tolist())}
    if not set(y.tolist()) <= set(place):
        raise DataError("A label is not among `classes`: name every class that can occur.")
    return named, np.array([place[label] for label in y.tolist()], dtype=np.int64)


def _names_by_code(classes: Sequence[Any], info: EmbeddingInfo) -> list[str] | None:
    """Names from `info` where labels are positions in its list of names; None otherwise."""
    known = info.class_names
    if known and all(isinstance(c, int) and 0 <= c < len(known) for c in classes):
        return [known[c] for c in classes]
    return None


def _as_number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def _condition(name: str, column: npt.NDArray[Any], declared: Sequence[Any] | None) -> tuple[Condition, Any]:
    """An attribute and the code of each record: the declared values, or else those that occur."""
    texts = np.array([str(value) for value in column.tolist()], dtype=np.str_)
    if declared is None:
        values, codes = np.unique(texts, return_inverse=True)
    else:
        values = np.array([str(value) for value in declared])
        if isinstance(declared, str) or len(values) < 1 or len(np.unique(values)) != len(values):
            raise ConfigError(f"`condition_values` must list each value of {name!r} once; got {declared!r}.")
        place = {value: code for code, value in enumerate(values.tolist())}
        # A column of numbers loses zeros in front as soon as all of it can be read as numbers.
        if len({_as_number(value) for value in place}) < len(place):
            raise ConfigError(f"Two of the `condition_values` of {name!r} are the same number: rename one.")
        if not set(texts.tolist()) <= set(place):
            raise DataError(
                f"A value of {name!r} is not among `condition_values` (--condition-values): name every value that "
                "can occur."
            )
        codes = np.array([place[value] for value in texts.tolist()])
    try:
        return Condition(name=name, values=tuple(values.tolist())), codes.astype(np.int64)
    except ValidationError as error:
        raise ConfigError(
            f"An attribute to condition on has 1 to 1000 values, and its name and values have at most 200 "
            f"characters; those of {name[:40]!r} do not fit."
        ) from error


def lone_class(classes: npt.NDArray[Any], records: Records) -> str | None:
    """Why a release that holds class means is refused, if so: a mean over one subject shows that subject."""
    return lone_mean([f"Class {str(name)!r}" for name in classes], records.codes[:, 0], records)


def lone_mean(names: Sequence[str], labels: npt.NDArray[np.int64], records: Records) -> str | None:
    """Why a release that holds the mean of each group of records is refused, if so; `names` are those of groups."""
    for c, name in enumerate(names):
        rows = np.flatnonzero(labels == c)
        if not len(rows):
            continue
        subjects = rows if records.subject is None else records.subject[rows]
        one = len(np.unique(subjects)) == 1
        if one or (records.X[rows] == records.X[rows[0]]).all():
            return shown_mean(name, one=one)
    return None


def shown_mean(name: str, *, one: bool) -> str:
    """Why a release with the mean of such a group is refused."""
    why = "has a single record or subject" if one else "holds the same vector in every record"
    return f"{name} {why}, and the release would show it as a mean. Leave it out, or merge it with another."


def lone_condition(records: Records) -> str | None:
    """Why a release that names its conditions is refused, if so: a value that one record has points at it."""
    for column, condition in enumerate(records.conditions, start=1):
        counts = np.bincount(records.codes[:, column])
        if (counts == 1).any():
            return lone_value(condition, int(np.argmax(counts == 1)))
    return None


def lone_value(condition: Condition, code: int) -> str:
    """Why a release that names such a value is refused."""
    return (
        f"{condition.name!r} has a value that only one record holds ({condition.values[code]!r}), and the release "
        "would name it. Merge it with another value, or leave the attribute out."
    )


class BaseGenerator(Guarantee, BaseEstimator):
    """Base class: `fit` on private records, then `sample` or `release` what stands in for them.

    Settings are public and go to `__init__`; records go to methods only. A subclass stores its settings, among them
    `space`, `privacy` and `random_state`, and defines `_learn`.

    Attributes
    ----------
    classes_
        The labels: those that occur, or under differential privacy those that `classes` declares.
    claim_
        What a release of this generator claims.
    n_features_in_
        The number of features.
    feature_names_in_
        Their names, if the last fit was on a DataFrame with text as column names.

    Examples
    --------
    >>> from locum.data import load_sample
    >>> from locum.generate import BaseGenerator, ClassGaussian
    >>> def spread(generator: BaseGenerator) -> float:
    ...     data = load_sample("breast-cancer")
    ...     return float(generator.fit(data.X, data.y).sample(500, random_state=0)[0].std())
    >>> spread(ClassGaussian(variance=0.5)) < spread(ClassGaussian(variance=2.0))
    True
    """

    space: str
    random_state: int | None
    # Left out of a release: seeds, paths on the holder's machine, and whatever the claim already says.
    _UNRELEASED = (
        "random_state", "checkpoint", "verbose", "privacy", "condition_on", "condition_values",
        "classes", "ledger", "holding", "insecure_seed", "reference", "device",
    )  # fmt: skip
    _release: Release | None = None
    _refusal: str | None = None
    _conditions: tuple[Condition, ...] = ()
    _sklearn_output_config: Mapping[str, str] = {}

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

        Parameters
        ----------
        X
            Finite vectors (n, d). The column names of a DataFrame become part of the release: they must be public.
        y
            One label per vector: text or whole numbers.
        subject
            Which records belong together, such as those of one patient.
        attributes
            The columns that `condition_on` names, by name.
        validation
            A pair of vectors and labels for early stopping. Generators that never stop early ignore it; networks
            under differential privacy refuse it.

        Returns
        -------
        BaseGenerator
            The fitted generator itself.
        """
        records = self._check(X, y, subject, attributes or {})
        self._charge = None
        self._conditions = records.conditions
        _log.info("fitting %s to %d records of %d features", type(self).__name__, *records.X.shape)
        # The rounded frequencies are all that is kept of the records' labels.
        return self._keep(self._learn(records, validation), records.conditions, lambda: rounded_joint(records.codes))

    def fit_batches(
        self, batches: Batches, *, engine: Engine | None = None, scratch: str | Path | None = None
    ) -> Self:
        """Learn from records in pieces, which need not fit in memory; the result is that of `fit` on all of them.

        Parameters
        ----------
        batches
            The records, such as `locum.data.open_batches` gives them. Labels are their class codes.
        engine
            Where passes over the data run; None: in this process.
        scratch
            If subjects are the unit of a guarantee and are spread over the data: a private folder for a sorted copy.
            It holds records; remove it afterward. None: such data are refused.

        Returns
        -------
        BaseGenerator
            The fitted generator itself.
        """
        self._check_privacy(() if batches.has_subjects else None)
        wanted = self._wanted_conditions(batches.attribute_names)
        declared = self._declared_values(wanted)
        self.n_features_in_ = batches.dim
        # Of an earlier fit; scikit-learn's own check does the same.
        self.__dict__.pop("feature_names_in_", None)
        # Declared classes are checked when records are counted; those that occur must be looked for first.
        named = self.classes if self.privacy is not None and self.classes is not None else classes_that_occur(batches)
        self.classes_, _ = _encoded(np.asarray(named), named)
        if self.classes_.dtype.kind not in "iu":
            raise ConfigError(
                f"Labels of data in pieces are class codes, so `classes` must be whole numbers; got {named!r}."
            )
        conditions = values_that_occur(batches, [name for name in wanted if name not in declared])
        values = {one.name: one for one in conditions}
        values |= {name: _condition(name, np.array([]), declared[name])[0] for name in declared}
        coder = Coder(tuple(int(c) for c in self.classes_), tuple(values[name] for name in wanted))
        found = census(batches, coder)
        if found.records < 2:
            raise DataError("A fit needs two records or more; the data hold one.")
        if self.privacy is not None:
            by_record = self.privacy.unit == "record"
            self._check_size(found.records, found.records if by_record else found.units)
            if not by_record:
                batches = by_subject(batches, None if scratch is None else Path(scratch))
        self._charge = None
        self._conditions = coder.conditions
        _log.info("fitting %s to %d records of %d features", type(self).__name__, found.records, batches.dim)
        engine = engine or LocalEngine()
        with engine.started():
            learned = self._learn_batches(batches, coder, found, engine)
        present = np.flatnonzero(found.counts)
        combos = np.stack(np.unravel_index(present, coder.widths), axis=1)
        return self._keep(learned, coder.conditions, lambda: rounded_joint(combos, found.counts[present]))

    def _learn_batches(self, batches: Batches, coder: Coder, found: Census, engine: Engine) -> Learned:
        """Learn from records in pieces; generators that cannot say so."""
        size = 3 * 4 * len(batches) * batches.dim / 1e9
        raise ConfigError(
            f"{type(self).__name__} needs all records in memory, about {size:.1f} GB: use ClassGaussian, which "
            "reads them in pieces, or a random part of the data."
        )

    def _wanted_conditions(self, known: Sequence[str]) -> tuple[str, ...]:
        """The attributes to condition on, which must be among those that the data have."""
        wanted = getattr(self, "condition_on", None) or ()
        wanted = (wanted,) if isinstance(wanted, str) else tuple(wanted)
        if len(set(wanted)) != len(wanted) or len(wanted) > _MOST_CONDITIONS:
            raise ConfigError(
                f"`condition_on` must name at most {_MOST_CONDITIONS} attributes, each once; got {wanted!r}."
            )
        for name in wanted:
            if name not in known:
                raise ConfigError(f"`condition_on` names {name!r}, but `attributes` has {sorted(known) or 'none'}.")
        return wanted

    def _keep(self, learned: Learned, conditions: tuple[Condition, ...], joint: Callable[[], Joint]) -> Self:
        """Keep what was learned as a release; `joint` gives the frequencies if they were not learned."""
        self._release = build_release(
            generator=type(self).__name__,
            settings=learned.settings,
            embedding=self._embedding(EmbeddingInfo()),
            classes=self.classes_.tolist(),
            class_names=None,
            joint=joint() if learned.joint is None else learned.joint,
            conditions=conditions,
            space=self.space,
            decoder=learned.decoder,
            tensors=learned.tensors,
            claim=self._with_names(learned.claim),
        )
        self._refusal = learned.refusal
        self._sample_rng = np.random.default_rng(self._seed(1))
        return self

    @abstractmethod
    def _learn(self, records: Records, validation: Sequence[npt.ArrayLike] | None) -> Learned:
        """Learn from checked records; each generator implements this."""

    @property
    def claim_(self) -> PrivacyClaim:
        """What a release of this generator claims."""
        return self._fitted().claim

    def sample(
        self,
        n: int | None = None,
        *,
        per_class: Mapping[Any, int] | None = None,
        variance: float | None = None,
        attributes: Mapping[str, str] | None = None,
        random_state: int | None = None,
        as_frame: bool | None = None,
    ) -> tuple[Any, Any]:
        """Fresh vectors and labels; see `Release.sample`, which does the work.

        Without `random_state` each call continues the generator's own stream: no draw is repeated, and a program that
        starts again with the same generator seed draws the same samples.

        Parameters
        ----------
        n
            How many; labels are drawn by the released prior.
        per_class
            How many of each label, instead of `n`.
        variance
            Sampling variance; None: the generator's own. Values below 1 give more typical vectors.
        attributes
            Fixes conditions: the value of each, by name.
        random_state
            A seed for this call; None: continue the generator's own stream.
        as_frame
            True: a DataFrame with the names of the fitted columns, and a Series of labels. False: arrays. None: what
            `set_output` says, arrays by default.

        Returns
        -------
        X : ndarray or DataFrame of shape (n, d)
            The vectors, in the generator's space.
        y : ndarray or Series of shape (n,)
            Their labels.
        """
        release = self._fitted()
        rng = self._sample_rng if random_state is None else np.random.default_rng(random_state)
        wanted = {"per_class": per_class, "variance": variance, "attributes": attributes, "random_state": rng}
        framed = self._sklearn_output_config.get("transform") == "pandas" if as_frame is None else as_frame
        drawn: tuple[Any, Any] = release.sample(n, **wanted, as_frame=framed)  # type: ignore[call-overload]
        return drawn

    def set_output(self, *, transform: Literal["default", "pandas"] | None = None) -> Self:
        """Let `sample` return pandas objects ("pandas") or arrays ("default"); None changes nothing.

        Parameters
        ----------
        transform
            Named as in scikit-learn.

        Returns
        -------
        BaseGenerator
            The generator itself.
        """
        if transform not in (None, "default", "pandas"):
            raise ConfigError(f"`transform` must be one of default, pandas; got {transform!r}.")
        if transform is not None:
            # The name under which scikit-learn's `clone` looks for it.
            self._sklearn_output_config = {"transform": transform}
        return self

    def stream(self, batch_size: int = 256, *, variance: float | None = None, random_state: int | None = None) -> Any:
        """An endless torch dataset of fresh batches; see `Release.stream`."""
        return self._fitted().stream(batch_size, variance=variance, random_state=random_state)

    def release(
        self, info: EmbeddingInfo | None = None, *, class_names: Sequence[str] | None = None, no_dp: bool = False
    ) -> Release:
        """What may leave. `info` says where the vectors come from and what the classes are called.

        Under differential privacy the names in `info` are not used, since they are mostly collected from the records:
        `class_names` gives public names, in the order of `classes`. Without `privacy` nothing is proven about the
        release, and `no_dp=True` says that this is intended.
        """
        fitted, info = self._fitted(), info or EmbeddingInfo()
        if self.privacy is None and not no_dp:
            raise PrivacyError(
                "This generator was fitted without differential privacy: set `privacy=DP(...)`, or pass `no_dp=True` "
                "to `release` if nothing is to be proven."
            )
        if self.privacy is not None and no_dp:
            raise ConfigError("`no_dp=True` and `privacy=DP(...)` contradict each other: leave one of them out.")
        if self._refusal:
            raise PrivacyError(self._refusal)
        manifest = fitted.manifest
        if class_names is None:
            class_names = None if self.privacy is not None else _names_by_code(manifest.classes, info)
        elif len(class_names) != len(manifest.classes):
            raise ConfigError(
                f"`class_names` needs {len(manifest.classes)} names, one per class; got {len(class_names)}."
            )
        release = build_release(
            generator=manifest.generator,
            settings=manifest.settings,
            embedding=self._embedding(info),
            classes=manifest.classes,
            class_names=class_names,
            joint=manifest.joint,
            conditions=manifest.conditions,
            space=manifest.space,
            decoder=manifest.decoder,
            tensors=fitted.tensors,
            claim=fitted.claim,
        )
        return replace(release, bind=self._bind) if self._charge is not None else release

    def remove_checkpoint(self) -> None:
        """Delete what is kept for a killed fit to go on from, if there is anything."""

    def _embedding(self, info: EmbeddingInfo) -> EmbeddingEntry:
        return EmbeddingEntry(
            backbone=info.backbone,
            revision=info.revision,
            preprocessing=info.preprocessing,
            dim=self.n_features_in_,
            feature_names=self._names(),
        )

    def _names(self) -> tuple[str, ...]:
        """The column names of the fitted table; empty if it had none."""
        return tuple(map(str, getattr(self, "feature_names_in_", ())))

    def _check_names(self) -> None:
        """Refuse names that a release cannot hold, before anything is learned or paid for."""
        names = self._names()
        if len(names) > MOST_NAMES or any(len(name) > 200 for name in names) or len(set(names)) != len(names):
            raise ConfigError(
                f"A release holds up to {MOST_NAMES} column names of up to 200 characters, all different; these "
                f"{len(names)} do not fit. Rename the columns, or fit X.to_numpy(): then no name leaves."
            )

    def _with_names(self, claim: PrivacyClaim) -> PrivacyClaim:
        """The claim, which says so if the names of columns leave."""
        return replace(claim, not_covered=(*claim.not_covered, NAMES_LEAVE)) if self._names() else claim

    def _fitted(self) -> Release:
        if self._release is None:
            raise NotFittedError(f"This {type(self).__name__} is not fitted yet; call `fit` first.")
        return self._release

    def __sklearn_is_fitted__(self) -> bool:
        return self._release is not None

    def _seed(self, purpose: int) -> int:
        """A seed for one purpose; different purposes never share random numbers."""
        entropy = None if self.random_state is None else [int(self.random_state), purpose]
        return int(np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0] >> np.uint64(1))

    def _public_settings(self) -> dict[str, Any]:
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in self._UNRELEASED}
        # Public by definition; merging releases weighs sites by it.
        public = None if self.privacy is None else self.privacy.n_public
        return settings if public is None else {**settings, "n_public": public}

    def _declared_values(self, wanted: Sequence[str]) -> Mapping[str, Sequence[Any]]:
        """The declared values of each condition; none without a guarantee, where those that occur are taken."""
        if self.privacy is None:
            return {}
        declared = getattr(self, "condition_values", None) or {}
        if unused := sorted(set(declared) - set(wanted)):
            raise ConfigError(f"`condition_values` has {unused[0]!r}, which `condition_on` does not name.")
        if missing := [name for name in wanted if name not in declared]:
            raise PrivacyError(
                f"Under differential privacy the values of {missing[0]!r} are private too: name all that can occur "
                f"with `condition_values` (--condition-values {missing[0]}=A,B); a value may be empty."
            )
        return dict(declared)

    def _check(self, X: Any, y: Any, subject: Any, attributes: Attributes) -> Records:
        self._check_privacy(subject)
        X, y = validate_data(self, X, y, dtype=np.float32, ensure_min_samples=2)
        self._check_names()
        try:
            check_classification_targets(y)
        except ValueError:
            raise DataError(
                "Unknown label type: labels must be text or whole numbers; got numbers with fractions."
            ) from None
        if y.dtype.kind in "fb":
            # A release holds labels as integers or text: 1.0 and True are the class 1.
            y = y.astype(np.int64)
        self.classes_, labels = _encoded(y, None if self.privacy is None else self.classes)
        conditions, columns = [], [labels.astype(np.int64)]
        wanted = self._wanted_conditions(tuple(attributes))
        declared = self._declared_values(wanted)
        for name in wanted:
            given = attributes[name]
            column = np.asarray(given) if self.privacy is None else one_by_one(given)
            if column.shape != (len(X),):
                raise DataError(
                    f"Attribute {name!r} needs one entry per record ({len(X)}); got shape {column.shape}."
                )
            condition, codes = _condition(name, column, declared.get(name))
            conditions.append(condition)
            columns.append(codes)
        # Under differential privacy entry by entry: in a common array one entry could change all others.
        subjects = None if subject is None else np.asarray(subject) if self.privacy is None else one_by_one(subject)
        if subjects is not None and subjects.shape != (len(X),):
            raise DataError(f"`subject` needs one entry per record ({len(X)}); got shape {subjects.shape}.")
        if self.privacy is not None:
            by_record = self.privacy.unit == "record" or subjects is None
            self._check_size(len(X), len(X) if by_record else len(set(map(str, np.asarray(subjects).tolist()))))
        return Records(to_space(X, self.space), np.stack(columns, axis=1), subjects, tuple(conditions))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = self.random_state is None
        return tags
