"""`audit`: attack a release, or what another tool made, with records that it was made from and with others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.audit import AuditReport, audit
from understudy.errors import ConfigError
from understudy.recipes.common import check_source, pick_split
from understudy.release import EmbeddingEntry, Release, RowsSpec, build_release, load, rounded_joint
from understudy.types import EmbeddingSet, PrivacyClaim

__all__ = ["Audited", "audit_data", "rows_release"]


@dataclass(frozen=True, slots=True)
class Audited:
    """What was attacked, and what was found. Internal: it tells of records.

    `fingerprint` is that of a release in a folder: a passport takes no other release's audit.
    """

    title: str
    report: AuditReport
    fingerprint: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {"audited": self.title, "fingerprint": self.fingerprint, **self.report.to_dict()}


def audit_data(
    release: Path | None,
    members: str,
    non_members: str,
    *,
    synthetic: str | None = None,
    policy: str = "research-sharing",
    attacks: Sequence[str] | None = None,
    seed: int | None = None,
    backbone: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Audited:
    """Audit the release in a folder, or the vectors of a file (`synthetic`) that any tool may have made.

    `members` are the records behind it, `non_members` others of the same population and of other people.
    """
    if (release is None) == (synthetic is None):
        raise ConfigError("Give either a release folder or --synthetic FILE, not both and not none.")
    if release is not None:
        attacked, title = load(release), str(release)
    else:
        attacked, title = rows_release(pick_split(str(synthetic), "train", backbone=backbone)), str(synthetic)
    inside = pick_split(members, "train", like=attacked.info, backbone=backbone)
    outside = pick_split(non_members, "val", "test", like=attacked.info, backbone=backbone)
    for data, what in ((inside, "members"), (outside, "non-members")):
        check_source(attacked.info, data.info, what)
    names = attacked.info.class_names
    report = audit(
        attacked,
        inside.with_classes(names),
        outside.with_classes(names),
        attacks=attacks,
        policy=policy,
        random_state=seed,
        progress=progress,
    )
    return Audited(title, report, attacked.fingerprint)


def rows_release(data: EmbeddingSet) -> Release:
    """Vectors of a file as a release that promises nothing: for what another tool made."""
    codes = data.y[:, None]
    present = np.unique(data.y)
    names = [data.info.class_names[c] for c in present]
    return build_release(
        generator="another tool",
        settings={},
        embedding=EmbeddingEntry(
            backbone=data.info.backbone,
            revision=data.info.revision,
            preprocessing=data.info.preprocessing,
            dim=data.dim,
        ),
        classes=names,
        class_names=names,
        joint=rounded_joint(np.searchsorted(present, codes)),
        space="raw",
        decoder=RowsSpec(),
        tensors={"X": data.X, "codes": np.searchsorted(present, codes)},
        claim=PrivacyClaim("none", ("Everything: nobody said how these vectors were made.",)),
    )
