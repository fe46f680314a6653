from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from imblearn.pipeline import Pipeline
from imblearn.utils.estimator_checks import estimator_checks_generator
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from locum.errors import ConfigError
from locum.generate import ClassGaussian, CVAEGenerator
from locum.heads import LinearHead
from locum.rebalance import GenerativeOverSampler, accuracy_by_shots, shrunk_means

quick = settings(max_examples=30, deadline=None, derandomize=True)
SEEDED = GenerativeOverSampler(random_state=0)
# What imbalanced-learn asks of its own samplers and ours does not do.
EXPECTED = {"check_samplers_pandas_sparse": "generated records are dense: sparse input is refused"}


@parametrize_with_checks([SEEDED])
def test_scikit_learn_s_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize(
    ("estimator", "check"), list(estimator_checks_generator(SEEDED, expected_failed_checks=EXPECTED, mark="xfail"))
)
def test_imbalanced_learn_s_checks(estimator: Any, check: Any) -> None:
    check(estimator)


sizes = st.lists(st.integers(1, 12), min_size=2, max_size=5).filter(lambda n: sum(n) >= 3)


@quick
@given(sizes=sizes, seed=st.integers(0, 2**31 - 1), extra=st.integers(0, 20), amount=st.floats(0, 1))
def test_counts_order_and_seed(sizes: list[int], seed: int, extra: int, amount: float) -> None:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    X = rng.normal(size=(len(y), 3))
    target = {c: n + extra * c for c, n in enumerate(sizes)}
    sampler = GenerativeOverSampler(sampling_strategy=target, amount=amount, random_state=seed)
    Xr, yr = sampler.fit_resample(X, y)
    np.testing.assert_array_equal(Xr[: len(X)], X)
    np.testing.assert_array_equal(yr[: len(y)], y)
    np.testing.assert_array_equal(sampler.generated_, np.arange(len(Xr)) >= len(X))
    want = {c: round(n ** (1 - amount) * target[c] ** amount) for c, n in enumerate(sizes)}
    assert Counter(yr.tolist()) == want
    assert sampler.sampling_strategy_ == {c: want[c] - n for c, n in enumerate(sizes) if want[c] > n}
    assert np.isfinite(Xr).all()
    again, _ = sampler.fit_resample(X, y)
    np.testing.assert_array_equal(Xr, again)


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        ("auto", [60, 60, 60, 60]),
        ("minority", [60, 20, 5, 60]),
        ("all", [60, 60, 60, 60]),
        ({2: 9}, [60, 20, 9, 1]),
        (lambda y: {1: 2 * np.count_nonzero(y == 1)}, [60, 40, 5, 1]),
    ],
    ids=["auto", "minority", "all", "dict", "callable"],
)
def test_strategies(tail: tuple[np.ndarray, np.ndarray], strategy: Any, want: list[int]) -> None:
    _, y = GenerativeOverSampler(sampling_strategy=strategy, random_state=0).fit_resample(*tail)
    assert np.bincount(y).tolist() == want


def test_a_ratio_for_two_classes(tail: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = tail
    _, grown = GenerativeOverSampler(sampling_strategy=0.5, random_state=0).fit_resample(X[y < 2], y[y < 2])
    assert np.bincount(grown).tolist() == [60, 30]


def test_amount_is_a_path_between_the_sizes(tail: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = tail
    small = np.concatenate([np.flatnonzero(y == 0)[:16], np.flatnonzero(y == 1)[:4]])
    found = [
        Counter(GenerativeOverSampler(amount=a, random_state=0).fit_resample(X[small], y[small])[1].tolist())[1]
        for a in (0, 0.5, 1)
    ]
    assert found == [4, 8, 16]


@pytest.mark.parametrize(
    "names",
    [
        np.array(["ant", "bee", "cat", "dog"]),
        np.array(["ant", "bee", "cat", "dog"], dtype=object),
        np.array([7, -1, 3, 0], dtype=np.int16),
        np.array([7.0, 1.0, 3.0, 0.0]),
        np.array([True, False, False, False]),
    ],
    ids=["text", "object", "int", "float", "bool"],
)
def test_labels_of_any_kind(tail: tuple[np.ndarray, np.ndarray], names: np.ndarray) -> None:
    X, y = tail
    _, grown = GenerativeOverSampler(random_state=0).fit_resample(X, names[y])
    assert grown.dtype == names.dtype
    assert set(Counter(grown.tolist()).values()) == {max(Counter(names[y].tolist()).values())}


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_precision_is_kept(tail: tuple[np.ndarray, np.ndarray], kind: type) -> None:
    X, y = tail
    Xr, _ = GenerativeOverSampler(random_state=0).fit_resample(X.astype(kind), y)
    assert Xr.dtype == kind


@pytest.mark.parametrize(
    "generator",
    [None, CVAEGenerator(max_epochs=2), CVAEGenerator("large", max_epochs=2)],
    ids=["gaussian", "cvae", "large"],
)
def test_a_class_of_one_record_varies(tail: tuple[np.ndarray, np.ndarray], generator: Any) -> None:
    X, y = tail
    sampler = GenerativeOverSampler(generator, shrink_means=False, random_state=0)
    Xr, yr = sampler.fit_resample(X, y)
    lone, made = X[y == 3][0], Xr[sampler.generated_ & (yr == 3)]
    assert len(np.unique(made, axis=0)) == 59
    assert not (made == lone).all(axis=1).any()
    # Its mean is the record itself, its spread about that of the other classes.
    assert np.linalg.norm(made.mean(axis=0) - lone) < 1.5
    assert 0.3 < made.std(axis=0).mean() < 2


def test_without_variance_all_lie_on_the_mean_that_is_expected(tail: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = tail
    expected = shrunk_means(X, y)
    for shrink, shifts in ((False, np.zeros((4, 1))), (True, expected.shifts)):
        sampler = GenerativeOverSampler(variance=0, shrink_means=shrink, random_state=0)
        Xr, yr = sampler.fit_resample(X, y)
        want = (expected.means + shifts)[yr[sampler.generated_]]
        np.testing.assert_allclose(Xr[sampler.generated_], want, atol=1e-4)


def test_rarer_classes_vary_more_by_the_power_asked_for(tail: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = tail
    runs = []
    for power in (0.0, 1.0, -0.5):
        sampler = GenerativeOverSampler(adaptive_variance=power, shrink_means=False, random_state=0)
        Xr, yr = sampler.fit_resample(X, y)
        runs.append(Xr[sampler.generated_] - shrunk_means(X, y).means[yr[sampler.generated_]])
    size = np.bincount(y)[yr[sampler.generated_]][:, None]
    np.testing.assert_allclose(runs[1], runs[0] * np.sqrt(60 / size), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(runs[2], runs[0] * (60 / size) ** -0.25, rtol=1e-3, atol=1e-4)


def test_the_generator_s_own_variance_is_where_it_starts(tail: tuple[np.ndarray, np.ndarray]) -> None:
    outs = [
        GenerativeOverSampler(generator, variance=v, adaptive_variance=0.3, random_state=0).fit_resample(*tail)[0]
        for generator, v in ((ClassGaussian(variance=0.5), None), (ClassGaussian(), 0.5))
    ]
    np.testing.assert_array_equal(*outs)


def test_whole_numbers_stay_whole_and_in_range(rng: np.random.Generator) -> None:
    X = rng.integers(0, 4, size=(40, 3)).astype(np.uint8)
    Xr, _ = GenerativeOverSampler(random_state=0).fit_resample(X, np.repeat([0, 1], [34, 6]))
    assert Xr.dtype == np.uint8
    assert Xr.max() <= 3
    # Rounded, not cut off: the mean of what is generated stays where it was.
    assert abs(Xr[40:].mean() - X.mean()) < 0.3


def test_tables_come_back_as_tables(rng: np.random.Generator) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "age": rng.integers(20, 80, 50),
            "height": rng.normal(1.7, 0.1, 50).astype(np.float32),
            "smokes": rng.random(50) < 0.4,
        }
    )
    y = pd.Series(["well"] * 42 + ["ill"] * 8, name="state", dtype="category")
    Xr, yr = GenerativeOverSampler(random_state=0).fit_resample(frame, y)
    assert list(Xr.columns) == list(frame.columns)
    assert (Xr.dtypes == frame.dtypes).all()
    assert yr.name == "state"
    assert yr.dtype == y.dtype
    assert yr.value_counts().to_dict() == {"well": 42, "ill": 42}
    pd.testing.assert_frame_equal(Xr.iloc[:50], frame)
    assert Xr["age"].between(frame["age"].min(), frame["age"].max()).all()
    assert 0 < Xr["smokes"][50:].mean() < 1


def test_pipeline_and_grid_search(tail: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = tail
    pipeline = Pipeline(
        [("more", GenerativeOverSampler(ClassGaussian(), random_state=0)), ("head", LogisticRegression())]
    )
    grid = {"more__generator__rank": [0, 2], "more__amount": [0.5, 1.0]}
    keep = y < 3
    search = GridSearchCV(pipeline, grid, cv=2, scoring="balanced_accuracy", error_score="raise").fit(
        X[keep], y[keep]
    )
    assert search.best_estimator_.named_steps["more"].generated_.any()
    assert len(search.cv_results_["params"]) == 4
    assert search.best_score_ > 0.6


def test_the_generator_that_was_given_stays_unfitted(tail: tuple[np.ndarray, np.ndarray]) -> None:
    given = ClassGaussian()
    sampler = GenerativeOverSampler(given, random_state=0)
    sampler.fit_resample(*tail)
    assert not hasattr(given, "classes_")
    assert given.random_state is None
    assert sampler.generator_.sample(3)[0].shape == (3, 6)


def test_the_generators_own_seed_is_kept(tail: tuple[np.ndarray, np.ndarray]) -> None:
    sampler = GenerativeOverSampler(CVAEGenerator(max_epochs=1, random_state=5), random_state=0)
    sampler.fit_resample(*tail)
    assert sampler.generator_.random_state == 5


def test_balanced_data_need_nothing(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(8, 2)), np.tile([0, 1], 4)
    sampler = GenerativeOverSampler().fit(X, y)
    Xr, yr = sampler.fit_resample(X, y)
    np.testing.assert_array_equal(Xr, X)
    assert yr.tolist() == y.tolist()
    assert sampler.generator_ is None
    assert not sampler.generated_.any()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"amount": 1.5}, "amount"),
        ({"amount": "half"}, "amount"),
        ({"variance": -1.0}, "variance"),
        ({"adaptive_variance": np.inf}, "adaptive_variance"),
    ],
)
def test_wrong_settings_are_named(tail: tuple[np.ndarray, np.ndarray], settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        GenerativeOverSampler(**settings).fit_resample(*tail)


def test_sparse_input_is_refused(tail: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(TypeError, match="dense"):
        GenerativeOverSampler().fit_resample(sparse.csr_matrix(tail[0]), tail[1])


def test_memory_grows_with_the_records_only(rng: np.random.Generator) -> None:
    n = 40_000
    X, y = rng.normal(size=(n, 16)).astype(np.float32), (np.arange(n) < 4).astype(int)
    tracemalloc.start()
    try:
        Xr, _ = GenerativeOverSampler(random_state=0).fit_resample(X, y)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # One float for each pair of records would be 6.4 GB.
    assert peak < 6 * Xr.nbytes


def test_rare_classes_of_real_embeddings_are_found_more_often(real_data: Path) -> None:
    file = real_data / "cifar10_12k_efflite0.npz"
    if not file.exists():
        pytest.skip(f"{file.name} is not in LOCUM_DATA")
    with np.load(file, allow_pickle=False) as z:
        X, y, X_test, y_test = (z[k] for k in ("train_x", "train_y", "test_x", "test_y"))
    kept = np.concatenate([np.flatnonzero(y == c)[: int(200 / 1.6**c)] for c in range(10)])
    X, y, X_test = X[kept].astype(np.float32), y[kept], X_test.astype(np.float32)
    few = []
    for shrink in (None, False, True):
        rows, labels = X, y
        if shrink is not None:
            rows, labels = GenerativeOverSampler(shrink_means=shrink, random_state=0).fit_resample(X, y)
        head = LinearHead(max_epochs=10, patience=None, random_state=0).fit(rows, labels)
        few.append(accuracy_by_shots(y, y_test, head.predict(X_test))["few"])
    # Each step by more than the intervals of 1,000 test records overlap.
    assert few[0].high < few[1].low
    assert few[1].high < few[2].low
