"""`study check`: compute one cell of committed results again, a named one or one by chance, and compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from locum.errors import ConfigError, LocumError
from locum.recipes.study import FoundStudy, saved_results
from locum.recipes.study_sets import using_sets
from locum.types import Estimate, Progress


def check_study(
    found: FoundStudy, results: Path, cell: str | None = None, *, rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """Recompute one cell of committed results and say whether it agrees.

    A figure agrees if its new mean lies in the committed 95 % interval, or within one percent of the committed mean
    (other processors round sums in a different order). By chance, one seed of one cell is computed; its figure agrees
    if it is no further from the committed one than half the width of the interval, or within one percent of it.

    Parameters
    ----------
    found
        The study.
    results
        Its committed `NAME.json`.
    cell
        Name of the cell; None: the first, or one by chance if there is an `rng`.
    rng
        Chooses the cell, if none is named, and one of its seeds. None: all seeds are computed.

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
        name = cell or _first(cells, saved, rng)
        if name not in cells or name not in saved["raw"]:
            some = ", ".join(sorted(cells)[:8])
            raise ConfigError(f"Study {found.name!r} has no cell {name!r}; it has {some}, ...")
        seeds = list(saved["config"]["seeds"])
        if rng is not None:
            seeds = [int(rng.choice(seeds))]
        fresh = [cells[name](seed) for seed in seeds]
    figures, committed = {}, saved["estimates"][name]
    # A metric that was added since has nothing to agree with.
    for metric in [m for m, value in fresh[0].items() if not isinstance(value, str) and m in committed]:
        whole = Estimate.from_dict(committed[metric])
        new = Estimate.from_runs([float(run[metric]) for run in fresh])
        if rng is None:
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
    studies: Sequence[FoundStudy], seed: int, *, most_seconds: float | None = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Recompute one seed of one cell, drawn at random, of each study that has committed results.

    Parameters
    ----------
    studies
        The studies.
    seed
        Draws cells and seeds. Each study's draw depends on its name and on this number alone.
    most_seconds
        Only cells that are known to take at most so long are drawn; a study without one is left out.
    progress
        Called after each study.

    Returns
    -------
    list of dict
        One per study, as from `check_study`; or `study` and `skipped`, a sentence that says why.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study, check_at_random
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> check_at_random([FoundStudy("thrice", Path("."), study, {"seeds": [0, 1]})], seed=0)
    [{'study': 'thrice', 'skipped': 'no committed results'}]
    """
    out: list[dict[str, Any]] = []
    for done, found in enumerate(studies, start=1):
        out.append(_checked(found, seed, most_seconds))
        if progress is not None:
            progress(done, len(studies), found.name)
    return out


def _checked(found: FoundStudy, seed: int, most_seconds: float | None) -> dict[str, Any]:
    results = found.folder / "results" / f"{found.name}.json"
    if not results.is_file():
        return {"study": found.name, "skipped": "no committed results"}
    rng = np.random.default_rng([seed, *found.name.encode()])
    saved = saved_results(results)
    cell = None
    if most_seconds is not None:
        took = {name: max(by.values()) for name, by in saved.get("seconds", {}).items() if by}
        quick = [name for name, longest in took.items() if longest <= most_seconds]
        if not quick:
            why = f"no cell takes {most_seconds:g} s or less" if took else "seconds per cell are not known"
            return {"study": found.name, "skipped": why}
        cell = str(rng.choice(sorted(quick)))
    try:
        return check_study(found, results, cell, rng=rng)
    except LocumError as error:
        # Data that are not at hand are no disagreement.
        return {"study": found.name, "skipped": str(error)}


def _first(cells: Mapping[str, Any], saved: Mapping[str, Any], rng: np.random.Generator | None) -> str:
    if rng is None:
        return next(iter(cells))
    both = [name for name in cells if name in saved["raw"]]
    if not both:
        raise ConfigError("No cell of the present settings is in the committed results: run the study again.")
    return str(rng.choice(both))
