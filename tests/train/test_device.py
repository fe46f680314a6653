from __future__ import annotations

import pytest
import torch

from locum.errors import ConfigError
from locum.generate import CGANGenerator, CVAEGenerator
from locum.heads import LinearHead
from locum.train import cpu_only, pick_device, seeded_weights
from locum.types import DP, EmbeddingSet


def test_auto_is_a_device_that_works() -> None:
    device = pick_device("auto")
    assert float(torch.ones(3).to(device).sum()) == 3
    if not torch.cuda.is_available() and not torch.backends.mps.is_available():
        assert device.type == "cpu"
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("name", ["tpu", "cpu:1", "cuda:x", "mps:0", "", "auto:1"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="must be one of auto, cpu, cuda, mps"):
        pick_device(name)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
@pytest.mark.parametrize("name", ["cuda", "cuda:3"])
def test_a_device_that_is_not_there_is_refused_before_work_starts(name: str, blob_set: EmbeddingSet) -> None:
    with pytest.raises(ConfigError, match="cannot use the device 'cuda"):
        pick_device(name)
    for model in (CVAEGenerator(device=name), CGANGenerator(device=name), LinearHead(device=name)):
        with pytest.raises(ConfigError, match="cannot use the device 'cuda"):
            model.fit(blob_set.X, blob_set.y)


def test_private_fits_stay_on_the_cpu(blob_set: EmbeddingSet) -> None:
    assert cpu_only("auto").type == "cpu"
    privacy = DP(1.0, 1e-5, n_public=200)
    for kind in (CVAEGenerator, CGANGenerator):
        model = kind(device="cuda", privacy=privacy, classes=[0, 1, 2], insecure_seed=0)
        with pytest.raises(ConfigError, match="runs on the CPU"):
            model.fit(blob_set.X, blob_set.y)


@pytest.mark.parametrize("model", [CVAEGenerator, CGANGenerator])
def test_the_device_does_not_travel_with_a_release(model: type, blob_set: EmbeddingSet) -> None:
    fitted = model(max_epochs=1, device="cpu", random_state=0).fit(blob_set.X, blob_set.y)
    assert "device" not in fitted.release(no_dp=True).manifest.settings
    other = model(max_epochs=1, random_state=0).fit(blob_set.X, blob_set.y)
    if pick_device("auto").type == "cpu":
        assert torch.equal(*(torch.from_numpy(m.sample(5, random_state=0)[0]) for m in (fitted, other)))


def test_seeding_weights_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    with seeded_weights(3, torch.device("cpu")):
        torch.rand(5)
    assert torch.equal(before, torch.random.get_rng_state())
