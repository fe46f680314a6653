"""Sample a release and predict with a head in onnxruntime alone, as R, C#, Java or a browser would.

`sample` and `predict` use numpy, json and onnxruntime, nothing of Locum. The holder's side is played by
`holder()`, so that the script runs alone; it needs `locum[train,onnx]` and onnxruntime.

    python examples/onnx_receiver.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime


def session(file: Path) -> tuple[onnxruntime.InferenceSession, dict]:
    """A model, and what its metadata say about it."""
    model = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return model, json.loads(model.get_modelmeta().custom_metadata_map["locum"])


def sample(file: Path, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Fresh vectors and the names of their classes."""
    model, about = session(file)
    rng = np.random.default_rng(seed)
    weights = np.array([entry["probability"] for entry in about["joint"]])
    drawn = rng.choice(len(weights), size=n, p=weights / weights.sum())
    codes = np.array([entry["codes"] for entry in about["joint"]], dtype=np.int64)[drawn]
    feed = {"noise": rng.standard_normal((n, about["noise_width"]), dtype=np.float32), "codes": codes}
    feed["variance"] = np.array([about["default_variance"]], dtype=np.float32)
    if "uniform" in [value.name for value in model.get_inputs()]:
        feed["uniform"] = rng.random(n, dtype=np.float32)
    (X,) = model.run(["X"], feed)
    return X, np.array(about["class_names"])[codes[:, 0]]


def predict(file: Path, X: np.ndarray) -> np.ndarray:
    """The name of the most likely class of each vector."""
    model, about = session(file)
    (code,) = model.run(["code"], {"X": X.astype(np.float32)})
    return np.array(about["class_names"])[code]


def holder(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Write a release of digits and a head, export both; give back records that were not used."""
    from locum.data import load_sample, split, write_embeddings
    from locum.recipes import export_onnx, fit_release, train_head

    parts = split(load_sample("digits"), {"train": 0.7, "test": 0.3}, rng=np.random.default_rng(0))
    write_embeddings(folder / "digits.npz", parts["train"])
    release = fit_release(str(folder / "digits.npz"), folder / "release", no_dp=True).release
    head = train_head(release, folder / "head.safetensors", samples=4000, settings={"max_epochs": 20}).head
    for source, name in ((release, "decoder.onnx"), (head, "head.onnx")):
        made = export_onnx(source, folder / name)
        print(f"{name:13s} differs from Locum by at most {made.difference:.0e} of the largest number")
    return parts["test"].X, parts["test"].labels


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        records, names = holder(folder)
        X, drawn = sample(folder / "decoder.onnx", 1000, seed=0)
        print(f"sampled       {len(X)} vectors of {len(set(drawn))} classes")
        agree = np.mean(predict(folder / "head.onnx", X) == drawn)
        right = np.mean(predict(folder / "head.onnx", records) == names.astype(str))
        print(f"head          right on {agree:.1%} of these, and on {right:.1%} of real records")
