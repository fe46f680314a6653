"""Presets of whole papers: `study run replica-paper` runs every study of a paper and collects one page.

`studies/papers.toml` lists the parts of each. A part runs on the paper's own sets where they are at hand: given with
`--set NAME=PATH`, or as vectors or images in the folder `LOCUM_DATA`. Otherwise it runs on what the study has, and
the page says so.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from locum.errors import ConfigError, DataError, LocumError
from locum.io import did_you_mean, private_folder, read_toml, write_bytes
from locum.recipes.study import (
    FoundStudy,
    check_backbone_used,
    check_drawing,
    check_nothing_lost,
    environment,
    expect_time,
    in_time,
    load_studies,
    markdown_table,
    run_study,
)
from locum.recipes.study_sets import SetNeeds, is_data, prepare_set, study_set
from locum.types import Progress

PAPERS_NAME = "papers.toml"


@dataclass(frozen=True, slots=True)
class PaperPart:
    """One study of a paper.

    Parameters
    ----------
    study
        Its name.
    what
        Which tables and figures it is.
    sets
        The paper's own sets, by their names in `sets.toml`.
    data
        What the paper ran it on, where that is no set that can be named.
    settings
        Settings of the paper that differ from the study's.
    stand_in, quick
        Settings where none of the paper's sets is at hand; `quick` also for quick runs.
    exact
        Whether the study's own data are the paper's.

    Examples
    --------
    >>> from locum.recipes import PaperPart
    >>> PaperPart("replica-results", "Table 1").sets
    ()
    """

    study: str
    what: str
    sets: tuple[str, ...] = ()
    data: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    stand_in: Mapping[str, Any] = field(default_factory=dict)
    quick: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper as a list of studies.

    Parameters
    ----------
    name
        What `study run` takes.
    title
        Heading of its page.
    parts
        Its studies, in order.

    Examples
    --------
    >>> from locum.recipes import Paper, PaperPart
    >>> Paper("pets-paper", "Pets", (PaperPart("pets-table1", "Table 1"),)).parts[0].study
    'pets-table1'
    """

    name: str
    title: str
    parts: tuple[PaperPart, ...]


@dataclass(frozen=True, slots=True)
class PartResult:
    """What became of one study of a paper.

    Attributes
    ----------
    what, study
        Which tables and figures, and by which study.
    paper_data
        What the paper ran it on.
    ran_on
        What was run on; empty if it was not run.
    state
        "the paper's data", "part of the paper's data", "stand-ins", "given sets" or "not run".
    why
        What is missing, in a sentence; empty if nothing is.
    seeds, seconds
        How many seeds, and how long it took.
    page
        The page of the study, beside the page of the paper.

    Examples
    --------
    >>> from locum.recipes import PartResult
    >>> PartResult("Table 1", "pets-table1", "pets", "", "not run", "there are no pets", 0, 0.0, "").state
    'not run'
    """

    what: str
    study: str
    paper_data: str
    ran_on: str
    state: str
    why: str
    seeds: int
    seconds: float
    page: str


def find_papers(studies: Path) -> dict[str, Paper]:
    """Read the presets of whole papers.

    Parameters
    ----------
    studies
        Folder of the studies, with `papers.toml` in it.

    Returns
    -------
    dict of str to Paper
        By name; empty if there is no such file.

    Raises
    ------
    ConfigError
        If the file is not well formed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import find_papers
    >>> find_papers(Path("nowhere"))
    {}
    """
    file = studies / PAPERS_NAME
    if not file.is_file():
        return {}
    out = {}
    for name, entry in read_toml(file, "papers").items():
        try:
            parts = tuple(PaperPart(**{**part, "sets": tuple(part.get("sets", ()))}) for part in entry["parts"])
            out[name] = Paper(name, entry["title"], parts)
        except (KeyError, TypeError) as error:
            raise ConfigError(f"{str(file)!r} does not describe {name!r} as it should: {error}.") from None
    return out


def run_paper(
    paper: Paper,
    studies: Path,
    *,
    out: Path,
    quick: bool = False,
    given: Sequence[str] = (),
    backbone: str | None = None,
    seeds: int | None = None,
    jobs: int = 1,
    overwrite: bool = False,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> list[PartResult]:
    """Run every study of a paper, then write one page with a line for each.

    A study whose results of the same settings are in `out` is not computed again. A study that cannot run is told on
    the page, and the others go on.

    Parameters
    ----------
    paper
        From `find_papers`.
    studies
        Folder of the studies.
    out
        Folder for all results; `NAME.md` and `NAME.json` are the page.
    quick
        Use the quick settings of each study.
    given
        As for `apply_settings`: settings of any of its studies, sets of the paper, or one's own, which then replace
        all others.
    backbone
        What to embed images with; None: the paper's for its sets, the default for others.
    seeds
        How many seeds; None: those of the settings.
    jobs
        How many cells are computed at once.
    overwrite
        Replace results in `out` that a run with other settings left there.
    tell
        Called with a line before each study.
    progress
        Called as cells are finished.

    Returns
    -------
    list of PartResult
        One per study, in order.

    Raises
    ------
    ConfigError
        If something was given that no study of the paper takes.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import find_papers, run_paper
    >>> paper = find_papers(Path("studies"))["replica-paper"]  # doctest: +SKIP
    >>> run_paper(paper, Path("studies"), out=Path("out"), quick=True)  # doctest: +SKIP
    """
    found, missing = load_studies(studies)
    if lacking := [missing[part.study] for part in paper.parts if part.study in missing]:
        raise lacking[0]
    if unknown := [part.study for part in paper.parts if part.study not in found]:
        raise ConfigError(f"{paper.name!r} names a study {unknown[0]!r} that is not there.")
    check_drawing(found[part.study].study for part in paper.parts)
    settings, sets = _sorted(paper, found, given)
    own = [name for name in sets if all(name not in part.sets for part in paper.parts)]
    if backbone is not None and sets:
        check_backbone_used(list(sets.values()))
    private_folder(out)
    run = _Run(out, quick, backbone, seeds, jobs, overwrite, tell or (lambda line: None), progress)
    results = []
    for part in paper.parts:
        results.append(run.part(part, found[part.study], settings[part.study], sets, own))
        _page(paper, results, out, quick)
    return results


def _sorted(
    paper: Paper, found: Mapping[str, FoundStudy], given: Sequence[str]
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Settings by study, and sets by name."""
    settings: dict[str, list[str]] = {part.study: [] for part in paper.parts}
    sets: dict[str, str] = {}
    named = {name for part in paper.parts for name in part.sets}
    for pair in given:
        key, equals, value = pair.partition("=")
        takers = [part.study for part in paper.parts if key in found[part.study].config and key != "quick"]
        if equals and is_data(value) and (key in named or not takers):
            sets[key] = value
        elif equals and takers:
            for study in takers:
                found[study].changed([pair])
                settings[study].append(pair)
        else:
            known = {name for part in paper.parts for name in found[part.study].config if name != "quick"} | named
            hint = did_you_mean(key, sorted(known), f"There are {', '.join(sorted(known))}.")
            raise ConfigError(
                f"{pair!r} is not a setting of a study of {paper.name!r}, and not a set either: there is no file or "
                f"folder {value!r}. {hint}"
            )
    return settings, sets


class _NotThereError(DataError):
    """A set of the paper is neither given nor in the folder of the data."""


@dataclass(frozen=True, slots=True)
class _Run:
    out: Path
    quick: bool
    backbone: str | None
    seeds: int | None
    jobs: int
    overwrite: bool
    tell: Callable[[str], None]
    progress: Progress | None
    failed: dict[tuple[str, str | None], LocumError] = field(default_factory=dict)

    def part(
        self, part: PaperPart, study: FoundStudy, settings: Sequence[str], sets: Mapping[str, str], own: Sequence[str]
    ) -> PartResult:
        """Run one study, or say why it is not run."""
        paper_data = part.data or ", ".join(study_set(name).title for name in part.sets)
        nothing = PartResult(part.what, study.name, paper_data, "", "not run", "", 0, 0.0, "")
        started = time.monotonic()
        try:
            ready, ran_on, state, why = self._chosen(part, study, sets, own)
            ready = ready.changed(settings)
            ready = ready if self.seeds is None else ready.with_seeds(self.seeds)
            config = ready.settings(self.quick)
            ready.check(config)
        except LocumError as error:
            return self._not_run(nothing, error)
        if not self.overwrite:
            # Ends the whole run: the page of the earlier one stays true.
            check_nothing_lost(ready, config, self.out)
        try:
            if not self._finished(ready, config):
                told = expect_time(ready, quick=self.quick, out=self.out).sentence(self.jobs)
                self.tell(f"{study.name} on {ran_on}: {told}.")
                run_study(
                    ready,
                    quick=self.quick,
                    out=self.out,
                    jobs=self.jobs,
                    overwrite=self.overwrite,
                    progress=self.progress,
                )
        except LocumError as error:
            return self._not_run(nothing, error)
        return replace(
            nothing,
            ran_on=ran_on,
            state=state,
            why=why,
            seeds=len(config["seeds"]),
            seconds=time.monotonic() - started,
            page=f"{study.name}.md",
        )

    def _not_run(self, nothing: PartResult, error: LocumError) -> PartResult:
        self.tell(f"{nothing.study} is not run: {error}")
        return replace(nothing, why=str(error))

    def _chosen(
        self, part: PaperPart, study: FoundStudy, sets: Mapping[str, str], own: Sequence[str]
    ) -> tuple[FoundStudy, str, str, str]:
        """The study on the sets that are at hand, what they are, which kind, and what is missing."""
        if own:
            ready = study.with_sets({name: self._prepared(name, sets[name], None) for name in own})
            return ready, ", ".join(own), "given sets", ""
        if part.exact or not part.sets:
            chosen = study if self.quick else _set(study, part.settings)
            if part.exact:
                return chosen, part.data, "the paper's data", ""
            chosen = _set(chosen, {**part.stand_in, **(part.quick if self.quick else {})})
            return chosen, _names(chosen, self.quick), "stand-ins", "the paper's data cannot be put in its place"
        there, missing = {}, []
        for name in part.sets:
            try:
                there[name] = self._at_hand(name, sets)
            except LocumError as error:
                why = "" if isinstance(error, _NotThereError) else f" ({error})"
                missing.append(f"{study_set(name).title}{why}")
        lacking = f"not at hand: {', '.join(missing)}" if missing else ""
        if not there:
            chosen = _set(study, {**part.stand_in, **(part.quick if self.quick else {})})
            return chosen, _names(chosen, self.quick), "stand-ins", lacking
        chosen = study.with_sets(there)
        needs = study.study.sets
        assert isinstance(needs, SetNeeds)
        scenarios = chosen.settings(quick=False)[needs.key]
        if needs.settings and isinstance(scenarios, list):
            # Scenarios of a set that is missing are left out.
            chosen = _set(chosen, {needs.key: [s for s in scenarios if s.startswith(tuple(there))]})
        chosen = chosen if self.quick else _set(chosen, part.settings)
        state = "part of the paper's data" if missing else "the paper's data"
        return chosen, ", ".join(study_set(name).title for name in there), state, lacking

    def _at_hand(self, name: str, sets: Mapping[str, str]) -> dict[str, Any]:
        """A set of the paper, from where it was given or from the folder of the data."""
        known = study_set(name)
        if name in sets:
            return self._prepared(name, sets[name], known.backbone)
        folder = Path(os.environ.get("LOCUM_DATA") or "/nonexistent")
        if (folder / known.file).exists():
            return self._prepared(name, str(folder / known.file), None)
        if known.images and (folder / known.images).exists():
            return self._prepared(name, str(folder / known.images), known.backbone)
        raise _NotThereError(f"There is no file {known.file!r} in LOCUM_DATA.")

    def _prepared(self, name: str, path: str, usual: str | None) -> dict[str, Any]:
        backbone = self.backbone or usual or None
        if (path, backbone) in self.failed:
            raise self.failed[path, backbone]
        try:
            return prepare_set(name, path, place=self.out / "sets", backbone=backbone, progress=self.progress)
        except LocumError as error:
            # The next study would wait for the same.
            self.failed[path, backbone] = error
            raise

    def _finished(self, study: FoundStudy, config: Mapping[str, Any]) -> bool:
        file = self.out / f"{study.name}.json"
        if not file.is_file():
            return False
        saved = json.loads(file.read_text())
        same: bool = saved["config"] == json.loads(json.dumps(config)) and saved["version"] == environment()["locum"]
        return same


def _set(study: FoundStudy, settings: Mapping[str, Any]) -> FoundStudy:
    """The study with settings from `papers.toml`, in full and quick runs."""
    if unknown := [key for key in settings if key not in study.config]:
        raise ConfigError(f"{study.name!r} has no setting {unknown[0]!r}.")
    quick = {**study.config.get("quick", {}), **settings}
    return replace(study, config={**study.config, **settings, "quick": quick})


def _names(study: FoundStudy, quick: bool) -> str:
    """The sets that a study runs on, by their titles."""
    needs = study.study.sets
    if not isinstance(needs, SetNeeds):
        return "its own data"
    return ", ".join(study_set(name).title for name in needs.named(study.settings(quick)))


def _page(paper: Paper, results: Sequence[PartResult], out: Path, quick: bool) -> None:
    """Written after every study, so that a stopped run has its page too."""
    rows = [
        [
            r.what,
            f"[{r.study}]({r.page})" if r.page else r.study,
            r.paper_data,
            r.ran_on or "-",
            r.state if r.state != "stand-ins" else "**stand-ins**",
            r.seeds or "-",
            in_time(r.seconds) if r.page else "-",
        ]
        for r in results
    ]
    header = ["what", "study", "data of the paper", "run on", "kind", "seeds", "time"]
    counts = {state: sum(r.state == state for r in results) for state in dict.fromkeys(r.state for r in results)}
    text = [f"# {paper.title}"]
    if quick:
        text.append("> Quick run, for a first look: the page of each study says what differs from a full run.")
    if any(r.state == "stand-ins" for r in results):
        text.append("> Some studies ran on stand-ins for the paper's data: compare orders and gaps, not figures.")
    text.append(f"{len(results)} of {len(paper.parts)} studies; " + ", ".join(f"{s}: {n}" for s, n in counts.items()))
    text.append(markdown_table(header, rows))
    notes = [f"- {r.study}: {r.why.rstrip('.')}." for r in results if r.why]
    if notes:
        text += ["## What is missing", "\n".join(notes)]
        text.append("Give what is missing with `--set NAME=PATH`, or put it into the folder LOCUM_DATA: sets.toml.")
    write_bytes(out / f"{paper.name}.md", ("\n\n".join(text) + "\n").encode())
    payload = {
        "paper": paper.name,
        "quick": quick,
        "environment": environment(),
        "parts": [asdict(result) for result in results],
    }
    write_bytes(out / f"{paper.name}.json", (json.dumps(payload, indent=1, sort_keys=True) + "\n").encode())
