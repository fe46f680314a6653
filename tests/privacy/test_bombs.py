"""A few bytes from outside must not take the machine: small files that ask for much memory or time are refused."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.accounting import Ledger, PoissonGaussian, epsilon_of, events_from_json, plan_sgd
from locum.errors import ConfigError, FormatError
from locum.federated.terms import read_terms
from locum.generate import ClassGaussian
from locum.types import DP

MEGABYTE = 2**20


# What `wait4` says of a child includes the memory of the process that it was forked from.
MEASURED = """
import atexit, sys
file = sys.argv.pop(1)
def write():
    with open("/proc/self/status") as status, open(file, "w") as peak:
        peak.write(status.read().split("VmHWM:")[1].split()[0])
atexit.register(write)
from locum.cli.main import main
main()
"""


def steps(rate: float, noise: float, count: float) -> dict[str, Any]:
    return {"kind": "poisson-gaussian", "rate": rate, "noise_multiplier": noise, "steps": count}


def laplace(noise: float) -> dict[str, Any]:
    return {"kind": "laplace", "noise_multiplier": noise}


BOMBS: dict[str, list[dict[str, Any]]] = {
    "a billion steps": [steps(0.01, 1.0, 10**9)],
    "steps beyond any float": [steps(0.01, 1.0, 10**400)],
    "many steps with little noise": [steps(0.5, 0.3, 1_000_000)],
    "many steps with much noise": [steps(1e-4, 20.0, 10_000_000)],
    "two halves": [steps(0.01, 1.0, 400_000_000), steps(0.01, 1.01, 400_000_000)],
    "a thousand kinds of steps": [steps(0.01, 1.0 + i / 1000, 100) for i in range(1000)],
    "a thousand small kinds of steps": [steps(0.01, 10.0 + i / 10, 10) for i in range(1000)],
    "a thousand kinds of counts": [laplace(0.01 + i / 1e5) for i in range(1000)],
    "more events than any fit has": [laplace(10.0)] * 100_000,
    "noise beyond any float": [{"kind": "gaussian", "noise_multiplier": 1e200}],
    "steps with noise beyond any float": [steps(0.01, 1e200, 10)],
    "a rate near to nothing": [steps(1e-300, 1.0, 10)],
}


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with a true claim."""
    folder = tmp_path_factory.mktemp("honest")
    rng = np.random.default_rng(0)
    model = ClassGaussian(
        privacy=DP(1.0, 1e-5, n_public=60), classes=[0, 1], ledger=folder / "ledger.sqlite", reference="none"
    )
    path: Path = model.fit(rng.normal(size=(60, 4)), np.arange(60) % 2).release().save(folder / "release")
    return path


def limited(*words: str, cwd: Path) -> tuple[int, str, float, float]:
    """Run the program in 3 GB of addresses: its code, what it said, its seconds, its megabytes."""
    began = time.monotonic()
    with open(cwd / "said", "wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", MEASURED, str(cwd / "peak"), *words],
            stdout=said,
            stderr=said,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30)),
        )
        code = process.wait()
    peak = int((cwd / "peak").read_text()) / 1024
    return code, (cwd / "said").read_text(), time.monotonic() - began, peak


def terms(events: Any) -> dict[str, Any]:
    paid = {"epsilon": 1.0, "delta": 1e-5, "unit": "record", "relation": "add-or-remove", "ledger": "0" * 64}
    return {"noise": 1.0, "size": 100, "terms": {**paid, "events": events}}


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits on memory")
@pytest.mark.parametrize("bomb", [name for name in BOMBS if "beyond any float" not in name])
def test_verify_refuses_a_bomb_in_a_sentence(bomb: str, honest: Path, tmp_path: Path) -> None:
    release = tmp_path / "release"
    release.mkdir()
    for file in honest.iterdir():
        (release / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((release / "manifest.json").read_text())
    manifest["claim"]["dp"].update(events=BOMBS[bomb], epsilon=1.0)
    (release / "manifest.json").write_text(json.dumps(manifest))
    code, said, seconds, megabytes = limited("verify", str(release), cwd=tmp_path)
    assert code == 2, said
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "the machine's memory" not in said, "it was tried"
    assert seconds < 20
    assert megabytes < 1000


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_site_cannot_bomb_the_coordinator(bomb: str) -> None:
    began = time.monotonic()
    try:
        found = read_terms(terms(BOMBS[bomb]))
    except FormatError:
        pass
    else:
        # What can be computed may cost whatever it costs: the coordinator's limits refuse it.
        assert found.claim.dp is not None
        assert found.claim.dp.epsilon > 100
    assert time.monotonic() - began < 20


def nested(depth: int) -> Any:
    out: Any = 0
    for _ in range(depth):
        out = [out]
    return out


@pytest.mark.parametrize(
    "events",
    [
        nested(100_000),
        [nested(100_000)],
        [{"kind": nested(100_000)}],
        [{"kind": "gaussian", "noise_multiplier": nested(100_000)}],
        [{"kind": "x" * 10_000_000}],
        {"kind": "gaussian"},
        "gaussian",
        None,
        [[["kind", "gaussian"], ["noise_multiplier", 4.0]]] * 2_000,
    ],
    ids=["deep", "deep entry", "deep kind", "deep number", "long", "dict", "text", "none", "many"],
)
def test_events_of_the_wrong_shape_are_refused(events: Any) -> None:
    with pytest.raises(FormatError):
        read_terms(terms(events))
    with pytest.raises(ConfigError) as told:
        events_from_json(events)
    assert len(str(told.value)) < 300


@pytest.mark.slow
def test_the_largest_sensible_plans_can_still_be_priced(tmp_path: Path) -> None:
    """A million steps, and twenty sites with rates and noises of their own."""
    assert epsilon_of([PoissonGaussian(0.001, 1.0, 1_000_000)], 1e-6) > 1
    sites = [PoissonGaussian(0.1 + i / 100, 3 + i / 10, 1000) for i in range(20)]
    assert epsilon_of(sites, 1e-6) > epsilon_of(sites[:1], 1e-6)
    # The search for noise begins far below what many steps take.
    plan = plan_sgd(DP(1.0, 1e-6, n_public=1000), batch=500, steps=300_000)
    assert plan.epsilon <= 1
    ledger = Ledger(tmp_path / "ledger.sqlite")
    ledger.open_for(plan.privacy, "scans")
    assert ledger.charge("scans", plan.events, delta=1e-6, purpose="training").epsilon <= 1


def test_a_plan_beyond_the_limits_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="steps"):
        plan_sgd(DP(1.0, 1e-6, n_public=1000), batch=1, epochs=10**9)
