"""Options that several verbs share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
DATA_HELP = "Vectors (.npz, .parquet, .safetensors, .csv) or images (see `embed`); DATA#train picks a split."
BACKBONE_HELP = "For images: where the release's model is, if it is one of your own (onnx:FILE or hf:FOLDER)."


def listed(text: str) -> list[str]:
    """What is typed as A,B,C; empty places are left out."""
    return [name.strip() for name in text.split(",") if name.strip()]


class GeneratorName(StrEnum):
    """Generators by the name that people type."""

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
    """Classifiers that can be put on samples."""

    linear = "linear"
    mlp = "mlp"


class RelationName(StrEnum):
    """What neighbours are, for differential privacy."""

    add_or_remove = "add-or-remove"
    replace_one = "replace-one"
