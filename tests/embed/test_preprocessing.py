"""The contract on pixels: its text, and its pixels against hand-made and published ones."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image

from locum.embed import Preprocessing, UnreadableImageError
from locum.embed.preprocessing import RESAMPLING
from locum.errors import DataError

side = st.integers(1, 4096)
number = st.floats(-1e3, 1e3, allow_nan=False).map(lambda v: float(f"{v:.6g}"))
positive = st.floats(1e-3, 1e3).map(lambda v: float(f"{v:.6g}"))
contracts = st.builds(
    Preprocessing,
    resize=st.tuples(side, side),
    resample=st.sampled_from(sorted(RESAMPLING)),
    fine=st.booleans(),
    crop=st.none() | st.tuples(side, side),
    scale=st.sampled_from([1.0, 255.0]),
    mean=st.tuples(number, number, number),
    std=st.tuples(positive, positive, positive),
    window=st.none() | st.tuples(st.just(-1000.0), st.just(400.0)),
    alpha=st.sampled_from(["white", "dropped"]),
)


@given(contracts)
def test_the_text_gives_the_contract_back(contract: Preprocessing) -> None:
    assert Preprocessing.parse(contract.text) == contract


def test_the_text_fits_where_a_manifest_keeps_it() -> None:
    longest = Preprocessing(resize=4096, crop=(4096, 4096), fine=True, window=(-1024.123456, 3071.123456))
    assert len(longest.text) <= 200


@pytest.mark.parametrize(
    "change",
    [
        {"resize": (224, 225)},
        {"resample": "bilinear"},
        {"fine": True},
        {"scale": 1.0},
        {"window": (0.0, 1.0)},
        {"alpha": "dropped"},
    ],
)
def test_any_change_changes_the_text(change: dict) -> None:
    assert Preprocessing(**change).text != Preprocessing().text


def test_a_line_of_before_says_that_alpha_is_dropped() -> None:
    line = "v1 resize=224x224,bicubic,fine crop=none scale=1 mean=127,127,127 std=128,128,128 window=none"
    old = Preprocessing.parse(f"{line} sha256:40c6318521aa0fda")
    assert old.alpha == "dropped"
    new = Preprocessing(fine=True, scale=1, mean=(127,) * 3, std=(128,) * 3)
    assert new.text.startswith(f"{line} alpha=white sha256:")
    assert new.opaque == old
    with pytest.raises(DataError, match="cannot prepare"):
        Preprocessing.parse(new.text.replace("white", "black"))
    with pytest.raises(DataError, match="white or dropped"):
        Preprocessing(alpha="black")


def test_an_altered_text_is_refused() -> None:
    with pytest.raises(DataError, match="hash"):
        Preprocessing.parse(Preprocessing().text.replace("224x224", "225x225"))
    with pytest.raises(DataError, match="cannot prepare"):
        Preprocessing.parse("resize 224")
    with pytest.raises(DataError, match="cannot prepare"):
        Preprocessing.parse(Preprocessing().text.replace("v1", "v9"))
    for old in ("v1", "224x"):
        with pytest.raises(DataError):
            Preprocessing.parse(Preprocessing().text.replace(old, old[0] + "1" * 5000 + old[3:]))


@pytest.mark.parametrize(
    "wrong",
    [
        {"resize": 224},
        {"resize": (0, 1)},
        {"resample": "magic"},
        {"std": (0, 1, 1)},
        {"window": (5.0, 5.0)},
        {"mean": (0.5,)},
        {"std": (1.0,) * 4},
    ],
)
def test_a_wrong_contract_is_refused(wrong: dict) -> None:
    with pytest.raises(DataError):
        Preprocessing(**wrong)


@pytest.mark.parametrize("window", [(float("nan"), 1.0), (0.0, float("inf")), (2.0, 1.0)])
def test_a_wrong_window_is_called_a_window(window: tuple) -> None:
    with pytest.raises(DataError, match="A window is two finite numbers, the lower first"):
        Preprocessing(window=window)


def test_a_strip_is_refused_and_a_panorama_is_not() -> None:
    contract = Preprocessing(resize=224, crop=(224, 224))
    for size in ((1_000_000, 1), (1, 1_000_000)):
        with pytest.raises(UnreadableImageError, match="too long for its width"):
            contract.apply(Image.new("L", size))
    assert contract.apply(Image.new("L", (10_000, 100))).shape == (3, 224, 224)


def test_pixels_by_hand() -> None:
    image = Image.fromarray(np.array([[[0, 127, 255]]], dtype=np.uint8))
    out = Preprocessing(resize=(1, 1), scale=1, mean=(127,) * 3, std=(128,) * 3).apply(image)
    np.testing.assert_allclose(out[:, 0, 0], [-127 / 128, 0, 1], atol=1e-6)


def test_gray_is_three_equal_colors(picture) -> None:
    for fine in (False, True):
        contract = Preprocessing(fine=fine)
        gray = picture(mode="L")
        np.testing.assert_array_equal(contract.apply(gray), contract.apply(gray.convert("RGB")))


def test_fine_enlarges_without_steps_and_leaves_shrinking_alone(picture) -> None:
    ramp = Image.fromarray(np.tile(np.array([100, 101], dtype=np.uint8), (2, 1)))
    plain = Preprocessing(resize=(64, 64), resample="bilinear", scale=1, mean=(0,) * 3, std=(1,) * 3)
    fine = Preprocessing(resize=(64, 64), resample="bilinear", fine=True, scale=1, mean=(0,) * 3, std=(1,) * 3)
    assert len(np.unique(plain.apply(ramp))) == 2
    assert len(np.unique(fine.apply(ramp))) > 20
    large = picture(200, 100)
    np.testing.assert_array_equal(plain.apply(large), fine.apply(large))


def test_fine_stays_within_the_range_of_pixels() -> None:
    edge = Image.fromarray(np.array([[0, 0, 255, 255]] * 4, dtype=np.uint8))
    out = Preprocessing(resize=(32, 32), fine=True, scale=1, mean=(0,) * 3, std=(1,) * 3).apply(edge)
    assert out.min() == 0
    assert out.max() == 255


PUBLISHED = {
    "dinov2": {
        "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 256}, "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224}, "resample": 3, "do_convert_rgb": True,
        "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
    },
    "vit": {
        "image_processor_type": "ViTImageProcessor", "size": {"height": 224, "width": 224}, "resample": 2,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    },
    "resnet": {
        "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 224}, "crop_pct": 0.875,
        "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
    },
    "convnext-large": {
        "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 384}, "crop_pct": 0.95,
        "resample": 3, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
    },
    "clip": {
        "image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 224}, "do_center_crop": True,
        "crop_size": {"height": 224, "width": 224}, "resample": 3,
        "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("size", [(500, 333), (100, 231), (224, 224), (8, 8)])
def test_pixels_equal_those_of_the_published_processor(name: str, size: tuple, tmp_path: Path, picture) -> None:
    transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")
    from locum.embed.huggingface import published_preprocessing

    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PUBLISHED[name]))
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    image = picture(*size)
    theirs = processor(image, return_tensors="np")["pixel_values"][0]
    ours = published_preprocessing(processor, name).apply(image)
    assert theirs.shape == ours.shape
    assert np.abs(theirs - ours).max() <= 1e-5
