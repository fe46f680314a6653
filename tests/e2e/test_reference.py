"""Public statistics through the program: made, shown, used by a private fit, and needed to verify it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from locum.data import load_reference, read_embeddings
from locum.generate.private import reference_hash

PROMISE = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", "--classes", "ant,bee,cat")
LEDGER = ".locum/ledger.sqlite"


@pytest.fixture
def ranges(tmp_path: Path) -> Path:
    """Declared ranges of the eight features of `files`."""
    file = tmp_path / "ranges.csv"
    file.write_text("name,low,high\n" + "".join(f"f{i},{-20 - i},{20 + i}\n" for i in range(8)))
    return file


@pytest.fixture
def model(tmp_path: Path, rng: np.random.Generator) -> str:
    """A small random ONNX model."""
    weights = numpy_helper.from_array(rng.normal(size=(192, 6)).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])],
        "random",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "own.onnx"
    )
    return "onnx:own.onnx"


@pytest.fixture
def images(tmp_path: Path, rng: np.random.Generator) -> Path:
    for label in ("ant", "bee"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for i in range(15):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{i}.png")
    return tmp_path / "images"


def test_a_backbones_statistics(program, model: str, tmp_path: Path) -> None:
    words = ("reference", "make", "--backbone", model, "-o", "r.safetensors", "--images", "24", "--seed", "1")
    made = program(*words, "--json")
    assert made.code == 0, made.err
    assert "drawing 24 images once" in made.err
    assert (made.json["features"], made.json["images"], made.json["seed"], made.json["drawing"]) == (6, 24, 1, 1)
    known = load_reference(tmp_path / "r.safetensors", 6)
    assert made.json["sha256"] == reference_hash(known)
    shown = program("reference", "show", "r.safetensors")
    assert made.json["sha256"] in shown.out
    assert "24 images drawn" in shown.out
    again = program(*words)
    assert again.code == 2
    assert "already exists" in again.err
    assert program(*words, "--force").code == 0
    assert [f.name for f in tmp_path.glob("*.safetensors")] == ["r.safetensors"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name,low,high\na,0,1\nb,1,1\n", "Line 3 of 'bad.csv': 'b' goes from 1 to 1"),
        ("name,low,high\na,2,1\n", "'a' goes from 2 to 1"),
        ("name,low,high\na,nan,1\n", "'a' goes from nan to 1"),
        ("name,low,high\na,0,1,2\n", "Line 2"),
        ("name,low,high\na,zero,1\n", "Line 2"),
        ("name,low,high\n", "no features"),
        ("low,high\n0,1\n", "name,low,high"),
        ("", "name,low,high"),
    ],
)
def test_ranges_that_cannot_be_used(program, tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    ran = program("reference", "make", "--ranges", "bad.csv", "-o", "r.safetensors")
    assert ran.code == 2
    assert told in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "r.safetensors").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("make", "-o", "r.safetensors"), "--backbone NAME or --ranges FILE"),
        (("make", "-o", "r.npz", "--ranges", "ranges.csv"), ".safetensors"),
        (("make", "-o", "r.safetensors", "--ranges", "ranges.csv", "--images", "9"), "leave them out"),
        (("make", "-o", "r.safetensors", "--backbone", "magic"), "There is no backbone"),
        (("show", "magic"), "no public statistics"),
        (("show", "none.safetensors"), "There is no file"),
    ],
)
def test_what_cannot_be_made_or_shown(program, ranges: Path, words: tuple[str, ...], told: str) -> None:
    ran = program("reference", *words)
    assert ran.code == 2
    assert told in ran.err
    assert "Traceback" not in ran.err


def test_a_fit_with_declared_ranges_and_its_verification(program, files, ranges: Path, tmp_path: Path) -> None:
    assert program("reference", "make", "--ranges", ranges, "-o", "r.safetensors").code == 0
    ran = program("fit", "train.npz", "-o", "release", *PROMISE, "--reference", "r.safetensors")
    assert ran.code == 0, ran.err
    manifest = json.loads((tmp_path / "release" / "manifest.json").read_text())
    assert manifest["settings"]["reference_source"] == "declared ranges of 8 features"
    spec = manifest["decoder"]["head"]
    assert (spec["reference"], len(spec["reference_sha256"])) == ("own", 64)
    without = program("verify", "release", "--ledger", LEDGER)
    assert without.code == 0, without.err
    assert "ok  the noisy sums are the ones that the ledger knows" in without.out
    assert "--  whether the decoder follows from the noisy sums" in without.out
    checked = program("verify", "release", "--ledger", LEDGER, "--reference", "r.safetensors")
    assert "ok  the decoder follows from the noisy sums" in checked.out
    ranges.write_text(ranges.read_text().replace("-20,20", "-21,20"))
    assert program("reference", "make", "--ranges", ranges, "-o", "other.safetensors").code == 0
    other = program("verify", "release", "--ledger", LEDGER, "--reference", "other.safetensors")
    assert other.code == 2
    assert "not those of the release" in other.err
    alone = program("verify", "release", "--reference", "r.safetensors")
    assert alone.code == 2
    assert "add --ledger" in alone.err
    attacked = program(
        "audit", "release", "--members", "train.npz", "--non-members", "test.npz", "--attack", "LiRA on sums",
        "--reference", "r.safetensors", "--json",
    )  # fmt: skip
    assert attacked.code in (0, 3), attacked.err
    assert "cannot be read" not in attacked.out


def test_embed_makes_statistics_once_and_fit_uses_them(
    program, model: str, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("locum.embed.drawn_images.IMAGES", 24)
    ran = program("embed", "images", "-o", "v.npz", "--backbone", model)
    assert ran.code == 0, ran.err
    assert "public statistics: drawing 24 images once" in ran.err
    info = read_embeddings(tmp_path / "v.npz").info
    assert Path(info.reference).parent == (tmp_path / ".locum").resolve()
    known = load_reference(info.reference, 6, info)
    again = program("embed", "images", "-o", "v2.npz", "--backbone", model)
    assert "drawing" not in again.err
    assert read_embeddings(tmp_path / "v2.npz").info.reference == info.reference
    bare = program("embed", "images", "-o", "v3.npz", "--backbone", model, "--no-reference", "--json")
    assert bare.json["reference"] == read_embeddings(tmp_path / "v3.npz").info.reference == ""
    no_cache = program("embed", "images", "-o", "v4.npz", "--backbone", model, "--no-cache", "--json")
    assert Path(no_cache.json["reference"]).parent == tmp_path.resolve()

    words = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "30", "--classes", "ant,bee")
    assert program("ledger", "set-budget", "images", "--epsilon", "10", "--delta", "0.01").code == 0
    for name, data in (("a", ("v.npz",)), ("b", ("images", "--backbone", model))):
        fitted = program("fit", *data, "-o", name, *words)
        assert fitted.code == 0, fitted.err
        text = (tmp_path / name / "manifest.json").read_text()
        assert json.loads(text)["decoder"]["head"]["reference_sha256"] == reference_hash(known)
        assert str(tmp_path) not in text
    off = program("fit", "v.npz", "-o", "c", *words, "--reference", "none")
    assert off.code == 0, off.err
    assert json.loads((tmp_path / "c" / "manifest.json").read_text())["settings"]["reference"] == "none"

    # Statistics of another model, and of a file that is gone.
    rewritten = (tmp_path / "own.onnx").read_bytes()
    (tmp_path / "own.onnx").write_bytes(rewritten.replace(b"random", b"rondam"))
    assert program("reference", "make", "--backbone", model, "-o", "o.safetensors", "--images", "8").code == 0
    refused = program("fit", "v.npz", "-o", "d", *words, "--reference", "o.safetensors")
    assert refused.code == 2
    assert "the vectors come from" in refused.err
    Path(info.reference).unlink()
    gone = program("fit", "v.npz", "-o", "e", *words)
    assert gone.code == 2
    assert "There is no file" in gone.err
    spent = program("ledger", "show", "images", "--json").json["holdings"][0]["charges"]
    assert len(spent) == 3
