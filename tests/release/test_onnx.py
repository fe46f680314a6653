"""A decoder in onnxruntime alone gives what ours gives from the same noise, and holds no more than the release."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from locum.errors import ConfigError, PolicyError, PrivacyError
from locum.federated import merge_releases
from locum.generate import CGANGenerator, ClassGaussian, CVAEGenerator, KSame
from locum.recipes import export_onnx, verify_release
from locum.release import Release, decode_given, decoder_to_onnx, noise_width
from locum.types import DP

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
N = 300
Blobs = tuple[np.ndarray, np.ndarray]


def private(blobs: Blobs, folder: Any, mechanism: str) -> Release:
    model = ClassGaussian(
        mechanism=mechanism, privacy=DP(1.0, 1e-5), classes=[0, 1, 2], ledger=folder / f"{mechanism}.sqlite"
    )
    return model.fit(*blobs).release()


def made(kind: str, blobs: Blobs, tmp_path: Any) -> Release:
    X, y = blobs
    fitted: Any
    if kind in ("head", "means"):
        return private(blobs, tmp_path, kind)
    if kind == "conditions":
        ward = np.array(["a", "b"])[np.arange(len(y)) % 2]
        fitted = ClassGaussian(condition_on="ward", random_state=0).fit(X, y, attributes={"ward": ward})
    elif kind == "network conditions":
        ward = np.array(["a", "b"])[np.arange(len(y)) % 2]
        fitted = CVAEGenerator(condition_on="ward", max_epochs=2, random_state=0)
        fitted.fit(X, y, attributes={"ward": ward})
    elif kind == "mixture":
        nets = [CVAEGenerator(max_epochs=2, random_state=seed).fit(X, y).release(no_dp=True) for seed in range(2)]
        return merge_releases(nets)
    else:
        fitted = {
            "gaussian": ClassGaussian(random_state=0),
            "unit": ClassGaussian(space="unit", random_state=0),
            "rank 0": ClassGaussian(rank=0, variance=0.5, random_state=0),
            "cvae": CVAEGenerator(max_epochs=2, random_state=0),
            "cvae large": CVAEGenerator(preset="large", max_epochs=2, random_state=0),
            "cvae no noise": CVAEGenerator(decoder_noise="none", max_epochs=2, random_state=0),
            "cgan": CGANGenerator(max_epochs=2, random_state=0),
        }[kind].fit(X, y)
    return fitted.release(no_dp=True)


KINDS = (
    "gaussian", "unit", "rank 0", "conditions", "head", "means", "cvae", "cvae large", "cvae no noise",
    "network conditions", "cgan", "mixture",
)  # fmt: skip


def run(raw: bytes, feed: dict[str, np.ndarray]) -> np.ndarray:
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    out: np.ndarray = session.run(["X"], feed)[0]
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_noise_gives_the_same_vectors(kind: str, blobs: Blobs, tmp_path: Any) -> None:
    release = made(kind, blobs, tmp_path)
    rng = np.random.default_rng(1)
    codes = np.array([c for c, _ in release.manifest.joint])[rng.integers(len(release.manifest.joint), size=N)]
    noise = rng.standard_normal((N, noise_width(release.manifest, release.tensors)), dtype=np.float32)
    uniform = rng.random(N, dtype=np.float32)
    raw = decoder_to_onnx(release)
    feed = {"noise": noise, "codes": codes}
    about = json.loads(onnx.load_from_string(raw).metadata_props[0].value)
    if kind == "mixture":
        feed["uniform"] = uniform
    for variance in (None, 0.3):
        feed["variance"] = np.array([about["default_variance"] if variance is None else variance], np.float32)
        ours = decode_given(release.manifest, release.tensors, codes, noise, uniform=uniform, variance=variance)
        theirs = run(raw, feed)
        assert theirs.dtype == np.float32
        # Relative to the largest number: float32 has seven digits of each sum.
        assert np.abs(theirs - ours).max() <= 1e-6 * np.abs(ours).max()
    # A test that cannot fail tests nothing: other noise gives other vectors.
    assert np.abs(run(raw, feed | {"noise": noise[::-1].copy()}) - ours).max() > 1e-3 * np.abs(ours).max()


class Recorder:
    """A generator that remembers what it gave."""

    def __init__(self) -> None:
        self._rng, self.given = np.random.default_rng(3), []

    def standard_normal(self, shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
        self.given.append(self._rng.standard_normal(shape, dtype=dtype))
        return self.given[-1].copy()


@pytest.mark.parametrize("kind", ["gaussian", "cvae"])
def test_given_noise_is_what_sampling_does_with_its_own(kind: str, blobs: Blobs, tmp_path: Any) -> None:
    from locum.release.decoders import decode

    release, rng = made(kind, blobs, tmp_path), Recorder()
    codes = np.arange(30)[:, None] % 3
    sampled = decode(release.manifest, release.tensors, codes, 1.0, rng)  # type: ignore[arg-type]
    noise = np.concatenate(rng.given, axis=1)
    np.testing.assert_array_equal(
        sampled, decode_given(release.manifest, release.tensors, codes, noise, variance=1.0)
    )


def test_the_claim_travels_and_the_same_release_gives_the_same_bytes(blobs: Blobs, tmp_path: Any) -> None:
    release = private(blobs, tmp_path, "head")
    raw = decoder_to_onnx(release)
    assert raw == decoder_to_onnx(release)
    model = onnx.load_from_string(raw)
    about = json.loads({p.key: p.value for p in model.metadata_props}["locum"])
    assert about["claim"] == release.claim.to_dict()
    assert release.claim.sentence() in model.doc_string
    assert [(tuple(e["codes"]), e["probability"]) for e in about["joint"]] == list(release.manifest.joint)


@pytest.mark.parametrize("mechanism", ["head", "means"])
def test_no_noisy_result_of_a_private_fit_is_exported(mechanism: str, blobs: Blobs, tmp_path: Any) -> None:
    release = private(blobs, tmp_path, mechanism)
    paid = release.tensors["transcript" if mechanism == "head" else "statistics"]
    model = onnx.load_from_string(decoder_to_onnx(release))
    held = {onnx.numpy_helper.to_array(t).size for t in model.graph.initializer}
    numbers = [onnx.numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == 1]
    known = [release.tensors[name] for name in ("means", "factor", "scale")]
    large = [a for a in numbers if a.size > 1]
    assert all(any(a.shape == k.shape and (a == k).all() for k in known) for a in large)
    assert paid.size not in held


def test_a_fixed_table_is_refused(blobs: Blobs) -> None:
    table = KSame(k=5, random_state=0).fit(*blobs).release(no_dp=True)
    with pytest.raises(ConfigError, match="fixed table"):
        decoder_to_onnx(table)


@pytest.mark.parametrize("packed", [False, True])
def test_a_claim_that_its_events_do_not_cover_is_not_exported(packed: bool, blobs: Blobs, tmp_path: Any) -> None:
    """Folder or .zip: both are checked as `verify` does."""
    folder = private(blobs, tmp_path, "head").save(tmp_path / "forged")
    found = json.loads((folder / "manifest.json").read_text())
    found["claim"]["dp"]["epsilon"] /= 10
    (folder / "manifest.json").write_text(json.dumps(found))
    source = folder
    if packed:
        source = tmp_path / "forged.zip"
        with zipfile.ZipFile(source, "w") as archive:
            for file in sorted(folder.iterdir()):
                archive.write(file, f"forged/{file.name}")
    with pytest.raises(PrivacyError, match="composing its events costs"):
        export_onnx(source, tmp_path / "forged.onnx")
    assert not (tmp_path / "forged.onnx").exists()


def test_a_refused_release_is_not_exported(blobs: Blobs, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An .onnx file has no passport: the refusal would be lost."""
    from locum.recipes import export

    folder = made("gaussian", blobs, tmp_path).save(tmp_path / "refused")
    found = replace(verify_release(folder), refused=True, audit="a leak was found.")
    monkeypatch.setattr(export, "verify_release", lambda _: found)
    with pytest.raises(PolicyError, match="must not leave"):
        export_onnx(folder, tmp_path / "refused.onnx")
