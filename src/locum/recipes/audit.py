"""`audit`: attack a release, or vectors that another tool made."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from locum.audit import (
    ATTACKS,
    DEFAULT_ATTACKS,
    DEFAULT_MINUTES,
    DEFAULT_SHADOWS,
    SHADOW_ATTACKS,
    Attack,
    AuditReport,
    EpsilonAudit,
    ProvenLimit,
    RayShadows,
    attack_name,
    audit,
    audit_epsilon,
    check_risk_file,
    load_policy,
    proven_limit,
    shadow_attacks,
)
from locum.data import copies_of
from locum.errors import ConfigError, DataError, PrivacyError
from locum.io import check_output_file, lies_in_release, write_bytes
from locum.recipes.inputs import check_source, pick_split
from locum.recipes.passport import read_json
from locum.release import EmbeddingEntry, Release, RowsSpec, build_release, load, rounded_joint
from locum.report import audit_facts, audit_html
from locum.types import EmbeddingSet, PrivacyClaim, Progress


def make_audit_page(audit: Path, out: Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write the page of an audit from its JSON file.

    The page is internal: only its owner can read it, and a path inside a release is refused.

    Parameters
    ----------
    audit
        The JSON that `locum audit` or `audit_data` wrote.
    out
        The HTML file to write.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    dict
        The facts on the page.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_audit_page
    >>> facts = make_audit_page(Path("audit.json"), Path("audit.html"))  # doctest: +SKIP
    """
    check_output_file(out, overwrite=overwrite)
    facts = audit_facts(read_json(audit, "audit"))
    write_audit_page(out, facts, overwrite=overwrite)
    return facts


def write_audit_page(path: Path, facts: Mapping[str, Any], *, overwrite: bool = False) -> None:
    """Write a page from `audit_facts` that only its owner can read. A path inside a release is refused."""
    check_output_file(path, overwrite=overwrite)
    if lies_in_release(path):
        raise PrivacyError("This page is internal and must not leave with a release. Write it next to the release.")
    write_bytes(str(path), audit_html(facts).encode())


def audit_of(audit: Path, fingerprint: str | None) -> Mapping[str, Any]:
    """The JSON of an audit, which must be of the release with this fingerprint."""
    found = read_json(audit, "audit")
    if not fingerprint or found.get("fingerprint") != fingerprint:
        raise DataError("The audit is not of this release: its `fingerprint` differs. Audit this release.")
    return found


def write_risk(report: AuditReport, path: Path, *, overwrite: bool = False) -> tuple[str, str]:
    """Write the risk map of an audit as a CSV that only its owner can read; return its summary and the warning.

    Neither text names a record. Call `check_risk_file` before the attacks to check `path`.
    """
    if report.risk is None:
        raise ConfigError(
            "None of these attacks scores single records, so there is no risk map. Add nearest distance."
        )
    report.risk.save(path, overwrite=overwrite)
    return report.risk.sentence(), report.risk.warning


# Used if an attack with shadows is named without a number of shadows.
USUAL_SHADOWS = 64


@dataclass(frozen=True, slots=True)
class Audited:
    """What was attacked and what was found. Internal: it depends on records.

    Attributes
    ----------
    title
        The release folder or the file of vectors, as it was given.
    report
        Attacks, verdicts and the findings of the policy.
    fingerprint
        That of a release in a folder, or None: a passport refuses the audit of another release.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import audit_data
    >>> found = audit_data(Path("release"), "data.npz#train", "data.npz#test")  # doctest: +SKIP
    >>> found.report.verdict, found.report.may_leave  # doctest: +SKIP
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
    minutes: float | None = None,
    state: Path | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    canaries: int | None = None,
    ledger: Path | None = None,
    accept: Sequence[str] = (),
    drop_duplicates: bool = False,
    out: Path | None = None,
    page: Path | None = None,
    risk: Path | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    backbone: str | None = None,
    reference: Path | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
) -> Audited:
    """Audit the release in a folder, or the vectors of a file that any tool may have made.

    Results are written also if the policy is not met.

    Parameters
    ----------
    release
        Folder of a release; or None, with `synthetic`.
    members
        File of the records behind it.
    non_members
        File of other records of the same population, from other subjects.
    synthetic
        Instead of `release`: a file of vectors.
    policy
        "public", "research-sharing", "internal", or a .toml file.
    attacks
        Names of the attacks to run; None: all quick ones, and LiRA with a limit on its time.
    thorough
        Also run the slow attack on the decoder.
    shadows
        How many shadow generators to train; this also runs all attacks with shadows, unless one of them is named.
    minutes
        How long shadows may be trained; fewer are trained if need be. None: 5 minutes if neither attacks nor a number
        of shadows are given, otherwise as long as it takes.
    state
        File that keeps shadows for a later call with the same `seed`.
    engine
        "local" trains shadows in this process, "ray" on a Ray cluster, to which the records are sent.
    address
        With "ray": the cluster, as in `locum.audit.RayShadows`; None: one that is started on this machine.
    canaries
        Also test the epsilon that a release claims, with so many canaries.
    ledger
        The holder's ledger. It is checked as `verify` checks it; attacks are then held against the limit that was
        proven, and too few records are no refusal where that limit is enough.
    accept
        With `ledger`: names of the assumptions of the claim that the holder accepts.
    drop_duplicates
        Leave out non-members that equal a member. Otherwise a few are left out of the attacks together with that
        member, and many are an error.
    out, page
        Files for the findings as JSON and as HTML, readable only by their owner.
    risk
        CSV file for the risk map. It names records.
    overwrite
        Replace existing files.
    seed
        Seed of the attacks.
    backbone
        Path of a custom model, if images have to be embedded with one.
    reference
        File of the public statistics of a private release; None: what the members' file names. Needed to attack noisy
        sums that were not whitened with shipped statistics.
    progress
        Called as the work proceeds.
    announce
        Called once, before the attacks, with a sentence that says how long shadows may be trained; None: it is not
        said.

    Returns
    -------
    Audited
        What was found. Internal: it depends on records.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import audit_data, fit_release
    >>> data = load_sample("breast-cancer")
    >>> write_embeddings("members.npz", data.take(range(0, 569, 2)))
    >>> write_embeddings("others.npz", data.take(range(1, 569, 2)))
    >>> release = fit_release("members.npz", Path("release-to-audit"), no_dp=True, non_members="others.npz").release
    >>> found = audit_data(release, "members.npz", "others.npz", attacks=["nearest distance"], seed=0)
    >>> [result.name for result in found.report.results]
    ['nearest distance']
    """
    if (release is None) == (synthetic is None):
        raise ConfigError("Give either a release folder or --synthetic FILE, not both.")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise ConfigError(f"`minutes` must be above 0 and finite; got {minutes!r}. 5 is usual.")
    names = choose_attacks(attacks, thorough=thorough, shadows=shadows)
    usual = not attacks and shadows is None
    if usual and minutes is None:
        minutes = DEFAULT_MINUTES
    _check_places(release, (out, page), overwrite, state, seed, not usual and any(n in SHADOW_ATTACKS for n in names))
    if risk is not None:
        check_risk_file(risk, overwrite=overwrite)
    trained_on = _engine(engine, address, any(n in SHADOW_ATTACKS for n in names))
    rules = load_policy(policy)
    limit = _limit(release, ledger, accept)
    if release is not None:
        attacked, title = load(release), str(release)
    else:
        attacked, title = rows_release(pick_split(str(synthetic), "train", backbone=backbone)), str(synthetic)
    # Report wrong numbers and claims before reading data, which may take long.
    with shared_shadows(
        names,
        DEFAULT_SHADOWS if usual else shadows,
        seed=seed,
        state=state,
        minutes=minutes,
        engine=trained_on,
        progress=progress,
    ) as made:
        epsilon_audit = None if canaries is None else _epsilon_audit(attacked, canaries, seed, progress)
        inside = pick_split(members, "train", like=attacked.info, backbone=backbone)
        if reference is not None:
            inside = replace(inside, info=replace(inside.info, reference=str(reference)))
        outside = pick_split(non_members, "val", "test", like=attacked.info, backbone=backbone)
        for data, what in ((inside, "members"), (outside, "non-members")):
            check_source(attacked.info, data.info, what)
        if drop_duplicates and inside.dim == outside.dim:
            copies = copies_of(outside, inside)
            # If nothing would be left, the audit says what is wrong.
            outside = outside if copies.all() else outside.take(~copies)
        classes = attacked.info.class_names
        if announce is not None and minutes is not None and any(name in SHADOW_ATTACKS for name in names):
            announce(f"LiRA trains shadow generators, for at most {minutes:g} minutes (--minutes).")
        report = audit(
            attacked,
            inside.with_classes(classes),
            outside.with_classes(classes),
            attacks=made,
            policy=rules,
            required=[*(attacks or ()), *(n for n in names if n in SHADOW_ATTACKS and not usual)],
            epsilon_audit=epsilon_audit,
            limit=limit,
            minutes=minutes,
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
    """Names of the attacks to run, in the order of the catalog, without duplicates.

    By default all quick ones and LiRA; with `thorough` also the slow one on the decoder. A number of `shadows` adds
    all attacks with shadows, unless one of them is named.

    >>> choose_attacks(["hole"], shadows=8), choose_attacks(["lira"], shadows=8)
    (('hole', 'LiRA', 'RMIA'), ('LiRA',))
    """
    if attacks and thorough:
        raise ConfigError("--thorough adds to the usual attacks, and --attack replaces them. Give one of the two.")
    chosen = {attack_name(name) for name in attacks or DEFAULT_ATTACKS}
    if thorough:
        chosen |= {name for name, entry in ATTACKS.items() if entry.group != "shadows"}
    if shadows is not None and not {attack_name(name) for name in attacks or ()} & set(SHADOW_ATTACKS):
        chosen |= set(SHADOW_ATTACKS)
    return tuple(name for name in ATTACKS if name in chosen)


@contextmanager
def shared_shadows(
    attacks: Sequence[Attack | str],
    shadows: int | None = None,
    *,
    seed: int | None = None,
    state: Path | None = None,
    minutes: float | None = None,
    engine: RayShadows | None = None,
    progress: Progress | None = None,
) -> Iterator[list[Attack | str]]:
    """Attacks for `audit()`, where the named ones that need shadows share them.

    Shadows are kept in the file `state`, or in a private folder that is removed at the end.
    """
    with_shadows = [a for a in attacks if isinstance(a, str) and a in SHADOW_ATTACKS]
    if not with_shadows:
        yield list(attacks)
        return

    def report(done: int, total: int, note: str = "") -> None:
        if progress is not None:
            progress(done, total, "training shadows")

    shadow_seed = secrets.randbelow(2**31) if seed is None else seed
    count = USUAL_SHADOWS if shadows is None else shadows
    with tempfile.TemporaryDirectory(prefix="locum-") as folder:
        path = state or Path(folder) / "shadows.safetensors"
        seconds = None if minutes is None else 60 * minutes
        made = shadow_attacks(
            count, shadow_seed, path, seconds=seconds, names=with_shadows, engine=engine, progress=report
        )
        yield [*(a for a in attacks if a not in with_shadows), *made]


def _engine(name: str, address: str | None, with_shadows: bool) -> RayShadows | None:
    """Where shadows are trained; None: in this process."""
    if name == "local":
        if address is not None:
            raise ConfigError("--address names a Ray cluster: add --engine ray, or leave it out.")
        return None
    if name != "ray":
        raise ConfigError(f"`engine` must be 'local' or 'ray'; got {name!r}.")
    if not with_shadows:
        raise ConfigError("--engine ray trains shadows, and none of these attacks has any: add --shadows N.")
    engine = RayShadows(address or "local")
    engine.check()
    return engine


def _epsilon_audit(attacked: Release, canaries: int, seed: int | None, progress: Progress | None) -> EpsilonAudit:
    claim = attacked.claim
    if claim.dp is None:
        raise ConfigError(
            f"--canaries tests a claimed epsilon, but the claim here is of kind {claim.kind!r}. Leave it out, or "
            "audit a release that was fitted without --no-dp."
        )
    if progress is not None:
        progress(0, 1, f"{canaries:,} canaries")
    return audit_epsilon(attacked, canaries=canaries, seed=seed)


def _limit(release: Path | None, ledger: Path | None, accept: Sequence[str]) -> ProvenLimit | None:
    """The proven limit of a release that its ledger knows; an error if the ledger does not."""
    if ledger is None:
        if accept:
            raise ConfigError(
                "--accept is for the assumptions of a guarantee that a ledger shows: add --ledger FILE."
            )
        return None
    if release is None:
        raise ConfigError(
            "--ledger belongs to a release folder; vectors of another tool have no charge. Leave it out."
        )
    from locum.recipes.ledger import existing_ledger
    from locum.recipes.verify import verify_release

    verified = verify_release(release, ledger=ledger)
    # Of all holdings: the same people can be in several.
    charges = [charge for holding in existing_ledger(ledger).holdings().values() for charge in holding.charges]
    return proven_limit(verified.claim, charges, accepted=accept)


def _check_places(
    release: Path | None,
    outs: Sequence[Path | None],
    overwrite: bool,
    state: Path | None,
    seed: int | None,
    with_shadows: bool,
) -> None:
    """Report before the work what would fail at its end."""
    if state is not None and not with_shadows:
        raise ConfigError("--state keeps shadows of a number that you choose. Add --shadows N, or leave it out.")
    if state is not None and seed is None:
        raise ConfigError("--state needs --seed N, the same each time: shadows can only be continued with one seed.")
    for path in (*outs, state):
        if path is not None:
            # An existing state is continued; whether it fits is checked when it is read.
            check_output_file(path, overwrite=overwrite or path == state, release=release)


def rows_release(data: EmbeddingSet) -> Release:
    """Vectors that another tool made, as a release without a guarantee."""
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
        claim=PrivacyClaim("none", ("everything: it is not known how these vectors were made",)),
    )
