"""Noisy sums within one payment: the filter, the ledger, and a fit that is killed and goes on."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.accounting import Ledger, QueryPlan, epsilon_of, plan_head, plan_query
from locum.errors import CheckpointError, ConfigError, PrivacyError
from locum.generate import ClassGaussian
from locum.generate.private import PaidSums
from locum.generate.private.paid_sums import identity_of
from locum.io import hold_folder
from locum.mechanisms import ExactSums
from locum.types import DP

BUDGET = DP(1.0, 1e-6)
PLAN = plan_query(BUDGET, sums=5)


def sums(n: int = 3) -> ExactSums:
    return ExactSums(np.full(n, 2.0**-30))


def seeded(plan: QueryPlan = PLAN) -> PaidSums:
    return PaidSums(plan, None, "data", "a test", insecure_seed=0)


class Book:
    """A ledger and a checkpoint in a folder, and the fits that use them."""

    def __init__(self, folder: Path) -> None:
        self.ledger, self.file = Ledger(folder / "ledger.sqlite"), folder / "state" / "fit.checkpoint"
        self.ledger.open_for(BUDGET, "data")

    def open(self, identity: str = "one", plan: QueryPlan = PLAN) -> PaidSums:
        return PaidSums(plan, self.ledger, "data", "a test", checkpoint=self.file, identity=identity)

    @property
    def charges(self) -> int:
        return len(self.ledger.holding("data").charges)


@pytest.fixture
def book(tmp_path: Path) -> Book:
    return Book(tmp_path)


class TestFilter:
    @given(st.lists(st.floats(0.0, 1.0).filter(lambda share: share == 0 or share > 1e-9), max_size=8))
    def test_no_path_gets_more_precision_than_the_plan_has(self, shares: list[float]) -> None:
        """Whatever is asked for, what was granted is at most what one sum with the plan's noise has."""
        paid, granted = seeded(), []
        for share in shares:
            try:
                paid.draw(sums, share)
            except PrivacyError:
                continue
            granted.append(share)
        # The noise of a draw is (1 + 1e-9) sigma / sqrt(share).
        precision = sum(share / (1 + 1e-9) ** 2 for share in granted)
        assert precision <= 1.0
        assert len(granted) <= PLAN.sums

    @pytest.mark.parametrize("share", [0.0, -0.1, float("nan"), float("inf"), 1.0000001])
    def test_shares_that_are_none_are_refused(self, share: float) -> None:
        with pytest.raises(PrivacyError, match="not paid for"):
            seeded().draw(sums, share)

    def test_more_sums_than_planned_are_refused(self) -> None:
        paid = seeded()
        for _ in range(5):
            paid.draw(sums, 0.01)
        with pytest.raises(PrivacyError, match="5 sums were planned"):
            paid.draw(sums, 0.01)

    def test_noise_follows_from_the_share(self) -> None:
        """Of 40,000 numbers the spread is known to within a few percent."""
        many = ExactSums(np.full(40_000, 2.0**-30))
        paid = seeded()
        for share in (0.5, 0.05):
            spread = float(np.std(paid.draw(lambda: many, share)))
            assert spread == pytest.approx(PLAN.noise_multiplier / np.sqrt(share), rel=0.03)

    def test_a_seed_or_a_ledger_but_never_both_or_none(self, book: Book) -> None:
        for ledger, seed in ((None, None), (book.ledger, 0)):
            with pytest.raises(PrivacyError, match="ledger"):
                PaidSums(PLAN, ledger, "data", "a test", insecure_seed=seed)

    def test_too_little_noise_is_refused_before_it_is_paid_for(self, tmp_path: Path) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(40, 3)), np.arange(40) % 2
        for mechanism in ("head", "means"):
            ledger = tmp_path / f"{mechanism}.sqlite"
            model = ClassGaussian(privacy=DP(400.0, 1e-6), classes=[0, 1], mechanism=mechanism, ledger=ledger)
            with pytest.raises(PrivacyError, match="protects nobody"):
                model.fit(X, y)
            assert not Ledger(ledger).holding("default").charges


class TestKilled:
    def test_a_killed_fit_goes_on_with_the_same_results_and_one_payment(self, book: Book) -> None:
        first = book.open()
        drawn = [first.draw(sums, 0.2), first.draw(sums, 0.3)]
        again = book.open()

        def never() -> ExactSums:
            raise AssertionError("drawn before")

        np.testing.assert_array_equal(again.draw(never, 0.2), drawn[0])
        np.testing.assert_array_equal(again.draw(never, 0.3), drawn[1])
        again.draw(sums, 0.5)
        assert book.charges == 1
        assert again.charge == first.charge
        assert len(again.finish()) == 9
        assert again.left == pytest.approx(0.0, abs=1e-12)

    def test_the_name_is_kept_before_the_payment(self, book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
        """Killed between the two, the next run pays once, under the name that was kept."""
        real = Ledger.charge

        def killed(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(Ledger, "charge", killed)
        with pytest.raises(KeyboardInterrupt):
            book.open()
        monkeypatch.setattr(Ledger, "charge", real)
        assert book.charges == 0
        kept = book.file.read_bytes()
        paid = book.open()
        assert paid.charge is not None
        assert paid.charge.identity.encode() in kept
        assert book.charges == 1

    def test_killed_after_the_payment_it_does_not_pay_again(
        self, book: Book, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = Ledger.charge

        def pay_and_die(*args: Any, **options: Any) -> None:
            real(*args, **options)
            raise KeyboardInterrupt

        monkeypatch.setattr(Ledger, "charge", pay_and_die)
        with pytest.raises(KeyboardInterrupt):
            book.open()
        monkeypatch.setattr(Ledger, "charge", real)
        assert book.open().charge is not None
        assert book.charges == 1

    def test_another_share_for_a_result_that_was_drawn_is_refused(self, book: Book) -> None:
        """Else a version with another schedule would draw more than was paid for."""
        book.open().draw(sums, 0.9)
        again = book.open()
        with pytest.raises(CheckpointError, match=r"0\.9"):
            again.draw(sums, 0.1)

    def test_an_old_copy_draws_nothing_a_second_time(self, book: Book) -> None:
        paid = book.open()
        old = book.file.read_bytes()
        paid.draw(sums, 0.5)
        book.file.write_bytes(old)
        asked: list[int] = []
        with pytest.raises(PrivacyError, match="old copy"):
            book.open().draw(lambda: asked.append(1) or sums(), 0.5)  # type: ignore[func-returns-value]
        assert not asked

    def test_the_file_of_another_fit_is_refused_and_kept(self, book: Book) -> None:
        book.open("one").draw(sums, 0.5)
        kept = book.file.read_bytes()
        with pytest.raises(CheckpointError, match="other data or settings"):
            book.open("two")
        assert book.file.read_bytes() == kept
        assert book.charges == 1

    @pytest.mark.parametrize("shape", [(1, 3), (3,)])
    def test_a_damaged_file_is_one_sentence(self, book: Book, shape: tuple[int, ...]) -> None:
        from safetensors.numpy import save

        book.open()
        known = {"identity": "one", "charge": "c" * 32, "shares": json.dumps([0.5])}
        wrong = np.zeros(shape, np.float32 if len(shape) == 2 else np.float64)
        for raw in (save({"0000": wrong}, metadata=known), b"not a checkpoint"):
            book.file.write_bytes(raw)
            with pytest.raises(CheckpointError, match="damaged"):
                book.open()

    def test_a_refused_payment_leaves_no_file(self, book: Book) -> None:
        with pytest.raises(PrivacyError, match="left"):
            book.open(plan=plan_query(DP(2.0, 1e-6), sums=5))
        assert not book.file.exists()
        assert book.charges == 0

    def test_it_is_private(self, book: Book) -> None:
        book.open().draw(sums, 0.5)
        assert book.file.stat().st_mode & 0o777 == 0o600


class TestFits:
    """The same through the estimator."""

    @pytest.mark.parametrize("mechanism", ["head", "means", "covariance"])
    @pytest.mark.parametrize("subject", [False, True])
    def test_killed_at_any_draw_it_ends_as_if_nothing_had_happened(
        self, mechanism: str, subject: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(300, 5)) + np.arange(300)[:, None] % 2, np.arange(300) % 2
        # Objects, as pandas reads text.
        who = np.array([f"p{i // 2}" for i in range(300)], dtype=object) if subject else None
        budget = DP(1.0, 1e-6, unit="subject" if subject else "record")

        def fit() -> ClassGaussian:
            return ClassGaussian(
                privacy=budget,
                classes=[0, 1],
                mechanism=mechanism,
                ledger=tmp_path / "ledger.sqlite",
                checkpoint=tmp_path / "fit.checkpoint",
            ).fit(X, y, None if who is None else who.copy())

        real = PaidSums.draw
        for stop in range(1, 4):
            number = iter(range(100))

            def dies(self: PaidSums, *args: Any, number: Any = number, stop: int = stop) -> Any:
                if next(number) == stop:
                    raise KeyboardInterrupt
                return real(self, *args)

            monkeypatch.setattr(PaidSums, "draw", dies)
            try:
                fit()
            except KeyboardInterrupt:
                continue
        monkeypatch.setattr(PaidSums, "draw", real)
        model, again = fit(), fit()
        assert (tmp_path / "fit.checkpoint").exists()
        name = "transcript" if mechanism == "head" else "statistics"
        np.testing.assert_array_equal(model.release().tensors[name], again.release().tensors[name])
        model.remove_checkpoint()
        assert not (tmp_path / "fit.checkpoint").exists()
        (charge,) = Ledger(tmp_path / "ledger.sqlite").holding("default").charges
        assert charge.events == model.plan().events
        with pytest.raises(PrivacyError, match="left"):
            fit()

    def test_a_checkpoint_is_for_one_process_at_a_time(self, tmp_path: Path) -> None:
        with multiprocessing.get_context("fork").Pool(1) as pool:
            held = pool.apply_async(_hold, (tmp_path / "fit.checkpoint", tmp_path / "ready"))
            while not (tmp_path / "ready").exists():
                pass
            model = ClassGaussian(
                privacy=BUDGET, classes=[0, 1], ledger=tmp_path / "l.sqlite", checkpoint=tmp_path / "fit.checkpoint"
            )
            with pytest.raises(ConfigError, match="Another process"):
                model.fit(np.eye(4), [0, 1, 0, 1])
            (tmp_path / "ready").unlink()
            held.get(timeout=20)
        assert not (tmp_path / "l.sqlite").exists()


def _hold(file: Path, ready: Path) -> None:
    with hold_folder(file):
        ready.touch()
        while ready.exists():
            pass


def test_the_same_records_have_one_identity_however_they_are_stored() -> None:
    who = np.array([0, 1, 1], dtype=np.int64)
    assert identity_of({"a": 1}, who) == identity_of({"a": 1}, who.copy())
    assert identity_of({"a": 1}, who) != identity_of({"a": 1}, who[::-1])
    assert identity_of({"a": 1}, who) != identity_of({"a": 2}, who)


def test_every_planned_sum_is_charged_whether_or_not_it_is_drawn() -> None:
    one, many = plan_query(BUDGET), plan_head(BUDGET)
    same = QueryPlan(BUDGET, 1.0, one.noise_multiplier, many.sums)
    gap: Callable[[QueryPlan], float] = lambda plan: epsilon_of(plan.events, 1e-6)  # noqa: E731
    # A billionth of epsilon for each of the others, and a little for rounding.
    assert gap(same) - gap(one) == pytest.approx((many.sums - 1) * 1e-9, rel=0.2)
    assert many.epsilon <= 1.0
