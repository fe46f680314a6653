"""The real loading code, on small random models saved to disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from locum.embed import backbone_for, load_backbone
from locum.errors import DataError

transformers = pytest.importorskip("transformers", reason="the extra `huggingface` is not installed")

BIT = {
    "image_processor_type": "BitImageProcessor", "size": {"shortest_edge": 36}, "do_center_crop": True,
    "crop_size": {"height": 28, "width": 28}, "resample": 3, "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225], "do_convert_rgb": True,
}  # fmt: skip
VIT = {
    "image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}, "resample": 2,
    "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip
CONVNEXT = {
    "image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 28}, "crop_pct": 0.875, "resample": 3,
    "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225],
}  # fmt: skip
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture
def saved(tmp_path: Path):
    def save(kind: str, half: bool = False) -> Path:
        torch.manual_seed(0)
        if kind == "dinov2":
            model = transformers.Dinov2Model(transformers.Dinov2Config(**SMALL, image_size=28, patch_size=14))
        elif kind == "vit":
            # As published: a classifier, without the pooler that AutoModel would make up.
            model = transformers.ViTForImageClassification(
                transformers.ViTConfig(**SMALL, image_size=32, patch_size=16)
            )
        elif kind == "resnet":
            config = transformers.ResNetConfig(
                embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
            )
            model = transformers.ResNetModel(config)
        elif kind == "clip-vision":
            model = transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**SMALL, image_size=28, patch_size=14))
        elif kind == "siglip":
            config = transformers.SiglipConfig(
                vision_config={**SMALL, "image_size": 28, "patch_size": 14, "vision_use_head": False},
                text_config={**SMALL, "vocab_size": 50, "max_position_embeddings": 8},
            )
            model = transformers.SiglipModel(config)
        else:
            config = transformers.CLIPConfig(
                vision_config={**SMALL, "image_size": 28, "patch_size": 14},
                text_config={**SMALL, "vocab_size": 50, "max_position_embeddings": 8},
                projection_dim=12,
            )
            model = transformers.CLIPModel(config)
        (model.half() if half else model).save_pretrained(tmp_path / kind)
        settings = {"vit": VIT, "resnet": CONVNEXT}.get(kind, BIT)
        (tmp_path / kind / "preprocessor_config.json").write_text(json.dumps(settings))
        return tmp_path / kind

    return save


@pytest.mark.parametrize("kind", ["dinov2", "vit", "resnet", "clip", "clip-vision"])
@pytest.mark.parametrize("half", [False, True])
def test_vectors_are_those_of_the_model(kind: str, half: bool, saved, picture) -> None:
    folder = saved(kind, half)
    found = load_backbone(f"hf:{folder}")
    image = picture(60, 45)
    vector = found.run(found.preprocessing.apply(image)[None])
    assert (vector.shape, vector.dtype) == ((1, 16), np.float32)
    assert found.dim == 16
    # The model's own way: its processor, its class, its output.
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    pixels = processor(image, return_tensors="pt")
    model = transformers.AutoModel.from_pretrained(folder).float().eval()
    with torch.no_grad():
        if kind.startswith("clip"):
            expected = getattr(model, "vision_model", model)(**pixels).pooler_output
        else:
            last = model(**pixels).last_hidden_state
            expected = last.mean((2, 3)) if kind == "resnet" else last[:, 0]
    np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


def test_a_model_without_a_pooled_output_is_refused(saved) -> None:
    with pytest.raises(DataError, match="does not give one vector per image"):
        load_backbone(f"hf:{saved('siglip')}")


def test_a_processor_of_another_size_is_refused(saved) -> None:
    folder = saved("vit")
    (folder / "preprocessor_config.json").write_text(json.dumps({**VIT, "size": {"height": 48, "width": 48}}))
    with pytest.raises(DataError, match=r"48 x 48 pixels.*does not give one vector per image"):
        load_backbone(f"hf:{folder}")


def test_neither_the_folder_nor_its_name_travels(saved) -> None:
    found = load_backbone(f"hf:{saved('dinov2')}")
    assert found.info.backbone == "hf"
    assert len(found.info.revision) == 64
    assert backbone_for(found.info, f"hf:{saved('dinov2')}").revision == found.revision


def test_random_weights_are_refused(saved) -> None:
    """A file that lacks tensors would be filled up by chance, and give other vectors each time."""
    from safetensors.torch import load_file, save_file

    folder = saved("dinov2")
    weights = load_file(folder / "model.safetensors")
    weights.pop("layernorm.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match="would be random"):
        load_backbone(f"hf:{folder}")


def test_a_pickle_is_not_opened(saved) -> None:
    folder = saved("dinov2")
    (folder / "model.safetensors").rename(folder / "model.bak")
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(DataError, match="not a complete model"):
        load_backbone(f"hf:{folder}")


def test_a_processor_that_does_more_is_refused(saved) -> None:
    folder = saved("vit")
    (folder / "preprocessor_config.json").write_text(json.dumps({**VIT, "size": {"longest_edge": 32}}))
    with pytest.raises(DataError, match="more than resize, crop and scale"):
        load_backbone(f"hf:{folder}")


def test_a_hub_out_of_reach_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # In a fresh process: the hub's settings are read when its library is imported.
    import subprocess
    import sys

    code = (
        "from locum.embed import load_backbone\n"
        "from locum.errors import DataError\n"
        "try:\n    load_backbone('dinov2-small')\n"
        "except DataError as e:\n    print(e)\n"
    )
    env = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert "could not be loaded" in done.stdout
    assert "hf:FOLDER" in done.stdout
    assert "Traceback" not in done.stderr


def test_gray_and_small_images_pass(saved) -> None:
    found = load_backbone(f"hf:{saved('resnet')}")
    gray = Image.fromarray(np.full((5, 9), 100, dtype=np.uint8))
    assert np.isfinite(found.run(found.preprocessing.apply(gray)[None])).all()
