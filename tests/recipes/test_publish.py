"""`publish`: all steps in one folder, paid for once whatever happens, and nothing leaves before all of it is done."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.publish_policies import NEVER, PROVEN

from locum import EmbeddingSet
from locum.accounting import Ledger
from locum.data import copies_of, ledger_for, read_splits, write_embeddings
from locum.errors import ConfigError, LocumError, PrivacyError, ReleaseError
from locum.generate import ClassGaussian
from locum.recipes import (
    fit_release,
    make_key_pair,
    publish as publishing,
    publish_release,
    set_budget,
    verify_release,
)
from locum.release import Release, load
from locum.types import DP


def records(n: int = 400, subjects: bool = False, seed: int = 7) -> EmbeddingSet:
    """Records of two classes. With this seed the part that is held out looks like the rest to every attack."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = (rng.normal(size=(n, 6)) + 2 * y[:, None]).astype(np.float32)
    who = np.array([f"p{i // 3}" for i in range(n)]) if subjects else None
    return EmbeddingSet.from_arrays(X, np.array(["benign", "malignant"])[y], subject=who)


@pytest.fixture
def data(tmp_path: Path) -> str:
    (tmp_path / "in").mkdir()
    write_embeddings(tmp_path / "in" / "d.npz", records())
    return str(tmp_path / "in" / "d.npz")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return Path(make_key_pair(tmp_path / "holder").private)


@pytest.fixture
def publish(data: str, key: Path, tmp_path: Path) -> Callable[..., Any]:
    proven = tmp_path / "proven.toml"
    proven.write_text(PROVEN)

    def run(**options: Any) -> Any:
        usual: dict[str, Any] = {"data": data, "out": tmp_path / "out", "key": key, "classes_public": True}
        usual["policy"] = str(proven)
        return publish_release(**usual | {"minutes": 0.01} | options)

    return run


def charges(tmp_path: Path) -> list[Any]:
    file = tmp_path / "in" / ".locum" / "ledger.sqlite"
    return [c for held in Ledger(file).holdings().values() for c in held.charges] if file.exists() else []


def test_what_may_leave_lies_apart_from_what_stays(publish: Callable[..., Any], tmp_path: Path) -> None:
    lines: list[str] = []
    made = publish(announce=lines.append)
    out = tmp_path / "out"
    assert made.published
    assert sorted(p.name for p in out.iterdir()) == ["internal", "release"]
    assert {"signature.json", "passport.html", "manifest.json"} <= {p.name for p in (out / "release").iterdir()}
    assert not (out / "internal" / "release").exists()
    assert (out / "internal").stat().st_mode & 0o077 == 0
    assert all(p.stat().st_mode & 0o077 == 0 for p in (out / "internal").iterdir() if p.is_file())
    found = verify_release(out / "release", ledger=tmp_path / "in/.locum/ledger.sqlite", key=tmp_path / "holder.pub")
    assert "the ledger has the charge of this release" in found.checks
    assert found.signed_by is not None
    # Counts of records are on the page that stays, and nowhere else.
    used = made.facts["records"]["used"]
    page = made.page.read_text()
    assert "INTERNAL" in page
    assert f"{used} records went into the release" in page
    assert "`" not in page
    for file in ("passport.json", "passport.md", "README.md"):
        # A hash can have these digits by chance.
        assert str(used) not in re.sub(r"[0-9a-f]{32,}", "", (out / "release" / file).read_text())
    assert [line.split(":")[0] for line in lines] == ["check", "fit", "audit", "sign"]
    # Again: nothing is done, paid or changed.
    before = {p: p.read_bytes() for p in (out / "release").iterdir()}
    again = publish(announce=lambda line: pytest.fail(line))
    assert again.published
    assert again.earlier == ("split", "fit", "audit", "publish")
    assert {p: p.read_bytes() for p in (out / "release").iterdir()} == before
    assert len(charges(tmp_path)) == 1
    # What was altered since is noticed.
    (out / "release" / "README.md").write_text("better")
    with pytest.raises(ReleaseError):
        publish()


KILLED = """
import os, signal, sys
from pathlib import Path
import locum.recipes.publish as publishing
from locum.release import Release

def end(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

where = {"save": (Release, "save"), "rename": (os, "rename"), "verify": (publishing, "_verify")}
setattr(*where[sys.argv[4]], end)
publishing.publish_release(sys.argv[1], Path(sys.argv[2]), key=Path(sys.argv[3]), classes_public=True, minutes=0.01)
"""


@pytest.mark.parametrize(
    ("where", "earlier"),
    [
        # The charge is made and the noise is drawn; no release is known.
        ("save", ("split",)),
        # The ledger names the release, which is not in its place.
        pytest.param("rename", ("split",), marks=pytest.mark.slow),
        # Signed, but not yet where it may leave from.
        pytest.param("verify", ("split", "fit", "audit"), marks=pytest.mark.slow),
    ],
)
def test_a_kill_at_the_worst_moments_pays_once(
    where: str, earlier: tuple[str, ...], publish: Callable[..., Any], data: str, key: Path, tmp_path: Path
) -> None:
    out, command = tmp_path / "out", [sys.executable, "-c", KILLED, data]
    process = subprocess.run(
        [*command, str(tmp_path / "out"), str(key), where],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert not (out / "release").exists()
    book = Ledger(tmp_path / "in" / ".locum" / "ledger.sqlite")
    (paid,) = charges(tmp_path)
    drawn, known = book.results(paid), book.releases(paid)
    assert drawn
    assert bool(known) == (where != "save")
    if where != "verify":
        # Without the checkpoint nobody can go on, and no second charge is made, though the budget has room for it.
        set_budget(book.file, "default", epsilon=9.0, delta=1e-5, confirm=lambda _: None)
        (checkpoint,) = (out / "internal" / ".locum").glob("fit-*.checkpoint")
        shutil.move(checkpoint, tmp_path / "away")
        with pytest.raises(PrivacyError, match="nothing is charged again"):
            publish()
        assert charges(tmp_path) == [paid]
        shutil.move(tmp_path / "away", checkpoint)
    made = publish()
    assert made.published
    assert made.earlier == earlier
    assert charges(tmp_path) == [paid]
    # It is the release of the noise that was drawn before the kill.
    assert drawn.items() <= book.results(paid).items()
    assert made.facts["fingerprint"] in book.releases(paid)
    assert not list((out / "internal" / ".locum").glob("fit-*.checkpoint"))


def policy(tmp_path: Path) -> Path:
    (tmp_path / "never.toml").write_text(NEVER)
    return tmp_path / "never.toml"


def test_nothing_is_signed_where_the_policy_is_not_met(publish: Callable[..., Any], tmp_path: Path) -> None:
    refused = publish(policy=str(policy(tmp_path)))
    out = tmp_path / "out"
    assert not refused.published
    assert refused.release is None
    assert not (out / "release").exists()
    assert not (out / "internal" / "release" / "signature.json").exists()
    assert not (out / "internal" / "release" / "passport.json").exists()
    page = refused.page.read_text()
    assert "Not published: the policy is not met" in page
    assert "No attack is ever this bad." in page
    # Another policy repeats the audit, and pays for nothing.
    lines: list[str] = []
    assert publish(announce=lines.append).published
    assert [line.split(":")[0] for line in lines] == ["audit", "sign"]
    assert len(charges(tmp_path)) == 1
    with pytest.raises(ConfigError, match=r"was published under the policy '.*proven\.toml'"):
        publish(policy="internal")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"classes_public": False}, PrivacyError, "--classes-public"),
        ({"classes_public": False, "confirm_classes": lambda names: False}, PrivacyError, "nothing was spent"),
        ({"classes": ["benign"], "classes_public": False}, LocumError, "not among the known classes"),
        ({"holdout": 0.0}, ConfigError, "between 0 and 1"),
        ({"holdout": 0.999}, LocumError, "too few|fewer than 20"),
        ({"policy": "nobody's"}, ConfigError, "no policy"),
        ({"policy": "public", "privacy": DP(5.0, 1e-6)}, ConfigError, "allows epsilon 4 at most"),
        ({"key": Path("nowhere")}, LocumError, "nowhere"),
        ({"data": "s3://bucket/d.npz"}, ConfigError, "on this machine"),
    ],
    ids=lambda value: "" if not isinstance(value, dict) else "-".join(value),
)
def test_a_refusal_leaves_nothing_and_costs_nothing(
    options: dict[str, Any], error: type[Exception], words: str, publish: Callable[..., Any], tmp_path: Path
) -> None:
    with pytest.raises(error, match=words):
        publish(**options)
    assert not (tmp_path / "out").exists()
    assert charges(tmp_path) == []


def test_rare_classes_and_a_spent_budget_are_refused_as_fit_refuses_them(
    publish: Callable[..., Any], data: str, tmp_path: Path
) -> None:
    few = records(60)
    write_embeddings(tmp_path / "few.npz", few.take([*np.flatnonzero(few.y == 0).tolist(), 1, 3]))
    with pytest.raises(PrivacyError, match="fewer than 20 records left after some were held out for the audit"):
        publish(data=str(tmp_path / "few.npz"))
    fit_release(data, tmp_path / "r", classes_public=True)
    with pytest.raises(PrivacyError, match="does not allow this: nothing is left"):
        publish()
    assert not (tmp_path / "out").exists()


NEEDS = """
name = "needs"
[attacks]
needed = ["{}"]
reason = "This attack must be run here."
"""


RATE = """
name = "rate"
[tpr_at_1_percent]
at_most = 0.05
reason = "Nobody should stand out."
"""


@pytest.mark.parametrize(
    ("n", "options", "words"),
    [
        # A fifth of 120 records is held out.
        (120, {"policy": "research-sharing"}, "closest record: it needs at least 40 non-members; there are"),
        # At epsilon 8 no proof is enough, and 1 % false alarms have to be measured.
        (120, {"policy": RATE, "privacy": DP(8.0, 1e-6)}, "takes 50 non-members to measure"),
        (400, {"policy": NEEDS.format("RMIA")}, "RMIA: it is not among the attacks that are run"),
        (400, {"policy": NEEDS.format("crystal ball")}, "crystal ball: it is not among the attacks"),
    ],
    ids=["closest", "rate", "slow", "unknown"],
)
def test_what_the_records_can_never_decide_is_refused_before_it_is_paid_for(
    n: int, options: dict[str, Any], words: str, publish: Callable[..., Any], data: str, tmp_path: Path
) -> None:
    write_embeddings(data, records(n))
    if "name" in options["policy"]:
        (tmp_path / "needs.toml").write_text(options["policy"])
        options = {**options, "policy": str(tmp_path / "needs.toml")}
    with pytest.raises(LocumError, match=words) as told:
        publish(**options)
    assert "nothing was charged" in str(told.value)
    assert charges(tmp_path) == []
    assert not (tmp_path / "out").exists()
    # Other policies and larger parts are decided by attacks.
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "fit_release", stopped)
        with pytest.raises(KeyboardInterrupt):
            publish(announce=lines.append)
    assert lines[-1].startswith("fit:")


def test_earlier_releases_count_where_a_proof_would_be_enough(
    publish: Callable[..., Any], data: str, tmp_path: Path
) -> None:
    write_embeddings(data, records(120))
    (tmp_path / "rate.toml").write_text(RATE)
    set_budget(tmp_path / "in/.locum/ledger.sqlite", "default", epsilon=9.0, delta=1e-5, confirm=lambda _: None)
    # Alone, a release at epsilon 1 is proven to meet it; after three others it is not.
    for i in range(3):
        fit_release(data, tmp_path / f"r{i}", classes_public=True)
    with pytest.raises(LocumError, match="takes 50 non-members to measure"):
        publish(policy=str(tmp_path / "rate.toml"))
    assert len(charges(tmp_path)) == 3


def test_one_folder_is_one_release(publish: Callable[..., Any], data: str, tmp_path: Path) -> None:
    publish(policy=str(policy(tmp_path)))
    for options, words in (
        ({"privacy": DP(0.5, 1e-6)}, "begun with epsilon 1.0; got 0.5"),
        ({"holdout": 0.3}, "begun with holdout 0.2"),
        ({"holding": "others"}, "begun with holding 'default'"),
    ):
        with pytest.raises(ConfigError, match=words):
            publish(**options)
    # Somebody puts a release there that this ledger did not pay for: it does not leave.
    staged = tmp_path / "out" / "internal" / "release"
    shutil.rmtree(staged)
    (tmp_path / "elsewhere").mkdir()
    write_embeddings(tmp_path / "elsewhere" / "d.npz", records(seed=1))
    fit_release(str(tmp_path / "elsewhere" / "d.npz"), staged, classes_public=True)
    with pytest.raises(PrivacyError, match="does not have the charge"):
        publish()
    assert not (tmp_path / "out" / "release").exists()
    write_embeddings(data, records(410))
    with pytest.raises(ConfigError, match="have changed since"):
        publish()
    (tmp_path / "out" / "internal" / "publish.json").write_text("{}")
    with pytest.raises(LocumError, match="it is unclear what was paid for"):
        publish()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="not a folder that Locum wrote"):
        publish(out=tmp_path / "full")
    assert len(charges(tmp_path)) == 1


def parts_of(
    given: EmbeddingSet, place: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[EmbeddingSet, EmbeddingSet]:
    """What `publish` would fit and what it holds out; nothing is fitted."""
    place.mkdir()
    write_embeddings(place / "d.npz", given)
    seen: list[EmbeddingSet] = []

    def stop(members: str, *_: Any, **__: Any) -> None:
        for file in (Path(members), Path(members).with_name("non-members.npz")):
            seen.extend(read_splits(file).values())
        raise ConfigError("far enough")

    monkeypatch.setattr(publishing, "fit_release", stop)
    (place / "proven.toml").write_text(PROVEN)
    with pytest.raises(ConfigError, match="far enough"):
        publish_release(
            str(place / "d.npz"),
            place / "out",
            key=key,
            classes=["benign", "malignant"],
            policy=str(place / "proven.toml"),
        )
    assert not (place / "out").exists()
    return seen[0], seen[1]


def rows(data: EmbeddingSet) -> set[bytes]:
    return {x.tobytes() for x in data.X}


@pytest.mark.parametrize("by_subject", [False, True])
def test_one_unit_more_moves_no_other_record(
    by_subject: bool, key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guarantee is about all records that were given, the held-out ones too: each decides about itself alone."""
    base = records(120, subjects=by_subject)
    last = np.array(["p39"]) if by_subject else np.array([119])
    gone = base.subject == last[0] if base.subject is not None else np.arange(120) == last[0]
    members, others = parts_of(base, tmp_path / "all", key, monkeypatch)
    fewer, fewer_others = parts_of(base.take(~gone), tmp_path / "fewer", key, monkeypatch)
    unit = rows(base.take(gone))
    assert rows(members) - rows(fewer) <= unit
    assert rows(fewer) <= rows(members)
    assert rows(others) - rows(fewer_others) <= unit
    # All of the unit is on one side.
    assert not (unit & rows(members) and unit & rows(others))
    assert 8 <= len(others) <= 45


def test_copies_are_on_one_side_and_counted_once(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = records(120)
    twice = base.take([*range(120), *range(60)])
    members, others = parts_of(twice, tmp_path / "records", key, monkeypatch)
    assert len(members) + len(others) == 120
    assert not copies_of(others, members).any()
    # Copies of other subjects' records cannot be dropped from the members; they are from the non-members.
    who = np.array([f"p{i}" for i in range(180)])
    shared = EmbeddingSet(twice.X, twice.y, subject=who, info=twice.info)
    members, others = parts_of(shared, tmp_path / "subjects", key, monkeypatch)
    assert not copies_of(others, members).any()
    assert members.subject is not None
    assert others.subject is not None
    assert not set(members.subject) & set(others.subject)
    assert len(members) > 120


def test_copies_that_stay_are_told_before_the_payment(
    publish: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = records(120)
    twice = base.take([*range(120), *range(60)])
    who = np.array([f"p{i}" for i in range(180)])
    write_embeddings(tmp_path / "in" / "d.npz", EmbeddingSet(twice.X, twice.y, subject=who, info=twice.info))
    lines: list[str] = []
    monkeypatch.setattr(publishing, "fit_release", stopped)
    with pytest.raises(KeyboardInterrupt):
        publish(announce=lines.append)
    assert [line.split(":")[0] for line in lines] == ["check", "duplicates", "fit"]
    assert "60 copies of another subject's record will be used" in lines[1]
    assert charges(tmp_path) == []


def test_only_the_training_records_are_used(key: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base, shifted = records(120), records(60, seed=2)
    names = np.array(["benign", "malignant"])
    np.savez(
        tmp_path / "splits.npz",
        train_x=base.X,
        train_y=names[base.y],
        test_x=shifted.X + 5,
        test_y=names[shifted.y],
    )
    seen: list[str] = []

    def stop(members: str, *_: Any, **__: Any) -> None:
        seen.append((Path(members).parent / "publish.json").read_text())
        raise ConfigError("far enough")

    monkeypatch.setattr(publishing, "fit_release", stop)
    (tmp_path / "proven.toml").write_text(PROVEN)
    with pytest.raises(ConfigError, match="far enough"):
        publish_release(
            str(tmp_path / "splits.npz"),
            tmp_path / "out",
            key=key,
            classes=list(names),
            policy=str(tmp_path / "proven.toml"),
        )
    step = json.loads(seen[0])["steps"]["split"]
    assert step["not_used"] == {"test": 60}
    assert step["used"] + step["held_out"] == 120


def test_the_release_does_not_lie_inside_the_data(key: Path, tmp_path: Path) -> None:
    (tmp_path / "images" / "cat").mkdir(parents=True)
    for out in (tmp_path / "images", tmp_path / "images" / "out"):
        with pytest.raises(ConfigError, match="lies inside the data"):
            publish_release(str(tmp_path / "images"), out, key=key, classes_public=True)


def stopped(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_another_spelling_of_the_folder_pays_once_and_a_moved_one_pays_nothing(
    publish: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Release, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            publish(out=Path("out"))
    book = tmp_path / "in" / ".locum" / "ledger.sqlite"
    set_budget(book, "default", epsilon=9.0, delta=1e-5, confirm=lambda _: None)
    (tmp_path / "out").rename(tmp_path / "moved")
    with pytest.raises(PrivacyError, match="nothing is charged again"):
        publish(out=tmp_path / "moved")
    (tmp_path / "moved").rename(tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "out")
    assert publish(out=tmp_path / "link").published
    assert len(charges(tmp_path)) == 1
    assert not list((tmp_path / "out" / "internal" / ".locum").glob("fit-*.checkpoint"))


def test_settings_that_an_upgrade_changes_do_not_pay_again(
    publish: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint of a paid fit has a name that holds all settings, also those that nobody typed."""
    with monkeypatch.context() as patch:
        patch.setattr(Release, "save", stopped)
        with pytest.raises(KeyboardInterrupt):
            publish()
    (paid,) = charges(tmp_path)
    book = tmp_path / "in" / ".locum" / "ledger.sqlite"
    set_budget(book, "default", epsilon=9.0, delta=1e-5, confirm=lambda _: None)
    (checkpoint,) = (tmp_path / "out" / "internal" / ".locum").glob("fit-*.checkpoint")
    # A later version separates classes more by default.
    with monkeypatch.context() as patch:
        asked = ClassGaussian.get_params
        patch.setattr(ClassGaussian, "get_params", lambda self, deep=True: {**asked(self, deep), "separation": 7.0})
        patch.setattr(publishing, "__version__", "9.9")
        with pytest.raises(PrivacyError, match=r"no checkpoint of a fit with these settings.*Nothing is charged"):
            publish()
    assert charges(tmp_path) == [paid]
    assert checkpoint.is_file()
    # A setting that `publish` did not have then, and a default of its own that changed.
    file = tmp_path / "out" / "internal" / "publish.json"
    noted = json.loads(file.read_text())
    for settings, words in (
        ({k: v for k, v in noted["settings"].items() if k != "backbone"}, "had no setting 'backbone'"),
        (noted["settings"] | {"epsilon": 2.0}, "begun with epsilon 2.0; got 1.0"),
    ):
        file.write_text(json.dumps(noted | {"settings": settings}))
        with pytest.raises(ConfigError, match=words):
            publish()
    assert charges(tmp_path) == [paid]
    # With the version that began it, the run goes on.
    file.write_text(json.dumps(noted))
    assert publish().published
    assert charges(tmp_path) == [paid]


def test_the_parts_that_stay_name_the_ledger_of_the_data(publish: Callable[..., Any], tmp_path: Path) -> None:
    """A fit of those files spends the budget of the data, not a new one."""
    publish()
    for name in ("members.npz", "non-members.npz"):
        assert ledger_for(tmp_path / "out" / "internal" / name) == tmp_path / "in" / ".locum" / "ledger.sqlite"
    with pytest.raises(PrivacyError, match=r"is spent|does not allow this"):
        fit_release(str(tmp_path / "out" / "internal" / "members.npz"), tmp_path / "r", classes_public=True)
    for file in (tmp_path / "out" / "release").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes()


def test_a_signature_of_a_stopped_run_goes_if_the_next_policy_is_not_met(
    publish: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "_verify", stopped)
        with pytest.raises(KeyboardInterrupt):
            publish()
    staged = tmp_path / "out" / "internal" / "release"
    assert (staged / "signature.json").exists()
    assert not publish(policy=str(policy(tmp_path))).published
    assert sorted(p.name for p in staged.iterdir()) == ["README.md", "decoder.safetensors", "manifest.json"]


def test_data_behind_a_link_that_changed_are_noticed(publish: Callable[..., Any], data: str, tmp_path: Path) -> None:
    (tmp_path / "in" / "linked.npz").symlink_to(data)
    options = {"data": str(tmp_path / "in" / "linked.npz"), "policy": str(policy(tmp_path))}
    publish(**options)
    write_embeddings(data, records(410))
    with pytest.raises(ConfigError, match="have changed since"):
        publish(**options)


def test_a_place_that_is_taken_is_refused_before_anything_is_paid(
    publish: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "out" / "internal").mkdir(parents=True)
    (tmp_path / "out" / "internal" / "publish.json").write_text("{}")
    (tmp_path / "out" / "release").symlink_to(tmp_path / "in")
    with pytest.raises(ConfigError, match="is in the way"):
        publish()
    assert charges(tmp_path) == []


def test_a_published_release_is_not_called_signed_with_a_key_that_did_not_sign_it(
    publish: Callable[..., Any], tmp_path: Path
) -> None:
    publish()
    other = Path(make_key_pair(tmp_path / "other").private)
    with pytest.raises(ConfigError, match="was signed with the key"):
        publish(key=other)


def test_the_public_half_of_the_key_is_there_before_anything_is_paid(
    publish: Callable[..., Any], key: Path, tmp_path: Path
) -> None:
    public = Path(f"{key}.pub")
    written = public.read_bytes()
    public.unlink()
    other = Path(make_key_pair(tmp_path / "other").private)
    shutil.copy(f"{other}.pub", public)
    with pytest.raises(ConfigError, match="is not the public key of"):
        publish()
    assert not charges(tmp_path)
    public.unlink()
    publish()
    assert public.read_bytes() == written


def test_the_claim_says_that_records_decided_whether_the_release_left(publish: Callable[..., Any]) -> None:
    made = publish()
    assert publishing.JUDGED in load(made.release).claim.not_covered


def test_a_policy_that_accepts_no_guarantee_costs_nothing(publish: Callable[..., Any], tmp_path: Path) -> None:
    policy = tmp_path / "k.toml"
    policy.write_text('name = "k only"\n[claim]\nkinds = ["k-anonymity"]\nreason = "As the contract says."\n')
    with pytest.raises(
        ConfigError, match="accepts claims of kind k-anonymity, and `publish` makes releases of kind dp"
    ):
        publish(policy=str(policy))
    assert not charges(tmp_path)
