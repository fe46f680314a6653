"""`audit --risk`: the map of exposed records, into a file beside the data and nowhere else."""

from __future__ import annotations

from pathlib import Path

from understudy.audit.audit_report import AuditReport
from understudy.audit.risk import check_risk_file
from understudy.errors import ConfigError

__all__ = ["check_risk_file", "write_risk"]


def write_risk(report: AuditReport, path: Path, *, overwrite: bool = False) -> tuple[str, str]:
    """Write the risk map of an audit as a CSV that only its owner can read; return what it says, and the warning.

    Neither of the two sentences names a record. `check_risk_file` says before the attacks whether `path` will do.
    """
    if report.risk is None:
        raise ConfigError(
            "None of these attacks scores single records, so there is no risk map: add nearest distance."
        )
    report.risk.save(path, overwrite=overwrite)
    return report.risk.sentence(), report.risk.warning
