"""A population, releases that leak its records, and releases that know nothing about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.release import Condition, EmbeddingEntry, Release, RowsSpec, build_release, rounded_joint
from locum.types import PrivacyClaim

LEAKS = {"copy": 0.0, "jitter 0.001": 0.001, "jitter 0.1": 0.1}


@pytest.fixture
def subjects() -> Callable[..., tuple[EmbeddingSet, EmbeddingSet, EmbeddingSet]]:
    """Members, non-members and fresh records of one population: two classes, correlated features."""

    def draw(seed: int, n: int = 200, d: int = 16, heavy: bool = False) -> tuple[EmbeddingSet, ...]:
        rng = np.random.default_rng(seed)
        mix = rng.normal(size=(d, d))
        y = rng.permutation(np.arange(3 * n) % 2)
        Z = rng.standard_t(2, size=(3 * n, d)) if heavy else rng.normal(size=(3 * n, d))
        data = EmbeddingSet((Z @ mix + y[:, None]).astype(np.float32), y)
        return tuple(data.take(np.arange(i * n, (i + 1) * n)) for i in range(3))

    return draw  # type: ignore[return-value]


@pytest.fixture
def rows() -> Callable[..., Release]:
    """A release that is a fixed table."""

    def build(X: Any, y: Any, attributes: dict[str, Any] | None = None, settings: Any = None) -> Release:
        columns, conditions = [np.asarray(y)], []
        for name, column in (attributes or {}).items():
            values, codes = np.unique(np.asarray(column).astype(str), return_inverse=True)
            conditions.append(Condition(name=name, values=tuple(values.tolist())))
            columns.append(codes)
        codes = np.column_stack(columns)
        return build_release(
            generator="Table",
            settings=settings or {},
            embedding=EmbeddingEntry(backbone="unknown", dim=np.shape(X)[1]),
            classes=list(range(int(codes[:, 0].max()) + 1)),
            class_names=None,
            joint=rounded_joint(codes),
            conditions=conditions,
            space="raw",
            decoder=RowsSpec(),
            tensors={"X": np.asarray(X), "codes": codes},
            claim=PrivacyClaim("none", ("membership: everything",)),
        )

    return build


@pytest.fixture
def planted(rows: Callable[..., Release]) -> Callable[..., Release]:
    """A release of fresh records that also holds some members, with jitter as a share of the feature scale."""

    def build(
        members: EmbeddingSet, non_members: EmbeddingSet | None, jitter: float = 0.0, known: int | None = None
    ) -> Release:
        some = members if known is None else members.take(np.arange(known))
        noise = np.random.default_rng(5).normal(size=some.X.shape) * members.X.std(axis=0)
        X, y = some.X + jitter * noise, some.y
        if non_members is not None:
            X, y = np.concatenate([non_members.X, X]), np.concatenate([non_members.y, y])
        return rows(X, y)

    return build
