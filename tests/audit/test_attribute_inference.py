"""An attribute of members only is a leak; an attribute that the sets do not share is not attacked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.audit import AttributeInference
from locum.audit.attacks.attribute_inference import inferable
from locum.errors import NotApplicableError

RNG = np.random.default_rng


def with_sex(data: EmbeddingSet, seed: int) -> EmbeddingSet:
    """A fact that the vector does not tell."""
    return EmbeddingSet(data.X, data.y, attributes={"sex": RNG(seed).choice(["f", "m"], size=len(data))})


def test_a_fact_about_members_only(subjects: Callable[..., Any], rows: Any) -> None:
    members, others, non_members = (with_sex(data, i) for i, data in enumerate(subjects(0)))
    leaking = rows(members.X, members.y, members.attributes)
    result = AttributeInference("sex").run(leaking, members, others, RNG(0))
    assert (result.name, result.verdict, result.attack.value) == ("attribute inference: sex", "leak", 1)
    assert result.control.low < 0.5 < result.control.high
    assert result.baseline.low < 0.5 < result.baseline.high
    fresh = rows(non_members.X, non_members.y, non_members.attributes)
    assert AttributeInference("sex").run(fresh, members, others, RNG(0)).verdict != "leak"


def test_attributes_that_are_not_shared(subjects: Callable[..., Any], rows: Any) -> None:
    members, others, _ = subjects(0)
    release = rows(members.X, members.y)
    attack = AttributeInference("sex")
    with pytest.raises(NotApplicableError, match="'sex' is not an attribute"):
        attack.run(release, members, others, RNG(0))
    assert AttributeInference().run(release, members, others, RNG(0)).name == "attribute inference: class"
    with pytest.raises(NotApplicableError, match="only one class"):
        AttributeInference().run(rows(members.X, 0 * members.y), members, others, RNG(0))
    told = with_sex(members, 0)
    assert inferable(rows(told.X, told.y, told.attributes), told, with_sex(others, 1)) == ("sex",)
    assert inferable(rows(told.X, told.y, told.attributes), told, others) == ()
