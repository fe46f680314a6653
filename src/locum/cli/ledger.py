"""`locum ledger show|set-budget|export|backup|restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import (
    WHERE,
    Force,
    Json,
    RelationName,
    UnitName,
    existing,
    existing_ledger,
    sensible_epsilon,
)
from locum.cli.verb import Group

group = Group("What each data holding has spent, and what is left.")
# Headings of the help.
LEDGER, BUDGET = "The ledger", "The budget"
Data = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="The data that the ledger belongs to; or give --ledger.", callback=existing),
]
NewFile = Annotated[
    Path | None,
    typer.Option("--ledger", metavar="FILE", help="The ledger, if not named by DATA.", rich_help_panel=LEDGER),
]
File = Annotated[
    Path | None,
    typer.Option(
        "--ledger",
        metavar="FILE",
        help="The ledger, if not named by DATA.",
        rich_help_panel=LEDGER,
        callback=existing_ledger,
    ),
]


@group.verb()
def show(
    data: Data = None,
    ledger: File = None,
    holding: Annotated[str | None, typer.Option(help="Only this one.", rich_help_panel=LEDGER)] = None,
    as_json: Json = False,
) -> None:
    """Budgets, what is spent and left, and every charge; the chain of hashes is checked."""
    from locum.recipes import find_ledger, show_ledger

    _tell(show_ledger(find_ledger(data, ledger), holding), as_json)


@group.verb("set-budget")
def set_budget(
    *,
    data: Data = None,
    epsilon: Annotated[
        float,
        typer.Option(
            help="The epsilon that all releases may spend in total.",
            rich_help_panel=BUDGET,
            callback=sensible_epsilon,
        ),
    ],
    delta: Annotated[
        float, typer.Option(help="The delta that all releases may spend in total.", rich_help_panel=BUDGET)
    ],
    holding: Annotated[str, typer.Option(help="The name of the data.", rich_help_panel=LEDGER)] = "default",
    unit: Annotated[
        UnitName | None,
        typer.Option(help="What is protected (default: record); cannot be changed later.", rich_help_panel=BUDGET),
    ] = None,
    relation: Annotated[
        RelationName | None,
        typer.Option(
            help="The neighboring relation (default: add-or-remove); cannot be changed later.", rich_help_panel=BUDGET
        ),
    ] = None,
    ledger: NewFile = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Raise a budget without being asked again.", rich_help_panel=BUDGET)
    ] = False,
    as_json: Json = False,
) -> None:
    """Open a holding with a budget, or change its budget. Raising one weakens the guarantee: it must be confirmed."""
    from locum.recipes import find_ledger, set_budget as decide

    def confirm(meaning: str) -> None:
        if not yes:
            output.confirm(meaning, "--yes")

    found = decide(
        find_ledger(data, ledger),
        holding,
        epsilon=epsilon,
        delta=delta,
        unit=unit.value if unit else None,
        relation=relation.value if relation else None,
        confirm=confirm,
    )
    _tell(found, as_json)


@group.verb()
def export(
    data: Data = None,
    ledger: File = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write here; only you can read it.", rich_help_panel=WHERE),
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries, also with --out.")] = False,
) -> None:
    """Every entry with its hashes, as JSON that can be checked anywhere."""
    from locum.recipes import export_ledger, find_ledger

    entries = export_ledger(find_ledger(data, ledger), out, overwrite=force)
    if out is None or as_json:
        output.print_json(entries)
    else:
        output.say(f"{len(entries)} entries written to {out}")


@group.verb()
def backup(
    *,
    data: Data = None,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="The copy, which only you can read.", rich_help_panel=WHERE),
    ],
    ledger: File = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Copy a ledger while nobody writes to it. Keep the copy on another disk: a lost ledger cannot be recomputed."""
    from locum.recipes import backup_ledger, find_ledger

    made = backup_ledger(find_ledger(data, ledger), out, overwrite=force)
    if as_json:
        output.print_json(made)
    else:
        output.say(f"backup      {made['backup']} ({made['entries']} entries, tip {made['tip'][:16]})")


@group.verb()
def restore(
    copy: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="A copy that `ledger backup` made.", callback=existing)
    ],
    data: Data = None,
    ledger: NewFile = None,
    release: Annotated[
        list[Path] | None,
        typer.Option(help="A release that the backup must know about; may be repeated.", rich_help_panel=LEDGER),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put a backup back. Refused if a charge would be forgotten; a damaged ledger is kept next to the new one."""
    from locum.recipes import find_ledger, restore_ledger

    made = restore_ledger(find_ledger(data, ledger), copy, releases=tuple(release or ()))
    if as_json:
        output.print_json(made)
        return
    output.say(f"ledger      {made['file']} ({made['added']} of {made['entries']} entries restored)")
    if made["damaged"] is not None:
        output.say(f"damaged     kept as {made['damaged']}")


def _tell(found: dict[str, Any], as_json: bool) -> None:
    """Holdings, then their charges, then the tip. What is spent is rounded up, what is left down."""
    if as_json:
        output.print_json(found)
        return
    from locum.accounting import left_figures
    from locum.types import at_least, at_most

    def both(figures: dict[str, float]) -> tuple[float, float]:
        return figures["epsilon"], figures["delta"]

    rounded = {"budget": at_most, "spent": at_least}
    rows = [
        [
            h["name"],
            h["unit"],
            h["relation"],
            *(f"{r(h[k]['epsilon'])} / {r(h[k]['delta'])}" for k, r in rounded.items()),
            left_figures(both(h["left"]), both(h["budget"])),
        ]
        for h in found["holdings"]
    ]
    output.show_table(["holding", "unit", "relation", *rounded, "left"], rows, title="epsilon / delta")
    charges = [
        [h["name"], c["purpose"], c["what"], f"{at_least(c['epsilon'])} / {at_least(c['delta'])}"]
        for h in found["holdings"]
        for c in h["charges"]
    ]
    if charges:
        output.show_table(["holding", "purpose", "what was done", "cost"], charges)
    if found["looks"]:
        output.say(f"looks       {found['looks']} (previews on the records; claims of later releases say so)")
    output.say(f"tip         {found['tip']}")
