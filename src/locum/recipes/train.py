"""`train`: a classifier trained only on a release, in a file that predicts without torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import round_shares, split
from locum.errors import ConfigError, DataError
from locum.heads import SavedHead, TorchHead, bayes_head, carries_head, fit_temperature
from locum.io import check_output_file
from locum.metrics import calibration_interval
from locum.recipes.evaluate import HEADS
from locum.recipes.inputs import scored
from locum.recipes.sample import check_rows
from locum.release import Release, load
from locum.train import pick_device
from locum.types import EmbeddingSet, Estimate, PrivacyClaim, Progress, no_progress

SAMPLES = 10_000
# A class with a prior of .001 would have about ten vectors, possibly none: too few to learn from.
LEAST_PER_CLASS = 20
FRESH = 2_000
Codes = npt.NDArray[np.int64]
SCORED_ON = "the release's own samples, which say nothing about real records"


@dataclass(frozen=True, slots=True)
class Calibration:
    """The temperature of a head, and its calibration error without and with it on samples that neither step saw."""

    temperature: float
    rows: int
    before: Estimate
    after: Estimate

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "temperature": self.temperature,
            "rows": self.rows,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class TrainSummary:
    """The result of training. It describes the release, and no record.

    Attributes
    ----------
    head
        File of the head.
    kind
        "bayes", "linear" or "mlp".
    release
        Fingerprint of the release.
    generator
        Its generator.
    claim
        What the release guarantees, and so the head.
    classes
        Class names.
    left_out
        Classes that the release names but cannot generate.
    rows
        How many vectors the head was trained on.
    fresh_rows
        How many others it was scored on.
    scores
        Scores on the release's own samples: how well the head learned the release, and nothing about real data. Empty
        if a fixed table had no rows to spare.
    megabytes, seconds
        Size of the file, and how long training took.
    calibration
        With `calibrate`: `temperature`, how many samples it was fitted on (`rows`), and the calibration error
        `before` and `after` it on the samples that the head was scored on. Otherwise None.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import train_head
    >>> summary = train_head(Path("release"), Path("head.safetensors"))  # doctest: +SKIP
    >>> summary.rows, summary.fresh_rows  # doctest: +SKIP
    (10000, 2000)
    """

    head: Path
    kind: str
    release: str
    generator: str
    claim: PrivacyClaim
    classes: tuple[str, ...]
    left_out: tuple[str, ...]
    rows: int
    fresh_rows: int
    scores: dict[str, Estimate]
    megabytes: float
    seconds: float
    calibration: Calibration | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "head": str(self.head),
            "kind": self.kind,
            "release": self.release,
            "generator": self.generator,
            "claim": self.claim.to_dict(),
            "classes": list(self.classes),
            "left_out": list(self.left_out),
            "rows": self.rows,
            "fresh_rows": self.fresh_rows,
            "scored_on": SCORED_ON,
            "scores": {name: value.to_dict() for name, value in self.scores.items()},
            "calibration": None if self.calibration is None else self.calibration.to_dict(),
            "megabytes": round(self.megabytes, 3),
            "seconds": round(self.seconds, 2),
        }


def train_head(
    release: Path,
    out: Path,
    *,
    head: str = "auto",
    samples: int | None = None,
    seed: int = 0,
    device: str = "auto",
    calibrate: bool = False,
    balanced: bool = False,
    overwrite: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> TrainSummary:
    """Train a classifier on a release and nothing else, and save it.

    A release that carries a private head needs no training: its own Bayes rule is that head. Otherwise a head is
    trained on samples. Of a decoder every class first gets 20 vectors, or fewer if that would take over half; the
    rest follows the released prior. So no class is missing, and a rare one counts somewhat more than its prior. A
    release that is a fixed table gives its rows; a tenth of its distinct vectors is held out. Scores are on fresh
    samples or on that tenth, not on real data. A class that the release names but cannot generate is left out and
    named in the summary.

    With `calibrate`, all scores are divided by one temperature that is fitted on further samples (of a fixed table on
    another tenth). Probabilities then match the release; real records differ from its samples, and only labeled real
    records show how far.

    Parameters
    ----------
    release
        Folder of the release.
    out
        File of the head: .safetensors, not inside the release.
    head
        "bayes" for the Bayes rule of a Gaussian release, "linear" or "mlp" for a head trained on samples; "auto":
        "bayes" if the release carries a private head and has no conditions, and "linear" otherwise.
    samples
        How many vectors to train on; None: 10,000 of a decoder (more for very many classes), or all rows of a table.
    seed
        Seed of sampling and training.
    device
        Where to train, as in `LinearHead`; a rule that is not trained needs none.
    calibrate
        Fit a temperature on samples that the head was not trained on, never on records.
    balanced
        Assume classes of equal size in place of the released frequencies, so that rare classes are predicted more
        often. Scores on samples still follow the release.
    overwrite
        Replace `out` if it exists.
    settings
        Settings of `LinearHead` or `MLPHead`, by name.
    progress
        Called as the work proceeds.

    Returns
    -------
    TrainSummary
        The head's file, its claim and its scores.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, train_head
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-train"), no_dp=True).release
    >>> summary = train_head(release, Path("head.safetensors"), samples=200, settings={"max_epochs": 5})
    >>> summary.classes, summary.rows
    (('malignant', 'benign'), 200)
    """
    model = None if head in ("auto", "bayes") and not settings else _build(head, dict(settings or {}), seed)
    if device != "auto":
        pick_device(device)
    check_output_file(out, overwrite=overwrite, suffixes=(".safetensors",))
    if out.absolute().parent.resolve() == release.resolve():
        raise ConfigError("A head inside the release's folder would damage the release: write it next to the folder.")
    source = load(release)
    check_rows("--samples", samples, source)
    if head == "auto":
        head = "bayes" if carries_head(source) and model is None and samples is None else "linear"
    if head == "bayes" and (samples is not None or calibrate):
        raise ConfigError(
            "The release's own rule is neither trained nor calibrated on samples: leave --samples and --calibrate "
            "out, or take --head linear."
        )
    started = time.monotonic()
    tell = progress or no_progress
    tell(0, 3, "drawing")
    rng = np.random.default_rng(seed)
    parts = (_table if source.manifest.kind == "data" else _decoder)(source, samples, rng, calibrate)
    rows, fresh = parts.rows, parts.fresh
    if head == "bayes":
        saved = bayes_head(source, balanced=balanced)
    else:
        tell(1, 3, f"training on {len(rows)} rows")
        model = (model or _build(head, {}, seed)).set_params(device=device)
        if balanced:
            model.set_params(prior="uniform")
        model.fit(rows.X, source.classes[rows.y])
        saved = SavedHead.from_fitted(
            model, source, {"samples": len(rows), **({"balanced": True} if balanced else {})}
        )
    tell(2, 3, "scoring")
    plain, calibration = saved, None
    if parts.calibration is not None:
        X, y = _known(saved, source, parts.calibration)
        saved = plain.with_temperature(fit_temperature(plain.decision_function(X), y))
    scores = {}
    if fresh is not None:
        X, y = _known(saved, source, fresh)
        scores = scored(y, saved.predict_proba(X))
        if parts.calibration is not None:
            calibration = Calibration(
                temperature=saved.manifest.settings["temperature"],
                rows=len(parts.calibration),
                before=calibration_interval(y, plain.predict_proba(X), np.random.default_rng(0)),
                after=calibration_interval(y, saved.predict_proba(X), np.random.default_rng(0)),
            )
    saved.save(out, overwrite=overwrite)
    tell(3, 3, "done")
    return TrainSummary(
        head=out,
        kind=head,
        release=source.fingerprint or "",
        generator=source.manifest.generator,
        claim=saved.claim,
        classes=saved.manifest.class_names,
        left_out=tuple(_missing(source, saved)),
        rows=0 if head == "bayes" else len(rows),
        fresh_rows=0 if fresh is None else len(fresh),
        scores=scores,
        megabytes=out.stat().st_size / 1e6,
        seconds=time.monotonic() - started,
        calibration=calibration,
    )


def _build(name: str, settings: dict[str, Any], seed: int) -> TorchHead:
    # Settings are those of a head that is trained.
    name = "linear" if name == "auto" else name
    if name not in HEADS:
        raise ConfigError(f"`head` must be auto, bayes or one of {', '.join(HEADS)}; got {name!r}.")
    kind: Any = HEADS[name]
    known = set(kind._get_param_names()) - {"random_state"}
    if unknown := sorted(set(settings) - known):
        raise ConfigError(f"The head {name!r} has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    model: TorchHead = kind(**settings, random_state=seed)
    return model


@dataclass(frozen=True, slots=True)
class _Parts:
    """Samples to learn from, to score on, and to fit the temperature on; no vector is in two of them."""

    rows: EmbeddingSet
    fresh: EmbeddingSet | None
    calibration: EmbeddingSet | None


def _decoder(release: Release, samples: int | None, rng: np.random.Generator, calibrate: bool = False) -> _Parts:
    """Vectors to learn from, with some of every class, and fresh ones that follow the prior to score on."""
    prior = np.zeros(len(release.manifest.classes))
    drawable = np.zeros(len(prior), dtype=bool)
    for codes, weight in release.manifest.joint:
        prior[codes[0]] += weight
        drawable[codes[0]] = True
    many = int(drawable.sum())
    _two_classes(many)
    n = max(SAMPLES, 2 * LEAST_PER_CLASS * many) if samples is None else samples
    if n < 2 * many:
        raise ConfigError(f"`samples` must be at least {2 * many}, two of each class; got {samples!r}.")
    least = min(LEAST_PER_CLASS, n // (2 * many))
    counts = np.where(drawable, least, 0) + round_shares(n - least * many, prior / prior.sum())
    per_class = {label: int(count) for label, count in zip(release.manifest.classes, counts, strict=True) if count}
    rows = release.sample_set(per_class=per_class, random_state=rng)
    fresh = release.sample_set(FRESH, random_state=rng)
    # Drawn last: the same seed gives the same head with and without a temperature.
    return _Parts(rows, fresh, release.sample_set(FRESH, random_state=rng) if calibrate else None)


def _table(release: Release, samples: int | None, rng: np.random.Generator, calibrate: bool = False) -> _Parts:
    """Rows to learn from, and tenths of the distinct vectors to score on and to calibrate on, if there are enough."""
    rows = release.sample_set(samples, random_state=rng)
    _two_classes(int((rows.counts > 0).sum()))
    # k-Same repeats a group's mean for each of its members: a copy on both sides would make the test meaningless.
    vector = np.unique(rows.X, axis=0, return_inverse=True)[1].reshape(-1)
    if vector.max() + 1 < 10 * int((rows.counts > 0).sum()):
        if calibrate:
            raise ConfigError(
                f"The release is a fixed table with {vector.max() + 1} distinct vectors, too few to hold some out "
                "and calibrate on them: leave calibration out."
            )
        return _Parts(rows, None, None)
    grouped = EmbeddingSet(rows.X, rows.y, vector, info=rows.info)
    shares = {"train": 0.8, "fresh": 0.1, "calibration": 0.1} if calibrate else {"train": 0.9, "fresh": 0.1}
    parts = split(grouped, shares, rng=rng)
    return _Parts(parts["train"], parts["fresh"], parts.get("calibration"))


def _known(head: SavedHead, release: Release, rows: EmbeddingSet) -> tuple[npt.NDArray[np.float32], Codes]:
    """Vectors whose class the head knows, with their columns in its probabilities."""
    place = {label: code for code, label in enumerate(head.manifest.classes)}
    y = np.array([place.get(label, -1) for label in release.manifest.classes])[rows.y]
    return rows.X[y >= 0], y[y >= 0]


def _missing(release: Release, head: SavedHead) -> Iterator[str]:
    """Names of classes that the release has and the head does not."""
    for label, name in zip(release.manifest.classes, release.manifest.class_names, strict=True):
        if label not in head.manifest.classes:
            yield name


def _two_classes(found: int) -> None:
    if found < 2:
        raise DataError("The release gives vectors of one class only: a classifier needs at least two.")
