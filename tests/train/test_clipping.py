"""Clipped sums in closed form against a loop over single rows, and against Opacus."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn
from torch.nn import functional

from locum.errors import PrivacyError
from locum.nets import CVAE, ResidualBlock, plain_cvae, residual_cvae
from locum.train import CVAELoss, RowLossByAutograd
from locum.train.dp import ClippedNetwork
from locum.train.dp.clipping import Subjects

SQUARED = RowLossByAutograd(lambda out, rows: torch.square(out - rows[:, -out.shape[1] :]).sum(dim=1))


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "one layer": nn.Linear(6, 2),
        "without bias": nn.Sequential(nn.Linear(6, 5, bias=False), nn.ReLU(), nn.Linear(5, 2, bias=False)),
        "deep": nn.Sequential(
            nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 7), nn.Sigmoid(), nn.Linear(7, 2), nn.Sigmoid()
        ),
        "layer norm": nn.Sequential(
            nn.LayerNorm(6), nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4), nn.LayerNorm(4)
        ),
        "norm without bias": nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8, bias=False), nn.ReLU(), nn.Linear(8, 2)),
        "nested": nn.Sequential(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 2))),
        "norm first": nn.Sequential(nn.LayerNorm(6)),
        "cvae": plain_cvae(4, 2, (7,), 3, sigmoid=False),
        "deep cvae": plain_cvae(4, 2, (7, 5), 2, sigmoid=True),
        "vae": plain_cvae(6, 0, (3,), 2, sigmoid=False),
        "cvae with norms": CVAE(
            nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 4)),
            nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.ReLU(), nn.Linear(3, 4)),
            dim=4,
            latent=2,
        ),
    }


NAMES = list(networks())


def row_losses(module: nn.Module, rows: Tensor, noise: Tensor) -> Tensor:
    """The same losses by the module itself and by plain formulas."""
    if isinstance(module, CVAE):
        out, mean, log_var = module(rows, noise, 0.5)
        kl = 0.5 * (log_var.exp() + mean**2 - log_var - 1).sum(dim=1)
        return ((out - rows[:, : module.dim]) ** 2).sum(dim=1) + 0.7 * kl
    out = module(rows)
    return ((out - rows[:, -out.shape[1] :]) ** 2).sum(dim=1)


def naive(module: nn.Module, rows: Tensor, noise: Tensor, clip: float, units: list[list[int]]) -> Tensor:
    """One unit after the other, by autograd: what the closed form must equal."""
    total = torch.zeros(sum(p.numel() for p in module.parameters()), dtype=rows.dtype)
    for unit in units:
        module.zero_grad()
        gradient, lengths = torch.zeros_like(total), 0.0
        for i in unit:
            parts = torch.autograd.grad(
                row_losses(module, rows[i : i + 1], noise[i : i + 1]).sum(), list(module.parameters())
            )
            one = torch.cat([p.reshape(-1) for p in parts])
            if torch.isfinite(one).all():
                gradient += one
                lengths += float(one.norm())
        # A subject's rows can cancel: a share of their lengths counts as a part of its norm.
        norm = math.hypot(float(gradient.norm()), 2.0**-8 * lengths if len(unit) > 1 else 0.0)
        total += gradient * min(1.0, clip / max(norm, 1e-300))
    return total


def closed(module: nn.Module, rows: Tensor, noise: Tensor, clip: float, codes: list[int] | None = None) -> Tensor:
    network = ClippedNetwork(module)
    loss = CVAELoss(0.7) if isinstance(module, CVAE) else SQUARED
    blocks = None
    if codes is not None:
        subjects = Subjects(codes)
        index, blocks = subjects.rows(np.arange(len(subjects)))
        rows, noise = rows[torch.from_numpy(index)], noise[torch.from_numpy(index)]
    with torch.no_grad():
        outputs = network.forward(rows, noise)
        network.backward(loss(outputs, rows)[1])
        network.clipped_sum(clip, blocks)
    out = network.sums.clone()
    network.release()
    return out


def made_up(
    module: nn.Module, n: int, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(n)
    latent = module.latent if isinstance(module, CVAE) else 0
    rows = scale * torch.randn(n, 6, generator=rng, dtype=dtype)
    return rows, torch.randn(n, latent, generator=rng, dtype=dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("clip", [1e-3, 1.0, 1e6])
def test_clipped_sums_equal_a_loop_over_rows(name: str, clip: float) -> None:
    module = networks()[name].double()
    rows, noise = made_up(module, 17)
    expected = naive(module, rows, noise, clip, [[i] for i in range(17)])
    torch.testing.assert_close(closed(module, rows, noise, clip), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("clip", [1e-2, 3.0, 1e6])
def test_by_subject_the_sum_over_its_rows_is_clipped(name: str, clip: float) -> None:
    """Subjects of 1 to 30 rows: pairs for small ones, the summed gradient itself for large ones."""
    module = networks()[name].double()
    codes = [7] * 30 + [3, 5, 5, 9, 3, -4, 5, 9, 1, 9, 9, 7]
    rows, noise = made_up(module, len(codes))
    units = [[i for i, c in enumerate(codes) if c == code] for code in set(codes)]
    expected = naive(module, rows, noise, clip, units)
    torch.testing.assert_close(closed(module, rows, noise, clip, codes), expected, rtol=1e-10, atol=1e-10)
    # The clip of records and of subjects is not the same thing.
    if clip < 1e6:
        assert float((closed(module, rows, noise, clip) - expected).norm()) > 1e-3 * clip


@settings(max_examples=40)
@given(
    codes=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    seed=st.integers(0, 1000),
    clip=st.floats(1e-3, 1e3),
)
def test_by_subject_for_any_sizes(codes: list[int], seed: int, clip: float) -> None:
    torch.manual_seed(seed)
    module = nn.Sequential(nn.Linear(6, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2)).double()
    rows, noise = made_up(module, len(codes), scale=3.0)
    units = [[i for i, c in enumerate(codes) if c == code] for code in set(codes)]
    expected = naive(module, rows, noise, clip, units)
    torch.testing.assert_close(closed(module, rows, noise, clip, codes), expected, rtol=1e-8, atol=1e-9 * clip)


@given(codes=st.lists(st.integers(-5, 5), max_size=30), data=st.data())
def test_rows_of_subjects_come_in_blocks(codes: list[int], data: st.DataObject) -> None:
    subjects = Subjects(np.array(codes, dtype=np.int64))
    known = np.unique(codes)
    chosen = np.array(
        data.draw(st.lists(st.integers(0, max(len(known) - 1, 0)), unique=True, max_size=len(known))), dtype=np.int64
    )
    rows, blocks = subjects.rows(np.sort(chosen))
    expected = [i for i, code in enumerate(codes) if code in known[chosen]]
    assert sorted(rows.tolist()) == expected
    assert [b.start for b in blocks] + [len(rows)] == [0] + [b.stop for b in blocks]
    for block in blocks:
        for part in rows[block.start : block.stop].reshape(-1, block.size):
            assert len({codes[i] for i in part}) == 1
            assert codes.count(codes[part[0]]) == block.size


@pytest.mark.parametrize("name", ["deep", "layer norm", "cvae", "deep cvae"])
def test_equal_to_opacus(name: str) -> None:
    opacus = pytest.importorskip("opacus")
    module = networks()[name]
    rows, noise = made_up(module, 40, torch.float32)
    mine = closed(module, rows, noise, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = opacus.GradSampleModule(module, loss_reduction="sum")
        losses = row_losses_of(theirs, module, rows, noise)
        losses.sum().backward()
    samples = [p.grad_sample.reshape(40, -1) for p in module.parameters()]
    norms = torch.cat(samples, dim=1).norm(dim=1)
    assert float(norms.max()) > 0.5
    expected = torch.cat([torch.einsum("i,ij->j", (0.5 / norms).clamp(max=1), s) for s in samples])
    torch.testing.assert_close(mine.float(), expected, rtol=1e-4, atol=1e-5)


def row_losses_of(wrapped: nn.Module, module: nn.Module, rows: Tensor, noise: Tensor) -> Tensor:
    if isinstance(module, CVAE):
        out, mean, log_var = wrapped(rows, noise, 0.5)
        kl = 0.5 * (log_var.exp() + mean**2 - log_var - 1).sum(dim=1)
        return ((out - rows[:, : module.dim]) ** 2).sum(dim=1) + 0.7 * kl
    out = wrapped(rows)
    return functional.mse_loss(out, rows[:, -out.shape[1] :], reduction="none").sum(dim=1)


@pytest.mark.parametrize("codes", [None, [0, 0, 1, 1, 1, 2, 3, 3]])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e38, -1e30])
@pytest.mark.parametrize("name", ["deep", "layer norm", "cvae"])
def test_rows_that_are_not_finite_count_as_nothing(name: str, bad: float, codes: list[int] | None) -> None:
    module = networks()[name]
    rows, noise = made_up(module, 8, torch.float32)
    rows[3, 1], rows[7, 5] = bad, bad
    rest = [0, 1, 2, 4, 5, 6]
    kept = None if codes is None else [codes[i] for i in rest]
    out = closed(module, rows, noise, 0.5, codes)
    assert torch.isfinite(out).all()
    difference = out - closed(module, rows[rest], noise[rest], 0.5, kept)
    if name == "layer norm" and np.isfinite(bad):
        # The norm makes a row like any other of it, and a unit moves the sum by the clip at most.
        assert float(difference.norm()) <= 2 * 0.5 * 1.001
    else:
        assert float(difference.norm()) < 1e-5


def test_tiny_gradients_of_huge_inputs_are_clipped() -> None:
    """Squares that underflow must not make a gradient look shorter than it is."""
    module = nn.Linear(1, 1, bias=False)
    tiny = RowLossByAutograd(lambda out, rows: 1e-24 * out[:, 0])
    network = ClippedNetwork(module)
    with torch.no_grad():
        rows = torch.tensor([[1e19]])
        network.backward(tiny(network.forward(rows, rows[:, :0]), rows)[1])
        network.clipped_sum(1e-6)
    assert float(network.sums.norm()) <= 1.001e-6


def test_opposite_rows_of_a_subject_cannot_hide_their_size() -> None:
    """They cancel but for rounding, which must not slip past the clip."""
    torch.manual_seed(0)
    module = nn.Linear(50, 3)
    signed = RowLossByAutograd(lambda out, rows: rows[:, 50] * out.sum(dim=1))
    rows = torch.randn(400, 51) * 1e4
    rows[:, 50] = torch.tensor([1e6, -1e6]).repeat(200)
    rows[1::2, :50] = rows[::2, :50]
    network, subjects = ClippedNetwork(module), Subjects(np.zeros(400, dtype=np.int64))
    index, blocks = subjects.rows(np.array([0]))
    with torch.no_grad():
        for order in (index, np.random.default_rng(0).permutation(index)):
            batch = rows[torch.from_numpy(order)]
            network.backward(signed(network.forward(batch, batch[:, :0]), batch)[1])
            network.clipped_sum(0.01, blocks)
            assert float(network.sums.norm()) <= 0.01


def test_an_empty_batch_gives_zeros() -> None:
    for module in networks().values():
        rows, noise = made_up(module, 0, torch.float32)
        network = ClippedNetwork(module)
        network.sums.fill_(7.0)
        with torch.no_grad():
            outputs = network.forward(rows, noise)
            network.backward((CVAELoss() if isinstance(module, CVAE) else SQUARED)(outputs, rows)[1])
            assert network.clipped_sum(1.0) == 0
        assert not network.sums.any()


def test_a_module_gets_its_own_weights_back() -> None:
    module = networks()["cvae"]
    before = {k: v.clone() for k, v in module.state_dict().items()}
    network = ClippedNetwork(module)
    assert len({p.untyped_storage().data_ptr() for p in module.parameters()}) == 1
    network.flat.data.add_(1.0)
    network.release()
    storages = {p.untyped_storage().data_ptr() for p in module.parameters()}
    assert len(storages) == len(list(module.parameters()))
    assert all(torch.equal(v, before[k] + 1) for k, v in module.state_dict().items())


class Custom(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(dim=0))


def with_loose_weight() -> nn.Module:
    module = plain_cvae(4, 2, (3,), 2, sigmoid=False)
    module.prior = nn.Parameter(torch.zeros(2))
    return module


def with_loose_layer() -> nn.Module:
    module = plain_cvae(4, 2, (3,), 2, sigmoid=False)
    module.head = nn.Linear(2, 2)
    return module


def frozen() -> nn.Module:
    module = plain_cvae(4, 2, (3,), 2, sigmoid=False)
    module.encoder.requires_grad_(False)
    return module


def shared() -> nn.Module:
    layer = nn.Linear(3, 3)
    return nn.Sequential(layer, nn.ReLU(), layer)


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), "Batch norm"),
        (nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False)), "Batch norm"),
        (residual_cvae(6, 2, 3, sigmoid=True), "Batch norm"),
        (nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), "Dropout"),
        (nn.Sequential(nn.Linear(3, 3), nn.PReLU()), "PReLU"),
        (nn.Sequential(nn.Linear(3, 3), nn.GroupNorm(1, 3)), "GroupNorm"),
        (nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3, elementwise_affine=False)), "LayerNorm"),
        (nn.Sequential(Custom(3, 3)), "Custom"),
        (nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "ParametrizedLinear"),
        (nn.Conv1d(3, 3, 1), "Conv1d"),
        (type("Mine", (CVAE,), {})(nn.Sequential(nn.Linear(3, 4)), nn.Sequential(nn.Linear(2, 3)), 3, 2), "Mine"),
        (with_loose_weight(), "no layer"),
        (with_loose_layer(), "no layer"),
        (frozen(), "frozen"),
        (shared(), "twice"),
        (nn.ReLU(), "float32"),
        (nn.Linear(3, 3).half(), "float32"),
        (ResidualBlock(3, 3), "Batch norm"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_clipped_is_refused(module: nn.Module, words: str) -> None:
    before = {k: v.clone() for k, v in module.state_dict().items()}
    with pytest.raises(PrivacyError, match=words):
        ClippedNetwork(module)
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())


def test_the_closed_gradient_of_the_loss_is_autograds() -> None:
    rng = torch.Generator().manual_seed(0)
    outputs = tuple(torch.randn(9, k, generator=rng, dtype=torch.float64) for k in (5, 3, 3))
    rows = torch.randn(9, 7, generator=rng, dtype=torch.float64)

    def formula(out: Tensor, mean: Tensor, log_var: Tensor, rows: Tensor) -> Tensor:
        kl = 0.5 * (log_var.exp() + mean**2 - log_var - 1)
        return ((out - rows[:, :5]) ** 2).sum(dim=1) + 0.3 * kl.sum(dim=1)

    losses, gradients = RowLossByAutograd(formula)(outputs, rows)
    mine, closed_form = CVAELoss(0.3)(outputs, rows)
    torch.testing.assert_close(mine, losses, rtol=1e-12, atol=1e-12)
    for a, b in zip(closed_form, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
