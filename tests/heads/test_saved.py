"""A saved head predicts what the trained one predicts, without torch, and opens no file that breaks the rules."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from safetensors.numpy import load, save

from locum import EmbeddingInfo, Release
from locum.errors import (
    ConfigError,
    DataError,
    FormatError,
    NotFittedError,
    PrivacyError,
    ReleaseError,
    SchemaVersionError,
)
from locum.generate import ClassGaussian
from locum.heads import LinearHead, MLPHead, SavedHead

Blobs = tuple[np.ndarray, np.ndarray]
HEADS = {"linear": LinearHead, "mlp": MLPHead}


def release_of(X: np.ndarray, y: np.ndarray, **options: Any) -> Release:
    return (
        ClassGaussian(random_state=0, **options).fit(X, y).release(EmbeddingInfo("efflite0", "1", "abc"), no_dp=True)
    )


def trained(release: Release, kind: str = "linear", **options: Any) -> LinearHead:
    options = {"max_epochs": 5, "random_state": 0, **options}
    return HEADS[kind](**options).fit(*release.sample(600, random_state=0))


@pytest.fixture
def release(blobs: Blobs) -> Release:
    X, y = blobs
    return release_of(X, np.array(["ant", "bee", "cat"])[y])


@pytest.fixture
def saved(release: Release) -> SavedHead:
    return SavedHead.from_fitted(trained(release), release, {"samples": 600})


@pytest.fixture
def file(saved: SavedHead, tmp_path: Path) -> Path:
    return saved.save(tmp_path / "head.safetensors")


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("classes", [2, 30])
@pytest.mark.parametrize("space", ["raw", "unit"])
def test_it_predicts_what_torch_predicts(
    tmp_path: Path, rng: np.random.Generator, kind: str, classes: int, space: str
) -> None:
    y = np.repeat(np.arange(classes), 12)
    X = (rng.normal(size=(len(y), 9)) + rng.normal(size=(classes, 9))[y]).astype(np.float32)
    X[:, 3] = 7.5  # a constant feature
    X[:, 5] = 1000 + 0.01 * X[:, 5]  # digits that float32 would lose once the z-score is folded in
    release = release_of(X, y, space=space)
    head = trained(release, kind)
    ours = SavedHead.open(SavedHead.from_fitted(head, release).save(tmp_path / "h.safetensors"))
    others = (X + rng.normal(size=X.shape) * X.std(axis=0)).astype(np.float32)
    others[:, 3] += 0.1
    for rows in (X, others):
        theirs = head.predict_proba(release.transform(rows))
        np.testing.assert_allclose(ours.predict_proba(rows), theirs, atol=1e-5)
        clear = np.sort(theirs, axis=1)[:, -1] - np.sort(theirs, axis=1)[:, -2] > 1e-4
        np.testing.assert_array_equal(ours.predict(rows)[clear], head.predict(release.transform(rows))[clear])


def test_without_z_scores(blobs: Blobs) -> None:
    release = release_of(*blobs)
    head = trained(release, standardize=False)
    ours = SavedHead.from_fitted(head, release)
    np.testing.assert_allclose(ours.predict_proba(blobs[0]), head.predict_proba(blobs[0]), atol=1e-5)


def test_many_rows_are_done_in_parts(saved: SavedHead, rng: np.random.Generator) -> None:
    X = rng.normal(size=(20_000, 8)).astype(np.float32)
    whole = saved.predict_proba(X)
    np.testing.assert_allclose(whole[-3:], saved.predict_proba(X[-3:]), rtol=1e-9)
    np.testing.assert_allclose(whole.sum(axis=1), 1)
    assert saved.predict_proba(X[:0]).shape == (0, 3)


def test_round_trip(file: Path, saved: SavedHead, release: Release, blobs: Blobs) -> None:
    loaded = SavedHead.open(file)
    assert loaded.manifest == saved.manifest
    assert loaded.claim == release.claim
    assert loaded.info == release.info
    assert loaded.classes.tolist() == ["ant", "bee", "cat"]
    assert loaded.manifest.settings["samples"] == 600
    assert loaded.manifest.settings["learning_rate"] == 1e-3
    np.testing.assert_array_equal(loaded.predict_proba(blobs[0]), saved.predict_proba(blobs[0]))
    assert file.stat().st_mode & 0o777 == 0o600


def test_the_same_head_gives_the_same_bytes(saved: SavedHead, tmp_path: Path) -> None:
    first, second = saved.save(tmp_path / "a.safetensors"), saved.save(tmp_path / "b.safetensors")
    assert first.read_bytes() == second.read_bytes()


def test_it_names_the_release_that_it_was_learned_from(release: Release, tmp_path: Path) -> None:
    opened = Release.open(release.save(tmp_path / "r"))
    assert SavedHead.from_fitted(trained(opened), opened).manifest.release == opened.fingerprint
    assert SavedHead.from_fitted(trained(release), release).manifest.release is None


def test_classes_follow_the_release_s_order(blobs: Blobs) -> None:
    """A release may list its classes in an order that is not the sorted one that a head learns in."""
    X, y = blobs
    release = release_of(X, np.array(["ant", "bee", "cat"])[y])
    turned = release.manifest.model_copy(
        update={"classes": ("cat", "ant", "bee"), "class_names": ("Katze", "Ameise", "Biene")}
    )
    other = Release(turned, release.tensors)
    head = trained(other)
    ours = SavedHead.from_fitted(head, other)
    assert ours.classes.tolist() == ["cat", "ant", "bee"]
    assert ours.info.class_names == ("Katze", "Ameise", "Biene")
    np.testing.assert_allclose(ours.predict_proba(X), head.predict_proba(X)[:, [2, 0, 1]], atol=1e-5)


def test_open_and_predict_need_no_torch(file: Path) -> None:
    code = (
        "import sys, numpy as np\nfrom locum.heads import SavedHead\n"
        f"head = SavedHead.open({str(file)!r})\nhead.predict(np.zeros((2, 8)))\n"
        "from locum.recipes import predict_records\n"
        "print(*{m.split('.')[0] for m in sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "sklearn"} & set(ran.stdout.split())


# Wrong use


def test_heads_that_cannot_be_saved(release: Release, blobs: Blobs) -> None:
    from torch import nn

    class Odd(LinearHead):
        def _network(self, inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh())

    with pytest.raises(NotFittedError, match="not fitted"):
        SavedHead.from_fitted(LinearHead(), release)
    with pytest.raises(ConfigError, match="class 0 that the release does not have"):
        SavedHead.from_fitted(LinearHead(max_epochs=1).fit(*blobs), release)
    with pytest.raises(ConfigError, match="Tanh"):
        SavedHead.from_fitted(Odd(max_epochs=1).fit(*release.sample(100)), release)
    X, y = release.sample(100)
    with pytest.raises(FormatError, match="does not fit"):
        SavedHead.from_fitted(LinearHead(max_epochs=1).fit(X[:, :5], y), release)


def test_vectors_that_do_not_belong(saved: SavedHead) -> None:
    for X, word in ((np.ones((3, 9)), "8 features"), (np.ones(8), "8 features"), (np.full((2, 8), np.nan), "finite")):
        with pytest.raises(DataError, match=word):
            saved.predict_proba(X)
    with pytest.raises(DataError, match="finite"):
        saved.predict_proba(np.full((2, 8), 1e300))


@pytest.mark.parametrize("name", ["head", "head.pt", "head.pkl", "head.npz"])
def test_the_suffix_is_asked_for_and_not_added(saved: SavedHead, tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"must end in \.safetensors"):
        saved.save(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten_unless_asked(file: Path, saved: SavedHead, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already exists"):
        saved.save(file)
    saved.save(file, overwrite=True)
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        saved.save(tmp_path / "folder.safetensors", overwrite=True)
    with pytest.raises(ConfigError, match="its folder does not exist"):
        saved.save(tmp_path / "nowhere" / "h.safetensors")


def test_a_failed_save_leaves_nothing(saved: SavedHead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        saved.save(tmp_path / "h.safetensors")
    assert list(tmp_path.iterdir()) == []


# Hostile files


def description(file: Path) -> dict[str, Any]:
    raw = file.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    return json.loads(header["__metadata__"]["locum"])


def rewrite(file: Path, text: str | None, tensors: dict[str, np.ndarray] | None = None) -> None:
    tensors = load(file.read_bytes()) if tensors is None else tensors
    file.write_bytes(save(tensors, None if text is None else {"locum": text}))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda m: m.update(extra=1), "extra"),
        (lambda m: m.update(format="locum-release"), "does not describe a Locum head"),
        (lambda m: m.update(head="forest"), "head"),
        (lambda m: m.update(program=[]), "program"),
        (lambda m: m.update(program=[{"op": "exec", "code": "x"}]), "program"),
        (lambda m: m.update(program=m["program"] * 20), "program"),
        (lambda m: m["program"][0].update(weight="../../x"), "weight"),
        (lambda m: m["program"][0].update(weight="other"), "does not fit"),
        (lambda m: m["embedding"].update(dim=9), "does not fit"),
        (lambda m: m["embedding"].update(dim=10**12), "dim"),
        (lambda m: m.update(classes=["ant", "bee"], class_names=["a", "b"]), "3 scores for 2 classes"),
        (lambda m: m.update(classes=["ant"], class_names=["a"]), "classes"),
        (lambda m: m.update(classes=["ant", "ant", "bee"]), "differ"),
        (lambda m: m.update(class_names=["a", "b"]), "name"),
        (lambda m: m.update(class_names=["a" * 201, "b", "c"]), "class_names"),
        (lambda m: m.update(space="whitened"), "space"),
        (lambda m: m.update(release="abc"), "release"),
        (lambda m: m["claim"].update(kind="k-anonymity"), "impossible claim"),
        (lambda m: m["claim"].update(not_covered=[]), "not_covered"),
        (lambda m: m.update(settings={"x": float("inf")}), "JSON"),
    ],
)
def test_descriptions_that_break_the_rules(file: Path, change: Any, word: str) -> None:
    said = description(file)
    change(said)
    rewrite(file, json.dumps(said))
    with pytest.raises(FormatError, match=word):
        SavedHead.open(file)


def test_a_newer_schema_says_upgrade(file: Path) -> None:
    rewrite(file, json.dumps({**description(file), "schema_version": 2, "news": True}))
    with pytest.raises(SchemaVersionError, match="This head has schema version 2"):
        SavedHead.open(file)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"a":' * 50_000, '"locum-head"', '{"x": 1e999}'])
def test_descriptions_that_are_no_json_object(file: Path, text: str) -> None:
    rewrite(file, text)
    with pytest.raises(FormatError, match="The head's description"):
        SavedHead.open(file)


def test_tensors_that_do_not_fit(file: Path) -> None:
    good, said = load(file.read_bytes()), json.dumps(description(file))
    weight, bias = good["layer0.weight"], good["layer0.bias"]
    for bad, word in (
        ({**good, "layer0.weight": weight * np.nan}, "NaN"),
        ({**good, "layer0.weight": weight + np.inf}, "infinity"),
        ({**good, "layer0.weight": weight[:, :-1]}, "does not fit"),
        ({**good, "layer0.weight": weight.ravel()}, "does not fit"),
        ({**good, "layer0.bias": bias[:-1]}, "does not fit"),
        ({"layer0.weight": weight}, "does not fit"),
        ({}, "does not fit"),
        ({**good, "spare": bias}, "nothing uses"),
        ({**good, "layer0.weight": weight.astype(np.int64)}, "wrong type"),
    ):
        rewrite(file, said, bad)
        with pytest.raises(FormatError, match=word):
            SavedHead.open(file)


def test_weights_beyond_all_bounds_give_one_sentence(file: Path) -> None:
    tensors = load(file.read_bytes())
    rewrite(file, json.dumps(description(file)), {k: np.full_like(v, 1e308) for k, v in tensors.items()})
    with pytest.raises(DataError, match="far too large"):
        SavedHead.open(file).predict(np.ones((2, 8)))


class Bomb:
    """Would run code if anyone unpickled it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.putenv, ("LOCUM_BOMB", "1"))


HOSTILE = {
    "empty": b"",
    "short": b"\x00" * 7,
    "a pickle": pickle.dumps(Bomb()),
    "a zip": b"PK\x03\x04" + b"\x00" * 100,
    "endless header": struct.pack("<Q", 2**63) + b"{}",
    "huge header": struct.pack("<Q", 2**30) + b"{}" * 100,
    "a huge header that is there": struct.pack("<Q", 10 * 2**20) + b" " * (10 * 2**20),
    "a list": struct.pack("<Q", 2) + b"[]",
    "no json": struct.pack("<Q", 8) + b"not json",
    "deep nesting": struct.pack("<Q", 4000) + b"[" * 4000,
    "offsets beyond the file": struct.pack("<Q", 66)
    + b'{"layer0.bias":{"dtype":"F64","shape":[3],"data_offsets":[0,1000]}}'[:66],
}


@pytest.mark.parametrize("raw", HOSTILE.values(), ids=HOSTILE)
def test_files_that_are_no_safetensors(file: Path, raw: bytes) -> None:
    file.write_bytes(raw)
    with pytest.raises(FormatError, match="safetensors format"):
        SavedHead.open(file)


def test_other_files_say_what_they_are_not(file: Path, release: Release, tmp_path: Path) -> None:
    rewrite(file, None)
    with pytest.raises(FormatError, match="is not a head"):
        SavedHead.open(file)
    with pytest.raises(FormatError, match="is a folder"):
        SavedHead.open(release.save(tmp_path / "r"))
    with pytest.raises(FormatError, match="no head at"):
        SavedHead.open(tmp_path / "nothing.safetensors")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FormatError, match="no head at"):
        SavedHead.open(tmp_path / "pipe")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 0.999), value=st.integers(0, 255), cut=st.one_of(st.just(1.0), st.floats(0, 1)))
def test_damage_is_refused_or_harmless(file: Path, place: float, value: int, cut: float) -> None:
    """Whatever byte is changed, wherever it is cut: a `ReleaseError`, or a head that predicts."""
    whole = file.read_bytes()
    raw = bytearray(whole)
    raw[int(place * len(raw))] = value
    file.write_bytes(raw[: int(cut * len(raw))])
    try:
        proba = SavedHead.open(file).predict_proba(np.ones((1, 8)))
        assert np.isfinite(proba).all()
    except (ReleaseError, DataError):
        pass
    finally:
        file.write_bytes(whole)


def test_a_head_that_saw_another_generator_is_not_saved(release: Release) -> None:
    X, y = release.sample(200, random_state=0)
    other = ClassGaussian(random_state=12345, ledger="/somewhere/ledger.sqlite")
    quick: dict[str, Any] = {"max_epochs": 2, "random_state": 0, "p_min": 0.5, "p_max": 0.5}
    with pytest.raises(PrivacyError, match="another generator"):
        SavedHead.from_fitted(LinearHead(augment=other, **quick).fit(X, y), release)
    same = SavedHead.from_fitted(
        LinearHead(augment=release, class_weight={release.manifest.classes[0]: 2.0}, **quick).fit(X, y), release
    )
    # Numbers and words alone: no release, no mapping.
    assert {"augment", "class_weight"}.isdisjoint(same.manifest.settings)
    assert same.manifest.settings["p_min"] == 0.5
