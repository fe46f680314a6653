"""`study`: reproduce a table or figure of a paper from `studies/`, or check one cell of committed results.

A study is a set of cells (one method on one data set) with figures for each seed. Raw figures are written as they are
computed, so that an interrupted run resumes where it stopped.
"""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import platform
import sys
import time
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from locum._version import __version__
from locum.errors import ConfigError, DataError, MissingExtraError, missing_extra
from locum.io import did_you_mean, listed, private_folder, write_bytes
from locum.recipes.data_sets import MANIFEST_NAME, read_data_sets
from locum.recipes.study_sets import (
    GIVEN,
    SetNeeds,
    data_folder as data_folder,
    data_hashes,
    file_hashes,
    is_data,
    know_sets,
    prepare_set,
    using_sets,
)
from locum.recipes.study_settings import checked_setting
from locum.types import Estimate, Progress

# A figure that is text, such as packed bits, is stored unchanged and has no estimate.
Figures = Mapping[str, float | str]
Cell = Callable[[int], Figures]
Raw = dict[str, dict[str, dict[str, Any]]]
Seconds = dict[str, dict[str, float]]
# Seeds that differ by less are not worth two more figures.
SPREAD = 0.03

#: Settings whose entries make cells of their own: with more of them, the cells of the others are what they were.
ADDED = (
    "seeds", "sets", "datasets", "backbones", "paper_backbones", "paper_sites", "generators", "methods", "questions",
)  # fmt: skip


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

    def told(self, cell: str, metric: str, digits: str = ".3f", *, spread: float = SPREAD) -> str:
        """The mean over seeds; if they differ by more than `spread`, the lowest and the highest in parentheses."""
        runs = self.runs(cell, metric)
        low, high = min(runs), max(runs)
        ends = f" ({low:{digits}} to {high:{digits}})" if high - low > spread else ""
        return f"{self.estimate(cell, metric).value:{digits}}{ends}"

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
    sets
        Which sets it reads and what they must have, so that it can run on others; or a sentence that says why it runs
        on its own data alone.
    check
        Takes the settings and raises `ConfigError` or `DataError` if they cannot work; called before any cell.
    most_seeds
        How many seeds there are, where seeds are folds; None: any number.
    draws
        Whether `render` draws figures, for which matplotlib must be installed before a run.
    names
        Texts that a setting takes besides those in `config.toml`, by setting; None: any text.

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
    sets: SetNeeds | str = ""
    check: Callable[[Mapping[str, Any]], None] | None = None
    most_seeds: int | None = None
    draws: bool = True
    names: Mapping[str, Collection[str] | None] = field(default_factory=dict)


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
        if self.study.minutes is None:
            return None
        config = self.settings(quick)
        with using_sets(config):
            return self.study.minutes(config)

    @property
    def given(self) -> Mapping[str, Any]:
        """What is known of the sets that were given for this run; empty if it runs on its own."""
        found: Mapping[str, Any] = self.config.get(GIVEN, {})
        return found

    def changed(self, given: Sequence[str]) -> FoundStudy:
        """The study with other settings, full and quick, each given as `KEY=VALUE` with a value as in TOML."""
        new: dict[str, Any] = {}
        for pair in given:
            key, equals, text = pair.partition("=")
            if not equals or key not in self.config or key == "quick":
                known = [name for name in self.config if name != "quick"]
                told = f"A setting of {self.name!r} is KEY=VALUE, with a KEY of {', '.join(known)}; got {pair!r}."
                raise ConfigError(f"{told} {did_you_mean(key, known)}".strip())
            new[key] = self._checked(key, _parsed(text, self.config[key], pair))
        return self._with(lambda config: {**config, **new})

    def _checked(self, key: str, value: Any) -> Any:
        """A setting in the form of the study's own, or `ConfigError`."""
        if (isinstance(value, str) and key not in self.study.names) or key == "seeds":
            return value
        needs, sets = self.study.sets, []
        names = self.study.names.get(key, ())
        if isinstance(needs, SetNeeds):
            with using_sets(self.config):
                sets = needs.named(self.config)
            if key == needs.key:
                names = None
        examples = [config[key] for config in (self.config, self.config.get("quick", {})) if key in config]
        return checked_setting(key, value, examples, names=names, sets=sets)

    def with_seeds(self, n: int) -> FoundStudy:
        """The study with `n` seeds: the first of its settings and, if they are not enough, the numbers after them."""
        if isinstance(n, bool) or n < 1:
            raise ConfigError(f"The number of seeds must be 1 or more; got {n!r}.")
        seeds = list(self.config["seeds"])
        seeds += range(max(seeds) + 1, max(seeds) + 1 + n)
        return self._with(lambda config: {**config, "seeds": seeds[:n]})

    def with_sets(self, given: Mapping[str, Mapping[str, Any]]) -> FoundStudy:
        """The study on other sets alone: what `prepare_set` says of each, by name."""
        needs = self.study.sets
        if not isinstance(needs, SetNeeds):
            why = needs or "Its questions are about its own data."
            raise ConfigError(f"The study {self.name!r} cannot run on another set. {why}")
        new = [name for name in given if name not in needs.settings]
        own = {name: name for name in given if name in needs.settings}

        def other(config: Mapping[str, Any]) -> dict[str, Any]:
            with using_sets({GIVEN: given}):
                chosen = needs.chosen(config, new) if new else dict(config)
            return {**chosen, **own, GIVEN: {name: dict(facts) for name, facts in given.items()}}

        return self._with(other)

    def check(self, config: Mapping[str, Any]) -> None:
        """Raise `ConfigError` or `DataError`, in one sentence, for settings or sets that cannot work."""
        seeds = config.get("seeds")
        if not isinstance(seeds, list) or not seeds or not all(type(s) is int and s >= 0 for s in seeds):
            raise ConfigError(f"`seeds` must be a list of whole numbers, 0 or more; got {seeds!r}.")
        if len(set(seeds)) < len(seeds):
            raise ConfigError(f"`seeds` must differ from each other; got {seeds!r}.")
        most = self.study.most_seeds
        if most is not None and max(seeds) >= most:
            raise ConfigError(f"Seeds of {self.name!r} are folds, 0 to {most - 1}; got {seeds!r}.")
        with using_sets(config):
            if isinstance(self.study.sets, SetNeeds):
                self.study.sets.check(config)
            if self.study.check is not None:
                self.study.check(config)

    def _with(self, change: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> FoundStudy:
        """The study with full settings changed, and quick ones in the same way."""
        full, quick = change(self.settings(quick=False)), change(self.settings(quick=True))
        differs = {k: v for k, v in quick.items() if k not in full or full[k] != v}
        return replace(self, config={**full, "quick": differs})


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
    found, missing = load_studies(root)
    if missing:
        raise next(iter(missing.values()))
    return found


def load_studies(root: Path) -> tuple[dict[str, FoundStudy], dict[str, MissingExtraError]]:
    """Find the studies whose code can be loaded, and say which others need a package that is not installed.

    Parameters
    ----------
    root
        The folder, as for `find_studies`.

    Returns
    -------
    tuple
        `FoundStudy` by name; and, for each study that cannot be loaded, the error that names its extra, by name.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import load_studies
    >>> found, missing = load_studies(Path("studies"))  # doctest: +SKIP
    >>> missing["rebalance-choice"].extra  # doctest: +SKIP
    'rebalance'
    """
    if not root.is_dir():
        raise ConfigError(
            f"There is no folder {str(root)!r}: studies are in the source tree. Run from there, or use --studies."
        )
    know_sets(root)
    found: dict[str, FoundStudy] = {}
    missing: dict[str, MissingExtraError] = {}
    for run in sorted(root.glob("*/run.py")):
        with (run.parent / "config.toml").open("rb") as f:
            config = tomllib.load(f)
        try:
            studies = load_run(run).STUDIES
        except ImportError as error:
            missing |= dict.fromkeys(config, _extra_of(error))
            continue
        for name, study in studies.items():
            found[name] = FoundStudy(name, run.parent, study, config[name])
    return found, missing


def _extra_of(error: ImportError) -> MissingExtraError:
    """What to install; any other import error is a bug of the study and is raised again."""
    if isinstance(error, MissingExtraError):
        return error
    known = missing_extra(error) if isinstance(error, ModuleNotFoundError) else None
    if known is None:
        raise error
    return known


def check_drawing(studies: Iterable[Study]) -> None:
    """Refuse, before anything is computed, studies whose figures could not be drawn at the end."""
    if any(study.draws for study in studies) and importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib")


def run_study(
    found: FoundStudy,
    *,
    quick: bool,
    out: Path,
    jobs: int = 1,
    keep: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> StudyResults:
    """Compute the cells that are missing, then write `NAME.json`, `NAME.md` and figures.

    An interrupted run resumes where it stopped. Results of other settings are not replaced, unless asked for.

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
    keep
        Keep the cells of the committed results, and compute those of seeds, sets or methods that were added since.
    overwrite
        Replace results in `out` that a run with other settings left there.
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
    check_drawing([found.study])
    config = found.settings(quick)
    found.check(config)
    if not (keep or overwrite):
        check_nothing_lost(found, config, out)
    # Figures measured on data that somebody brought are as private as these.
    (private_folder(out) if found.given else out).mkdir(parents=True, exist_ok=True)
    with using_sets(config):
        return _run(found, config, quick, out, jobs, keep, progress)


def check_nothing_lost(found: FoundStudy, config: Mapping[str, Any], out: Path) -> None:
    """Refuse to replace what a run with other settings left in a folder, finished or not."""
    wanted = json.loads(json.dumps(config))
    for file in (out / f"{found.name}.json", out / f"{found.name}.partial.json"):
        if not file.is_file():
            continue
        there = json.loads(file.read_text())["config"]
        if other := sorted(key for key in there.keys() | wanted.keys() if there.get(key) != wanted.get(key)):
            raise ConfigError(
                f"{str(out)!r} has results of {found.name!r} with other settings ({', '.join(other)}). Choose "
                "another folder with -o, or replace them with --force."
            )


def _run(
    found: FoundStudy,
    config: dict[str, Any],
    quick: bool,
    out: Path,
    jobs: int,
    keep: bool,
    progress: Progress | None,
) -> StudyResults:
    partial = out / f"{found.name}.partial.json"
    raw, seconds = _known(found, config, out, keep)
    hashes = _hashes(found, config)
    cells = found.study.cells(config)
    every = [(name, seed) for name in cells for seed in config["seeds"]]
    missing = [(name, seed) for name, seed in every if str(seed) not in raw.get(name, {})]
    if progress is not None:
        progress(len(every) - len(missing), len(every), "started")
    started = time.monotonic()
    for done, (name, seed, figures, took) in enumerate(_computed(found, config, missing, jobs), start=1):
        raw.setdefault(name, {})[str(seed)] = {k: v if isinstance(v, str) else float(v) for k, v in figures.items()}
        seconds.setdefault(name, {})[str(seed)] = round(took, 3)
        _write(partial, json.dumps({"config": config, "raw": raw, "seconds": seconds}), config)
        if progress is not None:
            left = (time.monotonic() - started) / done * (len(missing) - done)
            note = f"{name} seed {seed}, {in_time(took)}" + (f"; about {in_time(left)} left" if left else "")
            progress(len(every) - len(missing) + done, len(every), note)
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
        "environment": environment(),
        "data": hashes,
        "seconds": {name: seconds[name] for name in cells if name in seconds},
        "estimates": {
            cell: {m: results.estimate(cell, m).to_dict() for m in _numbers(next(iter(seeds.values())))}
            for cell, seeds in results.raw.items()
        },
        "raw": results.raw,
    }
    _write(out / f"{found.name}.json", json.dumps(payload, indent=1, sort_keys=True) + "\n", config)
    _render(found, results, out)
    partial.unlink(missing_ok=True)
    return results


def _computed(
    found: FoundStudy,
    config: dict[str, Any],
    missing: Sequence[tuple[str, int]],
    jobs: int,
) -> Iterator[tuple[str, int, Figures, float]]:
    """Cells with their figures and seconds, in order of completion."""
    if jobs == 1:
        cells = found.study.cells(config)
        for name, seed in missing:
            yield name, seed, *_timed(cells[name], seed)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=spawn, initializer=_one_thread) as pool:
        waiting = {
            pool.submit(_compute, found.folder / "run.py", found.name, config, name, seed): (name, seed)
            for name, seed in missing
        }
        try:
            for future in as_completed(waiting):
                yield *waiting[future], *future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _compute(run: Path, study: str, config: dict[str, Any], cell: str, seed: int) -> tuple[Figures, float]:
    know_sets(run.parents[1])
    with using_sets(config):
        return _timed(_loaded(run).STUDIES[study].cells(config)[cell], seed)


@cache
def _loaded(run: Path) -> ModuleType:
    """Loaded once in each process: what cells keep in memory serves the next one."""
    return load_run(run)


def _timed(cell: Cell, seed: int) -> tuple[Figures, float]:
    started = time.monotonic()
    figures = cell(seed)
    return figures, time.monotonic() - started


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@dataclass(frozen=True, slots=True)
class Expected:
    """How long a run will take, as far as that can be known before it.

    Attributes
    ----------
    seconds
        Of one core; None: not known.
    cells, done
        How many pairs of cell and seed there are, and how many of them an earlier run has left.
    source
        Where the time comes from, in words.

    Examples
    --------
    >>> from locum.recipes import Expected
    >>> Expected(120.0, 10, 0, "as the study says").sentence(jobs=2)
    '10 cells, about 60 s with 2 at once (as the study says); a stopped run can resume'
    """

    seconds: float | None
    cells: int
    done: int
    source: str

    def sentence(self, jobs: int = 1) -> str:
        """What to tell before a run."""
        start = f"{self.cells} cells" + (f", {self.done} done already" if self.done else "")
        if self.seconds is None:
            return f"{start}; how long they take is not known yet; a stopped run can resume"
        at_once = f" with {jobs} at once" if jobs > 1 else ""
        long = in_time(max(1.0, self.seconds / jobs))
        return f"{start}, about {long}{at_once} ({self.source}); a stopped run can resume"


def expect_time(found: FoundStudy, *, quick: bool, out: Path, keep: bool = False) -> Expected:
    """How long a run will take: by the seconds of its committed results, the study's own word, or a few timed cells.

    Parameters
    ----------
    found
        The study.
    quick
        Whether the quick settings are used.
    out
        Where the results go; what an earlier run left there is not computed again.
    keep
        Whether the cells of the committed results are kept.

    Returns
    -------
    Expected
        Without a time where nothing tells it. Nothing is computed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study, expect_time
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> expect_time(FoundStudy("twice", Path("."), study, {"seeds": [0, 1]}), quick=False, out=Path("none")).cells
    2
    """
    config = found.settings(quick)
    raw, _ = _known(found, config, out, keep)
    with using_sets(config):
        every = [(name, str(seed)) for name in found.study.cells(config) for seed in config["seeds"]]
    missing = [(name, seed) for name, seed in every if seed not in raw.get(name, {})]
    done = len(every) - len(missing)
    minutes = found.minutes(quick)
    file = found.folder / "results" / f"{found.name}.json"
    saved = json.loads(file.read_text()) if file.is_file() else {}
    known: Seconds = saved.get("seconds", {})
    means = {name: sum(by.values()) / len(by) for name, by in known.items() if by}
    # What was measured with these settings comes before what the study says, if each cell was.
    same = {**saved.get("config", {}), "seeds": config["seeds"]} == config and all(name in means for name, _ in every)
    if minutes is not None and not same:
        return Expected(60 * minutes * len(missing) / len(every), len(every), done, "as the study says")
    if not means:
        nothing = Expected(None, len(every), done, "")
        return nothing if quick else _by_a_few_cells(found, len(missing), nothing)
    # A cell of another set takes about what the same method takes on the sets of the committed results.
    alike: dict[str, list[float]] = {}
    for name, mean in means.items():
        alike.setdefault(name.partition("/")[2], []).append(mean)
    usual = sum(means.values()) / len(means)

    def guess(name: str) -> float:
        same = alike.get(name.partition("/")[2], [usual])
        return means.get(name, sum(same) / len(same))

    return Expected(sum(guess(name) for name, _ in missing), len(every), done, "by the committed results")


def _by_a_few_cells(found: FoundStudy, missing: int, unknown: Expected) -> Expected:
    """By cells that were timed for this, in `seconds.json` beside the studies; null: stopped at the file's limit."""
    file = found.folder.parent / "seconds.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    timed = known.get("cells", {}).get(found.name, {})
    if not timed or found.given:
        return unknown
    seconds = [known["limit"] if value is None else value for value in timed.values()]
    source = "or more: some of the cells that were timed took longer" if None in timed.values() else "by a few cells"
    return replace(unknown, seconds=missing * sum(seconds) / len(seconds), source=source)


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
    saved = saved_results(results)
    finished = StudyResults(saved["raw"], saved["config"], saved["quick"])
    with using_sets(saved["config"]):
        _render(found, finished, results.parent)
    return finished


def apply_settings(
    found: FoundStudy,
    given: Sequence[str],
    *,
    place: Path,
    backbone: str | None = None,
    seeds: int | None = None,
    progress: Progress | None = None,
) -> FoundStudy:
    """The study with what was asked for on the command line: settings, other sets, a number of seeds.

    Parameters
    ----------
    found
        The study.
    given
        Each `KEY=VALUE` with a setting of its `config.toml`, or `NAME=PATH` with a set to run on. Given sets replace
        those of the study.
    place
        Where to keep vectors of given sets that cannot be kept beside their data.
    backbone
        What to embed given images with; None: the default.
    seeds
        How many seeds; None: those of the settings.
    progress
        Called as images are embedded.

    Returns
    -------
    FoundStudy
        Ready to run.

    Raises
    ------
    ConfigError
        If a key is neither a setting nor a set, or the study cannot run on other sets.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import FoundStudy, Study, apply_settings
    >>> study = Study("Twice the seed", lambda config: {"a": lambda seed: {"x": 2.0 * seed}}, lambda results, out: "")
    >>> found = FoundStudy("twice", Path("."), study, {"seeds": [0, 1], "base": 1})
    >>> apply_settings(found, ["base=3"], place=Path("out"), seeds=3).settings(quick=False)
    {'seeds': [0, 1, 2], 'base': 3}
    """
    # Before any image is embedded.
    check_drawing([found.study])
    needs, sets, settings = found.study.sets, {}, []
    named = needs.settings if isinstance(needs, SetNeeds) else ()
    for pair in given:
        key, equals, value = pair.partition("=")
        if equals and key != "quick" and ((key in named and is_data(value)) or key not in found.config):
            sets[key] = value
        else:
            settings.append(pair)
    for key, value in sets.items():
        if not is_data(value):
            known = [name for name in found.config if name != "quick"]
            hint = did_you_mean(key, known)
            raise ConfigError(
                f"{key!r} is not a setting of {found.name!r} (there are {', '.join(known)}), and not a set either: "
                f"there is no file or folder {value!r}. {hint}".strip()
            )
    if sets and not isinstance(needs, SetNeeds):
        # Says why, before any image is embedded.
        found.with_sets({})
    if backbone is not None:
        check_backbone_used(list(sets.values()))
    # Checked before any image is embedded.
    changed = found.changed(settings)
    if sets:
        facts = {
            key: prepare_set(key, value, place=place, backbone=backbone, progress=progress)
            for key, value in sets.items()
        }
        # Settings come last: one that is typed wins over what a set would choose.
        changed = found.with_sets(facts).changed(settings)
    return changed if seeds is None else changed.with_seeds(seeds)


def check_backbone_used(paths: Sequence[str]) -> None:
    """Refuse a backbone where no given set is images."""
    from locum.embed import holds_images
    from locum.io import split_path

    if not any(holds_images(split_path(path)[0]) for path in paths):
        raise ConfigError("--backbone is for images given with --set NAME=FOLDER, and there are none: leave it out.")


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
    note = f"\n> {_about_quick(found, results.config)}\n" if results.quick else ""
    note += "".join(f"\n> {line}\n" for line in _about_sets(results.config.get(GIVEN, {})))
    # Figures too are for the owner of given sets alone.
    before = os.umask(0o077) if results.config.get(GIVEN) else None
    try:
        body = found.study.render(results, out).strip()
    finally:
        if before is not None:
            os.umask(before)
    _write(out / f"{found.name}.md", f"# {found.study.title}\n{note}\n{body}\n", results.config)


def _about_quick(found: FoundStudy, config: Mapping[str, Any]) -> str:
    """Which settings a quick run has of its own: those that were typed are the same in a full run."""
    quick = found.config.get("quick", {})
    if not (own := [f"`{key}`" for key, value in quick.items() if config.get(key) == value]):
        return "Quick run: with these settings a full run is the same."
    verb = "differs" if len(own) == 1 else "differ"
    return f"Quick run, for a first look: {listed(own, 'and')} {verb} from a full run."


def _about_sets(given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What was run on, for pages of given sets."""
    if not given:
        return []
    lines = ["Run on sets that were given, not on those of the study. Internal: figures measured on private data."]
    for name, facts in given.items():
        sizes = " / ".join(f"{n:,}" for n in facts["parts"].values())
        lines.append(
            f"{name}: {facts['classes']} classes, {facts['features']} features ({facts['backbone']}), "
            f"{' / '.join(facts['parts'])} {sizes}; {facts['how']}. Unit: {facts['unit']}."
        )
    return lines


def saved_results(results: Path) -> dict[str, Any]:
    """What a run wrote, as plain JSON."""
    if not results.is_file():
        raise ConfigError(f"No results at {str(results)!r}: run the study first.")
    saved: dict[str, Any] = json.loads(results.read_text())
    return saved


def load_run(run: Path) -> ModuleType:
    """The `run.py` of a folder of studies, as a module."""
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


def _resume(partial: Path, config: Mapping[str, Any]) -> tuple[Raw, Seconds]:
    if not partial.is_file():
        return {}, {}
    saved = json.loads(partial.read_text())
    # Figures of another configuration must not be mixed in; recomputing only costs time.
    if saved["config"] != config:
        return {}, {}
    return saved["raw"], saved.get("seconds", {})


def _known(found: FoundStudy, config: Mapping[str, Any], out: Path, keep: bool) -> tuple[Raw, Seconds]:
    """What need not be computed: cells of a run that stopped and, if asked for, of the committed results."""
    raw, seconds = _resume(out / f"{found.name}.partial.json", config)
    if not keep:
        return raw, seconds
    file = found.folder / "results" / f"{found.name}.json"
    if not file.is_file():
        raise ConfigError(f"There are no results of {found.name!r} to keep: {str(file)!r} does not exist.")
    saved = json.loads(file.read_text())
    for key in sorted(saved["config"].keys() | config.keys()):
        old, new = saved["config"].get(key), config.get(key)
        if not _extends(new, old, lists=key in ADDED):
            raise ConfigError(
                f"The results of {found.name!r} cannot be kept: {key!r} was {old!r} and is {new!r}. Only more "
                f"{listed(ADDED)} can be added to them. Run without `keep`."
            )
    hashes = _hashes(found, config)
    changed = sorted(name for name, sha in saved.get("data", {}).items() if hashes.get(name, sha) != sha)
    if changed:
        raise ConfigError(f"The results of {found.name!r} cannot be kept: {', '.join(changed)} changed since.")
    for name, figures in saved["raw"].items():
        raw[name] = {**figures, **raw.get(name, {})}
        seconds[name] = {**saved.get("seconds", {}).get(name, {}), **seconds.get(name, {})}
    return raw, seconds


def _extends(new: Any, old: Any, *, lists: bool) -> bool:
    """Whether a setting is as it was, but for more entries: those of tables, and those of lists that make cells."""
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        return all(k in new and _extends(new[k], v, lists=lists) for k, v in old.items())
    if lists and isinstance(new, list) and isinstance(old, list):
        return all(entry in new for entry in old)
    return bool(new == old)


def environment() -> dict[str, str]:
    """Versions of what figures depend on."""
    out = {"locum": __version__, "python": platform.python_version(), "machine": platform.machine()}
    for package in ("numpy", "scipy", "scikit-learn", "torch"):
        try:
            out[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            out[package] = "not installed"
    return out


def _hashes(found: FoundStudy, config: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files that a study reads: of its sets, or else of those that the manifest lists for it."""
    if isinstance(found.study.sets, SetNeeds):
        return data_hashes(found.study.sets.named(config))
    try:
        folder = data_folder()
    except DataError:
        return {}
    if not (found.folder.parent / MANIFEST_NAME).is_file():
        return {}
    listed = read_data_sets(found.folder.parent).values()
    files = [file.path for data in listed if found.name in data.studies for file in data.files]
    return file_hashes(folder, files)


def in_time(seconds: float) -> str:
    """A length of time in words.

    >>> in_time(7.3), in_time(130), in_time(9000)
    ('7 s', '2 min', '2.5 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _write(path: Path, text: str, config: Mapping[str, Any]) -> None:
    write_bytes(path, text.encode(), mode=0o600 if config.get(GIVEN) else 0o644)
