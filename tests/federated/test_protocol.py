"""Messages survive packing and unpacking; anything else is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from locum.errors import FormatError
from locum.federated import Reply, Request
from locum.federated.protocol import STEPS, pack, unpack

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
arrays = st.one_of(
    *(hnp.arrays(kind, hnp.array_shapes(max_dims=2, max_side=4)) for kind in (np.float32, np.float64, np.uint64))
)
parts: dict[str, Any] = {
    "step": st.sampled_from(STEPS),
    "round": st.integers(0, 10**6),
    "nonce": st.text(max_size=20),
    "facts": st.dictionaries(st.text(max_size=5), plain, max_size=3),
    "tensors": st.dictionaries(st.text(max_size=5), arrays, max_size=3),
}
HEAD = {"step": "join", "round": 0, "nonce": "n", "facts": {}}


@given(st.builds(Request, **parts) | st.builds(Reply, declined=st.text(max_size=20), **parts))
def test_what_is_packed_comes_out_the_same(message: Request | Reply) -> None:
    back = unpack(*pack(message))
    assert type(back) is type(message)
    assert (back.step, back.round, back.nonce, back.facts) == (
        message.step,
        message.round,
        message.nonce,
        message.facts,
    )
    assert getattr(back, "declined", None) == getattr(message, "declined", None)
    assert back.tensors.keys() == message.tensors.keys()
    for name, value in message.tensors.items():
        assert back.tensors[name].dtype == value.dtype
        np.testing.assert_array_equal(back.tensors[name], value)


@given(st.text() | plain.map(json.dumps) | plain.map(lambda v: json.dumps({**HEAD, "step": v})))
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(FormatError):
        unpack(text, {})


@pytest.mark.parametrize(
    "change",
    [
        {"step": "leave"},
        {"round": 1.0},
        {"round": True},
        {"nonce": 5},
        {"facts": []},
        {"declined": None},
        {"more": 1},
        {"tensors": {}},
    ],
    ids=str,
)
def test_a_field_of_the_wrong_type_is_refused(change: dict[str, Any]) -> None:
    assert isinstance(unpack(json.dumps(HEAD), {}), Request)
    with pytest.raises(FormatError):
        unpack(json.dumps({**HEAD, **change}), {})


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_not_finite_are_neither_sent_nor_read(word: str) -> None:
    with pytest.raises(FormatError):
        unpack(json.dumps({**HEAD, "facts": {"noise": 1}}).replace("1}", f"{word}}}"), {})
    with pytest.raises(ValueError, match="JSON"):
        pack(Request("join", 0, "n", {"noise": float(word)}))


def test_too_long_too_deep_and_of_another_type() -> None:
    for text in (json.dumps({**HEAD, "nonce": "n" * 1_000_001}), "[" * 100_000):
        with pytest.raises(FormatError):
            unpack(text, {})
    for kind in (np.int64, np.float16, np.complex64, object, ">f4"):
        with pytest.raises(FormatError):
            unpack(json.dumps(HEAD), {"a": np.zeros(2, dtype=kind)})


def test_an_array_that_is_not_contiguous_is_packed_in_order() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3).T
    _, arrays = pack(Request("train", 1, "n", tensors={"w": value}))
    assert arrays["w"].flags["C_CONTIGUOUS"]
    np.testing.assert_array_equal(arrays["w"], value)
