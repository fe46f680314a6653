"""A shared obfuscator: as it was, to the last bit; and nothing that a hostile folder asks for is done."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.numpy import load_file, save

from locum.errors import ConfigError, FormatError, IntegrityError, NotFittedError, ReleaseError, SchemaVersionError
from locum.obfuscate import ImageObfuscator, TableObfuscator, load_obfuscator, open_obfuscator, save_obfuscator

TENSORS = "obfuscator.safetensors"


def subjects(n: int = 120) -> tuple[pd.DataFrame, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    smoker = rng.integers(0, 2, n)
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 70, n) + 5 * smoker,
            "income": rng.normal(size=n),
            "job": rng.choice(["cook", "nurse | <b>"], n),
            "seen": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    frame.loc[3, "job"] = None
    return frame, {"smoker": np.array(["no", "yes"])[smoker], "group": rng.integers(0, 3, n)}


def fitted(preset: str) -> TableObfuscator:
    frame, utility = subjects()
    return TableObfuscator(preset, max_epochs=1, random_state=0).fit(frame, utility)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_obfuscator(fitted("calibrated"), tmp_path_factory.mktemp("saved") / "o")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "o"
    copy.mkdir()
    for file in saved.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def edit(folder: Path, change: Callable[[Any], Any]) -> None:
    file = folder / "manifest.json"
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def replace(folder: Path, change: Callable[[dict[str, np.ndarray]], Any]) -> None:
    """What an attacker does: other numbers, with hashes that fit them."""
    tensors = load_file(folder / TENSORS)
    change(tensors)
    raw = save({k: np.ascontiguousarray(v) for k, v in tensors.items()})
    (folder / TENSORS).write_bytes(raw)
    entry = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    edit(folder, lambda m: m["files"].update({TENSORS: entry}))


@pytest.mark.parametrize("preset", ["calibrated", "paper"])
@pytest.mark.parametrize(("noise", "lambda_"), [(0, -50), (3, -1), (2, None), (1, 0)])
def test_a_table_s_comes_back_to_the_last_bit(
    tmp_path: Path, preset: str, noise: float, lambda_: float | None
) -> None:
    model, (frame, utility) = fitted(preset), subjects()
    again = load_obfuscator(save_obfuscator(model, tmp_path / "o"))
    knobs = {"noise": noise, "lambda_": lambda_, "random_state": 5}
    pd.testing.assert_frame_equal(
        again.transform(frame, utility, **knobs), model.transform(frame, utility, **knobs), check_exact=True
    )
    pd.testing.assert_frame_equal(
        again.transform(frame, use_true_label=False, **knobs), model.transform(frame, use_true_label=False, **knobs)
    )
    assert again.local_epsilon(2.0, delta=1e-5) == model.local_epsilon(2.0, delta=1e-5)
    assert again.parameters_ == model.parameters_


@pytest.mark.parametrize("colors", [1, 3])
def test_an_image_s_comes_back_to_the_last_bit(tmp_path: Path, colors: int, rng: np.random.Generator) -> None:
    images = rng.integers(0, 256, (24, 16, 16, colors), dtype=np.uint8)
    utility = np.arange(24) % 2
    model = ImageObfuscator("paper", max_epochs=1, batch_size=8, random_state=0).fit(images, utility)
    save_obfuscator(model, tmp_path / "o")
    again = load_obfuscator(tmp_path / "o")
    np.testing.assert_array_equal(
        again.transform(images, utility, noise=2, lambda_=-3000, random_state=1),
        model.transform(images, utility, noise=2, lambda_=-3000, random_state=1),
    )
    assert not any("num_batches_tracked" in name for name in load_file(tmp_path / "o" / TENSORS)), "it counts records"


def test_what_leaves_is_named_and_nothing_else_leaves(saved: Path) -> None:
    assert sorted(f.name for f in saved.iterdir()) == ["README.md", "manifest.json", TENSORS]
    opened = open_obfuscator(saved)
    assert opened.claim.kind == "none"
    told = " ".join(opened.claim.not_covered)
    for word in ("fitted on", "by design", "measured, not proven", "add up", "local_epsilon"):
        assert word in told
    manifest = json.loads((saved / "manifest.json").read_text())
    assert "random_state" not in manifest["settings"]
    assert "checkpoint" not in manifest["settings"]
    assert [u["name"] for u in manifest["utility"]] == ["smoker", "group"]
    card = (saved / "README.md").read_text()
    assert "<b>" not in card
    assert "smoker" in card
    assert opened.fingerprint == hashlib.sha256((saved / "manifest.json").read_bytes()).hexdigest()


def test_ends_of_ranges_leave_only_where_they_are_used(tmp_path: Path) -> None:
    seeds = save_obfuscator(fitted("paper"), tmp_path / "o")
    assert not any(name.startswith("ranges") for name in load_file(seeds / TENSORS))


def test_the_same_fit_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    again = save_obfuscator(fitted("calibrated"), tmp_path / "o")
    assert all((again / f.name).read_bytes() == f.read_bytes() for f in saved.iterdir())


def test_saving_replaces_only_if_asked_and_only_its_own(tmp_path: Path, saved: Path) -> None:
    model = load_obfuscator(saved)
    place = save_obfuscator(model, tmp_path / "o")
    with pytest.raises(ConfigError, match="already exists"):
        save_obfuscator(model, place)
    save_obfuscator(model, place, overwrite=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    with pytest.raises(ConfigError, match="left alone"):
        save_obfuscator(model, tmp_path / "mine", overwrite=True)
    with pytest.raises(NotFittedError):
        save_obfuscator(TableObfuscator(), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_names_that_are_too_long_are_told_before_anything_is_written(tmp_path: Path) -> None:
    frame, utility = subjects()
    model = TableObfuscator(max_epochs=1, random_state=0).fit(frame, {"x" * 300: utility["smoker"]})
    with pytest.raises(ConfigError, match="cannot be saved"):
        save_obfuscator(model, tmp_path / "o")
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["README.md", TENSORS, "manifest.json"])
@pytest.mark.parametrize("keep", [0, 0.5, 0.99])
def test_truncated_files_are_refused(folder: Path, name: str, keep: float) -> None:
    raw = (folder / name).read_bytes()
    (folder / name).write_bytes(raw[: int(keep * len(raw))])
    with pytest.raises(ReleaseError):
        load_obfuscator(folder)


def test_links_extras_and_missing_files_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "run.py").write_text("raise SystemExit")
    with pytest.raises(IntegrityError, match="does not list"):
        load_obfuscator(folder)
    (folder / "run.py").unlink()
    raw = (folder / TENSORS).read_bytes()
    (folder / TENSORS).unlink()
    with pytest.raises(IntegrityError, match="missing"):
        load_obfuscator(folder)
    (tmp_path / "elsewhere").write_bytes(raw)
    (folder / TENSORS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FormatError, match="link"):
        load_obfuscator(folder)
    for nothing in (tmp_path / "no", tmp_path / "elsewhere"):
        with pytest.raises(FormatError, match="not a folder"):
            load_obfuscator(nothing)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda m: m.update(format="locum-release"), "does not describe"),
        (lambda m: m.update(surprise=1), "surprise"),
        (lambda m: m["claim"].update(kind="k-anonymity", k=5), "none"),
        (lambda m: m["claim"].update(not_covered=[]), "not_covered"),
        (lambda m: m["settings"].update(preset="magic"), "preset"),
        (lambda m: m["settings"].update(authors_compat=True), "authors_compat"),
        (lambda m: m["settings"].update(random_state=1), "random_state"),
        (lambda m: m["utility"][0].update(values=["yes", "no"]), "in order"),
        (lambda m: m["utility"][0].update(values=["no", 1]), "whole numbers"),
        (lambda m: m["utility"][0].update(values=["a", "b", "c"]), "shape"),
        (lambda m: m["utility"][1].update(name="smoker"), "the same name"),
        (lambda m: m["data"]["columns"].pop(), "shape"),
        (lambda m: m["data"]["columns"][0].update(low="now"), "wrong type"),
        (lambda m: m["data"]["columns"][0].update(kind="code"), "kind"),
        (lambda m: m.update(data={"kind": "image", "channels": 3, "side": 64}), "shape"),
        (lambda m: m.update(data={"kind": "image", "channels": 3, "side": 63}), "side"),
        (lambda m: m["files"].pop("README.md"), "must list"),
    ],
)
def test_a_manifest_that_breaks_the_format_is_refused(folder: Path, change: Callable[[Any], Any], word: str) -> None:
    edit(folder, change)
    with pytest.raises(FormatError, match=word):
        load_obfuscator(folder)


def test_a_newer_schema_asks_for_an_upgrade(folder: Path) -> None:
    edit(folder, lambda m: m.update(schema_version=2))
    with pytest.raises(SchemaVersionError, match="Upgrade"):
        load_obfuscator(folder)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t.update({"network.encoder.0.weight": t["network.encoder.0.weight"][:, :-1]}), "shape"),
        (lambda t: t.update({"network.encoder.0.bias": t["network.encoder.0.bias"].astype(np.float64)}), "float32"),
        (lambda t: t["network.encoder.0.bias"].fill(np.nan), "finite"),
        (lambda t: t.pop("network.decoder.0.bias"), "missing"),
        (lambda t: t.update(more=np.zeros(3, np.float32)), "Nothing uses"),
        (lambda t: t["ranges.0.low"].__setitem__(0, -1), "ascend"),
        (lambda t: t["ranges.0.high"].fill(0), "ascend"),
        (lambda t: t.update({"ranges.0.low": t["ranges.0.low"][:0]}), "shape"),
        (lambda t: t["noise.combinations"].fill(7), "do not exist"),
        (lambda t: t["noise.combinations"].fill(0), "twice"),
        (lambda t: t["noise.factors"].fill(1), "triangular"),
        (lambda t: t["noise.factors"].fill(0), "triangular"),
        (lambda t: t["noise.bound"].fill(-1), "bound"),
        (lambda t: t.update({"noise.means": t["noise.means"][:-1]}), "shape"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(
    folder: Path, change: Callable[[dict[str, np.ndarray]], Any], word: str
) -> None:
    replace(folder, change)
    with pytest.raises(FormatError, match=word):
        load_obfuscator(folder)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.floats(0, 1), value=st.integers(0, 255), name=st.sampled_from(["manifest.json", "README.md", TENSORS])
)
def test_no_flipped_byte_gets_through(saved: Path, tmp_path: Path, name: str, place: float, value: int) -> None:
    raw = bytearray((saved / name).read_bytes())
    at = min(int(place * len(raw)), len(raw) - 1)
    if raw[at] == value:
        return
    raw[at] = value
    copy = tmp_path / "copy"
    copy.mkdir(exist_ok=True)
    for file in saved.iterdir():
        (copy / file.name).write_bytes(bytes(raw) if file.name == name else file.read_bytes())
    if name == "manifest.json":
        # The manifest vouches for the rest, and nothing for it but its fingerprint.
        try:
            assert open_obfuscator(copy).fingerprint != open_obfuscator(saved).fingerprint
        except ReleaseError:
            return
    else:
        with pytest.raises(IntegrityError):
            load_obfuscator(copy)
