"""`locum publish`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.fit import confirm_names
from locum.cli.options import (
    WHERE,
    Backbone,
    Classes,
    ClassesPublic,
    Data,
    Delta,
    Epsilon,
    Holding,
    Json,
    listed,
)
from locum.cli.passport import Key, PassphraseFile, passphrase_of
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON, DP

if TYPE_CHECKING:
    from locum.recipes import PublishSummary

_STYLES = {"clear": "green", "doubt": "yellow", "leak": "red"}
POLICY = "Audit and policy"


def publish(
    data: Data,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="OUT",
            help="Folder to write: OUT/release is for receivers, OUT/internal stays. Resumes a run that was stopped.",
            rich_help_panel=WHERE,
        ),
    ],
    key: Key,
    passphrase_file: PassphraseFile = None,
    epsilon: Epsilon = DEFAULT_EPSILON,
    delta: Delta = DEFAULT_DELTA,
    classes: Classes = None,
    classes_public: ClassesPublic = False,
    holding: Holding = "default",
    policy: Annotated[
        str, typer.Option(help="public, research-sharing, internal, or a .toml file.", rich_help_panel=POLICY)
    ] = "research-sharing",
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Accept this assumption of the claim; may be repeated.", rich_help_panel=POLICY
        ),
    ] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of the records that is held out for the audit.", rich_help_panel=POLICY)
    ] = 0.2,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="N", help="Train shadows for at most N minutes (5).", rich_help_panel=POLICY),
    ] = None,
    backbone: Backbone = None,
    as_json: Json = False,
) -> None:
    """From data to a signed release: embed, check, fit, audit, passport, sign, verify.

    A private release (epsilon 1) is made, paid from the budget of the data and attacked. If the policy is met it is
    signed and put into OUT/release, for a person to decide about with `locum decide`; if not, nothing is signed and
    the exit code is 3. OUT/internal/summary.html says what was done. An interrupted run resumes, and pays only once.
    """
    budget = DP(epsilon, delta)
    from locum.recipes import publish_release, read_passphrase

    secret = passphrase_of(key, None if passphrase_file is None else read_passphrase(passphrase_file))
    with output.resumable(), output.progress_bar("publish") as progress:
        made = publish_release(
            data,
            out,
            key=key,
            passphrase=secret,
            privacy=budget,
            classes=None if classes is None else listed(classes),
            classes_public=classes_public,
            confirm_classes=confirm_names if output.can_ask() else None,
            policy=policy,
            accept=accept or (),
            holdout=holdout,
            holding=holding,
            backbone=backbone,
            minutes=minutes,
            progress=progress,
            announce=output.say_aside,
        )
    output.show(made, as_json, show_publish)
    if not made.published:
        raise typer.Exit(3)


def show_publish(made: PublishSummary) -> None:
    """The decision first, then why, what it protects, and where things are."""
    facts = made.facts
    output.say(f"{facts['title']}.", _STYLES[facts["audit"]["tone"]])
    output.say(f"policy      {facts['verdict']['title'].removeprefix('Policy ')}")
    output.say_indented(facts["verdict"]["sentence"])
    for reason in facts["reasons"]:
        output.say_indented(f"NO  {reason}")
    output.say("records     what happened to the data")
    for line in facts["story"]:
        output.say_indented(line)
    output.say(f"claim       {facts['claim']['title']}", "bold")
    output.say_indented(facts["limit"]["words"])
    if facts["strongest"] is not None:
        output.say(f"attack      the strongest of {facts['strongest']['tried']}: {facts['strongest']['name']}")
        output.say_indented(facts["strongest"]["words"])
    output.say(f"budget      {facts['budget']['words']}")
    if made.release is not None:
        output.say(f"release     {made.release}: signed and verified", "bold")
    output.say(f"internal    {made.internal}: stays here")
    output.say(f"page        {made.page}")
    for step in facts["next"]:
        command = f" `{step['type']}`" if step["type"] else ""
        output.say(f"next        {step['text']}{command}")
