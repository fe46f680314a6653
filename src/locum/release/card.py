"""The card of a release: its `README.md`, in the form that Hugging Face shows."""

from __future__ import annotations

import json

from locum.io import markdown_sentence, markdown_text
from locum.release.manifest import Manifest

KINDS = {
    "network": "a decoder network that turns noise and a class into a new vector, without limit",
    "gaussian": "class means and one shared covariance, which can be sampled without limit",
    "mixture": "decoders of several sites; each vector comes from one of them, drawn by the weights of its class",
    "rows": "a fixed table of vectors, each drawn at most once",
}


def render_card(manifest: Manifest) -> str:
    """Markdown with YAML front matter, without records, exact counts or measured figures.

    Text that came with the data (class names, attribute names) is escaped: a card is often shown as HTML.
    """
    claim = manifest.claim
    shown = [markdown_text(name) for name in manifest.class_names[:50]]
    if len(manifest.class_names) > 50:
        shown.append(f"and {len(manifest.class_names) - 50} more")
    conditions = "; ".join(
        f"{markdown_text(c.name)} ({', '.join(markdown_text(v) for v in c.values[:20])})" for c in manifest.conditions
    )
    settings = "\n".join(
        f"| {markdown_text(key)} | {markdown_text(json.dumps(value, sort_keys=True))} |"
        for key, value in sorted(manifest.settings.items())
    )
    embedding = manifest.embedding
    needs = f"{markdown_text(embedding.backbone)}, {embedding.dim} features"
    if embedding.preprocessing:
        needs += f", preprocessing {markdown_text(embedding.preprocessing)}"
    limits = _listed("Not covered:", claim.not_covered)
    if claim.assumptions:
        limits = _listed("Assumed:", claim.assumptions) + "\n\n" + limits
    front = "\n".join(
        [
            "---",
            "library_name: locum",
            "license: unknown",
            "pretty_name: " + json.dumps(f"Locum release ({manifest.generator})"),
            "tags:",
            "- locum",
            "- synthetic-data",
            "- privacy",
            "- embeddings",
            "---",
        ]
    )
    warning = f"\n> **{claim.warning}**\n" if claim.warning else ""
    return f"""{front}

# A stand-in for private data
{warning}
This folder holds {KINDS[manifest.decoder.kind]}. It was made by Locum's `{markdown_text(manifest.generator)}`.

```python
import locum

release = locum.load("path/to/this/folder")
X, y = release.sample({"" if manifest.kind == "data" else "1000"})
```

## What it protects

**Claim: {claim.title}.** {claim.sentence()}

{limits}

## What it holds

| | |
|---|---|
| classes | {", ".join(shown)} |
| conditions | {conditions or "none"} |
| vectors | {needs} |
| space | `{manifest.space}` (bring real vectors into it with `release.transform(X)`) |
| schema | {manifest.schema_version}, written by {markdown_text(manifest.written_by)} |

## Settings

| setting | value |
|---|---|
{settings}
"""


def _listed(title: str, items: tuple[str, ...]) -> str:
    return f"{title}\n\n" + "\n".join(f"- {markdown_sentence(item)}" for item in items)
