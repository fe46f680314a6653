"""`obfuscate fit --epsilon` and `obfuscate sample`: a table whose sampled rows carry a guarantee."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from locum.accounting import Ledger, check_one_ledger, paying_for
from locum.audit import ProvenLimit
from locum.data import ALL, is_drawn, ledger_for, place_of, read_text_frame
from locum.embed import ImageTable
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate.table import (
    CategoryColumn,
    NumberColumn,
    PrivateTable,
    SavedTable,
    TableDomain,
    open_table,
    save_table,
)
from locum.io import check_output_file, check_output_folder, hold_folder, split_path, write_bytes
from locum.obfuscate import written_by
from locum.recipes.fit_privacy import (
    LEAST_UNITS,
    MOST_CLASSES,
    ConfirmClasses,
    check_not_lost,
    paid_limit,
)
from locum.recipes.inputs import checkpoint_path, choose_split
from locum.recipes.obfuscate_data import check_place, columns_of, joined, read_rows, write_table
from locum.types import DP, SUBJECT_COLUMNS, PrivacyClaim, seems_subject

DOMAIN_READ = (
    "given that these categories and ranges are public: they, whether numbers are whole and whether values are "
    f"missing were read from the data, at most {MOST_CLASSES} categories per column with {LEAST_UNITS} units or more "
    "each, and the holder confirmed that all this is public"
)
# What accompanies rows that were drawn given true labels.
_GIVEN_LABELS = (
    "utility labels: each row carries the true label of one record, by design",
    "whether a record is included: there is a row for each",
    "the guarantee of the private table: it is about rows from `locum obfuscate sample`, which this is not",
)
UnitChoice = Literal["auto", "record", "subject"]


@dataclass(frozen=True, slots=True)
class PrivateTableSummary:
    """What `fit_private_table` made. It includes the number of records: do not share it.

    Attributes
    ----------
    table, fingerprint
        Its folder, and the SHA-256 of its manifest.
    utility
        The label.
    columns
        The other columns.
    left_out
        Columns of the data that are not in the domain.
    tree
        The column that each column depends on besides the label; None for the first.
    records
        How many records were used.
    claim
        What rows from `sample` claim.
    limit
        What that means for any attack.
    holding, left
        The name of the data in the ledger, and the epsilon and delta that are left for it.
    megabytes, seconds
        Size of the folder, and how long the fit took.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import fit_private_table
    >>> from locum.types import DP
    >>> pd.DataFrame({"age": range(40), "job": ["cook", "nurse"] * 20}).to_csv("crew.csv", index=False)
    >>> given = {"utility": "job", "privacy": DP(1, 1e-6), "domain_public": True, "holding": "crew"}
    >>> summary = fit_private_table("crew.csv", Path("crew"), **given)
    >>> summary.columns, summary.claim.kind
    (('age',), 'dp')
    """

    table: str
    fingerprint: str
    utility: str
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    tree: dict[str, str | None]
    records: int
    claim: PrivacyClaim
    limit: ProvenLimit
    holding: str
    left: tuple[float, float]
    megabytes: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        facts = {
            name: getattr(self, name) for name in ("table", "fingerprint", "utility", "tree", "records", "holding")
        }
        return facts | {
            "columns": list(self.columns),
            "left_out": list(self.left_out),
            "claim": self.claim.to_dict(),
            "limit": self.limit.to_dict(),
            "left": dict(zip(("epsilon", "delta"), self.left, strict=True)),
            "megabytes": round(self.megabytes, 3),
            "seconds": round(self.seconds, 2),
        }


def fit_private_table(
    data: str,
    out: Path,
    *,
    utility: str,
    privacy: DP,
    domain: str | Path | None = None,
    domain_public: bool = False,
    confirm_domain: ConfirmClasses | None = None,
    subject: str | None = None,
    unit: UnitChoice = "auto",
    rows_per_subject: int = 1,
    drop: Sequence[str] = (),
    ledger: Path | None = None,
    holding: str = "default",
    overwrite: bool = False,
    resume: bool = True,
) -> PrivateTableSummary:
    """Learn a table privately, pay for it from the ledger of the data, and write the folder `out`.

    Parameters
    ----------
    data
        A .csv or .parquet table, or the folder of UCI Adult or UCI Diabetes. With splits, "train" is used.
    out
        Folder to write.
    utility
        The column that must stay useful: the label.
    privacy
        The budget; its unit is replaced unless `unit` names one.
    domain
        A JSON file that declares the columns; columns of the data that it does not name are left out.
    domain_public
        Take categories and ranges from the data, and say that they are public; the claim then says so first.
    confirm_domain
        Asked about what was read from the data, in place of `domain_public`; None: nobody can be asked.
    subject
        The column that says whose a record is. It is not part of the table.
    unit
        "record", "subject", or "auto": the subject, if `subject` or the name of a column says whose a record is.
    rows_per_subject
        How many rows' worth a subject may add.
    drop
        Further columns to leave out.
    ledger
        The ledger; None: the one beside the data.
    holding
        Name of the data holding whose budget pays.
    overwrite
        Replace `out` if it is such a folder.
    resume
        Keep a private checkpoint beside the data, so that a killed fit does not pay twice.

    Returns
    -------
    PrivateTableSummary
        What was made. Private: it includes the number of records.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import fit_private_table
    >>> from locum.types import DP
    >>> pd.DataFrame({"age": range(40), "job": ["cook", "nurse"] * 20}).to_csv("team.csv", index=False)
    >>> given = {"utility": "job", "privacy": DP(1, 1e-6), "domain_public": True, "holding": "team"}
    >>> fit_private_table("team.csv", Path("team"), **given).claim.assumptions[0][:49]
    'given that these categories and ranges are public'
    """
    check_output_folder(out, overwrite=overwrite)
    if domain is not None and domain_public:
        raise ConfigError("`domain` (--domain) declares the columns: leave out `domain_public` (--domain-public).")
    if domain is None and not domain_public and confirm_domain is None:
        raise PrivacyError(
            "Under differential privacy the categories and ranges of columns are private too: declare them with "
            "`domain` (--domain FILE; `locum obfuscate domain DATA -o FILE` drafts one), or confirm that those in "
            "the data are public with `domain_public` (--domain-public)."
        )
    if is_drawn(data):
        raise PrivacyError(
            f"{data!r} is a random part of the data, and which records are in it depends on how many there are: a "
            "guarantee needs all of them, so leave the brackets out."
        )
    declared = None if domain is None else TableDomain.from_file(domain)
    if declared is not None and utility not in declared.names:
        raise ConfigError(f"The domain {str(domain)!r} does not declare {utility!r}, which --utility names.")
    # Before anything is paid for: whoever comes second is refused at once.
    with hold_folder(out):
        rows = _table(data)
        for name in (utility, *drop, *([] if subject is None else [subject])):
            if name not in columns_of(rows):
                raise ConfigError(f"{data!r} has no column {name!r}: it has {', '.join(columns_of(rows)[:40])}.")
        owner = _owner(columns_of(rows), subject, unit)
        privacy = replace(privacy, unit="record" if owner is None else "subject")
        frame = rows.drop(columns=[*dict.fromkeys([*drop, *([] if owner is None else [owner])])])
        units = None if owner is None else rows[owner]
        if declared is None:
            confirm = None if domain_public else confirm_domain
            declared = _public_domain(frame, units, utility, privacy.unit, confirm)
        else:
            if lacking := [name for name in declared.names if name not in frame.columns]:
                raise DataError(
                    f"{data!r} lacks the column {lacking[0]!r}, which the domain declares, or --drop names it."
                )
            frame = frame[list(declared.names)]
        place = ledger or ledger_for(data)
        paid_for = place_of(data)
        check_one_ledger(paid_for, place)
        check_not_lost(data, place)
        table = PrivateTable(
            declared, utility, privacy, rows_per_subject=rows_per_subject, ledger=place, holding=holding
        )
        chosen = {name: str(value) for name, value in table.get_params(deep=False).items()}
        table.checkpoint = checkpoint_path(data, "table", chosen, ledger=place) if resume else None
        started = time.monotonic()
        with paying_for(paid_for):
            table.fit(frame, units)
        assumptions = () if domain is not None else (DOMAIN_READ,)
        saved = save_table(table, out, assumptions=assumptions, overwrite=overwrite)
        table.remove_checkpoint()
    others = [name for name in declared.names if name != utility]
    parents = [None if parent < 0 else others[parent] for parent in saved.model.parents]
    return PrivateTableSummary(
        table=str(out),
        fingerprint=saved.fingerprint,
        utility=utility,
        columns=tuple(others),
        left_out=tuple(name for name in columns_of(rows) if name not in declared.names),
        tree=dict(zip(others, parents, strict=True)),
        records=len(rows),
        claim=saved.claim,
        limit=paid_limit(saved.claim, place, DOMAIN_READ if assumptions else None),
        holding=holding,
        left=Ledger(place).holding(holding).left,
        megabytes=sum(entry.bytes for entry in saved.manifest.files.values()) / 1e6,
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True, slots=True)
class SampledSummary:
    """What `sample_table` wrote; the claim is also in a file beside it.

    Attributes
    ----------
    file, claim_file
        The rows, and the file with their claim.
    rows
        How many there are.
    columns
        Their columns.
    claim
        The claim of the private table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import sample_table
    >>> sample_table(Path("private-table"), Path("rows.csv"), n=1000).claim_file  # doctest: +SKIP
    'rows.claim.json'
    """

    file: str
    claim_file: str
    rows: int
    columns: tuple[str, ...]
    claim: PrivacyClaim

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self) | {"columns": list(self.columns), "claim": self.claim.to_dict()}


def sample_table(
    table: Path, out: Path, *, n: int | None = None, seed: int | None = None, overwrite: bool = False
) -> SampledSummary:
    """Draw rows from a private table and write them with their claim. No record is read, and nothing is paid.

    Parameters
    ----------
    table
        A folder that `fit_private_table` wrote.
    out
        A .csv or .parquet file.
    n
        How many rows; None: about as many as there were, by the noisy count.
    seed
        Seed of the sampling, which need not be secret; None: other rows each time.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    SampledSummary
        What was written, and the claim.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import fit_private_table, sample_table
    >>> from locum.types import DP
    >>> pd.DataFrame({"age": range(40), "job": ["cook", "nurse"] * 20}).to_csv("band.csv", index=False)
    >>> given = {"utility": "job", "privacy": DP(1, 1e-6), "domain_public": True, "holding": "band"}
    >>> _ = fit_private_table("band.csv", Path("band"), **given)
    >>> summary = sample_table(Path("band"), Path("band-rows.csv"), n=100, seed=0)
    >>> summary.rows, summary.claim.kind
    (100, 'dp')
    """
    check_place(out, "table", overwrite=overwrite)
    saved = open_table(table)
    rows = saved.model.sample(n, random_state=seed)
    about = {**_about(saved, "locum-sampled-table"), "rows": len(rows), "claim": saved.claim.to_dict()}
    claim_file = write_table(out, rows, about)
    return SampledSummary(str(out), str(claim_file), len(rows), tuple(rows.columns), saved.claim)


@dataclass(frozen=True, slots=True)
class GivenLabels:
    """Rows that were drawn given the labels of real records, with a claim of kind none."""

    claim_file: str
    records: int
    left_out: tuple[str, ...]
    about: dict[str, Any]
    claim: PrivacyClaim


def apply_table(
    table: Path, data: str, out: Path, *, seed: int | None, keep_order: bool, overwrite: bool
) -> GivenLabels:
    """One row for each record of `data`, drawn given its true label. The claim is of kind none, and says why."""
    check_place(out, "table", overwrite=overwrite)
    saved = open_table(table)
    rows = _table(data, every=True)
    if saved.model.utility not in columns_of(rows):
        raise DataError(f"{data!r} has no column {saved.model.utility!r}, the utility of the private table.")
    labels = rows[saved.model.utility]
    if not keep_order:
        # In the original order, a row's position would tell whose record it is.
        labels = labels.sample(frac=1.0, random_state=seed)
    drawn = saved.model.given(labels.reset_index(drop=True), random_state=seed)
    ordered = ("which record is whose: they are in the order of the data",) * keep_order
    claim = PrivacyClaim("none", (*_GIVEN_LABELS, *ordered))
    about = {**_about(saved, "locum-obfuscated"), "rows": len(drawn), "claim": claim.to_dict()}
    claim_file = write_table(out, drawn, about)
    left_out = tuple(name for name in columns_of(rows) if name not in saved.model.domain.names)
    return GivenLabels(str(claim_file), len(drawn), left_out, about, claim)


def draft_domain(
    data: str,
    out: Path,
    *,
    utility: str,
    drop: Sequence[str] = (),
    ledger: Path | None = None,
    holding: str = "default",
    overwrite: bool = False,
) -> Path:
    """Write what the data show as a domain, for the holder to read, correct and declare. It is private until then.

    The ledger notes the look at the records, which costs nothing; later claims name it.

    Parameters
    ----------
    data
        A .csv or .parquet table, or the folder of UCI Adult or UCI Diabetes; with splits, "train" is used.
    out
        A .json file, readable by its owner only.
    utility
        The column that will be the label: its values are categories.
    drop
        Columns to leave out, such as identifiers.
    ledger, holding
        The ledger (None: the one beside the data), and the name of the data in it.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    Path
        The file. Values of text with fewer than 20 records or subjects are merged into "other"; a column that says
        whose a record is stays out. The ledger notes that somebody looked at the records.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import draft_domain
    >>> Path("club").mkdir()
    >>> pd.DataFrame({"age": range(40), "job": ["cook", "nurse"] * 20}).to_csv("club/staff.csv", index=False)
    >>> file = draft_domain("club/staff.csv", Path("club.json"), utility="job")
    >>> "nurse" in file.read_text()
    True
    """
    check_output_file(out, overwrite=overwrite, suffixes=(".json",))
    place = ledger or ledger_for(data)
    check_not_lost(data, place)
    # Before anything is shown: whoever stops halfway has looked all the same.
    Ledger(place).note_look(holding, "a draft of a domain")
    rows = _table(data)
    for name in (utility, *drop):
        if name not in columns_of(rows):
            raise ConfigError(f"{data!r} has no column {name!r}: it has {', '.join(columns_of(rows)[:40])}.")
    # A draft may guess whose a record is: it only decides which values are too rare to be proposed.
    owner = next((name for name in columns_of(rows) if seems_subject(name) and name != utility), None)
    frame = rows.drop(columns=[*dict.fromkeys([*drop, *([] if owner is None else [owner])])])
    rare = {}
    for name in frame:
        texts = frame[name].dropna().astype(str)
        held = texts.groupby(texts).size() if owner is None else rows[owner].groupby(texts).nunique()
        few = frozenset(held.index[held < LEAST_UNITS])
        # A column needs a value; without one that is frequent the holder has to choose.
        rare[str(name)] = few if len(few) < len(held) else frozenset()
    found = TableDomain.from_frame(frame, categories=[utility], rare=rare)
    facts = {column.name: _drafted(column) for column in found.columns}
    write_bytes(str(out), (json.dumps({"columns": facts}, indent=1, ensure_ascii=False) + "\n").encode())
    return out


def _drafted(column: CategoryColumn | NumberColumn) -> dict[str, Any]:
    """A column as a person would declare it: a range instead of edges."""
    facts = column.to_dict()
    if isinstance(column, NumberColumn):
        edges = facts.pop("edges")
        facts = {"low": edges[0], "high": edges[-1] - 1 if column.whole else edges[-1], **facts}
    return facts


def _table(data: str, *, every: bool = False) -> Any:
    """The records as a DataFrame; the cells of a .csv as text, so that none decides how others are read."""
    file, split = split_path(data)
    if Path(file).suffix.lower() in (".csv", ".parquet") and split in (None, ALL):
        return read_text_frame(file)
    splits = read_rows(data)
    rows = joined(splits) if every else choose_split(splits, data, "train")
    if isinstance(rows, ImageTable):
        raise DataError(f"A guarantee needs a table, and {data!r} holds images: leave --epsilon out.")
    return rows


def _owner(names: Sequence[str], subject: str | None, unit: UnitChoice) -> str | None:
    """The column that says whose a record is, if that is the unit."""
    if unit == "record":
        if subject is not None:
            raise ConfigError("--subject says who a record belongs to, and --unit record ignores it: leave one out.")
        return None
    if subject is None:
        # Also if it is left out of the table: identifiers are, and the records are still somebody's.
        subject = next((name for name in names if name.lower() in SUBJECT_COLUMNS), None)
    if subject is None and unit == "auto" and (maybe := next(filter(seems_subject, names), None)):
        raise PrivacyError(
            f"Column {maybe!r} seems to say who a record belongs to: pass --subject {maybe} to protect all records "
            "of a person together, or --unit record to protect each record alone."
        )
    if subject is None and unit == "subject":
        raise ConfigError("--unit subject needs the column that says who a record belongs to: --subject COLUMN.")
    return subject


def _public_domain(frame: Any, owners: Any, utility: str, unit: str, confirm: ConfirmClasses | None) -> TableDomain:
    """The domain that the data show; `confirm` is asked about it (None: the holder said that it is public)."""
    found = TableDomain.from_frame(frame, categories=[utility])
    shown = []
    way_out = "declare the columns with `domain` (--domain FILE; `locum obfuscate domain DATA -o FILE` drafts one)."
    for column in found.columns:
        series = frame[column.name]
        # One record without a value would decide what is declared for all.
        gaps = series.isna().to_numpy(dtype=bool)
        if column.missing and (int(gaps.sum()) if owners is None else owners[gaps].nunique()) < LEAST_UNITS:
            raise PrivacyError(
                f"Values of column {column.name!r} are missing for fewer than {LEAST_UNITS} {unit}s, too few to take "
                f"that from the data: {way_out}"
            )
        or_missing = " (or missing)" if column.missing else ""
        if isinstance(column, NumberColumn):
            last = column.edges[-1] - 1 if column.whole else column.edges[-1]
            whole = "whole numbers " if column.whole else ""
            shown.append(f"{column.name}{or_missing}: {whole}from {column.edges[0]:g} to {last:g}")
            continue
        if len(column.values) > MOST_CLASSES:
            raise PrivacyError(
                f"Column {column.name!r} has {len(column.values)} values in the data, and more than {MOST_CLASSES} "
                f"must be declared: {way_out}"
            )
        values = series.astype(object)
        held = values.groupby(values).size() if owners is None else owners.groupby(values).nunique()
        if few := int((held < LEAST_UNITS).sum()):
            # Without their names: these may be patients.
            raise PrivacyError(
                f"{few} of the {len(column.values)} values of column {column.name!r} have fewer than {LEAST_UNITS} "
                f"{unit}s, too few to take them from the data: {way_out}"
            )
        shown.append(f"{column.name}{or_missing}: {', '.join(map(str, column.values))}")
    if confirm is not None and not confirm(shown):
        raise PrivacyError(f"What is not public stays out of a private table, and nothing was spent: {way_out}")
    return found


def _about(saved: SavedTable, kind: str) -> dict[str, Any]:
    return {
        "format": kind,
        "schema_version": 1,
        "written_by": written_by(),
        "table": saved.fingerprint,
        "utility": [saved.model.utility],
    }
