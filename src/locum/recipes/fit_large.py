"""`fit` on data that are read in pieces: when, and what it needs besides."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from locum.data import gather, is_drawn, open_batches, opens_in_pieces
from locum.embed import holds_images
from locum.errors import DataError
from locum.io import hold_folder, is_remote, split_path
from locum.recipes.inputs import check_no_backbone, state_place
from locum.types import Batches, EmbeddingSet, SetBatches

# Bytes of vectors: below, one reading into memory is quicker than a pass per sum.
IN_MEMORY = 2**28
# Records whose hashes are compared in memory, at some 50 bytes each; those of more are in private files.
FEW_HASHES = 2**21
# Members and non-members of the membership check, drawn at random: an AUC is then known to about 0.006.
MOST_COMPARED = 20_000


def open_large(data: str, backbone: str | None, *, in_memory: int) -> dict[str, Batches] | None:
    """The data in pieces, by split; None if they are small, or can only be read as a whole."""
    file, split = split_path(data)
    if is_drawn(data) or not opens_in_pieces(file) or _small_table(file, in_memory) or holds_images(file):
        return None
    check_no_backbone(data, backbone)
    if not is_remote(file) and not Path(file).exists():
        # Read as a whole, which says it in the usual words.
        return None
    opened = open_batches(file)
    if split is not None:
        if split not in opened:
            raise DataError(f"{file!r} has no split {split!r}: it holds {', '.join(opened)}.")
        opened = {split: opened[split]}
    size = sum(4 * len(part) * part.dim for part in opened.values())
    return opened if size > in_memory or is_remote(file) else None


def _small_table(file: str, in_memory: int) -> bool:
    """Whether a CSV cannot hold too many numbers: one takes two characters, or a tenth of that if compressed."""
    name = file.lower()
    if is_remote(file) or not name.endswith((".csv", ".csv.gz")):
        return False
    if not Path(file).exists():
        # Reading it says so.
        return True
    return Path(file).stat().st_size * (2 if name.endswith(".csv") else 20) <= in_memory


@contextmanager
def sorted_copy(data: str, ledger: Path | None) -> Iterator[Path | None]:
    """A private folder for a copy by subject; it is kept if the fit is killed, and goes when it is done."""
    place = state_place(data, ledger)
    if place is None:
        yield None
        return
    folder = place / f"by-subject-{hashlib.sha256(data.encode()).hexdigest()[:16]}"
    # Another fit of the same data would remove the copy while this one reads it.
    with hold_folder(folder):
        try:
            yield folder
        except (KeyboardInterrupt, OSError):
            # The same command goes on with it.
            raise
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def drawn(part: EmbeddingSet | Batches, data: str) -> EmbeddingSet:
    """All records, or as many at random as the membership check compares."""
    batches = SetBatches(part) if isinstance(part, EmbeddingSet) else part
    if isinstance(part, EmbeddingSet) and len(part) <= MOST_COMPARED:
        return part
    return gather(batches, data, min(MOST_COMPARED, len(batches)))
