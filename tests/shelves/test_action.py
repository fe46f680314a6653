"""The GitHub action, run as GitHub runs it: its own steps, in bash, on a real release and a real signed passport."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import write_embeddings
from locum.generate import ClassGaussian
from locum.recipes import make_key_pair, sign_release, write_passport
from locum.release import load
from locum.types import DP

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "actions" / "audit-release"
pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="the action's steps are written for bash")


@dataclass
class Job:
    """What a job saw: which steps ran, how the last one ended, the log, the outputs and the summary."""

    ran: list[str]
    code: int
    log: str
    outputs: str
    summary: str


def value(expression: str, inputs: dict[str, str]) -> Any:
    """A GitHub expression of the few kinds that the action uses: `||` over `&&` over one comparison."""
    text = expression.strip()
    if "||" in text:
        left, right = text.split("||", 1)
        return value(left, inputs) or value(right, inputs)
    if "&&" in text:
        left, right = text.split("&&", 1)
        return value(left, inputs) and value(right, inputs)
    for sign in ("==", "!="):
        if sign in text:
            left, right = text.split(sign)
            return (value(left, inputs) == value(right, inputs)) == (sign == "==")
    if text.startswith("'"):
        return text[1:-1]
    return inputs[text.removeprefix("inputs.")]


def run(folder: Path, **given: str) -> Job:
    """Run the steps in `folder`, with `install` off: Locum is here."""
    action = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
    names = {name.replace("_", "-"): text for name, text in given.items()}
    assert names.keys() <= action["inputs"].keys()
    inputs = {name: entry.get("default", "") for name, entry in action["inputs"].items()}
    inputs |= {"install": "false"} | names
    temp = folder / "runner-temp"
    shutil.rmtree(temp, ignore_errors=True)
    temp.mkdir()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "RUNNER_TEMP": str(temp),
        "GITHUB_ACTION_PATH": str(FOLDER),
        "GITHUB_OUTPUT": str(temp / "output"),
        "GITHUB_STEP_SUMMARY": str(temp / "summary"),
    }
    ran, log, code = [], "", 0
    for step in action["runs"]["steps"]:
        if not value(step.get("if", "'always'"), inputs):
            continue
        words = {
            name: re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(value(found[1].strip(), inputs)), text)
            for name, text in step.get("env", {}).items()
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder,
            env={**environment, **words},
            capture_output=True,
            text=True,
            check=False,
        )
        ran.append(step["name"])
        log, code = log + done.stdout + done.stderr, done.returncode
        if code:
            break
    shown = {name: (temp / name).read_text() if (temp / name).exists() else "" for name in ("output", "summary")}
    return Job(ran, code, log, shown["output"], shown["summary"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A holder's folder: records, a private release with its ledger, and one without a guarantee that leaks."""
    folder = tmp_path_factory.mktemp("desk")
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = (rng.normal(size=(240, 24)) + y[:, None]).astype(np.float32)
    names = np.array(["ill", "well"])[y]
    for name, rows in (("members", slice(120)), ("others", slice(120, None))):
        write_embeddings(folder / f"{name}.npz", EmbeddingSet.from_arrays(X[rows], names[rows]))
    # Twenty records per class in 24 dimensions: exact means give them away.
    write_embeddings(folder / "few.npz", EmbeddingSet.from_arrays(X[:40], names[:40]))
    ClassGaussian().fit(X[:40], names[:40]).release(no_dp=True).save(folder / "leaky")
    private = ClassGaussian(privacy=DP(1.0, 1e-5), classes=["ill", "well"], ledger=folder / "ledger.sqlite")
    private.fit(X[:120], names[:120]).release().save(folder / "private")
    return folder


def test_a_release_that_leaks_fails_the_job_and_the_log_has_no_figure(desk: Path) -> None:
    done = run(desk, release="leaky", members="few.npz", non_members="others.npz", policy="internal", seed="0")
    assert done.code == 3, done.log
    assert done.ran[-1] == "Attack the release"
    assert "policy internal: NOT met" in done.log
    assert "verdict=leak" in done.outputs
    assert "verdict: leak" in done.summary
    findings = desk / "runner-temp" / "locum-audit.json"
    assert findings.stat().st_mode & 0o777 == 0o600
    assert not re.search(r"\d\.\d", done.log + done.summary)


def test_a_private_release_passes_and_its_signed_passport_is_enough_for_a_receiver(desk: Path) -> None:
    release = desk / "private"
    audited = run(
        desk,
        release="private",
        members="members.npz",
        non_members="others.npz",
        ledger="ledger.sqlite",
        accept="\n".join(load(release).claim.assumptions),
        seed="0",
    )
    assert audited.code == 0, audited.log
    assert "policy research-sharing: met" in audited.log
    # What the action found goes into the passport.
    (findings,) = re.findall("findings=(.*)", audited.outputs)
    make_key_pair(desk / "holder")
    write_passport(release, audit=Path(findings))
    sign_release(release, desk / "holder")
    done = run(desk, release="private", key="holder.pub")
    assert done.ran[-1] == "Read the signed passport"
    assert done.code == 0, done.log
    assert "policy research-sharing: met, according to the signed passport" in done.log
    other = run(desk, release="private", key="holder.pub", policy="public")
    assert other.code == 3
    assert "reports the policy research-sharing, and public is wanted" in other.log
    make_key_pair(desk / "stranger")
    forged = run(desk, release="private", key="stranger.pub")
    assert (forged.code, forged.ran[-1]) == (2, "Verify the release")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"members": "a.npz"}, "non-members is not"),
        ({"non_members": "a.npz"}, "members is not"),
        ({}, "or key to trust"),
        ({"key": "k", "accept": "x"}, "accept needs"),
        ({"key": "k", "install": "yes"}, "true or false; got 'yes'"),
    ],
)
def test_inputs_that_do_not_fit_stop_the_job_first(tmp_path: Path, given: dict[str, str], words: str) -> None:
    done = run(tmp_path, release="r", **given)
    assert (done.code, done.ran) == (2, ["Check the inputs"])
    assert words in done.log


def test_no_input_is_written_into_a_script() -> None:
    """An expression inside `run` would be code; through `env` it is text."""
    action = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["steps"]
    assert not [step["name"] for step in action["runs"]["steps"] if "${{" in step["run"]]
