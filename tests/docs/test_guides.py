"""The commands of each page, run in the order of the page: exit code 0, and the output that the page shows.

Each page has a folder with the files that it speaks of (`SCENES`), and words that stand for the reader's own are
replaced. A command that is not run has its reason in `NOT_RUN`.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from tests.docs_pages import COMMANDS, ROOT, Command, agrees, fenced, script_names, words_of

from locum.data import load_digit_images, load_sample, split, write_embeddings, write_parquet_stream

# How a command begins, and why it is not run here. Every other one that begins with `locum` or `python` is.
NOT_RUN = {
    "python examples/": "the gallery of the docs build runs every example",
    "locum audit RELEASE --members ... --non-members ... --shadows": "needs a Ray cluster: tests/audit starts one",
    "locum embed digits -o vectors.npz --backbone hf:": "needs a model: tests/embed makes several",
    "locum embed s3://": "needs an object store: tests/embed starts one",
    "locum export release --hub": "needs an account on the hub: tests/release checks what would be sent",
    "locum federate coordinate": "runs until all sites have answered: tests/federated runs whole federations",
    "locum federate join": "needs a coordinator: tests/federated runs whole federations",
    "locum federate predict": "needs a finished federation: tests/federated predicts after one",
    "locum obfuscate fit faces/": "needs pictures of faces: tests/obfuscate fits images",
    "locum obfuscate apply obfuscator faces/": "needs pictures of faces: tests/obfuscate fits images",
    "locum reference make --backbone hf:": "needs a model: tests/embed makes several",
    "locum reference show my-model": "shows the reference of that model",
    "locum study": "reads or writes results of studies: tests/studies runs such studies",
    "locum studio": "serves until it is stopped: tests/studio uses it in a browser",
}


class Scene(NamedTuple):
    """What a page's commands need: files, and what to write in place of words."""

    make: tuple[Callable[[Path, Path], None], ...]
    words: Mapping[str, str] = {}


def tumors(home: Path, data: Path) -> None:
    """Measurements of tumors in three splits, and a release of them with a guarantee."""
    write_parts(home / "tumors.npz", "breast-cancer", {"train": 0.6, "val": 0.2, "test": 0.2})
    locum(home, "fit", "tumors.npz", "-o", "release", "--classes", "malignant,benign")


def enough_for_an_audit(home: Path, data: Path) -> None:
    """The default policy wants hundreds of records on both sides, and no leak: at epsilon 1 there can be one."""
    write_parts(home / "records.npz", "digits", {"train": 0.5, "test": 0.5})
    locum(home, "fit", "records.npz", "-o", "release", "--classes-public", "--epsilon", "0.2")


def write_parts(file: Path, sample: str, shares: dict[str, float]) -> None:
    parts = split(load_sample(sample), shares, rng=np.random.default_rng(0))
    arrays = {"class_names": parts["train"].info.class_names}
    for name, part in parts.items():
        arrays[f"{name}_x"], arrays[f"{name}_y"] = part.X, part.y
    np.savez(file, **arrays)


def no_guarantee(home: Path, data: Path) -> None:
    tumors(home, data)
    locum(home, "fit", "tumors.npz", "-o", "release", "--no-dp", "--force")


def head(home: Path, data: Path) -> None:
    locum(home, "train", "release", "-o", "head.safetensors")


def digits(home: Path, data: Path) -> None:
    sample = load_sample("digits")
    np.savez(home / "digits.npz", x=sample.X, y=sample.y, class_names=sample.info.class_names)


def digit_images(home: Path, data: Path) -> None:
    """Pictures in the folders of their splits and classes."""
    images, labels = load_digit_images()
    for row in range(90):
        folder = home / "digits" / ("train", "val", "test")[row % 3] / str(labels[row])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[row]).save(folder / f"{row}.png")


def scans(home: Path, data: Path) -> None:
    run(home, [sys.executable, str(ROOT / "examples/sample_images.py")])


def two_clinics(home: Path, data: Path) -> None:
    sample = load_sample("breast-cancer")
    for name, rows in (("a", slice(0, 280)), ("b", slice(280, None))):
        np.savez(home / f"{name}.npz", x=sample.X[rows], y=sample.y[rows], class_names=sample.info.class_names)
    np.savez(home / "emb.npz", x=sample.X, y=sample.y, class_names=sample.info.class_names)


def hearts(home: Path, data: Path) -> None:
    """The table of four hospitals, and the diagnosis as yes or no."""
    shutil.copy(data / "heart4.csv", home)
    shutil.copytree(ROOT / "examples", home / "examples")
    with (data / "heart4.csv").open() as f, (home / "heart4_binary.csv").open("w") as out:
        rows = list(csv.reader(f))
        csv.writer(out).writerows([rows[0]] + [[*row[:-1], str(int(row[-1] != "0"))] for row in rows[1:]])


def other_keys(home: Path, data: Path) -> None:
    """The page makes the key of one site; the others send theirs."""
    for name in ("kyiv", "turku"):
        locum(home, "federate", "key", "keys", name)


def adult(home: Path, data: Path) -> None:
    """Some rows of Adult, in its authors' files."""
    (home / "adult").mkdir()
    for name, every in (("adult.data", 3), ("adult.test", 3), ("adult.names", 1)):
        lines = (data / "adult" / name).read_text().splitlines(keepends=True)
        (home / "adult" / name).write_text("".join(lines[::every]))


def vectors(home: Path, data: Path) -> None:
    """A folder of Parquet files, a release of it, and other records."""
    (home / "vectors").mkdir()
    parts = split(load_sample("digits"), {"train": 0.4, "test": 0.2, "other": 0.4}, rng=np.random.default_rng(0))
    write_embeddings(home / "other.parquet", parts.pop("other"))
    for name, part in parts.items():
        with (home / "vectors" / f"{name}.parquet").open("wb") as f:
            write_parquet_stream(f, [part], split=name)
    locum(home, "fit", "vectors", "-o", "release", "--classes-public")


def ranges(home: Path, data: Path) -> None:
    """The table of the page's ranges, as the page has it."""
    text = (ROOT / "docs/guides/differential-privacy.md").read_text(encoding="utf-8")
    (home / "ranges.csv").write_text(next(block for _, block in fenced(text, "text") if block.startswith("name,low")))
    rng = np.random.default_rng(0)
    rows = [f"{rng.integers(18, 98)},{rng.integers(90, 180)},{rng.choice(['no', 'yes'])}" for _ in range(200)]
    (home / "table.csv").write_text("\n".join(["age,systolic,label", *rows]) + "\n")


def demo(home: Path, data: Path) -> None:
    locum(home, "demo")  # in out/demo


# They take longer than 20 s.
SLOW = {"docs/guides/federation.md", "docs/guides/obfuscation.md", "docs/guides/reading-a-report.md"}

SCENES = {
    "README.md": Scene((scans,)),
    "docs/explain/limitations.md": Scene((no_guarantee,)),
    "docs/guides/auditing.md": Scene(
        (enough_for_an_audit,),
        {
            "RELEASE": "release",
            # Which this policy accepts by its proof: attacks on few records are inconclusive now and then.
            "--html audit.html": "--html audit.html --policy internal --ledger LEDGER "
            "--accept 'NAME OF AN ASSUMPTION'",
            "--members ...": "--members records.npz#train",
            "--non-members ...": "--non-members records.npz#test",
            "LEDGER": ".locum/ledger.sqlite",
            "NAME OF AN ASSUMPTION": "given that these class names are public",
            "--refuse": "--refuse --force",  # after the other decision
        },
    ),
    "docs/guides/backbones.md": Scene((digit_images,)),
    "docs/guides/choosing-a-generator.md": Scene((tumors,)),
    "docs/guides/data-formats.md": Scene((vectors,), {"RELEASE": "release", "[100000]": "[300]", "[50000]": "[500]"}),
    "docs/guides/differential-privacy.md": Scene((digits, ranges)),
    "docs/guides/federation.md": Scene((two_clinics, hearts, other_keys)),
    "docs/guides/obfuscation.md": Scene((adult,)),
    "docs/guides/other-languages.md": Scene((tumors, head)),
    "docs/guides/publishing.md": Scene((scans,)),
    "docs/guides/reading-a-report.md": Scene((demo,)),
    "docs/guides/scale.md": Scene((scans,)),
    "docs/guides/subjects-and-splits.md": Scene((tumors,)),
    "docs/reference/cli.md": Scene((tumors,)),
    "docs/reference/head-format.md": Scene((tumors, head)),
}


def locum(home: Path, *words: str) -> None:
    run(home, [sys.executable, "-m", "locum", *words])


def run(home: Path, words: list[str]) -> tuple[str, str]:
    """What a program prints in a folder, without and with its progress. It must succeed."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("LOCUM_")}
    env |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=home, env=env, capture_output=True, text=True, timeout=300)
    # 3: an audit that ran, and a policy that is not met.
    fine = (0, 3) if "audit" in words else (0,)
    assert done.returncode in fine, f"{' '.join(words[1:])}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr + done.stdout


def is_run(shown: Command) -> bool:
    return shown.text.startswith(("locum ", "python ")) and not any(shown.text.startswith(how) for how in NOT_RUN)


TO_RUN = [shown for shown in COMMANDS if is_run(shown)]


def test_each_command_has_a_scene() -> None:
    assert {shown.page for shown in TO_RUN} == set(SCENES)


def test_each_reason_belongs_to_a_command() -> None:
    assert [how for how in NOT_RUN if not any(shown.text.startswith(how) for shown in COMMANDS)] == []


@pytest.mark.parametrize("page", [pytest.param(p, marks=pytest.mark.slow if p in SLOW else ()) for p in SCENES])
def test_the_commands_of_a_page_run(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    scene = SCENES[page]
    real = {hearts, adult} & set(scene.make)
    data = request.getfixturevalue("real_data") if real else Path()
    for make in scene.make:
        make(tmp_path, data)
    scripts = script_names((ROOT / page).read_text(encoding="utf-8"))
    for shown in (shown for shown in TO_RUN if shown.page == page):
        text = shown.text
        for word, stands_for in scene.words.items():
            text = text.replace(word, stands_for)
        words = words_of(text)
        if words[0] == "python":
            (tmp_path / words[1]).write_text(scripts[words[1]], encoding="utf-8")
        start = [sys.executable, "-m", "locum"] if words[0] == "locum" else [sys.executable]
        printed = run(tmp_path, [*start, *words[1:]])
        missing = [agrees(shown.shown, text) for text in printed]
        assert None in missing, f"{shown}\nthe page shows {missing[0]!r}; the program printed:\n{printed[1]}"
