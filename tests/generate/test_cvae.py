from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from locum.errors import ConfigError, DataError, PrivacyError
from locum.generate import PRESETS, CVAEGenerator, VAEGenerator, export_decoder
from locum.nets import residual_cvae
from locum.release import NetworkSpec, run_program
from locum.train import seeded

Blobs = tuple[np.ndarray, np.ndarray]


def penalty(compat: bool, mean: float, log_var: float) -> float:
    """The KL term for one latent, taken from the loss itself by making the error zero."""
    generator = CVAEGenerator(authors_compat=compat)
    generator._std_from_log = 1.0 if compat else 0.5
    x = torch.zeros(1, 1)
    generator._reconstruct = lambda *_: (x, torch.full((1, 1), mean), torch.full((1, 1), log_var))
    return float(generator._loss(x, seeded(0), beta=1.0))


@settings(max_examples=30, deadline=None)
@given(mean=st.floats(-2, 2), log_var=st.floats(-3, 2))
def test_the_kl_is_the_kl_to_a_standard_normal(mean: float, log_var: float) -> None:
    """Against numerical integration: fault F1 of the papers."""
    z = np.linspace(-30, 30, 200_001)
    variance = np.exp(log_var)
    q = np.exp(-((z - mean) ** 2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
    log_q = -((z - mean) ** 2) / (2 * variance) - 0.5 * np.log(2 * np.pi * variance)
    log_p = -(z**2) / 2 - 0.5 * np.log(2 * np.pi)
    assert penalty(False, mean, log_var) == pytest.approx(float(np.trapezoid(q * (log_q - log_p), z)), abs=1e-3)


def test_the_authors_penalty_learns_half_the_variance() -> None:
    grid = np.linspace(-2, 1, 601)
    best = grid[np.argmin([penalty(True, 0.0, v) for v in grid])]
    # There sigma = exp(log_var): its square at the optimum is 1/2.
    assert np.exp(best) ** 2 == pytest.approx(0.5, abs=0.01)
    assert penalty(True, 0.3, -0.2) == pytest.approx(np.exp(-0.4) + 0.09 + 0.2 - 0.5, rel=1e-5)


@pytest.mark.parametrize(("compat", "scale"), [(False, 2.0), (True, 4.0)])
def test_variance_means_variance_unless_compat(blobs: Blobs, compat: bool, scale: float) -> None:
    from locum.release.decoders import latent_scale

    spec = (
        CVAEGenerator(authors_compat=compat, max_epochs=1, random_state=0)
        .fit(*blobs)
        .release(no_dp=True)
        .manifest.decoder
    )
    assert isinstance(spec, NetworkSpec)
    assert latent_scale(spec, 4.0) == scale


def test_compat_is_what_the_authors_ran() -> None:
    s = CVAEGenerator("replica", authors_compat=True).settings_
    assert s == PRESETS["replica"]
    assert (s.hidden, s.latent, s.beta, s.batch_size, s.max_epochs, s.patience) == ((256,), 50, 0.1, 512, 1000, 15)
    assert (s.scaling, s.decoder_noise) == ("minmax", "none")
    thesis = CVAEGenerator("small", authors_compat=True).settings_
    assert (thesis.weight_decay, thesis.batch_size, thesis.beta) == (0.01, 512, 0.01)


def test_the_authors_penalty_is_not_in_the_federated_seed(blobs: Blobs) -> None:
    for preset, factor in (("federated", 0.5), ("replica", 1.0)):
        generator = CVAEGenerator(preset, authors_compat=True, max_epochs=1, random_state=0).fit(*blobs)
        assert generator._std_from_log == factor


def test_it_learns_what_a_class_looks_like(blobs: Blobs) -> None:
    X, y = blobs
    generator = CVAEGenerator(batch_size=32, max_epochs=60, random_state=0).fit(X, y)
    spread = X.std(axis=0).mean()
    for c in range(3):
        drawn, _ = generator.sample(per_class={c: 4000})
        assert np.abs(drawn.mean(axis=0) - X[y == c].mean(axis=0)).max() < 0.35 * spread
        assert drawn.std(axis=0).mean() == pytest.approx(X[y == c].std(axis=0).mean(), rel=0.2)


def test_decoder_noise_adds_what_the_mean_leaves_out(blobs: Blobs) -> None:
    """With latents switched off, all that is left is the noise: it has the size of the decoder's error."""
    X, y = blobs
    for noise in ("none", "diagonal", "low-rank"):
        generator = CVAEGenerator(decoder_noise=noise, max_epochs=20, random_state=0).fit(X, y)
        spread = generator.sample(per_class={0: 3000}, variance=0)[0].var(axis=0, dtype=np.float64).sum()
        if noise == "none":
            assert spread < 1e-6
        else:
            errors = X - generator.reconstruct(X, y)
            assert spread == pytest.approx((errors**2).mean(axis=0).sum(), rel=0.25)


def test_low_rank_noise_keeps_correlations(rng: np.random.Generator) -> None:
    y = np.arange(600) % 2
    X = rng.normal(size=(600, 1)) * np.ones((1, 10)) + 0.1 * rng.normal(size=(600, 10)) + y[:, None]
    noisy = {"latent": 1, "beta": 50.0, "max_epochs": 5, "patience": 0, "random_state": 0}
    generator = CVAEGenerator(decoder_noise="low-rank", **noisy).fit(X, y)
    drawn = generator.sample(per_class={0: 3000})[0]
    assert np.corrcoef(drawn.T)[0, 1] > 0.85
    flat = CVAEGenerator(decoder_noise="diagonal", **noisy)
    assert np.corrcoef(flat.fit(X, y).sample(per_class={0: 3000})[0].T)[0, 1] < 0.2


def test_encode_and_reconstruct_stay_on_the_original_scale(blobs: Blobs) -> None:
    X, y = blobs
    generator = CVAEGenerator(batch_size=32, max_epochs=40, random_state=0).fit(X, y)
    mean, std = generator.encode(X, y)
    assert mean.shape == std.shape == (len(X), 50)
    assert (std > 0).all()
    error = np.square(X - generator.reconstruct(X, y)).sum()
    centered = np.square(X - np.stack([X[y == c].mean(axis=0) for c in range(3)])[y]).sum()
    assert error < 0.7 * centered
    with pytest.raises(DataError, match="not among the classes"):
        generator.encode(X, y + 10)


def test_the_vae_never_sees_a_label(blobs: Blobs, rng: np.random.Generator) -> None:
    X, y = blobs
    one = VAEGenerator(max_epochs=2, random_state=0).fit(X, y)
    two = VAEGenerator(max_epochs=2, random_state=0).fit(X, rng.permutation(y))
    np.testing.assert_array_equal(one.sample(5, random_state=0)[0], two.sample(5, random_state=0)[0])
    assert one.encode(X, y)[0].shape == (len(X), 50)
    assert one.fit(X).sample(3)[1].tolist() == ["unlabeled"] * 3


def test_folded_batch_norms_give_the_network_in_evaluation_mode() -> None:
    net = residual_cvae(12, 3, 5, sigmoid=True)
    net.train()
    for _ in range(5):
        net.decode(torch.randn(64, 5), torch.eye(3)[torch.randint(3, (64,))])
    net.eval()
    z, c = torch.randn(20, 5), torch.eye(3)[torch.randint(3, (20,))]
    ops, tensors = export_decoder(net.decoder)
    program = NetworkSpec(latent_dim=5, program=ops).program  # type: ignore[arg-type]
    ours = run_program(program, tensors, torch.cat([z, c], dim=1).numpy())
    np.testing.assert_allclose(ours, net.decode(z, c).detach().numpy(), rtol=1e-4, atol=1e-6)


def test_early_stopping_keeps_people_together(blobs: Blobs) -> None:
    from locum.generate import Records, hold_out

    X, y = blobs
    subjects = np.arange(len(X)) // 4
    records = Records(X, y.reshape(-1, 1), subjects, ())
    train, held = hold_out(records, np.random.default_rng(0))
    assert held is not None
    assert not set(train.subject) & set(held.subject)
    assert len(train.X) + len(held.X) == len(X)
    assert set(train.codes[:, 0]) == {0, 1, 2}


def test_a_class_is_never_held_out_as_a_whole(rng: np.random.Generator) -> None:
    from locum.generate import Records, hold_out

    codes = np.array([0] * 30 + [1] * 2).reshape(-1, 1)
    for seed in range(20):
        train, held = hold_out(Records(rng.normal(size=(32, 2)), codes, None, ()), np.random.default_rng(seed))
        assert np.bincount(train.codes[:, 0])[1] == 2
        assert held is not None


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"preset": "huge"}, "preset"),
        ({"beta": -1.0}, "beta"),
        ({"latent": 0}, "latent"),
        ({"hidden": ()}, "hidden"),
        ({"preset": "large", "hidden": (8,)}, "large"),
        ({"scaling": "log"}, "scaling"),
        ({"decoder_noise": "pink"}, "decoder_noise"),
        ({"variance": -1.0}, "variance"),
        ({"batch_size": 0}, "batch_size"),
        ({"condition_on": ["sex"]}, "sex"),
        ({"checkpoint": "x", "random_state": None}, "random_state"),
    ],
)
def test_wrong_settings_get_one_sentence(blobs: Blobs, wrong: dict, word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        CVAEGenerator(**{"max_epochs": 1, "random_state": 0, **wrong}).fit(*blobs)


def test_a_single_record_of_a_class_may_be_sampled_but_not_released(blobs: Blobs) -> None:
    X, y = blobs
    y = np.append(y, 3)
    X = np.append(X, X[:1] + 9, axis=0)
    generator = CVAEGenerator(max_epochs=2, random_state=0).fit(X, y)
    assert len(generator.sample(per_class={3: 4})[0]) == 4
    with pytest.raises(PrivacyError, match="single record"):
        generator.release(no_dp=True)


def test_checkpoint_is_removed_after_a_finished_fit(blobs: Blobs, tmp_path: Path) -> None:
    CVAEGenerator(max_epochs=2, checkpoint=tmp_path / "c", random_state=0).fit(*blobs)
    assert not (tmp_path / "c").exists()


def test_real_embeddings(real_data: Path) -> None:
    """On breast ultrasound: a probe on samples beats chance by far."""
    from locum.data import read_splits
    from locum.heads import LinearHead
    from locum.metrics import auc_macro

    splits = read_splits(real_data / "breastmnist_efflite0.npz")
    train, test = splits["train"], splits["test"]
    generator = CVAEGenerator(max_epochs=60, random_state=0).fit(train.X, train.y)
    X, y = generator.sample(len(train))
    head = LinearHead(random_state=0).fit(X, y)
    assert auc_macro(test.y, head.predict_proba(test.X), head.classes_) > 0.75


def test_a_condition_that_points_at_one_record_is_not_released(blobs: Blobs) -> None:
    X, y = blobs
    doctor = np.array(["Dr. Unique", *["north", "south"] * 104, "north"])
    generator = CVAEGenerator(condition_on="doctor", max_epochs=2, random_state=0)
    generator.fit(X, y, attributes={"doctor": doctor})
    with pytest.raises(PrivacyError, match=r"Dr\. Unique"):
        generator.release(no_dp=True)


def test_another_validation_set_is_another_fit(blobs: Blobs, tmp_path: Path) -> None:
    X, y = blobs
    generator = CVAEGenerator(max_epochs=3, checkpoint=tmp_path / "c", random_state=0)
    generator.fit(X, y, validation=(X[:50], y[:50]))
    settings, joined = generator.settings_, torch.zeros(3, 4)
    prints = {generator._checkpoint(settings, joined, torch.full((2, 4), v)).fingerprint for v in (0.0, 1.0)}
    assert len(prints) == 2
