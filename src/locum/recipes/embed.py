"""`embed`: images into a file of vectors."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from locum.data import SUFFIXES, list_copies, place_of, write_embeddings, write_npz_stream
from locum.embed import (
    DEFAULT_BACKBONE,
    NO_CLASSES,
    Embedded,
    ImageSource,
    StrictError,
    embed_images,
    keep_drawn_reference,
    ledger_of,
    load_backbone,
    open_images,
)
from locum.errors import ConfigError, DataError
from locum.io import check_output_file, is_remote, write_atomically, write_private_table
from locum.recipes.inputs import table_of_copies
from locum.types import EmbeddingInfo, Progress


@dataclass(frozen=True, slots=True)
class EmbedSummary:
    """What was written by `embed_to_file`. It includes counts of images: do not share it.

    Attributes
    ----------
    file
        The file of vectors.
    backbone, revision, preprocessing
        The model, its revision, and the hash of how images were prepared.
    images, features
        How many images were embedded, and how long each vector is.
    splits
        Images per split.
    classes
        Class names.
    subjects
        How many subjects there are; None if images have none.
    computed
        How many vectors were computed now; the others came from the cache.
    skipped, skipped_file
        How many images could not be read, and the file that lists them (None if there are none).
    ignored
        How many files were not images.
    repeated, shared
        How many images have the vector of an earlier one of their own split, and of an image of an earlier split.
    duplicates_file
        The file that lists them (None if there are none).
    reference
        Public statistics of the backbone: a shipped name or a file; empty if there are none.
    seconds
        How long it took.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import embed_to_file
    >>> embed_to_file("scans/", Path("scans.npz")).skipped  # doctest: +SKIP
    """

    file: str
    backbone: str
    revision: str
    preprocessing: str
    images: int
    features: int
    splits: dict[str, int]
    classes: tuple[str, ...]
    subjects: int | None
    computed: int
    skipped: int
    skipped_file: str | None
    ignored: int
    repeated: int
    shared: int
    duplicates_file: str | None
    reference: str
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def embed_to_file(
    images: str,
    out: Path,
    *,
    backbone: str = DEFAULT_BACKBONE,
    window: tuple[float, float] | None = None,
    cache: Path | bool = True,
    strict: bool = False,
    workers: int | None = None,
    device: str = "auto",
    index: Path | None = None,
    ledger: Path | None = None,
    reference: bool = True,
    overwrite: bool = False,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> EmbedSummary:
    """Embed images and write their vectors to a file.

    Private output (names of skipped files and of copies, `index`) goes to separate files that only their owner can
    read. An .npz is written in pieces and may hold several splits; other formats hold one, in memory. Problems with
    the output files are found before the first image is embedded.

    Parameters
    ----------
    images
        A folder with one folder per class (also in a store, such as `s3://bucket/scans`), a public set as it is
        distributed (`locum.embed.layouts`), a .csv with a column `path`, or an .npz of images.
    out
        File of vectors: .csv, .npz, .parquet or .safetensors.
    backbone
        Name of a model, or the path of one.
    window
        Values of 16-bit and DICOM images that become black and white; None: each image has its own.
    cache
        File to keep vectors in; True: `.locum/vectors.sqlite` beside the images, none if they are in a store;
        False: none.
    strict
        Stop at the first image that cannot be read.
    workers
        Number of threads; None: one per core.
    device
        Where the model runs, as in `load_backbone`.
    index
        A .csv file that says which image became which row.
    ledger
        For images in a store: the ledger that pays for private releases of these vectors. Images on this machine have
        theirs beside them.
    reference
        Make public statistics of a backbone that Locum ships none for, which private fits of these vectors will use.
        They are made once and kept beside the cache; without a cache, beside `out`.
    overwrite
        Replace existing files.
    tell
        Called with a line before public statistics are made. None: nothing is said.
    progress
        Called with the images done, the number of images and the speed.

    Returns
    -------
    EmbedSummary
        What was written and what was skipped.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import embed_to_file
    >>> summary = embed_to_file("scans/", Path("scans.npz"))  # doctest: +SKIP
    >>> summary.images, summary.skipped  # doctest: +SKIP
    """
    if out.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{str(out)!r} has no suffix that can be written: end it in {' or '.join(SUFFIXES)}.")
    skipped_file = out.with_name(f"{out.stem}.skipped.csv")
    duplicates_file = out.with_name(f"{out.stem}.duplicates.csv")
    given = {
        "output": out,
        "index": index,
        "list of skipped images": skipped_file,
        "list of duplicates": duplicates_file,
        "input": None if is_remote(images) else Path(images),
        "cache": cache if isinstance(cache, Path) else None,
    }
    _check_files({role: file for role, file in given.items() if file is not None}, overwrite)
    source = open_images(images)
    if not source.class_names:
        raise DataError(NO_CLASSES)
    paid_by = ledger_text(source, ledger)
    named = list(dict.fromkeys(item.split for item in source.items))
    if len(named) > 1 and out.suffix.lower() != ".npz":
        raise ConfigError(f"The images have the splits {', '.join(named)}: only an .npz file can hold several.")
    started = time.monotonic()
    model = load_backbone(backbone, window=window, device=device)
    try:
        done = embed_images(source, model, cache=cache, strict=strict, workers=workers, progress=progress)
    except StrictError as error:
        write_private_table(skipped_file, ("image", "problem"), [(error.name, error.problem)])
        raise DataError(
            f"An image cannot be read ({error.problem}), and --strict was given: {str(skipped_file)!r} names it. "
            "Repair or remove it, or leave --strict out."
        ) from None
    with done as embedded:
        splits = embedded.splits()
        info = replace(embedded.info, ledger=paid_by, images=place_of(images, EmbeddingInfo()))
        if reference:
            place = embedded.store.file or out
            info = replace(info, reference=keep_drawn_reference(model, place.parent, tell=tell, progress=progress))
        # Written first, so that whoever sees the vectors can also see what is missing.
        if embedded.problems:
            write_private_table(skipped_file, ("image", "problem"), embedded.problems)
        elif skipped_file.exists() and overwrite:
            skipped_file.unlink()
        copies = list_copies(embedded.splits())
        if copies:
            names = {(split, int(row)): name for split, row, name in _rows(embedded)}
            write_private_table(duplicates_file, *table_of_copies(copies, names))
        elif duplicates_file.exists() and overwrite:
            duplicates_file.unlink()
        if index is not None:
            write_private_table(index, ("split", "row", "image"), _rows(embedded))
        if out.suffix.lower() == ".npz":
            write_atomically(str(out), lambda stream: write_npz_stream(stream, splits, info))
        else:
            write_embeddings(out, replace(next(iter(embedded.sets().values())), info=info))
        return EmbedSummary(
            file=str(out),
            backbone=embedded.info.backbone,
            revision=embedded.info.revision,
            preprocessing=embedded.info.preprocessing,
            images=len(embedded.items),
            features=embedded.store.dim,
            splits={split: part.shape[0] for split, part in splits.items()},
            classes=embedded.info.class_names,
            subjects=None if embedded.subjects is None else len(set(embedded.subjects)),
            computed=embedded.computed,
            skipped=len(embedded.problems),
            skipped_file=str(skipped_file) if embedded.problems else None,
            ignored=embedded.ignored,
            repeated=sum(not copy.is_shared for copy in copies),
            shared=sum(copy.is_shared for copy in copies),
            duplicates_file=str(duplicates_file) if copies else None,
            reference=info.reference,
            seconds=time.monotonic() - started,
        )


def ledger_text(source: ImageSource, given: Path | None) -> str:
    """The ledger that vectors of `source` name: beside images on this machine, as given for others, or none."""
    if source.home is None and given is not None:
        return str(given.resolve())
    if given is not None:
        raise ConfigError(
            "--ledger is for images in a store: images on this machine have their ledger next to them, so that all "
            "their vectors share one budget. Leave it out."
        )
    return ledger_of(source)


def _check_files(files: dict[str, Path], overwrite: bool) -> None:
    """Check that the outputs can be written and that no file has two roles: writing one would destroy the other."""
    out, index = files["output"], files.get("index")
    if index is not None and index.suffix.lower() != ".csv":
        raise ConfigError(f"An index is a table that ends in .csv; got {str(index)!r}.")
    check_distinct(files)
    for target in (out,) if index is None else (out, index):
        check_output_file(target, overwrite=overwrite)


def check_distinct(files: dict[str, Path]) -> None:
    """Check that no file has two roles."""
    for (role, file), (other, second) in combinations(files.items(), 2):
        if _same(file, second):
            raise ConfigError(f"{str(second)!r} is both the {role} and the {other}: choose another file for one.")


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))


def _rows(embedded: Embedded) -> list[tuple[str, str, str]]:
    """Which row of which split each image became."""
    counts: dict[str, int] = {}
    out = []
    for item in embedded.items:
        row = counts.get(item.split, 0)
        counts[item.split] = row + 1
        out.append((item.split, str(row), item.name))
    return out
