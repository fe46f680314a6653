"""`understudy ledger show|set-budget|export` and `understudy plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from understudy.cli import output
from understudy.cli.verbs import Json, UnitName

__all__ = ["app", "plan"]

app = typer.Typer(help="What was spent on each data holding, and what may still be.", no_args_is_help=True)
File = Annotated[Path, typer.Option("--ledger", metavar="FILE", help="The ledger.")]
DEFAULT = Path(".understudy/ledger.sqlite")

_WORDS = """epsilon   How much one unit may change what anybody can conclude: odds by at most exp(epsilon).
          0.1 changes them by a tenth, 1 by 2.7, 8 by 3000. 1 is usual; above 4 rely on attacks too.
delta     The chance that this fails altogether. At most 1 / (10 n_public); 1e-5 for some thousand people.
n_public  About how many units there are, as a number that everybody may know: round it. Noise and batches come
          from it. A wrong one costs usefulness, never privacy.
unit      record: one image or row each. subject: all records of one person together; take it where people have
          several."""


@app.command()
def show(ledger: File = DEFAULT, as_json: Json = False) -> None:
    """Budgets, what is spent and left, and every charge; the chain of hashes is checked."""
    from understudy.recipes.ledger import show_ledger

    _tell(show_ledger(ledger), as_json)


@app.command("set-budget")
def set_budget(
    epsilon: Annotated[float, typer.Option(help="What may be spent in all.")],
    delta: Annotated[float, typer.Option(help="What may be spent in all.")],
    holding: Annotated[str, typer.Option(help="The name of the data.")] = "default",
    unit: Annotated[
        UnitName, typer.Option(help="Whose presence is hidden; cannot be changed later.")
    ] = UnitName.record,
    ledger: File = DEFAULT,
    as_json: Json = False,
) -> None:
    """Open a holding with a budget, or change its budget. A larger one means a weaker promise for everybody in it."""
    from understudy import types
    from understudy.recipes.ledger import set_budget as decide

    wish = types.DP(epsilon, delta, unit.value)
    _tell(decide(ledger, holding, wish), as_json)


@app.command()
def export(ledger: File = DEFAULT) -> None:
    """Every entry with its hashes, as JSON."""
    from understudy.recipes.ledger import export_ledger

    output.print_json(export_ledger(ledger))


def plan(
    epsilon: Annotated[float, typer.Option(help="The budget.")] = 1.0,
    delta: Annotated[float, typer.Option(help="The budget.")] = 1e-5,
    n_public: Annotated[int | None, typer.Option(help="About how many units, as a public number.")] = None,
    unit: Annotated[UnitName, typer.Option(help="Whose presence is hidden.")] = UnitName.record,
    generator: Annotated[
        str, typer.Option(help="gaussian (one noisy sum), or sgd (noisy training steps).")
    ] = "gaussian",
    batch: Annotated[int, typer.Option(help="sgd: units a step, on average.")] = 256,
    epochs: Annotated[float, typer.Option(help="sgd: passes over the data.")] = 10,
    clip: Annotated[float, typer.Option(help="sgd: longest gradient of one unit.")] = 1.0,
    explain: Annotated[bool, typer.Option("--explain", help="What the numbers mean and how to choose them.")] = False,
    as_json: Json = False,
) -> None:
    """What a private fit would do and cost, from public numbers alone: no data are read."""
    from understudy import types
    from understudy.errors import ConfigError
    from understudy.recipes.ledger import make_plan

    if explain:
        output.say(_WORDS)
        return
    if generator not in ("gaussian", "sgd"):
        raise ConfigError(f"--generator must be gaussian or sgd; got {generator!r}.")
    wish = types.DP(epsilon, delta, unit.value, n_public)
    found = make_plan(wish, generator=generator, batch=batch, epochs=epochs, clip=clip)
    if as_json:
        output.print_json(found)
        return
    names = ("sampling_rate", "expected_batch", "steps", "clip", "sensitivity", "noise_multiplier", "epsilon_spent")
    rows = [[name.replace("_", " "), f"{found[name]:.6g}"] for name in names if name in found]
    rows += [[f"epsilon after step {step}", f"{cost:.4g}"] for step, cost in found.get("epsilon_by_step", [])]
    rows += [[f"epsilon at delta {d:g}", f"{e:.4g}"] for d, e in found["curve"]]
    output.show_table(["what", "value"], rows)


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        output.print_json(found)
        return
    rows = [
        [h["name"], h["unit"], *(f"{h[k]['epsilon']:.4g} / {h[k]['delta']:.3g}" for k in ("budget", "spent", "left"))]
        for h in found["holdings"]
    ]
    output.show_table(["holding", "unit", "budget", "spent", "left"], rows, title="epsilon / delta")
    for h in found["holdings"]:
        for c in h["charges"]:
            events = ", ".join(" ".join(f"{k} {v}" for k, v in event.items()) for event in c["events"])
            output.say(f"{h['name']}: {c['purpose']}, epsilon {c['epsilon']:.4g}, delta {c['delta']:.3g} ({events})")
    output.say(f"head        {found['head']}")
