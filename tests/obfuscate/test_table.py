"""Obfuscated tables."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.feature_selection import mutual_info_classif

from locum.data import TableCodec, read_adult
from locum.errors import ConfigError, DataError, NotFittedError
from locum.obfuscate import TableObfuscator
from locum.obfuscate.table import draw_columns


def subjects(n: int = 3000, seed: int = 0) -> tuple[pd.DataFrame, pd.Series, np.ndarray]:
    """Records in which a job tells of a private bit and an age of what is needed; a third column of both."""
    rng = np.random.default_rng(seed)
    private, needed = rng.integers(0, 2, n), rng.integers(0, 2, n)
    frame = pd.DataFrame(
        {
            "age": np.clip(30 + 20 * needed + rng.normal(0, 6, n), 18, 80).astype(np.int64),
            "job": pd.Categorical.from_codes(np.where(rng.random(n) < 0.9, private, 1 - private), ["cook", "nurse"]),
            "gain": np.where(rng.random(n) < 0.2 + 0.4 * needed, rng.random(n), 0.0),
            "member": (private + needed + rng.integers(0, 2, n)) > 1,
        }
    )  # fmt: skip
    return frame, pd.Series(np.where(needed, "ill", "well"), name="health"), private


TRAIN, TEST = subjects(), subjects(1500, seed=1)


@pytest.fixture(scope="module", params=["calibrated", "paper"])
def fitted(request: pytest.FixtureRequest) -> TableObfuscator:
    epochs = {"calibrated": 12, "paper": 15}[request.param]
    return TableObfuscator(request.param, max_epochs=epochs, batch_size=64, random_state=0).fit(*TRAIN[:2])


def score(train: tuple[pd.DataFrame, object], test: tuple[pd.DataFrame, object]) -> float:
    trees = HistGradientBoostingClassifier(max_iter=40, categorical_features="from_dtype")
    return float(trees.fit(_plain(train[0]), train[1]).score(_plain(test[0]), test[1]))


def _plain(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({"member": "int64"})


def test_what_comes_out_are_valid_records(fitted: TableObfuscator) -> None:
    X, needed, _ = TEST
    X = X.set_index(np.arange(len(X)) + 7)
    out = fitted.transform(X, needed, noise=3, lambda_=-50, random_state=0)
    assert out.dtypes.equals(X.dtypes)
    assert out.index.equals(X.index)
    assert out["age"].between(TRAIN[0]["age"].min(), TRAIN[0]["age"].max()).all()
    assert out["gain"].between(0, TRAIN[0]["gain"].max()).all()
    again = fitted.transform(X, needed, noise=3, lambda_=-50, random_state=0)
    pd.testing.assert_frame_equal(out, again)
    assert not out.equals(fitted.transform(X, needed, noise=3, lambda_=-50))


def test_noise_hides_what_is_private_and_keeps_what_is_needed() -> None:
    model = TableObfuscator(max_epochs=20, batch_size=64, random_state=0).fit(*TRAIN[:2])
    (X, needed, private), (Xe, needed_e, private_e) = TRAIN, TEST
    leaks, uses = {}, {}
    for noise in (0.0, 100.0):
        a = model.transform(X, needed, noise=noise, random_state=1)
        b = model.transform(Xe, needed_e, noise=noise, random_state=2)
        leaks[noise] = score((a, private), (b, private_e))
        uses[noise] = score((a, needed), (Xe, needed_e))
    assert leaks[0.0] > 0.75
    assert leaks[100.0] < 0.54
    assert uses[100.0] > score((X, needed), (Xe, needed_e)) - 0.03


def test_under_infinite_noise_nothing_but_the_label_is_left() -> None:
    model = TableObfuscator(max_epochs=3, random_state=0).fit(*TRAIN[:2])
    X, needed, _ = TEST
    other = X.sample(frac=1, random_state=0)
    one = model.transform(X, needed, noise=np.inf, random_state=0)
    two = model.transform(other, needed, noise=np.inf, random_state=0)
    assert one.reset_index(drop=True).equals(two.reset_index(drop=True))


def test_at_huge_noise_columns_are_independent_of_the_input_given_the_label() -> None:
    model = TableObfuscator(max_epochs=3, random_state=0).fit(*TRAIN[:2])
    X, needed, private = TEST
    out = _plain(model.transform(X, needed, noise=1000, random_state=0))
    out["job"] = out["job"].cat.codes
    ill = (needed == "ill").to_numpy()
    for rows in (ill, ~ill):
        assert mutual_info_classif(out[rows], private[rows], random_state=0).max() < 0.03


def test_a_label_that_is_not_written_does_not_show() -> None:
    model = TableObfuscator(max_epochs=3, random_state=0).fit(*TRAIN[:2])
    X, needed, _ = TEST
    wrong = needed.map({"ill": "well", "well": "ill"})
    a = model.transform(X, needed, noise=2, lambda_=0, random_state=0)
    assert a.equals(model.transform(X, wrong, noise=2, lambda_=0, random_state=0))
    assert not a.equals(model.transform(X, wrong, noise=2, lambda_=-50, random_state=0))


def test_labels_can_be_guessed(fitted: TableObfuscator) -> None:
    X, needed, _ = TEST
    guessed = fitted.predict(X)["health"]
    assert (guessed == needed.to_numpy()).mean() > 0.85
    a = fitted.transform(X, noise=1, use_true_label=False, random_state=0)
    assert a.equals(fitted.transform(X, guessed, noise=1, random_state=0))


def test_several_attributes_of_many_values() -> None:
    X, needed, _ = TRAIN
    more = pd.DataFrame({"health": needed, "third": np.arange(len(X)) % 3})
    model = TableObfuscator(max_epochs=2, random_state=0).fit(X, more)
    assert model.labels_.sizes == (2, 3)
    assert model.transform(X, more, noise=1).shape == X.shape


def test_local_epsilon_falls_with_noise_and_is_infinite_in_the_seed(fitted: TableObfuscator) -> None:
    found = [fitted.local_epsilon(noise, delta=1e-5) for noise in (10, 100)]
    if fitted.preset == "paper":
        assert found == [float("inf")] * 2
    else:
        assert 0 < found[1] < found[0] < float("inf")


def test_a_fit_that_was_cut_ends_the_same(tmp_path: Path) -> None:
    class CutError(Exception):
        pass

    def cut(done: int, total: int, note: str = "") -> None:
        if done == 3:
            raise CutError

    import locum.obfuscate.obfuscator as base

    X, needed = TRAIN[0][:300], TRAIN[1][:300]
    settings = {"max_epochs": 5, "random_state": 0}
    whole = TableObfuscator(**settings).fit(X, needed)
    file = tmp_path / "fit.ckpt"
    original = base.Checkpoint
    try:
        base.Checkpoint = lambda path, mark: original(path, mark, every_seconds=0)  # type: ignore[misc, assignment]
        with pytest.raises(CutError):
            TableObfuscator(**settings, checkpoint=file, progress=cut).fit(X, needed)
        resumed = TableObfuscator(**settings, checkpoint=file).fit(X, needed)
    finally:
        base.Checkpoint = original  # type: ignore[misc]
    assert resumed.transform(X, needed, noise=1, random_state=0).equals(
        whole.transform(X, needed, noise=1, random_state=0)
    )


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda m: m.transform(TEST[0], noise=1), DataError, "use_true_label=False"),
        (lambda m: m.transform(TEST[0], TEST[1][:5], noise=1), DataError, "Each record needs"),
        (lambda m: m.transform(TEST[0], TEST[1], noise=-1), ConfigError, "0 hides least"),
        (lambda m: m.transform(TEST[0].drop(columns="age"), TEST[1], noise=1), DataError, "lacks columns"),
        (lambda m: TableObfuscator().transform(TEST[0], TEST[1], noise=1), NotFittedError, "has not been fitted"),
        (lambda m: TableObfuscator("best").fit(*TRAIN[:2]), ConfigError, "'calibrated' or 'paper'"),
        (lambda m: TableObfuscator(authors_compat=True).fit(*TRAIN[:2]), ConfigError, "authors_compat"),
        (lambda m: TableObfuscator().fit(TRAIN[0][:5], TRAIN[1][:5]), DataError, "at least 20"),
        (lambda m: TableObfuscator().fit(TRAIN[0], TRAIN[1][:5]), DataError, "Each record needs"),
        (lambda m: TableObfuscator(checkpoint="x").fit(*TRAIN[:2]), ConfigError, "random_state"),
    ],
)
def test_bad_input_is_told_in_a_sentence(fitted: TableObfuscator, act: object, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        act(fitted)  # type: ignore[operator]


def test_adult_rows_stay_adult_rows(real_data: Path) -> None:
    adult = read_adult(real_data / "adult")
    X, income = adult.drop(columns=["income", "sex"]), adult["income"]
    codec = TableCodec.fit(X)
    some = X.sample(3000, random_state=0)
    model = TableObfuscator("paper", max_epochs=1, random_state=0).fit(some, income[some.index], codec=codec)
    assert model.parameters_ == 86_494
    for preset in (model, TableObfuscator(max_epochs=1, random_state=0).fit(some, income[some.index], codec=codec)):
        out = preset.transform(some, income[some.index], noise=5, lambda_=-50)
        assert out.dtypes.equals(X.dtypes)
        for name in X.columns:
            if X[name].dtype.kind in "iu":
                assert out[name].between(X[name].min(), X[name].max()).all()
            else:
                assert set(out[name]) <= set(X[name])


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_columns_are_drawn_with_the_odds_of_their_logits(spread: float) -> None:
    rng, n = np.random.default_rng(0), 40_000
    logits = (spread * rng.standard_normal(7)).astype(np.float32)
    drawn = np.bincount(draw_columns(np.tile(logits, (n, 1)), rng), minlength=7)
    # The naive twin: the largest of logits plus Gumbel noise.
    naive = np.bincount((logits + rng.gumbel(size=(n, 7))).argmax(axis=1), minlength=7)
    odds = np.exp(logits) / np.exp(logits).sum()
    for found in (drawn, naive):
        assert (np.abs(found - n * odds) <= 5 * np.sqrt(n * odds) + 3).all()


def test_rows_are_drawn_each_by_its_own_logits() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.integers(0, 5, 1000)
    logits = np.full((1000, 5), -900.0, dtype=np.float32)
    logits[np.arange(1000), wanted] = 800
    assert (draw_columns(logits, rng) == wanted).all()
    assert (draw_columns(logits[:, :1], rng) == 0).all()
    assert len(draw_columns(logits[:0], rng)) == 0
    before = logits.copy()
    for rows in (logits, logits[:1], logits[:, :1]):
        draw_columns(rows, rng)
    assert (logits == before).all(), "logits are left as they are"
