"""`study check`: compute one cell of committed results again, a named one or one by chance, and compare."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from locum.errors import ConfigError, DataError, LocumError, MissingExtraError
from locum.recipes.study import FoundStudy, load_run, saved_results
from locum.recipes.study_sets import know_sets, using_sets
from locum.types import Estimate


def check_study(
    found: FoundStudy, results: Path, cell: str | None = None, *, seed: int | None = None
) -> dict[str, Any]:
    """Recompute one cell of committed results and say whether it agrees.

    A figure agrees if its new mean lies in the committed 95 % interval, or within one percent of the committed mean
    (other processors round sums in a different order). If one seed alone is computed, its figure agrees if it is no
    further from the committed one than half the width of the interval, or within one percent of it.

    Parameters
    ----------
    found
        The study.
    results
        Its committed `NAME.json`.
    cell
        Name of the cell; None: the first.
    seed
        The only seed that is computed; None: all of them.

    Returns
    -------
    dict
        `study`, `cell`, `seeds`, `agrees`, and `figures`: for each metric the committed and the recomputed estimate.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study, check_study, run_study
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> found = FoundStudy("doubled", Path("."), study, {"seeds": [0, 1]})
    >>> _ = run_study(found, quick=False, out=Path("results"))
    >>> check_study(found, Path("results/doubled.json"), "a")["agrees"]
    True
    """
    saved = saved_results(results)
    # A setting that was added since has its present value.
    config = {**found.settings(saved["quick"]), **saved["config"]}
    with using_sets(config):
        cells = found.study.cells(config)
        name = cell or next(iter(cells))
        if name not in cells or name not in saved["raw"]:
            some = ", ".join(sorted(cells)[:8])
            raise ConfigError(f"Study {found.name!r} has no cell {name!r}; it has {some}, ...")
        seeds = list(saved["config"]["seeds"]) if seed is None else [seed]
        fresh = [cells[name](seed) for seed in seeds]
    figures, committed = {}, saved["estimates"][name]
    # A metric that was added since has nothing to agree with.
    for metric in [m for m, value in fresh[0].items() if not isinstance(value, str) and m in committed]:
        whole = Estimate.from_dict(committed[metric])
        new = Estimate.from_runs([float(run[metric]) for run in fresh])
        if seed is None:
            old, agrees = whole, whole.n > 1 and whole.low <= new.value <= whole.high
        else:
            old = Estimate.from_runs([saved["raw"][name][str(seeds[0])][metric]])
            agrees = whole.n > 1 and abs(new.value - old.value) <= (whole.high - whole.low) / 2
        # One run has an infinite interval, which everything would fit.
        agrees = bool(agrees) or math.isclose(new.value, old.value, rel_tol=0.01, abs_tol=1e-9)
        figures[metric] = {"committed": old.to_dict(), "recomputed": new.to_dict(), "agrees": agrees}
    return {
        "study": found.name,
        "cell": name,
        "seeds": seeds,
        "agrees": bool(figures) and all(f["agrees"] for f in figures.values()),
        "figures": figures,
    }


def check_at_random(
    studies: Iterable[FoundStudy], seed: int, *, most_seconds: float | None = None
) -> Iterator[dict[str, Any]]:
    """Recompute one seed of one cell, drawn at random, of each study that has committed results.

    Parameters
    ----------
    studies
        The studies.
    seed
        Draws cells and seeds. Each study's draw depends on its name and on this number alone.
    most_seconds
        Cells that are known to take longer are not drawn, and a cell that takes longer is stopped. Each study has a
        process of its own then.

    Yields
    ------
    dict
        One per study, as from `check_study`; or `study` and `skipped`, a sentence that says why. A cell that the
        study no longer has does not agree, and `problem` says so.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study, check_at_random
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> list(check_at_random([FoundStudy("thrice", Path("."), study, {"seeds": [0, 1]})], seed=0))
    [{'study': 'thrice', 'skipped': 'no committed results'}]
    """
    for found in studies:
        yield _checked(found, seed, most_seconds)


def _checked(found: FoundStudy, seed: int, most_seconds: float | None) -> dict[str, Any]:
    results = found.folder / "results" / f"{found.name}.json"
    if not results.is_file():
        return {"study": found.name, "skipped": "no committed results"}
    rng = np.random.default_rng([seed, *found.name.encode()])
    saved = saved_results(results)
    took = {name: max(by.values()) for name, by in saved.get("seconds", {}).items() if by}
    names = [n for n in sorted(saved["raw"]) if most_seconds is None or took.get(n, 0.0) <= most_seconds]
    if not names:
        return {"study": found.name, "skipped": f"no cell takes {most_seconds:g} s or less"}
    cell, drawn = str(rng.choice(names)), int(rng.choice(saved["config"]["seeds"]))
    try:
        if most_seconds is None:
            return check_study(found, results, cell, seed=drawn)
        return _within(most_seconds, found, cell, drawn)
    except (DataError, MissingExtraError) as error:
        # Data or packages that are not at hand are no disagreement.
        return {"study": found.name, "skipped": str(error)}
    except LocumError as error:
        return {"study": found.name, "cell": cell, "seeds": [drawn], "agrees": False, "problem": str(error)}


def _within(seconds: float, found: FoundStudy, cell: str, seed: int) -> dict[str, Any]:
    """The check in a process that is stopped when the time is over.

    The seconds of the committed results do not bound it: other cells may have prepared the data before.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        checked = pool.apply_async(_check_on_disk, (found.folder / "run.py", found.name, found.config, cell, seed))
        try:
            return checked.get(seconds)
        except multiprocessing.TimeoutError:
            return {"study": found.name, "skipped": f"{cell} with seed {seed} took longer than {seconds:g} s"}


def _check_on_disk(run: Path, name: str, config: Mapping[str, Any], cell: str, seed: int) -> dict[str, Any]:
    know_sets(run.parents[1])
    found = FoundStudy(name, run.parent, load_run(run).STUDIES[name], config)
    return check_study(found, run.parent / "results" / f"{name}.json", cell, seed=seed)
