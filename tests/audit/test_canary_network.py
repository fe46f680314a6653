from __future__ import annotations

import numpy as np
import pytest
import torch

from locum.audit.epsilon.canaries import CanaryNetwork
from locum.errors import ConfigError


def gradients(network: CanaryNetwork, rows: torch.Tensor) -> torch.Tensor:
    """Each row's gradient by all weights, one after the other and by torch alone."""
    found = []
    for row in rows.split(1):
        noise = torch.randn(1, 4, dtype=torch.float64)
        outputs = network.module(row, noise, 0.5) if hasattr(network.module, "encoder") else (network.module(row),)
        _, by_output = network.loss(tuple(out.detach() for out in outputs), row)
        found.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(
            outputs, list(network.module.parameters()), by_output
        )]))  # fmt: skip
    return torch.stack(found)


@pytest.mark.parametrize("kind", ["cvae", "critic"])
def test_each_canary_has_a_direction_of_its_own_and_is_much_too_long(kind: str) -> None:
    network = CanaryNetwork(kind, 50, clip=2.0, seed=3)
    rng = np.random.default_rng(0)
    canaries = gradients(network, network.canary_rows(np.arange(50), np.ones(50)))
    records = gradients(network, network.plain_rows(20, rng))
    length = canaries.norm(dim=1, keepdim=True)
    assert float(length.min()) > 1000 * 2.0
    unit = canaries / length
    torch.testing.assert_close(unit @ unit.T, torch.eye(50, dtype=torch.float64), atol=1e-4, rtol=0)
    assert float((records @ unit.T).abs().max()) < 1e-3 * float(records.norm(dim=1).max())
    assert float(records.norm(dim=1).min()) > 0


@pytest.mark.parametrize("kind", ["cvae", "critic"])
def test_weights_are_read_along_the_canaries_gradients(kind: str) -> None:
    """A step against the gradients of some canaries is seen for them, in full, and for nobody else."""
    network = CanaryNetwork(kind, 50, clip=1.0, seed=4)
    before, who = network.read(), np.array([0, 7, 49])
    sign = np.array([1.0, 1.0, -1.0])
    step = gradients(network, network.canary_rows(who, sign))
    step = (step / step.norm(dim=1, keepdim=True)).sum(dim=0)
    start = 0
    with torch.no_grad():
        for weight in network.module.parameters():
            weight -= step[start : start + weight.numel()].reshape(weight.shape)
            start += weight.numel()
    expected = np.zeros(50)
    expected[who] = sign
    np.testing.assert_allclose(before - network.read(), expected, atol=1e-5)


def test_an_unknown_network_is_refused() -> None:
    with pytest.raises(ConfigError, match="'cvae' or 'critic'"):
        CanaryNetwork("forest", 50, clip=1.0, seed=0)
