"""`demo`: all steps on images that ship with scikit-learn, in a minute or two."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from locum.data import load_digit_images, split
from locum.errors import ConfigError
from locum.recipes.embed import embed_to_file
from locum.recipes.evaluate import evaluate_release
from locum.recipes.fit import fit_release
from locum.recipes.predict import predict_records
from locum.recipes.report import make_report
from locum.recipes.train import train_head
from locum.release import verify
from locum.types import EmbeddingSet, Progress

MARK = ".locum-demo"
# Called before each step with its title and the equivalent command, and after it with its name and result.
StepBegins = Callable[[str, str], None]
StepEnds = Callable[[str, Any], None]
SHARES = {"train": 0.5, "val": 0.2, "test": 0.3}


def run_demo(
    folder: Path, *, begins: StepBegins, ends: StepEnds, verbose: bool = True, progress: Progress | None = None
) -> dict[str, Any]:
    """Run all steps on scikit-learn's digits: images, vectors, a release, a receiver's classifier, scores and a page.

    Parameters
    ----------
    folder
        Where everything is written. It must be new, empty, or from an earlier demo, which is overwritten.
    begins
        Called before each step with its title and the equivalent command.
    ends
        Called after each step with its name and its result.
    verbose
        Show the progress of the fit.
    progress
        Called as the other steps proceed.

    Returns
    -------
    dict
        The result of each step by name: `embed`, `fit`, `verify`, `train`, `predict`, `evaluate`, `report`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import run_demo
    >>> found = run_demo(Path("demo"), begins=print, ends=print)  # doctest: +SKIP
    """
    _claim(folder)
    images, vectors, release = folder / "images", folder / "digits.npz", folder / "release"
    head, predictions, page = folder / "head.safetensors", folder / "predictions.csv", folder / "report.html"
    begins(
        "Take scikit-learn's handwritten digits as images: a hospital's records, records not used, and test images",
        "",
    )
    ends("images", _write_images(images))
    steps: list[tuple[str, str, str, Callable[[], Any]]] = [
        (
            "embed",
            "Data holder: turn images into vectors with a frozen vision model",
            f"locum embed {images} -o {vectors}",
            lambda: embed_to_file(str(images), vectors, overwrite=True, progress=progress),
        ),
        (
            "fit",
            "Data holder: learn a generator from the records and write a release",
            f"locum fit {vectors} -o {release} --no-dp",
            lambda: fit_release(str(vectors), release, no_dp=True, overwrite=True, verbose=verbose),
        ),
        (
            "verify",
            "Anyone: check that the release is complete and unchanged",
            f"locum verify {release}",
            lambda: verify(release),
        ),
        (
            "train",
            "Receiver: train a classifier on the release alone",
            f"locum train {release} -o {head}",
            lambda: train_head(release, head, overwrite=True, progress=progress),
        ),
        (
            "predict",
            "Receiver: classify new images, embedded as the release specifies",
            f"locum predict {head} {images / 'test'} -o {predictions}",
            lambda: predict_records(head, str(images / "test"), out=predictions, overwrite=True, progress=progress),
        ),
        (
            "evaluate",
            "Data holder: compare the release with real data and k-Same",
            f"locum evaluate {release} --test {vectors} --train {vectors}",
            lambda: evaluate_release(release, str(vectors), train=str(vectors), progress=progress),
        ),
        (
            "report",
            "Data holder: put it all on one page",
            f"locum report {release} --test {vectors} --train {vectors} -o {page}",
            lambda: make_report(
                release, page, train=str(vectors), test=str(vectors), overwrite=True, progress=progress
            ),
        ),
    ]
    results = {}
    for name, title, command, work in steps:
        begins(title, command)
        results[name] = work()
        ends(name, results[name])
    return results


def _claim(folder: Path) -> None:
    """Create the folder and mark it as a demo; a folder with other files is refused."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / MARK).is_file():
            if any(folder.iterdir()):
                raise ConfigError(
                    f"{str(folder)!r} is not empty and not from an earlier demo: choose another folder with -o."
                )
            (folder / MARK).write_text("Everything here was made by `locum demo` and can be deleted.\n")
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"Nothing can be written in {str(folder)!r}: {error.strerror}. Choose another with -o.")


def _write_images(folder: Path) -> dict[str, int]:
    """Write one folder per split, one folder per digit and one file per image; existing files are kept."""
    from PIL import Image

    images, labels = load_digit_images()
    numbers = EmbeddingSet(np.arange(len(labels), dtype=np.float32)[:, None], labels)
    chosen = split(numbers, SHARES, rng=np.random.default_rng(0))
    parts = {name: part.X[:, 0].astype(int) for name, part in chosen.items()}
    try:
        for name, rows in parts.items():
            for i in rows:
                file = folder / name / str(labels[i]) / f"{i:04d}.png"
                if not file.exists():
                    file.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(images[i]).save(file)
    except OSError as error:
        raise _unwritable(folder, error) from None
    return {name: len(rows) for name, rows in parts.items()}
