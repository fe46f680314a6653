"""Masked sums: only the total can be read, and the noise of the honest sites is enough."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from locum.accounting import Ledger
from locum.errors import ConfigError, FormatError, LocumError
from locum.federated import Coordinator, LocalChannel, NoReply, Reply, Request
from locum.federated.secure import masked, new_key, noise_of_each, public_key, unmasked
from locum.release import load

pytestmark = pytest.mark.usefixtures("hardly_trained_personal_models")
Make = Callable[..., Any]


@given(st.integers(2, 6), st.integers(1, 20), st.integers(0, 2**32 - 1))
def test_the_total_comes_out_whatever_the_masks(sites: int, length: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-(2**58), 2**58, (sites, length))
    private = [new_key() for _ in range(sites)]
    keys = [public_key(p) for p in private]
    parts = {str(i): masked(values[i], private[i], keys, "run") for i in range(sites)}
    np.testing.assert_array_equal(unmasked(parts), values.sum(axis=0))


def test_a_single_reply_looks_like_random_words() -> None:
    private = [new_key() for _ in range(2)]
    keys = [public_key(p) for p in private]
    words = masked(np.zeros(20_000, np.int64), private[0], keys, "run")
    bits = np.unpackbits(words.view(np.uint8))
    assert abs(bits.mean() - 0.5) < 0.005
    # Another run has other masks for the same sums.
    assert (masked(np.zeros(20_000, np.int64), private[0], keys, "another") != words).all()


def test_wrong_lists_are_refused() -> None:
    private = new_key()
    mine, other = public_key(private), public_key(new_key())
    for keys in ([other], [mine, mine, other], []):
        with pytest.raises(FormatError, match="list of keys"):
            masked(np.zeros(1, np.int64), private, keys, "run")
    with pytest.raises(FormatError, match="not a valid X25519 key"):
        masked(np.zeros(1, np.int64), private, [mine, "zz"], "run")


def test_the_honest_sites_add_up_to_the_noise() -> None:
    each = noise_of_each(5.0, 9, 1 / 3)
    assert np.sqrt(6) * each == pytest.approx(5.0)
    with pytest.raises(ConfigError, match="two honest sites"):
        noise_of_each(5.0, 2, 0.0)


def test_masked_sums_cost_what_one_site_alone_would(sites: Make, settings: Make, tmp_path: Path) -> None:
    files = sites(4, test=False)
    terms = settings(mode="sums", secure=True, max_sites_per_subject=1)
    release = load(Coordinator(terms, tmp_path / "out").run(LocalChannel(files)))
    assert release.claim.dp is not None
    for file in files.values():
        with Ledger(file.parent / ".locum" / "ledger.sqlite") as ledger:
            (charge,) = ledger.holding("default").charges
            assert charge.epsilon <= 2.0
            assert charge.epsilon == pytest.approx(release.claim.dp.epsilon)
    assert any("colluding with the coordinator" in item for item in release.claim.not_covered)


def test_masked_sums_have_less_noise_than_separate_ones(sites: Make, settings: Make, tmp_path: Path) -> None:
    """At the same cost; with seeded randomness, so that the comparison is exact."""

    def means(name: str, *, secure: bool = False, **more: Any) -> np.ndarray:
        channel = LocalChannel(sites(4, folder=f"sites-{name}", **more))
        folder = Coordinator(settings(mode="sums", secure=secure), tmp_path / name).run(channel)
        return np.asarray(load(folder).tensors["means"])

    exact = means("exact", epsilon=None)
    masked_gap = np.abs(means("masked", secure=True) - exact).mean()
    # Four times the variance of one, against four thirds of it.
    assert masked_gap < 0.85 * np.abs(means("apart") - exact).mean()


def test_a_subject_at_several_sites_moves_the_total_as_often(sites: Make, settings: Make, tmp_path: Path) -> None:
    claims = []
    for k in (1, 2, None):
        files = sites(3, test=False, folder=f"sites-{k}")
        terms = settings(mode="sums", secure=True, max_sites_per_subject=k)
        claims.append(load(Coordinator(terms, tmp_path / f"out-{k}").run(LocalChannel(files))).claim.dp)
    # Noise is shared: k times the distance, not its root.
    assert claims[1].events[0]["noise_multiplier"] == pytest.approx(claims[0].events[0]["noise_multiplier"] / 2)
    assert claims[2].epsilon > claims[1].epsilon > claims[0].epsilon


def test_waiting_for_a_missing_site_costs_nothing(sites: Make, settings: Make, tmp_path: Path) -> None:
    files = sites(3, test=False)
    terms = settings(mode="sums", secure=True)

    class Late(LocalChannel):
        late = True

        def ask(self, requests: Any, *, timeout: float, **more: Any) -> dict[str, Reply | NoReply]:
            gone = {n: q for n, q in requests.items() if self.late and n == "site-1" and q.step == "sums"}
            out = super().ask({n: q for n, q in requests.items() if n not in gone}, timeout=timeout, **more)
            return {**out, **dict.fromkeys(gone, NoReply("gone"))}

    channel = Late(files)
    with pytest.raises(LocumError, match="only be read together"):
        Coordinator(terms, tmp_path / "out").run(channel)
    channel.late = False
    Coordinator(terms, tmp_path / "out").run(channel)
    for file in files.values():
        with Ledger(file.parent / ".locum" / "ledger.sqlite") as ledger:
            assert len(ledger.holding("default").charges) == 1


def test_less_noise_than_paid_for_is_declined(sites: Make, settings: Make) -> None:
    """A coordinator who asks for less noise than a site's budget needs gets nothing."""
    files, terms = sites(3, test=False), settings(mode="sums", secure=True)
    channel = LocalChannel(files)
    facts = {"run": "r", "settings": terms.to_dict()}
    joined = channel.ask({n: Request("join", 0, "a", facts) for n in files}, timeout=1)
    keys = sorted(a.facts["key"] for a in joined.values() if isinstance(a, Reply))
    (reply,) = channel.ask(
        {"site-0": Request("sums", 0, "b", {**facts, "keys": keys, "noise": 0.5})}, timeout=1
    ).values()
    assert isinstance(reply, Reply)
    assert reply.declined
    assert not reply.tensors
