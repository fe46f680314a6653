"""`publish`: from images or vectors to a signed release in one command that can be killed and started again.

Every step is a recipe of its own: `embed`, `fit`, `audit`, `passport`, `sign`, `verify`. This module has their order,
what is remembered between them, and the rule that one folder pays once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locum._version import __version__
from locum.accounting import Charge, Ledger, attack_limit, check_one_ledger, found_limit, pair_limits, plan_head
from locum.audit import LEAST_NON_MEMBERS, Policy, load_policy, undecidable
from locum.data import (
    copies_of,
    drop_duplicates,
    hold_out,
    ledger_for,
    place_of,
    reference_for,
    write_embeddings,
)
from locum.embed import DEFAULT_BACKBONE, holds_images, open_images
from locum.errors import CheckpointError, ConfigError, DataError, LocumError, PrivacyError
from locum.io import (
    MANIFEST,
    STATE_FOLDER,
    check_input,
    check_output_folder,
    hold_folder,
    is_remote,
    private_folder,
    split_path,
    sync_folder,
    write_bytes,
)
from locum.recipes.audit import audit_data
from locum.recipes.embed import embed_to_file
from locum.recipes.fit import fit_release
from locum.recipes.fit_privacy import (
    ConfirmClasses,
    asked_budget,
    check_classes_known,
    check_label_named,
    check_several_classes,
    check_two,
    expected_use,
    names_read,
    paid_limit,
    public_classes,
    table_columns,
    with_unit_of,
)
from locum.recipes.inputs import choose_split, only_real, only_split, read_sets
from locum.recipes.passport import read_json, write_passport
from locum.recipes.review import show_cost
from locum.recipes.sign import read_signing_key, sign_release
from locum.recipes.verify import verify_release
from locum.release import load, open_release
from locum.release.passport import (
    key_id,
    present_passport_files,
    read_public_key,
    write_passport_files,
    write_public_key,
)
from locum.report import audit_facts, publish_facts, publish_html
from locum.types import DP, EmbeddingInfo, EmbeddingSet, Progress, SetBatches

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Announce = Callable[[str], None]

INTERNAL, RELEASE = "internal", "release"
_STATE = "publish.json"
_VERSION = 1
# Of the records. Their number must not decide: whether one record is used would then depend on the others.
HOLDOUT = 0.2
# The rate of false alarms that proven limits are stated for.
_FPR = 0.01
# `fit` refuses to let records decide this under a guarantee; here they do, and the claim says so.
JUDGED = "the fact that it was released: that depended on attacks with real records, which no guarantee covers"


@dataclass(frozen=True, slots=True)
class PublishSummary:
    """What `publish_release` did. It depends on records: do not share it.

    Attributes
    ----------
    published
        Whether the policy is met and the release is signed, verified and in its place.
    release
        The folder that may leave; None if the policy is not met.
    internal
        The folder that stays: the page, the audit, the vectors.
    page
        The summary to read.
    facts
        What the page shows, as plain JSON.
    earlier
        The steps that an earlier run had done.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import publish_release
    >>> made = publish_release("scans", Path("out"), key=Path("holder.pem"), classes_public=True)  # doctest: +SKIP
    >>> made.published, made.release  # doctest: +SKIP
    """

    published: bool
    release: Path | None
    internal: Path
    page: Path
    facts: Mapping[str, Any]
    earlier: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "published": self.published,
            "release": None if self.release is None else str(self.release),
            "internal": str(self.internal),
            "page": str(self.page),
            "earlier": list(self.earlier),
            **self.facts,
        }


@dataclass(slots=True)
class _State:
    """What earlier runs did, on disk before the next step begins."""

    file: Path
    settings: dict[str, Any]
    source: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    def save(self) -> None:
        body = {"version": _VERSION, "settings": self.settings, "source": self.source, "steps": self.steps}
        write_bytes(self.file, (json.dumps(body, indent=1, sort_keys=True) + "\n").encode())

    def done(self, step: str, **facts: Any) -> None:
        self.steps[step] = facts
        self.save()


@dataclass(frozen=True, slots=True)
class _Asked:
    """What was asked for, checked; nothing has been read or written yet."""

    data: str
    out: Path
    key: Path
    passphrase: bytes | None
    budget: DP
    classes: tuple[str, ...] | None
    confirm: ConfirmClasses | None
    policy: str
    rules: Policy
    accept: tuple[str, ...]
    holdout: float
    holding: str
    backbone: str | None
    minutes: float | None
    progress: Progress | None
    announce: Announce

    @property
    def internal(self) -> Path:
        return self.out / INTERNAL

    @property
    def public_key(self) -> Path:
        """What receivers verify with, beside the private key."""
        return self.key.with_name(self.key.name + ".pub")

    @property
    def staged(self) -> Path:
        """The release until it may leave."""
        return self.internal / RELEASE

    @property
    def members(self) -> Path:
        return self.internal / "members.npz"

    @property
    def non_members(self) -> Path:
        return self.internal / "non-members.npz"

    @property
    def settings(self) -> dict[str, Any]:
        """What one folder is about: with other settings it would be another release."""
        file, split = split_path(self.data)
        return {
            "data": os.path.realpath(file) + ("" if split is None else f"#{split}"),
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "classes": None if self.classes is None else list(self.classes),
            "holdout": self.holdout,
            "holding": self.holding,
            "backbone": self.backbone,
        }

    @property
    def judged_by(self) -> str:
        """A hash of what else an audit depends on."""
        return hashlib.sha256(f"{self.rules.model_dump_json()}{self.accept}".encode()).hexdigest()


def publish_release(
    data: str,
    out: Path,
    *,
    key: Path,
    passphrase: bytes | None = None,
    privacy: DP | None = None,
    classes: Sequence[str] | None = None,
    classes_public: bool = False,
    confirm_classes: ConfirmClasses | None = None,
    policy: str = "research-sharing",
    accept: Sequence[str] = (),
    holdout: float = HOLDOUT,
    holding: str = "default",
    backbone: str | None = None,
    minutes: float | None = None,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> PublishSummary:
    """Embed, check, fit, audit, write the passport, sign and verify; only then does the release appear in `out`.

    Copies are left out first, as far as the guarantee allows. Then a share of the records is held out for the audit,
    all records of a subject and all equal vectors on one side; whether a record is held out depends on that record
    (with subjects, on its subject) alone, so the guarantee covers those too. Other splits of the data are not used. A
    test split often comes from elsewhere, and could not show a leak.

    A run that was stopped goes on when it is called again with the same settings, and pays once: the charge is named
    in a file before it is made. Where that cannot be told any more, nothing is charged.

    Parameters
    ----------
    data
        A folder of images with one folder per class, or what else `embed` or `fit` read from this machine.
    out
        Folder to write: `release` may leave, `internal` must not.
    key
        File of the private key that signs.
    passphrase
        What the key was encrypted with, if it was.
    privacy
        Budget of the release; None: epsilon 1 and delta 1e-6. The unit is the subject wherever subjects are known.
    classes, classes_public, confirm_classes
        As in `fit_release`. That class names are public is then accepted as an assumption of the proven limit.
    policy, minutes
        As in `audit_data`. With another policy only the audit is made again, until the release is published.
    accept
        Names of further assumptions of the claim that the holder accepts.
    holdout
        Share of the records that are held out, above 0 and below 1.
    holding
        Name of the data holding whose budget pays.
    backbone
        Model that embeds images; None: EfficientNet-Lite 0.
    progress
        Called as the work proceeds.
    announce
        Called with one line before each step.

    Returns
    -------
    PublishSummary
        Whether it was published, and all that the page says. Private.

    Raises
    ------
    PrivacyError
        If the budget does not allow the release, if a guarantee lacks something, or if an earlier run was charged and
        its result is lost.
    ConfigError
        If `out` holds something else, or was begun with other settings.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import make_key_pair, publish_release
    >>> Path("hospital").mkdir()
    >>> write_embeddings("hospital/tumors.npz", load_sample("breast-cancer"))
    >>> key = Path(make_key_pair(Path("hospital/holder.pem")).private)
    >>> made = publish_release("hospital/tumors.npz", Path("hospital/out"), key=key, classes=["malignant", "benign"])
    >>> made.facts["verdict"]["title"], sorted(path.name for path in Path("hospital/out").iterdir())
    ('Policy research-sharing: met', ['internal', 'release'])
    """
    if is_remote(split_path(data)[0]):
        raise ConfigError("`publish` reads data on this machine: embed them into a file first, with `locum embed`.")
    check_input(data)
    if not 0 < holdout < 1:
        raise ConfigError(f"`holdout` must lie between 0 and 1; got {holdout!r}. {HOLDOUT:g} is usual.")
    check_classes_known(classes, classes_public, confirm_classes)
    budget = asked_budget(privacy, False, "gaussian")
    assert budget is not None, "there is no way to ask for none"
    asked = _Asked(
        data=data,
        out=out,
        key=key,
        passphrase=passphrase,
        budget=budget,
        classes=None if classes is None else tuple(classes),
        confirm=None if classes_public else confirm_classes,
        policy=policy,
        rules=load_policy(policy),
        accept=tuple(accept),
        holdout=holdout,
        holding=holding,
        backbone=backbone,
        minutes=minutes,
        progress=progress,
        announce=announce or (lambda line: None),
    )
    _check_public_key(asked, read_signing_key(out / RELEASE, key, passphrase))
    inside = Path(os.path.realpath(split_path(data)[0]))
    if inside.is_dir() and (inside == Path(os.path.realpath(out)) or inside in Path(os.path.realpath(out)).parents):
        raise ConfigError(f"{str(out)!r} lies inside the data: choose a folder next to them.")
    check_output_folder(out, overwrite=False, resumes=f"{INTERNAL}/{_STATE}")
    if os.path.lexists(out / RELEASE) and ((out / RELEASE).is_symlink() or not (out / RELEASE / MANIFEST).is_file()):
        raise ConfigError(
            f"{str(out / RELEASE)!r} is in the way and is not a release: move it, or choose another folder."
        )
    if holds_images(data):
        # Before they are embedded, which can take hours.
        check_one_ledger(place_of(data), ledger_for(data))
    with hold_folder(out):
        return _run(asked)


def _check_public_key(asked: _Asked, private: Ed25519PrivateKey) -> None:
    """Receivers verify with the public key beside the private one: write it if it is missing, refuse another one."""
    public = asked.public_key
    if not os.path.lexists(public):
        try:
            write_public_key(public, private)
        except OSError as error:
            raise ConfigError(
                f"{str(public)!r} is missing and cannot be written ({error.strerror}): put the public key beside the "
                "private one."
            ) from None
        asked.announce(f"key: {public.name} was missing and is written; receivers verify with it")
        return
    try:
        same = key_id(read_public_key(public)) == key_id(private.public_key())
    except LocumError:
        same = False
    if not same:
        raise ConfigError(
            f"{str(public)!r} is not the public key of {str(asked.key)!r}: move it away, and it is written again."
        )


def _run(asked: _Asked) -> PublishSummary:
    state, fresh = _opened(asked)
    earlier = tuple(step for step in ("embed", "split", "fit", "audit", "publish") if _has(asked, state, step))
    if "fit" not in earlier:
        existed = asked.out.exists()
        try:
            _fit(asked, state, _prepared(asked, state))
        except LocumError:
            # A refusal leaves nothing of a first run, unless something was paid for.
            if fresh and "fit" not in state.steps:
                shutil.rmtree(asked.internal, ignore_errors=True)
                if not existed and asked.out.is_dir():
                    asked.out.rmdir()
            raise
    ledger = Path(state.steps["split"]["ledger"])
    published = _has(asked, state, "publish")
    if not published:
        _audit(asked, state, ledger)
        found = read_json(asked.internal / "audit.json", "audit")
        published = bool(found["may_leave"])
        if published:
            _leave(asked, ledger)
            state.done("publish", judged_by=asked.judged_by, policy=asked.policy)
        else:
            # A run that was stopped may have signed it under another policy.
            write_passport_files(asked.staged, {}, remove=present_passport_files(asked.staged))
    return _told(asked, state, ledger, published, earlier)


def _opened(asked: _Asked) -> tuple[_State, bool]:
    """What earlier runs left, and whether there was none. Other settings, or other data, are refused."""
    file, source = asked.internal / _STATE, _source_of(asked.data)
    if not file.is_file():
        return _State(file, asked.settings, source), True
    try:
        known = json.loads(file.read_bytes())
        state = _State(file, known["settings"], known["source"], known["steps"])
        if known["version"] != _VERSION:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{str(file)!r} is damaged or of another version, so it is unclear what was paid for: choose another "
            "folder."
        ) from None
    for name, value in asked.settings.items():
        if name not in state.settings:
            raise ConfigError(
                f"{str(asked.out)!r} was started by another version of Locum, which had no setting {name!r}: "
                "continue with that version, or choose another folder, where another release is paid for."
            )
        if state.settings[name] != value:
            raise ConfigError(
                f"{str(asked.out)!r} was begun with {name} {state.settings[name]!r}; got {value!r}. Give the "
                "same to continue, or choose another folder, where another release is paid for."
            )
    if state.source != source:
        if "fit" in state.steps:
            raise ConfigError(
                f"The data have changed since the release in {str(asked.out)!r} was begun and paid for: put them "
                "back to continue, or choose another folder, where another release is paid for."
            )
        state.source, state.steps = source, {}
    decided = state.steps.get("publish")
    if decided is not None and decided["judged_by"] != asked.judged_by:
        raise ConfigError(
            f"{str(asked.out / RELEASE)!r} was published under the policy {decided['policy']!r} and what was "
            "accepted then: leave it as it is, or choose another folder."
        )
    return state, False


def _source_of(data: str) -> str:
    """A hash of names, sizes and times: it changes when somebody changes the data. It stays local."""
    place = Path(split_path(data)[0])
    digest = hashlib.sha256()
    files = [place]
    if place.is_dir():
        files = sorted(
            Path(folder, name)
            for folder, _, names in os.walk(place)
            for name in names
            if not any(part.startswith(".") for part in Path(folder, name).relative_to(place).parts)
        )
    for file in files:
        # Behind a link, what it leads to; a link that leads nowhere is not read.
        found = file.stat() if file.exists() else file.lstat()
        digest.update(f"{file.relative_to(place)}\0{found.st_size}\0{found.st_mtime_ns}\n".encode(errors="replace"))
    return digest.hexdigest()


def _has(asked: _Asked, state: _State, step: str) -> bool:
    """Whether an earlier run did a step: what it wrote counts, since a kill can come before the note."""
    if step == "fit":
        return any((place / MANIFEST).is_file() for place in (asked.staged, asked.out / RELEASE))
    if step == "publish":
        return (asked.out / RELEASE / MANIFEST).is_file()
    return step in state.steps


def _prepared(asked: _Asked, state: _State) -> Path:
    """Members and non-members as files, and the ledger that will pay."""
    if "fit" not in state.steps:
        _check_allowed(asked)
    if _has(asked, state, "split"):
        if "fit" not in state.steps:
            # Consent is given for each payment.
            _confirmed(asked, *read_sets(str(asked.members)).values())
        return Path(state.steps["split"]["ledger"])
    private_folder(asked.internal)
    state.save()
    return _split(asked, state, _vectors(asked, state))


def _check_allowed(asked: _Asked) -> None:
    """Refuse before any work what the budget or the policy can never allow."""
    kinds = asked.rules.claim
    if kinds is not None and "dp" not in kinds.kinds:
        raise ConfigError(
            f"The policy {asked.rules.name!r} accepts claims of kind {' or '.join(kinds.kinds)}, and `publish` makes "
            "releases of kind dp: name another policy."
        )
    most = asked.rules.epsilon
    if most is not None and asked.budget.epsilon > most.at_most:
        raise ConfigError(
            f"The policy {asked.rules.name!r} allows epsilon {most.at_most:g} at most; got {asked.budget.epsilon:g}. "
            "Ask for less, or name another policy."
        )
    cost = show_cost(asked.data, asked.budget, asked.holding, unit_from_data=True)
    if cost["problem"]:
        raise PrivacyError(cost["problem"])
    if asked.rules.auc is not None and cost["limit"] > asked.rules.auc.at_most:
        asked.announce(
            f"At epsilon {asked.budget.epsilon:g} the guarantee alone does not meet the policy {asked.rules.name!r}: "
            "the measured attacks decide, and that takes many records."
        )


def _vectors(asked: _Asked, state: _State) -> dict[str, EmbeddingSet]:
    """Every split of the data as vectors."""
    file, split = split_path(asked.data)
    if not holds_images(file):
        return read_sets(asked.data, backbone=asked.backbone)
    source = only_split(open_images(file), file, split)
    asked.announce("embed: images become vectors; a vector that was computed before is not computed again")
    vectors = asked.internal / "vectors.npz"
    made = embed_to_file(
        file, vectors, backbone=asked.backbone or DEFAULT_BACKBONE, overwrite=True, progress=asked.progress
    )
    state.done(
        "embed",
        images=made.images,
        skipped=made.skipped,
        skipped_file=made.skipped_file,
        ignored=made.ignored,
        ignored_kinds=list(source.ignored_kinds),
    )
    return read_sets(str(vectors) if split is None else f"{vectors}#{split}")


def _split(asked: _Asked, state: _State, splits: Mapping[str, EmbeddingSet]) -> Path:
    """Check the records as `fit` would, leave copies out, hold some out, and write both parts."""
    asked.announce("check: class names, copies, records per class; some records are held out for the audit")
    chosen = only_real(choose_split(splits, asked.data, "train"), "given")
    given = chosen if asked.classes is None else chosen.with_classes(asked.classes)
    check_two(SetBatches(given))
    budget = with_unit_of(asked.budget, SetBatches(given))
    kept = drop_duplicates(given, budget)
    parts = hold_out(SetBatches(kept, rows=len(kept)), asked.holdout, seed=0)
    if min(map(len, parts)) == 0:
        raise DataError(
            f"{len(kept)} records are too few to hold {asked.holdout:.0%} of them out. Give more records."
        )
    members, others = (next(iter(part)) for part in parts)
    # Non-members take no part in the fit: what is left out of them costs no guarantee anything.
    fresh = drop_duplicates(others.take(~copies_of(others, members)))
    if len(fresh) < LEAST_NON_MEMBERS:
        raise DataError(
            f"An audit needs {LEAST_NON_MEMBERS} records that the fit does not use; {len(fresh)} are left of "
            f"{len(others)}. Give more records, or raise --holdout."
        )
    _confirmed(asked, members)
    ledger = ledger_for(asked.data, given.info)
    place = place_of(asked.data, given.info)
    check_one_ledger(place, ledger)
    if reference_for(given.info) == "none" and table_columns(asked.data):
        raise ConfigError(
            f"{asked.data!r} is a table, and `publish` takes images and vectors: release its rows with `locum "
            "obfuscate fit`, or its columns with `locum fit --reference`. If these are vectors, write them as .npz "
            "or .parquet with `locum embed`, which notes the model they come from."
        )
    # As `embed` does: whoever fits one of these files spends the budget of the data, not a new one.
    info = replace(members.info, ledger=str(ledger.resolve()), images=place)
    for file, part in ((asked.members, members), (asked.non_members, fresh)):
        write_embeddings(file, replace(part, info=info))
    state.done(
        "split",
        ledger=str(ledger.resolve()),
        unit=budget.unit,
        used=len(members),
        held_out=len(fresh),
        copies=len(given) - len(kept) + len(others) - len(fresh),
        kept_copies=_repeated(kept),
        not_used={name: len(part) for name, part in splits.items() if part is not chosen},
    )
    return ledger.resolve()


def _repeated(data: EmbeddingSet) -> int:
    """Copies of different subjects: a guarantee per subject keeps them."""
    return len(data) - len(drop_duplicates(data))


def _confirmed(asked: _Asked, members: EmbeddingSet) -> None:
    """The refusals of `fit`, before it is called: too many or too rare classes, names that are not public."""
    check_several_classes(members.info.class_names)
    if asked.classes is None:
        check_label_named(asked.data, asked.confirm)
        budget = with_unit_of(asked.budget, SetBatches(members))
        public_classes(SetBatches(members), budget.unit, asked.confirm, held_out=True)


def _fit(asked: _Asked, state: _State, ledger: Path) -> None:
    """Pay and fit; a killed fit goes on from its checkpoint, and without one nothing is paid a second time."""
    here = Path(os.path.realpath(asked.internal))
    if "fit" not in state.steps:
        _check_decidable(asked, ledger)
        # On disk before the payment: a later run knows which charges can be its own.
        before = sorted(charge.identity for charge in _charges(ledger))
        state.done("fit", before=before, place=str(here), locum=__version__)
        paid = []
    # A checkpoint is found by the path of what is fitted: in a folder that was moved, there would be none.
    elif (paid := _since(state, ledger)) and (
        state.steps["fit"].get("place") != str(here) or not list((here / STATE_FOLDER).glob("fit-*.checkpoint"))
    ):
        raise PrivacyError(
            f"An earlier run was charged epsilon {paid[0].epsilon:.6g}, and the checkpoint of its fit is gone from "
            f"{str(Path(state.steps['fit'].get('place', here), STATE_FOLDER))!r}: nothing is charged again. Put it "
            "back to continue, or choose another folder, where another release is paid for."
        )
    if copies := state.steps["split"]["kept_copies"]:
        many = "1 copy" if copies == 1 else f"{copies} copies"
        asked.announce(
            f"duplicates: {many} of another subject's record will be used, since no subject may affect what "
            "happens to the records of others"
        )
    asked.announce(f"fit: epsilon {asked.budget.epsilon:g} is charged to {str(ledger)!r}, then a release is made")
    try:
        fit_release(
            str(here / asked.members.name),
            asked.staged,
            generator="gaussian",
            privacy=asked.budget,
            unit_from_data=True,
            classes=asked.classes,
            # Asked and answered above.
            classes_public=asked.classes is None,
            ledger=ledger,
            holding=asked.holding,
            not_covered=(JUDGED,),
            must_resume=bool(paid),
            progress=asked.progress,
        )
    except LocumError as error:
        if not _since(state, ledger):
            del state.steps["fit"]
            state.save()
        if not (paid and isinstance(error, CheckpointError)):
            raise
        # The name of a checkpoint holds every setting of the fit, also those that nobody typed.
        then = state.steps["fit"].get("locum", "of another version")
        raise PrivacyError(
            f"An earlier run (Locum {then}) was charged epsilon {paid[0].epsilon:.6g}, and this one (Locum "
            f"{__version__}) cannot continue from its checkpoint: {error} Nothing is charged again: continue with "
            "the version that began it, or choose another folder, where another release is paid for."
        ) from None


def _check_decidable(asked: _Asked, ledger: Path) -> None:
    """Refuse before the payment what no audit with these records can allow: the release would be paid for in vain.

    That depends on how many records there are, as the outcome of the audit does: the claim says so (`JUDGED`).
    """
    plan, relation = plan_head(asked.budget), asked.budget.relation
    limits = attack_limit(plan.events, relation), found_limit(plan.events, _FPR, relation)
    if charged := _charges(ledger):
        epsilon, delta = (sum(getattr(one, name) for one in charged) for name in ("epsilon", "delta"))
        joint = pair_limits(epsilon + plan.epsilon, min(1.0, delta + asked.budget.delta), _FPR)
        limits = max(limits[0], joint[0]), max(limits[1], joint[1])
    members, others = (next(iter(read_sets(str(file)).values())) for file in (asked.members, asked.non_members))
    if reasons := undecidable(asked.rules, members, others, auc=limits[0], tpr=limits[1]):
        raise DataError(
            f"With these records the policy {asked.rules.name!r} cannot be met, whatever the attacks find, so "
            f"nothing was charged: {'; '.join(reasons)}. Give more records, raise --holdout, or name another policy."
        )


def _charges(ledger: Path) -> list[Charge]:
    """All charges of a ledger, whoever made them."""
    if not ledger.is_file():
        return []
    return [one for held in Ledger(ledger).holdings().values() for one in held.charges]


def _since(state: _State, ledger: Path) -> list[Charge]:
    """Charges since the fit of this folder was begun: one of them can be its own, also if the ledger names a release
    for it, which may never have come to its place.
    """
    return [one for one in _charges(ledger) if one.identity not in state.steps["fit"]["before"]]


def _audit(asked: _Asked, state: _State, ledger: Path) -> None:
    """Attack the release, unless an earlier run did so under the same policy and with the same ledger."""
    release = load(asked.staged)
    charges = sum(len(held.charges) for held in Ledger(ledger).holdings().values())
    asked_for = {"fingerprint": release.fingerprint, "judged_by": asked.judged_by, "charges": charges}
    if state.steps.get("audit") == asked_for and (asked.internal / "audit.json").is_file():
        return
    asked.announce("audit: the release is attacked with the records that were held out")
    names = names_read(classes=asked.classes is None)
    audit_data(
        asked.staged,
        str(asked.members),
        str(asked.non_members),
        policy=asked.policy,
        ledger=ledger,
        accept=[*([] if names is None else [names]), *asked.accept],
        minutes=asked.minutes,
        out=asked.internal / "audit.json",
        page=asked.internal / "audit.html",
        overwrite=True,
        seed=0,
        progress=asked.progress,
    )
    state.done("audit", **asked_for)


def _leave(asked: _Asked, ledger: Path) -> None:
    """Passport, signature and checks where the release was made; then one rename puts it where it may leave from."""
    asked.announce("sign: passport, signature, and every check of `verify` before the release is in its place")
    write_passport(asked.staged, audit=asked.internal / "audit.json", overwrite=True)
    sign_release(asked.staged, asked.key, passphrase=asked.passphrase, overwrite=True)
    _verify(asked, asked.staged, ledger)
    os.rename(asked.staged, asked.out / RELEASE)
    sync_folder(asked.out)


def _verify(asked: _Asked, place: Path, ledger: Path) -> tuple[str, ...]:
    public = asked.public_key
    signature = open_release(place).passport_files.signature
    if signature is not None and signature.key != key_id(read_public_key(public)):
        raise ConfigError(
            f"{str(place)!r} was signed with the key {signature.key[:16]}, not with {str(asked.key)!r}: give that "
            "key, or choose another folder."
        )
    named = _info(asked).reference
    found = verify_release(
        place, ledger=ledger, key=public, reference=Path(named) if named and Path(named).is_file() else None
    )
    return found.checks


def _info(asked: _Asked) -> EmbeddingInfo:
    return next(iter(read_sets(str(asked.members)).values())).info


def _decide(asked: _Asked) -> str:
    """The command that records an approval. Name, reason and checks are for a person to type."""
    words = ["locum", "decide", str(asked.out / RELEASE), "--approve", "--confirm", "CHECKS"]
    words += ["--audit", str(asked.internal / "audit.json"), "--key", str(asked.key)]
    return shlex.join([*words, "--name", "NAME", "--reason", "TEXT"])


def _told(asked: _Asked, state: _State, ledger: Path, published: bool, earlier: tuple[str, ...]) -> PublishSummary:
    """Write the page from what is on disk, so that a resumed run tells the same."""
    place = asked.out / RELEASE if published else asked.staged
    release = load(place)
    limit = paid_limit(release.claim, ledger, names_read(classes=asked.classes is None))
    left = Ledger(ledger).holding(asked.holding).left
    facts = publish_facts(
        release,
        published=published,
        audit=audit_facts(read_json(asked.internal / "audit.json", "audit")),
        records={**state.steps.get("embed", {}), **state.steps["split"]},
        limit=limit.to_dict(),
        budget={
            "ledger": str(ledger),
            "holding": asked.holding,
            "left": {"epsilon": left[0], "delta": left[1]},
        },
        forecasts=[one.to_dict() for one in expected_use(release)],
        checks=_verify(asked, place, ledger) if published else (),
        passport=open_release(place).passport_files.passport if published else None,
        decide=_decide(asked),
        audit_page="audit.html" if (asked.internal / "audit.html").is_file() else "",
    )
    page = asked.internal / "summary.html"
    write_bytes(page, publish_html(facts).encode())
    return PublishSummary(published, place if published else None, asked.internal, page, facts, earlier)
