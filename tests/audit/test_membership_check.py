"""The quick check after a fit agrees with the audit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from locum.cli.output import show_membership
from locum.recipes import audit_data, fit_release


def test_fit_and_audit_agree_on_a_shift_of_populations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A test split from elsewhere lies farther from the samples for reasons that are not a leak."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X, other = (rng.normal(size=(400, 8)) * scale + y[:, None] for scale in (1.0, 1.3))
    data = str(tmp_path / "d.npz")
    np.savez(data, train_x=X, train_y=y, test_x=other, test_y=y)
    summary = fit_release(data, tmp_path / "r", generator="gaussian", refuse_leak=True, no_dp=True)
    assert summary.membership is not None
    # By its figures alone it would be called a leak.
    assert summary.membership.attack.low > max(0.5, summary.membership.control.value)
    assert summary.membership.verdict == "inconclusive"
    assert "different populations" in summary.membership.inconclusive_because
    report = audit_data(tmp_path / "r", f"{data}#train", f"{data}#test", attacks=["nearest distance"], seed=0).report
    assert [r.verdict for r in report.results] == ["inconclusive"]
    show_membership(summary.membership)
    # The reason stands beside the word.
    assert "inconclusive: Members and non-members come from different" in " ".join(capsys.readouterr().out.split())
