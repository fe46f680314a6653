"""`sample` into a folder: any number of vectors as Parquet files, in bounded memory, by several threads."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

from locum._threads import one_thread
from locum._version import __version__
from locum.data import DRAWN, write_parquet_stream
from locum.errors import ConfigError
from locum.io import check_output_folder, hold_folder, write_atomically, write_bytes
from locum.release import Release, load
from locum.types import EmbeddingSet, Progress

ROWS_PER_FILE = 1_000_000
# Numbers that are drawn at once: 16 MB of them.
_AT_ONCE = 4_000_000


def sample_to_folder(
    release: Path,
    out: Path,
    *,
    n: int,
    rows_per_file: int = ROWS_PER_FILE,
    variance: float | None = None,
    seed: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Draw any number of vectors into a folder of Parquet files.

    Each file has a seed of its own, so the rows do not depend on the number of threads. An interrupted call goes on
    where it was if it is repeated: files that are there are complete. The folder can be read like a file wherever
    data are asked for.

    Parameters
    ----------
    release
        Folder of the release, which must hold a decoder.
    out
        Folder to write: new, empty, or from an earlier call with the same release and settings.
    n
        How many vectors; classes follow the released prior.
    rows_per_file
        How many of them go into one file.
    variance
        Sampling variance; None: what the release says.
    seed
        Seed of the whole draw; None: other vectors each time (it is kept in the folder until the draw is complete).
    workers
        How many files are drawn at once, each by a thread; None: as many as there are cores.
    progress
        Called after each file.

    Returns
    -------
    dict
        `folder`, `files`, `rows`, `features`, `classes`, and `resumed`: how many files were there already.

    Raises
    ------
    ConfigError
        If the folder holds something else, or parts of another draw.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, read_embeddings, write_embeddings
    >>> from locum.recipes import fit_release, sample_to_folder
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-draw-from"), no_dp=True).release
    >>> sample_to_folder(release, Path("drawn"), n=250, rows_per_file=100, seed=0, workers=1)["files"]
    3
    >>> len(read_embeddings("drawn"))
    250
    """
    source = load(release)
    if source.manifest.kind == "data":
        raise ConfigError("This release is a fixed table: draw its rows into a file, such as -o samples.parquet.")
    for name, value in (("n", n), ("rows_per_file", rows_per_file), ("workers", 1 if workers is None else workers)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"`{name}` must be a whole number, 1 or more; got {value!r}.")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
        raise ConfigError(f"`seed` must be a whole number, 0 or more; got {seed!r}.")
    # Wrong settings fail here, before a folder is made.
    source.sample(1, variance=variance, random_state=0)
    check_output_folder(out, overwrite=False, resumes=DRAWN)
    wanted = {
        "release": source.fingerprint,
        "rows": n,
        "rows_per_file": rows_per_file,
        "variance": variance,
        "seed": seed,
        "written_by": f"locum {__version__}",
    }
    with hold_folder(out):
        entropy = _begin(out, wanted)
        parts = [(i, min(rows_per_file, n - i * rows_per_file)) for i in range(-(-n // rows_per_file))]
        todo = [part for part in parts if not (out / _name(part[0])).exists()]
        resumed = len(parts) - len(todo)
        for done, _ in enumerate(_drawn(source, out, todo, variance, entropy, workers), start=resumed + 1):
            if progress is not None:
                progress(done, len(parts), "files")
        # Whoever knows the seed can tell which vectors are samples: one that nobody chose is not kept.
        if seed is None:
            _write(out, {**wanted, "entropy": None})
    return {
        "folder": str(out),
        "files": len(parts),
        "rows": n,
        "features": source.manifest.embedding.dim,
        "classes": list(source.manifest.class_names),
        "resumed": resumed,
    }


def _begin(out: Path, wanted: dict[str, Any]) -> int:
    """Note what is drawn, or find the note of the call that this one continues; the seed of all files."""
    out.mkdir(parents=True, exist_ok=True)
    file = out / DRAWN
    if not file.exists():
        fresh = {**wanted, "entropy": str(secrets.randbits(128) if wanted["seed"] is None else wanted["seed"])}
        _write(out, fresh)
        return int(fresh["entropy"])
    try:
        known = json.loads(file.read_bytes())
        entropy = known.pop("entropy")
        same = {k: v for k, v in known.items() if k != "written_by"} == {
            k: v for k, v in wanted.items() if k != "written_by"
        }
    except (ValueError, AttributeError, KeyError):
        raise ConfigError(f"{str(file)!r} is damaged: remove the folder, or choose another.") from None
    if not same:
        raise ConfigError(
            f"{str(out)!r} holds another draw, of another release or with other settings: choose another folder."
        )
    if entropy is None:
        raise ConfigError(f"{str(out)!r} holds a complete draw without a seed: choose another folder for more.")
    return int(entropy)


def _write(out: Path, settings: dict[str, Any]) -> None:
    write_bytes(out / DRAWN, json.dumps(settings, indent=1, sort_keys=True).encode())


def _name(part: int) -> str:
    return f"part-{part:06d}.parquet"


def _drawn(
    source: Release,
    out: Path,
    parts: list[tuple[int, int]],
    variance: float | None,
    entropy: int,
    workers: int | None,
) -> Iterator[int]:
    """Draw the parts, and yield the number of each that is written."""
    count = max(1, min(workers or os.cpu_count() or 1, len(parts)))
    if count == 1:
        # In a thread of its own, the allocator would keep more memory.
        with one_thread():
            for part in parts:
                yield _draw(source, out, *part, variance, entropy)
        return
    # Random numbers, products and Parquet need no interpreter lock: threads use all cores, and have nothing to load.
    # Products of samples are small: threads of their own would mostly wait.
    with one_thread(), ThreadPoolExecutor(count, thread_name_prefix="locum-sample") as pool:
        try:
            for future in as_completed([pool.submit(_draw, source, out, *part, variance, entropy) for part in parts]):
                yield future.result()
        finally:
            # After an error or an interruption, files that nobody has begun are not drawn.
            pool.shutdown(cancel_futures=True)


def _draw(source: Release, out: Path, part: int, rows: int, variance: float | None, entropy: int) -> int:
    """Draw one file; the same whichever thread does it, and whatever was drawn before."""
    rng = np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=(part,)))
    step = max(1, _AT_ONCE // source.manifest.embedding.dim)

    def pieces() -> Iterator[EmbeddingSet]:
        for start in range(0, rows, step):
            yield source.sample_set(min(step, rows - start), variance=variance, random_state=rng)

    write_atomically(out / _name(part), lambda stream: write_parquet_stream(stream, pieces()))
    return part
