"""The ledger: what was paid stays paid, nobody overspends, and edits are seen. With real processes and real kills."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from locum.accounting import Charge, Gaussian, Laplace, Ledger, PoissonGaussian, check_chain, epsilon_of, noise_for
from locum.errors import ConfigError, DataError, PrivacyError
from locum.types import DP, at_most

SPAWN = multiprocessing.get_context("spawn")
FIT = (Gaussian(5.0),)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / ".locum" / "ledger.sqlite"


@pytest.fixture
def ledger(file: Path) -> Ledger:
    ledger = Ledger(file)
    ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
    return ledger


def pay(ledger: Ledger, **changes: Any) -> Charge:
    return ledger.charge("scans", **{"events": FIT, "delta": 1e-6, "purpose": "means", **changes})


class TestCharges:
    def test_a_charge_costs_what_its_events_cost(self, ledger: Ledger) -> None:
        charge = pay(ledger)
        assert charge.epsilon == epsilon_of(FIT, 1e-6)
        assert ledger.holding("scans").charges == (charge,)
        assert ledger.holding("scans").spent == (charge.epsilon, 1e-6)
        assert charge.tip == ledger.tip
        assert ledger.knows(charge.tip)

    def test_it_is_there_for_the_next_process(self, ledger: Ledger, file: Path) -> None:
        charge = pay(ledger)
        code = f"from locum.accounting import Ledger; print(Ledger({str(file)!r}).tip)"
        shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        assert shown.strip() == charge.tip

    def test_the_relation_of_the_holding_counts(self, ledger: Ledger) -> None:
        ledger.set_budget("faces", epsilon=4.0, delta=1e-5, relation="replace-one")
        charge = ledger.charge("faces", FIT, delta=1e-6, purpose="means")
        assert charge.epsilon == epsilon_of(FIT, 1e-6, "replace-one") > pay(ledger).epsilon

    def test_too_much_is_refused_with_what_is_left_and_costs_nothing(self, ledger: Ledger) -> None:
        pay(ledger)
        before = ledger.tip
        left = at_most(ledger.holding("scans").left[0])
        with pytest.raises(PrivacyError, match=rf"epsilon {left} and delta 9e-06 are left.*set-budget"):
            pay(ledger, events=(Gaussian(1.0),))
        with pytest.raises(PrivacyError, match="are left"):
            pay(ledger, delta=1e-5)
        assert ledger.tip == before

    def test_a_charge_above_what_the_plan_was_made_for_is_refused(self, ledger: Ledger) -> None:
        cost = epsilon_of(FIT, 1e-6)
        for within in (cost * 0.999, math.nan, 0.0):
            with pytest.raises(PrivacyError, match="Plan again"):
                pay(ledger, within=within)
        assert ledger.holding("scans").charges == ()
        assert pay(ledger, within=cost).epsilon == cost

    def test_a_budget_can_be_spent_in_ten_parts(self, ledger: Ledger) -> None:
        noise = noise_for(lambda z: [Gaussian(z)], 0.1, 1e-6)
        part = epsilon_of([Gaussian(noise)], 1e-6)
        ledger.set_budget("parts", epsilon=1.0, delta=1e-5)
        for _ in range(10):
            ledger.charge("parts", [Gaussian(noise)], delta=1e-6, purpose="part", within=0.1)
        assert ledger.holding("parts").spent == (pytest.approx(10 * part), pytest.approx(1e-5))
        with pytest.raises(PrivacyError, match=r"(is|are) left"):
            ledger.charge("parts", [Gaussian(noise)], delta=1e-6, purpose="part")

    @pytest.mark.parametrize("delta", [0.0, -1e-6, math.nan, 1.0, math.inf])
    def test_a_wrong_delta_pays_for_nothing(self, ledger: Ledger, delta: float) -> None:
        with pytest.raises(ConfigError, match="delta"):
            pay(ledger, delta=delta)

    def test_a_charge_is_for_something(self, ledger: Ledger) -> None:
        with pytest.raises(ConfigError, match="events"):
            pay(ledger, events=())
        for purpose in ("", "a\nb", "x" * 201):
            with pytest.raises(ConfigError, match="purpose"):
                pay(ledger, purpose=purpose)

    def test_holdings_do_not_pay_for_each_other(self, ledger: Ledger) -> None:
        ledger.set_budget("faces", epsilon=1.0, delta=1e-5)
        pay(ledger)
        assert ledger.holding("faces").left == (1.0, 1e-5)
        with pytest.raises(ConfigError, match=r"no holding 'bones'; it knows 'scans', 'faces'"):
            ledger.charge("bones", FIT, delta=1e-6, purpose="means")


class TestReceipts:
    def test_a_resumed_fit_finds_its_payment(self, ledger: Ledger) -> None:
        charge = pay(ledger, events=(PoissonGaussian(0.1, 4.0, 20), Laplace(50.0)))
        assert ledger.paid(charge.identity, charge.events) == charge

    def test_a_receipt_pays_for_its_own_plan_only(self, ledger: Ledger) -> None:
        charge = pay(ledger)
        for identity, events in ((charge.identity, (Gaussian(4.9),)), ("f" * 32, FIT)):
            with pytest.raises(PrivacyError, match="does not know"):
                ledger.paid(identity, events)


class TestBudgets:
    def test_the_first_fit_opens_a_holding_with_what_it_asks_for(self, file: Path) -> None:
        ledger, budget = Ledger(file), DP(1.0, 1e-5, n_public=1000)
        opened = ledger.open_for(budget, "scans")
        assert (opened.epsilon, opened.delta, opened.left) == (1.0, 1e-5, (1.0, 1e-5))
        noise = noise_for(lambda z: [Gaussian(z)], 1.0, 1e-5)
        ledger.charge("scans", [Gaussian(noise)], delta=1e-5, purpose="fit", within=1.0)
        # The second asks for the same, and for more: neither raises the budget.
        for again in (budget, DP(8.0, 1e-4, n_public=1000)):
            assert ledger.open_for(again, "scans").epsilon == 1.0
        with pytest.raises(PrivacyError, match="nothing is left") as refused:
            ledger.charge("scans", [Gaussian(noise)], delta=1e-5, purpose="fit", within=1.0)
        # Where to look, and every way out.
        for words in (f"ledger show --ledger {file}", "--holding", "set-budget"):
            assert words in str(refused.value)
        ledger.set_budget("scans", epsilon=2.0, delta=2e-5)
        ledger.charge("scans", [Gaussian(noise)], delta=1e-5, purpose="fit", within=1.0)

    def test_raising_and_lowering_keeps_what_was_spent(self, ledger: Ledger) -> None:
        charge = pay(ledger)
        assert ledger.set_budget("scans", epsilon=3.0, delta=1e-5).charges == (charge,)
        lowered = ledger.set_budget("scans", epsilon=0.1, delta=1e-5)
        assert lowered == ledger.holding("scans")
        assert lowered.left[0] == 0.0

    def test_unit_and_relation_never_change(self, ledger: Ledger) -> None:
        before = ledger.tip
        with pytest.raises(PrivacyError, match="cannot be mixed"):
            ledger.set_budget("scans", epsilon=2.0, delta=1e-5, unit="subject")
        with pytest.raises(PrivacyError, match="cannot be mixed"):
            ledger.open_for(DP(1.0, 1e-5, relation="replace-one"), "scans")
        assert ledger.tip == before

    def test_wrong_budgets_and_names(self, ledger: Ledger) -> None:
        for epsilon, delta in ((0.0, 1e-5), (math.nan, 1e-5), (-1.0, 1e-5), (1.0, 0.0), (1.0, math.nan), (1.0, 1.0)):
            with pytest.raises(ConfigError, match=r"epsilon|delta"):
                ledger.set_budget("scans", epsilon=epsilon, delta=delta)
        with pytest.raises(ConfigError, match="printable"):
            ledger.set_budget("a\tb", epsilon=1.0, delta=1e-5)
        with pytest.raises(ConfigError, match="'scans' already"):
            ledger.open_for(DP(1.0, 1e-5), "Scans")


class TestChain:
    """Whoever has the file can drop the triggers and edit it: the chain tells."""

    @pytest.fixture
    def database(self, ledger: Ledger, file: Path) -> sqlite3.Connection:
        for _ in range(3):
            pay(ledger, events=(Gaussian(20.0),))
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("DROP TRIGGER no_update")
        database.execute("DROP TRIGGER no_delete")
        return database

    def refused(self, ledger: Ledger, place: int) -> None:
        told = rf"Entry {place} of the ledger .* was altered or is missing"
        for use in (ledger.holdings, ledger.export, lambda: ledger.tip, lambda: pay(ledger)):
            with pytest.raises(PrivacyError, match=told):
                use()

    def test_an_edited_entry(self, ledger: Ledger, database: sqlite3.Connection) -> None:
        (body,) = database.execute("SELECT body FROM entries WHERE number = 3").fetchone()
        cheaper = json.dumps({**json.loads(body), "epsilon": 0.0001}, sort_keys=True)
        database.execute("UPDATE entries SET body = ? WHERE number = 3", (cheaper,))
        self.refused(ledger, 3)

    def test_a_body_that_is_no_json(self, ledger: Ledger, database: sqlite3.Connection) -> None:
        database.execute("UPDATE entries SET body = 'x' WHERE number = 2")
        self.refused(ledger, 2)

    def test_a_deleted_entry(self, ledger: Ledger, database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM entries WHERE number = 3")
        self.refused(ledger, 3)

    def test_a_deleted_entry_with_the_rest_moved_up(self, ledger: Ledger, database: sqlite3.Connection) -> None:
        database.execute("DELETE FROM entries WHERE number = 3")
        database.execute("UPDATE entries SET number = 3 WHERE number = 4")
        self.refused(ledger, 3)

    def test_entries_that_changed_places(self, ledger: Ledger, database: sqlite3.Connection) -> None:
        for before, after in ((2, 99), (3, 2), (99, 3)):
            database.execute("UPDATE entries SET number = ? WHERE number = ?", (after, before))
        self.refused(ledger, 2)

    def test_the_end_cut_off_shows_by_the_head_in_a_release(
        self, ledger: Ledger, database: sqlite3.Connection
    ) -> None:
        released = ledger.tip
        database.execute("DELETE FROM entries WHERE number = 4")
        assert len(ledger.holding("scans").charges) == 2, "the file alone cannot tell"
        assert not ledger.knows(released)

    def test_an_entry_that_makes_no_sense_is_refused(self, ledger: Ledger) -> None:
        with ledger._entries.turn() as turn:
            turn.append({"kind": "refund", "holding": "scans"})
        with pytest.raises(PrivacyError, match="not valid"):
            pay(ledger)

    def test_an_old_copy_put_back_does_not_know_the_newer_release(self, ledger: Ledger, file: Path) -> None:
        old = pay(ledger).tip
        shutil.copy(file, file.with_name("copy"))
        new = pay(ledger).tip
        shutil.copy(file.with_name("copy"), file)
        assert ledger.knows(old)
        assert not ledger.knows(new)
        assert not ledger.knows("0" * 64)

    def test_an_exported_copy_verifies(self, ledger: Ledger) -> None:
        pay(ledger)
        copy = json.loads(json.dumps(ledger.export()))
        assert check_chain(copy) == ledger.tip
        copy[1]["body"]["epsilon"] = 0.0
        with pytest.raises(PrivacyError, match="Entry 2 "):
            check_chain(copy)


class TestLooks:
    """A look at the records costs nothing, and is never forgotten."""

    def test_it_is_counted_and_spends_nothing(self, ledger: Ledger) -> None:
        before = ledger.holding("scans")
        for holding in ("scans", "scans", "faces"):
            ledger.note_look(holding, "preview of budgets")
        assert (ledger.looks("scans"), ledger.looks("faces"), ledger.looks("others"), ledger.looks()) == (2, 1, 0, 3)
        assert ledger.holding("scans") == before

    def test_it_opens_no_budget(self, file: Path) -> None:
        ledger = Ledger(file)
        ledger.note_look("scans", "preview of budgets")
        assert ledger.holdings() == {}
        with pytest.raises(ConfigError, match="no holding 'scans'; it knows none"):
            pay(ledger)
        ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
        pay(ledger)
        assert len(ledger.holding("scans").charges) == ledger.looks() == 1

    def test_it_is_salted_and_part_of_the_chain(self, ledger: Ledger, file: Path) -> None:
        ledger.note_look("scans", "preview of budgets")
        ledger.note_look("scans", "preview of budgets")
        first, second = (entry["body"] for entry in ledger.export()[-2:])
        assert (first["kind"], first["holding"], first["purpose"]) == ("looked", "scans", "preview of budgets")
        assert first["salt"] != second["salt"]
        database = sqlite3.connect(file, isolation_level=None)
        database.execute("DROP TRIGGER no_delete")
        database.execute("DELETE FROM entries WHERE number = 2")
        with pytest.raises(PrivacyError, match=r"Entry 2 of the ledger .* was altered or is missing"):
            ledger.looks()

    def test_a_backup_keeps_it_and_restoring_an_older_one_is_refused(self, ledger: Ledger, tmp_path: Path) -> None:
        older = ledger.export()
        ledger.note_look("scans", "preview of budgets")
        copy = Ledger(tmp_path / "copy.sqlite")
        assert copy.restore(ledger.export()) == 2
        assert copy.looks() == 1
        with pytest.raises(PrivacyError, match="1 entries that the backup does not"):
            ledger.restore(older)

    def test_names_and_purposes_are_checked(self, ledger: Ledger) -> None:
        for name, purpose in (("", "preview"), ("scans", ""), ("scans", "a\tb"), ("Scans", "preview")):
            with pytest.raises(ConfigError):
                ledger.note_look(name, purpose)
        assert ledger.looks() == 0

    def test_one_without_a_purpose_makes_no_sense(self, ledger: Ledger) -> None:
        with ledger._entries.turn() as turn:
            turn.append({"kind": "looked", "holding": "scans"})
        with pytest.raises(PrivacyError, match="not valid"):
            ledger.holdings()

    def test_two_processes_at_once_lose_none(self, file: Path) -> None:
        barrier = SPAWN.Barrier(2)
        workers = [SPAWN.Process(target=look_at_once, args=(str(file), barrier)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(120)
        assert Ledger(file).looks() == 20
        assert check_chain(Ledger(file).export()) == Ledger(file).tip


def look_at_once(file: str, barrier: Any) -> None:
    barrier.wait(60)
    ledger = Ledger(file)
    for _ in range(10):
        ledger.note_look("scans", "preview of budgets")


def charge_at_once(file: str, barrier: Any, rounds: int, results: Any) -> None:
    ledger, won = Ledger(file), []
    epsilon_of(FIT, 1e-6)
    for number in range(rounds):
        barrier.wait(60)
        try:
            won.append(ledger.charge(f"round {number}", FIT, delta=1e-6, purpose="race").identity)
        except PrivacyError:
            won.append(None)
    results.put(won)


def test_two_processes_that_race_for_the_last_budget(file: Path) -> None:
    """Exactly one of them wins, in each of thirty rounds."""
    rounds, ledger = 30, Ledger(file)
    for number in range(rounds):
        ledger.set_budget(f"round {number}", epsilon=epsilon_of(FIT, 1e-6) * 1.5, delta=1e-5)
    barrier, results = SPAWN.Barrier(2), SPAWN.Queue()
    workers = [SPAWN.Process(target=charge_at_once, args=(str(file), barrier, rounds, results)) for _ in range(2)]
    for worker in workers:
        worker.start()
    first, second = results.get(timeout=120), results.get(timeout=120)
    for worker in workers:
        worker.join(60)
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        assert (one is None) != (other is None)
        (charge,) = ledger.holding(f"round {number}").charges
        assert charge.identity in (one, other)


def charge_until_killed(ledger: Ledger, told: int) -> None:
    """In a forked child: pay again and again, and say so each time a charge has returned."""
    while True:
        os.write(told, ledger.charge("scans", FIT, delta=1e-6, purpose="fit").identity.encode() + b"\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_at_random_moments(file: Path) -> None:
    """What a charge returned for is there after SIGKILL, whenever it strikes; at most the one under way is extra."""
    ledger, rng = Ledger(file), random.Random(0)
    ledger.set_budget("scans", epsilon=1e6, delta=0.5)
    cost, known = epsilon_of(FIT, 1e-6), []
    for _ in range(30):
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            charge_until_killed(ledger, writable)
        os.close(writable)
        with open(readable, "rb") as pipe:
            told = [pipe.readline()]
            time.sleep(rng.uniform(0, 0.03))
            os.kill(child, signal.SIGKILL)
            told += pipe.readlines()
        os.waitpid(child, 0)
        returned = [line.decode().strip() for line in told if line.endswith(b"\n")]
        kept = [charge.identity for charge in ledger.holding("scans").charges]
        assert kept[: len(known) + len(returned)] == known + returned
        # One may have been paid for without anybody being told: that is the safe side.
        assert len(kept) <= len(known) + len(returned) + 1
        known = kept
    assert len(known) >= 30
    assert ledger.holding("scans").spent[0] == pytest.approx(len(known) * cost)


class TestParts:
    def test_each_part_has_one_result(self, ledger: Ledger) -> None:
        charge = pay(ledger)
        assert ledger.results(charge) == {}
        for part, result in (("sums", "a"), ("steps 0 to 2", "b"), ("", "c")):
            ledger.finish(charge, result, part)
        assert ledger.results(charge) == {"sums": "a", "steps 0 to 2": "b", "": "c"}
        for part in ("sums", "steps 0 to 2", ""):
            with pytest.raises(PrivacyError, match="another result already"):
                ledger.finish(charge, "z", part)
        assert ledger.results(charge) == {"sums": "a", "steps 0 to 2": "b", "": "c"}

    def test_a_step_is_used_once_however_rounds_are_cut(self, ledger: Ledger) -> None:
        charge = pay(ledger)
        ledger.finish(charge, "a", "steps 0 to 8")
        for part in ("steps 0 to 4", "steps 7 to 9", "steps 2 to 3", "steps 0 to 80"):
            with pytest.raises(PrivacyError, match="another result already"):
                ledger.finish(charge, "b", part)
        ledger.finish(charge, "b", "steps 8 to 16")
        assert set(ledger.results(charge)) == {"steps 0 to 8", "steps 8 to 16"}

    def test_the_same_result_again_is_no_entry(self, ledger: Ledger) -> None:
        charge = pay(ledger)
        ledger.finish(charge, "a", "sums")
        tip = ledger.tip
        ledger.finish(charge, "a", "sums")
        assert ledger.tip == tip

    def test_charges_are_kept_apart_and_cost_what_they_cost(self, ledger: Ledger) -> None:
        one, two = pay(ledger), pay(ledger)
        spent = ledger.holding("scans").spent
        ledger.finish(one, "a", "sums")
        ledger.finish(two, "b", "sums")
        assert (ledger.results(one), ledger.results(two)) == ({"sums": "a"}, {"sums": "b"})
        assert ledger.holding("scans").spent == spent

    def test_a_charge_of_another_ledger_is_refused_and_harms_nothing(self, ledger: Ledger, tmp_path: Path) -> None:
        other = Ledger(tmp_path / "other.sqlite")
        other.set_budget("faces", epsilon=2.0, delta=1e-5)
        charge = other.charge("faces", FIT, delta=1e-6, purpose="means")
        before = ledger.tip
        with pytest.raises(PrivacyError, match="paid elsewhere"):
            ledger.finish(charge, "a", "sums")
        # It would have been an entry that makes no sense, and the end of this ledger.
        assert ledger.tip == before
        assert ledger.holdings().keys() == {"scans"}


class TestPlaces:
    def test_a_place_that_cannot_be_used_is_one_sentence(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="--ledger"):
            Ledger(tmp_path / "no" / "such" / "folder.sqlite")

    def test_a_ledger_can_be_used_like_a_file(self, file: Path) -> None:
        with Ledger(file) as ledger:
            assert ledger.file == file
            assert ledger.tip == "0" * 64
            assert ledger.holdings() == {}
