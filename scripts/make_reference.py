"""Draws images by program and writes a backbone's public statistics from them.

    python scripts/make_reference.py efflite0

Leaves, waves, clouds and blobs in colour and grey, large and small: no photograph, no person, no licence. The
directions and variances of their vectors are what `locum.data.reference` ships.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

import locum.embed
from locum.data import Reference
from locum.embed import Backbone, load_backbone

SIDE, IMAGES = 96, 3000


def draw(rng: np.random.Generator) -> Image.Image:
    """One image of four kinds, sometimes blurred, sometimes small, half of them grey."""
    kind, grey = rng.integers(4), rng.random() < 0.5
    image = _leaves(rng) if kind == 0 else _field(rng, int(kind))
    if rng.random() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.5, 3)))
    if rng.random() < 0.4:
        image = image.resize((28, 28)) if rng.random() < 0.5 else image.resize((32, 32))
    return image.convert("L") if grey else image


def _leaves(rng: np.random.Generator) -> Image.Image:
    """Shapes that cover each other, small ones often and large ones seldom."""

    def colour() -> tuple[int, ...]:
        return tuple(rng.integers(0, 256, 3).tolist())

    image = Image.new("RGB", (SIDE, SIDE), colour())
    pen = ImageDraw.Draw(image)
    for _ in range(rng.integers(5, 120)):
        r = SIDE * 0.5 * rng.random() ** 2 + 1
        x, y = rng.random(2) * SIDE
        fill, shape = colour(), rng.integers(3)
        if shape == 0:
            pen.ellipse((x - r, y - r * rng.uniform(0.3, 1), x + r, y + r * rng.uniform(0.3, 1)), fill=fill)
        elif shape == 1:
            pen.rectangle((x - r, y - r * 0.5, x + r, y + r * 0.5), fill=fill)
        else:
            pen.polygon([tuple(rng.random(2) * SIDE) for _ in range(3)], fill=fill)
    return image


def _field(rng: np.random.Generator, kind: int) -> Image.Image:
    """Clouds whose roughness varies; with waves (2), or with blobs on a slope (3)."""
    f = np.fft.fftfreq(SIDE)
    k = np.hypot(f[:, None], f[None])
    k[0, 0] = 1 / SIDE
    power = rng.uniform(0.5, 3) / 2
    planes = [np.fft.ifft2(np.fft.fft2(rng.normal(size=(SIDE, SIDE))) / k**power).real for _ in range(3)]
    a = np.stack(planes, -1) @ rng.normal(size=(3, 3))
    if kind == 2:
        angle, waves = rng.uniform(0, np.pi), rng.uniform(2, 20)
        along = np.cos(angle) * np.arange(SIDE)[:, None] + np.sin(angle) * np.arange(SIDE)[None]
        wave = np.sin(2 * np.pi * waves * along / SIDE)
        a = a / a.std() * rng.uniform(0, 1) + wave[..., None] * rng.normal(size=3)
    if kind == 3:
        y, x = np.mgrid[:SIDE, :SIDE] / SIDE
        slope = (x * rng.normal() + y * rng.normal())[..., None]
        a = a / a.std() * rng.uniform(0, 0.6) + slope * rng.normal(size=3)
        for _ in range(rng.integers(1, 6)):
            cx, cy = rng.random(2)
            s = rng.uniform(0.03, 0.3)
            blob = np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 2 / s**2)
            a = a + blob[..., None] * rng.normal(size=3) * 2
    low, high = np.quantile(a, [0.01, 0.99])
    return Image.fromarray((255 * np.clip((a - low) / (high - low + 1e-9), 0, 1)).astype(np.uint8))


def vectors(model: Backbone, seed: int = 0) -> np.ndarray:
    """What the backbone makes of the images."""
    rng = np.random.default_rng(seed)
    parts = []
    for _ in range(0, IMAGES, 8):
        parts.append(model.run(np.stack([model.preprocessing.apply(draw(rng)) for _ in range(8)])))
    return np.concatenate(parts).astype(np.float64)


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backbone", nargs="?", default="efflite0")
    name = parser.parse_args().backbone
    file = Path(locum.embed.__file__).parent / "references" / f"{name}.safetensors"
    source = f"{IMAGES} images drawn by scripts/make_reference.py"
    Reference.from_vectors(vectors(load_backbone(name)), source=source).save(file)
    print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
