"""A site sends what it has paid for and nothing else, whoever asks, however often, whenever it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Ledger, events_from_json
from locum.errors import FormatError, LocumError
from locum.federated import FederationSettings, Reply, Request, Site, SiteFile, plan_site
from locum.federated.aggregation import decoder_tensors, initial_network
from locum.federated.protocol import Step, pack
from locum.federated.result import Learned, build_result
from locum.federated.state import SiteState
from locum.federated.terms import read_terms
from locum.generate.private import LOOKED
from locum.mechanisms import discrete_gaussian
from locum.train.dp import PrivateRun

Make = Callable[..., Path]
Terms = Callable[..., FederationSettings]
DECLINED = "its budget or the protocol does not allow this"
# Words that no message of a site may hold, at any depth.
PRIVATE = {"loss", "count", "counts", "lambda", "lam", "acc", "bacc", "accuracy", "f1", "n", "records", "ignored"}


def ask(file: Path, settings: FederationSettings, step: Step = "join", number: int = 0, **more: Any) -> Reply:
    tensors = more.pop("tensors", {})
    facts = {"run": "r1", "settings": settings.to_dict(), **more}
    return Site(file).reply(Request(step, number, f"nonce {number}", facts, tensors))


def train(file: Path, settings: FederationSettings, number: int = 1, **more: Any) -> Reply:
    start = {f"decoder/{k}": v for k, v in decoder_tensors(initial_network(settings)).items()}
    means = np.zeros((len(settings.classes), settings.dim), dtype=np.float32)
    tensors = {**start, "means": means, **more.pop("tensors", {})}
    return ask(file, settings, "train", number, **{"length": 1.0, "tensors": tensors, **more})


def finish(file: Path, settings: FederationSettings, joined: Reply, **more: Any) -> Reply:
    terms, sums = {"a": read_terms(joined.facts), "b": read_terms(joined.facts)}, joined.tensors["sums"]
    if terms["a"].paid is not None:
        other = {**joined.facts, "terms": {**joined.facts["terms"], "ledger": "0" * 64}}
        terms["b"] = read_terms(other)
    decoder = decoder_tensors(initial_network(settings))
    release = build_result(settings, "run", Learned(terms, {"a": sums, "b": sums}, decoder))
    tensors = dict(release.tensors)
    return ask(file, settings, "finish", **{"manifest": release.manifest.dumps(), "tensors": tensors, **more})


def paid(file: Path) -> list[dict[str, Any]]:
    """The entries of the site's ledger, in order; empty if there is no ledger."""
    place = SiteFile.read(file).ledger_file
    if not place.exists():
        return []
    with Ledger(place) as ledger:
        return [entry["body"] for entry in ledger.export()]


def kinds(file: Path) -> list[str]:
    return [body.get("part", body["kind"]) for body in paid(file)]


def words(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from words(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from words(inner)


def rewrite(file: Path, **changes: Any) -> None:
    """Edit `site.toml`, as an owner might in the middle of a run."""
    lines = [line for line in file.read_text().splitlines() if line.split(" = ")[0] not in changes]
    lines += [f"{k} = {json.dumps(v)}" for k, v in changes.items() if v is not None]
    file.write_text("\n".join(lines))


class TestWhatLeaves:
    @pytest.mark.parametrize("mode", ["sums", "decoder"])
    def test_facts_are_those_of_the_plan_whatever_the_records_are(
        self, mode: str, site_of: Make, little: Terms
    ) -> None:
        """Neighbors, a quarter of the records, a single class: the facts do not reveal it."""
        settings, told = little(mode=mode), []
        some = {"all": {}, "less": {"rows": slice(1, None)}, "few": {"rows": slice(10)}, "ants": {"kinds": 1}}
        for name, records in some.items():
            file = site_of(name, **records)
            joined = ask(file, settings)
            assert joined.facts["terms"].pop("ledger") == next(
                e["hash"] for e in Ledger(SiteFile.read(file).ledger_file).export() if e["body"]["kind"] == "charge"
            )
            told.append(joined.facts)
            assert set(joined.tensors) == {"sums"}
            replies = [joined]
            if mode == "decoder":
                replies.append(train(file, settings))
                assert replies[-1].facts == {}
                assert all(name.startswith("decoder/") for name in replies[-1].tensors)
            for reply in replies:
                assert not PRIVATE & set(words(json.loads(pack(reply)[0])))
        assert all(facts == told[0] for facts in told)
        plan = plan_site(settings, SiteFile.read(file).privacy())
        assert told[0]["size"] == 50
        assert told[0]["noise"] == plan.sums_noise
        assert events_from_json(told[0]["terms"]["events"]) == plan.events

    @pytest.mark.parametrize("looks", [0, 1])
    def test_a_look_at_the_records_is_told(self, site_of: Make, little: Terms, looks: int) -> None:
        file, settings = site_of(), little(mode="sums")
        for _ in range(looks):
            Ledger(SiteFile.read(file).ledger_file).note_look("elsewhere", "preview of budgets")
        joined = ask(file, settings)
        claim = read_terms(joined.facts).claim
        assert claim.kind == "dp"
        assert (LOOKED in claim.not_covered) == bool(looks)
        # The site checks the result against what it told, and binds it in its ledger.
        finish(file, settings, joined)
        assert kinds(file)[-1] == "release"

    def test_the_reply_to_finish_is_empty(self, site_of: Make, little: Terms) -> None:
        settings = little(mode="sums")
        for name, rows in (("all", slice(None)), ("few", slice(0, 12)), ("one", slice(0, 1))):
            file = site_of(name, rows=rows)
            reply = finish(file, settings, ask(file, settings))
            assert (reply.declined, reply.facts, reply.tensors) == ("", {}, {})
            assert (Site(file).personal_folder / "personal.safetensors").exists()

    def test_one_record_or_subject_moves_the_sums_by_one_at_most(self, site_of: Make, little: Terms) -> None:
        """With equal seeds the noise cancels out."""
        for mode, initial_query in (("sums", "class"), ("decoder", "public")):
            settings = little(mode=mode, initial_query=initial_query)
            whole = ask(site_of(f"whole-{mode}", insecure_seed=3), settings)
            less = ask(site_of(f"less-{mode}", rows=slice(1, None), insecure_seed=3), settings)
            moved = np.linalg.norm(whole.tensors["sums"] - less.tensors["sums"])
            assert 0.5 < moved <= 1 + 1e-9
        who, settings = np.repeat(["eve", "bob"], [15, 25]), little(mode="sums")
        whole = ask(site_of("subjects", subject=who, unit="subject", insecure_seed=3), settings)
        less = ask(site_of("bob", subject=who, rows=slice(15, None), unit="subject", insecure_seed=3), settings)
        assert np.linalg.norm(whole.tensors["sums"] - less.tensors["sums"]) <= 1 + 1e-9

    def test_noise_has_the_stated_size_and_is_never_the_same(self, site_of: Make, little: Terms) -> None:
        settings = little(mode="sums", covariance="own")
        exact = ask(site_of("exact", epsilon=None, insecure_seed=0), settings).tensors["sums"]
        drawn = []
        for i in range(12):
            reply = ask(site_of(f"site-{i}"), settings)
            drawn.append((reply.tensors["sums"] - exact) / reply.facts["noise"])
        # 12 times 21 numbers: a standard deviation of 1 is seen to within some twentieths.
        assert abs(np.std(drawn) - 1) < 0.2
        assert len({d.tobytes() for d in drawn}) == 12

    def test_too_few_means_fail_alike_for_all(self, site_of: Make, little: Terms) -> None:
        """Otherwise failures would show a coordinator which classes a site has."""
        settings, short = little(), {"means": np.zeros((1, 4), dtype=np.float32)}
        for name, classes in (("both", 2), ("ants", 1)):
            file = site_of(name, kinds=classes)
            ask(file, settings)
            with pytest.raises(FormatError, match="one mean for each class"):
                train(file, settings, tensors=short)


class TestPayment:
    def test_all_of_it_is_paid_before_anything_is_drawn(
        self, site_of: Make, little: Terms, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, settings, seen = site_of(), little(), []
        draw = discrete_gaussian.discrete_gaussian
        spy = lambda std, count: seen.append(kinds(file)) or draw(std, count)  # noqa: E731
        monkeypatch.setattr(discrete_gaussian, "discrete_gaussian", spy)
        ask(file, settings)
        assert {tuple(kinds) for kinds in seen} == {("budget", "charge", "data")}
        (charge,) = (body for body in paid(file) if body["kind"] == "charge")
        assert charge["epsilon"] <= 2.0
        assert events_from_json(charge["events"]) == plan_site(settings, SiteFile.read(file).privacy()).events
        train(file, settings)
        assert all("charge" in known for known in seen)
        assert kinds(file) == ["budget", "charge", "data", "sums", "steps 0 to 2"]

    def test_the_result_is_on_the_ledger_before_it_leaves(
        self, site_of: Make, little: Terms, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file, settings, seen = site_of(), little(), []
        keep = SiteState.keep
        monkeypatch.setattr(SiteState, "keep", lambda *a: seen.append(kinds(file)[-1]) or keep(*a))
        ask(file, settings)
        train(file, settings)
        assert seen == ["sums", "steps 0 to 2"]

    def test_a_repeated_request_costs_nothing_and_reveals_nothing_new(self, site_of: Make, little: Terms) -> None:
        file, settings = site_of(), little()
        for reply in (lambda: ask(file, settings), lambda: train(file, settings)):
            first, entries, again = reply(), len(paid(file)), reply()
            assert len(paid(file)) == entries
            assert again.facts == first.facts
            assert all(np.array_equal(first.tensors[k], again.tensors[k]) for k in first.tensors)

    @pytest.mark.parametrize("where", ["noise", "ledger", "state"])
    def test_killed_while_joining(
        self, where: str, site_of: Make, little: Terms, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It pays once. A result that was recorded but lost is not drawn again: the site stays out."""
        file, settings = site_of(), little()
        with monkeypatch.context() as patch:
            home, name = {
                "noise": (discrete_gaussian, "discrete_gaussian"),
                "ledger": (Ledger, "finish"),
                "state": (SiteState, "keep"),
            }[where]
            patch.setattr(home, name, killed)
            with pytest.raises(KeyboardInterrupt):
                ask(file, settings)
        reply = ask(file, settings)
        assert kinds(file) == ["budget", "charge", "data", "sums"]
        assert reply.declined == (DECLINED if where == "state" else "")
        assert bool(reply.tensors) == (where != "state")

    @pytest.mark.parametrize("where", ["steps", "state"])
    def test_killed_while_training(
        self, where: str, site_of: Make, little: Terms, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Steps whose result may have been seen are never used again; the last round is then not paid for."""
        file, settings = site_of(), little()
        ask(file, settings)
        with monkeypatch.context() as patch:
            patch.setattr(*((PrivateRun, "_train") if where == "steps" else (SiteState, "keep")), killed)
            with pytest.raises(KeyboardInterrupt):
                train(file, settings)
        assert not train(file, settings).declined
        last = train(file, settings, 2)
        known = kinds(file)
        assert known == ["budget", "charge", "data", "sums", "steps 0 to 2", "steps 2 to 4"]
        assert last.declined == ("" if where == "steps" else DECLINED)

    def test_a_copy_of_the_folder_buys_nothing_twice(self, site_of: Make, little: Terms, tmp_path: Path) -> None:
        """The ledger is elsewhere, as recommended; otherwise each copy would spend on its own."""
        file, settings = site_of(ledger=str(tmp_path / "ledger.sqlite")), little()
        ask(file, settings)
        shutil.copytree(file.parent, tmp_path / "copy")
        copy = tmp_path / "copy" / "site.toml"
        one, two = train(file, settings), train(copy, settings)
        assert kinds(file) == ["budget", "charge", "data", "sums", "steps 0 to 2", "steps 2 to 4"]
        assert any((one.tensors[k] != two.tensors[k]).any() for k in one.tensors)
        for place in (file, copy):
            assert train(place, settings, 2).declined == DECLINED
        # Restoring an old state, or deleting it, changes nothing.
        shutil.rmtree(copy.parent / ".locum")
        assert ask(copy, settings).declined == DECLINED
        assert kinds(file).count("charge") == 1

    def test_steps_end_where_the_payment_does(self, site_of: Make, little: Terms) -> None:
        file, settings = site_of(), little()
        ask(file, settings)
        replies = [train(file, settings, number) for number in (1, 2, 3)]
        assert [a.declined for a in replies] == ["", "", DECLINED]
        assert not replies[2].tensors
        # Other terms in between do not help either.
        for more in (
            {"rounds": 4},
            {"local_epochs": 2},
            {"batch": 10},
            {"mode": "sums"},
            {"initial_query": "public"},
        ):
            with contextlib.suppress(LocumError):
                assert train(file, little(**more), 4).declined == DECLINED
        assert kinds(file)[-1] == "steps 2 to 4"


class TestTerms:
    def test_a_join_on_other_terms_is_declined(self, site_of: Make, little: Terms) -> None:
        file = site_of()
        ask(file, little())
        # The budget is not what stops it.
        with Ledger(SiteFile.read(file).ledger_file) as ledger:
            ledger.set_budget("default", epsilon=50.0, delta=1e-2)
        before = kinds(file)
        for other in ({"rounds": 3}, {"mode": "sums"}, {"seed": 1}):
            reply = ask(file, little(**other))
            assert (reply.declined, reply.facts, reply.tensors) == (DECLINED, {}, {})
        assert kinds(file) == before

    def test_terms_that_the_owner_did_not_agree_to_are_declined_unpaid(self, site_of: Make, little: Terms) -> None:
        """Nobody can query a site's classes one by one: the reply does not depend on its records."""
        files = [site_of("both"), site_of("ants", kinds=1)]
        asked = little(classes=("ant", "cow"))
        little()
        for file in files:
            reply = ask(file, asked)
            assert (reply.declined, reply.tensors) == ("these are not the terms that it agreed to", {})
            assert not SiteFile.read(file).ledger_file.exists()
        assert not ask(files[0], little()).declined

    def test_a_second_run_needs_a_second_budget(self, site_of: Make, little: Terms) -> None:
        file = site_of()
        ask(file, little())
        rewrite(file, epsilon=4.0)
        # The file states a budget; what is left of it is in the ledger.
        reply = ask(file, little(), run="r2")
        assert (reply.declined, reply.facts, reply.tensors) == (DECLINED, {}, {})
        rewrite(file, epsilon=2.0)
        with Ledger(SiteFile.read(file).ledger_file) as ledger:
            ledger.set_budget("default", epsilon=4.0, delta=2e-4)
        assert not ask(file, little(), run="r2").declined
        assert kinds(file).count("charge") == 2

    def test_a_refusal_is_a_fixed_text(self, site_of: Make, little: Terms) -> None:
        file = site_of()
        ask(file, little())
        reply = ask(file, little(), run="r2")
        assert not any(letter.isdigit() for letter in reply.declined)
        notes = file.parent / ".locum" / "federation" / "notes.log"
        assert "left" in notes.read_text()
        assert stat.S_IMODE(notes.stat().st_mode) == 0o600

    @pytest.mark.parametrize(
        "change",
        [
            {"epsilon": 3.0},
            {"epsilon": 1.0},
            {"delta": 1e-5},
            {"n_public": 60},
            {"unit": "subject"},
            {"relation": "replace-one"},
            {"insecure_seed": 0},
            {"insecure_seed": 0, "epsilon": None},
            {"ledger": "another.sqlite"},
        ],
        ids=str,
    )
    def test_a_budget_that_is_edited_in_the_middle_ends_the_run(
        self, change: dict[str, Any], site_of: Make, little: Terms
    ) -> None:
        file, settings = site_of(subject=np.arange(40)), little()
        ask(file, settings)
        train(file, settings)
        before, place = kinds(file), SiteFile.read(file).ledger_file
        rewrite(file, **change)
        reply = train(file, settings, 2)
        assert reply.declined == DECLINED
        assert not reply.tensors
        with Ledger(place) as ledger:
            assert len(ledger.export()) == len(before)
        # With the agreed budget it resumes.
        rewrite(
            file,
            epsilon=2.0,
            delta=1e-4,
            n_public=50,
            **dict.fromkeys(("unit", "relation", "insecure_seed", "ledger")),
        )
        assert not train(file, settings, 2).declined

    def test_a_simulation_cannot_turn_into_a_run(self, site_of: Make, little: Terms) -> None:
        file, settings = site_of(insecure_seed=1), little()
        assert ask(file, settings).facts["terms"] is None
        rewrite(file, insecure_seed=None)
        assert train(file, settings).declined == DECLINED
        assert "charge" not in kinds(file)


class TestGarbledRequests:
    @pytest.mark.parametrize(
        "facts",
        [
            {"run": None},
            {"run": 5},
            {"run": ""},
            {"run": "a\nb"},
            {"run": "\ud800"},
            {"run": "r" * 101},
            {"settings": None},
            {"settings": []},
            {"settings": {}},
            {"settings": {"classes": ["ant", "bee"], "dim": 4, "path": "/etc"}},
            {"settings": {"classes": ["ant", "bee"], "dim": 4, "reference": "../records.safetensors"}},
        ],
        ids=str,
    )
    def test_a_garbled_request_costs_nothing(self, facts: dict[str, Any], site_of: Make, little: Terms) -> None:
        file = site_of()
        whole = {"run": "r1", "settings": little().to_dict(), **facts}
        with pytest.raises(LocumError):
            Site(file).reply(Request("join", 0, "n", {k: v for k, v in whole.items() if v is not None}))
        assert not (file.parent / ".locum").exists()

    @pytest.mark.parametrize("step", ["train", "finish"])
    def test_a_site_must_join_first(self, step: Step, site_of: Make, little: Terms) -> None:
        file, test, settings = site_of(), site_of("test", insecure_seed=1), little(mode="sums")
        joined = ask(test, settings)
        asked = {
            "finish": lambda: finish(file, settings, joined),
            "train": lambda: train(file, little()),
        }
        with contextlib.suppress(LocumError):
            reply = asked[step]()
            assert reply.declined
            assert not reply.tensors
        assert "charge" not in kinds(file)
        assert not Site(file).personal_folder.exists()
        assert not (file.parent / ".locum" / "federation" / "global").exists()

    @pytest.mark.parametrize(
        "change",
        [
            {"length": None},
            {"length": "long"},
            {"length": [1]},
            {"tensors": {"means": np.zeros((3, 4), dtype=np.float32)}},
            {"tensors": {"means": np.zeros(4, dtype=np.float32)}},
            {"tensors": {"decoder/more": np.zeros(4, dtype=np.float32)}},
        ],
        ids=str,
    )
    def test_training_takes_what_fits(self, change: dict[str, Any], site_of: Make, little: Terms) -> None:
        file, settings = site_of(), little()
        ask(file, settings)
        with pytest.raises(FormatError):
            train(file, settings, **change)
        broken = {
            f"decoder/{k}": np.full_like(v, np.nan) for k, v in decoder_tensors(initial_network(settings)).items()
        }
        with pytest.raises(FormatError, match="do not fit"):
            train(file, settings, tensors=broken)
        assert kinds(file)[-1] == "sums"
        assert not train(file, settings).declined

    def test_a_result_with_other_classes_is_refused_by_all_sites(self, site_of: Make, little: Terms) -> None:
        other, settings = little(mode="sums", classes=("ant", "bee", "cow")), little(mode="sums")
        joined = ask(site_of("third", insecure_seed=1), other)
        release = build_result(
            other,
            "run",
            Learned(dict.fromkeys("ab", read_terms(joined.facts)), dict.fromkeys("ab", joined.tensors["sums"]), {}),
        )
        for name, classes in (("both", 2), ("ants", 1)):
            ask(file := site_of(name, kinds=classes), settings)
            more = {"manifest": release.manifest.dumps(), "tensors": dict(release.tensors)}
            with pytest.raises(FormatError, match="its classes"):
                ask(file, settings, "finish", **more)
            for manifest in (None, 5, "{}", "[" * 2000):
                with pytest.raises(LocumError):
                    ask(file, settings, "finish", manifest=manifest)
            assert not Site(file).personal_folder.exists()


def test_only_its_owner_can_read_what_a_site_keeps(site_of: Make, little: Terms) -> None:
    mask = os.umask(0)
    try:
        file, settings = site_of(), little()
        joined = ask(file, settings)
        train(file, settings)
        finish(file, settings, joined)
        ask(file, settings, run="r2")
    finally:
        os.umask(mask)
    home = file.parent / ".locum"
    # The release is public.
    kept = [f for f in home.rglob("*") if f.is_file() and "global" not in f.parts]
    assert {f.suffix for f in kept} == {".sqlite", ".lock", ".state", ".log", ".safetensors"}
    assert {stat.S_IMODE(f.stat().st_mode) for f in kept} == {0o600}
    assert stat.S_IMODE((home / "federation").stat().st_mode) == 0o700


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
