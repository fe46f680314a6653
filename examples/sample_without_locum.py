"""Sample a release with numpy, safetensors and json alone: a reading of the format in 30 lines.

`sample` below is what a program in another language would do. The script makes two releases, draws from
them this way, and checks against `locum` where both must agree to the last digits: at variance 0.

    python examples/sample_without_locum.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def run(program: list[dict], tensors: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    """Every operation that schema 1 knows."""
    for op in program:
        match op["op"]:
            case "linear":
                x = x @ tensors[op["weight"]].T + tensors[op["bias"]]
            case "relu":
                x = np.maximum(x, 0)
            case "sigmoid":
                x = 1 / (1 + np.exp(-x))
            case "residual":
                x = run(op["body"], tensors, x) + run(op["shortcut"], tensors, x)
    return x


def sample(folder: Path, n: int, variance: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and class names of a release of a Gaussian or of a CVAE."""
    manifest = json.loads((folder / "manifest.json").read_text())
    tensors = load_file(folder / "decoder.safetensors")
    spec = manifest["decoder"]
    if manifest["schema_version"] != 1 or spec["kind"] not in ("gaussian", "network") or manifest["conditions"]:
        raise SystemExit("This short reader knows decoders of schema 1 without further conditions.")
    codes, p = zip(*((combination[0], p) for combination, p in manifest["joint"]), strict=True)
    code = rng.choice(codes, size=n, p=p)
    if spec["kind"] == "gaussian":
        X, factor, d = tensors["means"][code], tensors["factor"], manifest["embedding"]["dim"]
        noise = rng.standard_normal((n, d)) * tensors["scale"] + rng.standard_normal((n, len(factor))) @ factor
        X = X + variance**0.5 * noise
    else:
        z = rng.standard_normal((n, spec["latent_dim"])) * (variance if spec["variance_as_std"] else variance**0.5)
        X = run(spec["program"], tensors, np.concatenate([z, np.eye(len(manifest["classes"]))[code]], axis=1))
        offset = tensors["offset"]
        X = X * tensors["span"] + (offset if len(offset) == 1 else offset[code])
        if spec["noise"] != "none":
            X = X + rng.standard_normal(X.shape) * tensors["noise_scale"]
        if spec["noise"] == "low-rank":
            X = X + rng.standard_normal((n, len(tensors["noise_factor"]))) @ tensors["noise_factor"]
    if manifest["space"] == "unit":
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.array(manifest["class_names"])[code]


if __name__ == "__main__":
    from locum.data import load_sample
    from locum.generate import ClassGaussian, CVAEGenerator

    data = load_sample("digits")
    network = CVAEGenerator(preset="large", decoder_noise="none", max_epochs=3, random_state=0)
    for generator in (ClassGaussian(random_state=0), network):
        release = generator.fit(data.X, data.y).release(data.info, no_dp=True)
        with tempfile.TemporaryDirectory() as temporary:
            release.save(Path(temporary) / "release")
            X, names = sample(Path(temporary) / "release", 1000, 0.0, np.random.default_rng(0))
        ours = {c: release.sample(per_class={c: 1}, variance=0.0)[0][0] for c in release.classes.tolist()}
        gap = max(np.abs(x - ours[int(name)]).max() for x, name in zip(X, names, strict=True))
        assert gap < 1e-4, gap
        what = f"{len(X)} vectors of {len(set(names))} classes"
        print(f"{type(generator).__name__}: {what}, within 1e-4 of locum's own")
