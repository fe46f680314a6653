"""What anyone can check about a release, offline and without private data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from locum.errors import FormatError, IntegrityError
from locum.io import MANIFEST
from locum.release.card import render_card
from locum.release.folder import CARD, read_folder
from locum.release.passport.files import PassportFiles, read_passport_files
from locum.release.passport.schema import PASSPORT, Passport
from locum.release.passport.signature import SIGNATURE, check_signature, key_id, read_public_key
from locum.release.release import Release
from locum.types import PrivacyClaim


@dataclass(frozen=True, slots=True)
class OpenedRelease:
    """A release folder that was read once: the release, its card and its passport files.

    Parameters
    ----------
    path
        The folder.
    release
        The release in it.
    fingerprint
        SHA-256 of the manifest.
    card
        The bytes of the card, `README.md`.
    passport_files
        Passport, signature, and their hashes, as far as they are there.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import open_release
    >>> opened = open_release(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("opened"))
    >>> opened.fingerprint == opened.release.fingerprint, opened.passport_files.passport
    (True, None)
    """

    path: Path
    release: Release
    fingerprint: str
    card: bytes
    passport_files: PassportFiles


@dataclass(frozen=True, slots=True)
class Verification:
    """The checks that a release passed; a failed check raises instead.

    Parameters
    ----------
    path
        The folder, as it was given.
    fingerprint
        SHA-256 of the manifest.
    generator
        Name of the generator.
    claim
        What the release guarantees.
    checks
        What was checked, one sentence each.
    passport
        SHA-256 of the passport; None if there is none.
    signed_by
        Id of the key whose signature was checked; None if none was.
    not_checked
        What was not checked, and why.
    audit
        What the audit in the passport found and whether its policy is met, or that there is none; in one sentence.
    refused
        Whether the holder refused the release, that audit found a leak, or its policy is not met.
    override
        Why the signer signed although the policy is not met; None if there is no such signature.
    decision
        Whether the holder approved or refused the release, and when, or that no decision is recorded; in one
        sentence.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import verify
    >>> found = verify(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("verification"))
    >>> found.checks[0], found.to_dict()["claim"]["kind"]
    ('manifest.json follows schema 1', 'none')
    """

    path: str
    fingerprint: str
    generator: str
    claim: PrivacyClaim
    checks: tuple[str, ...]
    passport: str | None = None
    signed_by: str | None = None
    not_checked: tuple[str, ...] = ()
    audit: str = ""
    refused: bool = False
    override: str | None = None
    decision: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self) | {"claim": self.claim.to_dict()}


def open_release(path: str | Path) -> OpenedRelease:
    """Read every file of a release folder once, with all checks of `load`.

    Parameters
    ----------
    path
        The folder.

    Returns
    -------
    OpenedRelease
        The release, its card and its passport files.

    Raises
    ------
    ReleaseError
        If the folder is not an intact release.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import open_release
    >>> path = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("open_release")
    >>> open_release(path).release.manifest.generator
    'ClassGaussian'
    """
    folder = Path(path)
    found = read_folder(folder)
    passport_files = read_passport_files(folder, found.manifest, found.fingerprint)
    release = Release(found.manifest, found.tensors, found.fingerprint)
    return OpenedRelease(folder, release, found.fingerprint, found.card, passport_files)


def verify(path: str | Path, *, key: str | Path | None = None) -> Verification:
    """Check a release folder; raise an error with the reason if it must not be used.

    The fingerprint is the SHA-256 of the manifest, which holds the hashes of decoder and card: compare it with the
    sender's over another channel. Without a key nothing here shows who made the release.

    Parameters
    ----------
    path
        The folder.
    key
        File with the sender's public key, who must have signed the release. None: no signature is checked.

    Returns
    -------
    Verification
        What was checked, and what was not.

    Raises
    ------
    ReleaseError
        If the release must not be used.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import verify
    >>> found = verify(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("verify"))
    >>> len(found.checks), found.signed_by
    (6, None)
    """
    return verify_opened(open_release(path), key=key)


def verify_opened(opened: OpenedRelease, *, key: str | Path | None = None) -> Verification:
    """The checks of `verify` on a folder that was read already.

    Parameters
    ----------
    opened
        What `open_release` returned.
    key
        File with the sender's public key; None: no signature is checked.

    Returns
    -------
    Verification
        What was checked, and what was not.

    Raises
    ------
    ReleaseError
        If the release must not be used.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import open_release, verify_opened
    >>> opened = open_release(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("verify_opened"))
    >>> verify_opened(opened).fingerprint == opened.fingerprint
    True
    """
    release, passport_files = opened.release, opened.passport_files
    manifest = release.manifest
    own_card = opened.card == render_card(manifest).encode()
    X, _ = release.sample(None if manifest.kind == "data" else 64, random_state=0, as_frame=False)
    if not np.isfinite(X).all():
        raise FormatError("The release gives vectors that are not finite.")
    checks = [
        f"{MANIFEST} follows schema {manifest.schema_version}",
        f"{len(manifest.files)} files present, with the size and SHA-256 that the manifest gives",
        "no other file, no link, no pickle",
        f"{len(release.tensors)} tensors finite and of the shapes that the decoder needs",
        "a trial sample gives finite vectors",
        f"{CARD} matches what this version writes"
        if own_card
        else f"{CARD} was written by another version or by hand",
    ]
    if (passport := passport_files.passport) is not None:
        checks += [
            f"{PASSPORT} follows schema {passport.schema_version} and belongs to this release",
            "the passport makes the same claim as the manifest",
            f"{len(passport.files)} passport files present, with the size and SHA-256 that the passport gives",
        ]
    signed_by, not_checked = None, []
    if key is not None:
        signed_by = _signer(passport_files, Path(key))
        checks.append(f"signed with the key {signed_by[:16]}, over {' and '.join(passport_files.hashes)}")
    elif passport_files.signature is not None:
        not_checked.append(
            f"the signature was not checked: the release names the key {passport_files.signature.key[:16]}, which "
            "anyone can write; give the sender's public key with --key"
        )
    else:
        not_checked.append("the release is not signed: anyone could have made it")
    if signed_by is None and passport is not None and passport.decision is not None:
        not_checked.append("whose decision it is: without the sender's public key anyone could have written it")
    return Verification(
        path=str(opened.path),
        fingerprint=opened.fingerprint,
        generator=manifest.generator,
        claim=release.claim,
        checks=tuple(checks),
        passport=passport_files.hashes.get(PASSPORT),
        signed_by=signed_by,
        not_checked=tuple(not_checked),
        audit=audit_sentence(passport),
        refused=audit_refuses(passport) or holder_refuses(passport),
        override=None if passport_files.signature is None else passport_files.signature.override,
        decision=decision_sentence(passport),
    )


def audit_sentence(passport: Passport | None) -> str:
    """What attackers found and whether the holder's policy is met, as a passport says it.

    Parameters
    ----------
    passport
        The passport of a release; None if it has none.

    Returns
    -------
    str
        One sentence, without a full stop.

    Examples
    --------
    >>> from locum.release import audit_sentence
    >>> audit_sentence(None)
    'no passport: no attack on this release is reported'
    """
    if passport is None:
        return "no passport: no attack on this release is reported"
    if passport.audit is None:
        return "no audit in the passport: no attack on this release is reported"
    policy = passport.audit.policy
    met = "no policy was checked" if policy is None else f"policy {policy.name}: {'met' if policy.met else 'NOT met'}"
    return f"{passport.audit.verdict}; {met}"


def audit_refuses(passport: Passport | None) -> bool:
    """Whether a passport's audit found a leak, or its policy is not met; False without an audit.

    Parameters
    ----------
    passport
        The passport of a release; None if it has none.

    Returns
    -------
    bool
        Whether somebody who signs or takes the release must know it first.

    Examples
    --------
    >>> from locum.release import audit_refuses
    >>> audit_refuses(None)
    False
    """
    if passport is None or passport.audit is None:
        return False
    policy = passport.audit.policy
    return passport.audit.verdict == "leak" or (policy is not None and not policy.met)


def decision_sentence(passport: Passport | None) -> str:
    """Whether the holder approved or refused a release, and when, as a passport says it.

    Parameters
    ----------
    passport
        The passport of a release; None if it has none.

    Returns
    -------
    str
        One sentence, without a full stop.

    Examples
    --------
    >>> from locum.release import decision_sentence
    >>> decision_sentence(None)
    'no decision is recorded'
    """
    if passport is None or passport.decision is None:
        return "no decision is recorded"
    return passport.decision.sentence()


def holder_refuses(passport: Passport | None) -> bool:
    """Whether a passport says that the holder refused the release; False without a decision.

    Parameters
    ----------
    passport
        The passport of a release; None if it has none.

    Returns
    -------
    bool
        Whether the holder decided that the release must not leave.

    Examples
    --------
    >>> from locum.release import holder_refuses
    >>> holder_refuses(None)
    False
    """
    return passport is not None and passport.decision is not None and passport.decision.outcome == "refused"


def _signer(passport_files: PassportFiles, path: Path) -> str:
    public = read_public_key(path)
    if passport_files.signature is None:
        raise IntegrityError(f"The release is not signed: it has no {SIGNATURE}. Ask the sender for a signed one.")
    check_signature(passport_files.signature, public)
    return key_id(public)
