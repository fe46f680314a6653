"""Options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing output.")]
DATA_HELP = "Vectors (.npz, .parquet, .safetensors, .csv) or images (see `embed`); DATA#train picks a split."
BACKBONE_HELP = "For images: the place of the release's model, if it is a custom one (onnx:FILE or hf:FOLDER)."


def listed(text: str) -> list[str]:
    """The parts of A,B,C; empty parts are dropped."""
    return [name.strip() for name in text.split(",") if name.strip()]


class GeneratorName(StrEnum):
    """Generators by their name on the command line."""

    auto = "auto"
    gaussian = "gaussian"
    cvae = "cvae"
    cgan = "cgan"
    ksame = "ksame"


class UnitName(StrEnum):
    """Whose presence differential privacy hides."""

    record = "record"
    subject = "subject"


class HeadName(StrEnum):
    """Classifiers that can be trained on samples."""

    linear = "linear"
    mlp = "mlp"


class RelationName(StrEnum):
    """The neighboring relation of differential privacy."""

    add_or_remove = "add-or-remove"
    replace_one = "replace-one"
