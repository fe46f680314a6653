"""Masked sums: totals equal plain sums whoever drops out, every refusal, hostile input, and frozen test vectors."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA384
from hypothesis import assume, given, settings, strategies as st
from tests import masking_twin as twin
from tests.masked_run import QUERY, MaskedRun, key_of, plain_sum

from locum.errors import ConfigError, FormatError, PrivacyError
from locum.federated.mask_keys import _FIELD, _LOW_ORDER
from locum.federated.mask_terms import context
from locum.federated.masking import (
    MaskedStep,
    MaskingSite,
    MaskTerms,
    announce,
    check_announcement,
    check_sites,
    noise_left,
)

VECTORS = json.loads((Path(__file__).parent / "masking_vectors.json").read_text())
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "masking_vectors.py"


def allowed(n: int) -> list[tuple[int, int]]:
    """All `absent` and `colluding` for n sites, by the definition."""
    pairs = itertools.product(range(n), range(1, n + 1))
    return [(a, c) for a, c in pairs if 2 * (n - a) > n + c and n - a - c >= 2]


@pytest.fixture(scope="module")
def shared() -> MaskedRun:
    """Five sites that have shared, and have answered step 0; tests that change something copy a site."""
    run = MaskedRun(5, 1, 1, steps=2)
    run.share()
    run.mask(run.integers(), run.names, run.names)
    return run


# Totals


@given(st.integers(3, 8), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=40)
def test_the_total_is_the_plain_sum_whoever_drops_out(n: int, seed: int, data: st.DataObject) -> None:
    absent, colluding = data.draw(st.sampled_from(allowed(n)))
    run = MaskedRun(n, absent, colluding, seed=seed)
    left, stages = list(run.names), []
    # At each stage some more sites stay away, as long as the threshold is kept.
    for _ in range(6):
        most = len(left) - run.terms.threshold
        gone = data.draw(st.sets(st.sampled_from(left), max_size=most))
        left = [name for name in left if name not in gone]
        stages.append(left)
    announcing, sharing, participants, answered, confirming, opening = stages
    run.share(announcing, sharing)
    integers = run.integers(words=data.draw(st.integers(0, 9)))
    masked = run.mask(integers, participants, answered)
    total = masked.total(run.open(masked, confirming, opening))
    assert total.dtype == np.int64
    assert total.tolist() == plain_sum(integers, answered)
    assert masked.wrong_shares == {}


def test_a_site_may_be_away_for_one_step_and_back_for_the_next() -> None:
    run = MaskedRun(5, 1, 1, steps=5)
    run.share()
    for step, gone in enumerate(run.names):
        rest = [name for name in run.names if name != gone]
        integers = run.integers()
        masked = run.mask(integers, run.names, rest, step)
        assert masked.total(run.open(masked, rest, rest)).tolist() == plain_sum(integers, rest)


def test_a_site_goes_on_in_a_new_process_after_each_message() -> None:
    run = MaskedRun(4, 1, 1)

    def restart() -> None:
        for name in run.names:
            run.sites[name] = run.restarted(name, json.loads(json.dumps(run.sites[name].state)))

    restart()
    blobs = {name: site.share(run.said) for name, site in run.sites.items()}
    restart()
    # After a crash a coordinator asks again, and gets the same bytes.
    assert {name: site.share(run.said) for name, site in run.sites.items()} == blobs
    run.share()
    restart()
    run.share()
    integers = run.integers()
    masked = run.mask(integers, run.names, run.names[:3])
    restart()
    signed = {name: run.sites[name].confirm(0, masked.answered) for name in masked.answered}
    restart()
    opened = {name: run.sites[name].open(0, signed) for name in masked.answered}
    restart()
    assert {name: run.sites[name].open(0, signed) for name in masked.answered} == opened
    assert masked.total(opened).tolist() == plain_sum(integers, masked.answered)


def test_every_nist_curve_signs() -> None:
    curves = (ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1())
    keys = {f"site-{curve.name}": ec.generate_private_key(curve) for curve in curves}
    public = {name: key.public_key() for name, key in keys.items()}
    terms = MaskTerms("curves", "00" * 32, public, absent=0, colluding=1, steps=1)
    for name, key in keys.items():
        check_announcement(terms, name, announce(terms, name, b"m" * 32, key))


# Numbers of sites


@pytest.mark.parametrize("n", range(1, 9))
def test_numbers_of_sites_are_refused_by_the_rule_and_the_remedy_works(n: int) -> None:
    good = allowed(n)
    for absent, colluding in itertools.product(range(n), range(1, n + 1)):
        if (absent, colluding) in good:
            check_sites(n, absent, colluding)
            continue
        with pytest.raises(ConfigError) as caught:
            check_sites(n, absent, colluding)
        if n < 3:
            assert "at least 3" in str(caught.value)
            continue
        remedy = str(caught.value).split(": ")[1]
        numbers = [int(word.strip(".;")) for word in remedy.split() if word.strip(".;").isdigit()]
        for part in remedy.rstrip(".").split("; "):
            words = part.split()
            if part.startswith("with `colluding`"):
                assert (int(words[-1]), colluding) in good
                assert (int(words[-1]) + 1, colluding) not in good
            elif part.startswith("with `absent`"):
                assert (absent, int(words[-1])) in good
                assert (absent, int(words[-1]) + 1) not in good
            else:
                assert (0, 1) in good
                assert (0, numbers[-1]) in good


def test_noise_left_by_hand() -> None:
    # Ten sites, t = 8, H = 6, each with sigma / sqrt(6). Up to 5 colluders the masks hold (16 > 10 + 5).
    assert [noise_left(10, 2, 2, c) ** 2 * 6 for c in range(11)] == pytest.approx([8, 7, 6, 5, 4, 3, 1, 1, 1, 1, 1])
    # Nobody may be absent: a sum of all opens or none, so n - 2 colluders leave two noises.
    assert noise_left(10, 0, 2, 8) == math.sqrt(2 / 8)
    assert noise_left(10, 0, 2, 9) == noise_left(10, 0, 2, 10) == math.sqrt(1 / 8)
    for n in range(3, 9):
        for absent, colluding in allowed(n):
            left = [noise_left(n, absent, colluding, c) for c in range(n + 1)]
            assert left[colluding] == 1
            assert left == sorted(left, reverse=True)
    for colluders in (-1, 11, 1.0, True):
        with pytest.raises(ConfigError, match="colluders"):
            noise_left(10, 2, 2, colluders)  # type: ignore[arg-type]


def test_terms_refuse_what_cannot_be_pinned() -> None:
    keys: dict[str, Any] = {name: key_of(name).public_key() for name in ("a", "b", "c")}
    good: dict[str, Any] = {"run": "r", "terms": "00" * 32, "sites": keys, "absent": 0, "colluding": 1, "steps": 1}
    assert MaskTerms(**good).honest == 2
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"run": ""}, "run"),
        ({"terms": "0X" * 32}, "terms"),
        ({"steps": 0}, "steps"),
        ({"steps": True}, "steps"),
        ({"sites": {**keys, "d": keys["a"]}}, "same public key"),
        ({"sites": {**keys, "d": X25519PrivateKey.generate().public_key()}}, "NIST"),
        ({"sites": {**keys, "d/e": key_of("d").public_key()}}, "name"),
        ({"absent": 1}, "absent"),
        ({"absent": 0.5}, "absent"),
        ({"colluding": 0}, "colluding"),
    ]
    for change, text in wrong:
        with pytest.raises(ConfigError, match=text):
            MaskTerms(**{**good, **change})
    with pytest.raises(ConfigError, match="32 random bytes"):
        announce(MaskTerms(**good), "a", b"short", key_of("a"))
    with pytest.raises(ConfigError, match="pinned"):
        announce(MaskTerms(**good), "a", b"m" * 32, key_of("b"))
    with pytest.raises(ConfigError, match="not one of"):
        MaskingSite(MaskTerms(**good), "z", b"m" * 32, key_of("z"))


def test_a_context_depends_on_everything() -> None:
    keys = {name: key_of(name).public_key() for name in ("a", "b", "c")}
    runs = [("one", "00"), ("two", "00"), ("one", "11")]
    terms = [MaskTerms(run, text * 32, keys, absent=0, colluding=1, steps=2) for run, text in runs]
    told = {"announcements": "00", "step": 0, "query": bytes(32), "participants": ("a", "b", "c"), "words": 3}
    changes: list[dict[str, Any]] = [{}, {"announcements": "11"}, {"step": 1}, {"query": b"q" * 32}]
    changes += [{"participants": ("a", "b")}, {"words": 4}]
    found = [context(terms[0], **{**told, **change}) for change in changes]
    found += [context(other, **told) for other in terms[1:]]  # type: ignore[arg-type]
    assert len(set(found)) == len(found) == 8


# Refusals


def test_a_step_is_masked_once_even_with_the_same_request(shared: MaskedRun) -> None:
    site = shared.restarted("site-00")
    for numbers in (np.zeros(4, np.int64), np.ones(4, np.int64)):
        with pytest.raises(PrivacyError, match="masked once"):
            site.mask(0, QUERY, shared.names, numbers)
    with pytest.raises(PrivacyError, match="masked once"):
        site.check_mask(0, QUERY, shared.names)
    site.check_mask(1, QUERY, shared.names)
    site.mask(1, QUERY, shared.names, np.zeros(4, np.int64))


@pytest.mark.parametrize(
    ("participants", "error", "text"),
    [
        (["site-01", "site-02", "site-03", "site-04"], PrivacyError, "lacks this site"),
        (["site-00", "site-01", "site-02"], PrivacyError, "4 are needed"),
        (["site-00", "site-01", "site-02", "site-09"], PrivacyError, "'site-09', which cannot take part"),
        (["site-00", "site-00", "site-01", "site-02", "site-03"], FormatError, "twice"),
        ("site-00", FormatError, "list of names"),
        ([["site-00"]], FormatError, "list of names"),
        (None, FormatError, "list of names"),
    ],
)
def test_lists_that_cannot_be_summed(shared: MaskedRun, participants: Any, error: type, text: str) -> None:
    site = shared.restarted("site-00")
    for call in (
        lambda: site.check_mask(1, QUERY, participants),
        lambda: site.mask(1, QUERY, participants, np.zeros(4, np.int64)),
        lambda: site.confirm(0, participants),
    ):
        with pytest.raises(error, match=text):
            call()
    assert site.state == shared.sites["site-00"].state


def test_nothing_happens_out_of_order() -> None:
    run = MaskedRun(4, 1, 1)
    site = run.sites["site-00"]
    for call, text in (
        (lambda: site.receive({}), "before the list"),
        (lambda: site.mask(0, QUERY, run.names, np.zeros(1, np.int64)), "before the other sites' shares"),
        (lambda: site.confirm(0, run.names), "has not answered"),
        (lambda: site.open(0, {}), "has not answered"),
    ):
        with pytest.raises(PrivacyError, match=text):
            call()
    run.share()
    run.mask(run.integers(), run.names, run.names)
    with pytest.raises(PrivacyError, match="has not confirmed"):
        site.open(0, {})


def test_only_vectors_of_int64_are_masked(shared: MaskedRun) -> None:
    site = shared.restarted("site-00")
    for bad in (np.zeros(2), np.zeros((2, 2), np.int64), np.zeros(2, np.uint64), np.zeros(2, ">i8"), [1, 2]):
        with pytest.raises(FormatError, match="int64"):
            site.mask(1, QUERY, shared.names, bad)  # type: ignore[arg-type]
    assert "1" not in site.state["steps"]


def test_shares_come_once_and_from_listed_sites() -> None:
    run = MaskedRun(5, 1, 1)
    run.share()
    site, others = run.sites["site-00"], run.names[1:]
    site.receive(run.for_site("site-00", others))
    with pytest.raises(PrivacyError, match="other shares"):
        site.receive(run.for_site("site-00", others[:3]))
    fresh = MaskedRun(5, 1, 1)
    fresh.said = {name: fresh.said[name] for name in fresh.names[:4]}
    fresh.sites["site-00"].share(fresh.said)
    with pytest.raises(PrivacyError, match="'site-04', which is not another site"):
        fresh.sites["site-00"].receive(dict.fromkeys(fresh.names[1:], b""))
    with pytest.raises(PrivacyError, match="with 3 or more"):
        fresh.sites["site-00"].receive(dict.fromkeys(fresh.names[1:3], b""))
    with pytest.raises(FormatError, match="shares of 'site-01'"):
        fresh.sites["site-00"].receive(dict.fromkeys(fresh.names[1:4], b"short"))


def test_a_state_of_another_run_or_a_damaged_one_is_refused(shared: MaskedRun) -> None:
    state = shared.sites["site-00"].state
    with pytest.raises(FormatError, match="another run"):
        MaskedRun(5, 1, 1, steps=2, run="second").restarted("site-00", state)
    with pytest.raises(FormatError, match="another run"):
        shared.restarted("site-01", state)
    damaged: list[dict[str, Any]] = [{}, {**state, "shares": {"site-01": "00"}}, {**state, "steps": {"x": {}}}]
    damaged += [{**state, "announcements": {"site-01": 3}}, {k: v for k, v in state.items() if k != "steps"}]
    for bad in damaged:
        with pytest.raises(FormatError):
            shared.restarted("site-00", bad)


# The coordinator's side


def opened_run(n: int = 6, absent: int = 2) -> tuple[MaskedRun, MaskedStep, dict[str, Any], list[int]]:
    """Six sites, of which five answered and revealed; four are needed."""
    run = MaskedRun(n, absent, 1)
    run.share()
    integers = run.integers()
    masked = run.mask(integers, run.names, run.names[:5])
    return run, masked, run.open(masked, run.names[:5], run.names[:5]), plain_sum(integers, run.names[:5])


WRONG: list[Any] = ["00" * 33, "zz", "", None, 7, "ff" * 33, "00" * 32, ["00" * 33]]


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
def test_one_wrong_share_is_left_out_and_named(wrong: Any) -> None:
    _, masked, opened, total = opened_run()
    opened["site-02"]["self"]["site-00"] = wrong
    opened["site-02"]["pair"]["site-05"] = wrong
    assert masked.total(opened).tolist() == total
    assert masked.wrong_shares == {"site-02": ("site-00", "site-05")}


@pytest.mark.parametrize("wrong", [None, {}, [], "x", {"self": 3, "pair": []}, {"self": {}, "pair": {}}], ids=repr)
def test_an_unreadable_opening_is_left_out_and_named(wrong: Any) -> None:
    _, masked, opened, total = opened_run()
    opened["site-02"] = wrong
    assert masked.total(opened).tolist() == total
    assert masked.wrong_shares == {"site-02": (*masked.answered, "site-05")}


def test_too_many_wrong_shares_name_whose_secrets_are_lost() -> None:
    _, masked, opened, _ = opened_run()
    for liar in ("site-01", "site-02"):
        opened[liar]["self"]["site-03"] = "01" * 33
    with pytest.raises(FormatError, match="secrets of site-03 could not be put together"):
        masked.total(opened)


def test_a_total_needs_the_threshold_of_answers_and_openings() -> None:
    run, masked, opened, _ = opened_run()
    for less in ({}, dict(list(opened.items())[:3]), None):
        with pytest.raises(PrivacyError, match="opens only with 4"):
            masked.total(less)  # type: ignore[arg-type]
    words = {name: masked._words[name] for name in run.names[:3]}
    with pytest.raises(PrivacyError, match="opens only with 4"):
        MaskedStep(run.terms, run.said, 0, QUERY, run.names, words)


def test_vectors_of_different_kinds_are_refused() -> None:
    run, masked, _, _ = opened_run()
    for bad, text in (
        (np.zeros(3, np.uint64), "different lengths"),
        (np.zeros(4), "'site-01'"),
        ("words", "'site-01'"),
    ):
        with pytest.raises(FormatError, match=text):
            MaskedStep(run.terms, run.said, 0, QUERY, run.names, {**masked._words, "site-01": bad})  # type: ignore[dict-item]
    with pytest.raises(PrivacyError, match="without being asked"):
        MaskedStep(run.terms, run.said, 0, QUERY, run.names[:4], masked._words)


# Everything that arrives is untrusted

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70) | st.binary(max_size=70)
junk = st.recursive(
    leaves | st.sampled_from(["00" * 32, "00" * 33, "site-00", "site-01"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(leaves.filter(lambda x: x == x) | st.sampled_from(["site-00", "self"]), inner, max_size=4)
    ),
    max_leaves=8,
)


def deep() -> list[Any]:
    out: list[Any] = []
    for _ in range(50_000):
        out = [out]
    return out


def loop() -> dict[str, Any]:
    out: dict[str, Any] = {}
    out["site-00"] = out["masks"] = out
    return out


@pytest.fixture(scope="module")
def targets(shared: MaskedRun) -> Callable[[Any], list[Callable[[], object]]]:
    """Every way in, with one value in each place of a message that is otherwise right."""
    run = MaskedRun(5, 1, 1, steps=2, run="fresh")
    site, unshared = shared.restarted("site-00"), run.sites["site-00"]
    site.confirm(0, shared.names)
    words = {name: np.zeros(2, np.uint64) for name in shared.names}
    masked = MaskedStep(shared.terms, shared.said, 0, QUERY, shared.names, words)

    def calls(bad: Any) -> list[Callable[[], object]]:
        other: Any = run.said["site-01"]
        made = [
            lambda: unshared.share(bad),
            lambda: unshared.share({**run.said, "site-01": bad}),
            lambda: site.receive(bad),
            lambda: site.receive({**shared.for_site("site-00", shared.names), "site-01": bad}),
            lambda: site.check_mask(bad, QUERY, shared.names),
            lambda: site.check_mask(1, bad, shared.names),
            lambda: site.check_mask(1, QUERY, bad),
            lambda: site.mask(1, QUERY, [*shared.names, bad], np.zeros(1, np.int64)),
            lambda: site.confirm(bad, shared.names),
            lambda: site.confirm(0, bad),
            lambda: site.open(bad, {}),
            lambda: site.open(0, bad),
            lambda: site.open(0, {"site-01": bad}),
            lambda: check_announcement(run.terms, "site-01", bad),
            lambda: check_announcement(run.terms, bad, other),
            lambda: MaskedStep(shared.terms, bad, 0, QUERY, shared.names, words),
            lambda: MaskedStep(shared.terms, shared.said, 0, QUERY, bad, words),
            lambda: MaskedStep(shared.terms, shared.said, 0, QUERY, shared.names, bad),
            lambda: MaskedStep(shared.terms, shared.said, 0, QUERY, shared.names, {**words, "site-01": bad}),
            lambda: masked.total(bad),
            lambda: masked.total(dict.fromkeys(shared.names, bad)),
            lambda: masked.total({name: {"self": bad, "pair": bad} for name in shared.names}),
        ]
        for field in other:
            made.append(lambda field=field: unshared.share({**run.said, "site-01": {**other, field: bad}}))  # type: ignore[misc]
            made.append(lambda field=field: check_announcement(run.terms, "site-01", {**other, field: bad}))  # type: ignore[misc]
        for field in ("masks", "commitments"):
            changed = {**other, field: [other[field][0], bad]}
            made.append(lambda changed=changed: unshared.share({**run.said, "site-01": changed}))  # type: ignore[misc]
        return made

    return calls


def refuse_all(calls: list[Callable[[], object]]) -> None:
    for call in calls:
        with pytest.raises((PrivacyError, FormatError)) as caught:
            call()
        assert len(str(caught.value)) < 500


@given(bad=junk)
@settings(max_examples=60)
def test_junk_gives_nothing_but_our_errors(targets: Callable[..., Any], bad: Any) -> None:
    # The numbers of the two steps and of the version, and the name of the site, are right in their places.
    assume(type(bad) is not int or bad not in (0, 1))
    assume(bad != "site-01")
    refuse_all(targets(bad))


HUGE: dict[str, Callable[[], Any]] = {
    "deep": deep,
    "loop": loop,
    "list": lambda: ["x"] * 200_000,
    "dict": lambda: dict.fromkeys(range(200_000)),
    "text": lambda: "0" * 10**6,
    "number": lambda: 10**5000,
}


@pytest.mark.parametrize("kind", HUGE)
def test_deep_endless_and_huge_input(targets: Callable[..., Any], kind: str) -> None:
    refuse_all(targets(HUGE[kind]()))


def test_is_confirmed_takes_anything(shared: MaskedRun) -> None:
    words = {name: np.zeros(4, np.uint64) for name in shared.names}
    masked = MaskedStep(shared.terms, shared.said, 0, QUERY, shared.names, words)
    for bad in (None, 3, "", "zz", "00" * 70, [], {}):
        assert not masked.is_confirmed("site-00", bad)  # type: ignore[arg-type]
    signature = shared.restarted("site-00").confirm(0, shared.names)
    assert masked.is_confirmed("site-00", signature)
    assert not masked.is_confirmed("site-01", signature)
    assert not masked.is_confirmed("nobody", signature)


def test_keys_of_small_order_are_refused_in_every_spelling() -> None:
    """`exchange` refuses exactly these among all encodings of the list, and we refuse them before."""
    run = MaskedRun(3, 0, 1)
    own = X25519PrivateKey.generate()
    for low in _LOW_ORDER:
        spellings = [number for number in (low, low + _FIELD) if number < 2**255]
        for number in (*spellings, *(number | 1 << 255 for number in spellings)):
            raw = number.to_bytes(32, "little")
            with pytest.raises(ValueError):
                own.exchange(X25519PublicKey.from_public_bytes(raw))
            with pytest.raises(FormatError, match="valid X25519"):
                check_announcement(run.terms, "site-00", {**run.said["site-00"], "encryption": raw.hex()})
    for other in (2, 3, 9, _FIELD - 2):
        own.exchange(X25519PublicKey.from_public_bytes(other.to_bytes(32, "little")))
    second = (9 | 1 << 255).to_bytes(32, "little").hex()
    with pytest.raises(FormatError, match="valid X25519"):
        check_announcement(run.terms, "site-00", {**run.said["site-00"], "masks": [second]})


# Frozen vectors


def test_the_package_gives_the_frozen_vectors() -> None:
    spec = importlib.util.spec_from_file_location("masking_vectors", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = json.loads(json.dumps(script.vectors()))
    del made["signatures"]
    assert made == {name: value for name, value in VECTORS.items() if name != "signatures"}


def test_the_frozen_vectors_follow_from_the_written_protocol() -> None:
    v = VECTORS
    names = list(v["masters"])
    assert {name: twin.derived(v, name) for name in names} == v["derived"]
    assert json.loads(v["announcement_east"]) == twin.body(v, "east")
    assert twin.announcements(v) == v["announcements"]
    assert {s: {r: twin.blob(v, s, r) for r in sorted(names) if r != s} for s in names} == v["blobs"]
    assert twin.context(v) == v["context"]
    assert {name: twin.self_stream(v, name) for name in names} == v["self_streams"]
    assert {pair: twin.pair_stream(v, *pair.split()) for pair in v["pair_streams"]} == v["pair_streams"]
    assert {name: twin.masked(v, name) for name in v["words"]} == v["words"]
    told = {"run": v["run"], "terms": v["terms"], "step": v["step"], "context": v["context"]}
    assert v["statement"].encode() == twin.canonical("answered", **told, answered=["east", "north", "south"])
    places = {name: str(i) for i, name in enumerate(sorted(names), 1)}
    for name, revealed in v["opened"].items():
        for kind, owners in (("self", ["east", "north", "south"]), ("pair", ["west"])):
            shares = {owner: v["derived"][owner]["shares"][kind][v["step"]][places[name]] for owner in owners}
            assert revealed[kind] == shares
    columns = zip(*(v["integers"][name] for name in v["words"]), strict=True)
    assert v["total"] == [sum(column) for column in columns]


def test_the_frozen_signatures_hold() -> None:
    key = ec.derive_private_key(int(VECTORS["signing_keys"]["east"], 16), ec.SECP256R1()).public_key()
    for signature, text in (("announcement_east", "announcement_east"), ("statement_east", "statement")):
        key.verify(bytes.fromhex(VECTORS["signatures"][signature]), VECTORS[text].encode(), ECDSA(SHA384()))


def test_parameters_are_what_the_written_protocol_says() -> None:
    points = {}
    for name, number in VECTORS["signing_keys"].items():
        public = ec.derive_private_key(int(number, 16), ec.SECP256R1()).public_key().public_numbers()
        points[name] = f"secp256r1:04{public.x:064x}{public.y:064x}"
    told = {name: VECTORS[name] for name in ("run", "terms", "absent", "colluding", "steps")}
    assert (
        VECTORS["parameters"] == twin.hashlib.sha256(twin.canonical("parameters", **told, sites=points)).hexdigest()
    )


def test_masking_starts_without_heavy_packages() -> None:
    code = "import sys, locum.federated.masking; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "cryptography" in loaded
    assert not {"torch", "sklearn", "scipy", "pandas", "pydantic", "opendp", "flwr"} & set(loaded)
