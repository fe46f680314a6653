"""`locum audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import (
    DATA_HELP,
    MOST_SEED,
    WHERE,
    EngineName,
    Force,
    Json,
    ReleaseBackbone,
    address_option,
    existing,
    existing_ledger,
    existing_release,
    unused_file,
)

if TYPE_CHECKING:
    from locum.recipes import Audited


def audit(
    members: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="Records it was made from. " + DATA_HELP,
            rich_help_panel="Records",
            callback=existing,
        ),
    ],
    non_members: Annotated[
        str,
        typer.Option(
            metavar="DATA",
            help="Other records of the same population, from other subjects.",
            rich_help_panel="Records",
            callback=existing,
        ),
    ],
    release: Annotated[
        Path | None, typer.Argument(metavar="[RELEASE]", help="A release folder.", callback=existing_release)
    ] = None,
    synthetic: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Instead of a release: vectors that another tool made.",
            rich_help_panel="Records",
            callback=existing,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Write the findings as JSON, for `passport`.",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the findings as a page to read.", rich_help_panel=WHERE, callback=unused_file
        ),
    ] = None,
    risk: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write which records are most exposed (CSV, only for you).",
            rich_help_panel=WHERE,
            callback=unused_file,
        ),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="public, research-sharing, internal, or a .toml file.", rich_help_panel="Policy")
    ] = "research-sharing",
    attack: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Run only this attack; may be repeated.", rich_help_panel="Attacks"),
    ] = None,
    thorough: Annotated[
        bool,
        typer.Option("--thorough", help="Also run ELBO, a slow attack on the decoder.", rich_help_panel="Attacks"),
    ] = False,
    shadows: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Also run LiRA and RMIA, with N shadow generators for both.", rich_help_panel="Attacks"
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="Time limit for training shadows, in minutes; 5 unless you choose attacks.",
            rich_help_panel="Attacks",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep the shadows here and continue from them; needs --seed.",
            rich_help_panel="Attacks",
        ),
    ] = None,
    engine: Annotated[
        EngineName,
        typer.Option(help="Train shadows in this process, or on a Ray cluster.", rich_help_panel="Attacks"),
    ] = EngineName.local,
    address: Annotated[
        str | None,
        address_option("Attacks"),
    ] = None,
    canaries: Annotated[
        int | None,
        typer.Option(metavar="N", help="Also test a claimed epsilon with N canaries.", rich_help_panel="Attacks"),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Check the release's charge here, and compare attacks with the proven limit.",
            rich_help_panel="Policy",
            callback=existing_ledger,
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="With --ledger: accept this assumption of the claim; may be repeated.",
            rich_help_panel="Policy",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=MOST_SEED, help="Seed of the attacks.", rich_help_panel="Attacks")
    ] = None,
    drop_duplicates: Annotated[
        bool,
        typer.Option(
            "--drop-duplicates", help="Leave out non-members that equal a member.", rich_help_panel="Records"
        ),
    ] = False,
    backbone: ReleaseBackbone = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Public statistics of a private release (default: what MEMBERS names).",
            rich_help_panel="Records",
            callback=existing,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Attack a release with the records it was made from and with others; exit code 3 if the policy is not met."""
    from locum.recipes import audit_data

    with output.progress_bar("auditing") as progress:
        found = audit_data(
            release,
            members,
            non_members,
            synthetic=synthetic,
            policy=policy,
            attacks=attack or None,
            thorough=thorough,
            shadows=shadows,
            minutes=minutes,
            state=state,
            engine=engine.value,
            address=address,
            canaries=canaries,
            ledger=ledger,
            accept=accept or (),
            drop_duplicates=drop_duplicates,
            out=out,
            page=html,
            risk=risk,
            overwrite=force,
            seed=seed,
            backbone=backbone,
            reference=reference,
            progress=progress,
            announce=output.say_aside,
        )
    if as_json:
        output.print_json(found.to_dict())
    else:
        _show(found, {"findings": out, "page": html, "risk map": risk})
    if not found.report.may_leave:
        raise typer.Exit(3)


def _show(found: Audited, written: dict[str, Path | None]) -> None:
    """The verdict first, then the findings behind it."""
    from locum.audit import COLUMNS, STAYS

    report = found.report
    for text, tone in report.lines():
        output.say(text, output.TONE_STYLES[tone])
    output.say()
    output.show_table(COLUMNS, report.rows())
    for problem in report.problems:
        output.say(f"- {problem.words}.")
    for name, reason in report.skipped.items():
        output.say(f"- {name} was not run: {reason}.")
    output.say()
    for finding in report.findings:
        # Keep the output short: give reasons only for unmet rules. The JSON has all of them.
        why = "" if finding.met else f". {finding.reason}"
        output.say(f"  {'yes' if finding.met else 'NO '}  {finding.rule} ({finding.found}){why}")
    output.say()
    for what, path in written.items():
        if path is not None:
            output.say(f"{what:11s} {path}")
    if written["risk map"] is not None and report.risk is not None:
        output.say(report.risk.sentence())
        output.say(report.risk.warning)
    output.say(STAYS)
