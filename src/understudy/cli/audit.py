"""`understudy audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from understudy.cli import output
from understudy.cli.options import BACKBONE_HELP, DATA_HELP, Json

if TYPE_CHECKING:
    from understudy.recipes.audit import Audited

__all__ = ["audit"]

_STYLES = {"leak": "bold red", "no excess risk found": "green", "inconclusive": "yellow"}


def audit(
    members: Annotated[str, typer.Option(metavar="DATA", help="Records it was made from. " + DATA_HELP)],
    non_members: Annotated[
        str, typer.Option(metavar="DATA", help="Others, of the same population and of other people.")
    ],
    release: Annotated[Path | None, typer.Argument(metavar="[RELEASE]", help="A release folder.")] = None,
    synthetic: Annotated[
        str | None, typer.Option(metavar="FILE", help="Instead of a release: vectors that another tool made.")
    ] = None,
    policy: Annotated[
        str, typer.Option(help="public, research-sharing, internal, or a .toml file of your own.")
    ] = "research-sharing",
    attack: Annotated[list[str] | None, typer.Option(help="Only this attack; may be repeated.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the attackers' coins.")] = None,
    backbone: Annotated[str | None, typer.Option(help=BACKBONE_HELP)] = None,
    as_json: Json = False,
) -> None:
    """Attack a release with records it was made from and with others; exit code 3 where the policy is not met."""
    from understudy.recipes.audit import audit_data

    with output.progress_bar("attacking") as progress:
        found = audit_data(
            release,
            members,
            non_members,
            synthetic=synthetic,
            policy=policy,
            attacks=attack or None,
            seed=seed,
            backbone=backbone,
            progress=progress,
        )
    if as_json:
        output.print_json(found.to_dict())
    else:
        _show(found)
    if not found.report.may_leave:
        raise typer.Exit(3)


def _show(found: Audited) -> None:
    """The verdict first, then what it rests on."""
    report = found.report
    output.say(f"{report.verdict}: {report.sentence()}", _STYLES[report.verdict])
    output.say()
    rows = [
        [
            result.name,
            result.verdict,
            output.short_estimate(result.attack),
            output.short_estimate(result.control),
            output.short_estimate(result.baseline),
            "-" if result.adjusted is None else f"{result.adjusted:.2g}",
        ]
        for result in report.results
    ]
    output.show_table(["attack", "verdict", "members", "strangers", "chance", "p, corrected"], rows)
    for problem in report.problems:
        output.say(f"- {problem.words}.")
    for name, reason in report.skipped.items():
        output.say(f"- {name}: {reason}.")
    output.say()
    output.say(f"Policy {report.policy}: {'met' if report.may_leave else 'NOT met'}.")
    for finding in report.findings:
        output.say(f"  {'yes' if finding.met else 'NO '}  {finding.rule} ({finding.found}). {finding.reason}")
    output.say("These figures depend on records: they stay here until somebody decides that they may leave.")
