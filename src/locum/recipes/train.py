"""`train`: a classifier trained only on a release, in a file that predicts without torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum.data import round_shares, split
from locum.errors import ConfigError, DataError
from locum.heads import SavedHead, TorchHead
from locum.io import check_output_file
from locum.recipes.evaluate import HEADS
from locum.recipes.inputs import scored
from locum.recipes.sample import check_rows
from locum.release import Release, load
from locum.types import EmbeddingSet, Estimate, PrivacyClaim, Progress, no_progress

SAMPLES = 10_000
# A class with a prior of .001 would have about ten vectors, possibly none: too few to learn from.
LEAST_PER_CLASS = 20
FRESH = 2_000
SCORED_ON = "the release's own samples; not on real data"


@dataclass(frozen=True, slots=True)
class TrainSummary:
    """The result of training. It describes the release, and no record.

    Attributes
    ----------
    head
        File of the head.
    kind
        "linear" or "mlp".
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
            "megabytes": round(self.megabytes, 3),
            "seconds": round(self.seconds, 2),
        }


def train_head(
    release: Path,
    out: Path,
    *,
    head: str = "linear",
    samples: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> TrainSummary:
    """Train a classifier on a release and nothing else, and save it.

    Of a decoder every class first gets 20 vectors, or fewer if that would take over half; the rest follows the
    released prior. So no class is missing, and a rare one counts somewhat more than its prior. A release that is a
    fixed table gives its rows; a tenth of its distinct vectors is held out. Scores are on fresh samples or on that
    tenth, not on real data. A class that the release names but cannot generate is left out and named in the summary.

    Parameters
    ----------
    release
        Folder of the release.
    out
        File of the head: .safetensors, not inside the release.
    head
        "linear" or "mlp".
    samples
        How many vectors to train on; None: 10,000 of a decoder (more for very many classes), or all rows of a table.
    seed
        Seed of sampling and training.
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
    model = _build(head, dict(settings or {}), seed)
    check_output_file(out, overwrite=overwrite, suffixes=(".safetensors",))
    if out.absolute().parent.resolve() == release.resolve():
        raise ConfigError("A head inside the release's folder would spoil the release: write it beside the folder.")
    source = load(release)
    check_rows("--samples", samples, source)
    started = time.monotonic()
    tell = progress or no_progress
    tell(0, 3, "drawing")
    rng = np.random.default_rng(seed)
    rows, fresh = (_table if source.manifest.kind == "data" else _decoder)(source, samples, rng)
    tell(1, 3, f"training on {len(rows)} rows")
    model.fit(rows.X, source.classes[rows.y])
    saved = SavedHead.from_fitted(model, source, {"samples": len(rows)})
    tell(2, 3, "scoring")
    scores = {}
    if fresh is not None:
        place = {label: code for code, label in enumerate(saved.manifest.classes)}
        y = np.array([place.get(label, -1) for label in source.manifest.classes])[fresh.y]
        scores = scored(y[y >= 0], saved.predict_proba(fresh.X[y >= 0]))
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
        rows=len(rows),
        fresh_rows=0 if fresh is None else len(fresh),
        scores=scores,
        megabytes=out.stat().st_size / 1e6,
        seconds=time.monotonic() - started,
    )


def _build(name: str, settings: dict[str, Any], seed: int) -> TorchHead:
    if name not in HEADS:
        raise ConfigError(f"`head` must be one of {', '.join(HEADS)}; got {name!r}.")
    kind: Any = HEADS[name]
    known = set(kind._get_param_names()) - {"random_state"}
    if unknown := sorted(set(settings) - known):
        raise ConfigError(f"The head {name!r} has no setting {unknown[0]!r}; it has {', '.join(sorted(known))}.")
    model: TorchHead = kind(**settings, random_state=seed)
    return model


def _decoder(release: Release, samples: int | None, rng: np.random.Generator) -> tuple[EmbeddingSet, EmbeddingSet]:
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
    return release.sample_set(per_class=per_class, random_state=rng), release.sample_set(FRESH, random_state=rng)


def _table(
    release: Release, samples: int | None, rng: np.random.Generator
) -> tuple[EmbeddingSet, EmbeddingSet | None]:
    """Rows to learn from, and a tenth of the distinct vectors to score on if there are enough."""
    rows = release.sample_set(samples, random_state=rng)
    _two_classes(int((rows.counts > 0).sum()))
    # k-Same repeats a group's mean for each of its members: a copy on both sides would make the test meaningless.
    vector = np.unique(rows.X, axis=0, return_inverse=True)[1].reshape(-1)
    if vector.max() + 1 < 10 * int((rows.counts > 0).sum()):
        return rows, None
    grouped = EmbeddingSet(rows.X, rows.y, vector, info=rows.info)
    parts = split(grouped, {"train": 0.9, "fresh": 0.1}, rng=rng)
    return parts["train"], parts["fresh"]


def _missing(release: Release, head: SavedHead) -> Iterator[str]:
    """Names of classes that the release has and the head does not."""
    for label, name in zip(release.manifest.classes, release.manifest.class_names, strict=True):
        if label not in head.manifest.classes:
            yield name


def _two_classes(found: int) -> None:
    if found < 2:
        raise DataError("The release gives vectors of one class only: a classifier needs at least two.")
