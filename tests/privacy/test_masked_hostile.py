"""A coordinator who breaks every rule of masked sums: what real sites, with secure noise and real ledgers, answer."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.accounting import Charge, Ledger, joint_ledger, plan_head
from locum.data import ledger_for, load_reference, write_embeddings
from locum.errors import ConfigError, LocumError, PrivacyError
from locum.federated import (
    Coordinator,
    FederationSettings,
    LocalChannel,
    Reply,
    Request,
    Site,
    check_receipts,
    make_site_key,
)
from locum.federated.masked_site import mask_terms
from locum.federated.masking import MaskedStep
from locum.federated.protocol import Step
from locum.federated.queries import Query, SiteQueries
from locum.federated.site_keys import key_id, read_site_keys
from locum.generate.private import HeadQuery, SoftmaxRule
from locum.mechanisms import ExactSums, noisy
from locum.release import load

pytestmark = pytest.mark.usefixtures("hardly_trained_personal_models")
NAMES = ("site-a", "site-b", "site-c", "site-d")
LARGEST = float(np.finfo(np.float64).max)


class Hostile:
    """Sites in a folder, and somebody who sends them whatever they like."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.keys = folder, dict[str, Any]()
        self.settings = FederationSettings.read(folder / "federation.toml").to_dict()

    def file(self, name: str) -> Path:
        return self.folder / name / "site.toml"

    def ask(
        self,
        name: str,
        step: Step,
        number: int = 0,
        facts: Mapping[str, Any] | None = None,
        tensors: Mapping[str, np.ndarray] | None = None,
        run: str = "run",
    ) -> Reply:
        told = {"run": run, "settings": self.settings, **(facts or {})}
        return Site(self.file(name)).reply(Request(step, number, "n", told, tensors or {}))

    def outcome(self, *args: Any, **more: Any) -> str:
        """What a coordinator sees besides numbers: an answer, a refusal, or an error, and its text."""
        try:
            return self.ask(*args, **more).declined or "answered"
        except LocumError as error:
            return str(error)

    def begin(self) -> dict[str, dict[str, np.ndarray]]:
        """Everything up to the payment; the shares that each site was sent."""
        self.keys = keys = {name: self.ask(name, "join").facts["keys"] for name in NAMES}
        blobs = {name: self.ask(name, "share", 0, {"keys": keys}).tensors for name in NAMES}
        sent = {name: {other: blobs[other][name] for other in NAMES if other != name} for name in NAMES}
        for name in NAMES:
            assert not self.ask(name, "begin", 0, {}, sent[name]).declined
        return sent

    def sum(self, name: str, number: int, share: float) -> Reply:
        """Ask for the first query of a head."""
        facts = {"query": "first", "share": share, "clip": 1.0, "participants": list(NAMES)}
        return self.ask(name, "sum", number, facts)

    def charges(self, name: str) -> list[Charge]:
        with Ledger(ledger_for(self.folder / name / "records.npz")) as ledger:
            return list(ledger.holding("default").charges)

    def roll_back(self, name: str, copy: Path) -> None:
        """Put an old state of a site back; its ledger stays as it is."""
        state = self.folder / name / ".locum" / "federation"
        shutil.rmtree(state)
        shutil.copytree(copy, state)

    def copy_state(self, name: str, to: str) -> Path:
        copy = self.folder / to
        shutil.copytree(self.folder / name / ".locum" / "federation", copy)
        return copy


def make_sites(folder: Path, first: np.ndarray, dim: int = 4) -> Hostile:
    """Four sites that pay, one of which may be absent; `first` is the first record of the first one."""
    rng = np.random.default_rng(3)
    folder.mkdir(exist_ok=True)
    pinned = {}
    for name in NAMES:
        home = folder / name
        home.mkdir()
        # Nobody is beyond -1 in the first feature, unless `first` is.
        X = np.abs(rng.normal(size=(20, dim))).astype(np.float32)
        if name == NAMES[0]:
            X[0] = first
        write_embeddings(home / "records.npz", EmbeddingSet.from_arrays(X, np.array(["ant", "bee"] * 10)))
        make_site_key(home, name)
        lines = ['data = "records.npz"', 'federation = "../federation.toml"', f'key = "{name}.key"']
        (home / "site.toml").write_text("\n".join([*lines, "epsilon = 2.0", "delta = 1e-5", ""]))
        pinned[name] = (home / f"{name}.pub").read_text().strip()
    terms = FederationSettings(("ant", "bee"), dim=dim, sites=pinned, epsilon=2.0, delta=1e-5, absent=1)
    (folder / "federation.toml").write_text(terms.to_toml())
    return Hostile(folder)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, dict[str, np.ndarray]]]:
    """Sites that have paid and answered nothing yet."""
    folder = tmp_path_factory.mktemp("hostile") / "sites"
    return folder, make_sites(folder, np.ones(4)).begin()


@pytest.fixture
def hostile(begun: tuple[Path, Any], tmp_path: Path) -> Hostile:
    shutil.copytree(begun[0], tmp_path / "sites")
    return Hostile(tmp_path / "sites")


def raise_budget(hostile: Hostile, name: str) -> None:
    with Ledger(ledger_for(hostile.folder / name / "records.npz")) as ledger:
        ledger.set_budget("default", epsilon=50.0, delta=1e-3)


# Each would make a number overflow at records on one side of a plane, or at any record.
EXTREME: dict[str, tuple[dict[str, Any], dict[str, np.ndarray]]] = {
    "largest offset": ({}, {"offsets": np.array([LARGEST, 0.0])}),
    "smallest offset": ({}, {"offsets": np.array([-LARGEST, LARGEST])}),
    "smallest clip": ({"clip": 5e-324}, {}),
    "tiny clip": ({"clip": 1e-308}, {}),
    "largest clip": ({"clip": LARGEST}, {}),
    "largest center": ({}, {"center": np.full(4, LARGEST)}),
    "largest weights": ({}, {"weights": np.full((2, 4), 9.9e299)}),
    "too large weights": ({}, {"weights": np.full((2, 4), LARGEST)}),
}


@pytest.fixture(scope="module")
def neighbors(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two federations that differ in one record of one site."""
    folders = []
    for i, first in enumerate((np.ones(4), np.array([-5.0, 0, 0, 0]))):
        folder = tmp_path_factory.mktemp("neighbors") / str(i)
        make_sites(folder, first).begin()
        folders.append(folder)
    return folders


class TestNoRefusalTellsAboutRecords:
    """Whether a site answers must not depend on its records: an answer is paid for, a refusal is not."""

    @pytest.mark.parametrize("name", EXTREME)
    @pytest.mark.parametrize("share", [0.001, 1e-30])
    def test_numbers_that_overflow(self, name: str, share: float, neighbors: list[Path], tmp_path: Path) -> None:
        facts, tensors = EXTREME[name]
        weights = np.zeros((2, 4))
        # Only the record that differs has a positive score for the first class.
        weights[0, 0] = -9e299
        asked = {"query": "gradient", "share": share, "clip": 0.5, "participants": list(NAMES), **facts}
        sent = {"center": np.zeros(4), "weights": weights, "offsets": np.zeros(2), **tensors}
        seen = []
        for i, folder in enumerate(neighbors):
            shutil.copytree(folder, tmp_path / str(i))
            seen.append(Hostile(tmp_path / str(i)).outcome(NAMES[0], "sum", 0, asked, sent))
        assert seen[0] == seen[1]
        assert "bug in Locum" not in seen[0]

    def test_noise_that_may_not_fit_is_not_drawn(self, hostile: Hostile) -> None:
        """A draw that was too large could be repeated until it fits, and each repetition tells a little."""
        for share in (1e-300, 1e-30, 1e-14, 1e-12, 1e-6):
            for _ in range(2):
                facts = {"query": "first", "share": share, "clip": 1.0, "participants": list(NAMES)}
                assert "share" in hostile.outcome(NAMES[0], "sum", 0, facts)

    @pytest.mark.parametrize("records", [0, 1, 20])
    @pytest.mark.parametrize("subjects", [False, True])
    def test_gradients_refuse_by_public_numbers_alone(self, records: int, subjects: bool) -> None:
        X = np.random.default_rng(1).normal(size=(records, 4)).astype(np.float32)
        codes = np.arange(records) % 2
        query = HeadQuery(X, codes, codes if subjects else None, 2, load_reference("none", 4))
        query.recenter(np.zeros(4))
        rule = SoftmaxRule(np.zeros((2, 4)), np.array([LARGEST, 0.0]))
        with pytest.raises(ConfigError, match="head diverged"):
            query.gradient(rule, 0.5)
        for clip in (0.0, 5e-324, 1e-300, 1e300, math.inf, math.nan):
            with pytest.raises(ConfigError, match="bound on gradients"):
                query.gradient(SoftmaxRule(np.zeros((2, 4)), np.zeros(2)), clip)

    def test_noise_is_refused_before_it_is_drawn(self) -> None:
        sums = ExactSums(np.full(3, 2.0**-36))
        for noise in (1e6, 1e9, 1e150):
            with pytest.raises(ConfigError, match="64-bit"):
                noisy(sums, noise)
        assert np.abs(noisy(sums, 1e5).integers).max() > 2**36


class TestOnePaymentOnePrecision:
    """What was paid for once is used once, whatever is replayed or put back."""

    def test_an_old_state_forgets_no_precision(self, hostile: Hostile) -> None:
        copy = hostile.copy_state(NAMES[0], "old")
        assert not hostile.sum(NAMES[0], 0, 1.0).declined
        hostile.roll_back(NAMES[0], copy)
        # A step that was never answered, but all of the precision is used.
        for _ in range(2):
            assert hostile.sum(NAMES[0], 1, 1.0).declined

    def test_two_copies_of_a_state_share_one_precision(self, hostile: Hostile) -> None:
        copy = hostile.copy_state(NAMES[0], "old")
        assert not hostile.sum(NAMES[0], 0, 0.6).declined
        ahead = hostile.copy_state(NAMES[0], "ahead")
        hostile.roll_back(NAMES[0], copy)
        assert hostile.sum(NAMES[0], 1, 0.6).declined
        hostile.roll_back(NAMES[0], ahead)
        # The refused attempt has spoiled nothing.
        assert not hostile.sum(NAMES[0], 1, 0.3).declined

    def test_beginning_again_is_not_paid_for_again(
        self, begun: tuple[Path, dict[str, dict[str, np.ndarray]]], hostile: Hostile
    ) -> None:
        raise_budget(hostile, NAMES[0])
        for step in range(3):
            hostile.sum(NAMES[0], step, 0.1)
            hostile.ask(NAMES[0], "begin", 0, {}, begun[1][NAMES[0]])
        assert len(hostile.charges(NAMES[0])) == 1
        assert not hostile.sum(NAMES[0], 3, 0.1).declined

    def test_a_paid_run_does_not_become_a_test(
        self, begun: tuple[Path, dict[str, dict[str, np.ndarray]]], hostile: Hostile
    ) -> None:
        """Whoever knows the seed of a test takes its noise off."""
        file = hostile.file(NAMES[0])
        assert not hostile.sum(NAMES[0], 0, 0.1).declined
        file.write_text(file.read_text() + "insecure_seed = 1\n")
        assert hostile.ask(NAMES[0], "begin", 0, {}, begun[1][NAMES[0]]).declined
        assert hostile.sum(NAMES[0], 1, 0.1).declined

    def test_an_old_state_does_not_begin_again(self, tmp_path: Path) -> None:
        """Its keys have been used: what they masked could be read if they masked something else."""
        hostile = make_sites(tmp_path / "sites", np.ones(4))
        keys = {name: hostile.ask(name, "join").facts["keys"] for name in NAMES}
        copy = hostile.copy_state(NAMES[0], "old")
        blobs = {name: hostile.ask(name, "share", 0, {"keys": keys}).tensors for name in NAMES}
        sent = {other: blobs[other][NAMES[0]] for other in NAMES[1:]}
        assert not hostile.ask(NAMES[0], "begin", 0, {}, sent).declined
        assert not hostile.sum(NAMES[0], 0, 1.0).declined
        raise_budget(hostile, NAMES[0])
        hostile.roll_back(NAMES[0], copy)
        hostile.ask(NAMES[0], "share", 0, {"keys": keys})
        assert hostile.ask(NAMES[0], "begin", 0, {}, sent).declined
        assert len(hostile.charges(NAMES[0])) == 1

    def test_an_old_state_signs_no_second_list(self, hostile: Hostile) -> None:
        """With two lists it would reveal both kinds of shares of one site."""
        for name in NAMES:
            hostile.sum(name, 0, 0.1)
        copy = hostile.copy_state(NAMES[0], "old")
        assert not hostile.ask(NAMES[0], "confirm", 0, {"answered": list(NAMES)}).declined
        hostile.roll_back(NAMES[0], copy)
        for _ in range(2):
            assert hostile.ask(NAMES[0], "confirm", 0, {"answered": list(NAMES[:3])}).declined
        hostile.roll_back(NAMES[0], copy)
        assert not hostile.ask(NAMES[0], "confirm", 0, {"answered": list(NAMES)}).declined


class TestKilledBetweenTwoWrites:
    """A process that dies leaves nothing that can be used twice, and nothing that was paid for in vain."""

    def test_paid_but_not_written_down(self, tmp_path: Path) -> None:
        hostile = make_sites(tmp_path / "sites", np.ones(4))
        keys = {name: hostile.ask(name, "join").facts["keys"] for name in NAMES}
        blobs = {name: hostile.ask(name, "share", 0, {"keys": keys}).tensors for name in NAMES}
        sent = {other: blobs[other][NAMES[0]] for other in NAMES[1:]}
        copy = hostile.copy_state(NAMES[0], "old")
        hostile.ask(NAMES[0], "begin", 0, {}, sent)
        hostile.roll_back(NAMES[0], copy)
        assert hostile.sum(NAMES[0], 0, 0.5).declined
        assert not hostile.ask(NAMES[0], "begin", 0, {}, sent).declined
        assert len(hostile.charges(NAMES[0])) == 1

    def test_answered_but_not_in_the_ledger(self, hostile: Hostile) -> None:
        ledger = ledger_for(hostile.folder / NAMES[0] / "records.npz")
        shutil.copy(ledger, hostile.folder / "ledger")
        first = hostile.sum(NAMES[0], 0, 0.5).tensors["sums"]
        shutil.copy(hostile.folder / "ledger", ledger)
        np.testing.assert_array_equal(hostile.sum(NAMES[0], 0, 0.5).tensors["sums"], first)
        (charge,) = hostile.charges(NAMES[0])
        assert list(Ledger(ledger).results(charge)) == ["steps 0 to 1"]


def test_two_requests_at_once_share_one_precision(hostile: Hostile) -> None:
    with ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda step: hostile.sum(NAMES[0], step, 0.6), range(4)))
    assert sum(not reply.declined for reply in replies) == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole honest run, and the keys of its sites."""
    folder = tmp_path_factory.mktemp("made") / "sites"
    hostile = make_sites(folder, np.ones(4))
    files = {name: hostile.file(name) for name in NAMES}
    Coordinator(FederationSettings.read(folder / "federation.toml"), folder / "out").run(LocalChannel(files))
    (folder / "keys").mkdir()
    for name in NAMES:
        shutil.copy(folder / name / f"{name}.pub", folder / "keys")
    return folder


class TestForgedReleases:
    """Whoever has the sites' keys notices what was changed afterward."""

    @pytest.fixture
    def release(self, made: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(made / "out" / "release", tmp_path / "release"))

    def test_honest(self, made: Path, release: Path) -> None:
        checks, not_checked = check_receipts(load(release), made / "keys")
        assert "each of the 4 sites" in checks[0]
        assert len(not_checked) == 1

    def test_fewer_sites_than_open_a_sum(self, made: Path, release: Path, forge: Any) -> None:
        def drop(count: int) -> Any:
            def change(body: dict[str, Any]) -> None:
                left = body["settings"]["sites"][count:]
                body["settings"]["sites"] = left
                body["claim"]["dp"]["ledger"] = joint_ledger([site["ledger"] for site in left])

            return change

        forge(release, drop(1))
        # One may be absent.
        check_receipts(load(release), made / "keys")
        forge(release, drop(1))
        with pytest.raises(PrivacyError, match="2 sites paid"):
            check_receipts(load(release), made / "keys")

    @pytest.mark.parametrize(
        "changed", [{"absent": 0}, {"colluding": 2, "absent": 0}, {"epsilon": 1.0}, {"max_sites_per_subject": 2}]
    )
    def test_other_terms(self, changed: dict[str, Any], made: Path, release: Path, forge: Any) -> None:
        forge(release, lambda body: body["settings"]["federation"].update(changed))
        with pytest.raises(PrivacyError, match="receipt"):
            check_receipts(load(release), made / "keys")

    def test_a_smaller_epsilon(self, made: Path, release: Path, forge: Any) -> None:
        forge(release, lambda body: body["claim"]["dp"].update(epsilon=1.0))
        with pytest.raises(PrivacyError, match="does not follow"):
            check_receipts(load(release), made / "keys")

    def test_less_that_is_not_covered(self, made: Path, release: Path, forge: Any) -> None:
        def change(body: dict[str, Any]) -> None:
            body["claim"]["not_covered"] = [item for item in body["claim"]["not_covered"] if "colluding" not in item]

        forge(release, change)
        with pytest.raises(PrivacyError, match="does not follow"):
            check_receipts(load(release), made / "keys")

    def test_a_pinned_site_that_nobody_knows(self, made: Path, release: Path, forge: Any) -> None:
        def change(body: dict[str, Any]) -> None:
            own = key_id(read_site_keys(made / "keys")[NAMES[3]])
            left = [site for site in body["settings"]["sites"] if site["receipt"]["key"] != own]
            body["settings"]["sites"] = left
            body["claim"]["dp"]["ledger"] = joint_ledger([site["ledger"] for site in left])

        forge(release, change)
        known = shutil.copytree(made / "keys", release.parent / "keys")
        (known / f"{NAMES[3]}.pub").unlink()
        _, not_checked = check_receipts(load(release), known)
        assert any(item.startswith("who site-d are") for item in not_checked)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """Sites with many features, so that each total shows much of its noise."""
    hostile = make_sites(tmp_path_factory.mktemp("wide") / "sites", np.ones(300), dim=300)
    hostile.begin()
    return hostile


@pytest.mark.parametrize(
    ("number", "kind", "share"), [(0, "first", 0.12), (1, "classes", 0.09), (2, "gradient", 0.5)]
)
def test_the_fewest_sites_that_open_a_total_add_the_planned_noise(
    wide: Hostile, number: int, kind: Any, share: float
) -> None:
    """The real noise of real sites, coordinate by coordinate, for each kind of sum."""
    rng, terms = np.random.default_rng(8), FederationSettings.from_dict(wide.settings)
    every = {"center": rng.normal(size=300) / 50, "weights": rng.normal(size=(2, 300)), "offsets": np.zeros(2)}
    wanted = {"first": (), "classes": ("center",), "gradient": tuple(every)}[kind]
    query = Query(kind, share, 0.5, {name: every[name] for name in wanted})
    asked = {**query.facts(), "participants": list(NAMES)}
    there = NAMES[:3]
    words = {name: wide.ask(name, "sum", number, asked, query.tensors).tensors["sums"] for name in there}
    signed = {n: wide.ask(n, "confirm", number, {"answered": list(there)}).facts["signature"] for n in there}
    opened = {n: wide.ask(n, "open", number, {"signatures": signed}).facts["shares"] for n in there}
    keys = {name: wide.keys[name] for name in NAMES}
    total = MaskedStep(mask_terms(terms, "run"), keys, number, query.digest(), NAMES, words).total(opened)
    exact = ExactSums(query.steps(terms))
    for name in there:
        records = Site(wide.file(name)).file.records(terms).train
        exact.merge(SiteQueries(records, None, terms, load_reference("none", 300)).sums(query))
    noise = (total - exact.integers) * exact.steps
    planned = plan_head(terms.privacy).noise_multiplier / math.sqrt(share)
    # One of the three may collude and add none: the other two must have the planned noise.
    honest = np.std(noise) * math.sqrt(2 / 3)
    assert honest == pytest.approx(planned, rel=5 / math.sqrt(2 * len(noise)))
    # Pooled sums, counts and lengths have grids of their own, and the same noise.
    if kind == "first":
        assert np.abs(noise[300:]).max() > planned / 10
    assert abs(np.mean(noise)) < 5 * np.std(noise) / math.sqrt(len(noise))
