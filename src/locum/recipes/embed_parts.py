"""`embed` into a folder: any number of images as Parquet files, on this machine or in a store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from locum.data import REFERENCES, place_of
from locum.embed import (
    DEFAULT_BACKBONE,
    NO_CLASSES,
    ROWS_PER_FILE,
    Backbone,
    EmbeddingEngine,
    ImageSource,
    LocalEmbedding,
    RayEmbedding,
    ShardedVectors,
    StrictError,
    can_keep,
    check_shard_folder,
    embed_to_shards,
    keep_drawn_reference,
    load_backbone,
    open_images,
)
from locum.errors import ConfigError, DataError
from locum.io import (
    STATE_FOLDER,
    beside_folder,
    check_output_file,
    is_remote,
    write_private_table,
)
from locum.recipes.embed import check_distinct, ledger_text
from locum.types import EmbeddingInfo, Progress


def embed_to_folder(
    images: str,
    out: str,
    *,
    backbone: str = DEFAULT_BACKBONE,
    window: tuple[float, float] | None = None,
    rows_per_file: int = ROWS_PER_FILE,
    engine: EmbeddingEngine | None = None,
    strict: bool = False,
    device: str = "auto",
    index: Path | None = None,
    ledger: Path | None = None,
    reference: bool = True,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Embed images into a folder of Parquet files, which can be read like a file wherever data are asked for.

    A call that was stopped goes on if it is repeated: files that are finished and unchanged are kept. A call with
    other images or other settings is refused. Each row has an attribute `row`, the place of its image in the sorted
    list of all images; sorted by it, the vectors are those that `embed_to_file` writes. Copies are not listed.

    Parameters
    ----------
    images
        As in `embed_to_file`: also a folder in a store, such as `s3://bucket/scans`.
    out
        The folder, or an address such as `s3://bucket/vectors`: new, empty, or from an earlier call.
    backbone, window, strict
        As in `embed_to_file`.
    rows_per_file
        How many images go into one file.
    engine
        Who embeds: a `LocalEmbedding` (None: one with its defaults) or a `RayEmbedding`.
    device
        As in `embed_to_file`; on a cluster "auto" is the CPU, and nothing else is possible.
    index
        A .csv file on this machine that says which image became which row. It is written first, and replaced if it is
        there.
    ledger
        For images in a store: the ledger that pays for private releases of these vectors. Images on this machine have
        theirs beside them.
    reference
        Make public statistics of a backbone that Locum ships none for. They are kept beside the images, else beside
        `out`; if both are in a store, none are made.
    tell
        Called with a line before public statistics are made. None: nothing is said.
    progress
        Called with the images done, the number of images and the speed.

    Returns
    -------
    dict
        `folder`, `files`, `resumed` (how many files were there already), `images`, `computed`, `features`, `splits`,
        `classes`, `skipped`, `skipped_file` (None if there are none, or `out` is in a store: its note then lists
        their rows), `ignored`, `backbone`, `revision`, `preprocessing`, `reference`, `ledger` (None if none is named)
        and `seconds`. It includes counts of images: do not share it.

    Raises
    ------
    ConfigError
        If the folder holds something else, or the engine cannot run as asked.

    Examples
    --------
    >>> from locum.recipes import embed_to_folder
    >>> done = embed_to_folder("scans/", "vectors/")  # doctest: +SKIP
    >>> done = embed_to_folder("s3://bucket/scans", "s3://bucket/vectors")  # doctest: +SKIP
    """
    if index is not None:
        if index.suffix.lower() != ".csv":
            raise ConfigError(f"An index is a table that ends in .csv; got {str(index)!r}.")
        check_output_file(index, overwrite=True)
    given = {
        "index": index,
        "list of skipped images": _skipped_file(out),
        "input": None if is_remote(images) else Path(images),
    }
    check_distinct({role: file for role, file in given.items() if file is not None})
    check_shard_folder(out)
    started = time.monotonic()
    engine = engine or LocalEmbedding()
    with engine.started():
        source = open_images(images)
        if not source.class_names:
            raise DataError(NO_CLASSES)
        named = ledger_text(source, ledger)
        device = "cpu" if device == "auto" and isinstance(engine, RayEmbedding) else device
        model = load_backbone(backbone, window=window, device=device)
        kept = model.name if model.name in REFERENCES else ""
        if reference and not kept:
            kept = _reference(source, model, out, tell, progress)
        info = replace(
            model.info,
            class_names=source.class_names,
            ledger=named,
            reference=kept,
            images=place_of(images, EmbeddingInfo()),
        )
        if index is not None:
            rows = ((item.split, str(row), item.name) for row, item in enumerate(source.items))
            write_private_table(index, ("split", "row", "image"), rows)
        try:
            done = embed_to_shards(
                source,
                model,
                out,
                info=info,
                engine=engine,
                rows_per_file=rows_per_file,
                strict=strict,
                progress=progress,
            )
        except StrictError as error:
            raise _told(error, source, out) from None
    return {
        "folder": out,
        "files": done.files,
        "resumed": done.resumed,
        "images": done.images,
        "computed": done.computed,
        "features": model.dim,
        "splits": done.splits,
        "classes": list(source.class_names),
        "skipped": len(done.skipped),
        "skipped_file": _list_skipped(done, source, out),
        "ignored": source.ignored,
        "backbone": info.backbone,
        "revision": info.revision,
        "preprocessing": info.preprocessing,
        "reference": info.reference,
        "ledger": info.ledger or None,
        "seconds": time.monotonic() - started,
    }


def _reference(
    source: ImageSource,
    model: Backbone,
    out: str,
    tell: Callable[[str], None] | None,
    progress: Progress | None,
) -> str:
    """Public statistics of a model, made beside the images or the output; empty if there is no place."""
    if source.home is not None and can_keep(source.home):
        return keep_drawn_reference(model, source.home / STATE_FOLDER, tell=tell, progress=progress)
    if is_remote(out):
        return ""
    return keep_drawn_reference(model, Path(out).absolute().parent, tell=tell, progress=progress)


def _skipped_file(out: str) -> Path | None:
    """The private list of images that cannot be read; names of images are not sent to a store."""
    return None if is_remote(out) else beside_folder(Path(out), ".skipped.csv")


def _list_skipped(done: ShardedVectors, source: ImageSource, out: str) -> str | None:
    file = _skipped_file(out)
    if file is None:
        return None
    if not done.skipped:
        file.unlink(missing_ok=True)
        return None
    write_private_table(file, ("image", "problem"), [(source.items[row].name, why) for row, why in done.skipped])
    return str(file)


def _told(error: StrictError, source: ImageSource, out: str) -> DataError:
    """The error of `strict`, with the place where the image is named."""
    file = _skipped_file(out)
    if file is None:
        row = next(i for i, item in enumerate(source.items) if item.name == error.name)
        where = f"it is row {row} (--index FILE says which image that is)"
    else:
        write_private_table(file, ("image", "problem"), [(error.name, error.problem)])
        where = f"{str(file)!r} names it"
    return DataError(
        f"An image cannot be read ({error.problem}), and --strict was given: {where}. Repair or remove it, or leave "
        "--strict out."
    )
