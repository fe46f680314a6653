"""The torch twin gives what a receiver's numpy gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from locum.audit.decoder import DecoderBank
from locum.generate import CVAEGenerator, VAEGenerator
from locum.release import NetworkSpec, Release
from locum.release.decoders import decode

Blobs = tuple[np.ndarray, np.ndarray]


def naive(release: Release, z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """`decode` itself, with an rng that gives the wanted latents and nothing else."""

    class SecureRandom:
        def standard_normal(self, shape: tuple[int, ...], dtype: type = np.float32) -> np.ndarray:
            return z.copy() if shape == z.shape else np.zeros(shape, dtype)

    return decode(release.manifest, release.tensors, codes, 1.0, SecureRandom())


@pytest.mark.parametrize("settings", [{}, {"authors_compat": True}, {"preset": "large"}, {"hidden": (16, 8)}])
def test_decoded_as_by_numpy(blobs: Blobs, settings: dict[str, object]) -> None:
    X, y = blobs
    releases = [
        CVAEGenerator(max_epochs=2, latent=5, random_state=i, **settings).fit(X, y).release(no_dp=True)
        for i in (0, 1)
    ]
    spec = releases[0].manifest.decoder
    assert isinstance(spec, NetworkSpec)
    bank = DecoderBank.stack(releases[0].manifest, spec, [r.tensors for r in releases])
    z = np.random.default_rng(0).normal(size=(2, 30, 5)).astype(np.float32)
    codes = np.arange(30)[:, None] % 3
    found = bank.decode(torch.from_numpy(z), torch.from_numpy(codes)).numpy()
    for i, release in enumerate(releases):
        np.testing.assert_allclose(found[i], naive(release, z[i], codes), rtol=1e-4, atol=1e-4)


def test_conditions_no_condition_and_unit_space(blobs: Blobs) -> None:
    X, y = blobs
    sex = np.where(np.arange(len(y)) % 2, "f", "m")
    conditioned = CVAEGenerator(max_epochs=2, condition_on=["sex"], random_state=0).fit(X, y, attributes={"sex": sex})
    for release, codes in (
        (conditioned.release(no_dp=True), np.stack([np.arange(12) % 3, np.arange(12) % 2], axis=1)),
        (
            VAEGenerator(max_epochs=2, space="unit", random_state=0).fit(X).release(no_dp=True),
            np.zeros((12, 1), np.int64),
        ),
    ):
        spec = release.manifest.decoder
        assert isinstance(spec, NetworkSpec)
        bank = DecoderBank.stack(release.manifest, spec, [release.tensors])
        z = np.random.default_rng(0).normal(size=(12, bank.latent)).astype(np.float32)
        found = bank.means(torch.from_numpy(z)[None], torch.from_numpy(codes))[0].numpy()
        wanted = naive(release, z, codes)
        if release.manifest.space == "unit":
            wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
