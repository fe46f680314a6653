"""Images replaced by collages or donors: the mechanism against its definition, its guarantee, and a planted leak."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from safetensors.numpy import load_file, save

from locum.errors import ConfigError, DataError, FormatError
from locum.obfuscate import ImageObfuscator, load_obfuscator, open_obfuscator, save_obfuscator
from locum.obfuscate.substitution import EPSILON, FEWEST, Substitution, quarters, rank_weights

N, SIDE = 240, 16
TENSORS = "obfuscator.safetensors"


def tinted(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images with a bright half by label, and a shade by a private class: what hides must hide the shade."""
    rng = np.random.default_rng(seed)
    label, shade = rng.integers(0, 2, n), rng.integers(0, 3, n)
    images = rng.normal(60 + 40 * shade[:, None, None], 5, (n, SIDE, SIDE))
    images[label == 1, :, : SIDE // 2] += 80
    return images.clip(0, 255).round().astype(np.uint8), label, shade


def planes(images: np.ndarray) -> np.ndarray:
    return images[:, None].astype(np.float32) / 255


X, LABEL, SHADE = tinted()


@pytest.fixture(scope="module")
def pool() -> Substitution:
    return Substitution.of_collages(planes(X), LABEL[:, None], np.random.default_rng(0))


def shown_quarters(pool: Substitution, images: np.ndarray) -> np.ndarray:
    """Whether each image can be seen in each quarter of some collage, away from the blended borders: (n, 4)."""
    half, edge = SIDE // 2, SIDE // 8
    found = []
    for top, left in ((0, 0), (0, half), (half, 0), (half, half)):
        part = np.s_[:, top + edge : top + half - edge, left + edge : left + half - edge]
        shown = {piece.tobytes() for piece in pool.images[:, 0][part]}
        found.append([piece.tobytes() in shown for piece in images[part]])
    return np.array(found).T


@pytest.mark.parametrize("seed", range(3))
def test_a_person_shows_one_quarter(seed: int) -> None:
    rng = np.random.default_rng(seed)
    subject = rng.choice(60, N, p=np.arange(1, 61) / np.arange(1, 61).sum())
    alone = Substitution.of_collages(planes(X), LABEL[:, None], rng)
    together = Substitution.of_collages(planes(X), LABEL[:, None], rng, subject)
    per_image, per_person = (shown_quarters(pool, X) for pool in (alone, together))
    assert per_image.sum(axis=1).max() == 1
    # Several images of a person show several quarters, unless it is said whose they are.
    assert max(per_image[subject == one].any(axis=0).sum() for one in np.unique(subject)) > 2
    assert max(per_person[subject == one].any(axis=0).sum() for one in np.unique(subject)) == 1
    # Quarters come from about as many images each, for each label.
    counts = np.array([per_person[label == LABEL].sum(axis=0) for label in (0, 1)])
    assert counts.min() > 0.7 * counts.mean()


def test_a_label_of_one_person_has_no_collages_of_its_own() -> None:
    label = LABEL.copy()
    label[:20] = 2
    subject = np.arange(N)
    subject[:20] = 0
    pool = Substitution.of_collages(planes(X), label[:, None], np.random.default_rng(0), subject)
    assert pool.combinations.tolist() == [[0], [1]]
    with pytest.raises(DataError, match="8 subjects or more"):
        Substitution.of_collages(planes(X), LABEL[:, None], np.random.default_rng(0), np.zeros(N))
    model = ImageObfuscator(random_state=0)
    with pytest.raises(DataError, match="one entry for each of 240 images"):
        model.fit(X, LABEL, show_quarters=True, subject=subject[:5])
    with pytest.raises(ConfigError, match="with `show_quarters` only"):
        ImageObfuscator("calibrated").fit(X, LABEL, subject=subject)


# -- the draw ------------------------------------------------------------------------------------------------------
def naive(pool: Substitution, image: np.ndarray, label: int) -> list[int]:
    """Positions of the pool's images with this label, the nearest first, one pair at a time in whole numbers."""

    def blocks(pixels: np.ndarray) -> list[int]:
        return [int(pixels[2 * i : 2 * i + 2, 2 * j : 2 * j + 2].sum()) for i in range(8) for j in range(8)]

    wanted = blocks(image.astype(int))
    far = {
        k: sum((a - b) ** 2 for a, b in zip(wanted, blocks(pool.images[k, 0].astype(int)), strict=True))
        for k in np.flatnonzero(pool.owners == label)
    }
    return sorted(far, key=lambda k: (far[k], k))


def test_the_ranking_is_by_the_definition(pool: Substitution) -> None:
    for i in range(6):
        candidates = np.flatnonzero(pool.owners == LABEL[i])
        ((_, order),) = pool._orders(planes(X[i : i + 1]), candidates)
        assert candidates[order[0]].tolist() == naive(pool, X[i], LABEL[i])


def test_the_same_image_gets_the_same_ranking_in_any_company(
    pool: Substitution, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = np.arange(len(pool.images))
    ((_, whole),) = pool._orders(planes(X), everything)
    monkeypatch.setattr("locum.obfuscate.substitution._PAIRS", 7 * len(everything))
    parts = np.concatenate([order for _, order in pool._orders(planes(X), everything)])
    np.testing.assert_array_equal(whole, parts)


@settings(deadline=None, max_examples=60)
@given(count=st.integers(2, 5000), noise=st.floats(0.001, 1e9))
def test_weights_fall_and_cost_no_more_than_epsilon(count: int, noise: float) -> None:
    weights = rank_weights(count, noise)
    assert weights.min() >= 1
    assert (np.diff(weights) <= 0).all()
    assert math.log(Fraction(int(weights[0]), int(weights[-1]))) <= EPSILON / noise
    assert int(weights[-1]) * math.exp(min(EPSILON / noise, 25)) < weights[0] * 1.001 + math.exp(26)


def test_neighbors_have_probabilities_within_epsilon(pool: Substitution) -> None:
    """Exact probabilities of every pool image, for two very different images with one label."""
    noise, candidates = 4.0, np.flatnonzero(pool.owners == 1)
    weights = rank_weights(len(candidates), noise)
    chances = []
    for image in (np.zeros((1, 1, SIDE, SIDE), np.float32), np.ones((1, 1, SIDE, SIDE), np.float32)):
        ((_, order),) = pool._orders(image, candidates)
        chance = np.empty(len(candidates))
        chance[order[0]] = weights / weights.sum()
        chances.append(chance)
    loss = np.abs(np.log(chances[0] / chances[1])).max()
    assert 0.5 * EPSILON / noise < loss <= pool.local_epsilon(noise, 0.0) == EPSILON / noise
    # They are what is drawn.
    black = np.zeros((20_000, 1, SIDE, SIDE), np.float32)
    out = pool.apply(black, np.ones((len(black), 1), np.int64), noise, np.random.default_rng(0))
    seen = np.rint(out * 255).astype(np.uint8).reshape(len(out), -1)
    nearest = pool.images[candidates[chances[0].argmax()]].ravel()
    share = (seen == nearest).all(axis=1).mean()
    assert abs(share - chances[0].max()) < 4 * math.sqrt(chances[0].max() / len(black))


def test_infinite_noise_ignores_the_image(pool: Substitution) -> None:
    codes = LABEL[:, None]
    a, b = (pool.apply(z, codes, math.inf, np.random.default_rng(5)) for z in (planes(X), 1 - planes(X)))
    np.testing.assert_array_equal(a, b)
    assert len(np.unique(a.reshape(N, -1), axis=0)) > N // 4
    assert pool.local_epsilon(math.inf, 0.0) == 0


def test_only_pool_images_leave_and_labels_are_kept(pool: Substitution) -> None:
    known = {image.tobytes(): owner for image, owner in zip(pool.images, pool.owners, strict=True)}
    for noise in (0, 1, math.inf):
        for rng in (None, np.random.default_rng(0)):
            out = np.rint(pool.apply(planes(X), LABEL[:, None], noise, rng) * 255).astype(np.uint8)
            assert [known[image.tobytes()] for image in out] == LABEL.tolist()


def test_a_label_that_is_not_written_is_not_used(pool: Substitution) -> None:
    out = [pool.apply(planes(X), c[:, None], math.inf, np.random.default_rng(1), 0.0) for c in (LABEL, 1 - LABEL)]
    np.testing.assert_array_equal(*out)
    unknown = pool.apply(planes(X), np.full((N, 1), 7), math.inf, np.random.default_rng(1))
    known = {image.tobytes(): owner for image, owner in zip(pool.images, pool.owners, strict=True)}
    owners = [known[image.tobytes()] for image in np.rint(unknown * 255).astype(np.uint8)]
    assert np.mean(owners) == pytest.approx(pool.owners.mean(), abs=0.12)


def test_an_attacker_finds_the_class_without_noise_and_not_with_much() -> None:
    """The planted leak: each image has a donor of its own shade nearby."""
    other, label, shade = tinted(seed=1)
    donors = Substitution.of_donors(planes(X), LABEL[:, None])

    def found(noise: float) -> float:
        out = donors.apply(planes(other), label[:, None], noise, np.random.default_rng(2))
        dark = out[:, 0, :, SIDE // 2 :].mean(axis=(1, 2)) * 255
        return float((np.abs(dark[:, None] - [60, 100, 140]).argmin(axis=1) == shade).mean())

    assert found(0) > 0.95
    assert found(0.2) > 0.6
    assert found(math.inf) < 0.45


# -- the pool ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("side", [16, 32, 64])
def test_masks_add_up_and_end_near_the_middle(side: int) -> None:
    masks = quarters(side)
    np.testing.assert_allclose(masks.sum(axis=0), 1, atol=1e-6)
    reach = side // 2 + side // 16
    assert not masks[0, reach:].any()
    assert not masks[0, :, reach:].any()
    assert (masks[0, : side - reach, : side - reach] == 1).all()
    np.testing.assert_array_equal(masks[0], masks[3, ::-1, ::-1])


@pytest.mark.parametrize("record", [0, 17, 101])
def test_a_record_gives_one_quarter_at_most(record: int, pool: Substitution) -> None:
    """Whatever is drawn over a record, the pool changes only within one quarter and its border."""
    changed = planes(X)
    changed[record] = 1 - changed[record]
    other = Substitution.of_collages(changed, LABEL[:, None], np.random.default_rng(0))
    moved = (other.images != pool.images).any(axis=(0, 1))
    assert moved.any()
    rows, columns = np.flatnonzero(moved.any(axis=1)), np.flatnonzero(moved.any(axis=0))
    reach = SIDE // 2 + SIDE // 16
    assert np.ptp(rows) < reach
    assert np.ptp(columns) < reach


def test_the_pool_does_not_tell_how_many_records_there_are() -> None:
    sizes = {
        n: Substitution.of_collages(planes(X[:n]), np.zeros((n, 1), int), np.random.default_rng(0)).images.shape[0]
        for n in (130, 200, 240)
    }
    assert set(sizes.values()) == {128}


def test_rare_labels_have_no_pool() -> None:
    codes = np.where(np.arange(N) < FEWEST - 1, 2, LABEL)[:, None]
    found = Substitution.of_collages(planes(X), codes, np.random.default_rng(0))
    assert found.combinations.ravel().tolist() == [0, 1]
    with pytest.raises(DataError, match="merge rare labels"):
        Substitution.of_collages(planes(X[:14]), np.repeat([0, 1], 7)[:, None], np.random.default_rng(0))


def test_labels_are_guessed(pool: Substitution) -> None:
    other, label, _ = tinted(seed=1)
    assert (pool.guess(planes(other))[:, 0] == label).mean() > 0.9


# -- the obfuscator ------------------------------------------------------------------------------------------------
def test_donors_take_the_place_of_collages() -> None:
    donors, label, _ = tinted(60, seed=3)
    model = ImageObfuscator().fit(X, LABEL, donors=(donors, label))
    known = {image.tobytes() for image in donors}
    assert all(image.tobytes() in known for image in model.transform(X, LABEL, noise=2))
    assert model.local_epsilon(2, delta=0.1) == EPSILON / 2


@pytest.mark.parametrize(
    ("preset", "donors", "error", "words"),
    [
        ("calibrated", (X, LABEL), ConfigError, "Only the preset 'substitute'"),
        ("substitute", (X, LABEL[:5]), DataError, "Each donor needs its utility label"),
        ("substitute", (X[LABEL == 0], LABEL[LABEL == 0]), DataError, "no donor"),
        (
            "substitute",
            (np.zeros((4, 32, 32), np.uint8), [0, 0, 1, 1]),
            DataError,
            "Donors must have the images' shape",
        ),
        ("substitute", (X, LABEL + 5), DataError, "was not there"),
    ],
)
def test_wrong_donors_are_refused(preset: str, donors: object, error: type[Exception], words: str) -> None:
    model = ImageObfuscator(preset)
    with pytest.raises(error, match=words):
        model.fit(X, LABEL, donors=donors)
    assert not hasattr(model, "noise_")


@pytest.fixture(params=["collages", "donors"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    donors = (X, LABEL) if request.param == "donors" else None
    model = ImageObfuscator(random_state=0).fit(X, LABEL, donors=donors, show_quarters=donors is None)
    return save_obfuscator(model, tmp_path / "o")


def test_it_comes_back_and_says_what_it_shows(folder: Path) -> None:
    saved = open_obfuscator(folder)
    pool = saved.manifest.data.pool
    shown = {"donors": (X, LABEL)} if pool == "donors" else {"show_quarters": True}
    model = ImageObfuscator(random_state=0).fit(X, LABEL, **shown)
    for knobs in ({"noise": 0}, {"noise": 1, "lambda_": -1}, {"noise": math.inf, "lambda_": None}):
        a, b = (m.transform(X, LABEL, random_state=4, **knobs) for m in (model, saved.model))
        np.testing.assert_array_equal(a, b)
    assert saved.shown == saved.claim.not_covered[0]
    assert ("as they are" if pool == "donors" else "a quarter of each") in saved.shown


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("noise.pool"), "missing"),
        (lambda t: t.update({"noise.pool": t["noise.pool"].astype(np.float32)}), "uint8"),
        (lambda t: t.update({"noise.pool": t["noise.pool"][:, :, :8]}), "of shape"),
        (lambda t: t.update({"noise.pool": t["noise.pool"][:0], "noise.owners": t["noise.owners"][:0]}), "Every"),
        (lambda t: t.update({"noise.owners": t["noise.owners"][::-1]}), "in order"),
        (lambda t: t.update({"noise.owners": t["noise.owners"] + 1}), "Every"),
        (lambda t: t.update({"noise.owners": t["noise.owners"][1:]}), "of shape"),
        (lambda t: t.update({"noise.combinations": t["noise.combinations"] * 0}), "twice"),
        (lambda t: t.update({"noise.extra": np.zeros(2)}), "Nothing uses"),
    ],
)
def test_hostile_tensors_are_refused(
    folder: Path, change: Callable[[dict[str, np.ndarray]], object], words: str
) -> None:
    tensors = dict(load_file(folder / TENSORS))
    change(tensors)
    raw = save({name: np.ascontiguousarray(value) for name, value in tensors.items()})
    (folder / TENSORS).write_bytes(raw)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][TENSORS] = {"sha256": hashlib.sha256(raw).hexdigest(), "bytes": len(raw)}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match=words):
        load_obfuscator(folder)


@pytest.mark.parametrize(
    ("preset", "pool"), [("calibrated", "collages"), ("substitute", None), ("substitute", "all")]
)
def test_a_pool_belongs_to_its_preset(folder: Path, preset: str, pool: str | None) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["settings"]["preset"], manifest["data"]["pool"] = preset, pool
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match="pool"):
        load_obfuscator(folder)
