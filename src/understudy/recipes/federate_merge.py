"""`federate merge`: one release out of the folders that several sites have sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import ConfigError
from understudy.federated.merge import Weights, merge_releases
from understudy.recipes.verify import verify_release
from understudy.release import check_target, load
from understudy.types import PrivacyClaim

__all__ = ["MergeSummary", "merge_to_folder"]


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """What was merged, and what may be claimed of it. All of it is in the release too."""

    release: Path
    fingerprint: str
    # "sums": statistics were added; "mixture": decoders stand side by side.
    how: str
    sites: tuple[dict[str, Any], ...]
    max_sites_per_person: int
    claim: PrivacyClaim
    classes: tuple[str, ...]
    megabytes: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "release": str(self.release),
            "fingerprint": self.fingerprint,
            "how": self.how,
            "sites": [dict(site) for site in self.sites],
            "max_sites_per_person": self.max_sites_per_person,
            "claim": self.claim.to_dict(),
            "classes": list(self.classes),
            "megabytes": round(self.megabytes, 3),
        }


def merge_to_folder(
    paths: Sequence[Path],
    out: Path,
    *,
    max_sites_per_person: int | None = None,
    weights: Weights = "counts",
    overwrite: bool = False,
) -> MergeSummary:
    """Verify the releases at `paths`, merge them and write the result to `out`; see `merge_releases`.

    Each must pass `verify_release`: a site whose epsilon is less than what it did costs would spoil the claim of all.
    """
    check_target(out, overwrite=overwrite)
    if out.resolve() in {path.resolve() for path in paths}:
        raise ConfigError(f"{str(out)!r} is one of the releases to be merged: choose another folder for the result.")
    for path in paths:
        verify_release(path)
    merged = merge_releases([load(path) for path in paths], max_sites_per_person, weights)
    merged.save(out, overwrite=overwrite)
    saved = load(out)
    settings = saved.manifest.settings
    return MergeSummary(
        release=out,
        fingerprint=saved.fingerprint or "",
        how=settings["how"],
        sites=tuple(settings["sites"]),
        max_sites_per_person=settings["max_sites_per_person"],
        claim=saved.claim,
        classes=saved.manifest.class_names,
        megabytes=sum(entry.bytes for entry in saved.manifest.files.values()) / 1e6,
    )
