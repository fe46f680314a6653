"""Makes the files that studies read from public originals, into the folder that LOCUM_DATA will name.

    locum data fetch adult --from examples/data_sources.toml -o originals
    python scripts/make_study_data.py adult --originals originals -o data

`studies/data.toml` describes the files. At the end each one is compared with it.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.data import long_tail_counts, read_splits
from locum.embed import ImageSource, open_images
from locum.errors import ConfigError, DataError, LocumError
from locum.io import write_atomically, write_bytes
from locum.recipes import check_data, embed_to_file

STUDIES = Path(__file__).resolve().parents[1] / "studies"
HELP = """\
meant to be exact (what is made is compared with studies/data.toml; tried on archives that were packed again from the
studies' files, not on downloads):
  adult           from adult.zip: UCI's files, unpacked
  diabetes130     from diabetes130.zip: diabetic_data.csv compressed with gzip; the bytes of the .gz may differ,
                  what is inside may not
  heart4          from heart-disease.zip: the four processed files in one table
  breastmnist     from MedMNIST's breastmnist.npz: labels as one number per image

not exact (the same kind of data, but not the same bytes: figures of studies will differ a little):
  pneumoniamnist  from MedMNIST's pneumoniamnist.npz; the file of the studies was rebuilt from two copies of it
  cifar10_12k     from cifar-10-binary.tar.gz: as many images per class, drawn with --seed; others than the studies'
  cifar10lt       from cifar-10-binary.tar.gz: CIFAR-10 LT (imbalance 100) and 300 test images per class, drawn with
                  --seed, and written as embeddings (cifar10lt_efflite0.npz)
  nih_cxr14       from a folder of ChestX-ray14 (Data_Entry_2017.csv, images_001): images that are there, 64 px;
                  patients are split 70/10/20 with --seed, and resizing is Pillow's
  NAME_efflite0   from NAME.npz in the output folder: embeddings by `locum embed`, equal up to float16 rounding and
                  the processor
"""
HEART = "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num".split()  # noqa: SIM905
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
FINDINGS = (
    "Atelectasis", "Cardiomegaly", "Effusion", "Infiltration", "Mass", "Nodule", "Pneumonia", "Pneumothorax",
    "Consolidation", "Edema", "Emphysema", "Fibrosis", "Pleural_Thickening", "Hernia",
)  # fmt: skip
SHARES = (0.7, 0.1, 0.2)
# Of CIFAR-10 LT: images of the first class, imbalance, and test images per class.
LARGEST, RATIO, TEST_IMAGES = 5000, 100, 300

Array = npt.NDArray[Any]


def make_adult(originals: Path, out: Path, seed: int) -> None:
    """UCI's three files, as they are."""
    (out / "adult").mkdir(exist_ok=True)
    for name in ("adult.data", "adult.test", "adult.names"):
        write_bytes(out / "adult" / name, unzipped(originals / "adult.zip", name), mode=0o644)


def make_diabetes(originals: Path, out: Path, seed: int) -> None:
    """The table, compressed, and the meaning of its codes."""
    (out / "diabetes130").mkdir(exist_ok=True)
    archive = originals / "diabetes130.zip"
    table = gzip.compress(unzipped(archive, "diabetic_data.csv"), mtime=0)
    write_bytes(out / "diabetes130" / "diabetic_data.csv.gz", table, mode=0o644)
    write_bytes(out / "diabetes130" / "IDs_mapping.csv", unzipped(archive, "IDs_mapping.csv"), mode=0o644)


def make_heart(originals: Path, out: Path, seed: int) -> None:
    """Four hospitals in one table; '?' becomes empty, and 63.0 becomes 63."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\r\n")
    table.writerow(["site", *HEART])
    for site in HOSPITALS:
        raw = unzipped(originals / "heart-disease.zip", f"processed.{site}.data").decode("ascii")
        for line in filter(None, map(str.strip, raw.splitlines())):
            cells = line.split(",")
            if len(cells) != len(HEART):
                raise DataError(f"A row of {site} has {len(cells)} fields where {len(HEART)} are expected.")
            table.writerow([site, *("" if cell == "?" else f"{float(cell):g}" for cell in cells)])
    write_bytes(out / "heart4.csv", text.getvalue().encode(), mode=0o644)


def make_medmnist(name: str, flat: bool) -> Callable[[Path, Path, int], None]:
    """MedMNIST's arrays; with `flat`, labels as one number per image."""

    def make(originals: Path, out: Path, seed: int) -> None:
        with np.load(given(originals / f"{name}.npz"), allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in arrays.files}
        save(
            out / f"{name}.npz", {k: v.reshape(-1) if flat and k.endswith("_labels") else v for k, v in found.items()}
        )

    return make


def make_cifar(originals: Path, out: Path, seed: int) -> None:
    """A thousand training and 200 test images per class."""
    with cifar(originals) as source:
        save(out / "cifar10_12k.npz", drawn(source, {"train": [1000] * 10, "test": [200] * 10}, seed))


def make_long_tail(originals: Path, out: Path, seed: int) -> None:
    """Embeddings of CIFAR-10 LT, imbalance 100, and of 300 test images per class."""
    with cifar(originals) as source, tempfile.TemporaryDirectory(dir=out) as folder:
        images = Path(folder) / "cifar10lt.npz"
        sizes = {"train": long_tail_counts(LARGEST, 10, ratio=RATIO), "test": [TEST_IMAGES] * 10}
        save(images, drawn(source, sizes, seed))
        embed(images, out / "cifar10lt_efflite0.npz")


def make_xrays(originals: Path, out: Path, seed: int) -> None:
    """Chest X-rays of 64 px with sex as the label, patients as subjects, split by patient; and their findings."""
    folder = next((f for f in (originals, originals / "nih_cxr14") if any(f.glob("Data_Entry_2017*.csv"))), originals)
    source = open_images(folder)
    names = source.attribute_names
    # Rows whose image is in an archive that was not unpacked have no file.
    there = [i for i, item in enumerate(source.items) if (folder / item.name).is_file()]
    patients = np.array(sorted({int(source.items[i].subject or 0) for i in there}))
    order = np.random.default_rng(seed).permutation(patients)
    cuts = np.round(np.cumsum(SHARES)[:2] * len(order)).astype(int)
    images: dict[str, Array] = {"class_names": np.array(["F", "M"])}
    findings: dict[str, Array] = {"names": np.array(FINDINGS)}
    for split, part in zip(("train", "val", "test"), np.split(order, cuts), strict=True):
        chosen = set(part.tolist())
        rows = [i for i in there if int(source.items[i].subject or 0) in chosen]
        facts = [dict(zip(names, source.items[i].attributes, strict=True)) for i in rows]
        pixels = [source.decode(source.read(i), None).convert("L").resize((64, 64), resample=3) for i in rows]
        images[f"{split}_images"] = np.array([np.asarray(p) for p in pixels], dtype=np.uint8).reshape(-1, 64, 64)
        images[f"{split}_labels"] = np.array([("F", "M").index(f["sex"]) for f in facts], dtype=np.int64)
        images[f"{split}_subject"] = np.array([source.items[i].subject for i in rows], dtype=np.str_)
        for name in ("view", "age", "effusion"):
            images[f"{split}_attr_{name}"] = np.array([f[name] for f in facts], dtype=np.str_)
        table = [[f[name.lower()] == "yes" for name in FINDINGS] for f in facts]
        findings[f"{split}_findings"] = np.array(table, dtype=np.uint8).reshape(-1, len(FINDINGS))
    save(out / "nih_cxr14.npz", images)
    save(out / "nih_cxr14_findings.npz", findings)


def make_embeddings(name: str) -> Callable[[Path, Path, int], None]:
    """Embeddings of a set that was made before."""

    def make(originals: Path, out: Path, seed: int) -> None:
        embed(given(out / f"{name}.npz"), out / f"{name}_efflite0.npz")

    return make


MAKERS: dict[str, Callable[[Path, Path, int], None]] = {
    "adult": make_adult,
    "diabetes130": make_diabetes,
    "heart4": make_heart,
    "breastmnist": make_medmnist("breastmnist", flat=True),
    "pneumoniamnist": make_medmnist("pneumoniamnist", flat=False),
    "cifar10_12k": make_cifar,
    "cifar10lt": make_long_tail,
    "nih_cxr14": make_xrays,
    **{f"{n}_efflite0": make_embeddings(n) for n in ("breastmnist", "pneumoniamnist", "cifar10_12k", "nih_cxr14")},
}
# What a maker writes, where it is not the set of its name alone.
WRITTEN = {"cifar10lt": ("cifar10lt_efflite0",), "nih_cxr14": ("nih_cxr14", "nih_cxr14_findings")}


def given(file: Path) -> Path:
    """An original that must be there."""
    if not file.is_file():
        raise ConfigError(f"There is no file {str(file)!r}: fetch or make it first (see --help).")
    return file


def unzipped(archive: Path, name: str) -> bytes:
    """One member of a .zip, in any folder of it; case does not matter."""
    with zipfile.ZipFile(given(archive)) as members:
        found = [m for m in members.namelist() if PurePosixPath(m).name.lower() == name.lower()]
        if len(found) != 1:
            raise DataError(f"{str(archive)!r} must hold one file {name}; it holds {len(found)}.")
        return members.read(found[0])


@contextmanager
def cifar(originals: Path) -> Iterator[ImageSource]:
    """CIFAR-10's binary version, unpacked or not."""
    folder = originals / "cifar-10-batches-bin"
    if folder.is_dir():
        yield open_images(folder)
        return
    with (
        tarfile.open(given(originals / "cifar-10-binary.tar.gz")) as archive,
        tempfile.TemporaryDirectory() as temporary,
    ):
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None and PurePosixPath(member.name).suffix in (".bin", ".txt"):
                Path(temporary, PurePosixPath(member.name).name).write_bytes(stream.read())
        yield open_images(temporary)


def drawn(source: ImageSource, sizes: dict[str, Sequence[int]], seed: int) -> dict[str, Array]:
    """So many images of each class and split, in the order of classes."""
    rng, out = np.random.default_rng(seed), {}
    for split, counts in sizes.items():
        rows: list[int] = []
        for label, count in zip(source.class_names, counts, strict=True):
            found = [i for i, item in enumerate(source.items) if (item.split, item.label) == (split, label)]
            if len(found) < count:
                raise DataError(f"There are {len(found)} {split} images of {label} where {count} are needed.")
            rows += sorted(rng.permutation(found)[:count].tolist())
        out[f"{split}_images"] = np.stack([np.asarray(source.decode(source.read(i), None)) for i in rows])
        labels = [source.class_names.index(source.items[i].label or "") for i in rows]
        out[f"{split}_labels"] = np.array(labels, dtype=np.uint8)
    return out


def embed(images: Path, target: Path) -> None:
    """Vectors as float16, with labels, subjects and attributes."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        embed_to_file(str(images), Path(folder) / "vectors.npz", cache=False)
        arrays: dict[str, Array] = {}
        for split, part in read_splits(Path(folder) / "vectors.npz").items():
            arrays[f"{split}_x"] = part.X.astype(np.float16)
            arrays[f"{split}_y"] = part.y.astype(np.int16)
            if part.subject is not None:
                arrays[f"{split}_subject"] = part.subject
            arrays |= {f"{split}_attr_{name}": values for name, values in part.attributes.items()}
            # Numbers as names say nothing that the codes do not.
            if not all(name.isdecimal() for name in part.info.class_names):
                arrays["class_names"] = np.array(part.info.class_names)
        save(target, arrays)


def save(file: Path, arrays: dict[str, Array]) -> None:
    """An .npz, complete or not there."""
    # Loosely typed, because NumPy's own options share the names of arrays.
    named: dict[str, Any] = arrays
    write_atomically(file, lambda stream: np.savez_compressed(stream, **named), mode=0o644)


def main(words: Sequence[str] | None = None) -> int:
    """Make one set, and compare it with the manifest; 0 also where it differs."""
    parser = argparse.ArgumentParser(
        description="Make a data set of the studies from public originals (`locum data fetch`).",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=sorted(MAKERS), metavar="NAME", help="one of those below")
    parser.add_argument(
        "--originals", type=Path, default=Path("originals"), help="folder of the originals (originals)"
    )
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of the data, later LOCUM_DATA")
    parser.add_argument("--seed", type=int, default=0, help="which records are drawn (0)")
    chosen = parser.parse_args(words)
    try:
        chosen.out.mkdir(parents=True, exist_ok=True)
        MAKERS[chosen.name](chosen.originals, chosen.out, chosen.seed)
        for file in check_data(WRITTEN.get(chosen.name, (chosen.name,)), STUDIES, chosen.out):
            print(file.sentence)
    except (LocumError, OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
