"""The schema of a passport: what it may say, whose it must be, and what it can never hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from locum.accounting import Gaussian, epsilon_of, events_to_json
from locum.errors import FormatError, IntegrityError, SchemaVersionError
from locum.release import Manifest, Release, load
from locum.release.card import render_card
from locum.release.passport import (
    AttackEntry,
    AuditEntry,
    Passport,
    UtilityEntry,
    build_passport,
    parse_passport,
    render_croissant,
    render_registry,
)
from locum.release.passport.schema import (
    LISTED,
    MEASURED,
    TOLD_VERDICTS,
    Figure,
    UtilityRow,
    check_passport,
    passport_schema,
)
from locum.types import DPClaim, PrivacyClaim, Verdict, worst_verdict

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "passport.schema.json"
HASH = "ab" * 32
FIGURE = Figure(value=0.5, low=0.4, high=0.6)
EVENTS = (Gaussian(4.0),)
NEAREST: dict[str, Any] = {"name": "nearest distance", "measure": "auc"}
FOUND = AuditEntry(verdict="inconclusive", results=(AttackEntry(**NEAREST, verdict="inconclusive"),))


@pytest.fixture
def manifest(folder: Path) -> Manifest:
    return load(folder).manifest


@pytest.fixture
def private(manifest: Manifest) -> Manifest:
    """The same with a claim of differential privacy."""
    dp = DPClaim(epsilon_of(EVENTS, 1e-5), 1e-5, "add-or-remove", tuple(events_to_json(EVENTS)), "0" * 64)
    claim = PrivacyClaim(kind="dp", not_covered=("the rest",), unit="subject", dp=dp)
    return manifest.model_copy(update={"claim": claim})


def build(manifest: Manifest, **more: Any) -> Passport:
    return build_passport(manifest, HASH, written_on="2030-01-31", **more)


def test_a_passport_says_what_the_manifest_says_and_no_count(folder: Path, gaussian: Release) -> None:
    manifest = load(folder).manifest
    passport = build(manifest)
    again = parse_passport(passport.dumps().encode())
    assert again == passport
    assert again.claim == gaussian.claim
    assert again.release.files == {name: entry.sha256 for name, entry in manifest.files.items()}
    assert again.claim.dp is None
    assert not again.has_figures
    # 210 records, 120, 60 and 30 of each class.
    assert not {"210", "120", "60", "30"} & set(passport.dumps().replace(",", " ").replace(":", " ").split())


def test_a_test_is_marked_as_one_on_card_and_passport(manifest: Manifest) -> None:
    test = manifest.model_copy(update={"claim": replace(manifest.claim, test=True)})
    passport = build(test)
    assert passport.claim == test.claim
    assert "a test, made with an insecure seed" in " ".join(passport.threat_model.not_proven)
    assert "a test" not in " ".join(build(manifest).threat_model.not_proven)
    for claim, marked in ((test, True), (manifest, False)):
        assert ("This is a test" in render_card(claim)) == marked
        assert ("This is a test" in render_croissant(claim, build(claim))) == marked
    # Whoever drops the mark from the passport makes another claim.
    hidden = passport.model_copy(update={"claim": manifest.claim})
    with pytest.raises(IntegrityError, match="another claim"):
        check_passport(hidden, test, HASH)


def test_the_ledger_extract_is_that_of_the_claim(private: Manifest) -> None:
    passport = build(private)
    assert passport.claim == private.claim
    assert passport.claim.dp is not None
    assert any("exp(" in line for line in passport.threat_model.proven)
    record = json.loads(render_registry(private, passport))
    assert record["parameters"]["epsilon"] == private.claim.dp.epsilon  # type: ignore[union-attr]
    assert record["unit"]["protected"] == "subject"
    assert record["mechanisms"] == [{"kind": "gaussian", "noise_multiplier": 4.0}]
    assert record["flavor"].startswith("approximate")


def test_what_was_measured_is_named_as_not_covered(manifest: Manifest) -> None:
    told = AuditEntry(verdict="leak", results=(AttackEntry(**NEAREST, verdict="leak", attack=FIGURE),))
    useful = UtilityEntry(head="linear", seeds=3, rows=(UtilityRow(method="release", scores={"auc": FIGURE}),))
    own = manifest.claim.not_covered
    assert build(manifest).claim.not_covered == own
    assert build(manifest, audit=FOUND).claim.not_covered == (*own, TOLD_VERDICTS)
    assert build(manifest, audit=told).claim.not_covered == (*own, TOLD_VERDICTS, MEASURED)
    assert build(manifest, utility=useful).claim.not_covered == (*own, MEASURED)
    for full, named in ((build(manifest, audit=told), MEASURED), (build(manifest, audit=FOUND), TOLD_VERDICTS)):
        data = full.model_dump(mode="json")
        data["claim"]["not_covered"].remove(named)
        with pytest.raises(FormatError, match="named in `not_covered`"):
            parse_passport(json.dumps(data).encode())


@given(st.lists(st.sampled_from(["leak", "inconclusive", "no excess risk found"]), min_size=1, max_size=9))
def test_one_bad_result_is_enough(verdicts: list[Verdict]) -> None:
    worst = worst_verdict(*verdicts)
    assert worst in verdicts
    assert (worst == "leak") == ("leak" in verdicts)
    assert (worst == "no excess risk found") == (set(verdicts) == {"no excess risk found"})
    results = tuple(AttackEntry(**NEAREST, verdict=v) for v in verdicts)
    assert AuditEntry(verdict=worst, results=results).verdict == worst
    # Doubts about the data may make it worse, nothing makes it better.
    assert AuditEntry(verdict="leak", results=results).verdict == "leak"
    if worst != "no excess risk found":
        with pytest.raises(ValidationError):
            AuditEntry(verdict="no excess risk found", results=results)


def test_a_policy_is_not_met_by_a_leak_and_a_broken_guarantee_is_a_leak() -> None:
    broken: dict[str, Any] = {"lower": 2.0, "upper": 1.0, "delta": 1e-5, "confidence": 0.95, "canaries": 1000}
    fine = {**NEAREST, "verdict": "no excess risk found"}
    for data in (
        {"verdict": "leak", "results": [fine], "policy": {"name": "public", "met": True}},
        {
            "verdict": "inconclusive",
            "results": [fine],
            "policy": {"name": "public", "met": True, "rules": [{"rule": "r", "met": False}]},
        },
        {"verdict": "inconclusive", "results": [fine], "epsilon_audit": {"verdict": "broken guarantee", **broken}},
        {"verdict": "leak", "results": [fine], "epsilon_audit": {"verdict": "no contradiction found", **broken}},
    ):
        with pytest.raises(ValidationError):
            AuditEntry.model_validate(data)
    told = {"verdict": "leak", "results": [fine], "epsilon_audit": {"verdict": "broken guarantee", **broken}}
    assert AuditEntry.model_validate(told).epsilon_audit is not None


def test_the_schema_in_the_docs_is_the_one_in_force(manifest: Manifest, private: Manifest) -> None:
    assert SCHEMA.read_text() == passport_schema(), "write it anew: see `passport_schema`"
    schema = json.loads(SCHEMA.read_text())
    for passport in (build(manifest, audit=FOUND), build(private)):
        data = json.loads(passport.dumps())
        jsonschema.validate(data, schema)
        for change in ({"surprise": 1}, {"claim": {**data["claim"], "kind": "perfect"}}, {"written_on": "today"}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({**data, **change}, schema)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"surprise": 1}, "surprise"),
        ({"format": "else"}, "does not describe"),
        ({"schema_version": 2}, "schema version 2"),
        ({"written_on": "today"}, "written_on"),
        ({"audit": {"verdict": "no excess risk found", "results": []}}, "audit.results"),
        ({"claim": {"kind": "dp", "not_covered": ["x"]}}, "impossible claim: .* ledger"),
        ({"ledger": None}, "ledger"),
        ({"files": {"malware.html": {"sha256": HASH, "bytes": 1}}}, "files"),
        ({"utility": {"head": "x", "seeds": 1, "rows": [{"method": "m", "scores": {"auc": {"value": 1}}}]}}, "low"),
    ],
)
def test_what_breaks_the_schema_is_refused(private: Manifest, change: dict[str, Any], word: str) -> None:
    data = json.loads(build(private).dumps())
    with pytest.raises((FormatError, SchemaVersionError), match=word):
        parse_passport(json.dumps({**data, **change}).encode())


def test_a_passport_of_another_release_is_refused(manifest: Manifest, private: Manifest) -> None:
    def listed(passport: Passport, names: set[str]) -> Passport:
        return passport.model_copy(update={"files": dict.fromkeys(names, None)})

    plain = set(LISTED) - {"dp-registry.json"}
    passport = listed(build(private), set(LISTED))
    check_passport(passport, private, HASH)
    check_passport(listed(build(manifest), plain), manifest, HASH)
    with pytest.raises(IntegrityError, match="another release"):
        check_passport(passport, private, "cd" * 32)
    with pytest.raises(IntegrityError, match="must list"):
        check_passport(listed(build(private), plain), private, HASH)
    assert passport.claim.dp is not None
    better = replace(passport.claim.dp, epsilon=0.1)
    for changes in (
        {"dp": better},
        {"unit": "record"},
        {"not_covered": ("nothing of note",)},
        {"assumptions": ("all is well",)},
    ):
        claim = replace(passport.claim, **changes)  # type: ignore[arg-type]
        with pytest.raises(IntegrityError, match="another claim"):
            check_passport(passport.model_copy(update={"claim": claim}), private, HASH)


def test_croissant_describes_a_decoder_honestly(manifest: Manifest) -> None:
    about = json.loads(render_croissant(manifest, build(manifest)))
    assert about["conformsTo"] == "http://mlcommons.org/croissant/1.0"
    assert {f["name"]: f["sha256"] for f in about["distribution"]} == {
        "manifest.json": HASH,
        **{name: entry.sha256 for name, entry in manifest.files.items()},
    }
    assert "not a table but a decoder" in about["description"]
    assert "contentSize" not in json.dumps(about), "the size of a table would tell its rows"
    (classes,) = about["recordSet"]
    assert [row["classes/name"] for row in classes["data"]] == ["ant", "bee", "cat"]
    assert sum(row["classes/share"] for row in classes["data"]) == pytest.approx(1, abs=1e-3)
    assert {field["@id"] for field in classes["field"]} == set(classes["data"][0])
