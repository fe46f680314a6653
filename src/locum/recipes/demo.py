"""`demo`: all steps on images that ship with scikit-learn, in about a minute."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from locum.audit import DEFAULT_SHADOWS, LikelihoodRatio, SumLiRA, with_limit
from locum.data import load_digit_images, split
from locum.errors import ConfigError, NotApplicableError
from locum.io import STATE_FOLDER, ledger_path
from locum.recipes.audit import audit_data
from locum.recipes.embed import embed_to_file
from locum.recipes.fit import FitSummary, fit_release
from locum.recipes.fit_privacy import names_read
from locum.recipes.inputs import read_sets, scored
from locum.recipes.predict import predict_records
from locum.recipes.train import train_head
from locum.recipes.verify import verify_release
from locum.release import load
from locum.types import DEFAULT_DELTA, DP, AttackResult, EmbeddingSet, Estimate, Progress, at_least

MARK = ".locum-demo"
# Called before each step with its title and the equivalent commands, and after it with its name and result.
StepBegins = Callable[[str, Sequence[str]], None]
StepEnds = Callable[[str, Any], None]
SHARES = {"train": 0.5, "val": 0.2, "test": 0.3}
# The release that the demo is about, and two others to compare it with.
RELEASE, LARGER, UNPROTECTED = "release", "release-epsilon-3", "release-no-dp"
LARGER_EPSILON = 3.0
# The larger budget is one of its own. The ledger is the same, so that it knows that both add up.
LARGER_HOLDING = "epsilon-3"
_PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def run_demo(
    folder: Path, *, begins: StepBegins, ends: StepEnds, verbose: bool = True, progress: Progress | None = None
) -> dict[str, Any]:
    """Run all steps on scikit-learn's digits: a private release, a receiver's classifier, an audit, a comparison.

    Parameters
    ----------
    folder
        Where everything is written. It must be new, empty, or from an earlier demo, which is overwritten, with its
        ledger.
    begins
        Called before each step with its title and the equivalent commands.
    ends
        Called after each step with its name and its result.
    verbose
        Show the progress of the fits.
    progress
        Called as the other steps proceed.

    Returns
    -------
    dict
        The result of each step by name: `embed`, `fit`, `verify`, `train`, `predict`, `audit`, and `compare`, a plain
        dict.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import run_demo
    >>> found = run_demo(Path("demo"), begins=print, ends=print)  # doctest: +SKIP
    """
    from threadpoolctl import threadpool_limits

    _claim(folder)
    images, vectors, release = folder / "images", folder / "digits.npz", folder / RELEASE
    head, predictions, page = folder / "head.safetensors", folder / "predictions.csv", folder / "audit.html"
    ledger, accepted = _ledger(folder), str(names_read(classes=True)).split(":")[0]
    begins("Take scikit-learn's handwritten digits as images: records, records not used, test images", ())
    ends("images", write_digit_images(images))
    results: dict[str, Any] = {}
    steps: list[tuple[str, str, tuple[str, ...], Callable[[], Any]]] = [
        (
            "embed",
            "Data holder: turn images into vectors with a frozen vision model",
            (f"locum embed {images} -o {vectors}",),
            lambda: embed_to_file(str(images), vectors, overwrite=True, progress=progress),
        ),
        (
            "fit",
            "Data holder: make a private release of the records",
            (f"locum fit {vectors} -o {release} --classes-public",),
            lambda: fit_release(str(vectors), release, classes_public=True, overwrite=True, verbose=verbose),
        ),
        (
            "verify",
            "Data holder: check that the release is complete, unchanged and paid for",
            (f"locum verify {release} --ledger {ledger}",),
            lambda: verify_release(release, ledger=ledger),
        ),
        (
            "train",
            "Receiver: make a classifier from the release alone",
            (f"locum train {release} -o {head}",),
            lambda: train_head(release, head, overwrite=True, progress=progress),
        ),
        (
            "predict",
            "Receiver: classify new images, embedded as the release specifies",
            (f"locum predict {head} {images / 'test'} -o {predictions}",),
            lambda: predict_records(head, str(images / "test"), out=predictions, overwrite=True, progress=progress),
        ),
        (
            "audit",
            "Privacy officer: attack the release, and write a page about it",
            (
                f"locum audit {release} --members {vectors}#train --non-members {vectors}#val \\\n"
                f'       --ledger {ledger} --accept "{accepted}" \\\n'
                f"       --html {page}",
            ),
            lambda: audit_data(
                release,
                f"{vectors}#train",
                f"{vectors}#val",
                ledger=ledger,
                accept=[accepted],
                page=page,
                overwrite=True,
                progress=progress,
            ),
        ),
        (
            "compare",
            "Data holder: what would a larger budget, or no guarantee at all, have given?",
            (
                f"locum fit {vectors} -o {folder / LARGER} --classes-public \\\n"
                f"       --epsilon {LARGER_EPSILON:g} --holding {LARGER_HOLDING}",
                f"locum fit {vectors} -o {folder / UNPROTECTED} --no-dp",
            ),
            lambda: _compare(vectors, (folder / LARGER, folder / UNPROTECTED), results, verbose, progress),
        ),
    ]
    for name, title, commands, work in steps:
        begins(title, commands)
        # But for images it is small work: threads would wait for each other longer than they work.
        with threadpool_limits(None if name == "embed" else 1):
            results[name] = work()
        ends(name, results[name])
    return results


def _claim(folder: Path) -> None:
    """Create the folder and mark it as a demo; a folder with other files is refused, an earlier demo is cleared."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / MARK).is_file():
            _forget(folder)
            return
        if any(folder.iterdir()):
            raise ConfigError(
                f"{str(folder)!r} is not empty and not from an earlier demo: choose another folder with -o."
            )
        (folder / MARK).write_text("Everything here was made by `locum demo` and can be deleted.\n")
    except OSError as error:
        raise _unwritable(folder, error) from None


def _forget(folder: Path) -> None:
    """Remove the releases and the ledger of an earlier demo, whose budget is spent. Vectors stay in their cache."""
    # Releases first: `fit` refuses to work beside one that was paid for from a ledger that is gone.
    for name in (RELEASE, LARGER, UNPROTECTED):
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    ledger = _ledger(folder)
    if ledger.parent.is_symlink():
        raise ConfigError(
            f"{str(ledger.parent)!r} is a link: a demo deletes no ledger elsewhere. Choose another with -o."
        )
    for file in ledger.parent.glob(f"{ledger.name}*"):
        file.unlink()


def _ledger(folder: Path) -> Path:
    # Not by way of the images, which may be a link: no other ledger may be deleted.
    return folder / STATE_FOLDER / ledger_path(folder).name


def _unwritable(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(f"Nothing can be written in {str(folder)!r}: {error.strerror}. Choose another with -o.")


def write_digit_images(folder: Path) -> dict[str, int]:
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


def _compare(
    vectors: Path,
    releases: tuple[Path, Path],
    results: Mapping[str, Any],
    verbose: bool,
    progress: Progress | None,
) -> dict[str, Any]:
    """Usefulness, proven limit and strongest attack of three releases, and the usefulness of the records themselves.

    The first release is the demo's own, whose attacks are those of its audit. The same ones are run on all three, as
    far as they apply: the membership check of `fit`, the likelihood ratio, and LiRA on noisy sums.
    """
    parts = read_sets(str(vectors))
    fit: FitSummary = results["fit"]
    rows = [_row(fit, results["predict"].scores, results["audit"].report.results)]
    larger, unprotected = releases
    budget = DP(LARGER_EPSILON, DEFAULT_DELTA)
    for made in (
        fit_release(
            str(vectors), larger, privacy=budget, classes_public=True, holding=LARGER_HOLDING, verbose=verbose
        ),
        fit_release(str(vectors), unprotected, no_dp=True, verbose=verbose),
    ):
        head = made.release.with_name(f"{made.release.name}-head.safetensors")
        train_head(made.release, head, overwrite=True, progress=progress)
        scores = predict_records(head, f"{vectors}#test").scores
        rows.append(_row(made, scores, _attacked(made, parts["train"], parts["val"])))
    real, penalty = _real(parts["train"], parts["test"])
    return {
        "rows": rows,
        "real": {**_usefulness(real), "penalty": penalty},
        "members": len(parts["train"]),
        "non_members": len(parts["val"]),
        "test_records": len(parts["test"]),
        "epsilon_together": math.fsum(row["epsilon"] or 0.0 for row in rows),
    }


def _attacked(made: FitSummary, members: EmbeddingSet, others: EmbeddingSet) -> list[AttackResult]:
    """The attacks of the comparison, held against the proven limit; one that does not apply is left out."""
    opened, rng, out = load(made.release), np.random.default_rng(0), []
    for attack in (LikelihoodRatio(), SumLiRA(shadows=DEFAULT_SHADOWS)):
        try:
            out.append(with_limit(attack.run(opened, members, others, rng), made.limit))
        except NotApplicableError:
            continue
    return out


def _row(fit: FitSummary, scores: Mapping[str, Estimate], results: Sequence[AttackResult]) -> dict[str, Any]:
    tried = [] if fit.membership is None else [fit.membership]
    tried += [result for result in results if result.name in (LikelihoodRatio().name, SumLiRA().name)]
    strongest = max(tried, key=lambda result: result.attack.value)
    return {
        "name": "no guarantee" if fit.claim.dp is None else f"epsilon {at_least(fit.claim.dp.epsilon)}",
        "release": str(fit.release),
        "epsilon": None if fit.claim.dp is None else fit.claim.dp.epsilon,
        **_usefulness(scores),
        "limit": None if fit.limit is None else fit.limit.auc,
        "attack": {"name": strongest.name, "auc": strongest.attack.to_dict(), "verdict": strongest.verdict},
        "attacks": [result.name for result in tried],
    }


def _usefulness(scores: Mapping[str, Estimate]) -> dict[str, Any]:
    return {name: scores[name].to_dict() for name in ("accuracy", "auc")}


def _real(train: EmbeddingSet, test: EmbeddingSet) -> tuple[dict[str, Estimate], float]:
    """Scores of a classifier that is trained on the records; its penalty is chosen by cross-validation on them."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(probe, {"logisticregression__C": _PENALTIES}, cv=folds).fit(train.X, train.y)
    return scored(test.y, search.predict_proba(test.X)), float(search.best_params_["logisticregression__C"])
