"""The record of a decision: strict, stable, salted, and bound to one release by the hash in its passport."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from locum.errors import ConfigError, FormatError, IntegrityError, LocumError, SchemaVersionError
from locum.io import write_bytes
from locum.release import Manifest, decision_sentence, holder_refuses, load
from locum.release.passport import (
    FIVE_SAFES,
    AttackEntry,
    AuditEntry,
    Decision,
    Passport,
    PolicyEntry,
    build_passport,
    check_decision,
    make_decision,
    parse_decision,
    parse_passport,
    read_decision,
)
from locum.release.passport.schema import TOLD_DECISION, passport_schema
from locum.report.passport import passport_html, passport_markdown

HASH = "ab" * 32
ALL = {name: {"ok": True, "note": f"{name} seen"} for name in FIVE_SAFES}


def decide(outcome: str = "approved", **more: Any) -> Decision:
    given = {"release": HASH, "name": "R. Okafor", "reason": "Agreed: case 17", "checklist": ALL} | more
    return make_decision(outcome=outcome, **given)


@pytest.fixture
def manifest(folder: Path) -> Manifest:
    return load(folder).manifest


def passport_of(manifest: Manifest, decision: Decision | None) -> Passport:
    entry = None if decision is None else decision.entry()
    return build_passport(manifest, HASH, written_on="2030-01-31", decision=entry)


def test_what_is_written_is_read_again_byte_for_byte() -> None:
    for outcome in ("approved", "refused"):
        decision = decide(outcome)
        raw = decision.dumps().encode()
        assert parse_decision(raw) == decision
        assert parse_decision(raw).dumps().encode() == raw
        assert decision.entry().decided_on == decision.decided_on[:10]
        assert decision.policy is None
    names = decide("refused", checklist={"data": {"ok": True}}).checklist
    assert names.open_checks() == ["projects", "people", "settings", "outputs"]


def test_the_same_facts_never_have_the_same_hash() -> None:
    made = [decide() for _ in range(20)]
    assert len({d.salt for d in made}) == len({d.sha256 for d in made}) == 20
    assert {len(d.salt) for d in made} == {64}


def test_the_policy_of_the_audit_is_recorded() -> None:
    attack = AttackEntry(name="nearest distance", measure="auc", verdict="leak")
    audit = AuditEntry(verdict="leak", results=(attack,), policy=PolicyEntry(name="public", met=False))
    found = decide("refused", audit=audit).policy
    assert found is not None
    assert (found.name, found.met) == ("public", False)
    assert decide("refused", audit=audit.model_copy(update={"policy": None})).policy is None


def test_every_changed_byte_is_seen(manifest: Manifest) -> None:
    decision = decide()
    raw, passport = decision.dumps().encode(), passport_of(manifest, decision)
    check_decision(parse_decision(raw), passport)
    for place in range(len(raw)):
        altered = raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :]
        with pytest.raises(LocumError):
            check_decision(parse_decision(altered), passport)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"surprise": 1}, "surprise"),
        ({"format": "else"}, "does not describe"),
        ({"release": "abc"}, "release"),
        ({"outcome": "perhaps"}, "outcome"),
        ({"name": ""}, "name"),
        ({"name": "\u202eR. Okafor"}, "printable"),
        ({"reason": "one\ntwo"}, "printable"),
        ({"reason": "x" * 1001}, "reason"),
        ({"decided_on": "2026-01-31"}, "decided_on"),
        ({"decided_on": "2026-02-31T10:00:00Z"}, "decided_on"),
        ({"salt": "0"}, "salt"),
        ({"checklist": {}}, "checklist"),
        ({"checklist": ALL | {"people": {"ok": False, "note": ""}}}, "all five checks"),
        ({"checklist": ALL | {"people": {"ok": "yes", "note": ""}}}, "people"),
    ],
)
def test_what_breaks_the_format_is_refused(change: dict[str, Any], word: str) -> None:
    data = json.loads(decide().dumps()) | change
    with pytest.raises(FormatError, match=word):
        parse_decision(json.dumps(data, indent=1, sort_keys=True).encode() + b"\n")


def test_a_newer_version_or_another_encoding_is_refused() -> None:
    data = json.loads(decide().dumps())
    with pytest.raises(SchemaVersionError):
        parse_decision(json.dumps(data | {"schema_version": 2}).encode())
    with pytest.raises(FormatError, match="only valid encoding"):
        parse_decision(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"outcome": "maybe"}, "'maybe'"),
        ({"name": " "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"reason": ""}, "reason"),
        ({"reason": "two\nlines"}, "reason"),
        ({"checklist": ALL | {"luck": {"ok": True}}}, "'luck'"),
        ({"checklist": ALL | {"data": {"ok": True, "note": "x" * 301}}}, "data.note"),
        ({"checklist": ALL | {"data": {"ok": 1}}}, "data.ok"),
        ({"checklist": ALL | {"data": True}}, "data"),
        ({"checklist": ALL | {"data": {"ok": False}, "people": {"ok": False}}}, "open: people, data"),
        ({"checklist": {}}, "open: projects, people, settings, data, outputs"),
    ],
)
def test_wrong_input_is_one_sentence(given: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word) as raised:
        decide(**given)
    assert str(raised.value).isprintable()


def test_a_passport_names_the_decision_that_it_contradicts_or_not(manifest: Manifest) -> None:
    decision = decide("refused")
    passport = passport_of(manifest, decision)
    check_decision(decision, passport)
    for other in (None, passport_of(manifest, None)):
        with pytest.raises(ConfigError, match="no decision in its passport"):
            check_decision(decision, other)
    with pytest.raises(IntegrityError, match="another release"):
        check_decision(decide("refused", release="cd" * 32), passport)
    with pytest.raises(IntegrityError, match="hash differs"):
        check_decision(decide("refused"), passport)
    # The hash of a refusal beside the word "approved".
    assert passport.decision is not None
    for change in ({"outcome": "approved"}, {"decided_on": "1999-12-31"}):
        false = passport.model_copy(update={"decision": passport.decision.model_copy(update=change)})
        with pytest.raises(IntegrityError, match="contradicts"):
            check_decision(decision, false)


def test_the_passport_says_outcome_date_and_hash_and_nothing_else(manifest: Manifest) -> None:
    for outcome, word in (("approved", "approved"), ("refused", "REFUSED")):
        decision = decide(outcome)
        passport = passport_of(manifest, decision)
        assert parse_passport(passport.dumps().encode()) == passport
        jsonschema.validate(json.loads(passport.dumps()), json.loads(passport_schema()))
        sentence = f"{word} by the holder on {decision.decided_on[:10]}"
        assert decision_sentence(passport) == sentence
        assert holder_refuses(passport) == (outcome == "refused")
        for text in (passport_html(passport), passport_markdown(passport)):
            assert f"{sentence}; SHA-256 of the decision: {decision.sha256}" in text
            # Also at the top, where the question is asked.
            assert f"{sentence[0].upper()}{sentence[1:]}. Who decided" in text
            assert "This page does not decide" not in text
        texts = passport.dumps() + passport_html(passport) + passport_markdown(passport)
        for secret in ("Okafor", "case 17", "people seen", decision.salt, decision.decided_on):
            assert secret not in texts
        data = json.loads(passport.dumps())
        data["claim"]["not_covered"].remove(TOLD_DECISION)
        with pytest.raises(FormatError, match="decision must be named"):
            parse_passport(json.dumps(data).encode())


def test_a_passport_from_before_decisions_is_read(manifest: Manifest) -> None:
    passport = passport_of(manifest, None)
    data = json.loads(passport.dumps())
    assert data.pop("decision") is None
    assert parse_passport(json.dumps(data).encode()) == passport
    jsonschema.validate(data, json.loads(passport_schema()))
    assert decision_sentence(passport) == "no decision is recorded"
    assert TOLD_DECISION not in passport.claim.not_covered
    assert "by the holder on" not in passport_html(passport) + passport_markdown(passport)


def test_only_a_file_of_fair_size_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_decision(tmp_path / "none.json")
    write_bytes(tmp_path / "long.json", b" " * 70000)
    with pytest.raises(ConfigError, match="more than 65536"):
        read_decision(tmp_path / "long.json")
    # The longest decision fits: letters outside of ASCII take six or twelve bytes each.
    long = {name: {"ok": True, "note": "\U0001f600" * 300} for name in FIVE_SAFES}
    decision = decide(name="\U0001f600" * 100, reason="\U0001f600" * 1000, checklist=long)
    write_bytes(tmp_path / "fair.json", decision.dumps().encode())
    assert read_decision(tmp_path / "fair.json") == decision
