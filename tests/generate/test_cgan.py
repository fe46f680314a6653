"""The conditional GAN: it learns, its release is its generator network, and privacy is paid for once."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from locum import load
from locum.accounting import Gaussian, Ledger, PoissonGaussian, SGDPlan, epsilon_of, events_from_json
from locum.data import load_reference
from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import CGANGenerator
from locum.generate.adversary import GeneratorTrainer, gradient_on_fakes
from locum.nets import plain_cgan
from locum.release.decoders import decode
from locum.train import seeded
from locum.types import DP

Blobs = tuple[np.ndarray, np.ndarray]
SMALL = {"latent": 8, "generator_hidden": (32, 32), "critic_hidden": (32, 32), "random_state": 0}
BUDGET = DP(epsilon=2.0, delta=1e-4, n_public=200)
PRIVATE = {**SMALL, "privacy": BUDGET, "classes": [0, 1, 2], "batch_size": 50, "max_epochs": 5}


@pytest.fixture
def clusters(rng: np.random.Generator) -> Blobs:
    y = np.repeat([0, 1], [200, 100])
    X = rng.normal(size=(300, 6)) * [1, 2, 1, 0.5, 1, 3] + np.where(y == 0, 8.0, -6.0)[:, None]
    return X.astype(np.float32), y


@pytest.mark.parametrize("scaling", ["class", "zscore", "minmax"])
def test_class_means_are_near_the_real_ones(clusters: Blobs, scaling: str) -> None:
    X, y = clusters
    # "zscore" and "minmax" hand no class mean over: the critic has to.
    model = CGANGenerator(scaling=scaling, learning_rate=2e-3, critic_learning_rate=2e-3, penalty=1.0, **SMALL)
    Xs, ys = model.fit(X, y).sample(2000, random_state=0)
    for c in (0, 1):
        far = np.abs(Xs[ys == c].mean(axis=0) - X[y == c].mean(axis=0)) / X.std(axis=0)
        assert far.mean() < 0.3
        assert Xs[ys == c].std(axis=0).mean() > 0.2 * X[y == c].std(axis=0).mean()
    assert len(model.history_.train_loss) == 40


def test_the_generator_learns_more_than_the_scaler(rng: np.random.Generator) -> None:
    """Two features that go together: the scaler does not know, samples show it."""
    x = rng.normal(size=(400, 1))
    X = np.concatenate([x, x + 0.1 * rng.normal(size=(400, 1))], axis=1)
    settings = {**SMALL, "learning_rate": 2e-3, "critic_learning_rate": 2e-3, "penalty": 1.0}
    Xs, _ = CGANGenerator(**settings).fit(X, np.arange(400) % 2).sample(1000, random_state=0)
    assert np.corrcoef(Xs.T)[0, 1] > 0.8


def pairs(model: CGANGenerator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of class 1 as the release decodes them, and what the network makes of the same latents."""
    release, codes = model.release(no_dp=model.privacy is None), np.ones((n, 1), dtype=np.int64)
    found = decode(release.manifest, release.tensors, codes, 1.0, np.random.default_rng(7))
    z = torch.from_numpy(np.random.default_rng(7).standard_normal((n, model.latent), dtype=np.float32))
    condition = torch.eye(len(model.classes_))[1].expand(n, -1)
    with torch.no_grad():
        return found, model.module_.generate(z, condition).numpy()


@pytest.mark.parametrize("scaling", ["class", "minmax"])
def test_a_release_is_the_generator_network(clusters: Blobs, scaling: str) -> None:
    model = CGANGenerator(scaling=scaling, max_epochs=3, **SMALL).fit(*clusters)
    tensors = model.release(no_dp=True).tensors
    found, made = pairs(model, 40)
    offset = tensors["offset"][1 if scaling == "class" else 0]
    np.testing.assert_allclose(found, made * tensors["span"] + offset, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scaling", ["class", "public"])
def test_a_private_release_is_the_network_and_the_way_back(scaling: str, rng: np.random.Generator) -> None:
    """Raw vectors by the release's own operations: whitening is undone in its last layer."""
    reference = load_reference("efflite0", 1280)
    X = reference.color(rng.normal(size=(80, 1280)) + 0.5).astype(np.float32)
    settings = {**PRIVATE, "reference": "efflite0", "max_epochs": 1, "insecure_seed": 3, "scaling": scaling}
    model = CGANGenerator(**settings).fit(X, np.arange(80) % 3)
    release = model.release()
    assert release.manifest.decoder.kind == "network"
    assert release.manifest.decoder.noise == "none"
    found, made = pairs(model, 30)
    white = reference.whiten(found)
    # One length for all, that of the noisy sums; the offset is the class's noisy mean, or nothing.
    center = reference.whiten(release.tensors["offset"])[1]
    size = float(np.vdot(made, white - center) / np.vdot(made, made))
    np.testing.assert_allclose(white - center, size * made, atol=2e-3 * size)
    assert (np.linalg.norm(center) > 1e-2) == (scaling == "class")
    assert 0.3 < size < 3


def test_the_ledger_is_charged_once(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    model = CGANGenerator(ledger=file, holding="blobs", **PRIVATE)
    plan = model.plan()
    model.fit(*blobs)
    with Ledger(file) as ledger:
        (charge,) = ledger.holding("blobs").charges
        assert charge.tip == model.claim_.dp.ledger
        assert ledger.knows(charge.tip)
    assert charge.events == plan.events == events_from_json(model.claim_.dp.events)
    assert [type(e) for e in plan.events] == [PoissonGaussian, Gaussian]
    assert model.claim_.kind == "dp"
    assert model.claim_.dp.epsilon == charge.epsilon == epsilon_of(charge.events, 1e-4) <= 2.0
    assert plan.steps == model.history_.steps == 20
    with pytest.raises(PrivacyError, match="left"):
        CGANGenerator(ledger=file, holding="blobs", **PRIVATE).fit(*blobs)
    saved = model.release().save(tmp_path / "release")
    assert load(saved).claim == model.claim_
    text = (saved / "manifest.json").read_text()
    assert "penalty" not in text
    assert str(tmp_path) not in text


def test_by_subject(blobs: Blobs, tmp_path: Path) -> None:
    X, y = blobs
    settings = {**PRIVATE, "privacy": replace(BUDGET, unit="subject")}
    model = CGANGenerator(ledger=tmp_path / "l.sqlite", **settings).fit(X, y, np.arange(len(y)) // 2)
    assert model.claim_.unit == "subject"
    assert not any("several records" in item for item in model.claim_.not_covered)


def test_a_subject_with_many_records_counts_once(blobs: Blobs) -> None:
    """The same record once or fifty times, always of one subject: with the same seed hardly anything moves."""
    X, y, subjects = *blobs, np.arange(len(blobs[1]))
    settings = {**PRIVATE, "privacy": replace(BUDGET, unit="subject"), "scaling": "public", "clip": 1e-3}

    def fit(copies: int, subject: np.ndarray) -> tuple[np.ndarray, float]:
        model = CGANGenerator(insecure_seed=2, **settings)
        model.fit(np.append(X, X[[5] * copies], axis=0), np.append(y, y[[5] * copies]), subject)
        critic = torch.nn.utils.parameters_to_vector(model.module_.critic.parameters())
        return critic.detach().numpy(), dict(model.release().manifest.joint)[(int(y[5]),)]

    once, share = fit(1, np.append(subjects, -1))
    often, same_share = fit(50, np.append(subjects, [-1] * 50))
    non_members, other_share = fit(50, np.append(subjects, 1000 + np.arange(50)))
    assert np.abs(often - once).max() < 1e-3 < 0.1 * np.abs(non_members - once).max()
    # Counts and lengths were asked for in the same spirit.
    assert abs(same_share - share) < 0.01 < other_share - share - 0.03


def test_an_insecure_seed_repeats_and_gives_no_claim(blobs: Blobs, tmp_path: Path) -> None:
    def fit(rng: int) -> CGANGenerator:
        return CGANGenerator(ledger=tmp_path / "l.sqlite", insecure_seed=rng, **PRIVATE).fit(*blobs)

    one, two, other = fit(7), fit(7), fit(8)
    for name, tensor in one.release().tensors.items():
        np.testing.assert_array_equal(tensor, two.release().tensors[name])
    assert not np.allclose(one.release().tensors["offset"], other.release().tensors["offset"])
    assert one.claim_.kind == "none"
    assert one.claim_.test
    assert not (tmp_path / "l.sqlite").exists()


def test_real_coins_differ_whatever_the_seed(blobs: Blobs, tmp_path: Path) -> None:
    one, two = (CGANGenerator(ledger=tmp_path / f"{i}.sqlite", **PRIVATE).fit(*blobs) for i in range(2))
    assert not np.allclose(one.release().tensors["offset"], two.release().tensors["offset"])


def test_with_a_large_budget_it_learns_in_private(clusters: Blobs) -> None:
    """Little noise, and no class means from sums: what classes look like comes from the critic."""
    X, y = clusters[0] / 4, clusters[1]
    budget = DP(epsilon=20.0, delta=1e-4, n_public=300)
    settings = {
        **SMALL,
        "privacy": budget,
        "classes": [0, 1],
        "scaling": "public",
        "batch_size": 100,
        "max_epochs": 60,
    }
    Xs, ys = CGANGenerator(insecure_seed=0, learning_rate=2e-3, **settings).fit(X, y).sample(1000, random_state=0)
    mean = np.stack([Xs[ys == c].mean(axis=0) for c in (0, 1)])
    real = np.stack([X[y == c].mean(axis=0) for c in (0, 1)])
    cosine = (mean * real).sum(axis=1) / np.linalg.norm(mean, axis=1) / np.linalg.norm(real, axis=1)
    assert cosine.min() > 0.8
    # Lengths and class frequencies come from the noisy sums.
    assert 0.5 < np.linalg.norm(Xs, axis=1).mean() / np.linalg.norm(X, axis=1).mean() < 1.5
    assert abs((ys == 1).mean() - 1 / 3) < 0.06


def test_noisy_class_means_are_where_it_starts(clusters: Blobs) -> None:
    """By hand: the mean direction of a class, as long as records are on average."""
    X, y = clusters[0] / 4, clusters[1]
    budget = DP(epsilon=20.0, delta=1e-4, n_public=300)
    model = CGANGenerator(**{**PRIVATE, "privacy": budget, "classes": [0, 1], "max_epochs": 1}, insecure_seed=0).fit(
        X, y
    )
    length = np.linalg.norm(X, axis=1)
    means = np.stack([(X / length[:, None])[y == c].mean(axis=0) for c in (0, 1)]) * length.mean()
    np.testing.assert_allclose(model.release().tensors["offset"], means, atol=0.03 * length.mean())


def test_an_empty_class_is_fine_and_an_unnamed_one_is_not(blobs: Blobs) -> None:
    settings = {**PRIVATE, "insecure_seed": 0}
    model = CGANGenerator(**{**settings, "classes": [0, 1, 2, 3]}).fit(*blobs)
    assert model.sample(per_class={3: 5})[0].shape == (5, 8)
    with pytest.raises(DataError, match="not among `classes`"):
        CGANGenerator(**{**settings, "classes": [0, 1]}).fit(*blobs)


@pytest.mark.parametrize(
    ("error", "words", "changed"),
    [
        (PrivacyError, "n_public", {"privacy": DP(1.0, 1e-5)}),
        (PrivacyError, "classes", {"classes": None}),
        (PrivacyError, "subject", {"privacy": replace(BUDGET, unit="subject")}),
        (ConfigError, "space", {"space": "unit"}),
        (ConfigError, "'class' or 'public' with", {"scaling": "zscore"}),
        (ConfigError, "clip", {"clip": 0.0}),
        (ConfigError, "critic_learning_rate", {"critic_learning_rate": 0.0}),
        (ConfigError, "public statistics", {"reference": "nothing"}),
        (DataError, "1280 features", {"reference": "efflite0"}),
        (ConfigError, "insecure_seed", {"insecure_seed": -1}),
    ],
)
def test_what_is_wrong_costs_nothing(
    blobs: Blobs, tmp_path: Path, error: type[Exception], words: str, changed: dict
) -> None:
    with pytest.raises(error, match=words):
        CGANGenerator(**{**PRIVATE, "ledger": tmp_path / "l.sqlite", **changed}).fit(*blobs)
    assert not (tmp_path / "l.sqlite").exists()


def test_validation_is_refused_under_privacy(blobs: Blobs, tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="validation"):
        CGANGenerator(ledger=tmp_path / "l.sqlite", **PRIVATE).fit(*blobs, validation=blobs)
    assert not (tmp_path / "l.sqlite").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"latent": 0},
        {"generator_hidden": 512},
        {"critic_hidden": ()},
        {"critic_hidden": (0,)},
        {"penalty": -1.0},
        {"variance": -1.0},
        {"scaling": "public"},
        {"batch_size": 0},
        {"max_epochs": 1.5},
        {"learning_rate": -1.0},
    ],
    ids=lambda w: next(iter(w)),
)
def test_wrong_settings_name_themselves(blobs: Blobs, wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        CGANGenerator(**{**SMALL, **wrong}).fit(*blobs)


def test_a_fit_that_diverges_says_so(blobs: Blobs) -> None:
    with pytest.raises(DataError, match="diverged"):
        CGANGenerator(learning_rate=1e30, max_epochs=2, **SMALL).fit(*blobs)


def test_a_plan_needs_a_budget() -> None:
    with pytest.raises(ConfigError, match="privacy"):
        CGANGenerator().plan()


def test_a_class_of_one_record_is_not_released(blobs: Blobs) -> None:
    X, y = np.append(blobs[0], blobs[0][:1], axis=0), np.append(blobs[1], 7)
    model = CGANGenerator(max_epochs=1, **SMALL).fit(X, y)
    with pytest.raises(PrivacyError, match="'7' has a single record"):
        model.release(no_dp=True)
    assert CGANGenerator(max_epochs=1, scaling="zscore", **SMALL).fit(X, y).release(no_dp=True)


def test_torchs_own_coins_are_left_alone(blobs: Blobs) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    CGANGenerator(max_epochs=1, **SMALL).fit(*blobs)
    assert torch.equal(before, torch.get_rng_state())


def test_with_centers_made_vectors_have_the_length_of_records() -> None:
    net = plain_cgan(9, 2, 4, (8,), (8,))
    trainer = GeneratorTrainer(net, torch.eye(2), 1e-2, seeded(0))
    trainer.centers = torch.full((2, 9), 3.0)
    rows, stray = trainer.draw(50)
    torch.testing.assert_close(rows[:, :9].norm(dim=1), torch.full((50,), 3.0))
    assert (stray > 1).all()
    # The release does not bring them to that length: the network has learned to.
    for _ in range(300):
        trainer.learn(net.critic, 50)
    assert (trainer.draw(50)[1] < 1).all()


def test_the_public_gradient_is_that_of_fake_rows() -> None:
    """Naive twin: torch's own gradient for each row, clipped, and the mean of those."""
    torch.manual_seed(0)
    net = plain_cgan(5, 2, 3, (6,), (7, 4))
    plan = SGDPlan(BUDGET, 0.5, 30, 1, 0.7, 1.0)
    trainer, twin = (GeneratorTrainer(copy.deepcopy(net), torch.eye(2), 1e-3, seeded(4)) for _ in range(2))
    with torch.no_grad():
        found = gradient_on_fakes(net, trainer, plan)()
    rows, _ = twin.draw(30)
    expected = torch.zeros_like(found)
    for row in rows.detach():
        parts = torch.autograd.grad(torch.nn.functional.softplus(net(row[None])).sum(), list(net.critic.parameters()))
        gradient = torch.cat([p.reshape(-1) for p in parts])
        expected += gradient * min(1.0, 0.7 / float(gradient.norm())) / 30
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    # Meanwhile the trainer went a step, and the critic did not move.
    assert not torch.equal(trainer.draw(5)[0], twin.draw(5)[0])
    assert all(p.grad is None for p in net.critic.parameters())
