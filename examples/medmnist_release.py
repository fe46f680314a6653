"""From a MedMNIST file to a private release, and on to a receiver who never sees an image.

Give the path of a MedMNIST .npz (https://medmnist.com), or set LOCUM_DATA to a folder that holds breastmnist.npz.
Needs `locum[images]`. The default backbone turns images into vectors; on two cores that takes a minute or so.

    python examples/medmnist_release.py breastmnist.npz
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import locum
from locum.recipes import embed_to_file, fit_release, predict_records, train_head, verify_release

# Labels that can occur, as MedMNIST documents them: public, so they may be declared. Add those of your own file.
CLASSES = {"breastmnist": ("0", "1"), "pneumoniamnist": ("0", "1")}


def holder(images: Path, folder: Path) -> tuple[Path, Path]:
    """Embed the images, fit with differential privacy, and check what would leave."""
    # The ledger and the vectors lie beside the data: work on a copy in a folder of your own.
    data = Path(shutil.copy(images, folder / images.name))
    vectors = folder / f"{data.stem}-vectors.npz"
    embed_to_file(str(data), vectors)
    budget = locum.DP(epsilon=3.0, delta=1e-5)
    made = fit_release(f"{vectors}#train", folder / "release", privacy=budget, classes=CLASSES.get(data.stem))
    print(f"claim      {made.claim.title}")
    print(f"verified   {len(verify_release(made.release).checks)} checks passed")
    return made.release, vectors


def receiver(release: Path, vectors: Path, folder: Path) -> None:
    """Train on the release alone; the test split plays the receiver's own records."""
    X, y = locum.load(release).sample(1000, as_frame=True, random_state=0)
    print(f"sampled    {X.shape[0]} vectors of {X.shape[1]} features, classes {sorted(map(str, set(y)))}")
    head = train_head(release, folder / "head.safetensors").head
    found = predict_records(head, f"{vectors}#test")
    print(f"real test  AUC {found.scores['auc']:.3f} on {found.scored_records} records")


def main(words: list[str]) -> None:
    place = words[0] if words else os.path.join(os.environ.get("LOCUM_DATA", "."), "breastmnist.npz")
    if not Path(place).is_file():
        raise SystemExit(f"There is no {place!r}: give the path of a MedMNIST .npz.")
    with tempfile.TemporaryDirectory() as temporary:
        release, vectors = holder(Path(place), Path(temporary))
        receiver(release, vectors, Path(temporary))


if __name__ == "__main__":
    main(sys.argv[1:])
