"""`locum doctor`."""

from __future__ import annotations

import typer

from locum.cli import output
from locum.cli.options import Json


def doctor(as_json: Json = False) -> None:
    """Check whether this machine has what Locum needs."""
    from locum.recipes import examine

    findings = examine()
    if as_json:
        output.print_json({"ok": all(f.ok for f in findings), "findings": [f.to_dict() for f in findings]})
    else:
        # What is missing and not needed is neither fine nor a fault.
        signs = ["NO" if not f.ok else "-" if f.missing else "ok" for f in findings]
        rows = [
            [sign, f.what, f.found, "" if sign == "ok" else f.advice] for sign, f in zip(signs, findings, strict=True)
        ]
        output.show_table(["", "what", "found", "advice"], rows)
    if not all(f.ok for f in findings):
        raise typer.Exit(1)
