"""`audit`: attack a release, or what another tool made, with records that it was made from and with others."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum.audit import (
    ATTACKS,
    DEFAULT_ATTACKS,
    SHADOW_ATTACKS,
    AuditReport,
    EpsilonAudit,
    attack_name,
    audit,
    audit_epsilon,
    check_risk_file,
    load_policy,
    shadow_attacks,
)
from locum.errors import ConfigError, DataError, PrivacyError
from locum.io import check_output_file, lies_in_release, write_bytes
from locum.recipes.inputs import check_source, pick_split
from locum.recipes.passport import read_json
from locum.release import EmbeddingEntry, Release, RowsSpec, build_release, load, rounded_joint
from locum.report import audit_facts, audit_html
from locum.types import EmbeddingSet, PrivacyClaim


def make_audit_page(audit: Path, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the page of the audit in a JSON file, and return the facts on it. The page is internal."""
    check_output_file(out, overwrite=overwrite)
    facts = audit_facts(read_json(audit, "audit"))
    write_audit_page(out, facts, overwrite=overwrite)
    return facts


def write_audit_page(path: Path, facts: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a page from `audit_facts` that only its owner can read. A release folder, which leaves, is refused."""
    check_output_file(path, overwrite=overwrite)
    if lies_in_release(path):
        raise PrivacyError("A release is made to leave, and this page is internal: write it beside the release.")
    write_bytes(str(path), audit_html(facts).encode())


def audit_of(audit: Path, fingerprint: str | None) -> Mapping[str, Any]:
    """The JSON of an audit of the release with this fingerprint: that of another would fit any."""
    found = read_json(audit, "audit")
    if not fingerprint or found.get("fingerprint") != fingerprint:
        raise DataError("The audit is not of this release, by its `fingerprint`. Audit this one.")
    return found


def write_risk(report: AuditReport, path: Path, *, overwrite: bool = False) -> tuple[str, str]:
    """Write the risk map of an audit as a CSV that only its owner can read; return what it says, and the warning.

    Neither of the two sentences names a record. `check_risk_file` says before the attacks whether `path` will do.
    """
    if report.risk is None:
        raise ConfigError(
            "None of these attacks scores single records, so there is no risk map: add nearest distance."
        )
    report.risk.save(path, overwrite=overwrite)
    return report.risk.sentence(), report.risk.warning


Progress = Callable[[int, int, str], None]
# Where an attack with shadows is asked for by its name alone.
USUAL_SHADOWS = 64


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
    thorough: bool = False,
    shadows: int | None = None,
    state: Path | None = None,
    canaries: int | None = None,
    out: Path | None = None,
    page: Path | None = None,
    risk: Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    backbone: str | None = None,
    progress: Progress | None = None,
) -> Audited:
    """Audit the release in a folder, or the vectors of a file (`synthetic`) that any tool may have made.

    `members` are the records behind it, `non_members` others of the same population and of other people. `attacks`,
    `thorough` and `shadows` say what is tried: see `choose_attacks`. `state` keeps shadows for a later call with the
    same `seed`; `canaries` also puts the epsilon that a release claims to the test. `out` gets the findings as JSON
    and `page` as HTML, whole or not at all, for their owner's eyes; also those of a release that must not leave.
    `risk` gets the risk map, which names records.
    """
    if (release is None) == (synthetic is None):
        raise ConfigError("Give either a release folder or --synthetic FILE, not both and not none.")
    names = choose_attacks(attacks, thorough=thorough, shadows=shadows)
    _check_places(release, (out, page), overwrite, state, seed, any(name in SHADOW_ATTACKS for name in names))
    if risk is not None:
        check_risk_file(risk, overwrite=overwrite)
    rules = load_policy(policy)
    if release is not None:
        attacked, title = load(release), str(release)
    else:
        attacked, title = rows_release(pick_split(str(synthetic), "train", backbone=backbone)), str(synthetic)
    # Wrong counts and claims are told before data are read, which may take long.
    with shared_shadows(names, shadows, seed=seed, state=state, progress=progress) as made:
        epsilon_audit = None if canaries is None else _epsilon_audit(attacked, canaries, seed, progress)
        inside = pick_split(members, "train", like=attacked.info, backbone=backbone)
        outside = pick_split(non_members, "val", "test", like=attacked.info, backbone=backbone)
        for data, what in ((inside, "members"), (outside, "non-members")):
            check_source(attacked.info, data.info, what)
        classes = attacked.info.class_names
        report = audit(
            attacked,
            inside.with_classes(classes),
            outside.with_classes(classes),
            attacks=made,
            policy=rules,
            epsilon_audit=epsilon_audit,
            random_state=seed,
            progress=progress,
        )
    found = Audited(title, report, attacked.fingerprint)
    if out is not None:
        text = json.dumps(found.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"
        write_bytes(str(out), text.encode())
    if page is not None:
        write_audit_page(page, audit_facts(found.to_dict()), overwrite=overwrite)
    if risk is not None:
        write_risk(report, risk, overwrite=overwrite)
    return found


def choose_attacks(
    attacks: Sequence[str] | None = None, *, thorough: bool = False, shadows: int | None = None
) -> tuple[str, ...]:
    """Names of what is tried, in the catalogue's order and each once.

    Those that are named; without names all quick ones, and with `thorough` also the slow one on the decoder. A number
    of `shadows` adds all attacks with shadows, unless one of them is named.

    >>> choose_attacks(["hole"], shadows=8), choose_attacks(["lira"], shadows=8)
    (('hole', 'LiRA', 'RMIA'), ('LiRA',))
    """
    if attacks and thorough:
        raise ConfigError("--thorough adds to the usual attacks, and --attack replaces them: give one of the two.")
    chosen = {attack_name(name) for name in attacks or DEFAULT_ATTACKS}
    if thorough:
        chosen |= {name for name, entry in ATTACKS.items() if entry.group != "shadows"}
    if shadows is not None and not chosen & set(SHADOW_ATTACKS):
        chosen |= set(SHADOW_ATTACKS)
    return tuple(name for name in ATTACKS if name in chosen)


@contextmanager
def shared_shadows(
    attacks: Sequence[Any],
    shadows: int | None = None,
    *,
    seed: int | None = None,
    state: Path | None = None,
    progress: Progress | None = None,
) -> Iterator[list[Any]]:
    """The same for `audit()`, with those attacks that are named and need shadows made so that they share them.

    What is trained lies in the file `state`, or in a private folder that goes away at the end.
    """
    with_shadows = [a for a in attacks if isinstance(a, str) and a in SHADOW_ATTACKS]
    if not with_shadows:
        yield list(attacks)
        return

    def tell(done: int, total: int) -> None:
        if progress is not None:
            progress(done, total, "training shadows")

    rng = secrets.randbelow(2**31) if seed is None else seed
    count = USUAL_SHADOWS if shadows is None else shadows
    with tempfile.TemporaryDirectory(prefix="locum-") as folder:
        path = state or Path(folder) / "shadows.safetensors"
        made = shadow_attacks(count, rng, path, names=with_shadows, progress=tell)
        yield [*(a for a in attacks if a not in with_shadows), *made]


def _epsilon_audit(attacked: Release, canaries: int, seed: int | None, progress: Progress | None) -> EpsilonAudit:
    claim = attacked.claim
    if claim.dp is None:
        raise ConfigError(
            f"--canaries puts a claimed epsilon to the test, and the claim here is of kind {claim.kind!r}: leave it "
            "out, or audit a release that was fitted with --epsilon."
        )
    if progress is not None:
        progress(0, 1, f"{canaries:,} canaries")
    return audit_epsilon(attacked, canaries=canaries, seed=seed)


def _check_places(
    release: Path | None,
    outs: Sequence[Path | None],
    overwrite: bool,
    state: Path | None,
    seed: int | None,
    with_shadows: bool,
) -> None:
    """What would fail at the end is said before the work."""
    if state is not None and not with_shadows:
        raise ConfigError("--state keeps shadows, and none are trained: add --shadows N, or leave it out.")
    if state is not None and seed is None:
        raise ConfigError("--state can go on only with the same coins: add --seed N, the same each time.")
    for path in (*outs, state):
        if path is not None:
            # A state that is there is gone on with; whether it fits is seen when it is read.
            check_output_file(path, overwrite=overwrite or path == state, release=release)


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
