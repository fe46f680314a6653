"""The passport to read: page and text say the same, escape untrusted text, and fetch nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from locum.release import CARD, FileEntry, Release
from locum.release.passport import (
    AttackEntry,
    AuditEntry,
    Passport,
    PolicyEntry,
    RuleEntry,
    UtilityEntry,
    build_passport,
    parse_passport,
)
from locum.release.passport.schema import Figure, UtilityRow
from locum.report.passport import passport_facts, passport_html, passport_markdown

Make = Callable[..., Release]
HASH = "ab" * 32


def a_passport(release: Release, *, full: bool = False) -> Passport:
    files = {CARD: FileEntry(sha256=HASH, bytes=1), "decoder.safetensors": FileEntry(sha256=HASH, bytes=1)}
    manifest = release.manifest.model_copy(update={"files": files})
    if not full:
        return build_passport(manifest, HASH, written_on="2030-01-31")
    figure = Figure(value=0.71, low=0.6, high=None)
    attack = AttackEntry(
        name="density ratio",
        measure="auc",
        verdict="leak",
        attack=figure,
        control=figure,
        tpr={"0.01": figure},
    )
    other = AttackEntry(name="nearest distance", measure="auc", verdict="no excess risk found")
    return build_passport(
        manifest,
        HASH,
        written_on="2030-01-31",
        audit=AuditEntry(
            verdict="leak",
            results=(other, attack),
            policy=PolicyEntry(
                name="public", met=False, rules=(RuleEntry(rule="no attack found a leak", met=False),)
            ),
        ),
        utility=UtilityEntry(
            head="linear", seeds=2, rows=(UtilityRow(method="release (X)", scores={"auc": figure}),)
        ),
    )


def test_page_and_sheet_say_the_same(make: Make) -> None:
    passport = a_passport(make(), full=True)
    facts = passport_facts(passport)
    page, sheet = passport_html(passport), passport_markdown(passport)
    for text in (page, sheet):
        flat = re.sub(r"<[^>]*>|\s+", " ", text).replace("&#39;", "'")
        for words in (*facts["claim"]["not_covered"], facts["claim"]["sentence"], facts["audit_words"]):
            assert words in flat, words
        for sentences in facts["threats"].values():
            assert all(sentence in flat for sentence in sentences)
        assert "density ratio" in flat
        assert "0.71" in flat
        assert "policy public" in flat.lower()
        assert "no attack found a leak" in flat
        assert HASH in flat
    assert "verdict leak" in page
    assert facts["figures"] == ["attack", "control", "TPR at 1% FPR"]


def test_a_passport_that_was_read_gives_the_same_text(make: Make) -> None:
    """Or `verify` could not compare."""
    passport = a_passport(make(), full=True)
    read = parse_passport(passport.dumps().encode())
    assert passport_html(read) == passport_html(passport)
    assert passport_markdown(read) == passport_markdown(passport)


def test_what_is_missing_is_said(make: Make) -> None:
    passport = a_passport(make())
    for text in (passport_html(passport), passport_markdown(passport)):
        assert "No attack is reported" in text
        assert "is not reported: such figures depend on records" in text
        assert "ledger was charged" not in text


@pytest.mark.parametrize("rows", [False, True])
def test_nothing_runs_and_nothing_is_fetched(make: Make, rows: bool) -> None:
    hostile = "<script>alert(1)</script>"
    release = make(rows=rows)
    embedding = release.manifest.embedding.model_copy(update={"backbone": hostile + "[x](http://x)"})
    bad = Release(release.manifest.model_copy(update={"embedding": embedding}), release.tensors)
    page, sheet = passport_html(a_passport(bad)), passport_markdown(a_passport(bad))
    assert "<script" not in page + sheet
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page
    assert not re.search(r"""(src|href)\s*=\s*["'](?!#)""", page)
    assert "[x](" not in sheet
