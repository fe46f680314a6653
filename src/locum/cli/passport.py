"""`locum keygen`, `passport`, `sign` and `decide`: the passport files of a release."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from locum.cli import output
from locum.cli.options import WHERE, Force, Json, ReleaseFolder, existing, existing_key, listed, unused_file
from locum.types import safes_in_words

if TYPE_CHECKING:
    from locum.recipes import DecideSummary, PassportSummary


# Headings of the help.
DECISION, KEY, CONTENT = "The decision", "The key", "What the passport reports"

PassphraseFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", rich_help_panel=KEY, help="Read the passphrase from this file, for scripts."),
]
AuditFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=CONTENT,
        help="Output of `audit -o` or `audit --json`; the passport gets its verdicts.",
        callback=existing,
    ),
]
EvaluationFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=CONTENT,
        help="Output of `evaluate --json`; needs --include-measured.",
        callback=existing,
    ),
]
IncludeMeasured = Annotated[
    bool,
    typer.Option(
        "--include-measured", rich_help_panel=CONTENT, help="Include rounded figures that were measured on records."
    ),
]
Key = Annotated[
    Path,
    typer.Option(
        metavar="KEY", rich_help_panel=KEY, help="A private key, as `keygen` writes it.", callback=existing_key
    ),
]


def keygen(
    key: Annotated[Path, typer.Argument(metavar="KEY", help="File to write; the public key is KEY.pub.")],
    passphrase: Annotated[
        bool, typer.Option("--passphrase", rich_help_panel=KEY, help="Ask for a passphrase and encrypt the key.")
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
    closed = "encrypted" if made.encrypted else "not encrypted: anyone who has the file can sign"
    output.say(f"private key {made.private} (only you may read it; {closed})")
    output.say(f"public key  {made.public}: give it to receivers")
    output.say(f"key id      {made.key}", "bold")
    output.say("            Tell receivers over another channel, by phone for example.")


def passport(
    release: ReleaseFolder,
    audit: AuditFile = None,
    evaluation: EvaluationFile = None,
    include_measured: IncludeMeasured = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the passport files into a release: a page, a text sheet, JSON, and metadata for catalogs.

    They hold no real point and no exact count. Sign afterward: a new passport removes an old signature.
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
    if made.decision_removed:
        output.say("decision    removed: it was not about this passport. Decide again.")
    output.show_claim(made.claim)


def sign(
    release: ReleaseFolder,
    key: Key,
    passphrase_file: PassphraseFile = None,
    override: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            rich_help_panel=DECISION,
            help="Sign although the audit's policy is not met; receivers see the reason.",
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Sign a release: check it, then write a signature over manifest and passport into it."""
    from locum.recipes import read_passphrase, sign_release

    secret = passphrase_of(key, None if passphrase_file is None else read_passphrase(passphrase_file))
    made = sign_release(release, key, passphrase=secret, override=override, overwrite=force)
    if as_json:
        output.print_json(made.to_dict())
        return
    output.show_audit(made.verified.audit, made.verified.refused, made.verified.override)
    output.show_decision(made.verified.decision, made.verified.refused)
    output.say(f"signed      {made.path} ({' and '.join(made.files)})", "bold")
    output.say(f"key id      {made.key}")
    if made.verified.passport is None:
        output.say("            It has no passport: `locum passport` writes one, and removes this signature.")


def decide(
    release: ReleaseFolder,
    name: Annotated[
        str,
        typer.Option(metavar="NAME", rich_help_panel=DECISION, help="Who decides. It stays in the decision's file."),
    ],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", rich_help_panel=DECISION, help="Why. It stays in the decision's file.")
    ],
    key: Key,
    approve: Annotated[
        bool, typer.Option("--approve", rich_help_panel=DECISION, help="The release may leave; needs --confirm.")
    ] = False,
    refuse: Annotated[
        bool, typer.Option("--refuse", rich_help_panel=DECISION, help="The release must not leave.")
    ] = False,
    confirm: Annotated[
        str,
        typer.Option(
            metavar="A,B,...",
            rich_help_panel=DECISION,
            help=f"Checks that you can answer with yes; --approve needs all five. {safes_in_words()}",
        ),
    ] = "",
    passphrase_file: PassphraseFile = None,
    audit: AuditFile = None,
    evaluation: EvaluationFile = None,
    include_measured: IncludeMeasured = False,
    override: Annotated[
        str | None,
        typer.Option(
            metavar="REASON",
            rich_help_panel=DECISION,
            help="Approve although the audit's policy is not met; receivers see the reason.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            rich_help_panel=WHERE,
            help="The private file of the decision; by default RELEASE-decision.json.",
            callback=unused_file,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Approve or refuse a release: record who decided and why, write the passport, and sign it.

    Name and reason stay in a private file next to the release; the passport gets the outcome, the date and the hash.
    """
    from locum.errors import ConfigError

    if approve == refuse:
        raise ConfigError("Give either --approve or --refuse.")
    from locum.recipes import decide_release, read_passphrase

    secret = passphrase_of(key, None if passphrase_file is None else read_passphrase(passphrase_file))
    made = decide_release(
        release,
        outcome="approved" if approve else "refused",
        name=name,
        reason=reason,
        checklist={check: {"ok": True} for check in listed(confirm)},
        key=key,
        passphrase=secret,
        audit=audit,
        evaluation=evaluation,
        include_measured=include_measured,
        override=override,
        out=out,
        overwrite=force,
    )
    output.show(made, as_json, show_made_decision)


def show_made_decision(made: DecideSummary) -> None:
    """What was decided, what is known about attacks, and what stays with the holder."""
    refused = made.outcome == "refused"
    output.show_audit(made.audit, refused or made.override is not None, made.override)
    output.show_decision(made.decision, refused)
    output.say(f"signed      {made.path} ({', '.join(made.files)})", "bold")
    output.say(f"key id      {made.key}")
    output.say(f"private     {made.file}: name, reason and checks; keep it, and do not send it")
    output.say(f"SHA-256     {made.sha256} (of that file; it is in the passport)")


def passphrase_of(key: Path, given: bytes | None) -> bytes | None:
    """The passphrase that was given, or the answer to a question if the key needs one."""
    if given is None and sys.stdin.isatty() and _is_locked(key):
        return _ask(f"passphrase of {key}")
    return given


def _is_locked(key: Path) -> bool:
    return key.is_file() and b"ENCRYPTED" in key.read_bytes()[:200]


def _ask(what: str, *, twice: bool = False) -> bytes:
    from locum.errors import ConfigError

    if not sys.stdin.isatty():
        raise ConfigError("There is no terminal to ask for a passphrase: give it with --passphrase-file FILE.")
    given: str = typer.prompt(what, hide_input=True, confirmation_prompt=twice, err=True)
    return given.encode()
