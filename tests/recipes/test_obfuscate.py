"""`obfuscate` from files to files: every layout that can be read, what leaves, and what is refused."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from locum.data import read_frame
from locum.embed import read_image_attributes, read_image_npz
from locum.errors import CheckpointError, ConfigError, DataError
from locum.obfuscate import load_obfuscator
from locum.recipes import apply_obfuscator, fit_obfuscator, measure_trade_off
from locum.recipes.obfuscate_data import columns_of, joined, read_rows


def subjects(n: int, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    income = rng.integers(0, 2, n)
    sex = rng.integers(0, 2, n)
    return pd.DataFrame(
        {
            "id": [f"patient {i}" for i in range(n)],
            "age": rng.integers(20, 40, n) + 20 * income,
            "income": np.array(["low", "high"])[income],
            "job": np.where(rng.random(n) < 0.9, np.array(["cook", "smith"])[sex], "clerk"),
            "sex": np.array(["f", "m"])[sex],
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("subjects")
    subjects(400).to_csv(folder / "train.csv", index=False)
    subjects(200, seed=1).to_csv(folder / "test.csv", index=False)
    rng = np.random.default_rng(0)
    for split, n in (("train", 60), ("test", 40)):
        kind = np.arange(n) % 2
        images = rng.integers(0, 100, (n, 16, 16, 3)) + 100 * kind[:, None, None, None]
        np.savez(
            folder / f"{split}.npz",
            train_images=images.astype(np.uint8),
            train_labels=np.arange(n) % 4,
            train_attr_kind=np.array(["animal", "vehicle"])[kind],
        )
    fit_obfuscator(
        str(folder / "train.csv"), folder / "o", utility=["income"], drop=["id", "sex"], epochs=150, resume=False
    )
    fit_obfuscator(str(folder / "train.npz"), folder / "oi", utility=["kind"], show_quarters=True, resume=False)
    return folder


def adult(folder: Path) -> None:
    row = "39, State-gov, 77516, Bachelors, 13, Single, Adm-clerical, Not-in-family, White, Male, 0, 0, 40, Cuba, "
    folder.mkdir(parents=True)
    (folder / "adult.data").write_text((row + "<=50K\n") * 3)
    (folder / "adult.test").write_text("|a remark\n" + (row + ">50K.\n") * 2)


def celeba(folder: Path, n: int) -> None:
    (folder / "img_align_celeba").mkdir(parents=True)
    lines = [str(n), "Male Smiling"]
    for i in range(n):
        Image.new("RGB", (20, 24), (20 * i % 256, 0, 0)).save(folder / "img_align_celeba" / f"{i:06d}.jpg")
        lines.append(f"{i:06d}.jpg {-1 + 2 * (i % 2)} 1")
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    parts = [f"{i:06d}.jpg {0 if i < n - 2 else 2}" for i in range(n)]
    (folder / "list_eval_partition.txt").write_text("\n".join(parts) + "\n")


def test_every_layout_is_read(tmp_path: Path, home: Path) -> None:
    adult(tmp_path / "adult")
    found = read_rows(str(tmp_path / "adult"))
    assert {name: len(rows) for name, rows in found.items()} == {"train": 3, "test": 2}
    assert joined(found)["income"].tolist() == ["<=50K"] * 3 + [">50K"] * 2
    assert list(read_rows(f"{tmp_path / 'adult'}#test")) == ["test"]
    assert len(read_rows(str(tmp_path / "adult" / "adult.data"))["all"]) == 3
    celeba(tmp_path / "celeba", 6)
    faces = read_rows(str(tmp_path / "celeba"), side=16)
    assert {name: rows.images.shape for name, rows in faces.items()} == {
        "train": (4, 16, 16, 3),
        "test": (2, 16, 16, 3),
    }
    assert columns_of(faces["train"]) == ["Male", "Smiling"]
    assert len(read_rows(str(tmp_path / "celeba"), side=16, limit=3)["train"]) == 3
    (tmp_path / "list.csv").write_text("file,kind\n000001.jpg,a\n000003.jpg,b\n")
    folder = str(tmp_path / "celeba" / "img_align_celeba")
    gray = read_rows(folder, attributes=str(tmp_path / "list.csv"), side=32, channels=1)["all"]
    assert gray.images.shape == (2, 32, 32, 1)
    arrays = read_rows(str(home / "train.npz"))
    assert arrays["train"].attributes["kind"][:2].tolist() == ["animal", "vehicle"]
    subjects(5).to_parquet(tmp_path / "p.parquet")
    assert len(read_rows(str(tmp_path / "p.parquet"), limit=2)["all"]) == 2


@pytest.mark.parametrize(
    ("path", "options", "word"),
    [
        ("nothing.csv", {}, "nothing at"),
        ("empty", {}, "unknown layout"),
        ("notes.txt", {}, "cannot be read"),
        ("t.csv#train", {}, "no split"),
        ("t.csv", {"attributes": "t.csv"}, "leave it out"),
        ("t.csv", {"limit": 0}, "--limit"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, path: str, options: dict[str, object], word: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    subjects(30).to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises((ConfigError, DataError), match=word):
        read_rows(str(tmp_path / path), **options)


def test_fit_takes_utility_and_dropped_columns_out(home: Path) -> None:
    model = load_obfuscator(home / "o")
    assert model.codec_.columns == ("age", "job")
    assert model.labels_.names == ("income",)
    for file in (home / "o").iterdir():
        assert b"patient" not in file.read_bytes()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"utility": []}, "--utility"),
        ({"utility": ["wage"]}, "no column 'wage'"),
        ({"utility": ["income", "income"]}, "twice"),
        ({"utility": ["id"]}, "single record"),
        ({"drop": ["wage"]}, "--drop"),
        ({"drop": []}, "--drop id"),
        ({"drop": ["id", "sex", "age", "job"]}, "no column to obfuscate"),
        ({"preset": "magic"}, "preset"),
        ({"preset": "substitute", "epochs": None}, "must be 'calibrated' or 'paper'"),
        ({"preset": "calibrated", "donors": "test.npz"}, "--donors"),
        ({"donors": "test.npz", "epochs": None}, "is a table"),
        ({"beta": -1.0}, "beta"),
        ({"authors_compat": True}, "authors_compat"),
    ],
)
def test_a_wrong_fit_is_told_and_leaves_nothing(
    home: Path, tmp_path: Path, change: dict[str, object], word: str
) -> None:
    options = {"utility": ["income"], "drop": ["id"], "epochs": 1, "resume": False} | change
    with pytest.raises((ConfigError, DataError), match=word):
        fit_obfuscator(str(home / "train.csv"), tmp_path / "new", **options)
    assert list(tmp_path.iterdir()) == []


def test_missing_labels_are_told(tmp_path: Path) -> None:
    frame = subjects(50).drop(columns="id")
    frame.loc[7, "income"] = None
    frame.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(DataError, match="has missing values"):
        fit_obfuscator(str(tmp_path / "t.csv"), tmp_path / "new", utility=["income"], epochs=1, resume=False)


def test_an_unfinished_fit_goes_on_and_its_checkpoint_goes_away(home: Path, tmp_path: Path) -> None:
    subjects(60).drop(columns="id").to_csv(tmp_path / "t.csv", index=False)
    fit_obfuscator(str(tmp_path / "t.csv"), tmp_path / "new", utility=["income"], epochs=1)
    assert list((tmp_path / ".locum").iterdir()) == []


def test_a_table_leaves_with_labels_and_claim_and_in_a_new_order(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    result = apply_obfuscator(home / "o", str(home / "test.csv"), out, noise=0.0)
    made, real = read_frame(out), read_frame(home / "test.csv")
    assert list(made.columns) == ["age", "income", "job"]
    assert result.left_out == ("id", "sex")
    assert sorted(made["income"]) == sorted(real["income"])
    assert made["income"].tolist() != real["income"].tolist(), "a row's place would tell whose it was"
    assert made["age"].between(20, 59).all()
    assert set(made["job"]) <= {"cook", "smith", "clerk"}
    about = json.loads((tmp_path / "out.claim.json").read_text())
    assert about["sha256"] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert about["obfuscator"] == hashlib.sha256((home / "o" / "manifest.json").read_bytes()).hexdigest()
    assert about["claim"]["kind"] == "none"
    assert about["knobs"] == {"noise": 0.0, "lambda": -50.0, "labels": "true"}
    assert about["local"] is None, "no noise, no local guarantee"
    told = " ".join(about["claim"]["not_covered"])
    assert "by design" in told
    assert "measured, not proven" in told
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_the_local_epsilon_is_told_only_where_it_holds(home: Path, tmp_path: Path) -> None:
    def local(name: str, **knobs: object) -> tuple[object, str]:
        result = apply_obfuscator(home / "o", str(home / "test.csv"), tmp_path / f"{name}.csv", **knobs)
        return result.about["local"], " ".join(result.claim.not_covered)

    found, told = local("a", noise=4.0)
    expected = load_obfuscator(home / "o").local_epsilon(4.0, delta=1e-5)
    assert found == {"epsilon": expected, "delta": 1e-5}
    assert "not part of this claim" in told
    found, told = local("b", noise=4.0, seed=0)
    assert found is None
    assert "anyone who guesses the seed can remove it" in told
    found, told = local("c", noise=4.0, lambda_="own")
    assert found is None
    assert "without noise" in told
    found, _ = local("d", noise=float("inf"))
    assert found == {"epsilon": 0.0, "delta": 1e-5}
    assert "order of the data" in local("e", noise=1.0, keep_order=True)[1]


def test_a_seed_gives_the_same_and_no_seed_another(home: Path, tmp_path: Path) -> None:
    def made(name: str, seed: int | None) -> pd.DataFrame:
        apply_obfuscator(home / "o", str(home / "test.csv"), tmp_path / name, noise=3.0, seed=seed)
        return read_frame(tmp_path / name)

    pd.testing.assert_frame_equal(made("a.csv", 1), made("b.csv", 1))
    assert not made("c.csv", None).equals(made("d.csv", None))


def test_what_python_gives_is_what_the_verb_writes(home: Path, tmp_path: Path) -> None:
    real = read_frame(home / "test.csv")
    apply_obfuscator(home / "o", str(home / "test.csv"), tmp_path / "a.parquet", noise=2.0, keep_order=True, seed=3)
    model = load_obfuscator(home / "o")
    rng = np.random.default_rng(3)
    expected = model.transform(real[["age", "job"]], real["income"], noise=2, lambda_=-50, random_state=rng)
    pd.testing.assert_frame_equal(read_frame(tmp_path / "a.parquet")[["age", "job"]], expected)


def test_guessed_labels_need_no_true_ones(home: Path, tmp_path: Path) -> None:
    real = read_frame(home / "test.csv").drop(columns="income")
    real.to_csv(tmp_path / "unknown.csv", index=False)
    with pytest.raises(ConfigError, match="income"):
        apply_obfuscator(home / "o", str(tmp_path / "unknown.csv"), tmp_path / "a.csv", noise=1.0)
    apply_obfuscator(home / "o", str(tmp_path / "unknown.csv"), tmp_path / "a.csv", noise=1.0, true_label=False)
    made = read_frame(tmp_path / "a.csv")
    assert set(made["income"]) <= {"low", "high"}
    assert json.loads((tmp_path / "a.claim.json").read_text())["knobs"]["labels"] == "guessed"


@pytest.mark.parametrize("out", ["out", "out.npz"])
def test_images_leave_with_neutral_names_and_can_be_read_again(home: Path, tmp_path: Path, out: str) -> None:
    apply_obfuscator(home / "oi", str(home / "test.npz"), tmp_path / out, noise=1.0, seed=0)
    if out == "out":
        names = sorted(file.name for file in (tmp_path / out).iterdir())
        assert names == [*(f"{i:06d}.png" for i in range(1, 41)), "attributes.csv", "manifest.json"]
        made = read_image_attributes(tmp_path / out, tmp_path / out / "attributes.csv", side=16)
        about = json.loads((tmp_path / out / "manifest.json").read_text())
        for name, entry in about["files"].items():
            assert hashlib.sha256((tmp_path / out / name).read_bytes()).hexdigest() == entry["sha256"]
    else:
        made = read_image_npz(tmp_path / out)["train"]
        about = json.loads((tmp_path / "out.claim.json").read_text())
    assert made.images.shape == (40, 16, 16, 3)
    assert sorted(made.attributes["kind"]) == ["animal"] * 20 + ["vehicle"] * 20
    assert about["claim"]["kind"] == "none"
    with pytest.raises(ConfigError, match="already exists"):
        apply_obfuscator(home / "oi", str(home / "test.npz"), tmp_path / out, noise=1.0)
    apply_obfuscator(home / "oi", str(home / "test.npz"), tmp_path / out, noise=1.0, overwrite=True)


def test_the_folder_and_the_file_hold_the_same_images(home: Path, tmp_path: Path) -> None:
    for out in ("out", "out.npz"):
        apply_obfuscator(home / "oi", str(home / "test.npz"), tmp_path / out, noise=1.0, seed=0, true_label=False)
    a = read_image_attributes(tmp_path / "out", tmp_path / "out" / "attributes.csv", side=16)
    np.testing.assert_array_equal(a.images, read_image_npz(tmp_path / "out.npz")["train"].images)


@pytest.mark.parametrize("form", ["file", "folder"])
def test_donors_are_shown_and_nothing_else(home: Path, tmp_path: Path, form: str) -> None:
    with np.load(home / "test.npz") as file:
        donors, kind = file["train_images"], file["train_attr_kind"]
    place = home / "test.npz"
    if form == "folder":
        place = tmp_path / "donors"
        place.mkdir()
        names = [f"{i}.png" for i in range(len(donors))]
        for name, image in zip(names, donors, strict=True):
            Image.fromarray(image).save(place / name)
        pd.DataFrame({"file": names, "kind": kind}).to_csv(place / "attributes.csv", index=False)
    summary = fit_obfuscator(
        str(home / "train.npz"), tmp_path / "o", utility=["kind"], donors=str(place), resume=False
    )
    assert summary.preset == "substitute"
    applied = apply_obfuscator(tmp_path / "o", str(home / "train.npz"), tmp_path / "out.npz", noise=4.0)
    known = {image.tobytes(): name for image, name in zip(donors, kind, strict=True)}
    made = read_image_npz(tmp_path / "out.npz")["train"]
    labels = made.attributes["kind"]
    assert [known[image.tobytes()] for image in made.images] == labels.tolist()
    assert applied.about["local"] == {"epsilon": 2.5, "delta": 0.0}
    told = applied.claim.not_covered
    assert told[0].startswith("donors: they are shown as they are")
    assert any("epsilon 2.5 at delta 0, drawn with the operating system's secure generator" in line for line in told)


def test_collages_and_their_quarters_are_named_in_the_claim(home: Path, tmp_path: Path) -> None:
    applied = apply_obfuscator(home / "oi", str(home / "test.npz"), tmp_path / "a.npz", noise=1.0)
    assert "a quarter of each" in applied.claim.not_covered[0]
    seeded = apply_obfuscator(home / "oi", str(home / "test.npz"), tmp_path / "b.npz", noise=1.0, seed=0)
    assert seeded.about["local"] is None


@pytest.mark.parametrize(
    ("obfuscator", "data", "out", "change", "word"),
    [
        ("o", "test.csv", "a.npz", {}, r"must end in \.csv or \.parquet"),
        ("oi", "test.npz", "a.csv", {}, "npz file or to a folder"),
        ("o", "test.npz", "a.csv", {}, "takes tables"),
        ("oi", "test.csv", "a.npz", {}, "takes images"),
        ("o", "strange.csv", "a.csv", {}, "category"),
        ("o", "narrow.csv", "a.csv", {}, "lacks columns"),
        ("o", "wealth.csv", "a.csv", {}, "was not there"),
        ("o", "test.csv", "no/a.csv", {}, "does not exist"),
        ("o", "test.csv", "a.csv", {"noise": -1.0}, "noise"),
        ("o", "test.csv", "a.csv", {"lambda_": 1.0}, "lambda_"),
        ("o", "test.csv", "a.csv", {"delta": 0.0}, "--delta"),
    ],
)
def test_a_wrong_use_is_told_and_leaves_nothing(
    home: Path, tmp_path: Path, obfuscator: str, data: str, out: str, change: dict[str, float], word: str
) -> None:
    subjects(30).assign(job="astronaut").to_csv(home / "strange.csv", index=False)
    subjects(30).drop(columns="age").to_csv(home / "narrow.csv", index=False)
    subjects(30).assign(income="middling").to_csv(home / "wealth.csv", index=False)
    with pytest.raises((ConfigError, DataError), match=word):
        apply_obfuscator(home / obfuscator, str(home / data), tmp_path / out, **({"noise": 1.0} | change))
    assert list(tmp_path.iterdir()) == []


def test_a_trade_off_is_written_kept_and_resumed(home: Path, tmp_path: Path) -> None:
    options = {"private": "sex", "test": str(home / "test.csv"), "judges": ["trees"], "copies": 2}
    told: list[tuple[int, int, str]] = []

    def run(noises: list[float], **more: object) -> object:
        told.clear()
        return measure_trade_off(
            home / "o", str(home / "train.csv"), tmp_path / "t", noises=noises,
            progress=lambda *step: told.append(step), **options, **more,
        )  # fmt: skip

    found = run([0.0, float("inf")])
    assert found.report["baselines"]["original attacker"]["value"] > 0.85
    hidden = found.report["points"][-1]
    assert hidden["knobs"] == {"noise": "infinity", "lambda": -50.0}
    assert hidden["attacker"]["value"] < 0.65
    assert hidden["utility"]["value"] > 0.9
    assert {"trade-off.json", "trade-off.md", "report.html"} <= set(found.files)
    for file in (tmp_path / "t").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    facts = json.loads((tmp_path / "t" / "trade-off.json").read_text())
    assert facts["audience"] == "internal"
    assert len(facts["points"]) == 2
    again = run([0.0, 1.0, float("inf")], attacker_at_most=0.7)
    assert [step[0] for step in told] == [6, 7, 8, 9]
    assert told[-1][2] == "noise 1, lambda -50: used by trees"
    assert again.found.points[0] == found.found.points[0]
    assert again.problem == ""
    assert again.report["target"]["picked"] in {p.name for p in again.found.points}
    with pytest.raises(CheckpointError, match="other data"):
        measure_trade_off(
            home / "o", str(home / "train.csv"), tmp_path / "t", noises=[0.0], private="job", judges=["trees"]
        )
    assert run([0.0], overwrite=True).found.points[0] == found.found.points[0]


def test_a_target_that_cannot_be_met_or_judged_is_not_called_safe(home: Path, tmp_path: Path) -> None:
    options = {"test": str(home / "test.csv"), "judges": ["trees"], "copies": 1, "noises": [0.0]}
    where = (home / "o", str(home / "train.csv"))
    far = measure_trade_off(*where, tmp_path / "a", private="sex", attacker_at_most=0.3, **options)
    assert "utility label alone" in far.problem
    assert far.report["target"]["picked"] is None
    frame = subjects(400)
    frame["coin"] = np.random.default_rng(5).choice(["heads", "tails"], 400)
    frame.to_csv(tmp_path / "coins.csv", index=False)
    blind = measure_trade_off(
        home / "o", str(tmp_path / "coins.csv"), tmp_path / "b", private="coin", attacker_at_most=0.99, noises=[0.0],
        judges=["trees"], copies=1,
    )  # fmt: skip
    assert "learned too little" in blind.problem
    assert "learned too little" in blind.report["caution"]
    assert "has seen these records" in blind.report["measured"]["tested on"]


def test_guesses_are_judged_too(home: Path, tmp_path: Path) -> None:
    options = {"private": "sex", "test": str(home / "test.csv"), "judges": ["trees"], "copies": 1, "noises": [0.0]}
    found = measure_trade_off(home / "o", str(home / "train.csv"), tmp_path / "a", true_label=False, **options)
    assert found.report["obfuscator"]["labels written"] == "its own prediction"


def test_images_get_a_grid(home: Path, tmp_path: Path) -> None:
    found = measure_trade_off(
        home / "oi", str(home / "train.npz"), tmp_path / "t", private="label", test=str(home / "test.npz"),
        noises=[0.0, 2.0], lambdas=[-50.0, 0.0], epochs=1, copies=1, judges=["network"],
    )  # fmt: skip
    grid = found.report["grid"]
    assert [len(row) for row in grid["cells"]] == [2, 2]
    assert all(raw.startswith(b"\x89PNG") for row in grid["cells"] for raw in row)
    page = (tmp_path / "t" / "report.html").read_text()
    assert page.count("data:image/png") == 6
    with Image.open(tmp_path / "t" / "grid.png") as picture:
        assert picture.size == (3 * 36, 2 * 36)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"private": "wage"}, "no column 'wage'"),
        ({"private": "income"}, "what the obfuscator keeps"),
        ({"private": "constant"}, "1 values"),
        ({"noises": [-1.0]}, "noise"),
        ({"lambdas": [5.0]}, "lambda_"),
        ({"attacker_at_most": 2.0}, "--attacker-at-most"),
        ({"holdout": 1.0}, "--holdout"),
        ({"holdout": 0.01}, "20 training and 20 test records"),
        ({"judges": ["oracle"]}, "judges"),
    ],
)
def test_a_wrong_trade_off_is_told(home: Path, tmp_path: Path, change: dict[str, object], word: str) -> None:
    subjects(300).assign(constant="x").to_csv(home / "more.csv", index=False)
    options = {"private": "sex", "noises": [0.0]} | change
    with pytest.raises((ConfigError, DataError), match=word):
        measure_trade_off(home / "o", str(home / "more.csv"), tmp_path / "t", **options)
    assert not (tmp_path / "t" / "report.html").exists()


def test_a_folder_of_other_things_is_left_alone(home: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="left alone"):
        measure_trade_off(home / "o", str(home / "train.csv"), tmp_path, private="sex", noises=[0.0], overwrite=True)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_trade_off_takes_a_new_or_empty_folder_and_never_writes_into_a_release(home: Path, tmp_path: Path) -> None:
    options = {"private": "sex", "noises": [0.0], "judges": ["trees"], "copies": 1}
    (tmp_path / "empty").mkdir()
    for out in ("empty", "new/deep"):
        measure_trade_off(home / "o", str(home / "train.csv"), tmp_path / out, **options)
        assert (tmp_path / out / "report.html").is_file()
    assert stat.S_IMODE((tmp_path / "new/deep").stat().st_mode) == 0o700
    (tmp_path / "file").write_text("mine")
    before = sorted(file.name for file in (home / "o").iterdir())
    for out in (tmp_path / "file", home / "o"):
        with pytest.raises(ConfigError, match="left alone"):
            measure_trade_off(home / "o", str(home / "train.csv"), out, overwrite=True, **options)
    assert sorted(file.name for file in (home / "o").iterdir()) == before
