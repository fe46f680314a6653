"""`sample`: draw vectors from a release into a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from locum.data import write_embeddings
from locum.errors import ConfigError
from locum.io import check_output_file
from locum.release import Release, load


def sample_to_file(
    release: Path,
    out: Path,
    *,
    n: int | None = None,
    per_class: Mapping[str, int] | None = None,
    variance: float | None = None,
    min_distance: float | None = None,
    real: str | None = None,
    seed: int | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Draw vectors from a release and write them to a file.

    Parameters
    ----------
    release
        Folder of the release.
    out
        File to write: .csv, .npz, .parquet or .safetensors.
    n
        How many vectors; classes follow the released prior. A release of kind "data" gives all its rows if None.
    per_class
        Instead of `n`: how many vectors per class, by class name.
    variance
        Sampling variance; None: what the release says.
    min_distance, real
        For the data holder: no vector is closer than `min_distance` to a record of the file `real`. That depends on
        records, and a release with differential privacy refuses it; see `locum.generate.replica`.
    seed
        Seed for the sampling; None: other vectors each time.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    dict
        `file`, `rows`, `features`, `classes`, and `not_covered`: what `min_distance` reveals, or None.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, sample_to_file
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-sample"), no_dp=True).release
    >>> sample_to_file(release, Path("drawn.npz"), per_class={"benign": 20}, seed=0)["rows"]
    20
    """
    source = load(release)
    known = source.claim.not_covered
    check_output_file(out, overwrite=overwrite, release=release)
    check_rows("-n", n, source)
    check_rows("--per-class", None if per_class is None else sum(per_class.values()), source)
    counts = None
    if per_class is not None:
        names = dict(zip(source.manifest.class_names, source.manifest.classes, strict=True))
        if unknown := sorted(set(per_class) - set(names)):
            raise ConfigError(f"The release has no class {unknown[0]!r}; it has {', '.join(list(names)[:10])}.")
        counts = {names[name]: count for name, count in per_class.items()}
    if min_distance is not None or real is not None:
        # Only the data holder comes here, with all that reading records needs.
        from locum.generate import replica
        from locum.recipes.inputs import aligned, pick_split

        if variance is not None:
            raise ConfigError("`variance` cannot be combined with `min_distance`; leave one out.")
        records = None if real is None else aligned(source, pick_split(real, "train", like=source.info), "real")[0]
        source = replica(source, n, per_class=counts, min_distance=min_distance, real=records, random_state=seed)
        n, counts = None, None
    drawn = source.sample_set(n, per_class=counts, variance=variance, random_state=seed)
    write_embeddings(out, drawn)
    # What a replica adds to the limits of the release.
    added = [item for item in source.claim.not_covered if item not in known]
    return {
        "file": str(out),
        "rows": len(drawn),
        "features": drawn.dim,
        "classes": list(drawn.info.class_names),
        "not_covered": added[0] if added else None,
    }


def check_rows(option: str, rows: int | None, release: Release) -> None:
    """Refuse more vectors than fit in memory, before anything is drawn; `option` is how they were asked for."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        memory = 64 * 2**30
    # Vectors are held up to four times: drawn, scaled, sorted, written.
    most = memory // (16 * release.manifest.embedding.dim + 64)
    if rows is not None and rows > most:
        raise ConfigError(f"{option} may be at most {most}: this machine's memory holds no more vectors; got {rows}.")
