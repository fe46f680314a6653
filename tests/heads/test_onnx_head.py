"""A head in onnxruntime predicts what `SavedHead` predicts, and carries the claim; and the verb that writes it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from locum.cli.main import main
from locum.errors import ConfigError
from locum.generate import ClassGaussian, KSame
from locum.heads import LinearHead, MLPHead, SavedHead, bayes_head, head_to_onnx
from locum.recipes import export_onnx
from locum.types import DP

onnxruntime = pytest.importorskip("onnxruntime")
Blobs = tuple[np.ndarray, np.ndarray]


def heads(blobs: Blobs, tmp_path: Path) -> dict[str, SavedHead]:
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True)
    unit = ClassGaussian(space="unit", random_state=0).fit(*blobs).release(no_dp=True)
    private = ClassGaussian(privacy=DP(1.0, 1e-5), classes=[0, 1, 2], ledger=tmp_path / "ledger.sqlite")
    drawn, other = release.sample(300, random_state=0), unit.sample(300, random_state=0)
    linear = LinearHead(max_epochs=3, random_state=0).fit(*drawn)
    return {
        "linear": SavedHead.from_fitted(linear, release).with_temperature(2.0),
        "mlp": SavedHead.from_fitted(MLPHead(max_epochs=3, random_state=0).fit(*drawn), release),
        "unit": SavedHead.from_fitted(LinearHead(max_epochs=3, random_state=0).fit(*other), unit),
        "bayes": bayes_head(private.fit(*blobs).release()),
    }


def test_probabilities_agree(blobs: Blobs, tmp_path: Path, rng: np.random.Generator) -> None:
    X = (rng.normal(size=(200, blobs[0].shape[1])) * 5).astype(np.float32)
    for name, head in heads(blobs, tmp_path).items():
        session = onnxruntime.InferenceSession(head_to_onnx(head), providers=["CPUExecutionProvider"])
        proba, code = session.run(["probabilities", "code"], {"X": X})
        ours = head.predict_proba(X)
        # Absolute: they are probabilities.
        assert np.abs(proba - ours).max() <= 1e-6, name
        np.testing.assert_array_equal(head.classes[code], head.predict(X))
        assert np.ptp(ours, axis=0).max() > 0.1, f"{name} says the same about everything"
        about = json.loads(session.get_modelmeta().custom_metadata_map["locum"])
        assert about["claim"] == head.claim.to_dict()


def run(*words: object) -> int:
    import sys

    sys.argv = ["locum", *map(str, words)]
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)  # type: ignore[arg-type]


def test_the_verb(
    blobs: Blobs, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [])
    release = ClassGaussian(random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "release")
    out = tmp_path / "decoder.onnx"
    assert run("export", release, "--onnx", "-o", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kind"] == "decoder"
    assert told["difference"] <= 1e-6
    assert run("export", release, "--onnx", "-o", out) == 2
    assert run("export", release, "--onnx", "-o", out, "--force") == 0
    head = heads(blobs, tmp_path)["linear"].save(tmp_path / "head.safetensors")
    assert run("export", head, "--onnx", "-o", tmp_path / "head.onnx") == 0
    capsys.readouterr()
    for words, reason in (
        ([release], "Say where to"),
        ([release, "--onnx"], "add -o FILE.onnx"),
        ([release, "--onnx", "-o", tmp_path / "x.bin"], ".onnx"),
        ([release, "--onnx", "-o", release / "x.onnx"], "next to it"),
        ([release, "--hub", "clinic/scans", "-o", tmp_path / "x.onnx"], "leave it out"),
        ([release, "--onnx", "-o", tmp_path / "x.onnx", "--public"], "are for --hub"),
        ([release, "--hub", "not a name", "--yes"], "OWNER/NAME"),
    ):
        assert run("export", *words) == 2
        assert reason in capsys.readouterr().err
    assert sorted(f.name for f in tmp_path.glob("x*")) == []


def test_a_damaged_or_fixed_release_is_not_exported(blobs: Blobs, tmp_path: Path) -> None:
    table = KSame(k=5, random_state=0).fit(*blobs).release(no_dp=True).save(tmp_path / "table")
    with pytest.raises(ConfigError, match="fixed table"):
        export_onnx(table, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()
