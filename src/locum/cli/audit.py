"""`locum audit`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import BACKBONE_HELP, DATA_HELP, Force, Json

if TYPE_CHECKING:
    from locum.audit import AuditReport
    from locum.recipes import Audited


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
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the findings as JSON, for `passport`.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the findings as a page to read.")] = None,
    risk: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write which records are most exposed, for your eyes alone (CSV)."),
    ] = None,
    policy: Annotated[
        str, typer.Option(help="public, research-sharing, internal, or a .toml file of your own.")
    ] = "research-sharing",
    attack: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this attack; may be repeated.")
    ] = None,
    thorough: Annotated[bool, typer.Option("--thorough", help="Also the slow attack on the decoder, ELBO.")] = False,
    shadows: Annotated[
        int | None, typer.Option(metavar="N", help="Also LiRA and RMIA, with N generators trained for both.")
    ] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the shadows here, and go on from there; needs --seed.")
    ] = None,
    canaries: Annotated[
        int | None, typer.Option(metavar="N", help="Also put a claimed epsilon to the test, with N canaries.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the attackers' coins.")] = None,
    backbone: Annotated[str | None, typer.Option(help=BACKBONE_HELP)] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Attack a release with records it was made from and with others; exit code 3 where the policy is not met."""
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
            state=state,
            canaries=canaries,
            out=out,
            page=html,
            risk=risk,
            overwrite=force,
            seed=seed,
            backbone=backbone,
            progress=progress,
        )
    if as_json:
        output.print_json(found.to_dict())
    else:
        _show(found, {"findings": out, "page": html, "risk map": risk})
    if not found.report.may_leave:
        raise typer.Exit(3)


def _show(found: Audited, written: dict[str, Path | None]) -> None:
    """The verdict first, then what it rests on."""
    report = found.report
    _show_verdict(report)
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
        output.say(f"- {name}: {reason.rstrip('.')}.")
    output.say()
    for finding in report.findings:
        # What is met needs no defence on a page that must stay short; the JSON has every reason.
        why = "" if finding.met else f". {finding.reason}"
        output.say(f"  {'yes' if finding.met else 'NO '}  {finding.rule} ({finding.found}){why}")
    output.say()
    for what, path in written.items():
        if path is not None:
            output.say(f"{what:11s} {path}")
    if written["risk map"] is not None and report.risk is not None:
        output.say(report.risk.sentence())
        output.say(report.risk.warning)
    output.say("These figures depend on records: they stay here until somebody decides that they may leave.")


def _show_verdict(report: AuditReport) -> None:
    """What was found, whether it may leave by the policy, and what canaries say of a promise."""
    both = report.epsilon_audit
    # A promise that is refuted says more than any attack, and is said first.
    if both is not None and not both.ok:
        output.say(f"BROKEN PROMISE. {both.words}", "bold red")
    if both is None or both.ok or any(result.verdict == "leak" for result in report.results):
        output.say(f"{report.verdict}: {report.sentence()}", _STYLES[report.verdict])
    reply = "met" if report.may_leave else "NOT met"
    output.say(f"Policy {report.policy}: {reply}.", "green" if report.may_leave else "bold red")
    if both is not None and both.ok:
        output.say(both.words)
