"""`locum ledger show|set-budget|export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import Force, Json, RelationName, UnitName

app = typer.Typer(help="What was spent on each data holding, and what may still be.", no_args_is_help=True)
File = Annotated[Path, typer.Option("--ledger", metavar="FILE", help="The ledger; it lies beside the data.")]
DEFAULT = Path(".locum/ledger.sqlite")


@app.command()
def show(
    ledger: File = DEFAULT,
    holding: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    as_json: Json = False,
) -> None:
    """Budgets, what is spent and left, and every charge; the chain of hashes is checked."""
    from locum.recipes import show_ledger

    _tell(show_ledger(ledger, holding), as_json)


@app.command("set-budget")
def set_budget(
    epsilon: Annotated[float, typer.Option(help="What may be spent in all, over all releases.")],
    delta: Annotated[float, typer.Option(help="What may be spent in all, over all releases.")],
    holding: Annotated[str, typer.Option(help="The name of the data.")] = "default",
    unit: Annotated[
        UnitName | None, typer.Option(help="Whose presence is hidden (record); cannot be changed later.")
    ] = None,
    relation: Annotated[
        RelationName | None, typer.Option(help="What neighbours are (add-or-remove); cannot be changed later.")
    ] = None,
    ledger: File = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Raise a budget without being asked again.")] = False,
    as_json: Json = False,
) -> None:
    """Open a holding with a budget, or change its budget. Raising one weakens the promise, and must be confirmed."""
    from locum.recipes import set_budget as decide

    def confirm(meaning: str) -> None:
        if not yes:
            typer.confirm(f"{output.plain(meaning)} Go on?", abort=True, err=True)

    found = decide(
        ledger,
        holding,
        epsilon=epsilon,
        delta=delta,
        unit=unit.value if unit else None,
        relation=relation.value if relation else None,
        confirm=confirm,
    )
    _tell(found, as_json)


@app.command()
def export(
    ledger: File = DEFAULT,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here, for you alone.")
    ] = None,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the entries, also with --out.")] = False,
) -> None:
    """Every entry with its hashes, as JSON that can be checked anywhere."""
    from locum.recipes import export_ledger

    entries = export_ledger(ledger, out, overwrite=force)
    if out is None or as_json:
        output.print_json(entries)
    else:
        output.say(f"{len(entries)} entries written to {out}")


def _tell(found: dict[str, Any], as_json: bool) -> None:
    """Holdings, then their charges, then the head. What is spent is rounded up, what is left down."""
    if as_json:
        output.print_json(found)
        return
    from locum.types import at_least, at_most

    rounded = {"budget": at_most, "spent": at_least, "left": at_most}
    rows = [
        [
            h["name"],
            h["unit"],
            h["relation"],
            *(f"{r(h[k]['epsilon'])} / {r(h[k]['delta'])}" for k, r in rounded.items()),
        ]
        for h in found["holdings"]
    ]
    output.show_table(["holding", "unit", "relation", *rounded], rows, title="epsilon / delta")
    charges = [
        [h["name"], c["purpose"], c["what"], f"{at_least(c['epsilon'])} / {at_least(c['delta'])}"]
        for h in found["holdings"]
        for c in h["charges"]
    ]
    if charges:
        output.show_table(["holding", "purpose", "what was done", "cost"], charges)
    output.say(f"tip         {found['tip']}")
