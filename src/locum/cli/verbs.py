"""The verbs on releases: each reads its options, calls its recipe and shows the result."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from locum.cli import output
from locum.cli.audit import audit
from locum.cli.demo import demo
from locum.cli.embed import embed
from locum.cli.evaluate import evaluate
from locum.cli.fit import fit
from locum.cli.options import Force, Json
from locum.cli.passport import keygen, passport, sign
from locum.cli.plan import plan
from locum.cli.receiver import predict, train
from locum.cli.report import report


def sample(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help=".npz, .parquet, .safetensors or .csv")],
    n: Annotated[int | None, typer.Option("-n", help="How many vectors, with labels by the released prior.")] = None,
    per_class: Annotated[str | None, typer.Option(help="Exact counts: benign=500,malignant=500.")] = None,
    variance: Annotated[float | None, typer.Option(help="Below 1: more typical vectors.")] = None,
    min_distance: Annotated[
        float | None, typer.Option(help="Keep this far from --real records (data holder only; see docs).")
    ] = None,
    real: Annotated[str | None, typer.Option(metavar="DATA", help="The records, for --min-distance.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Repeat the same draw; without it, fresh entropy.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw vectors from a release into a file."""
    from locum.recipes import sample_to_file

    result = sample_to_file(
        release,
        out,
        n=n,
        per_class=None if per_class is None else class_counts(per_class),
        variance=variance,
        min_distance=min_distance,
        real=real,
        seed=seed,
        overwrite=force,
    )
    if as_json:
        output.print_json(result)
    else:
        show_sample(result)


def show_sample(result: dict[str, Any]) -> None:
    """What was drawn and where it was written."""
    output.say(f"{result['rows']} vectors of {result['features']} features written to {result['file']}")
    if result["not_covered"]:
        output.say(f"not covered: {result['not_covered']}")


def verify(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")],
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also look up the release's charge in this ledger.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="PUB", help="The sender's public key, which must have signed the release.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that a release is complete, well formed and, with --key, signed; offline, without the data."""
    from locum.recipes import verify_release

    result = verify_release(release, ledger=ledger, key=key)
    if as_json:
        output.print_json(result.to_dict())
        return
    for line in result.checks:
        output.say(f"ok  {line}")
    for line in result.not_checked:
        output.say(f"--  {line}")
    output.say(f"fingerprint {result.fingerprint}", "bold")
    output.show_claim(result.claim)


def doctor(as_json: Json = False) -> None:
    """Check whether this machine has what Locum needs."""
    from locum.recipes import examine

    findings = examine()
    if as_json:
        output.print_json({"ok": all(f.ok for f in findings), "findings": [f.to_dict() for f in findings]})
    else:
        rows = [
            ["ok" if f.ok else "NO", f.what, f.found, f.advice if f.missing or not f.ok else ""] for f in findings
        ]
        output.show_table(["", "what", "found", "advice"], rows)
    if not all(f.ok for f in findings):
        raise typer.Exit(1)


def class_counts(text: str) -> dict[str, int]:
    """Parse `NAME=COUNT,...`, the value of --per-class."""
    from locum.errors import ConfigError

    out = {}
    for part in text.split(","):
        name, _, count = part.rpartition("=")
        if not name or not count.strip().isdecimal() or len(count.strip()) > 12:
            raise ConfigError(f"--per-class takes NAME=COUNT, separated by commas; got {part!r}.")
        out[name.strip()] = int(count)
    return out


def register(app: typer.Typer) -> None:
    """Add the verbs to the program, in the order of use."""
    passport_files = (passport, keygen, sign, verify)
    for verb in (embed, fit, sample, evaluate, train, predict, audit, report, *passport_files, plan, doctor, demo):
        app.command()(verb)
