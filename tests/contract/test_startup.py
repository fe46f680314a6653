"""Starting is quick: `import locum`, help and the answer to a mistake load neither torch nor numpy."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from itertools import pairwise

import pytest

MAIN = "import sys; sys.argv = ['locum', *{words}]\nfrom locum.cli.main import main\n"
MAIN += "try:\n    main()\nexcept SystemExit:\n    pass"
HEAVY = {"torch", "sklearn", "scipy", "pandas", "pyarrow", "matplotlib"}


def run(code: str) -> str:
    # Packages are installed uncompiled: what is imported must be kept compiled, or each start compiles it again.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import locum",
        "import locum; locum.EmbeddingSet; locum.load",
    ],
)
def test_heavy_packages_stay_out(code: str) -> None:
    loaded = run(code + "\nimport sys; print('|', *{m.split('.')[0] for m in sys.modules})").rsplit("|", 1)[1].split()
    assert not HEAVY & set(loaded)


ANSWERED_AT_ONCE = (
    ["--help"],
    ["fit", "--help"],
    ["federate", "simulate", "--help"],
    ["plan", "--explain"],
    ["fit"],
    ["fit", "nowhere.npz", "-o", "out"],
    ["fit", "pyproject.toml", "-o", "src"],
    ["fit", "pyproject.toml", "-o", "out", "--no-dp", "--delta", "1e-5"],
    ["fit", "pyproject.toml", "-o", "out", "--epsilon", "-1", "--delta", "1e-5", "--n-public", "100"],
    ["sample", "nowhere", "-n", "3", "-o", "out.npz"],
    ["verify", "nowhere"],
    ["evaluate", "nowhere", "--test", "pyproject.toml"],
    ["audit", "nowhere", "--members", "a.npz", "--non-members", "b.npz"],
    ["ledger", "show", "--ledger", "nowhere.sqlite"],
    ["obfuscate", "apply", "nowhere", "pyproject.toml", "-o", "out", "--noise", "1"],
)


@pytest.fixture(scope="module")
def loaded_by_words() -> list[set[str]]:
    """What each command loads that those before it did not, in one process: the first to load a package is told."""
    code = f"""
import sys
from locum.cli.main import main
for words in {ANSWERED_AT_ONCE!r}:
    sys.argv = ["locum", *words]
    try:
        main()
    except SystemExit:
        pass
    print("\\n@@", *{{m.split(".")[0] for m in sys.modules}})
"""
    lines = [line.split()[1:] for line in run(code).splitlines() if line.startswith("@@")]
    assert len(lines) == len(ANSWERED_AT_ONCE)
    return [set(now) - set(before) for before, now in pairwise([[], *lines])]


@pytest.mark.parametrize("position", range(len(ANSWERED_AT_ONCE)), ids=[" ".join(w) for w in ANSWERED_AT_ONCE])
def test_help_and_mistakes_are_answered_at_once(position: int, loaded_by_words: list[set[str]]) -> None:
    assert not (HEAVY | {"numpy", "pydantic", "rich"}) & loaded_by_words[position]


def test_the_gaussian_fit_and_secure_noise_do_without_torch() -> None:
    code = (
        "import numpy as np\nfrom locum.generate import ClassGaussian\nfrom locum.mechanisms import SecureRandom\n"
        "fitted = ClassGaussian(random_state=0).fit(np.random.default_rng(0).normal(size=(40, 3)), [0, 1] * 20)\n"
        "fitted.release(no_dp=True)\n"
        "SecureRandom(np.array([1, 2]), rate=1.0, values=5, std=2.0).draw(0)\n"
        "import sys; print('|', *{m.split('.')[0] for m in sys.modules})"
    )
    assert "torch" not in run(code).rsplit("|", 1)[1].split()


def test_a_receiver_s_verbs_do_without_torch() -> None:
    code = "from locum.recipes import predict_records, sample_to_file; from locum.release import verify"
    loaded = run(code + "\nimport sys; print(*{m.split('.')[0] for m in sys.modules})").split()
    assert not {"torch", "sklearn", "scipy"} & set(loaded)


def loaded_by(code: str) -> set[str]:
    told = run(code + "\nimport sys; print('|', *{m.split('.')[0] for m in sys.modules})")
    return set(told.rsplit("|", 1)[1].split())


# What a site in mode "sums" or "head" uses: it must be able to reply without waiting for torch.
FOR_SUMS = (
    "from locum.recipes import join_federation",
    "import locum.federated.transport.node",
    "from locum.federated import FederationSettings, Reply, Request, SiteFile, plan_site",
    "import locum.federated.aggregation, locum.federated.masking, locum.federated.state, locum.federated.terms",
    "import locum.federated.verification",
    "from locum.accounting import Ledger, PaidPlan, plan_query, plan_sgd",
    "from locum.data import Reference, load_reference, read_embeddings",
    "from locum.generate.private import Whitener, exact_query, plan_network, reference_hash, subjects",
    "from locum.mechanisms import ExactSums, noisy",
    "from locum.release import Release, parse_manifest, transcript_hash",
    "from locum.train.dp import ASSUMPTIONS, InitialQuery",
)


@pytest.mark.parametrize("code", ["\n".join(FOR_SUMS[:2]), "\n".join(FOR_SUMS)], ids=["connect", "sums"])
def test_a_site_that_sends_sums_does_without_heavy_packages(code: str) -> None:
    pytest.importorskip("flwr")
    assert not HEAVY & loaded_by(code)


def test_a_site_itself_brings_nothing_heavy() -> None:
    assert not HEAVY & loaded_by("import locum.federated.site")


@cache
def cpu_seconds(code: str) -> float:
    """Processor time of a fresh interpreter: what it did, whatever else the machine was doing."""
    timed = f"import time\n{code}\nprint('|', time.process_time())"
    return min(float(run(timed).rsplit("|", 1)[1]) for _ in range(2))


def test_a_site_is_ready_to_connect_before_torch_is_imported() -> None:
    pytest.importorskip("flwr")
    assert cpu_seconds("\n".join(FOR_SUMS[:2])) < cpu_seconds("import torch")


@pytest.mark.parametrize("code", ["import locum", MAIN.format(words=["--help"])], ids=["import", "help"])
def test_start_takes_under_a_third_of_torch(code: str) -> None:
    assert cpu_seconds(code) < cpu_seconds("import torch") / 3
