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
        rows = [
            ["ok" if f.ok else "NO", f.what, f.found, f.advice if f.missing or not f.ok else ""] for f in findings
        ]
        output.show_table(["", "what", "found", "advice"], rows)
    if not all(f.ok for f in findings):
        raise typer.Exit(1)
