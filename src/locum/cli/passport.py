"""`locum keygen`, `passport` and `sign`: the passport files of a release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import Force, Json, ReleaseFolder, existing, existing_key

if TYPE_CHECKING:
    from locum.recipes import PassportSummary


PassphraseFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Read the passphrase from this file, for scripts.")
]


def keygen(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="File to write; the public key is KEY.pub.")],
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Ask for a passphrase and encrypt the key.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: Json = False,
) -> None:
    """Make a key pair: a private key to sign releases, a public key for others to check them."""
    from locum.recipes import make_key_pair, read_passphrase

    secret = None if passphrase_file is None else read_passphrase(passphrase_file)
    if secret is None and passphrase:
        secret = _ask("passphrase", twice=True)
    made = make_key_pair(key, passphrase=secret)
    if as_json:
        output.print_json(made.to_dict())
        return
    closed = "encrypted" if made.encrypted else "not encrypted: whoever has the file can sign"
    output.say(f"private key {made.private} (only you may read it; {closed})")
    output.say(f"public key  {made.public}: give it to receivers")
    output.say(f"key id      {made.key}", "bold")
    output.say("            Tell receivers over another channel, by phone for example.")


def passport(
    release: ReleaseFolder,
    audit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output of `audit --json`; the passport gets its verdicts.", callback=existing
        ),
    ] = None,
    evaluation: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Output of `evaluate --json`; needs --include-measured.", callback=existing
        ),
    ] = None,
    include_measured: Annotated[
        bool, typer.Option("--include-measured", help="Include rounded figures that were measured on records.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the passport files into a release: a page, a sheet of text, JSON, and metadata for catalogs.

    They hold no real point and no exact count. Sign afterwards: a new passport removes an old signature.
    """
    from locum.recipes import write_passport

    made = write_passport(
        release, audit=audit, evaluation=evaluation, include_measured=include_measured, overwrite=force
    )
    output.show(made, as_json, show_passport)


def show_passport(made: PassportSummary) -> None:
    """What was written and what is claimed."""
    from locum.release import audit_refuses, audit_sentence

    output.show_audit(audit_sentence(made.passport), audit_refuses(made.passport), None)
    output.say(f"passport    {made.path}: {', '.join(made.files)}", "bold")
    if made.signature_removed:
        output.say("signature   removed: it did not cover this passport. Sign again.")
    output.show_claim(made.claim)


def sign(
    release: ReleaseFolder,
    key: Annotated[
        Path, typer.Option(metavar="KEY", help="A private key, as `keygen` writes it.", callback=existing_key)
    ],
    passphrase_file: PassphraseFile = None,
    override: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Sign although the audit's policy is not met; receivers see the reason."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Sign a release: check it, then write a signature over manifest and passport into it."""
    from locum.recipes import read_passphrase, sign_release

    secret = None if passphrase_file is None else read_passphrase(passphrase_file)
    if secret is None and sys.stdin.isatty() and _is_locked(key):
        secret = _ask(f"passphrase of {key}")
    made = sign_release(release, key, passphrase=secret, override=override, overwrite=force)
    if as_json:
        output.print_json(made.to_dict())
        return
    output.show_audit(made.verified.audit, made.verified.refused, made.verified.override)
    output.say(f"signed      {made.path} ({' and '.join(made.files)})", "bold")
    output.say(f"key id      {made.key}")
    if made.verified.passport is None:
        output.say("            It has no passport: `locum passport` writes one, and removes this signature.")


def _is_locked(key: Path) -> bool:
    return key.is_file() and b"ENCRYPTED" in key.read_bytes()[:200]


def _ask(what: str, *, twice: bool = False) -> bytes:
    from locum.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("There is no terminal to ask for a passphrase: give it with --passphrase-file FILE.")
    given: str = typer.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
    return given.encode()
