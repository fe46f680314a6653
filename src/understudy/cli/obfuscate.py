"""`understudy obfuscate fit|apply|trade-off`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import typer

from understudy.cli import output
from understudy.cli.obfuscate_shown import show_applied, show_obfuscator, show_trade_off
from understudy.cli.options import Force, Json, listed

__all__ = ["app"]

app = typer.Typer(
    help="Keep what a receiver needs of each record, hide the rest, by two knobs that are turned at use.",
    no_args_is_help=True,
)

DATA_HELP = (
    "A .csv or .parquet table, UCI Adult's folder, CelebA's folder, an .npz of images, or a folder of images with "
    "--attributes; DATA#train picks a split."
)
Attributes = Annotated[
    str | None, typer.Option(metavar="FILE", help="For a folder of images: a .csv or .parquet that tells of each.")
]
Limit = Annotated[int | None, typer.Option(help="Take the first N records only.")]
Saved = Annotated[Path, typer.Argument(metavar="OBFUSCATOR", help="A folder that `obfuscate fit` wrote.")]


class PresetName(StrEnum):
    """Ways to fit and to add noise."""

    calibrated = "calibrated"
    seed = "seed"


@app.command()
def fit(
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OBFUSCATOR", help="Folder to write.")],
    utility: Annotated[
        list[str], typer.Option(metavar="COLUMN", help="What must stay useful; taken out of a table. Once for each.")
    ],
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Of tables: leave this out. Once for each.")
    ] = None,
    preset: Annotated[
        PresetName, typer.Option(help="Our own, or the networks and noise of the seed.")
    ] = PresetName.calibrated,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most so many (default: by preset).")] = None,
    beta: Annotated[
        float | None, typer.Option(help="calibrated tables: larger hides more, and rebuilds less well.")
    ] = None,
    authors_compat: Annotated[
        bool, typer.Option("--authors-compat", help="seed: what its authors ran, faults included.")
    ] = False,
    attributes: Attributes = None,
    side: Annotated[
        int | None, typer.Option(help="CelebA and folders of images: pixels of a side, a multiple of 16 (64).")
    ] = None,
    grey: Annotated[bool, typer.Option("--grey", help="Folders of images: without colour.")] = False,
    limit: Limit = None,
    resume: Annotated[bool, typer.Option(help="Keep a private checkpoint beside the data, to resume from.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seeds weights and batches.")] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn to obfuscate records; what is private need not be known.

    Of data with splits `train` is taken. Nothing is promised about the records behind an obfuscator.
    """
    from understudy.recipes.obfuscate import fit_obfuscator

    summary = fit_obfuscator(
        data,
        out,
        utility=utility,
        drop=drop or (),
        preset=preset.value,
        epochs=epochs,
        beta=beta,
        authors_compat=authors_compat,
        attributes=attributes,
        side=side,
        channels=1 if grey else 3,
        limit=limit,
        seed=seed,
        overwrite=force,
        resume=resume,
        verbose=not as_json,
    )
    if as_json:
        output.print_json(summary.to_dict())
    else:
        show_obfuscator(summary)


@app.command()
def apply(
    obfuscator: Saved,
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP + " All splits are taken otherwise.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="Tables: .csv or .parquet; images: .npz or a folder.")
    ],
    noise: Annotated[float, typer.Option(help="How much is hidden: 0 least; inf all but the utility labels.")],
    lambda_: Annotated[
        str | None,
        typer.Option(
            "--lambda",
            metavar="NUMBER|own",
            help="How plainly labels are written: 0 not at all, -50 surely (default).",
        ),
    ] = None,
    true_label: Annotated[
        bool,
        typer.Option("--true-label/--no-true-label", help="Write true utility labels, or the obfuscator's guess."),
    ] = True,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Leave records in the order of DATA, which tells whose is whose.")
    ] = False,
    delta: Annotated[float, typer.Option(help="Where to read the local epsilon off.")] = 1e-5,
    attributes: Attributes = None,
    limit: Limit = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="For tests: whoever guesses it takes the noise off.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write obfuscated records, with the utility labels and a claim beside them.

    Columns that the obfuscator does not know are left out. Measure first: `understudy obfuscate trade-off`.
    """
    from understudy.recipes.obfuscate_apply import apply_obfuscator

    summary = apply_obfuscator(
        obfuscator,
        data,
        out,
        noise=noise,
        lambda_=_lambda(lambda_),
        true_label=true_label,
        delta=delta,
        keep_order=keep_order,
        attributes=attributes,
        limit=limit,
        seed=seed,
        overwrite=force,
    )
    if as_json:
        output.print_json(summary.to_dict())
    else:
        show_applied(summary)


@app.command("trade-off")
def trade_off(
    obfuscator: Saved,
    data: Annotated[str, typer.Argument(metavar="DATA", help="Records that judges learn on. " + DATA_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for curve, table and report.")],
    private: Annotated[str, typer.Option(metavar="COLUMN", help="What an attacker wants to find out.")],
    noise: Annotated[str, typer.Option(metavar="A,B,...", help="Values of the noise.")] = "0,1,2,5",
    lambda_: Annotated[
        str | None, typer.Option("--lambda", metavar="A,B,...", help="Values of lambda (default: -50).")
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="DATA", help="Records to try judges on (default: split test, or --holdout).")
    ] = None,
    holdout: Annotated[float, typer.Option(help="Without others: share of DATA to try judges on.")] = 0.2,
    attacker_at_most: Annotated[
        float | None, typer.Option(help="Pick the least noise that keeps the strongest attacker here; else exit 3.")
    ] = None,
    true_label: Annotated[
        bool,
        typer.Option("--true-label/--no-true-label", help="Write true utility labels, or the obfuscator's guess."),
    ] = True,
    judges: Annotated[
        str | None, typer.Option(metavar="A,B", help="network, trees, patches (default: all that read the records).")
    ] = None,
    copies: Annotated[int, typer.Option(min=1, help="Releases of a record that the averaging attacker holds.")] = 10,
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Of judges that are networks (default: the seed's).")
    ] = None,
    attributes: Attributes = None,
    test_attributes: Annotated[
        str | None, typer.Option(metavar="FILE", help="The same for a folder given with --test.")
    ] = None,
    limit: Limit = None,
    seed: Annotated[int, typer.Option(min=0, help="Seeds judges and what they are shown.")] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure what attackers and receivers find, at every setting of the knobs.

    A run that was killed goes on where it stopped; values can be added. The report is internal: it holds figures of
    real records and, for images, some of them.
    """
    from understudy.recipes.obfuscate_trade_off import measure_trade_off

    with output.progress_bar("judging") as progress:
        summary = measure_trade_off(
            obfuscator,
            data,
            out,
            private=private,
            noises=_numbers(noise, "--noise"),
            lambdas=None if lambda_ is None else _numbers(lambda_, "--lambda"),
            test=test,
            holdout=holdout,
            attacker_at_most=attacker_at_most,
            true_label=true_label,
            judges=None if judges is None else listed(judges),
            copies=copies,
            epochs=epochs,
            attributes=attributes,
            test_attributes=test_attributes,
            limit=limit,
            seed=seed,
            overwrite=force,
            progress=progress,
        )
    if as_json:
        output.print_json(summary.to_dict())
    else:
        show_trade_off(summary)
    if summary.problem:
        raise typer.Exit(3)


def _lambda(text: str | None) -> float | Literal["own"] | None:
    return None if text is None else "own" if text == "own" else _numbers(text, "--lambda")[0]


def _numbers(text: str, option: str) -> list[float]:
    from understudy.errors import ConfigError

    try:
        values = [float(part) for part in listed(text)]
    except ValueError:
        raise ConfigError(f"{option} takes numbers, separated by commas; got {text!r}.") from None
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"{option} takes one number or more, each once; got {text!r}.")
    return values
