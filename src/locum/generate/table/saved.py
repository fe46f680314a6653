"""A private table as a folder: manifest, safetensors and card, written atomically and checked when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError, model_validator

from locum._version import __version__
from locum.accounting import Gaussian, epsilon_of, events_from_json
from locum.errors import ConfigError, FormatError, LocumError, NotFittedError
from locum.generate.table.columns import CategoryColumn
from locum.generate.table.domain import MOST_COLUMNS, MOST_LABELS, TableDomain
from locum.generate.table.learner import shares_of
from locum.generate.table.model import MOST_SAMPLES, TableModel
from locum.generate.table.tree import order_of
from locum.io import (
    MANIFEST,
    check_output_folder,
    markdown_list,
    markdown_sentence,
    markdown_text,
    write_folder_atomically,
)
from locum.release import (
    CARD,
    MAX_MANIFEST_BYTES,
    FileEntry,
    FileName,
    ShortText,
    Strict,
    entry_of,
    first_fault,
    parse_document,
    parse_tensors,
    read_checked_folder,
)
from locum.types import PrivacyClaim, Relation, Unit, at_least

if TYPE_CHECKING:
    from locum.generate.table.private_table import PrivateTable

Array = npt.NDArray[Any]
TENSORS = "table.safetensors"
# Rounding of probabilities that sum to 1.
_CLOSE = 1e-6


class TableSettings(Strict):
    """The public settings of a fit: no seed and no path."""

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)]
    unit: Unit
    relation: Relation
    rows_per_subject: Annotated[int, Field(ge=1, le=1000)]
    noise_multiplier: Annotated[float, Field(gt=0)]


class TableManifest(Strict):
    """All that a private table says about itself."""

    format: Literal["locum-private-table"] = "locum-private-table"
    schema_version: Literal[1] = 1
    written_by: ShortText
    settings: TableSettings
    domain: dict[str, Any]
    utility: ShortText
    parents: Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(min_length=1, max_length=MOST_COLUMNS)]
    # The noisy number of rows.
    count: Annotated[float, Field(ge=0, le=MOST_SAMPLES)]
    claim: PrivacyClaim
    files: dict[FileName, FileEntry] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.claim.kind == "k-anonymity" or (self.claim.kind == "none") != self.claim.test:
            raise ValueError("a private table claims differential privacy, or is a test")
        if self.claim.dp is not None and (
            self.claim.dp.epsilon > self.settings.epsilon * (1 + 1e-9)
            or self.claim.dp.delta > self.settings.delta * (1 + 1e-9)
            or self.claim.unit != self.settings.unit
            or self.claim.dp.relation != self.settings.relation
        ):
            raise ValueError("the claim is not the one that the settings lead to")
        if len(order_of(self.parents)) != len(self.parents) or self.parents.count(-1) != 1:
            raise ValueError("`parents` is not a tree")
        return self

    def parsed_domain(self) -> TableDomain:
        """The domain, with the utility as a column of categories; or a FormatError."""
        domain = TableDomain.from_dict(self.domain)
        if len(domain.columns) != len(self.parents) + 1:
            raise FormatError("manifest.json needs one entry of `parents` for each column besides the utility.")
        label = [column for column in domain.columns if column.name == self.utility]
        if not label or not isinstance(label[0], CategoryColumn) or not 2 <= label[0].cells <= MOST_LABELS:
            raise FormatError(f"The utility must be a column with 2 to {MOST_LABELS} categories.")
        return domain

    def dumps(self) -> str:
        """Stable text: the same manifest gives the same bytes. Columns keep their order."""
        return json.dumps(self.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"


@dataclass(frozen=True, slots=True, eq=False)
class SavedTable:
    """A private table read from a folder.

    Attributes
    ----------
    model
        The `TableModel`, ready for `sample`.
    manifest
        What the folder says about it.
    transcript
        The noisy counts that all of it follows from.
    fingerprint
        SHA-256 of the manifest.

    Examples
    --------
    >>> from locum.generate.table import open_table
    >>> saved = open_table("private-table")  # doctest: +SKIP
    >>> saved.model.sample(100), saved.claim.title  # doctest: +SKIP
    """

    model: TableModel
    manifest: TableManifest
    transcript: npt.NDArray[np.float32]
    fingerprint: str

    @property
    def claim(self) -> PrivacyClaim:
        """What the folder and rows from `sample` claim."""
        return self.manifest.claim


def save_table(
    table: PrivateTable, path: str | Path, *, assumptions: tuple[str, ...] = (), overwrite: bool = False
) -> SavedTable:
    """Write a fitted private table as a folder, atomically; the ledger notes its fingerprint before it is in place.

    The folder holds the declared domain, the noisy counts and what follows from them. Nothing else was learned from
    records.

    Parameters
    ----------
    table
        A fitted private table.
    path
        The folder.
    assumptions
        What else the claim assumes, before all else.
    overwrite
        Replace an existing folder of the kind.

    Returns
    -------
    SavedTable
        What was written, as it is read back.

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> from locum.generate.table import PrivateTable, TableDomain, open_table, save_table
    >>> from locum.types import DP
    >>> columns = {"job": {"values": ["cook", "nurse"]}, "smokes": {"values": [0, 1]}}
    >>> domain = TableDomain.from_dict({"columns": columns})
    >>> frame = pd.DataFrame({"job": ["cook", "nurse"] * 50, "smokes": [0, 1, 1, 1] * 25})
    >>> table = PrivateTable(domain, "smokes", DP(1.0, 1e-5), ledger="saved-table.sqlite").fit(frame)
    >>> saved = save_table(table, "saved-table")
    >>> open_table("saved-table").fingerprint == saved.fingerprint
    True
    """
    if not hasattr(table, "model_"):
        raise NotFittedError("This PrivateTable is not fitted yet; call `fit` first.")
    from safetensors.numpy import save

    model, claim, budget = table.model_, table.claim_, table.plan_.privacy
    claim = replace(claim, assumptions=(*assumptions, *claim.assumptions))
    try:
        manifest = TableManifest(
            written_by=f"locum {__version__}",
            settings=TableSettings(
                epsilon=budget.epsilon,
                delta=budget.delta,
                unit=budget.unit,
                relation=budget.relation,
                rows_per_subject=table.rows_per_subject_,
                noise_multiplier=table.plan_.noise_multiplier,
            ),
            domain=model.domain.to_dict(),
            utility=model.utility,
            parents=model.parents,
            count=min(max(round(model.count, 1), 0.0), float(MOST_SAMPLES)),
            claim=claim,
        )
    except ValidationError as error:
        place, fault = first_fault(error)
        raise ConfigError(f"The table cannot be saved because of {place!r}: {fault}.") from None
    numbers = save({name: np.ascontiguousarray(value) for name, value in _tensors(model, table.transcript_).items()})
    card = render_table_card(manifest).encode()
    entries = {TENSORS: entry_of(numbers), CARD: entry_of(card)}
    about = manifest.model_copy(update={"files": entries}).dumps().encode()
    if len(about) > MAX_MANIFEST_BYTES:
        raise ConfigError("The table cannot be saved: its columns have too many categories. Merge rare ones.")
    # Read it back first, so that nothing is written that cannot be read.
    parsed, _ = _parse(about)
    restored, transcript = _restored(parsed, parse_tensors(numbers, TENSORS)[0])
    fingerprint = entry_of(about).sha256
    check_output_folder(Path(path), overwrite=overwrite)
    table._bind(fingerprint)
    write_folder_atomically(Path(path), [(TENSORS, numbers), (CARD, card), (MANIFEST, about)], overwrite=overwrite)
    return SavedTable(restored, parsed, transcript, fingerprint)


def open_table(path: str | Path) -> SavedTable:
    """Read a folder after checking all of it; no code in it runs.

    The checks show that the folder is consistent, not who made it or from which data. Its ledger's holder can tell if
    the fingerprint was paid for.

    Parameters
    ----------
    path
        A folder that `save_table` wrote.

    Returns
    -------
    SavedTable
        The model, its manifest and its fingerprint.

    Raises
    ------
    ReleaseError
        If the folder is damaged or hostile.

    Examples
    --------
    >>> from locum.generate.table import open_table
    >>> open_table("private-table").model.sample(100)  # doctest: +SKIP
    """
    manifest, files, fingerprint = read_checked_folder(Path(path), "a private table", _parse)
    model, transcript = _restored(manifest, parse_tensors(files[TENSORS], TENSORS)[0])
    return SavedTable(model, manifest, transcript, fingerprint)


def is_table(path: str | Path) -> bool:
    """Whether a folder looks like a private table: it has the file of one. Nothing else of it is checked.

    Parameters
    ----------
    path
        A folder.

    Returns
    -------
    bool
        False for anything else, and if nothing can be read.

    Examples
    --------
    >>> from locum.generate.table import is_table
    >>> is_table("nowhere")
    False
    """
    # By the name of a file alone: who opens the folder reads each file once.
    return (Path(path) / TENSORS).is_file()


def _tensors(model: TableModel, transcript: Array) -> dict[str, Array]:
    out: dict[str, Array] = {"label": model.label, "transcript": transcript}
    for i, parts in enumerate(zip(model.groups, model.conditionals, model.within, strict=True)):
        out |= {f"{name}.{i}": part for name, part in zip(("groups", "conditionals", "within"), parts, strict=True)}
    return out


def _parse(raw: bytes) -> tuple[TableManifest, Mapping[str, FileEntry]]:
    manifest = parse_document(raw, TableManifest, "manifest.json", "private table")
    if set(manifest.files) != {TENSORS, CARD}:
        raise FormatError(f"The manifest of a private table must list {TENSORS} and {CARD}, and nothing else.")
    _check_claim(manifest)
    return manifest, manifest.files


def _check_claim(manifest: TableManifest) -> None:
    """Refuse a claim that its own events exceed; only a ledger can tell whether they are what was paid for."""
    dp = manifest.claim.dp
    if dp is None:
        return
    try:
        events = tuple(events_from_json(dp.events))
        cost = epsilon_of(events, dp.delta, dp.relation)
        planned = Gaussian(manifest.settings.noise_multiplier, sums=len(shares_of(manifest.parsed_domain())))
    except ConfigError as error:
        raise FormatError(f"manifest.json makes an impossible claim: {error}") from None
    if events != (planned,):
        raise FormatError("manifest.json claims other noise than its settings name: do not trust this folder.")
    # Another processor may round the last digits of a sum differently.
    if cost > dp.epsilon * (1 + 1e-6):
        raise FormatError(
            f"manifest.json claims epsilon {at_least(dp.epsilon)}, but its events cost {at_least(cost)}: do not "
            "trust this folder."
        )


def _restored(manifest: TableManifest, tensors: Mapping[str, Array]) -> tuple[TableModel, npt.NDArray[np.float32]]:
    """The model; every tensor has the shape, type and values that the manifest calls for."""
    domain, left = manifest.parsed_domain(), dict(tensors)
    cells = {column.name: column.cells for column in domain.columns}
    labels = cells.pop(manifest.utility)
    label = _take(left, "label", (labels,), "float64")
    _check_odds(label, "label")
    transcript = _take(left, "transcript", (None,), "float32")
    if not np.isfinite(transcript).all():
        raise FormatError("The tensor 'transcript' must hold finite numbers.")
    groups = []
    for i, size in enumerate(cells.values()):
        group = _take(left, f"groups.{i}", (size,), "int64")
        if not np.array_equal(np.unique(group), np.arange(int(group.max()) + 1 if 0 <= group.max() < size else 0)):
            raise FormatError(f"The groups of column {i + 1} must be numbered from 0 without gaps.")
        groups.append(group)
    conditionals, within = [], []
    for i, (parent, group) in enumerate(zip(manifest.parents, groups, strict=True)):
        above = 1 if parent < 0 else int(groups[parent].max()) + 1
        odds = _take(left, f"conditionals.{i}", (labels, above, int(group.max()) + 1), "float64")
        _check_odds(odds, f"conditionals.{i}")
        conditionals.append(odds)
        spread = _take(left, f"within.{i}", group.shape, "float64")
        if not np.isfinite(spread).all() or (spread < 0).any():
            raise FormatError(f"The tensor 'within.{i}' must hold probabilities.")
        if np.abs(np.bincount(group, weights=spread) - 1).max() > _CLOSE:
            raise FormatError(f"The probabilities of each group in 'within.{i}' must sum to 1.")
        within.append(spread)
    if left:
        raise FormatError(f"Nothing uses the tensor {sorted(left)[0][:80]!r}: do not trust this folder.")
    # Rounded sums would be refused by the sampler.
    model = TableModel(
        domain, manifest.utility, manifest.parents, tuple(groups), label / label.sum(), tuple(conditionals),
        tuple(within), manifest.count,
    )  # fmt: skip
    return model, transcript


def _take(left: dict[str, Array], name: str, shape: tuple[int | None, ...], dtype: str) -> Array:
    if name not in left:
        raise FormatError(f"The tensor {name!r} is missing.")
    value = left.pop(name)
    fits = len(shape) == value.ndim and all(a in (None, b) for a, b in zip(shape, value.shape, strict=True))
    if not fits or str(value.dtype) != dtype:
        wanted = tuple("any" if n is None else n for n in shape)
        raise FormatError(f"The tensor {name!r} must be {dtype} of shape {wanted}; got {value.dtype} {value.shape}.")
    return value


def _check_odds(odds: Array, name: str) -> None:
    if not np.isfinite(odds).all() or (odds < 0).any() or np.abs(odds.sum(axis=-1) - 1).max() > _CLOSE:
        raise FormatError(f"The tensor {name!r} must hold probabilities that sum to 1.")


def render_table_card(manifest: TableManifest) -> str:
    """Markdown with YAML front matter. It holds no record and no exact count; names are escaped."""
    claim, domain = manifest.claim, TableDomain.from_dict(manifest.domain)
    outside = "\n".join(f"- {markdown_sentence(item)}" for item in claim.not_covered)
    assumed = "\n".join(f"- {markdown_sentence(item)}" for item in claim.assumptions)
    settings = "\n".join(
        f"| {markdown_text(name)} | {markdown_text(json.dumps(value))} |"
        for name, value in sorted(manifest.settings.model_dump().items())
    )
    return f"""---
library_name: locum
license: other
pretty_name: "Locum private table"
tags:
- locum
- differential-privacy
- tabular
---

# A private table: rows that were never anybody's

It draws rows with the columns {markdown_list(domain.names)}. The label {markdown_text(manifest.utility)} is part of
every count that it was made from.

```python
from locum.generate.table import open_table

rows = open_table("path/to/this/folder").model.sample(1000)
```

## What it protects

**Claim: {claim.title}.** {claim.sentence()}

{"It assumes:" if assumed else ""}

{assumed}

Not covered:

{outside}
- rows that are drawn given the true labels of real records (`locum obfuscate apply`): their number and their labels
  are those of the records

## Settings

| setting | value |
|---|---|
{settings}
| schema | {manifest.schema_version}, written by {markdown_text(manifest.written_by)} |
"""


def paid_table(path: Path) -> bool:
    """Whether a folder is an intact private table that a ledger paid for.

    Parameters
    ----------
    path
        A folder.

    Returns
    -------
    bool
        False for anything else.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.generate.table import paid_table
    >>> paid_table(Path("nowhere"))
    False
    """
    try:
        return is_table(path) and open_table(path).claim.dp is not None
    except LocumError:
        return False
