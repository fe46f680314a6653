"""Settings as published models carry them, against what transformers makes of the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.embed.preprocessing import from_settings
from locum.errors import DataError

PLAIN: dict[str, Any] = {
    "size": {"height": 20, "width": 16}, "image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.3, 0.4], "resample": 2,
}  # fmt: skip
SHORTER = {**PLAIN, "size": {"shortest_edge": 20}}
KNOWN = [
    ("ViTImageProcessor", PLAIN),
    ("ViTImageProcessor", {**PLAIN, "do_rescale": False}),
    ("ViTImageProcessor", {**PLAIN, "do_normalize": False}),
    ("ViTImageProcessor", {**PLAIN, "do_normalize": False, "image_mean": None, "image_std": None}),
    ("ViTImageProcessor", {**PLAIN, "rescale_factor": 1 / 127.5}),
    ("ViTImageProcessor", {**PLAIN, "do_rescale": False, "rescale_factor": 0}),
    ("BitImageProcessor", {**SHORTER, "crop_size": {"height": 16, "width": 18}, "do_center_crop": True}),
    ("ConvNextImageProcessor", {**SHORTER, "crop_pct": 0.875}),
    ("ConvNextImageProcessor", {**SHORTER, "size": {"shortest_edge": 384}, "crop_pct": 0.9}),
]


@pytest.mark.parametrize(("kind", "given"), KNOWN)
def test_pixels_are_those_of_the_processor(kind: str, given: dict, tmp_path: Path, picture) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**given, "image_processor_type": kind}))
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    image = picture(61, 47)
    theirs = processor(image, return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(from_settings(given).apply(image), theirs, atol=2e-5)


def test_a_crop_is_made_unless_it_is_turned_off() -> None:
    assert from_settings({**SHORTER, "crop_size": 16}).crop == (16, 16)
    assert from_settings({**PLAIN, "crop_size": 16, "do_center_crop": False}).crop is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"image_mean": [0.5]}, "must give size, image_mean"),
        ({"image_std": [0.5] * 4}, "must give size, image_mean"),
        ({"image_mean": 0.5}, "must give size, image_mean"),
        ({"image_std": [0, 1, 1]}, "above 0"),
        ({"rescale_factor": 0}, "must give size, image_mean"),
        ({"rescale_factor": -1}, "above 0"),
        ({"rescale_factor": "x"}, "must give size, image_mean"),
        ({"size": {"longest_edge": 20}}, "must give size, image_mean"),
        ({"size": {"shortest_edge": 20}}, "needs a `crop`"),
        ({"size": float("inf")}, "must give size, image_mean"),
        ({"resample": 9}, "must give size, image_mean"),
        ({"do_center_crop": True}, "must give size, image_mean"),
        ({"crop_pct": 0.9}, "crop_pct"),
        ({"size": {"shortest_edge": 20}, "crop_pct": 0}, "crop_pct"),
        ({"size": {"shortest_edge": 20}, "crop_pct": 0.9, "crop_size": 16}, "crop_pct"),
        ({"do_resize": False}, "'do_resize' off"),
        ({"do_flip_channel_order": True}, "'do_flip_channel_order'"),
        ({"rescale_offset": True}, "'rescale_offset'"),
    ],
)
def test_what_cannot_be_done_is_told(change: dict, told: str) -> None:
    with pytest.raises(DataError, match=told):
        from_settings({**PLAIN, **change})
