"""`decide`: a holder approves or refuses a release, and signs it with that decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locum.errors import ConfigError, IntegrityError, PrivacyError, ReleaseError
from locum.io import (
    beside_folder,
    check_manifest_folder,
    check_output_file,
    hold_folder,
    lies_in_release,
    regular_bytes,
    write_bytes,
)
from locum.recipes.passport import PassportDraft, draft_passport
from locum.recipes.review import AUDIT, finding_beside
from locum.recipes.sign import read_signing_key, sign_opened
from locum.recipes.verify import verify_opened_release
from locum.release.passport import (
    PASSPORT,
    Decision,
    Signature,
    check_signature,
    key_id,
    make_decision,
    read_decision,
    write_passport_files,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# For another process that writes the same release.
_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DecideSummary:
    """What was decided, and what was written by `decide_release`.

    Attributes
    ----------
    path
        Folder of the release.
    file
        The private file with the decision.
    outcome
        "approved" or "refused".
    decision
        What the passport says about it, in one sentence.
    sha256
        Hash of the decision; it is in the passport.
    fingerprint
        SHA-256 of the manifest.
    passport
        SHA-256 of the passport.
    key
        Id of the key that signed.
    files
        Names of the files that were written into the release.
    audit
        What the audit found and whether its policy is met, or that no attack is reported; in one sentence.
    override
        The public reason for approving although the policy is not met; None if it needs none.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import decide_release
    >>> made = decide_release(  # doctest: +SKIP
    ...     Path("release"), outcome="refused", name="R. Okafor", reason="Too few.", checklist={}, key=Path("holder")
    ... )
    >>> made.file  # doctest: +SKIP
    'release-decision.json'
    """

    path: str
    file: str
    outcome: str
    decision: str
    sha256: str
    fingerprint: str
    passport: str
    key: str
    files: tuple[str, ...]
    audit: str
    override: str | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON; neither name nor reason."""
        return asdict(self) | {"files": list(self.files)}


def decide_release(
    release: Path,
    *,
    outcome: str,
    name: str,
    reason: str,
    checklist: Mapping[str, Mapping[str, Any]],
    key: Path,
    passphrase: bytes | None = None,
    audit: Path | None = None,
    evaluation: Path | None = None,
    include_measured: bool = False,
    override: str | None = None,
    out: Path | None = None,
    overwrite: bool = False,
) -> DecideSummary:
    """Approve or refuse a release: record the decision, write a passport that contains its hash, and sign both.

    Name, reason and checklist go into a private file beside the release, which only its owner may read; the passport
    gets the outcome, the date and the file's hash. The decision is written first, then all files of the release in
    one step: a release that is signed always has its decision. While a decision is being replaced, the old one is
    kept in a file that ends in `.previous`. One about another release, as an earlier one of the same name, is kept
    for good, in a file with the first digits of its hash in the name.

    Parameters
    ----------
    release
        Folder of the release.
    outcome
        "approved" or "refused". A refused release is signed too, and `verify` says that it was refused.
    name
        Who decides: up to 100 printable characters.
    reason
        Why: up to 1000 printable characters on one line.
    checklist
        The Five Safes (projects, people, settings, data, outputs), each with `ok` and, if there is one, `note`. To
        approve, all must be there and ok.
    key
        File of the private key; it must not be inside the release.
    passphrase
        What the key was encrypted with, if it was.
    audit
        The JSON that `locum audit` wrote about this release. If the passport that is replaced reports an audit, it
        must be given again. An approval also needs the one in `RELEASE-audit.json` next to the release, if there is
        one.
    evaluation, include_measured
        As in `write_passport`.
    override
        The reason for approving although the audit found a leak or its policy is not met. It is part of the
        signature, and `verify` shows it.
    out
        File of the decision; None: beside the release, see `default_decision_path`.
    overwrite
        Replace a decision that is there. Also replace passport files that do not verify, were signed with another
        key, or say something that the new ones would not repeat; other passport files, as those of a published
        release, are always replaced.

    Returns
    -------
    DecideSummary
        What was decided, the hashes, and the names of the files.

    Raises
    ------
    ConfigError
        If something is missing for an approval, or is in the way.
    PolicyError
        If an approval would be against the policy of the audit, and there is no `override`.
    PrivacyError
        If the decision would lie inside a release, or the claim is below the cost of its events.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import decide_release, fit_release, make_key_pair, verify_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-decide"), no_dp=True).release
    >>> pair = make_key_pair(Path("officer"))
    >>> made = decide_release(
    ...     release,
    ...     outcome="refused",
    ...     name="R. Okafor",
    ...     reason="There is no agreement with the receiver.",
    ...     checklist={},
    ...     key=Path(pair.private),
    ... )
    >>> made.file
    'release-to-decide-decision.json'
    >>> verify_release(release, key=Path(pair.public), decision=Path(made.file)).refused
    True
    """
    check_manifest_folder(release)
    place = default_decision_path(release) if out is None else out
    private = read_signing_key(release, key, passphrase)
    with hold_folder(release, wait=_WAIT_SECONDS):
        _check_place(place, release, overwrite)
        draft = draft_passport(
            release, audit=audit, evaluation=evaluation, include_measured=include_measured, overwrite=True
        )
        decision = make_decision(draft.fingerprint, outcome, name, reason, checklist, draft.audit)
        if audit is None:
            _check_no_audit(release, draft, decision.outcome)
        if draft.found and not overwrite:
            _check_replaced(release, draft, private.public_key())
        opened = draft.filled(decision.entry())
        verified = verify_opened_release(opened)
        signature = sign_opened(opened, private, override)
        contents = replace(opened.passport_files, signature=signature).contents()
        _write(place, decision, release, contents, draft)
    return DecideSummary(
        path=str(release),
        file=str(place),
        outcome=decision.outcome,
        decision=verified.decision,
        sha256=decision.sha256,
        fingerprint=draft.fingerprint,
        passport=opened.passport_files.hashes[PASSPORT],
        key=key_id(private.public_key()),
        files=tuple(sorted(contents)),
        audit=verified.audit,
        override=override,
    )


def default_decision_path(release: Path) -> Path:
    """Where `locum decide` writes the decision unless told otherwise: beside the release, never inside it.

    Parameters
    ----------
    release
        Folder of the release.

    Returns
    -------
    Path
        A file ending in `-decision.json`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import default_decision_path
    >>> default_decision_path(Path("out/release")).as_posix()
    'out/release-decision.json'
    """
    return beside_folder(release, "-decision.json")


def _check_place(place: Path, release: Path, overwrite: bool) -> None:
    if lies_in_release(place):
        raise PrivacyError(
            "A decision names a person and must not leave with a release. Write it next to the release."
        )
    check_output_file(place, overwrite=overwrite, release=release)
    if not place.exists():
        return
    try:
        read_decision(place)
    except ReleaseError:
        # A mistyped name could be that of a key.
        raise ConfigError(f"{str(place)!r} is not a decision: it is left alone. Choose another file.") from None


def _check_no_audit(release: Path, draft: PassportDraft, outcome: str) -> None:
    """Refuse to drop an audit: an approval after that would need no override."""
    reported = draft.old is not None and draft.old.audit is not None
    if reported or (outcome == "approved" and finding_beside(release, AUDIT, draft.fingerprint) is not None):
        place = "The passport of this release reports" if reported else f"{release.name + AUDIT!r} holds"
        raise ConfigError(f"{place} an audit, which a decision must not drop: give its file with --audit FILE.")


def _check_replaced(release: Path, draft: PassportDraft, key: Ed25519PublicKey) -> None:
    """Refuse to replace, unasked, passport files that the new ones do not repeat in full."""
    there = draft.replaced
    signature = None if there is None else there.signature
    if there is None or (signature is not None and signature.key == key_id(key) and not _is_by(signature, key)):
        why = "they do not verify"
    elif draft.old is not None and draft.old.decision is not None:
        why = "they hold a decision"
    elif signature is not None and signature.key != key_id(key):
        why = "they were signed with another key"
    elif signature is not None and signature.override is not None:
        why = "their signature holds a reason to override the policy"
    elif draft.old is not None and (draft.old.audit, draft.old.utility) != (draft.audit, draft.utility):
        why = "they report other findings than those given now"
    else:
        return
    raise ConfigError(
        f"{str(release)!r} has passport files already, and {why}. --force replaces them all, with new ones that hold "
        "this decision and what you give now."
    )


def _is_by(signature: Signature, key: Ed25519PublicKey) -> bool:
    try:
        check_signature(signature, key)
    except IntegrityError:
        return False
    return True


def _write(
    place: Path, decision: Decision, release: Path, contents: Mapping[str, bytes], draft: PassportDraft
) -> None:
    """First the decision, then the files of the release in one step; an error leaves both as they were."""
    previous = place.with_name(f"{place.name}.previous")
    known = read_decision(place) if place.exists() else None
    old = None if known is None else known.dumps().encode()
    if known is not None and old is not None and known.release != draft.fingerprint:
        # An earlier release of this name may have left: nothing else tells who approved it.
        write_bytes(place.with_name(f"{place.stem}-{known.sha256[:8]}{place.suffix}"), old)
    entry = None if draft.old is None else draft.old.decision
    signed = known is not None and entry is not None and known.sha256 == entry.sha256
    # After a kill the one that is kept, not the one in its place, can be that of the release.
    keeps = old is not None and (signed or not previous.exists())
    try:
        if old is not None and keeps:
            write_bytes(previous, old)
        write_bytes(place, decision.dumps().encode())
        write_passport_files(release, contents, remove=draft.found)
    except BaseException:
        # Interrupted after the last step, the release already has its new files.
        if not _is_written(release, contents):
            place.unlink(missing_ok=True) if old is None else write_bytes(place, old)
            if keeps:
                previous.unlink(missing_ok=True)
        raise
    if old is not None:
        previous.unlink(missing_ok=True)


def _is_written(release: Path, contents: Mapping[str, bytes]) -> bool:
    try:
        return regular_bytes(release / PASSPORT) == contents[PASSPORT]
    except OSError:
        return False
