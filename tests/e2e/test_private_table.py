"""A table with a guarantee, from a draft of its domain to rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from tests.e2e.conftest import Run


def test_from_domain_to_rows(locum: Run, program: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    smokes = rng.random(600) < 0.4
    job = np.where(rng.random(600) < np.where(smokes, 0.8, 0.3), "cook", "nurse")
    people = pd.DataFrame({"job": job, "age": rng.integers(20, 70, 600), "smokes": np.where(smokes, "yes", "no")})
    people.to_csv(tmp_path / "people.csv", index=False)
    given = ("people.csv", "--utility", "smokes")
    assert program("obfuscate", "domain", *given, "-o", "d.json").code == 0
    done = locum("obfuscate", "fit", *given, "-o", "t", "--epsilon", 1, "--domain", "d.json", "--json")
    assert done.code == 0, done.err
    assert done.json["claim"]["kind"] == "dp"
    done = locum("obfuscate", "sample", "t", "-n", 20, "-o", "rows.csv")
    assert done.code == 0
    assert "dp (epsilon" in done.out
    assert "No guarantee" in program("obfuscate", "apply", "t", "people.csv", "-o", "applied.csv").out
    fit = ("fit", *given, "-o", "u")
    for words, said in (
        ((*fit, "--domain", "d.json"), "add --epsilon"),
        ((*fit, "--epsilon", 1, "--domain-public", "--epochs", "3"), "--epochs"),
        ((*fit, "--epsilon", 1, "--utility", "job", "--domain-public"), "one label"),
        ((*fit, "--epsilon", 1, "--domain", "d.json"), "does not allow"),
        (("sample", "t", "-o", "rows.csv"), "rows.csv"),
        (("sample", "people.csv", "-o", "x.csv"), "not a folder"),
    ):
        done = program("obfuscate", *words)
        assert done.code == 2, (words, done.err)
        assert said in done.err
        assert done.err.count("\n") == 1
    assert not (tmp_path / "u").exists()
