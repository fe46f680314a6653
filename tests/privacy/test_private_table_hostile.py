"""Attacks on private tables: one record that moves others, unpaid facts about records, and forged folders."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from pyarrow.parquet import write_table
from safetensors.numpy import load_file, save_file

from locum.data import ledger_for
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.generate.private import PaidSums, paid_sums, subjects
from locum.generate.table import (
    CategoryColumn,
    NumberColumn,
    PrivateTable,
    TableDomain,
    TableLearner,
    open_table,
    row_weights,
)
from locum.mechanisms import noisy
from locum.recipes import draft_domain, fit_private_table, verify_release
from locum.recipes.obfuscate_private import _table
from locum.types import DP

BUDGET = DP(1.0, 1e-6)
TEXT = CategoryColumn("x", ("1", "2"), other="other", missing=True)


# -- a record must not decide how the values of others are read ------------------------------------------------------
@pytest.mark.parametrize(
    ("column", "others", "one"),
    [
        (CategoryColumn("x", ("0.0",), other="other"), pd.Series([0.0, 0.0]), pd.Series([-0.0])),
        (
            CategoryColumn("x", ("0.0",), other="other"),
            pd.Series([0.0], dtype=object),
            pd.Series([-0.0], dtype=object),
        ),
        (TEXT, pd.Series([Decimal("1")], dtype=object), pd.Series([Decimal("1.0")], dtype=object)),
        (TEXT, pd.Series([1, 2]), pd.Series([1.5])),
        (TEXT, pd.Series([1, 2]), pd.Series([None], dtype=object)),
        (TEXT, pd.Series([1, 2]), pd.Series([np.nan])),
        (TEXT, pd.Series([1, 2], dtype=object), pd.Series([True], dtype=object)),
        (TEXT, pd.Series(["1", "2"]), pd.Series([[1, 2]], dtype=object)),
    ],
)
def test_one_value_does_not_move_others(column: CategoryColumn, others: pd.Series, one: pd.Series) -> None:
    alone = column.codes(others).tolist()
    assert column.codes(pd.concat([one, others], ignore_index=True)).tolist()[1:] == alone
    assert column.codes(pd.concat([others, one], ignore_index=True)).tolist()[:-1] == alone


plain = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, float("nan"), float("inf"), 2.0**60, 10**400, True, False, None]),
    st.sampled_from(["1", " 1", "1.0", "01", "", "nan", "inf", "True", "x"]),
    st.sampled_from([Decimal("1"), Decimal("1.00"), np.int64(1), np.float32(1), pd.NA, pd.NaT, (1,)]),
)


@settings(max_examples=150, deadline=None)
@given(others=st.lists(plain, min_size=1, max_size=6), one=plain, place=st.integers(0, 6))
def test_codes_depend_on_their_own_value(others: list[Any], one: Any, place: int) -> None:
    """With the types that pandas finds by itself, as well as with objects."""
    columns = (
        CategoryColumn("x", ("0", "1", "1.0", "True"), other="other", missing=True),
        NumberColumn("x", (-2, 0, 1, 3), special=(0,), missing=True),
        CategoryColumn("x", (0, 1, 2), missing=True),
    )
    values = [*others[:place], one, *others[place:]]
    at = len(others[:place])
    for column in columns:
        try:
            every = column.codes(pd.Series(values, dtype=object)).tolist()
        except LocumError:
            continue
        assert every[:at] + every[at + 1 :] == column.codes(pd.Series(others, dtype=object)).tolist()
        for value, code in zip(values, every, strict=True):
            assert column.codes(pd.Series([value], dtype=object)).tolist() == [code]


def test_a_gap_in_parquet_does_not_move_others(tmp_path: Path) -> None:
    found = []
    for name, last in (("full", 2), ("gap", None)):
        file = tmp_path / f"{name}.parquet"
        long = pa.array([2**53 + 1, 2**53, last], pa.int64())
        write_table(pa.table({"x": pa.array([1, 2, last], pa.int64()), "id": long}), file)
        rows = _table(str(file))
        found.append((TEXT.codes(rows["x"]).tolist()[:2], rows["id"].tolist()[:2]))
    assert found[0] == found[1] == ([0, 1], [2**53 + 1, 2**53])


@pytest.mark.parametrize("split", ["", "#all"])
def test_one_cell_of_a_csv_does_not_move_others(split: str, tmp_path: Path) -> None:
    for last in ("2", "1.5", "", "text", "true"):
        (tmp_path / "t.csv").write_text(f"x,y\n1,a\n2,b\n{last},c\n")
        assert TEXT.codes(_table(f"{tmp_path / 't.csv'}{split}")["x"]).tolist()[:2] == [0, 1]


# -- subjects --------------------------------------------------------------------------------------------------------
def test_missing_subjects_of_any_kind_are_refused() -> None:
    for missing in (None, np.nan, pd.NA, pd.NaT, "", "  "):
        with pytest.raises(PrivacyError, match="one is missing"):
            subjects([1, missing])
    assert subjects([1, "1", np.int64(1), " 1"]).tolist() == [0, 0, 0, 1]


def people(n: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(20, 60, n), "town": rng.choice(["A", "B"], n)})
    return frame.assign(label=rng.choice(["x", "y"], n), patient=rng.integers(0, 100, n))


def fit(folder: Path, frame: pd.DataFrame, suffix: str = "csv", **given: Any) -> Any:
    data = folder / f"people.{suffix}"
    frame.to_csv(data, index=False) if suffix == "csv" else frame.to_parquet(data, index=False)
    return fit_private_table(str(data), folder / "table", utility="label", privacy=BUDGET, **given)


@pytest.mark.parametrize("wrap", [np.asarray, pd.Series])
def test_subjects_as_floating_point_numbers_are_refused(wrap: Any, tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="floating-point"):
        subjects(wrap([2.0**53, 2.0**53 + 2]))
    with pytest.raises(PrivacyError, match="floating-point"):
        fit(tmp_path, people().assign(patient=lambda f: f["patient"] / 1), "parquet", domain_public=True)


def test_dropping_the_column_of_subjects_does_not_weaken_the_unit(tmp_path: Path) -> None:
    assert fit(tmp_path, people(), domain_public=True, drop=["patient"]).claim.unit == "subject"


def test_unit_record_can_still_be_chosen(tmp_path: Path) -> None:
    assert fit(tmp_path, people(), domain_public=True, drop=["patient"], unit="record").claim.unit == "record"


# -- what --domain-public takes from the data ------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["age", "town", "label"])
def test_one_missing_value_does_not_become_public(name: str, tmp_path: Path) -> None:
    frame = people().astype({name: object})
    frame.loc[0, name] = None
    with pytest.raises(PrivacyError, match="missing for fewer than 20 subjects"):
        fit(tmp_path, frame, domain_public=True)


def test_what_is_asked_and_claimed_includes_missing_values(tmp_path: Path) -> None:
    frame, shown = people().astype({"age": object}), []
    frame.loc[:99, "age"] = None
    summary = fit(tmp_path, frame, confirm_domain=lambda lines: not shown.extend(lines))
    assert shown[0] == "age (or missing): whole numbers from 20 to 59"
    assert "whether values are missing" in summary.claim.assumptions[0]


def test_a_draft_names_nobody_and_is_noted(tmp_path: Path) -> None:
    """A drafted domain that is passed on as it is becomes public."""
    data = tmp_path / "people.csv"
    frame = people().assign(name=["usual"] * 399 + ["Jane Roe"])
    # One subject with many records is as rare as one record.
    frame.loc[:29, ["town", "patient"]] = "Nowhere", 500
    frame.to_csv(data, index=False)
    file = draft_domain(str(data), tmp_path / "domain.json", utility="label")
    text = file.read_text()
    assert not any(word in text for word in ("Jane Roe", "Nowhere", "patient"))
    summary = fit_private_table(str(data), tmp_path / "table", utility="label", privacy=BUDGET, domain=file)
    assert summary.claim.not_covered[-1] == "settings were chosen after previews on the records"


# -- all draws of a payment together ---------------------------------------------------------------------------------
DOMAIN = TableDomain(
    (
        CategoryColumn("a", ("x", "y", "z")),
        NumberColumn.within("b", 0, 9, whole=True, missing=True),
        CategoryColumn("label", ("no", "yes")),
    )
)


def scores(unit: str, factor: float, repeats: int) -> tuple[float, float, float]:
    """Mean with and without a canary, and deviation, of the best score that an attacker has; and how it should be."""
    table = PrivateTable(DOMAIN, "label", DP(4.0, 1e-5, unit))  # type: ignore[arg-type]
    z, rng = table.plan().noise_multiplier, np.random.default_rng(0)
    rows = np.column_stack([rng.integers(0, cells, 40) for cells in DOMAIN.cells])
    owners = None if unit == "record" else np.arange(40) // 2
    canary = rows[:1] if unit == "record" else np.repeat(rows[:1], 7, axis=0)
    found: list[list[float]] = [[], []]
    for member in (0, 1):
        codes = np.concatenate([rows, canary]) if member else rows
        who = owners
        if owners is not None and member:
            who = np.concatenate([owners, np.full(7, 99)])
        for _ in range(repeats):
            learner, score = TableLearner(DOMAIN, "label", z), 0.0
            while not learner.done:
                query, share = learner.query, learner.share
                # Secure noise, as a paid fit draws it.
                drawn = noisy(query.sums(codes, row_weights(len(codes), who)), factor * z / np.sqrt(share)).to_array()
                known = query.sums(rows, row_weights(len(rows), owners)).to_array()
                own = query.sums(canary, row_weights(len(canary), None if who is None else np.zeros(7, int)))
                score += float((drawn - known) @ own.to_array()) * share / z
                learner.take(drawn)
            found[member].append(score)
    out, included = map(np.array, found)
    return float(included.mean() - out.mean()) * z, float(np.sqrt((out.var() + included.var()) / 2)), z


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_the_noise_of_a_whole_payment_is_what_the_plan_says(unit: str) -> None:
    """The best attacker's score over all draws has deviation 1, and a unit moves it by 1 / noise multiplier."""
    repeats = 120
    shift, deviation, z = scores(unit, 1.0, repeats)
    assert shift == pytest.approx(1, abs=5 * z / np.sqrt(repeats / 2))
    assert deviation == pytest.approx(1, abs=5 / np.sqrt(4 * repeats))
    assert scores(unit, 0.5, repeats)[1] < 0.75


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableDomain, list[tuple[int, ...]], list[int], int]:
    """A domain with up to four other columns, records, their subjects, and the rows that a subject may add."""
    column = st.tuples(st.booleans(), st.integers(1, 40), st.booleans())
    others = [
        NumberColumn.within(f"c{i}", 0, size, whole=True, special=(size,), missing=missing)
        if number
        else CategoryColumn(f"c{i}", tuple(range(size)), missing=missing)
        for i, (number, size, missing) in enumerate(draw(st.lists(column, min_size=1, max_size=4)))
    ]
    others.insert(draw(st.integers(0, len(others))), CategoryColumn("label", (0, 1, 2)))
    domain = TableDomain(tuple(others))
    row = st.tuples(*(st.integers(0, cells - 1) for cells in domain.cells))
    rows = draw(st.lists(row, min_size=1, max_size=15))
    repeated = [one for one in rows for _ in range(draw(st.sampled_from([1, 1, 2, 50])))]
    who = [draw(st.integers(0, 3)) for _ in repeated] if len(repeated) < 30 else [i % 3 for i in range(len(repeated))]
    return domain, repeated, who, draw(st.integers(1, 5))


@settings(max_examples=80, deadline=None)
@given(given_=tables(), by_subject=st.booleans(), seed=st.integers(0, 99))
def test_a_unit_adds_what_it_would_add_alone(given_: Any, by_subject: bool, seed: int) -> None:
    """Over all draws of any domain: the same integers as alone, and all precisions together within one payment."""
    domain, rows, who, k = given_
    codes, owners = np.array(rows), np.unique(who, return_inverse=True)[1]
    unit = owners == owners[0] if by_subject else np.arange(len(rows)) == 0
    z, rng, spent = 1.5, np.random.default_rng(seed), Fraction(0)
    learner = TableLearner(domain, "label", z)

    def sums(chosen: Any) -> Any:
        held = np.unique(owners[chosen], return_inverse=True)[1] if by_subject and chosen.any() else None
        return learner.query.sums(codes[chosen], row_weights(int(chosen.sum()), held, k if by_subject else 1))

    while not learner.done:
        every, alone = sums(np.ones(len(rows), bool)), sums(unit)
        assert np.array_equal(every.integers - sums(~unit).integers, alone.integers)
        at = alone.integers != 0
        square = sum(
            (Fraction(int(one)) * Fraction(step)) ** 2
            for one, step in zip(alone.integers[at], alone.steps[at], strict=True)
        )
        assert square <= 1
        spent += square * Fraction(learner.share)
        learner.take(every.to_array() + z / np.sqrt(learner.share) * rng.normal(size=learner.query.size))
    assert spent <= 1
    drawn = learner.model(k).sample(20, random_state=seed)
    assert (domain.codes(drawn) >= 0).all()


def test_shares_of_all_draws_are_one_payment() -> None:
    plan = PrivateTable(DOMAIN, "label", BUDGET).plan()
    learner = TableLearner(DOMAIN, "label", plan.noise_multiplier)
    assert sum(map(Fraction, learner.shares)) <= Fraction(1) + Fraction(1, 10**9)
    assert len(learner.shares) == plan.sums
    used: list[float] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paid_sums, "noisy", lambda sums, noise, **_: used.append(noise) or sums)
        paid = PaidSums(plan, None, "x", "y", insecure_seed=0)
        while not learner.done:
            query = learner.query
            learner.take(
                paid.draw(lambda query=query: query.sums(np.zeros((2, 3), int), row_weights(2)), learner.share)
            )
    # One over the squared noise adds up: the joint length of a unit is that of a single draw.
    assert sum(noise**-2.0 for noise in used) <= plan.noise_multiplier**-2.0


# -- budget that would be lost ---------------------------------------------------------------------------------------
def test_a_payment_is_not_wasted_on_too_many_cells() -> None:
    """Each cell that many records make possible is cut to what can be counted, after the first draw as well."""
    domain = TableDomain(
        (
            CategoryColumn("label", tuple(range(30))),
            *(NumberColumn.within(f"c{i}", 0, 60, whole=True) for i in range(63)),
        )
    )
    learner = TableLearner(domain, "label", 0.1)
    for records in (3e6, 3e6):
        query = learner.query
        tables = [np.full(query.shape(table), records / np.prod(query.shape(table))) for table in query.tables]
        parts = [table.ravel() * np.sqrt(share) for table, share in zip(tables, query.shares, strict=True)]
        learner.take(np.concatenate(parts))


def test_a_domain_that_no_manifest_holds_is_refused_before_it_is_paid_for() -> None:
    columns = tuple(CategoryColumn(f"c{i}", tuple("д" * 150 + str(j) for j in range(900))) for i in range(6))
    with pytest.raises(ConfigError, match="longer than"):
        TableDomain((*columns, CategoryColumn("label", ("x", "y"))))


# -- forged folders --------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def paid_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("paid")
    fit(folder, people(), domain_public=True)
    return folder


def forged(folder: Path, target: Path, edit: Callable[[dict[str, Any]], Any]) -> Path:
    shutil.copytree(folder / "table", target)
    about = json.loads((target / "manifest.json").read_text())
    edit(about)
    (target / "manifest.json").write_text(json.dumps(about))
    return target


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: (m["claim"]["dp"].update(epsilon=0.01), m["settings"].update(epsilon=0.01)),
        lambda m: (m["claim"]["dp"].update(delta=1e-12), m["settings"].update(delta=1e-12)),
        lambda m: (m["claim"]["dp"].update(relation="replace-one"), m["settings"].update(relation="replace-one")),
        lambda m: m["claim"]["dp"]["events"][0].update(noise_multiplier=100.0),
        lambda m: m["claim"]["dp"]["events"][0].update(sums=1),
        lambda m: m["settings"].update(noise_multiplier=100.0),
        lambda m: m["claim"].update(unit="record"),
        lambda m: m["claim"].update(kind="none", dp=None, unit=None),
        lambda m: m["files"].update({"../x": m["files"]["README.md"]}),
        lambda m: m.update(parents=[0, 1]),
        lambda m: m.update(parents=[-1, 7]),
        lambda m: m.update(count=1e300),
        lambda m: m.update(utility="age"),
        lambda m: m["domain"]["columns"]["town"]["values"].append("C"),
    ],
)
def test_a_claim_that_its_own_numbers_contradict_does_not_open(edit: Any, paid_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LocumError):
        open_table(forged(paid_folder, tmp_path / "forged", edit))


def ledger_of(folder: Path) -> Path:
    return ledger_for(str(folder / "people.csv"))


def test_the_holder_can_verify_a_table(paid_folder: Path) -> None:
    found = verify_release(paid_folder / "table", ledger=ledger_of(paid_folder))
    assert "the model follows from the noisy counts next to it" in found.checks
    assert any("by its fingerprint" in check for check in found.checks)
    assert any("paid for" in line for line in verify_release(paid_folder / "table").not_checked)


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["claim"].update(assumptions=[]),
        lambda m: m["claim"].update(not_covered=[]),
        lambda m: (m["claim"].update(unit="record"), m["settings"].update(unit="record")),
        lambda m: m["claim"]["dp"].update(ledger="0" * 64),
        lambda m: m["settings"].update(rows_per_subject=2),
    ],
)
def test_the_ledger_tells_a_forged_table(edit: Any, paid_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LocumError):
        verify_release(forged(paid_folder, tmp_path / "forged", edit), ledger=ledger_of(paid_folder))


@pytest.mark.parametrize("name", ["label", "conditionals.0", "within.0", "transcript"])
def test_a_model_that_does_not_follow_from_its_counts_is_refused(
    name: str, paid_folder: Path, tmp_path: Path
) -> None:
    """Records that were written into the model instead of noisy counts show without a ledger."""
    target = tmp_path / "forged"
    shutil.copytree(paid_folder / "table", target)
    tensors = load_file(target / "table.safetensors")
    turned = tensors[name][..., ::-1].copy()
    # Noise can merge all values of a column, and one number reads the same both ways.
    tensors[name] = turned / 2 if np.array_equal(turned, tensors[name]) else turned
    save_file(tensors, target / "table.safetensors")
    about, raw = json.loads((target / "manifest.json").read_text()), (target / "table.safetensors").read_bytes()
    about["files"]["table.safetensors"] = {"bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    (target / "manifest.json").write_text(json.dumps(about))
    with pytest.raises(LocumError):
        verify_release(target)
