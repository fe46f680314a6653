"""`sample`: draw vectors from a release into a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from locum.data import write_embeddings
from locum.errors import ConfigError
from locum.io import check_output_file
from locum.release import load


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
    """Draw and write; `per_class` is by class name. `min_distance` needs the records (`real`); see `replica`."""
    source = load(release)
    known = source.claim.not_covered
    check_output_file(out, overwrite=overwrite, release=release)
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
