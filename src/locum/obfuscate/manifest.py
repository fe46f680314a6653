"""The manifest of a saved obfuscator, its claim, and its card, `README.md`."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from locum._version import __version__
from locum.data import TableCodec
from locum.io import markdown_list, markdown_sentence, markdown_text
from locum.obfuscate.labels import UtilityLabels
from locum.release import FileEntry, FileName, Label, ShortText, Strict, parse_document
from locum.types import PrivacyClaim


class ObfuscatorSettings(Strict):
    """The public settings of `BaseObfuscator`: no seed and no path."""

    preset: Literal["substitute", "calibrated", "paper"]
    max_epochs: Annotated[int, Field(ge=0)] | None = None
    batch_size: Annotated[int, Field(ge=1)] | None = None
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    beta: Annotated[float, Field(gt=0)] | None = None
    authors_compat: bool = False
    validation_share: Annotated[float, Field(ge=0, lt=1)] = 0.1


class UtilityEntry(Strict):
    """One utility attribute and its values, in order."""

    name: ShortText
    values: Annotated[tuple[Label, ...], Field(min_length=2, max_length=1000)]

    @model_validator(mode="after")
    def _sorted_and_of_one_kind(self) -> Self:
        # Codes are looked up by binary search, which needs sorted values.
        if len({type(v) for v in self.values}) > 1 or list(self.values) != sorted(set(self.values)):
            raise ValueError("values must be all text or all whole numbers, each once and in order")
        return self


class TableData(Strict):
    """The columns of a table, as `TableCodec.to_dict` gives them."""

    kind: Literal["table"] = "table"
    columns: Annotated[tuple[dict[str, Any], ...], Field(min_length=1, max_length=100_000)]

    def codec(self) -> TableCodec:
        """The codec, or a FormatError."""
        return TableCodec.from_dict({"columns": [dict(column) for column in self.columns]})


class ImageData(Strict):
    """The shape of square images, and what images are substituted by."""

    kind: Literal["image"] = "image"
    channels: Literal[1, 3]
    side: Annotated[int, Field(ge=16, le=4096, multiple_of=16)]
    pool: Literal["collages", "donors"] | None = None


class ObfuscatorManifest(Strict):
    """All that a saved obfuscator says about itself."""

    format: Literal["locum-obfuscator"] = "locum-obfuscator"
    schema_version: Literal[1] = 1
    written_by: ShortText
    settings: ObfuscatorSettings
    data: Annotated[TableData | ImageData, Field(discriminator="kind")]
    utility: Annotated[tuple[UtilityEntry, ...], Field(min_length=1, max_length=64)]
    claim: PrivacyClaim
    files: dict[FileName, FileEntry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len({entry.name for entry in self.utility}) < len(self.utility):
            raise ValueError("two utility attributes have the same name")
        if self.claim.kind != "none":
            raise ValueError("an obfuscator proves nothing about its training records: its claim is of kind 'none'")
        if self.settings.authors_compat and self.settings.preset != "paper":
            raise ValueError("`authors_compat` belongs to the preset 'paper'")
        pool = self.data.pool if isinstance(self.data, ImageData) else None
        if (self.settings.preset == "substitute") != (pool is not None):
            raise ValueError("a pool of images belongs to the preset 'substitute', and to no other")
        return self

    @property
    def labels(self) -> UtilityLabels:
        """The utility attributes as `UtilityLabels`."""
        return UtilityLabels(
            tuple(entry.name for entry in self.utility), tuple(tuple(entry.values) for entry in self.utility)
        )

    def dumps(self) -> str:
        """Stable text: the same manifest gives the same bytes."""
        return json.dumps(self.model_dump(mode="json"), indent=1, sort_keys=True, allow_nan=False) + "\n"


def parse_obfuscator_manifest(raw: bytes) -> ObfuscatorManifest:
    """A checked manifest, or a FormatError."""
    return parse_document(raw, ObfuscatorManifest, "manifest.json", "obfuscator")


def obfuscator_claim(preset: str, pool: str | None = None) -> PrivacyClaim:
    """What a saved obfuscator claims about the records it was fitted on: nothing; and what is not covered."""
    not_covered = [
        "the records it was fitted on: networks, categories, range limits, class means and covariances were learned "
        "from them, and nothing is proven about any of these"
        if pool is None
        else shown_parts(pool),
        "utility labels: obfuscated records carry them by design",
        "what an attacker learns: measured, not proven",
        "repeated releases of one record: they add up, and their mean has less noise",
    ]
    if preset == "substitute":
        not_covered.append(
            "local differential privacy: `local_epsilon` is about one release of an image that is neither a donor "
            "nor one it was fitted on, given the labels written with it; it says nothing about these images"
        )
    elif preset == "calibrated":
        not_covered.append(
            "local differential privacy: `local_epsilon` is about one release of a record that it was not fitted on, "
            "given the labels written with it and a seed that nobody knows; it says nothing about these records"
        )
    else:
        not_covered.append("local differential privacy: the noise of the preset 'paper' has none")
    return PrivacyClaim(kind="none", not_covered=tuple(not_covered))


def shown_parts(pool: str) -> str:
    """What a pool shows of the images in it, for a claim."""
    if pool == "donors":
        return (
            "donors: they are shown as they are, to anyone; who passed them declared that they may be. Of the images "
            "it was fitted on only the values of their utility labels are kept"
        )
    return (
        "the images it was fitted on: a quarter of each may be shown as it is, in a collage, to anyone; whoever has "
        "the image recognizes it, and someone may be recognized by a quarter; several images of one person give "
        "several quarters, unless the fit was told whose they are"
    )


def written_by() -> str:
    """Program and version, as manifests and claims name them.

    Returns
    -------
    str
        Such as "locum 0.1".

    Examples
    --------
    >>> from locum.obfuscate import written_by
    >>> written_by().split()[0]
    'locum'
    """
    return f"locum {__version__}"


def render_obfuscator_card(manifest: ObfuscatorManifest) -> str:
    """Markdown with YAML front matter. It holds no record, no count of records and no measured figure.

    Names of columns and values come from the data: they are escaped, because a card is often shown as HTML.
    """
    claim = manifest.claim
    if isinstance(manifest.data, ImageData):
        kind, colors = "images", "grayscale" if manifest.data.channels == 1 else "in color"
        takes = f"images of {manifest.data.side} x {manifest.data.side} pixels, {colors}"
    else:
        kind, names = "tables", manifest.data.codec().columns
        takes = "tables with the columns " + markdown_list(names)
    carries = "\n".join(
        f"| {markdown_text(entry.name)} | {markdown_list(map(str, entry.values))} |" for entry in manifest.utility
    )
    settings = "\n".join(
        f"| {markdown_text(name)} | {markdown_text(json.dumps(value))} |"
        for name, value in sorted(manifest.settings.model_dump().items())
        if value is not None
    )
    outside = "\n".join(f"- {markdown_sentence(item)}" for item in claim.not_covered)
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

It takes {takes}, and returns the same kind. Two knobs are set at each use: `noise` is how much of a record is hidden
(0 hides least), `lambda_` is how clearly its utility labels are written (0 not at all, -50 fully).

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

Before you share obfuscated records, measure what attackers still find in them: `locum obfuscate trade-off`.

## Settings

| setting | value |
|---|---|
{settings}
| schema | {manifest.schema_version}, written by {markdown_text(manifest.written_by)} |
"""
