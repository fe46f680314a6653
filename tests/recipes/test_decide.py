"""Deciding about a release: the decision stays, its hash leaves, and no failure leaves one without the other."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import locum.recipes.decide as deciding
from locum.accounting import Gaussian, epsilon_of, events_to_json
from locum.errors import ConfigError, DataError, IntegrityError, LocumError, PolicyError, PrivacyError, ReleaseError
from locum.generate import ClassGaussian
from locum.recipes import (
    DecideSummary,
    decide_release,
    make_key_pair,
    sign_release,
    verify_release,
    write_passport,
)
from locum.recipes.passport import draft_passport
from locum.release import Release, load, open_release
from locum.release.passport import (
    FIVE_SAFES,
    make_signature,
    read_decision,
    read_private_key,
    write_passport_files,
)
from locum.types import SAFES, AttackResult, DPClaim, Estimate, PrivacyClaim

pytest.importorskip("cryptography")
ALL = {name: {"ok": True, "note": f"{name} discussed"} for name in FIVE_SAFES}
SECRETS = ("Rosalind Okafor", "case seventeen", "discussed")
NEW = {"passport.json", "passport.html", "passport.md", "croissant.json", "signature.json"}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key_pair(tmp_path / "key")
    return tmp_path / "key"


@pytest.fixture
def public(key: Path) -> Path:
    return key.with_name("key.pub")


@pytest.fixture
def release(blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> Path:
    return ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "release")


def decide(release: Path, key: Path, outcome: str = "approved", **more: Any) -> DecideSummary:
    given = {"name": "Rosalind Okafor", "reason": "case seventeen", "checklist": ALL} | more
    return decide_release(release, outcome=outcome, key=key, **given)


def write_audit(release: Path, path: Path, *, leak: bool, policy: bool | None = None) -> Path:
    """What `locum audit` writes about a release."""
    found = Estimate(0.9, 0.8, 1.0, 99) if leak else Estimate(0.5, 0.48, 0.52, 99)
    p_value = 0.0 if leak else 0.5
    result = AttackResult("a", "auc", found, Estimate.exact(0.5), Estimate.exact(0.5), p_value=p_value)
    told: dict[str, Any] = {"fingerprint": load(release).fingerprint, "verdict": result.verdict}
    told["results"] = [result.to_dict()]
    if policy is not None:
        findings = [{"rule": "no AUC above 0.4", "met": policy}]
        told |= {"policy": {"name": "strict", "findings": findings}, "may_leave": policy}
    path.write_text(json.dumps(told))
    return path


def everything(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("outcome", ["approved", "refused"])
def test_a_decision_is_recorded_signed_and_checked(release: Path, key: Path, public: Path, outcome: str) -> None:
    before = everything(release)
    made = decide(release, key, outcome)
    file = release.with_name("release-decision.json")
    assert made.file == str(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert made.sha256 == hashlib.sha256(file.read_bytes()).hexdigest()
    assert set(made.files) == set(everything(release)) - set(before) == NEW
    assert {name: raw for name, raw in everything(release).items() if name in before} == before
    assert made.audit == "no audit in the passport: no attack on this release is reported"
    decision = read_decision(file)
    assert (decision.release, decision.outcome, decision.name) == (made.fingerprint, outcome, "Rosalind Okafor")
    found = verify_release(release, key=public, decision=file)
    assert (found.signed_by, found.passport, found.override) == (made.key, made.passport, None)
    assert found.decision == made.decision
    assert found.decision.startswith("REFUSED" if outcome == "refused" else "approved")
    assert found.decision.endswith(f"by the holder on {decision.decided_on[:10]}")
    assert found.refused == (outcome == "refused")
    assert any("the decision is about this release" in line for line in found.checks)
    assert "the files beside the passport are what this version would write from it" in found.checks
    assert verify_release(release).decision == found.decision
    assert json.loads(json.dumps(made.to_dict()))["outcome"] == outcome
    for raw in everything(release).values():
        for secret in (*SECRETS, decision.salt, decision.decided_on):
            assert secret.encode() not in raw
    assert not any(secret in json.dumps(made.to_dict()) for secret in SECRETS)


def test_without_a_decision_verify_says_so(release: Path, key: Path) -> None:
    assert verify_release(release).decision == "no decision is recorded"
    write_passport(release)
    assert verify_release(release).decision == "no decision is recorded"
    made = decide(release, key, "refused", overwrite=True)
    write_passport(release, overwrite=True)
    with pytest.raises(ConfigError, match="no decision in its passport"):
        verify_release(release, decision=Path(made.file))


def test_a_passport_from_before_decisions_still_verifies(release: Path, key: Path, public: Path) -> None:
    write_passport(release)
    data = json.loads((release / "passport.json").read_text())
    del data["decision"]
    old = json.dumps(data, indent=1, sort_keys=True).encode() + b"\n"
    write_passport_files(release, {"passport.json": old})
    sign_release(release, key)
    found = verify_release(release, key=public)
    assert found.passport == hashlib.sha256(old).hexdigest()
    assert found.decision == "no decision is recorded"
    assert "the files beside the passport are what this version would write from it" in found.checks


def test_an_altered_decision_and_that_of_another_release_are_refused(
    blobs: tuple[np.ndarray, np.ndarray], release: Path, key: Path, tmp_path: Path
) -> None:
    file = Path(decide(release, key).file)
    raw = file.read_bytes()
    for place in (0, raw.index(b"seventeen"), raw.index(b"salt") + 9, len(raw) - 1):
        file.write_bytes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])
        with pytest.raises(ReleaseError):
            verify_release(release, decision=file)
    file.write_bytes(raw)
    verify_release(release, decision=file)
    X, y = blobs
    other = ClassGaussian(random_state=0).fit(X + 1, y).release(no_dp=True).save(tmp_path / "other")
    elsewhere = Path(decide(other, key).file)
    with pytest.raises(IntegrityError, match="another release"):
        verify_release(release, decision=elsewhere)


@pytest.mark.parametrize(("leak", "policy"), [(True, None), (True, False), (False, False)])
def test_approving_against_the_audit_needs_a_public_reason(
    release: Path, key: Path, public: Path, tmp_path: Path, leak: bool, policy: bool | None
) -> None:
    audit = write_audit(release, tmp_path / "audit.json", leak=leak, policy=policy)
    before = everything(tmp_path)
    with pytest.raises(PolicyError, match="--override REASON"):
        decide(release, key, audit=audit)
    for blank in ("", "   "):
        with pytest.raises(ConfigError, match="--override takes"):
            decide(release, key, audit=audit, override=blank)
    assert everything(tmp_path) == before
    made = decide(release, key, audit=audit, override="agreed with the ethics board")
    found = verify_release(release, key=public, decision=Path(made.file))
    assert found.override == made.override == "agreed with the ethics board"
    assert found.refused
    assert found.decision.startswith("approved")
    recorded = read_decision(Path(made.file)).policy
    assert (recorded and (recorded.name, recorded.met)) == (None if policy is None else ("strict", False))


def test_refusing_needs_neither_checks_nor_override(release: Path, key: Path, public: Path, tmp_path: Path) -> None:
    audit = write_audit(release, tmp_path / "audit.json", leak=True, policy=False)
    with pytest.raises(ConfigError, match="did not refuse"):
        decide(release, key, "refused", checklist={}, audit=audit, override="why not")
    decide(release, key, "refused", checklist={}, audit=audit)
    found = verify_release(release, key=public)
    assert found.refused
    assert found.audit.startswith("leak")
    # Signed again, even with another key, it stays refused.
    make_key_pair(tmp_path / "other")
    signed = sign_release(release, tmp_path / "other", overwrite=True)
    assert signed.to_dict()["decision"].startswith("REFUSED")
    assert verify_release(release, key=tmp_path / "other.pub").decision.startswith("REFUSED")
    with pytest.raises(ConfigError, match="leave it out"):
        sign_release(release, key, override="because", overwrite=True)


def test_a_good_audit_needs_no_override(release: Path, key: Path, tmp_path: Path) -> None:
    audit = write_audit(release, tmp_path / "audit.json", leak=False, policy=True)
    with pytest.raises(ConfigError, match="leave it out"):
        decide(release, key, audit=audit, override="because")
    made = decide(release, key, audit=audit)
    assert made.audit.endswith("policy strict: met")
    assert not verify_release(release, decision=Path(made.file)).refused


def test_an_approval_does_not_drop_the_audit(release: Path, key: Path, tmp_path: Path) -> None:
    audit = write_audit(release, tmp_path / "audit.json", leak=True)
    write_passport(release, audit=audit)
    with pytest.raises(ConfigError, match="--audit FILE"):
        decide(release, key, overwrite=True)
    with pytest.raises(PolicyError):
        decide(release, key, audit=audit, overwrite=True)


def test_an_approval_does_not_get_rid_of_the_audit_by_a_refusal_or_a_new_passport(
    release: Path, key: Path, tmp_path: Path
) -> None:
    audit = write_audit(release, tmp_path / "release-audit.json", leak=True)
    with pytest.raises(ConfigError, match="holds an audit"):
        decide(release, key)
    write_passport(release, audit=audit)
    for outcome in ("refused", "approved"):
        with pytest.raises(ConfigError, match="--audit FILE"):
            decide(release, key, outcome, overwrite=True)
    write_passport(release, overwrite=True)
    with pytest.raises(ConfigError, match="--audit FILE"):
        decide(release, key, overwrite=True)
    # That of an earlier release of this name says nothing about this one.
    audit.write_text(json.dumps(json.loads(audit.read_text()) | {"fingerprint": "0" * 64}))
    decide(release, key, overwrite=True)


def test_a_decision_about_another_release_is_kept(
    blobs: tuple[np.ndarray, np.ndarray], release: Path, key: Path, public: Path, tmp_path: Path
) -> None:
    first = decide(release, key)
    sent = Path(shutil.copytree(release, tmp_path / "sent"))
    X, y = blobs
    ClassGaussian(random_state=0).fit(X + 1, y).release(no_dp=True).save(release, overwrite=True)
    with pytest.raises(ConfigError, match="--force"):
        decide(release, key, "refused")
    second = decide(release, key, "refused", overwrite=True)
    assert verify_release(release, key=public, decision=Path(second.file)).refused
    kept = release.with_name(f"release-decision-{first.sha256[:8]}.json")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert not verify_release(sent, key=public, decision=kept).refused


def test_a_decision_does_not_survive_another_audit_in_the_passport(
    release: Path, key: Path, public: Path, tmp_path: Path
) -> None:
    """Who has the key, but did not decide, writes a better audit into the passport and signs again."""
    made = decide(release, key, "refused", audit=write_audit(release, tmp_path / "bad.json", leak=True, policy=False))
    verify_release(release, key=public, decision=Path(made.file))
    good = draft_passport(
        release,
        audit=write_audit(release, tmp_path / "good.json", leak=False, policy=True),
        evaluation=None,
        include_measured=False,
        overwrite=True,
    )
    files = good.filled(read_decision(Path(made.file)).entry()).passport_files
    signature = make_signature(files.hashes, read_private_key(key))
    write_passport_files(release, replace(files, signature=signature).contents(), remove=good.found)
    verify_release(release, key=public)
    with pytest.raises(IntegrityError, match="contradicts"):
        verify_release(release, key=public, decision=Path(made.file))


def test_a_decision_whose_signature_was_removed_is_no_decision(release: Path, key: Path) -> None:
    decide(release, key)
    assert any("anyone could have written" in line for line in verify_release(release).not_checked)
    (release / "signature.json").unlink()
    with pytest.raises(IntegrityError, match="a decision is signed"):
        verify_release(release)


def test_a_file_left_by_a_kill_does_not_cost_the_next_decision(
    release: Path, key: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the release was replaced but before the older decision was removed, then killed again."""
    first = decide(release, key, "refused")
    file = Path(first.file)
    older = file.read_bytes()
    decide(release, key, overwrite=True)
    previous = file.with_name(file.name + ".previous")
    previous.write_bytes(older)

    class Kill(BaseException):
        """What no code catches."""

    def kill(*_: Any, **__: Any) -> None:
        raise Kill

    monkeypatch.setattr(deciding, "write_passport_files", kill)
    # A kill runs no handler either.
    monkeypatch.setattr(deciding, "_is_written", lambda *_: True)
    with pytest.raises(Kill):
        decide(release, key, "refused", overwrite=True)
    assert not verify_release(release, key=public, decision=previous).refused


def test_open_checks_are_named_and_nothing_is_written(release: Path, key: Path, tmp_path: Path) -> None:
    before = everything(tmp_path)
    for checklist in (
        {name: check for name, check in ALL.items() if name not in ("people", "data")},
        ALL | {"people": {"ok": False}, "data": {"ok": False, "note": "not seen"}},
    ):
        with pytest.raises(ConfigError, match="open: people, data") as refused:
            decide(release, key, checklist=checklist)
        for name, (_, question) in SAFES.items():
            assert (question in str(refused.value)) == (name in ("people", "data"))
    assert everything(tmp_path) == before


def test_what_is_there_is_replaced_only_if_asked(release: Path, key: Path, public: Path) -> None:
    first = decide(release, key)
    before = everything(release.parent)
    with pytest.raises(ConfigError, match="--force"):
        decide(release, key, "refused")
    with pytest.raises(ConfigError, match="--force"):
        decide(release, key, "refused", out=release.with_name("other.json"))
    assert everything(release.parent) == before
    second = decide(release, key, "refused", overwrite=True)
    assert second.sha256 != first.sha256
    assert verify_release(release, key=public, decision=Path(second.file)).refused
    assert set(everything(release.parent)) == set(before)
    # A new passport is another basis: the decision about the old one is not carried over.
    assert write_passport(release, overwrite=True).decision_removed
    assert not write_passport(release, overwrite=True).decision_removed


def test_passport_files_that_the_new_ones_repeat_are_replaced_unasked(
    release: Path, key: Path, public: Path, tmp_path: Path
) -> None:
    audit = write_audit(release, tmp_path / "audit.json", leak=False, policy=True)
    write_passport(release, audit=audit)
    sign_release(release, key)
    made = decide(release, key, audit=audit)
    assert verify_release(release, key=public, decision=Path(made.file)).decision.startswith("approved")


def _other_key(release: Path, key: Path, tmp_path: Path) -> None:
    make_key_pair(tmp_path / "another")
    write_passport(release)
    sign_release(release, tmp_path / "another")


def _measured(release: Path, key: Path, tmp_path: Path) -> None:
    audit = write_audit(release, tmp_path / "audit.json", leak=False, policy=True)
    write_passport(release, audit=audit, include_measured=True)


def _damaged(release: Path, key: Path, tmp_path: Path) -> None:
    write_passport(release)
    (release / "passport.md").write_text("better")


def _false_signature(release: Path, key: Path, tmp_path: Path) -> None:
    write_passport(release)
    sign_release(release, key)
    signature = open_release(release).passport_files.signature
    assert signature is not None
    write_passport_files(
        release, {"signature.json": signature.model_copy(update={"signature": "0" * 128}).dumps().encode()}
    )


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (_other_key, "signed with another key. --force"),
        (_measured, "other findings than those given now. --force"),
        (_damaged, "do not verify. --force"),
        (_false_signature, "do not verify. --force"),
    ],
)
def test_other_passport_files_are_replaced_only_if_asked(
    release: Path, key: Path, tmp_path: Path, prepare: Any, why: str
) -> None:
    prepare(release, key, tmp_path)
    audit = tmp_path / "audit.json"
    given = {"audit": audit} if audit.exists() else {}
    before = everything(tmp_path)
    with pytest.raises(LocumError, match=why):
        decide(release, key, "refused", **given)
    assert everything(tmp_path) == before
    assert decide(release, key, "refused", overwrite=True, **given).outcome == "refused"


def test_the_decision_never_lies_in_a_release_and_replaces_no_other_file(
    release: Path, key: Path, tmp_path: Path
) -> None:
    before = everything(tmp_path)
    for out in (release / "decision.json", release / ".." / "release" / "d.json"):
        with pytest.raises(PrivacyError, match="names a person"):
            decide(release, key, out=out)
    with pytest.raises(ConfigError, match="not a decision"):
        decide(release, key, out=key, overwrite=True)
    with pytest.raises(ConfigError, match="does not exist"):
        decide(release, key, out=tmp_path / "none" / "d.json")
    assert everything(tmp_path) == before
    assert decide(release, key, out=tmp_path / "mine.json").file == str(tmp_path / "mine.json")


def test_keys_that_cannot_sign_change_nothing(release: Path, tmp_path: Path) -> None:
    make_key_pair(tmp_path / "locked", passphrase=b"right")
    locked = tmp_path / "locked"
    before = everything(tmp_path)
    for passphrase, word in ((b"wrong", "passphrase is wrong"), (None, "has a passphrase")):
        with pytest.raises(ConfigError, match=word):
            decide(release, locked, passphrase=passphrase)
    with pytest.raises(ConfigError, match="inside the release"):
        decide(release, release / "locked")
    assert everything(tmp_path) == before
    decide(release, locked, passphrase=b"right")
    verify_release(release, key=tmp_path / "locked.pub")


@pytest.mark.parametrize("outcome", ["approved", "refused"])
def test_a_claim_below_its_cost_is_not_signed(release: Path, key: Path, tmp_path: Path, outcome: str) -> None:
    events = (Gaussian(4.0),)
    dp = DPClaim(0.5 * epsilon_of(events, 1e-5), 1e-5, "add-or-remove", tuple(events_to_json(events)), "0" * 64)
    claim = PrivacyClaim(kind="dp", not_covered=("the rest",), dp=dp)
    opened = load(release)
    cheap = Release(opened.manifest.model_copy(update={"claim": claim}), opened.tensors).save(tmp_path / "cheap")
    audit = write_audit(cheap, tmp_path / "audit.json", leak=False)
    before = everything(tmp_path)
    with pytest.raises(PrivacyError, match="costs"):
        decide(cheap, key, outcome)
    with pytest.raises(DataError, match="is of another release"):
        decide(release, key, outcome, audit=audit)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
@pytest.mark.parametrize("decided", [False, True])
def test_a_failed_second_write_leaves_both_as_they_were(
    release: Path, key: Path, public: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, decided: bool
) -> None:
    if decided:
        decide(release, key)
    before = everything(release.parent)
    seen: list[str] = []

    def fail(*_: Any, **__: Any) -> None:
        seen.append(read_decision(release.with_name("release-decision.json")).outcome)
        raise error

    monkeypatch.setattr(deciding, "write_passport_files", fail)
    with pytest.raises(type(error)):
        decide(release, key, "refused", overwrite=True)
    assert seen == ["refused"], "the decision was written first"
    assert everything(release.parent) == before
    if decided:
        verify_release(release, key=public, decision=release.with_name("release-decision.json"))


def test_an_interrupt_after_the_last_step_keeps_the_new_decision(
    release: Path, key: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(release, key)

    def late(*given: Any, **more: Any) -> None:
        write_passport_files(*given, **more)
        raise KeyboardInterrupt

    monkeypatch.setattr(deciding, "write_passport_files", late)
    with pytest.raises(KeyboardInterrupt):
        decide(release, key, "refused", overwrite=True)
    assert verify_release(release, key=public, decision=release.with_name("release-decision.json")).refused


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
@pytest.mark.parametrize("decided", [False, True])
def test_a_kill_between_the_writes_loses_no_decision(release: Path, key: Path, public: Path, decided: bool) -> None:
    file = release.with_name("release-decision.json")
    if decided:
        decide(release, key)
    before = everything(release)
    code = (
        "import os, signal, sys\nfrom pathlib import Path\nimport locum.recipes.decide as deciding\n"
        "deciding.write_passport_files = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        "deciding.decide_release(Path(sys.argv[1]), outcome='refused', name='n', reason='r', checklist={}, "
        "key=Path(sys.argv[2]), overwrite=True)"
    )
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", code, str(release), str(key)], env=dict(os.environ))
        assert ran.returncode == -signal.SIGKILL
        assert everything(release) == before
        assert read_decision(file).outcome == "refused"
        if decided:
            # What is signed still has its decision, also after a second kill.
            kept = file.with_name(file.name + ".previous")
            assert stat.S_IMODE(kept.stat().st_mode) == 0o600
            assert not verify_release(release, key=public, decision=kept).refused
            with pytest.raises(IntegrityError):
                verify_release(release, decision=file)
        else:
            assert verify_release(release).decision == "no decision is recorded"
    made = decide(release, key, "refused", overwrite=True)
    verify_release(release, key=public, decision=Path(made.file))
    assert not file.with_name(file.name + ".previous").exists()


def test_only_a_release_is_decided_on(key: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(LocumError):
            decide(path, key)
    assert set(everything(tmp_path)) == {"key", "key.pub"}
