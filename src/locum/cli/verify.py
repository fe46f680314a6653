"""`locum verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import Json, ReleaseFolder, existing, existing_key, existing_ledger

if TYPE_CHECKING:
    from locum.release import Verification


def verify(
    release: ReleaseFolder,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also look up the release's charge in this ledger.", callback=existing_ledger
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="PUB", help="The sender's public key, which must have signed the release.", callback=existing_key
        ),
    ] = None,
    site_keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Of a federation: the sites' public keys (NAME.pub). Checks every site's signed receipt.",
            callback=existing,
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --ledger: the public statistics of the release, if they do not ship with Locum.",
            callback=existing,
        ),
    ] = None,
    decision: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The holder's file from `decide`: check that its hash is in the passport.",
            callback=existing,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that a release is complete, well formed and, with --key, signed; offline, without the data."""
    from locum.recipes import verify_release

    result = verify_release(
        release, ledger=ledger, key=key, site_keys=site_keys, reference=reference, decision=decision
    )
    output.show(result, as_json, show_verification)


def show_verification(result: Verification) -> None:
    """What attackers found, what the holder decided, what was checked, what was not, and what is claimed."""
    output.show_audit(result.audit, result.refused, result.override)
    output.show_decision(result.decision, result.refused)
    for line in result.checks:
        output.say(f"ok  {line}")
    for line in result.not_checked:
        output.say(f"--  {line}")
    output.say(f"fingerprint {result.fingerprint}", "bold")
    output.show_claim(result.claim)
