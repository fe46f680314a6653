"""The card of a shared obfuscator: `README.md` for people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from locum._version import __version__
from locum.data import TableCodec
from locum.io import markdown_text
from locum.obfuscate.labels import UtilityLabels
from locum.release import ClaimEntry, FileEntry, FileName, Label, ShortText, Strict, parse_document
from locum.types import PrivacyClaim


class ObfuscatorSettings(Strict):
    """The public settings of `BaseObfuscator`: neither the seed nor a path of the holder's machine."""

    preset: Literal["calibrated", "seed"]
    max_epochs: Annotated[int, Field(ge=0)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    beta: Annotated[float, Field(gt=0)] | None = None
    authors_compat: bool = False
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.1


class UtilityEntry(Strict):
    """One utility attribute and the values that it takes, in order."""

    name: ShortText
    values: Annotated[tuple[Label, ...], Field(min_length=2, max_length=1000)]

    @model_validator(mode="after")
    def _sorted_and_of_one_kind(self) -> Self:
        # Codes are looked up by search, which needs order.
        if len({type(v) for v in self.values}) > 1 or list(self.values) != sorted(set(self.values)):
            raise ValueError("values must be all text or all whole numbers, each once and in order")
        return self


class TableData(Strict):
    """The columns of a table, as `TableCodec.to_dict` tells them."""

    kind: Literal["table"] = "table"
    columns: Annotated[tuple[dict[str, Any], ...], Field(min_length=1, max_length=100_000)]

    def codec(self) -> TableCodec:
        """The codec, or a FormatError."""
        return TableCodec.from_dict({"columns": [dict(column) for column in self.columns]})


class ImageData(Strict):
    """The shape of square images."""

    kind: Literal["image"] = "image"
    channels: Literal[1, 3]
    side: Annotated[int, Field(ge=16, le=4096, multiple_of=16)]


class ObfuscatorManifest(Strict):
    """All that a shared obfuscator says about itself."""

    format: Literal["locum-obfuscator"] = "locum-obfuscator"
    schema_version: Literal[1] = 1
    written_by: ShortText
    settings: ObfuscatorSettings
    data: Annotated[TableData | ImageData, Field(discriminator="kind")]
    utility: Annotated[tuple[UtilityEntry, ...], Field(min_length=1, max_length=64)]
    claim: ClaimEntry
    files: dict[FileName, FileEntry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        if len({entry.name for entry in self.utility}) < len(self.utility):
            raise ValueError("two utility attributes have one name")
        if self.claim.kind != "none":
            raise ValueError("an obfuscator proves nothing about the records behind it: its claim is of kind 'none'")
        if self.settings.authors_compat and self.settings.preset != "seed":
            raise ValueError("`authors_compat` belongs to the preset 'seed'")
        return self

    @property
    def labels(self) -> UtilityLabels:
        """The utility attributes as the rest of the toolkit knows them."""
        return UtilityLabels(
            tuple(entry.name for entry in self.utility), tuple(tuple(entry.values) for entry in self.utility)
        )

    def dumps(self) -> str:
        """Stable text: the same facts give the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False) + "\n"


def parse_obfuscator_manifest(raw: bytes) -> ObfuscatorManifest:
    """A checked manifest, or one sentence that says why not."""
    # Only `Document`'s fields for vectors are missing, and nothing there asks for them.
    found: ObfuscatorManifest = parse_document(raw, ObfuscatorManifest, "manifest.json", "obfuscator")  # type: ignore[type-var]
    return found


def obfuscator_claim(preset: str) -> PrivacyClaim:
    """What a shared obfuscator promises about the records that it was fitted on: nothing, and this is outside."""
    told = [
        "the records that it was fitted on: networks, categories, ends of ranges, class means and spreads were "
        "learnt from them, and nothing is proven about any of it",
        "utility labels: whatever it obfuscates carries them by design",
        "what an attacker finds out: measured, not proven",
        "repeated releases of one record: they add up, and their mean has less noise",
    ]
    if preset == "calibrated":
        told.append(
            "local differential privacy (`local_epsilon`) is about one release of a record that it was not fitted "
            "on, beside the labels written with it, with coins that nobody knows: it says nothing of these records"
        )
    else:
        told.append("local differential privacy: the noise of the preset 'seed' has none")
    return PrivacyClaim(kind="none", not_covered=tuple(told))


def written_by() -> str:
    """Program and version."""
    return f"locum {__version__}"


_SHOWN = 40


def render_obfuscator_card(manifest: ObfuscatorManifest) -> str:
    """Markdown with YAML front matter. Holds no record, no count of records and no measured figure.

    Names of columns and values came with the data: they are escaped, because a card is often shown as HTML.
    """
    claim = manifest.claim.claim()
    if isinstance(manifest.data, ImageData):
        kind, colours = "images", "grey" if manifest.data.channels == 1 else "in colour"
        takes = f"images of {manifest.data.side} x {manifest.data.side} pixels, {colours}"
    else:
        kind, names = "tables", manifest.data.codec().columns
        takes = "tables with the columns " + _listed(names)
    carries = "\n".join(
        f"| {markdown_text(entry.name)} | {_listed(map(str, entry.values))} |" for entry in manifest.utility
    )
    settings = "\n".join(
        f"| {markdown_text(name)} | {markdown_text(json.dumps(value))} |"
        for name, value in sorted(manifest.settings.model_dump().items())
        if value is not None
    )
    outside = "\n".join(f"- {markdown_text(item)}" for item in claim.not_covered)
    return f"""---
library_name: locum
license: other
pretty_name: "Locum obfuscator of {kind}"
tags:
- locum
- obfuscation
- privacy
---

# An obfuscator: keeps what is needed, hides the rest

It takes {takes}, and gives the same kind back. Two knobs are turned at each use: `noise` says how much of a record is
hidden (0 least), `lambda_` how plainly its utility labels are written (0 not at all, -50 surely).

```python
from locum.obfuscate import load_obfuscator

obfuscator = load_obfuscator("path/to/this/folder")
out = obfuscator.transform(records, utility, noise=5, lambda_=-50)
```

## What is kept

| utility attribute | values |
|---|---|
{carries}

## What it protects

**Claim: {claim.title}.** {claim.sentence()}

Not covered:

{outside}

Before records leave, measure what is left to find in them: `locum obfuscate trade-off`.

## Settings

| setting | value |
|---|---|
{settings}
| schema | {manifest.schema_version}, written by {markdown_text(manifest.written_by)} |
"""


def _listed(names: Iterable[str]) -> str:
    shown = [markdown_text(name) for name in names]
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return ", ".join(shown[:_SHOWN] + more)
