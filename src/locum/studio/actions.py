"""Jobs that a page can start: for each kind its arguments, the recipe that runs, and the same as a command line.

Jobs run in the root, so paths are relative to it, and the command line works in a terminal there.
"""

from __future__ import annotations

import json
import re
import shlex
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from locum.errors import ConfigError
from locum.io import beside_folder, split_path, write_bytes
from locum.studio.places import Root
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP, Progress

Place = Annotated[str, Field(min_length=1, max_length=1000)]
Word = Annotated[str, Field(min_length=1, max_length=200)]
Tell = Callable[..., None]
# Of an obfuscator: from next to nothing to next to everything hidden, and labels from not written to fully written.
NOISES, LAMBDAS = [0.0, 0.5, 1.0, 2.0, 4.0, 8.0], [-50.0, -2.0, 0.0]


def beside(release: str, ending: str) -> Path:
    """Where something about a release is kept: next to it, never inside it."""
    return beside_folder(Path(release), f"-{ending}")


def _named(place: str) -> str:
    """A path as a command line takes it: one that begins with a dash is no option."""
    return f"./{place}" if place.startswith("-") else place


def _number(value: float) -> str:
    """A number as a command line takes it, to the last digit: a budget must not be rounded."""
    return repr(value).removesuffix(".0")


class Action(BaseModel):
    """One job: its fields are what a page sends."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    # Fields that are paths below the root: read, or written.
    READS: ClassVar[tuple[str, ...]] = ()
    WRITES: ClassVar[tuple[str, ...]] = ()
    TITLE: ClassVar[str] = ""

    @abstractmethod
    def run(self, progress: Progress, tell: Tell) -> Any:
        """Do it, in the root; the result as plain JSON."""

    @abstractmethod
    def words(self) -> list[str]:
        """The command line without `locum`."""

    def command(self) -> str:
        """The command line that does the same in a terminal, in the root."""
        return shlex.join(["locum", *self.words()])

    def check(self, root: Root) -> None:
        """Refuse paths that do not lie below the root."""
        for names, look in ((self.READS, root.records), (self.WRITES, root.new)):
            for place in filter(None, (getattr(self, name) for name in names)):
                look(place)


class Fit(Action):
    """Make a release."""

    READS = ("data", "non_members", "ranges")
    WRITES = ("out",)
    TITLE = "Make a release"

    data: Place
    out: Place
    generator: Literal["auto", "gaussian", "cvae", "ksame"] = "auto"
    no_dp: bool = False
    epsilon: Annotated[float, Field(gt=0, le=100)] = DEFAULT_EPSILON
    delta: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_DELTA
    unit: Literal["auto", "record", "subject"] = "auto"
    # As the command line takes them: separated by commas.
    classes: (
        Annotated[list[Annotated[Word, Field(pattern=r"^[^,\s]([^,]*[^,\s])?$")]], Field(max_length=1000)] | None
    ) = None
    classes_public: bool = False
    holding: Word = "default"
    k: Annotated[int, Field(ge=2, le=10_000)] | None = None
    # Of a table: a file with the range of each column, or none is needed.
    ranges: Place | None = None
    standardized: bool = False
    non_members: Place | None = None
    drop_duplicates: bool = False

    def reference(self) -> str | None:
        """What `--reference` is called with."""
        return "none" if self.standardized else self.ranges

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import fit_release

        chosen = {"k": self.k, "reference": self.reference()}
        unit: Literal["record", "subject"] = "subject" if self.unit == "subject" else "record"
        return fit_release(
            self.data,
            Path(self.out),
            generator=self.generator,
            settings={name: value for name, value in chosen.items() if value is not None},
            privacy=None if self.no_dp else DP(self.epsilon, self.delta, unit),
            no_dp=self.no_dp,
            unit_from_data=self.unit == "auto",
            classes=self.classes,
            classes_public=self.classes_public,
            holding=self.holding,
            non_members=self.non_members,
            drop_duplicates=self.drop_duplicates,
            progress=progress,
        ).to_dict()

    def words(self) -> list[str]:
        out = ["fit", _named(self.data), "-o", self.out]
        if self.generator != "auto":
            out += ["--generator", self.generator]
        if self.k is not None:
            out += ["--k", str(self.k)]
        if self.no_dp:
            out += ["--no-dp"]
        else:
            out += ["--epsilon", _number(self.epsilon), "--delta", _number(self.delta)]
            out += [] if self.unit == "auto" else ["--unit", self.unit]
            out += [] if self.holding == "default" else ["--holding", self.holding]
        out += [] if self.reference() is None else ["--reference", str(self.reference())]
        if self.classes is not None:
            out += ["--classes", ",".join(self.classes)]
        out += ["--classes-public"] * self.classes_public + ["--drop-duplicates"] * self.drop_duplicates
        return out + ([] if self.non_members is None else ["--non-members", self.non_members])


class Audit(Action):
    """Attack a release; what was found is kept beside it."""

    READS = ("release", "members", "non_members", "ledger")
    TITLE = "Attack a release"

    release: Place
    members: Place
    non_members: Place
    policy: Literal["public", "research-sharing", "internal"] = "research-sharing"
    ledger: Place | None = None
    accept: Annotated[list[Annotated[str, Field(max_length=2000)]], Field(max_length=20)] = []
    thorough: bool = False
    minutes: Annotated[float, Field(gt=0, le=600)] | None = None
    canaries: Annotated[int, Field(ge=10, le=10_000)] | None = None

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import audit_data

        found = audit_data(
            Path(self.release),
            self.members,
            self.non_members,
            policy=self.policy,
            ledger=None if self.ledger is None else Path(self.ledger),
            accept=self.accept,
            thorough=self.thorough,
            minutes=self.minutes,
            canaries=self.canaries,
            out=beside(self.release, "audit.json"),
            page=beside(self.release, "audit.html"),
            risk=beside(self.release, "risk.csv"),
            overwrite=True,
            progress=progress,
        )
        return found.to_dict()

    def words(self) -> list[str]:
        out = ["audit", _named(self.release), "--members", self.members, "--non-members", self.non_members]
        out += ["--policy", self.policy] + ([] if self.ledger is None else ["--ledger", self.ledger])
        for name in self.accept:
            out += ["--accept", name.split(":")[0]]
        out += ["--thorough"] * self.thorough
        out += [] if self.minutes is None else ["--minutes", _number(self.minutes)]
        out += [] if self.canaries is None else ["--canaries", str(self.canaries)]
        for option, ending in (("-o", "audit.json"), ("--html", "audit.html"), ("--risk", "risk.csv")):
            out += [option, str(beside(self.release, ending))]
        return [*out, "--force"]


class Evaluate(Action):
    """Measure what a release is good for; the figures are kept beside it."""

    READS = ("release", "test", "train")
    TITLE = "Measure usefulness"

    release: Place
    test: Place
    train: Place | None = None
    seeds: Annotated[int, Field(ge=1, le=20)] = 3

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import evaluate_release

        found = evaluate_release(
            Path(self.release), self.test, train=self.train, seeds=self.seeds, progress=progress
        ).to_dict()
        text = json.dumps(found, indent=2, sort_keys=True, allow_nan=False) + "\n"
        write_bytes(beside(self.release, "evaluation.json"), text.encode())
        return found

    def words(self) -> list[str]:
        train = [] if self.train is None else ["--train", self.train]
        return ["evaluate", _named(self.release), "--test", self.test, *train, "--seeds", str(self.seeds), "--json"]

    def command(self) -> str:
        return f"{super().command()} > {shlex.quote(str(beside(self.release, 'evaluation.json')))}"


class Survey(Action):
    """Look at a data set."""

    READS = ("data",)
    TITLE = "Look at data"

    data: Place

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import survey_data

        return survey_data(self.data, progress=progress).to_dict()

    def words(self) -> list[str]:
        return []

    def command(self) -> str:
        return f"python -c {shlex.quote(f'import locum.recipes as r; print(r.survey_data({self.data!r}).to_dict())')}"


class Train(Action):
    """The receiver's side: make a classifier from a release alone."""

    READS = ("release",)
    TITLE = "Train a classifier"

    release: Place

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import train_head

        head = beside(self.release, "head.safetensors")
        return train_head(Path(self.release), head, overwrite=True, progress=progress).to_dict()

    def words(self) -> list[str]:
        return ["train", _named(self.release), "-o", str(beside(self.release, "head.safetensors")), "--force"]


class Predict(Action):
    """The receiver's side: classify records of one's own."""

    READS = ("head", "data")
    TITLE = "Predict"

    head: Place
    data: Place

    @property
    def out(self) -> Path:
        """Where predictions go."""
        return Path(self.head.removesuffix("-head.safetensors") + "-predictions.csv")

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import predict_records

        found = predict_records(Path(self.head), self.data, out=self.out, overwrite=True, progress=progress)
        return found.to_dict() | {"out": str(self.out)}

    def words(self) -> list[str]:
        return ["predict", _named(self.head), _named(self.data), "-o", str(self.out), "--force"]


class SampleMap(Action):
    """A map of vectors drawn from a release, as its shareable report shows it."""

    READS = ("release",)
    TITLE = "Draw a map of samples"

    release: Place
    method: Literal["auto", "pca", "tsne"] = "pca"

    @property
    def out(self) -> Path:
        """Where the report goes."""
        return beside(self.release, "report-shareable.html")

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.recipes import make_report

        return make_report(
            Path(self.release), self.out, share=True, map=self.method, overwrite=True, progress=progress
        )

    def words(self) -> list[str]:
        return ["report", _named(self.release), "--share", "--map", self.method, "-o", str(self.out), "--force"]


class Preview(Action):
    """A dozen settings of the dial, on made-up records, or on the holder's own for their eyes only."""

    READS = ("data",)
    TITLE = "Compute previews"

    knob: Literal["epsilon", "k"] = "epsilon"
    mode: Literal["public", "records"] = "public"
    data: Place | None = None
    units: Annotated[int, Field(ge=20, le=10_000_000)] = 1000
    classes: Annotated[list[Word], Field(min_length=2, max_length=50)] = ["A", "B"]
    features: Annotated[int, Field(ge=2, le=20_000)] = 1280
    real_auc: Annotated[float, Field(gt=0.5, le=1)] = 0.95
    delta: Annotated[float, Field(gt=0, lt=1)] = DEFAULT_DELTA
    unit: Literal["auto", "record", "subject"] = "record"
    holding: Word = "default"

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum import recipes

        def on_step(step: dict[str, Any]) -> None:
            tell("step", step=step)

        made_up: dict[str, Any] = {
            "units": self.units,
            "class_names": self.classes,
            "features": self.features,
            "real_auc": self.real_auc,
        }

        def on_start(base: dict[str, Any]) -> None:
            tell("step", step={"base": base})

        both: dict[str, Any] = {"progress": progress, "on_start": on_start, "on_step": on_step}
        if self.knob == "k":
            if self.mode == "records":
                return recipes.preview_groups(self.data, holding=self.holding, **both)
            return recipes.preview_groups(None, **made_up, **both)
        if self.mode == "records":
            return recipes.preview_records(
                str(self.data), delta=self.delta, unit=self.unit, holding=self.holding, **both
            )
        unit: Literal["record", "subject"] = "subject" if self.unit == "subject" else "record"
        return recipes.preview_budgets(**made_up, delta=self.delta, unit=unit, **both)

    def words(self) -> list[str]:
        auc = ["--real-auc", _number(self.real_auc)]
        return ["plan", "--records", str(self.units), "--classes", str(len(self.classes)), *auc]


class MeasureTradeOff(Action):
    """Fit an obfuscator, and measure what receivers and attackers find in its copies at each setting."""

    READS = ("data",)
    WRITES = ("out",)
    TITLE = "Measure a trade-off"

    data: Place
    keep: Annotated[list[Word], Field(min_length=1, max_length=20)]
    hide: Word
    drop: Annotated[list[Word], Field(max_length=1000)] = []
    noises: Annotated[list[Annotated[float, Field(ge=0, le=1000)]], Field(min_length=1, max_length=12)] = NOISES
    lambdas: Annotated[list[Annotated[float, Field(ge=-10_000, le=0)]], Field(min_length=1, max_length=3)] = LAMBDAS
    limit: Annotated[int, Field(ge=40, le=1_000_000)] = 1500
    # Half to learn from and half to test on: with few records the intervals are wide enough as it is.
    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.5

    @property
    def out(self) -> str:
        """Private folder beside the data, one per choice, so that none replaces the obfuscator of another."""
        file = Path(split_path(self.data)[0])
        words = "-".join(["keep", *self.keep, "hide", self.hide])
        return str(file.with_name(f"{file.stem}-{re.sub(r'[^a-zA-Z0-9]+', '-', words)[:80].strip('-')}"))

    @property
    def left_out(self) -> list[str]:
        """Columns that copies do not have: what is hidden is not handed out. Images have no columns to leave out."""
        hidden = [] if Path(split_path(self.data)[0]).suffix.lower() == ".npz" else [self.hide]
        return [*hidden, *(name for name in self.drop if name != self.hide)]

    def run(self, progress: Progress, tell: Tell) -> Any:
        from locum.io import private_folder
        from locum.recipes import fit_obfuscator, measure_trade_off

        if self.hide in self.keep:
            raise ConfigError(f"{self.hide!r} cannot be both kept and hidden: choose another column to hide.")
        folder = private_folder(Path(self.out))
        obfuscator = f"{self.out}/obfuscator"
        copies = (folder / "copies").with_suffix(Path(split_path(self.data)[0]).suffix.lower())
        progress(0, 1, "Fitting an obfuscator")
        try:
            fit_obfuscator(
                self.data,
                Path(obfuscator),
                utility=self.keep,
                drop=self.left_out,
                # Whether parts of real images may be shown is decided with care, at the command line.
                preset="calibrated",
                limit=self.limit,
                overwrite=True,
            )
        except BaseException:
            # Only if it is empty: an earlier run may have left its results there.
            with suppress(OSError):
                folder.rmdir()
            raise
        found = measure_trade_off(
            Path(obfuscator),
            self.data,
            folder / "trade-off",
            private=self.hide,
            noises=self.noises,
            lambdas=self.lambdas,
            holdout=self.holdout,
            limit=self.limit,
            overwrite=True,
            progress=progress,
        )
        report, base = found.report, found.report["baselines"]
        return {
            "keep": self.keep,
            "hide": self.hide,
            "noises": sorted(self.noises),
            "lambdas": sorted(self.lambdas),
            "points": [
                {
                    **point["knobs"],
                    "receiver": point["utility"],
                    "attacker": point["attacker"],
                    "attacker_name": point["attacker_name"],
                }
                for point in report["points"]
            ],
            "levels": {
                "receiver": {"originals": base["original utility"], "guessing": base["most frequent utility"]},
                "attacker": {
                    "originals": base["original attacker"],
                    "guessing": base["most frequent"],
                    "kept_alone": base["label alone"],
                },
            },
            "measured": report["measured"],
            "caution": report["caution"],
            "report": str(folder / "trade-off" / "report.html"),
            "apply": shlex.join(["locum", "obfuscate", "apply", obfuscator, self.data, "-o", str(copies)]),
        }

    def words(self) -> list[str]:
        out = ["obfuscate", "fit", self.data, "-o", f"{self.out}/obfuscator"]
        for option, names in (("--utility", self.keep), ("--drop", self.left_out)):
            for name in names:
                out += [option, name]
        return [*out, "--limit", str(self.limit), "--force"]

    def measuring(self) -> list[str]:
        """The second command line."""
        out = ["obfuscate", "trade-off", f"{self.out}/obfuscator", self.data, "-o", f"{self.out}/trade-off"]
        out += ["--private", self.hide, "--noise", _listed(self.noises), "--lambda", _listed(self.lambdas)]
        return [*out, "--holdout", f"{self.holdout:g}", "--limit", str(self.limit), "--force"]

    def command(self) -> str:
        return f"{super().command()}\n{shlex.join(['locum', *self.measuring()])}"


def _listed(values: list[float]) -> str:
    return ",".join(f"{value:g}" for value in values)


ACTIONS: dict[str, type[Action]] = {
    "fit": Fit,
    "audit": Audit,
    "evaluate": Evaluate,
    "survey": Survey,
    "train": Train,
    "predict": Predict,
    "map": SampleMap,
    "preview": Preview,
    "trade-off": MeasureTradeOff,
}
