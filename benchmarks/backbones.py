"""The cost of each backbone on this machine: images per second, weights in MB, and time relative to efflite0.

    python benchmarks/backbones.py            # all of them
    python benchmarks/backbones.py --quick    # without dinov2-large

Models of the Hugging Face hub are built with random weights of the published architecture, saved to disk and loaded
by the real code: the time does not depend on the weights, and nothing is downloaded. Pixels are already in memory.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from locum.embed import Backbone, load_backbone
from locum.embed.embedding import cores

BIT = {
    "image_processor_type": "BitImageProcessor",
    "size": {"shortest_edge": 256},
    "do_center_crop": True,
    "crop_size": {"height": 224, "width": 224},
    "resample": 3,
    "image_mean": [0.485, 0.456, 0.406],
    "image_std": [0.229, 0.224, 0.225],
}
VIT = {
    "image_processor_type": "ViTImageProcessor",
    "size": {"height": 224, "width": 224},
    "resample": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}


def architectures() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Configurations as published."""
    from transformers import Dinov2Config, ResNetConfig, ViTConfig

    def dinov2(width: int, layers: int, heads: int) -> Any:
        return Dinov2Config(
            hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, image_size=518, patch_size=14
        )

    small = ViTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536)
    return {
        "resnet-50": (ResNetConfig(), BIT),
        "vit-small": (small, VIT),
        "dinov2-small": (dinov2(384, 12, 6), BIT),
        "dinov2-base": (dinov2(768, 12, 12), BIT),
        "dinov2-large": (dinov2(1024, 24, 16), BIT),
    }


def images_per_second(model: Backbone, seconds: float = 4.0) -> float:
    """As `embed` runs it: one thread per core if the model allows it, otherwise one call after another."""
    pixels = np.random.default_rng(0).uniform(-1, 1, (model.batch, *model.preprocessing.shape)).astype(np.float32)
    threads = cores() if model.concurrent else 1
    model.run(pixels)
    started = time.perf_counter()

    def work(_: int) -> int:
        done = 0
        while time.perf_counter() - started < seconds:
            model.run(pixels)
            done += len(pixels)
        return done

    with ThreadPoolExecutor(threads) as pool:
        done = sum(pool.map(work, range(threads)))
    return done / (time.perf_counter() - started)


def main() -> None:
    """Print the table."""
    from transformers import AutoModel

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without dinov2-large")
    quick = parser.parse_args().quick
    print(f"{'backbone':14s} features  images/s on {cores()} cores  times efflite0's cost  weights MB")
    reference = 0.0
    for name in ("efflite0", "efflite1", "efflite2"):
        model = load_backbone(name)
        rate = images_per_second(model)
        reference = reference or rate
        size = {"efflite0": 13.5, "efflite1": 16.5, "efflite2": 19.2}[name]
        print(f"{name:14s} {model.dim:8d} {rate:22.1f} {reference / rate:22.1f} {size:11.1f}", flush=True)
    for name, (config, settings) in architectures().items():
        if quick and name == "dinov2-large":
            continue
        with tempfile.TemporaryDirectory() as folder:
            AutoModel.from_config(config).save_pretrained(folder)
            (Path(folder) / "preprocessor_config.json").write_text(json.dumps(settings))
            size = sum(f.stat().st_size for f in Path(folder).glob("*.safetensors")) / 1e6
            model = load_backbone(f"hf:{folder}")
            rate = images_per_second(model)
        print(f"{name:14s} {model.dim:8d} {rate:22.1f} {reference / rate:22.1f} {size:11.1f}", flush=True)


if __name__ == "__main__":
    main()
