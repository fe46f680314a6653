"""`rebalance`: write a file in which rare classes are filled up with generated records."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import SUFFIXES, check_trainable, write_embeddings
from locum.errors import ConfigError, DataError, LocumError
from locum.generate import BaseGenerator, ClassGaussian, CVAEGenerator
from locum.io import check_output_file, split_path
from locum.rebalance import GenerativeOverSampler
from locum.recipes.inputs import GENERATED, check_source, choose_split, only_real, read_sets
from locum.release import Release, load
from locum.train import pick_device
from locum.types import EmbeddingSet, Progress

PRIVATE = (
    "The file holds the real records, and the generated ones were learned from them: it guarantees no privacy, and "
    "is as sensitive as the records. Train on it locally; do not share it, and do not test on it."
)
STRATEGIES = ("auto", "minority", "not minority", "not majority", "all")
_GENERATORS = ("gaussian", "cvae-small", "cvae-large")


@dataclass(frozen=True, slots=True)
class ClassGrowth:
    """One class: how many records it had, and how many were generated."""

    name: str
    records: int
    added: int


@dataclass(frozen=True, slots=True)
class RebalanceSummary:
    """What was written by `rebalance_to_file`. It includes class sizes: do not share it.

    Attributes
    ----------
    file
        The file of real and generated records.
    generator
        The generator, by name.
    features
        How many features a record has.
    classes
        One entry per class: `name`, real `records`, and how many were `added`.
    seconds
        How long it took.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import rebalance_to_file
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> summary = rebalance_to_file("tumors.npz", Path("even-tumors.npz"))
    >>> summary.records, summary.added
    (569, 145)
    """

    file: str
    generator: str
    features: int
    classes: tuple[ClassGrowth, ...]
    seconds: float

    @property
    def records(self) -> int:
        """Real records in the file."""
        return sum(c.records for c in self.classes)

    @property
    def added(self) -> int:
        """Generated records in the file."""
        return sum(c.added for c in self.classes)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        facts = {"records": self.records, "added": self.added, "privacy": PRIVATE, "seconds": round(self.seconds, 2)}
        return asdict(self) | facts


def rebalance_to_file(
    data: str,
    out: Path,
    *,
    generator: str = "gaussian",
    amount: float = 1.0,
    strategy: str = "auto",
    per_class: Mapping[str, int] | None = None,
    variance: float | None = None,
    backbone: str | None = None,
    seed: int = 0,
    device: str = "auto",
    overwrite: bool = False,
    verbose: bool = False,
    progress: Progress | None = None,
) -> RebalanceSummary:
    """Write the records of `data` and, after them, generated ones that fill up its rare classes.

    The attribute `generated` is "yes" or "no" for each row. Generated records have no subject and no attributes:
    these columns become text, with the value "generated". The file guarantees no privacy: it holds the records.

    Parameters
    ----------
    data
        File or folder of records; with splits, "train" is used.
    out
        File to write: .csv, .npz, .parquet or .safetensors.
    generator
        "gaussian", "cvae-small", "cvae-large" or a release folder.
    amount
        How far each class grows toward its target, from 0 to 1; see `GenerativeOverSampler`.
    strategy
        Which classes grow, as in imbalanced-learn: a name, or for two classes the wanted ratio of the smaller to the
        larger, as text.
    per_class
        Instead of `strategy` and `amount`: the size of each class by name, real records included.
    variance
        Sampling variance; None: the generator's own.
    backbone
        Model that embeds images, or the path of a custom one.
    seed
        Seed of generator and sampling.
    device
        Where a CVAE is trained, as in `CVAEGenerator`; the others need none.
    overwrite
        Replace `out` if it exists.
    verbose
        Show the progress of training.
    progress
        Called while images are embedded.

    Returns
    -------
    RebalanceSummary
        How many records were added per class. Private.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import rebalance_to_file
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> summary = rebalance_to_file("tumors.npz", Path("balanced.npz"))
    >>> [(c.name, c.records, c.added) for c in summary.classes]
    [('malignant', 212, 145), ('benign', 357, 0)]
    """
    _check_out(out, data, overwrite=overwrite)
    if per_class is not None and (strategy != "auto" or amount != 1.0):
        raise ConfigError("--per-class sets exact sizes: leave --strategy and --amount out.")
    wanted = _strategy(strategy) if per_class is None else dict(per_class)
    source = _source(generator, verbose, device)
    release = source if isinstance(source, Release) else None
    splits = read_sets(data, like=release.info if release else None, backbone=backbone, progress=progress)
    train = only_real(choose_split(splits, data, "train"), "given")
    check_trainable(train, min_per_class=1)
    if release is not None:
        check_source(release.info, train.info, "given")
        if not np.allclose(release.transform(train.X), train.X, rtol=1e-2, atol=1e-6):
            raise DataError(
                f"The release's vectors are in the space {release.manifest.space!r} and the given ones are not: "
                "write release.transform(X) to a file first, and rebalance that."
            )
    if per_class is not None:
        _check_sizes(train, per_class)
    started = time.monotonic()
    sampler = GenerativeOverSampler(
        source, sampling_strategy=wanted, amount=amount, variance=variance, random_state=seed
    )
    X, labels = _resampled(sampler, train)
    write_embeddings(out, _joined(train, X, labels))
    added = dict(zip(*np.unique(labels[len(train) :], return_counts=True), strict=True))
    return RebalanceSummary(
        file=str(out),
        generator=release.manifest.generator if release else generator,
        features=train.dim,
        classes=tuple(
            ClassGrowth(name, int(n), int(added.get(name, 0)))
            for name, n in zip(train.info.class_names, train.counts, strict=True)
        ),
        seconds=time.monotonic() - started,
    )


def _check_out(out: Path, data: str, *, overwrite: bool) -> None:
    given = Path(split_path(data)[0])
    if out.exists() and given.exists() and out.samefile(given):
        raise ConfigError(
            f"{str(out)!r} is the file with the records, which is never overwritten: choose another file."
        )
    check_output_file(out, overwrite=overwrite, suffixes=SUFFIXES)


def _strategy(text: str) -> str | float:
    if text in STRATEGIES:
        return text
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise ConfigError(
            f"--strategy takes {', '.join(STRATEGIES)} or, for two classes, a ratio above 0 and at most 1; got "
            f"{text!r}."
        )
    return ratio


def _source(generator: str, verbose: bool, device: str) -> BaseGenerator | Release:
    """The generator of that name, or the release in that folder."""
    if device != "auto":
        pick_device(device)
    if generator == "gaussian":
        return ClassGaussian()
    if generator in _GENERATORS:
        return CVAEGenerator(generator.removeprefix("cvae-"), device=device, verbose=verbose)
    if not Path(generator).is_dir():
        raise ConfigError(f"--generator takes {', '.join(_GENERATORS)} or a release folder; got {generator!r}.")
    return load(generator)


def _check_sizes(train: EmbeddingSet, per_class: Mapping[str, int]) -> None:
    counts = {name: int(n) for name, n in zip(train.info.class_names, train.counts, strict=True) if n}
    for name, size in per_class.items():
        if name not in counts:
            raise ConfigError(f"The records have no class {name!r}; they have {', '.join(list(counts)[:10])}.")
        if size < counts[name]:
            raise ConfigError(
                f"Class {name!r} has {counts[name]} records and --per-class asks for {size}: sizes include the real "
                "records, and none is removed."
            )


def _resampled(sampler: GenerativeOverSampler, train: EmbeddingSet) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Resample by class name, so that a release with other codes works too; a library's error becomes ours."""
    with warnings.catch_warnings():
        # The user asked for a class larger than the largest one.
        warnings.filterwarnings("ignore", message="After over-sampling", category=UserWarning)
        try:
            X, labels = sampler.fit_resample(train.X, train.labels)
        except LocumError:
            raise
        except ValueError as error:
            text = " ".join(str(error).split()).replace("'sampling_strategy'", "--strategy")
            raise ConfigError(f"These records cannot be rebalanced like this: {text}") from None
    return X, labels


def _joined(train: EmbeddingSet, X: npt.NDArray[Any], labels: npt.NDArray[Any]) -> EmbeddingSet:
    """Real and generated records, with the subjects and attributes of the real ones."""
    more = len(X) - len(train)

    def extended(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([column.astype(np.str_), np.full(more, GENERATED)])

    attributes = {name: extended(column) for name, column in train.attributes.items() if name != GENERATED}
    return EmbeddingSet.from_arrays(
        X,
        labels,
        subject=None if train.subject is None else extended(train.subject),
        attributes={**attributes, GENERATED: np.repeat(["no", "yes"], [len(train), more])},
        info=train.info,
    )
