"""Complete runs over a channel: rounds, refusals, poisoning, a stop in the middle, and the claim."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Ledger
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.federated import Coordinator, FederationSettings, LocalChannel, NoReply, Reply, Request
from locum.recipes import verify_release
from locum.release import load

pytestmark = pytest.mark.usefixtures("hardly_trained_personal_models")
Make = Callable[..., Any]
Bend = Callable[[Request, Reply], Reply | NoReply]


class Bent(LocalChannel):
    """A channel that changes the replies of some sites."""

    def __init__(self, files: Mapping[str, Path], bend: Mapping[str, Bend]) -> None:
        super().__init__(files)
        self.bend = dict(bend)
        self.asked: list[tuple[str, int]] = []

    def ask(self, requests: Mapping[str, Request], *, timeout: float, **more: Any) -> dict[str, Reply | NoReply]:
        out = super().ask(requests, timeout=timeout, **more)
        self.asked += [(q.step, q.round) for q in requests.values()]
        for name, bend in self.bend.items():
            if name in out and isinstance(reply := out[name], Reply):
                out[name] = bend(requests[name], reply)
        return out


def in_training(change: Callable[[Request, Reply], Reply | NoReply]) -> Bend:
    return lambda q, a: change(q, a) if q.step == "train" else a


def scaled(factor: float) -> Bend:
    """The site's update times `factor`: -1 flips its sign."""

    def change(q: Request, a: Reply) -> Reply:
        moved = {k: (q.tensors[k] + factor * (v - q.tensors[k])).astype(np.float32) for k, v in a.tensors.items()}
        return replace(a, tensors=moved)

    return in_training(change)


def nan(q: Request, a: Reply) -> Reply:
    return replace(a, tensors={k: np.full_like(v, np.nan) for k, v in a.tensors.items()})


def refusals(events: list[dict[str, Any]]) -> dict[str, set[str]]:
    out: dict[str, set[str]] = {}
    for event in events:
        if event["event"] == "refused":
            out.setdefault(event["site"], set()).add(event["reason"])
    return out


def test_a_real_run_ends_in_a_release_that_its_ledgers_back(sites: Make, settings: Make, tmp_path: Path) -> None:
    files = sites(3, test=False)
    terms: FederationSettings = settings(max_sites_per_subject=1)
    events: list[dict[str, Any]] = []
    folder = Coordinator(terms, tmp_path / "out", on_event=events.append).run(LocalChannel(files))
    release = load(folder)
    verify_release(folder)
    assert release.claim.dp is not None
    assert 1.9 < release.claim.dp.epsilon <= 2.0
    X, _ = release.sample(20, random_state=0)
    assert X.shape == (20, 64)
    for file in files.values():
        with Ledger(file.parent / ".locum" / "ledger.sqlite") as ledger:
            (charge,) = ledger.holding("default").charges
            # Eight steps per round: 500 records in batches of 64.
            assert set(ledger.results(charge)) == {"sums", "steps 0 to 8", "steps 8 to 16", "steps 16 to 24"}
            assert charge.epsilon == release.claim.dp.epsilon
    rounds = [e for e in events if e["event"] == "round"]
    assert [e["round"] for e in rounds] == [1, 2, 3]
    assert rounds[-1]["epsilon"]["site-0"] == pytest.approx(release.claim.dp.epsilon)
    assert rounds[0]["epsilon"]["site-0"] < rounds[-1]["epsilon"]["site-0"]
    assert not {"loss", "count", "lambda", "accuracy"} & {key for event in events for key in event}


def test_by_default_a_claim_assumes_subjects_at_all_sites(sites: Make, settings: Make, tmp_path: Path) -> None:
    folder = Coordinator(settings(mode="sums"), tmp_path / "out").run(LocalChannel(sites(3, test=False)))
    claim = load(folder).claim
    assert claim.dp is not None
    assert 2.0 < claim.dp.epsilon < 6.0
    assert claim.dp.delta == pytest.approx(3e-4)


def test_a_simulation_guarantees_nothing_and_can_be_repeated(sites: Make, settings: Make, tmp_path: Path) -> None:
    for name in ("one", "two"):
        files = sites(3, folder=f"sites-{name}")
        Coordinator(settings(), tmp_path / name).run(LocalChannel(files))
    one, two = load(tmp_path / "one" / "release"), load(tmp_path / "two" / "release")
    assert one.claim.kind == "none"
    assert one.claim.test
    assert all(np.array_equal(one.tensors[k], two.tensors[k]) for k in one.tensors)


def three(site_of: Make) -> dict[str, Path]:
    """Three small sites with `insecure_seed`."""
    return {f"site-{i}": site_of(f"site-{i}", insecure_seed=i) for i in range(3)}


@pytest.mark.parametrize(
    ("bend", "reason"),
    [
        (in_training(nan), "numbers that are not finite"),
        (scaled(1e6), "weights that are too far from where training began"),
        (in_training(lambda q, a: replace(a, nonce="old")), "a reply that was sent before"),
        (in_training(lambda q, a: replace(a, round=a.round - 1)), "a reply to another request"),
        (in_training(lambda q, a: replace(a, tensors={})), "tensors with the wrong names or shapes"),
        (in_training(lambda q, a: NoReply("lost")), "lost"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_rest_goes_on(
    bend: Bend, reason: str, site_of: Make, little: Make, tmp_path: Path
) -> None:
    events: list[dict[str, Any]] = []
    channel = Bent(three(site_of), {"site-1": bend})
    Coordinator(little(rounds=1), tmp_path / "out", on_event=events.append).run(channel)
    assert refusals(events) == {"site-1": {reason}}
    told = next(e for e in events if e["event"] == "round")
    assert told["sites"] == ["site-0", "site-2"]


def test_a_replayed_reply_is_refused(site_of: Make, little: Make, tmp_path: Path) -> None:
    kept: list[Reply] = []

    def replay(q: Request, a: Reply) -> Reply:
        kept.append(a)
        return kept[0]

    events: list[dict[str, Any]] = []
    Coordinator(little(), tmp_path / "out", on_event=events.append).run(
        Bent(three(site_of), {"site-0": in_training(replay)})
    )
    assert refusals(events) == {"site-0": {"a reply to another request"}}


def test_sums_that_are_too_large_are_refused(site_of: Make, little: Make, tmp_path: Path) -> None:
    def million(q: Request, a: Reply) -> Reply:
        return a if q.step != "join" else replace(a, tensors={"sums": 1e6 * a.tensors["sums"]})

    events: list[dict[str, Any]] = []
    Coordinator(little(mode="sums"), tmp_path / "out", on_event=events.append).run(
        Bent(three(site_of), {"site-2": million})
    )
    assert refusals(events) == {"site-2": {"sums that are too large for the size it declares"}}


def test_a_site_that_was_not_asked_is_refused(site_of: Make, little: Make, tmp_path: Path) -> None:
    class Crowded(LocalChannel):
        def ask(self, requests: Mapping[str, Request], *, timeout: float, **more: Any) -> dict[str, Reply | NoReply]:
            out = super().ask(requests, timeout=timeout, **more)
            return {**out, "intruder": next(iter(out.values()))}

    events: list[dict[str, Any]] = []
    Coordinator(little(rounds=1), tmp_path / "out", on_event=events.append).run(Crowded(three(site_of)))
    assert refusals(events) == {"intruder": {"a reply from a site that was not asked"}}


@pytest.mark.slow
def test_a_poisoned_site_hardly_moves_a_robust_average(sites: Make, settings: Make, tmp_path: Path) -> None:
    """Six sites, one of which sends the opposite of its update; without noise, so that the effect is visible."""

    def decoder(name: str, bend: Mapping[str, Bend], **more: Any) -> np.ndarray:
        files = sites(6, folder=f"sites-{name}", epsilon=None)
        terms = settings(rounds=4, local_epochs=4, learning_rate=0.01, weights="equal", **more)
        folder = Coordinator(terms, tmp_path / name).run(Bent(files, bend))
        return load(folder).sample(400, random_state=0)[0]

    flip = {"site-5": scaled(-4.0)}
    gone = {"site-5": in_training(lambda q, a: NoReply("gone"))}
    without = decoder("without", gone, average="trimmed-mean", trim=0.2)
    robust = decoder("robust", flip, average="trimmed-mean", trim=0.2)
    plain = decoder("plain", flip, average="mean")

    def gap(a: np.ndarray) -> float:
        return float(np.sqrt(np.square(a - without).mean()))

    assert gap(robust) < 0.5 * gap(plain)


def test_too_few_replies_stop_the_run_and_it_resumes_later(sites: Make, settings: Make, tmp_path: Path) -> None:
    files, terms, out = sites(3, test=False), settings(min_sites=3), tmp_path / "out"

    def away(q: Request, a: Reply) -> Reply | NoReply:
        return NoReply("gone") if q.round == 2 else a

    with pytest.raises(LocumError, match="2 sites sent usable replies in round 2, 3 are needed"):
        Coordinator(terms, out).run(Bent(files, {"site-1": away}))
    channel = Bent(files, {})
    Coordinator(terms, out).run(channel)
    assert ("join", 0) not in channel.asked
    assert ("train", 1) not in channel.asked
    for file in files.values():
        with Ledger(file.parent / ".locum" / "ledger.sqlite") as ledger:
            (charge,) = ledger.holding("default").charges
            # The repeated round got the replies that were already paid for.
            assert len(ledger.results(charge)) == 4
    with pytest.raises(ConfigError, match="other settings"):
        Coordinator(settings(min_sites=2), out).run(channel)


def test_a_site_whose_steps_are_used_up_declines(sites: Make, settings: Make, tmp_path: Path) -> None:
    """A coordinator that forgot a round asks for more than was paid for."""
    files, out = sites(3, test=False), tmp_path / "out"
    Coordinator(settings(rounds=2), out).run(LocalChannel(files))
    state = (out / "coordinator.state").read_bytes()
    asked: list[Request] = []

    class Listening(LocalChannel):
        def ask(self, requests: Mapping[str, Request], *, timeout: float, **more: Any) -> dict[str, Reply | NoReply]:
            asked.extend(requests.values())
            return super().ask(requests, timeout=timeout, **more)

    (out / "coordinator.state").write_bytes(state)
    Coordinator(settings(rounds=2), out).run(channel := Listening(files))
    request = asked[0]
    tensors = {f"decoder/{k}": v for k, v in _decoder(out).items()}
    more = Request(
        "train",
        3,
        "n",
        {**request.facts, "length": 1.0},
        {**tensors, "means": np.zeros((10, 64), dtype=np.float32)},
    )
    reply = channel.ask({"site-0": more}, timeout=1)["site-0"]
    assert isinstance(reply, Reply)
    assert reply.declined == "its budget or the protocol does not allow this"
    assert not reply.tensors


def _decoder(out: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    found = load_file(out / "coordinator.state")
    return {k.removeprefix("decoder/"): v for k, v in found.items() if k.startswith("decoder/")}


def liar(step: str, **facts: Any) -> Bend:
    return lambda q, a: replace(a, facts={**a.facts, **facts}) if q.step == step else a


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"size": float("inf")}, "terms cannot be read"),
        ({"size": 10**400}, "terms cannot be read"),
        ({"noise": 10**400}, "terms cannot be read"),
        ({"terms": None}, "differs from that of most sites"),
        ({"terms": {"unit": "subject"}}, "differs from that of most sites"),
        ({"terms": {"relation": "replace-one"}}, "differs from that of most sites"),
        ({"terms": {"events": []}}, "terms cannot be read"),
    ],
    ids=str,
)
def test_terms_of_one_site_do_not_stop_the_others(
    facts: dict[str, Any], reason: str, site_of: Make, little: Make, tmp_path: Path
) -> None:
    """They have paid by then, so a site that could spoil the end is refused at once."""
    files = {f"site-{i}": site_of(f"site-{i}") for i in range(3)}

    def bend(q: Request, a: Reply) -> Reply:
        if q.step != "join":
            return a
        told = facts if facts.get("terms") is None else {"terms": {**a.facts["terms"], **facts["terms"]}}
        return replace(a, facts={**a.facts, **told})

    events: list[dict[str, Any]] = []
    folder = Coordinator(little(mode="sums"), tmp_path / "out", on_event=events.append).run(
        Bent(files, {"site-1": bend})
    )
    ((site, told),) = refusals(events).items()
    assert site == "site-1"
    assert reason in told.pop()
    assert load(folder).claim.kind == "dp"


def test_two_sites_with_one_ledger_entry_are_both_refused(site_of: Make, little: Make, tmp_path: Path) -> None:
    files = {f"site-{i}": site_of(f"site-{i}") for i in range(4)}

    def copied(q: Request, a: Reply) -> Reply:
        return (
            a
            if q.step != "join"
            else replace(a, facts={**a.facts, "terms": {**a.facts["terms"], "ledger": "0" * 64}})
        )

    events: list[dict[str, Any]] = []
    channel = Bent(files, {"site-1": copied, "site-3": copied})
    folder = Coordinator(little(mode="sums"), tmp_path / "out", on_event=events.append).run(channel)
    assert set(refusals(events)) == {"site-1", "site-3"}
    assert load(folder).claim.kind == "dp"


def test_no_site_pays_for_a_run_that_cannot_start(site_of: Make, little: Make, tmp_path: Path) -> None:
    files = {f"site-{i}": site_of(f"site-{i}") for i in range(2)}
    for more in ({"average": "trimmed-mean"}, {"mode": "head"}):
        channel = Bent(files, {})
        with pytest.raises(LocumError, match="2 sites are connected, 3 are needed"):
            Coordinator(little(**more), tmp_path / more.get("mode", "out")).run(channel)
        assert channel.asked == []
    assert not list(tmp_path.rglob("ledger.sqlite"))


def test_requests_and_events_hold_nothing_private(site_of: Make, little: Make, tmp_path: Path) -> None:
    """Requests hold settings and what was paid for; events hold names and public numbers."""
    files = {f"site-{i}": site_of(f"site-{i}", n=40 + i) for i in range(3)}
    asked: list[Request] = []

    class Listening(LocalChannel):
        def ask(self, requests: Mapping[str, Request], *, timeout: float, **more: Any) -> dict[str, Reply | NoReply]:
            asked.extend(requests.values())
            return super().ask(requests, timeout=timeout, **more)

    events: list[dict[str, Any]] = []
    Coordinator(little(), tmp_path / "out", on_event=events.append).run(Listening(files))
    known = {
        "joined": {"event", "sites", "epsilon"},
        "round": {"event", "round", "of", "sites", "seconds", "epsilon"},
        "done": {"event", "release", "claim"},
    }
    assert [e["event"] for e in events] == ["joined", "round", "round", "done"]
    assert all(set(e) == known[e["event"]] for e in events)
    extra = {"join": set(), "train": {"length"}, "finish": {"manifest"}}
    assert all(set(q.facts) == {"run", "settings"} | extra[q.step] for q in asked)
    assert len({q.nonce for q in asked}) == len(asked) == 12


def test_a_site_s_ledger_backs_a_joint_release(sites: Make, settings: Make, tmp_path: Path) -> None:
    files = sites(3, test=False)
    folder = Coordinator(settings(mode="sums"), tmp_path / "out").run(LocalChannel(files))
    mine = files["site-1"].parent / ".locum" / "ledger.sqlite"
    assert (
        "the ledger has the charge of one of the sites for this release" in verify_release(folder, ledger=mine).checks
    )
    other = tmp_path / "other.sqlite"
    Ledger(other).set_budget("x", epsilon=1.0, delta=1e-5)
    with pytest.raises(PrivacyError, match="no charge of any site"):
        verify_release(folder, ledger=other)
