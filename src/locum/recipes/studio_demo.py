"""`studio --demo`: a folder with built-in data and one release, so that every screen has something to show."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from locum.data import load_sample, split, write_embeddings, write_frame
from locum.errors import ConfigError
from locum.io import ledger_path, private_folder, write_atomically, write_bytes
from locum.recipes.audit import audit_data
from locum.recipes.demo import SHARES, write_digit_images
from locum.recipes.evaluate import evaluate_release
from locum.recipes.fit import fit_release
from locum.recipes.fit_privacy import names_read

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "locum-studio-demo"
# Usual ranges of the ten measurements of a cell nucleus in three forms (mean, error, worst), as scikit-learn's
# description of the data gives them, rounded: radius, texture, perimeter, area, smoothness, compactness, concavity,
# concave points, symmetry, fractal dimension. The data are public; ranges of private data come from elsewhere.
_LOW = (6, 9, 40, 100, 0.05, 0, 0, 0, 0.1, 0.05)
_HIGHEST = {
    "mean": (30, 40, 190, 2500, 0.17, 0.35, 0.43, 0.21, 0.31, 0.1),
    "error": (3, 5, 22, 550, 0.04, 0.14, 0.4, 0.06, 0.08, 0.03),
    "worst": (37, 50, 255, 4300, 0.23, 1.1, 1.3, 0.3, 0.67, 0.21),
}
_MARK = ".locum-studio-demo"


def make_studio_demo(folder: Path) -> Path:
    """Fill a folder for `locum studio --demo`: digits (images, vectors, and a release), and two tables.

    One table, `patients/diabetes.csv`, has something to keep (`progression`) and something to hide (`sex`). The
    release has a guarantee at epsilon 1, was attacked, and its usefulness was measured; nobody has decided about it
    yet. A folder from an earlier demo is used again as it is.

    Parameters
    ----------
    folder
        Where the demo's folder is made.

    Returns
    -------
    Path
        The folder, for `serve_studio`.

    Raises
    ------
    ConfigError
        If there is another folder of that name.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_studio_demo
    >>> make_studio_demo(Path()).name  # doctest: +SKIP
    'locum-studio-demo'
    """
    made = folder / FOLDER
    if (made / _MARK).is_file():
        return made
    if made.exists():
        raise ConfigError(f"{str(made)!r} is not from an earlier demo: choose another folder, or rename it.")
    # Under another name first: a demo that was stopped halfway is made anew.
    half = folder / f".{FOLDER}.part"
    shutil.rmtree(half, ignore_errors=True)
    _fill(private_folder(half))
    half.rename(made)
    return made


def _diabetes() -> pd.DataFrame:
    """442 patients that ship with scikit-learn; how far their disease progressed is above the median or not."""
    from sklearn.datasets import load_diabetes

    table, progression = load_diabetes(scaled=False, as_frame=True, return_X_y=True)
    # Codes, whose meaning scikit-learn does not give.
    table["sex"] = table["sex"].astype(int)
    table["progression"] = np.where(progression > progression.median(), "high", "low")
    out: pd.DataFrame = table
    return out


def _tumor_ranges() -> str:
    """The ranges of the 30 columns of `tumors.csv`, in their order."""
    lines = ["name,low,high"]
    for form, highest in _HIGHEST.items():
        # An error is a small number above 0, whatever it belongs to.
        for low, high in zip((0,) * len(_LOW) if form == "error" else _LOW, highest, strict=True):
            lines.append(f"x{len(lines) - 1},{low},{high}")
    return "\n".join(lines) + "\n"


def _fill(folder: Path) -> None:
    # Folders of their own, so that each has a ledger of its own.
    images, vectors, tables, patients = (
        private_folder(folder / name) for name in ("images", "vectors", "tables", "patients")
    )
    write_digit_images(images / "digits")
    write_embeddings(tables / "tumors.csv", load_sample("breast-cancer"))
    write_bytes(tables / "tumors-ranges.csv", _tumor_ranges().encode())
    write_frame(_diabetes(), patients / "diabetes.csv")
    digits, release = vectors / "digits.npz", vectors / "digits-release"
    parts = split(load_sample("digits"), SHARES, rng=np.random.default_rng(0))
    arrays: dict[str, Any] = {f"{name}_x": part.X for name, part in parts.items()}
    arrays |= {f"{name}_y": part.y for name, part in parts.items()}
    write_atomically(str(digits), lambda stream: np.savez(stream, **arrays))
    fit_release(str(digits), release, classes_public=True)
    audit_data(
        release,
        f"{digits}#train",
        f"{digits}#val",
        ledger=ledger_path(digits),
        accept=[str(names_read(classes=True))],
        out=vectors / "digits-release-audit.json",
        risk=vectors / "digits-release-risk.csv",
        seed=0,
    )
    measured = evaluate_release(release, f"{digits}#test", train=f"{digits}#train", seeds=1)
    write_bytes(vectors / "digits-release-evaluation.json", json.dumps(measured.to_dict(), indent=2).encode())
    write_bytes(folder / _MARK, b"Everything here was made by `locum studio --demo` and can be deleted.\n")
