"""A folder of images to try Locum on: 720 handwritten digits that ship with scikit-learn.

    python examples/sample_images.py

It writes `scans`, with one folder for each of four classes, and `new-scans`, with 100 images of unknown class: the
folders of the quickstart.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from locum.data import load_digit_images

NEW = 100

images, labels = load_digit_images()
order = np.random.default_rng(0).permutation(np.flatnonzero(labels < 4))
for count, row in enumerate(order):
    folder = Path("new-scans") if count < NEW else Path("scans", f"digit-{labels[row]}")
    folder.mkdir(parents=True, exist_ok=True)
    Image.fromarray(images[row]).save(folder / f"{row:04d}.png")
print(f"scans: {len(order) - NEW} images in 4 classes; new-scans: {NEW} images")
