"""A private CVAE: paid before it starts, nothing unpaid in its release, accurate if the noise is small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import locum
from locum.accounting import Ledger, epsilon_of, events_from_json
from locum.data import Reference
from locum.errors import ConfigError, PrivacyError
from locum.generate import CVAEGenerator, VAEGenerator
from locum.generate.presets import preset_for
from locum.generate.private import Whitener
from locum.types import DP

BUDGET = DP(epsilon=2.0, delta=1e-5, n_public=200)
SMALL = {"hidden": (8,), "latent": 2, "max_epochs": 3, "batch_size": 50, "random_state": 0}
Blobs = tuple[np.ndarray, np.ndarray]


def private(**changed: object) -> CVAEGenerator:
    return CVAEGenerator(**{"privacy": BUDGET, "classes": [0, 1, 2], "insecure_seed": 1, **SMALL, **changed})


def test_the_claim_is_what_the_ledger_says(blobs: Blobs, tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    model = private(insecure_seed=None, ledger=file, holding="scans")
    plan = model.plan()
    model.fit(*blobs)
    claim = model.claim_
    assert (claim.kind, claim.unit) == ("dp", "record")
    with Ledger(file) as ledger:
        (charge,) = ledger.holding("scans").charges
    assert charge.events == plan.events
    assert claim.dp is not None
    assert claim.dp.epsilon == charge.epsilon == epsilon_of(events_from_json(claim.dp.events), 1e-5) <= 2.0
    # Means, counts and lengths, then the steps.
    assert [e["kind"] for e in claim.dp.events] == ["poisson-gaussian", "gaussian"]
    saved = locum.load(model.release().save(tmp_path / "out"))
    assert saved.claim == claim
    text = (tmp_path / "out" / "manifest.json").read_text()
    assert "insecure_seed" not in text
    assert str(tmp_path) not in text
    with pytest.raises(PrivacyError, match="left"):
        private(insecure_seed=None, ledger=file, holding="scans").fit(*blobs)


def test_an_insecure_seed_repeats_and_gives_no_claim(blobs: Blobs) -> None:
    one, two = private().fit(*blobs), private().fit(*blobs)
    assert one.claim_.kind == "none"
    assert one.claim_.test
    for name, value in one.release().tensors.items():
        np.testing.assert_array_equal(value, two.release().tensors[name])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"patience": 3}, "Early stopping"),
        ({"authors_compat": True}, "authors_compat"),
        ({"scaling": "minmax"}, "reveals values"),
        ({"scaling": "zscore"}, "reveals values"),
        ({"decoder_noise": "diagonal"}, "Nothing pays"),
        ({"preset": "large", "hidden": None}, "Batch norm"),
        ({"classes": None}, "classes"),
        ({"privacy": DP(1.0, 1e-5)}, "n_public"),
        ({"condition_on": ("sex",)}, "condition_on"),
    ],
)
def test_what_would_leave_unpaid_is_refused(blobs: Blobs, tmp_path: Path, changed: dict, words: str) -> None:
    file = tmp_path / "ledger.sqlite"
    model = private(**{"insecure_seed": None, "ledger": file, **changed})
    with pytest.raises(PrivacyError, match=words):
        model.fit(*blobs, attributes={"sex": np.full(210, "f")})
    assert not file.exists()


def test_other_refusals(blobs: Blobs) -> None:
    with pytest.raises(PrivacyError, match="Early stopping"):
        private().fit(*blobs, validation=blobs)
    with pytest.raises(PrivacyError, match="VAEGenerator does not support"):
        VAEGenerator(privacy=BUDGET, classes=["unlabeled"]).fit(blobs[0])
    with pytest.raises(ConfigError, match="belongs to differential privacy"):
        CVAEGenerator(scaling="public", max_epochs=1).fit(*blobs)
    with pytest.raises(ConfigError, match="needs a budget"):
        CVAEGenerator().plan()
    with pytest.raises(ConfigError, match="leave `space` out"):
        private(space="unit").fit(*blobs)


def test_a_class_may_be_empty(blobs: Blobs) -> None:
    release = private(classes=[0, 1, 2, 9]).fit(*blobs).release()
    X, y = release.sample(per_class={9: 5})
    assert np.isfinite(X).all()
    assert set(y.tolist()) == {9}


def test_by_subject(blobs: Blobs) -> None:
    X, y = blobs
    subjects = np.arange(len(X)) // 3
    budget = DP(epsilon=2.0, delta=1e-5, unit="subject", n_public=100)
    assert np.isfinite(private(privacy=budget).fit(X, y, subjects).sample(20)[0]).all()
    with pytest.raises(PrivacyError, match="subject"):
        private(privacy=budget).fit(X, y)


@pytest.mark.slow
def test_with_much_budget_it_is_like_the_data(rng: np.random.Generator) -> None:
    """Class means, spread and class shares come out right where there is hardly any noise."""
    n, d = 3000, 10
    y = np.repeat([0, 1], [2000, 1000])
    X = (rng.normal(size=(n, d)) + 1.5 * np.sign(y - 0.5)[:, None]).astype(np.float32)
    model = CVAEGenerator(
        privacy=DP(400.0, 1e-5, n_public=n),
        classes=[0, 1],
        insecure_seed=0,
        random_state=0,
        max_epochs=30,
        batch_size=500,
    ).fit(X, y)
    Xs, ys = model.release().sample(6000, random_state=0)
    assert abs((ys == 1).mean() - 1 / 3) < 0.05
    for c in (0, 1):
        assert np.abs(Xs[ys == c].mean(axis=0) - X[y == c].mean(axis=0)).max() < 0.3
        assert abs(Xs[ys == c].std() / X[y == c].std() - 1) < 0.25


def test_what_is_released_is_what_the_network_says(blobs: Blobs) -> None:
    """The way back to raw vectors is folded into the last layer and the offsets."""
    import torch

    for scaling in ("class", "public"):
        model = private(decoder_noise="none", scaling=scaling).fit(*blobs)
        release = model.release()
        drawn, _ = release.sample(per_class={1: 4}, variance=0.0)
        with torch.no_grad():
            out = model.module_.decode(torch.zeros(4, 2), torch.eye(3)[[1] * 4]).numpy()
        wanted = model._scaler.backward(out, np.full(4, 1))
        if scaling == "public":
            np.testing.assert_allclose(drawn, wanted, rtol=1e-4, atol=1e-3)
        else:
            # All draws of a class are moved by the same: the decoder's own mean is subtracted.
            means = [np.ptp(v - w, axis=0).max() for v, w in [(drawn, wanted)]]
            assert max(means) < 1e-3
            many, _ = release.sample(per_class={1: 20000}, random_state=0)
            middle = model._scaler.backward(np.zeros((1, 8), np.float32), np.array([1]))
            np.testing.assert_allclose(many.mean(axis=0), middle[0], atol=0.1 * many.std())


def test_whitening_and_back(rng: np.random.Generator) -> None:
    d = 6
    reference = Reference("t", "t", rng.normal(size=d), np.eye(d)[:2], np.array([4.0, 2.0]), 0.5)
    white = Whitener(reference, 0.1 * rng.normal(size=(2, d)), 3.0)
    X, labels = rng.normal(size=(5, d)).astype(np.float32), np.array([0, 1, 0, 1, 1])
    back = white.backward(white.forward(X, labels), labels)
    # The direction is kept, the length is the mean one.
    a, b = reference.whiten(X), reference.whiten(back)
    np.testing.assert_allclose(np.linalg.norm(b, axis=1), 3.0, rtol=1e-4)
    cosine = (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / 3.0
    np.testing.assert_allclose(cosine, 1.0, rtol=1e-4)


def test_a_killed_fit_goes_on_and_pays_once(blobs: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from locum.generate import cvae

    class Bar:
        def __init__(self, title: str, *, show: bool) -> None: ...

        def __enter__(self) -> Bar:
            return self

        def __exit__(self, *error: object) -> None: ...

        def __call__(self, done: int, total: int, note: str = "") -> None:
            raise RuntimeError("killed")

    file, given = tmp_path / "ledger.sqlite", {"insecure_seed": None, "checkpoint": tmp_path / "c"}
    with monkeypatch.context() as patch:
        patch.setattr(cvae, "ProgressBar", Bar)
        with pytest.raises(RuntimeError, match="killed"):
            private(ledger=file, verbose=True, **given).fit(*blobs)
    assert (tmp_path / "c").exists()
    model = private(ledger=file, **given).fit(*blobs)
    assert not (tmp_path / "c").exists()
    with Ledger(file) as ledger:
        (charge,) = ledger.holding("default").charges
    assert model.claim_.dp is not None
    assert model.claim_.dp.epsilon == charge.epsilon


def test_presets_under_a_guarantee() -> None:
    assert preset_for(None, authors_compat=False) == preset_for("replica", authors_compat=False)
    assert preset_for(None, authors_compat=False, private=True) == preset_for(
        "private", authors_compat=False, private=True
    )
    federated = preset_for("federated", authors_compat=False, private=True)
    assert (federated.clip, federated.scaling, federated.batch_size, federated.max_epochs) == (
        1.5,
        "public",
        256,
        250,
    )
    for name in ("replica", "small"):
        assert preset_for(name, authors_compat=False, private=True).patience == 0
