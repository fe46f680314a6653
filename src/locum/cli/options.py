"""Options that several verbs share, and checks that answer before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from locum.errors import ConfigError
from locum.io import check_input, check_manifest_folder, check_output_file, check_output_folder

# What numpy, torch and scikit-learn all take.
MOST_SEED = 2**32 - 1

# Odds may change by a factor of exp(100) there.
MOST_EPSILON = 100.0

# Headings of the help.
WHAT, SETTINGS, PRIVACY, CHECK, WHERE = (
    "What to fit",
    "Settings of the generator",
    "Privacy",
    "The check",
    "Where to write",
)

DATA_HELP = "Vectors (.npz, .parquet, .safetensors, .csv, s3://...) or images (see `embed`); DATA#train is a split."
BACKBONE_HELP = "For images: the place of the release's model, if it is a custom one (onnx:FILE or hf:FOLDER)."


def checked(check: Callable[[Any], object]) -> Callable[[typer.Context, Any], Any]:
    """A callback that lets a value pass if `check` does not object; nothing is checked while a shell completes."""

    def callback(ctx: typer.Context, value: Any) -> Any:
        if value is not None and not ctx.resilient_parsing:
            check(value)
        return value

    return callback


existing = checked(check_input)
existing_ledger = checked(
    lambda value: check_input(value, "ledger", "name it with --ledger, or open one with set-budget")
)
existing_key = checked(lambda value: check_input(value, "key", "make one with `locum keygen`, or check the name"))
existing_head = checked(lambda value: check_input(value, "head at", "make one with `locum train`, or check the name"))
existing_release = checked(check_manifest_folder)
existing_obfuscator = checked(lambda value: check_manifest_folder(value, "an obfuscator"))


def sensible_epsilon(ctx: typer.Context, value: float | None) -> float | None:
    """A budget that protects somebody."""
    if value is not None and value > MOST_EPSILON and not ctx.resilient_parsing:
        raise ConfigError(
            f"--epsilon may be at most {MOST_EPSILON:g}; got {value:g}. A larger claim would mean nothing: 1 is a "
            "usual choice, and 10 is high."
        )
    return value


def unused_file(ctx: typer.Context, value: Path | None) -> Path | None:
    """A file that can be written, and that --force allows to overwrite if it is there."""
    if value is not None and not ctx.resilient_parsing:
        check_output_file(value, overwrite=bool(ctx.params.get("force")))
    return value


def unused_folder(ctx: typer.Context, value: Path | None) -> Path | None:
    """The same for a folder that is written as one piece."""
    if value is not None and not ctx.resilient_parsing:
        check_output_folder(value, overwrite=bool(ctx.params.get("force")))
    return value


Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
# Eager: checks of output need it, wherever it is typed.
Force = Annotated[
    bool, typer.Option("--force", is_eager=True, rich_help_panel=WHERE, help="Overwrite existing output.")
]
ReleaseFolder = Annotated[
    Path, typer.Argument(metavar="RELEASE", help="A release folder.", callback=existing_release)
]
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP, callback=existing)]
# Of verbs that read data to make a release of them.
Backbone = Annotated[
    str | None,
    typer.Option(
        help="For images: the vision model (default: efflite0; see `embed --backbones`).", rich_help_panel=WHAT
    ),
]
# Of verbs that compare records with a release, or with what was made of one.
ReleaseBackbone = Annotated[str | None, typer.Option(help=BACKBONE_HELP, rich_help_panel="Records")]
# Of verbs that pay for a guarantee.
Epsilon = Annotated[
    float,
    typer.Option(help="How much one unit may change the result.", rich_help_panel=PRIVACY, callback=sensible_epsilon),
]
Delta = Annotated[float, typer.Option(help="Probability of failure, at most 1/(10 n).", rich_help_panel=PRIVACY)]
Classes = Annotated[
    str | None,
    typer.Option(
        help="All classes that can occur, separated by commas; the names become public.", rich_help_panel=PRIVACY
    ),
]
ClassesPublic = Annotated[
    bool,
    typer.Option(
        "--classes-public",
        help="The class names in the data are public: use those. The claim says that it assumes this. Without this "
        "option you are asked, in a terminal.",
        rich_help_panel=PRIVACY,
    ),
]
Holding = Annotated[str, typer.Option(help="Name of the data holding whose budget pays.", rich_help_panel=PRIVACY)]
LedgerFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The ledger (default: next to the data).", rich_help_panel=PRIVACY),
]


def listed(text: str) -> list[str]:
    """The parts of A,B,C; empty parts are dropped."""
    return [name.strip() for name in text.split(",") if name.strip()]


def class_counts(text: str) -> dict[str, int]:
    """Parse `NAME=COUNT,...`, the value of --per-class."""
    out = {}
    for part in text.split(","):
        name, _, count = part.rpartition("=")
        if not name or not count.strip().isdecimal() or len(count.strip()) > 12:
            raise ConfigError(f"--per-class takes NAME=COUNT, separated by commas; got {part!r}.")
        out[name.strip()] = int(count)
    return out


class GeneratorName(StrEnum):
    """Generators by their name on the command line."""

    auto = "auto"
    gaussian = "gaussian"
    cvae = "cvae"
    cgan = "cgan"
    ksame = "ksame"


class EngineName(StrEnum):
    """Where long work runs."""

    local = "local"
    ray = "ray"


def address_option(panel: str) -> Any:
    """The option --address of verbs that have --engine."""
    return typer.Option(
        metavar="auto|ADDRESS|local",
        help="The Ray cluster: this machine's, one elsewhere, or one started for this run (default: local).",
        rich_help_panel=panel,
    )


class UnitName(StrEnum):
    """Whose presence differential privacy hides."""

    record = "record"
    subject = "subject"


class FitUnitName(StrEnum):
    """The same, where the data can decide."""

    auto = "auto"
    record = "record"
    subject = "subject"


class HeadName(StrEnum):
    """Classifiers that can be trained on samples."""

    linear = "linear"
    mlp = "mlp"


class TrainedName(StrEnum):
    """Classifiers that `train` makes: the release's own rule, or one that is trained on samples."""

    auto = "auto"
    bayes = "bayes"
    linear = "linear"
    mlp = "mlp"


class RelationName(StrEnum):
    """The neighboring relation of differential privacy."""

    add_or_remove = "add-or-remove"
    replace_one = "replace-one"


Relation = Annotated[
    RelationName,
    typer.Option(
        help="add-or-remove hides the presence of a unit; replace-one only its values.", rich_help_panel=PRIVACY
    ),
]


class DeviceName(StrEnum):
    """Where networks run."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"
    mps = "mps"
