from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from locum.data import load_sample, partition_iid
from locum.errors import ConfigError
from locum.federated import Coordinator, FederationSettings, LocalChannel
from locum.federated.simulation import write_sites
from locum.types import DP

pytest.importorskip("flwr")
pytest.importorskip("ray")

from locum.federated.transport.ray import simulate_on_ray

SETTINGS = FederationSettings(
    classes=tuple(range(10)), dim=64, mode="decoder", hidden=(16,), latent=4, local_epochs=1, batch=64, rounds=2
)

RUN = """
import json, os, sys
from pathlib import Path
from locum.federated.transport.ray import simulate_on_ray
from locum.federated.settings import FederationSettings

told = []
settings = FederationSettings.from_dict(json.loads(sys.argv[1]))
release = simulate_on_ray(settings, sys.argv[2], 3, sys.argv[3], cpus=2, on_event=told.append)
from flwr.supercore import telemetry
assert telemetry.FLWR_TELEMETRY_ENABLED == "0" and os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
print(json.dumps({"release": str(release), "told": told}, default=str))
"""


@pytest.mark.usefixtures("hardly_trained_personal_models")
def test_ray_and_one_process_give_the_same_release(tmp_path: Path) -> None:
    parts = partition_iid(load_sample("digits"), 3, np.random.default_rng(0))
    for engine in ("local", "ray"):
        write_sites(parts, tmp_path / engine, DP(2.0, 1e-4, "record", 400), seed=1)
    files = {f"site-{i}": tmp_path / "local" / f"site-{i}" / "site.toml" for i in range(3)}
    here = Coordinator(SETTINGS, tmp_path / "out-local").run(LocalChannel(files))
    # In its own process: Ray leaves threads and settings behind.
    words = [sys.executable, "-c", RUN, json.dumps(SETTINGS.to_dict()), tmp_path / "ray", tmp_path / "out-ray"]
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    reply = json.loads(done.stdout.splitlines()[-1])
    assert [e["round"] for e in reply["told"] if e["event"] == "round"] == [1, 2]
    assert all(e["sites"] == ["site-0", "site-1", "site-2"] for e in reply["told"] if e["event"] == "round")
    there = Path(reply["release"])
    for file in here.glob("*.safetensors"):
        one, other = load_file(file), load_file(there / file.name)
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


def test_a_missing_site_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"site-0/site\.toml"):
        simulate_on_ray(SETTINGS, tmp_path, 3, tmp_path / "out")
    assert not (tmp_path / "out").exists()
