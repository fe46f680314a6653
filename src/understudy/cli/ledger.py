"""`understudy ledger show|set-budget|export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli import output
from understudy.cli.plan import RelationName, UnitName

__all__ = ["app"]

app = typer.Typer(help="What was spent on your data, and what is left.", no_args_is_help=True)

File = Annotated[Path, typer.Option("--ledger", metavar="FILE", help="The ledger; it lies beside the data.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
DEFAULT = Path(".understudy/ledger.sqlite")


@app.command()
def show(
    ledger: File = DEFAULT,
    holding: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    as_json: Json = False,
) -> None:
    """Budget, spent and left of each holding, and every charge; a broken chain is an error."""
    from understudy.recipes.ledger import show_ledger

    _show(show_ledger(ledger, holding), as_json)


@app.command("set-budget")
def set_budget(
    epsilon: Annotated[float, typer.Option(help="All that may ever be spent, over all releases.")],
    delta: Annotated[float, typer.Option(help="All that may ever be spent, over all releases.")],
    holding: Annotated[str, typer.Option(help="The name of the data.")] = "default",
    unit: Annotated[UnitName | None, typer.Option(help="Of a new holding; it can never change.")] = None,
    relation: Annotated[RelationName | None, typer.Option(help="Of a new holding; it can never change.")] = None,
    ledger: File = DEFAULT,
    yes: Annotated[bool, typer.Option("--yes", help="Raise a budget without being asked again.")] = False,
    as_json: Json = False,
) -> None:
    """Open a holding, or decide on another budget for it; raising one must be confirmed."""
    from understudy.recipes.ledger import set_budget as decide

    def confirm(meaning: str) -> None:
        if not yes:
            typer.confirm(f"{output.plain(meaning)} Go on?", abort=True, err=True)

    changed = decide(
        ledger,
        holding,
        epsilon=epsilon,
        delta=delta,
        unit=unit.value if unit else None,
        relation=relation.value if relation else None,
        confirm=confirm,
    )
    _show(changed, as_json)


@app.command()
def export(
    ledger: File = DEFAULT,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write here, for you alone.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Also print it, where --out is given.")] = False,
) -> None:
    """Every entry with its hashes, as one JSON document that can be checked anywhere."""
    from understudy.recipes.ledger import export_ledger

    copy = export_ledger(ledger, out, overwrite=force)
    if out is None or as_json:
        output.print_json(copy)
    else:
        output.say(f"{len(copy['entries'])} entries written to {out}")


def _show(facts: dict[str, Any], as_json: bool) -> None:
    """Holdings first, then what was paid for, then the head."""
    if as_json:
        output.print_json(facts)
        return
    from understudy.accounting.holding import at_least, at_most

    for known in facts["holdings"]:
        budget, spent, left = known["budget"], known["spent"], known["left"]
        output.say(f"holding     {known['holding']} (unit {known['unit']}, {known['relation']})", "bold")
        output.say(f"budget      epsilon {budget['epsilon']:g}, delta {budget['delta']:g}")
        output.say(f"spent       epsilon {at_least(spent['epsilon'])}, delta {at_least(spent['delta'])}")
        output.say(f"left        epsilon {at_most(left['epsilon'])}, delta {at_most(left['delta'])}")
        if known["charges"]:
            rows = [
                [c["purpose"], "; ".join(c["events"]), at_least(c["epsilon"]), at_least(c["delta"]), c["head"][:12]]
                for c in known["charges"]
            ]
            output.show_table(["purpose", "what was done", "epsilon", "delta", "head after it"], rows)
    if not facts["holdings"]:
        output.say("No holding has a budget yet.")
    output.say(f"head        {facts['head']}")
