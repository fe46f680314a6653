"""`study`: reproduce a table or figure of a paper from `studies/`, or check one cell of committed results.

A study is a set of cells (one method on one data set) with figures for each seed. Raw figures are written as they are
computed, so that an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from locum._version import __version__
from locum.errors import ConfigError, DataError
from locum.io import write_bytes
from locum.types import Estimate, Progress

# A figure that is text, such as packed bits, is stored unchanged and has no estimate.
Figures = Mapping[str, float | str]
Cell = Callable[[int], Figures]
Raw = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class StudyResults:
    """Raw figures by cell, seed and metric, with the accessors that tables use.

    Attributes
    ----------
    raw
        Figures by cell, seed (as text) and metric.
    config
        Settings of the run; `seeds` gives the order of the seeds.
    quick
        Whether the quick settings were used.

    Examples
    --------
    >>> from locum.recipes import StudyResults
    >>> results = StudyResults({"a": {"0": {"x": 1.0}, "1": {"x": 3.0}}}, {"seeds": [0, 1]}, quick=False)
    >>> results.runs("a", "x"), results.estimate("a", "x").value
    ([1.0, 3.0], 2.0)
    """

    raw: Raw
    config: Mapping[str, Any]
    quick: bool

    def runs(self, cell: str, metric: str) -> list[float]:
        """One figure per seed, in the order of the seeds, so that two cells can be paired."""
        return [self.raw[cell][str(seed)][metric] for seed in self.config["seeds"]]

    def texts(self, cell: str, metric: str) -> list[str]:
        """Like `runs`, for a figure that is text."""
        return [self.raw[cell][str(seed)][metric] for seed in self.config["seeds"]]

    def estimate(self, cell: str, metric: str) -> Estimate:
        """Mean over seeds with its 95 % interval."""
        return Estimate.from_runs(self.runs(cell, metric))

    def difference(self, a: str, b: str, metric: str) -> Estimate:
        """`a` minus `b`, paired by seed."""
        pairs = zip(self.runs(a, metric), self.runs(b, metric), strict=True)
        return Estimate.from_runs([x - y for x, y in pairs])


@dataclass(frozen=True, slots=True)
class Study:
    """A table or figure that can be computed again.

    Parameters
    ----------
    title
        Heading of the page.
    cells
        Takes the settings and returns the cells by name; a cell takes a seed and returns its figures by metric.
    render
        Takes the results and a folder, and returns Markdown; it may write figures into the folder.
    minutes
        Takes the settings and returns about how many minutes of one core a whole run takes; None: not known.

    Examples
    --------
    >>> from locum.recipes import Study
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> study.cells({})["a"](3)
    {'x': 6.0}
    """

    title: str
    cells: Callable[[Mapping[str, Any]], Mapping[str, Cell]]
    render: Callable[[StudyResults, Path], str]
    minutes: Callable[[Mapping[str, Any]], float] | None = None


@dataclass(frozen=True, slots=True)
class FoundStudy:
    """A study on disk.

    Parameters
    ----------
    name
        Its name.
    folder
        Folder with its `run.py` and `config.toml`.
    study
        What it computes and how it is shown.
    config
        Its settings; those under `quick` replace the others in a quick run.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> found = FoundStudy("twice", Path("."), study, {"seeds": [0, 1, 2], "quick": {"seeds": [0]}})
    >>> found.settings(quick=True)
    {'seeds': [0]}
    """

    name: str
    folder: Path
    study: Study
    config: Mapping[str, Any]

    def settings(self, quick: bool) -> dict[str, Any]:
        """The configuration of the study; with `quick`, its quick values replace the full ones."""
        full = {k: v for k, v in self.config.items() if k != "quick"}
        return {**full, **self.config.get("quick", {})} if quick else full

    def minutes(self, quick: bool) -> float | None:
        """About how many minutes of one core a whole run takes; None if the study does not say."""
        return None if self.study.minutes is None else self.study.minutes(self.settings(quick))

    def changed(self, given: Sequence[str]) -> FoundStudy:
        """The study with other settings, full and quick, each given as `KEY=VALUE` with a value as in TOML."""
        new: dict[str, Any] = {}
        for pair in given:
            key, equals, text = pair.partition("=")
            if not equals or key not in self.config or key == "quick":
                known = ", ".join(name for name in self.config if name != "quick")
                raise ConfigError(f"A setting of {self.name!r} is KEY=VALUE, with a KEY of {known}; got {pair!r}.")
            new[key] = _parsed(text, self.config[key], pair)
        return replace(self, config={**self.config, **new, "quick": {**self.config.get("quick", {}), **new}})


def data_folder() -> Path:
    """The folder that `LOCUM_DATA` names; studies on real data need it."""
    value = os.environ.get("LOCUM_DATA")
    if not value or not Path(value).is_dir():
        raise DataError(f"This study needs real data: set LOCUM_DATA to their folder (it is {value!r} now).")
    return Path(value)


def find_studies(root: Path) -> dict[str, FoundStudy]:
    """Find all studies in a folder: each `run.py` in a subfolder defines some, with settings in `config.toml`.

    The code of the studies is run.

    Parameters
    ----------
    root
        The folder, `studies` in the source tree.

    Returns
    -------
    dict
        `FoundStudy` by name.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import find_studies
    >>> "thesis-table9" in find_studies(Path("studies"))  # doctest: +SKIP
    True
    """
    if not root.is_dir():
        raise ConfigError(
            f"There is no folder {str(root)!r}: studies are in the source tree. Run from there, or use --studies."
        )
    found: dict[str, FoundStudy] = {}
    for run in sorted(root.glob("*/run.py")):
        with (run.parent / "config.toml").open("rb") as f:
            config = tomllib.load(f)
        for name, study in _load(run).STUDIES.items():
            found[name] = FoundStudy(name, run.parent, study, config[name])
    return found


def run_study(
    found: FoundStudy,
    *,
    quick: bool,
    out: Path,
    jobs: int = 1,
    progress: Progress | None = None,
) -> StudyResults:
    """Compute the cells that are missing, then write `NAME.json`, `NAME.md` and figures.

    An interrupted run resumes where it stopped.

    Parameters
    ----------
    found
        The study.
    quick
        Use the quick settings.
    out
        Folder for the results.
    jobs
        How many processes run at once, with one thread each; the figures do not depend on it.
    progress
        Called as cells are finished.

    Returns
    -------
    StudyResults
        All figures.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study, run_study
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> found = FoundStudy("twice", Path("."), study, {"seeds": [0, 1]})
    >>> results = run_study(found, quick=False, out=Path("results"))
    >>> results.runs("a", "x")
    [0.0, 2.0]
    """
    if isinstance(jobs, bool) or jobs < 1:
        raise ConfigError(f"`jobs` must be 1 or more; got {jobs!r}.")
    config = found.settings(quick)
    out.mkdir(parents=True, exist_ok=True)
    partial = out / f"{found.name}.partial.json"
    raw = _resume(partial, config)
    cells = found.study.cells(config)
    every = [(name, seed) for name in cells for seed in config["seeds"]]
    missing = [(name, seed) for name, seed in every if str(seed) not in raw.get(name, {})]
    if progress is not None:
        progress(len(every) - len(missing), len(every), "started")
    for done, (name, seed, figures) in enumerate(_computed(found, config, missing, jobs), start=1):
        raw.setdefault(name, {})[str(seed)] = {k: v if isinstance(v, str) else float(v) for k, v in figures.items()}
        _write(partial, json.dumps({"config": config, "raw": raw}))
        if progress is not None:
            progress(len(every) - len(missing) + done, len(every), f"{name} seed {seed}")
    if progress is not None:
        progress(len(every), len(every), "writing")
    # In the order of the seeds, not of completion: differences are paired.
    ordered = {name: {str(seed): raw[name][str(seed)] for seed in config["seeds"]} for name in cells}
    results = StudyResults(ordered, config, quick)
    payload = {
        "study": found.name,
        "title": found.study.title,
        "version": __version__,
        "quick": quick,
        "config": config,
        "estimates": {
            cell: {m: results.estimate(cell, m).to_dict() for m in _numbers(next(iter(seeds.values())))}
            for cell, seeds in results.raw.items()
        },
        "raw": results.raw,
    }
    _write(out / f"{found.name}.json", json.dumps(payload, indent=1, sort_keys=True) + "\n")
    _render(found, results, out)
    partial.unlink(missing_ok=True)
    return results


def _computed(
    found: FoundStudy,
    config: dict[str, Any],
    missing: Sequence[tuple[str, int]],
    jobs: int,
) -> Iterator[tuple[str, int, Figures]]:
    """Cells with their figures, in order of completion."""
    if jobs == 1:
        cells = found.study.cells(config)
        for name, seed in missing:
            yield name, seed, cells[name](seed)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_one_thread) as pool:
        waiting = {
            pool.submit(_compute, found.folder / "run.py", found.name, config, name, seed): (name, seed)
            for name, seed in missing
        }
        try:
            for future in as_completed(waiting):
                yield *waiting[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _compute(run: Path, study: str, config: dict[str, Any], cell: str, seed: int) -> Figures:
    figures: Figures = _load(run).STUDIES[study].cells(config)[cell](seed)
    return figures


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


def render_study(found: FoundStudy, results: Path) -> StudyResults:
    """Write the Markdown and figures of a finished study again from its raw figures; nothing is recomputed.

    Parameters
    ----------
    found
        The study.
    results
        Its `NAME.json`; the files are written beside it.

    Returns
    -------
    StudyResults
        The figures.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import find_studies, render_study
    >>> found = find_studies(Path("studies"))["private-epsilon"]  # doctest: +SKIP
    >>> results = render_study(found, Path("studies/private/results/private-epsilon.json"))  # doctest: +SKIP
    """
    saved = _saved(results)
    finished = StudyResults(saved["raw"], saved["config"], saved["quick"])
    _render(found, finished, results.parent)
    return finished


def check_study(found: FoundStudy, results: Path, cell: str | None) -> dict[str, Any]:
    """Recompute one cell of committed results and say whether it agrees.

    A figure agrees if its new mean lies in the committed 95 % interval, or within one percent of the committed mean
    (other processors round sums in a different order).

    Parameters
    ----------
    found
        The study.
    results
        Its committed `NAME.json`.
    cell
        Name of the cell; None: the first.

    Returns
    -------
    dict
        `study`, `cell`, `agrees`, and `figures`: for each metric the committed and the recomputed estimate.

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
    saved = _saved(results)
    cells = found.study.cells(saved["config"])
    name = cell or next(iter(cells))
    if name not in cells:
        raise ConfigError(f"Study {found.name!r} has no cell {name!r}; it has {', '.join(sorted(cells)[:8])}, ...")
    fresh = [cells[name](seed) for seed in saved["config"]["seeds"]]
    figures, committed = {}, saved["estimates"][name]
    # A metric that was added since has nothing to agree with.
    for metric in (metric for metric in _numbers(fresh[0]) if metric in committed):
        old = Estimate.from_dict(committed[metric])
        new = Estimate.from_runs([float(run[metric]) for run in fresh])
        # One run has an infinite interval, which everything would fit.
        inside = old.n > 1 and old.low <= new.value <= old.high
        agrees = inside or math.isclose(new.value, old.value, rel_tol=0.01, abs_tol=1e-9)
        figures[metric] = {"committed": old.to_dict(), "recomputed": new.to_dict(), "agrees": agrees}
    return {
        "study": found.name,
        "cell": name,
        "agrees": bool(figures) and all(f["agrees"] for f in figures.values()),
        "figures": figures,
    }


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; cells are formatted with `str`."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(f"{c}" for c in row) + " |" for row in rows])


def _parsed(text: str, old: Any, pair: str) -> Any:
    """A value of the type of the one that it replaces."""
    if isinstance(old, str):
        return text
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = None
    whole = isinstance(value, int) and isinstance(old, float) and not isinstance(value, bool)
    if not whole and type(value) is not type(old):
        raise ConfigError(f"The setting {pair!r} must be like {old!r}, the value that it replaces.")
    return value


def _numbers(figures: Figures) -> list[str]:
    return [name for name, value in figures.items() if not isinstance(value, str)]


def _render(found: FoundStudy, results: StudyResults, out: Path) -> None:
    note = "\n> Quick setting: fewer seeds, records or epochs than the full study.\n" if results.quick else ""
    _write(out / f"{found.name}.md", f"# {found.study.title}\n{note}\n{found.study.render(results, out).strip()}\n")


def _saved(results: Path) -> dict[str, Any]:
    if not results.is_file():
        raise ConfigError(f"No results at {str(results)!r}: run the study first.")
    saved: dict[str, Any] = json.loads(results.read_text())
    return saved


def _load(run: Path) -> ModuleType:
    name = f"locum_study_{run.parent.name}"
    spec = importlib.util.spec_from_file_location(name, run)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # A study may have modules of its own beside `run.py`, under names that no other study uses.
    sys.path.insert(0, str(run.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(run.parent))
    return module


def _resume(partial: Path, config: Mapping[str, Any]) -> Raw:
    if not partial.is_file():
        return {}
    saved = json.loads(partial.read_text())
    # Figures of another configuration must not be mixed in; recomputing only costs time.
    raw: Raw = saved["raw"] if saved["config"] == config else {}
    return raw


def _write(path: Path, text: str) -> None:
    write_bytes(path, text.encode(), mode=0o644)
