"""Masked sums between real sites and a coordinator: what they cost, who may stay away, what is refused."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.site_keys import pinned

from locum.accounting import Ledger, plan_head
from locum.data import load_reference
from locum.errors import LocumError
from locum.federated import (
    Coordinator,
    FederationSettings,
    LocalChannel,
    NoReply,
    Reply,
    Request,
)
from locum.federated.site import Site
from locum.generate.private import FIRST, Descent, HeadQuery, read_head
from locum.mechanisms import ExactSums
from locum.release import load
from locum.types import DP

pytestmark = pytest.mark.usefixtures("hardly_trained_personal_models")
Make = Callable[..., Any]


@pytest.fixture
def few(site_of: Make) -> Make:
    """A few sites with a few records of four features."""

    def make(count: int, prefix: str = "site", *, test: bool = True, **more: Any) -> dict[str, Path]:
        names = [f"{prefix}-{i}" for i in range(count)]
        seeds = [{"insecure_seed": i} if test else {} for i in range(count)]
        return {n: site_of(n, n=20, **{"delta": 1e-5, **seed, **more}) for n, seed in zip(names, seeds, strict=True)}

    return make


class Absent(LocalChannel):
    """Sites that do not reply to some steps."""

    def __init__(self, files: Mapping[str, Path], gone: Callable[[str, Request], bool]) -> None:
        super().__init__(files)
        self.gone, self.asked = gone, []

    def ask(self, requests: Mapping[str, Request], **more: Any) -> dict[str, Reply | NoReply]:
        self.asked += [(name, request) for name, request in requests.items()]
        away = {name for name, request in requests.items() if self.gone(name, request)}
        found = super().ask({n: q for n, q in requests.items() if n not in away}, **more)
        return {**found, **dict.fromkeys(away, NoReply("away"))}


def head_terms(settings: Make, files: Mapping[str, Path], **more: Any) -> FederationSettings:
    """Terms with few sums, because the budget is small."""
    told = {"mode": "head", "sites": pinned(files), "epsilon": 0.5, "delta": 1e-5, **more}
    found: FederationSettings = settings(**told)
    return found


def charges(file: Path) -> list[Any]:
    with Ledger(file.parent / ".locum" / "ledger.sqlite") as ledger:
        return list(ledger.holding("default").charges) if "default" in ledger.holdings() else []


def test_a_real_run_costs_each_site_what_the_claim_says(few: Make, little: Make, tmp_path: Path) -> None:
    files = few(3, test=False)
    terms, events = head_terms(little, files), []
    folder = Coordinator(terms, tmp_path / "out", on_event=events.append).run(LocalChannel(files))
    release = load(folder)
    assert release.claim.dp is not None
    assert 0.499 < release.claim.dp.epsilon <= 0.5
    assert release.claim.dp.events[0]["sums"] == plan_head(DP(0.5, 1e-5)).sums
    for file in files.values():
        (charge,) = charges(file)
        assert charge.epsilon == pytest.approx(release.claim.dp.epsilon)
        with Ledger(file.parent / ".locum" / "ledger.sqlite") as ledger:
            # Each sum that left is known by its hash.
            known = ledger.results(charge)
        assert sum(part.startswith("steps ") for part in known) == sum(event["event"] == "sum" for event in events)
        assert (file.parent / ".locum" / "federation" / "personal").is_dir()
    # Anyone can compute the head again from the totals in the release.
    head = read_head(release.manifest.decoder.head, release.tensors["transcript"], 2, 4)
    assert head.weights.shape == (2, 4)


def pooled(files: Mapping[str, Path], terms: FederationSettings) -> tuple[np.ndarray, np.ndarray]:
    sets = [Site(file).file.records(terms).train for file in files.values()]
    return np.concatenate([one.X for one in sets]), np.concatenate([one.y for one in sets])


def test_together_they_learn_what_one_center_would(sites: Make, settings: Make, tmp_path: Path) -> None:
    """Without noise every total is that of all records in one place, and so is the head."""
    files = sites(3, epsilon=None)
    terms = head_terms(settings, files)
    release = load(Coordinator(terms, tmp_path / "out").run(LocalChannel(files)))
    X, y = pooled(files, terms)
    query = HeadQuery(X, y, None, 10, load_reference("none", 64))
    descent = Descent(release.manifest.decoder.head.noise, 10, 64)

    def rounded(sums: ExactSums) -> np.ndarray:
        return sums.to_array().astype(np.float32).astype(float)

    descent.take(rounded(query.first(FIRST)))
    query.recenter(descent.center)
    descent.take(rounded(query.class_sums()))
    while not descent.done:
        descent.take(rounded(query.gradient(descent.rule, descent.clip)))
    head = read_head(release.manifest.decoder.head, release.tensors["transcript"], 10, 64)
    np.testing.assert_array_equal(head.weights, descent.head.weights)


def test_the_noise_of_all_sites_is_little_more_than_that_of_one(sites: Make, settings: Make, tmp_path: Path) -> None:
    files = sites(5)
    terms = head_terms(settings, files)
    release = load(Coordinator(terms, tmp_path / "out").run(LocalChannel(files)))
    query = HeadQuery(*pooled(files, terms), None, 10, load_reference("none", 64))
    exact = query.first(FIRST).to_array()
    planned = plan_head(DP(0.5, 1e-5)).noise_multiplier / math.sqrt(0.12)
    gap = release.tensors["transcript"][: len(exact)] - exact
    # Five sites where four would be enough: sqrt(5 / 4) of the planned noise.
    assert np.std(gap) == pytest.approx(planned * math.sqrt(5 / 4), rel=0.25)


@pytest.mark.parametrize("step", ["join", "share", "begin", "sum", "confirm", "open"])
def test_one_site_may_stay_away_at_any_step(step: str, few: Make, little: Make, tmp_path: Path) -> None:
    files = few(5)
    terms = head_terms(little, files, absent=1)
    channel = Absent(files, lambda name, request: name == "site-3" and request.step == step)
    events: list[dict[str, Any]] = []
    release = load(Coordinator(terms, tmp_path / "out", on_event=events.append).run(channel))
    assert release.manifest.decoder.head is not None
    counted = [event["sites"] for event in events if event["event"] == "sum"]
    assert counted
    # It is in the total if it answered, even if it is gone when the total is opened.
    assert all(("site-3" in names) == (step in ("confirm", "open")) for names in counted)


def test_a_site_that_was_away_comes_back(few: Make, little: Make, tmp_path: Path) -> None:
    files = few(4)
    terms = head_terms(little, files, absent=1)
    channel = Absent(files, lambda name, request: (name, request.step, request.round) == ("site-1", "sum", 1))
    events: list[dict[str, Any]] = []
    Coordinator(terms, tmp_path / "out", on_event=events.append).run(channel)
    present = ["site-1" in event["sites"] for event in events if event["event"] == "sum"]
    # Left out of one sum more than it missed.
    assert present[:4] == [True, False, False, True]


def test_one_more_stops_the_run_and_waiting_costs_nothing(few: Make, little: Make, tmp_path: Path) -> None:
    files = few(4, test=False)
    terms = head_terms(little, files, absent=1, epsilon=2.0)
    for step in ("sum", "confirm", "open"):
        channel = Absent(files, lambda n, q, step=step: n in ("site-1", "site-2") and q.step == step and q.round == 1)
        with pytest.raises(LocumError, match=r"2 of 4 sites .* sum 2, and 3 are needed"):
            Coordinator(terms, tmp_path / "out").run(channel)
    Coordinator(terms, tmp_path / "out").run(LocalChannel(files))
    assert all(len(charges(file)) == 1 for file in files.values())


class TestWhatASiteRefuses:
    """A site that is asked by somebody who does not follow the protocol."""

    @pytest.fixture
    def run(self, few: Make, little: Make, tmp_path: Path) -> tuple[dict[str, Path], FederationSettings, Absent]:
        """A run that has begun and stopped before its third sum, and everything that was asked."""
        files = few(3, test=False, epsilon=8.0)
        # Secure noise: with this budget there are gradients whatever it is.
        terms = head_terms(little, files, epsilon=8.0)
        channel = Absent(files, lambda name, request: request.step == "sum" and request.round == 2)
        with pytest.raises(LocumError, match="sum 3"):
            Coordinator(terms, tmp_path / "out").run(channel)
        return files, terms, channel

    def last(self, channel: Absent, step: str) -> Request:
        return next(q for name, q in reversed(channel.asked) if name == "site-0" and q.step == step)

    def test_a_repeated_sum_gets_the_same_bytes_and_a_changed_one_nothing(self, run: Any) -> None:
        files, _, channel = run
        due = self.last(channel, "sum")
        first = Site(files["site-0"]).reply(due)
        again = Site(files["site-0"]).reply(replace(due, nonce="other"))
        np.testing.assert_array_equal(first.tensors["sums"], again.tensors["sums"])
        moved = {**due.tensors, "weights": due.tensors["weights"] + 1e-9}
        for other in (
            replace(due, tensors=moved),
            replace(due, facts={**due.facts, "share": due.facts["share"] / 2}),
            replace(due, facts={**due.facts, "participants": due.facts["participants"][:2]}),
        ):
            reply = Site(files["site-0"]).reply(other)
            assert reply.declined
            assert not reply.tensors

    def test_an_old_state_cannot_answer_a_sum_again(self, run: Any) -> None:
        files, _, channel = run
        due, folder = self.last(channel, "sum"), files["site-0"].parent / ".locum" / "federation"
        shutil.copytree(folder, folder.with_name("copy"))
        assert not Site(files["site-0"]).reply(due).declined
        shutil.rmtree(folder)
        folder.with_name("copy").rename(folder)
        # The ledger knows the first answer, and fresh noise would give another.
        for _ in range(2):
            assert Site(files["site-0"]).reply(due).declined

    def test_more_precision_than_was_paid_for(self, run: Any) -> None:
        files, _, channel = run
        due = self.last(channel, "sum")
        greedy = replace(due, facts={**due.facts, "share": 0.99})
        assert Site(files["site-0"]).reply(greedy).declined
        for share in (0.0, -1.0, 2.0, math.nan, "1", None, 1):
            with pytest.raises(LocumError):
                Site(files["site-0"]).reply(replace(due, facts={**due.facts, "share": share}))

    @pytest.mark.parametrize("tensor", ["center", "weights", "offsets"])
    def test_queries_that_no_coordinator_would_send(self, run: Any, tensor: str) -> None:
        files, _, channel = run
        due = self.last(channel, "sum")
        for wrong in (np.nan, np.inf):
            spoiled = {**due.tensors, tensor: np.full_like(due.tensors[tensor], wrong)}
            with pytest.raises(LocumError, match="tensors"):
                Site(files["site-0"]).reply(replace(due, tensors=spoiled))
        assert not Site(files["site-0"]).reply(due).declined

    def test_a_lost_state_is_not_begun_anew(self, run: Any) -> None:
        files, _, channel = run
        shutil.rmtree(files["site-0"].parent / ".locum" / "federation")
        for step in ("join", "share", "begin", "sum", "confirm", "open"):
            asked = next((q for n, q in reversed(channel.asked) if n == "site-0" and q.step == step), None)
            if asked is not None:
                assert Site(files["site-0"]).reply(asked).declined


def test_other_terms_or_keys_are_declined_before_anything_is_paid(few: Make, little: Make, tmp_path: Path) -> None:
    """A coordinator who adds sites of its own to the terms, or exchanges a key, finds nobody."""
    files, others = few(3, test=False), few(3, "invented")
    mine, theirs = pinned(files), pinned(others)
    honest = head_terms(little, files)
    for changed in ({**mine, "site-9": theirs["invented-1"]}, {**mine, "site-1": theirs["invented-1"]}):
        bad = replace(honest, sites=changed)
        for file in files.values():
            reply = Site(file).reply(Request("join", 0, "n", {"run": "r", "settings": bad.to_dict()}))
            assert reply.declined == "these are not the terms that it agreed to"
    assert not any(charges(file) for file in files.values() if (file.parent / ".locum" / "ledger.sqlite").exists())


def test_a_site_whose_key_is_not_in_the_terms_does_not_join(few: Make, little: Make) -> None:
    files, others = few(3), few(3, "others")
    pinned(files)
    terms = head_terms(little, others)
    reply = Site(files["site-0"]).reply(Request("join", 0, "n", {"run": "r", "settings": terms.to_dict()}))
    assert reply.declined


def test_a_smaller_budget_or_another_unit_does_not_join(few: Make, little: Make) -> None:
    for i, more in enumerate(({"epsilon": 0.1}, {"delta": 1e-7}, {"relation": "replace-one"})):
        files = few(3, f"site{i}", test=False, **more)
        terms = head_terms(little, files)
        reply = Site(next(iter(files.values()))).reply(
            Request("join", 0, "n", {"run": "r", "settings": terms.to_dict()})
        )
        assert reply.declined, more
