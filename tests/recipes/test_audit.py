"""`audit`, from files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.audit import ATTACKS, DEFAULT_ATTACKS
from locum.cli.main import main
from locum.data import write_embeddings
from locum.errors import CheckpointError, ConfigError, DataError
from locum.generate import ClassGaussian
from locum.recipes import audit_data
from locum.recipes.audit import choose_attacks, rows_release
from locum.types import EmbeddingSet


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Members, others and fresh records of one population, as files, and a release made from the members."""
    rng = np.random.default_rng(0)
    mix = rng.normal(size=(12, 12))
    out = {}
    for name in ("members", "others", "fresh"):
        y = rng.integers(0, 2, 300)
        X = (rng.normal(size=(300, 12)) @ mix + y[:, None]).astype(np.float32)
        np.savez(tmp_path / f"{name}.npz", X=X, y=np.where(y, "ill", "well"))
        out[name] = str(tmp_path / f"{name}.npz")
        if name == "members":
            ClassGaussian(random_state=0).fit(X, np.where(y, "ill", "well")).release(no_dp=True).save(
                tmp_path / "release"
            )
    return {**out, "release": str(tmp_path / "release")}


def test_a_release_and_a_file_of_another_tool(files: dict[str, str]) -> None:
    found = audit_data(Path(files["release"]), files["members"], files["others"], seed=0, policy="internal")
    assert found.fingerprint is not None
    # Members of a Gaussian without a guarantee are told from others, but not by distances.
    assert [r.name for r in found.report.results if r.verdict == "leak"] == ["likelihood ratio", "LiRA"]
    copied = audit_data(None, files["members"], files["others"], synthetic=files["members"], seed=0)
    assert (copied.report.verdict, copied.fingerprint) == ("leak", None)
    other = audit_data(None, files["members"], files["others"], synthetic=files["fresh"], seed=0)
    assert other.report.verdict != "leak"


def test_the_program_ends_with_three_where_a_policy_is_not_met(
    files: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def locum(*more: str) -> tuple[Any, str, str]:
        words = ["locum", "audit", "--members", files["members"], "--non-members", files["others"], "--seed", "0"]
        monkeypatch.setattr(sys, "argv", [*words, "--attack", "nearest distance", "--json", *more])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    code, out, _ = locum("--synthetic", files["members"])
    assert code == 3
    told = json.loads(out)
    assert told["verdict"] == "leak"
    assert [(r["name"], r["verdict"]) for r in told["results"]] == [("nearest distance", "leak")]
    assert {"attack", "control", "baseline"} < set(told["results"][0])
    code, _, err = locum()
    assert code == 2
    assert err.count("\n") == 1
    assert "either a release folder or --synthetic" in err


def test_wrong_use_is_refused(files: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not both"):
        audit_data(Path(files["release"]), files["members"], files["others"], synthetic=files["members"])
    with pytest.raises(ConfigError, match="no policy"):
        audit_data(Path(files["release"]), files["members"], files["others"], policy="strict")
    np.savez(tmp_path / "wide.npz", X=np.zeros((9, 13), np.float32), y=np.arange(9) % 2)
    with pytest.raises(DataError):
        audit_data(Path(files["release"]), files["members"], str(tmp_path / "wide.npz"))


def test_rows_of_some_classes_keep_their_names() -> None:
    data = EmbeddingSet.from_arrays(np.eye(6, 4), ["b", "c", "b", "c", "b", "c"])
    release = rows_release(data)
    assert release.claim.kind == "none"
    assert sorted(release.sample_set(random_state=0).info.class_names) == ["b", "c"]


def test_what_is_tried() -> None:
    assert choose_attacks() == DEFAULT_ATTACKS
    assert choose_attacks(thorough=True) == tuple(name for name in ATTACKS if name != "RMIA")
    assert choose_attacks(thorough=True, shadows=8) == tuple(ATTACKS)
    # In the catalog's order and each once, however they were typed.
    assert choose_attacks(["rmia", "HOLE", "hole"]) == ("hole", "RMIA")
    assert choose_attacks(["RMIA"], shadows=8) == ("RMIA",)
    with pytest.raises(ConfigError, match="Give one of the two"):
        choose_attacks(["hole"], thorough=True)
    with pytest.raises(ConfigError, match="There is no attack"):
        choose_attacks(["hole", "magic"])


def test_shadows_are_kept_in_a_file_and_continued(files: dict[str, str], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    def run(state: Path | None, shadows: int, seed: int = 3) -> Any:
        def progress(done: int, total: int, what: str) -> None:
            if what == "training shadows":
                told.append((done, total))

        told.clear()
        release = Path(files["release"])
        return audit_data(
            release,
            files["members"],
            files["others"],
            attacks=["LiRA"],
            shadows=shadows,
            state=state,
            seed=seed,
            progress=progress,
        )

    state = tmp_path / "shadows.st"
    run(state, 4)
    assert told[0] == (0, 4)
    more = run(state, 8)
    assert told[0] == (4, 8)
    fresh = run(None, 8)
    assert told[0] == (0, 8)
    assert more.report.results[0].attack == fresh.report.results[0].attack
    with pytest.raises(CheckpointError, match="other data, settings or seeds"):
        run(state, 8, seed=4)


def test_non_members_that_equal_a_member_are_left_out_if_asked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["a", "b"])
    members, others, made = (
        EmbeddingSet.from_arrays(rng.normal(size=(60, 3)), labels[np.arange(60) % 2]) for _ in "123"
    )
    mixed = EmbeddingSet.from_arrays(np.concatenate([others.X, members.X[:20]]), labels[np.arange(80) % 2])
    for name, part in (("members", members), ("mixed", mixed), ("made", made)):
        write_embeddings(tmp_path / f"{name}.npz", part)
    given: dict[str, Any] = {"synthetic": str(tmp_path / "made.npz"), "attacks": ["nearest distance"], "seed": 0}
    files = str(tmp_path / "members.npz"), str(tmp_path / "mixed.npz")
    with pytest.raises(DataError, match=r"20 of 80 non-members equal a member\. .*--drop-duplicates"):
        audit_data(None, *files, **given)
    found = audit_data(None, *files, **given, drop_duplicates=True)
    assert "shared records" not in {problem.kind for problem in found.report.problems}
    # Nobody is left: the file was the wrong one.
    with pytest.raises(DataError, match="60 of 60 non-members equal a member"):
        audit_data(None, files[0], files[0], **given, drop_duplicates=True)
