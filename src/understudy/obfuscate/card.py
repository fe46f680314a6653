"""The card of a shared obfuscator: `README.md` for people."""

from __future__ import annotations

import json
from collections.abc import Iterable

from understudy.obfuscate.manifest import ImageData, ObfuscatorManifest
from understudy.release.card import _text

__all__ = ["render_obfuscator_card"]

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
    carries = "\n".join(f"| {_text(entry.name)} | {_listed(map(str, entry.values))} |" for entry in manifest.utility)
    settings = "\n".join(
        f"| {_text(name)} | {_text(json.dumps(value))} |"
        for name, value in sorted(manifest.settings.model_dump().items())
        if value is not None
    )
    outside = "\n".join(f"- {_text(item)}" for item in claim.not_covered)
    return f"""---
library_name: understudy
license: other
pretty_name: "Understudy obfuscator of {kind}"
tags:
- understudy
- obfuscation
- privacy
---

# An obfuscator: keeps what is needed, hides the rest

It takes {takes}, and gives the same kind back. Two knobs are turned at each use: `noise` says how much of a record is
hidden (0 least), `lambda_` how plainly its utility labels are written (0 not at all, -50 surely).

```python
from understudy.obfuscate import load_obfuscator

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

Before records leave, measure what is left to find in them: `understudy obfuscate trade-off`.

## Settings

| setting | value |
|---|---|
{settings}
| schema | {manifest.schema_version}, written by {_text(manifest.written_by)} |
"""


def _listed(names: Iterable[str]) -> str:
    shown = [_text(name) for name in names]
    more = [f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return ", ".join(shown[:_SHOWN] + more)
