"""A folder of images becomes a release, and a receiver classifies images with it. Runs in some seconds, offline."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import locum
from locum.data import load_digit_images
from locum.embed import backbone_for, embed_images
from locum.generate import ClassGaussian
from locum.heads import LinearHead


def write_images(folder: Path) -> None:
    """Two digits as image files: folders train and test, each with one folder per class."""
    images, labels = load_digit_images()
    for digit in (3, 8):
        for i, k in enumerate(np.flatnonzero(labels == digit)[:90]):
            place = folder / ("train" if i < 60 else "test") / str(digit)
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images[k]).save(place / f"{i}.png")


with tempfile.TemporaryDirectory() as scratch:
    home = Path(scratch)
    write_images(home / "images")

    # The holder: images to vectors (kept in a private cache beside the folder), vectors to a release.
    with embed_images(home / "images" / "train") as embedded:
        train = embedded.sets()["all"]
    print(f"{len(train)} images became vectors of {train.dim} numbers by {train.info.backbone}")
    ClassGaussian(random_state=0).fit(train.X, train.y).release(train.info, no_dp=True).save(home / "release")

    # The receiver has the release and images of its own, and no image of the holder.
    release = locum.load(home / "release")
    X, y = release.sample(2000, random_state=0)
    head = LinearHead(random_state=0).fit(X, y)
    with embed_images(home / "images" / "test", backbone_for(release.info)) as embedded:
        mine = embedded.sets()["all"]
    right = head.predict(release.transform(mine.X)) == mine.y
    print(f"right on {right.mean():.0%} of {len(mine)} images that were not used for training")
    print(f"the release claims: {release.claim.kind}")
