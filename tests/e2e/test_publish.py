"""`locum publish` as people start it: exit codes, JSON, and a folder of mixed images."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.publish_policies import NEVER, PROVEN

from locum import EmbeddingSet
from locum.data import write_embeddings

Run = Callable[..., Any]


def test_exit_codes_and_words(program: Run, tmp_path: Path) -> None:
    y = np.arange(300) % 2
    X = np.random.default_rng(0).normal(size=(300, 6)) + 2 * y[:, None]
    data = tmp_path / "d.npz"
    write_embeddings(data, EmbeddingSet.from_arrays(X, np.array(["benign", "malignant"])[y]))
    (tmp_path / "never.toml").write_text(NEVER)
    asked = ("publish", data, "-o", "out", "--key", "holder.pem", "--minutes", "0.01")
    missing = program(*asked, "--classes-public")
    assert missing.code == 2
    assert "locum keygen" in missing.err
    assert program("keygen", "holder.pem").code == 0
    private = program(*asked)
    assert private.code == 2
    assert "--classes-public" in private.err
    assert not (tmp_path / "out").exists()
    refused = program(*asked, "--classes-public", "--policy", "never.toml")
    assert refused.code == 3
    assert "Not published: the policy is not met." in refused.out
    assert "policy      never: NOT met" in refused.out
    # A policy is not chosen by its result: what would change the result is said instead.
    assert "--policy" not in refused.out
    assert "more records" in refused.out
    assert "A policy is chosen before the result is known" in refused.out
    assert not (tmp_path / "out" / "release").exists()
    (tmp_path / "proven.toml").write_text(PROVEN)
    asked += ("--policy", "proven.toml")
    made = program(*asked, "--classes-public", "--json")
    assert made.code == 0
    assert made.json["published"]
    assert made.json["earlier"] == ["split", "fit", "audit"]
    again = program(*asked, "--classes-public")
    assert again.code == 0
    assert "a person decides whether it leaves" in " ".join(again.out.split())
    assert "may leave" not in again.out
    command = next(step["type"] for step in made.json["next"] if step["type"].startswith("locum decide"))
    assert command.split()[:3] == ["locum", "decide", "out/release"]
    assert command in " ".join(again.out.split())
    assert "with `locum verify release --key KEY.pub`" in again.out
    other = program(*asked, "--classes-public", "--epsilon", "0.5")
    assert other.code == 2
    assert "was begun with epsilon 1.0" in other.err
    checked = program("verify", "out/release", "--key", "holder.pem.pub", "--ledger", ".locum/ledger.sqlite")
    assert checked.code == 0
    # As printed, with what only a person can fill in; the passport files of `publish` need no --force.
    words = shlex.split(command)[1:]
    typed = {"CHECKS": "projects,people,settings,data,outputs", "NAME": "R. Okafor", "TEXT": "case 17"}
    decided = program(*(typed.get(word, word) for word in words))
    assert decided.code == 0, decided.err
    told = program("report", "out/release", "--audit", "out/internal/audit.json", "-o", "told.md", "--map", "pca")
    assert told.code == 0, told.err
    page = (tmp_path / "told.md").read_text()
    assert "has to decide" not in page
    assert page.count("pproved by the holder on") == 2
    after = program(*asked, "--classes-public")
    assert after.code == 0, after.err
    assert "it was approved by the holder on" in " ".join(after.out.split())
    assert "locum decide" not in after.out


@pytest.mark.slow
def test_a_folder_of_mixed_images(locum: Run, tmp_path: Path) -> None:
    """Mixed sizes and modes, copies within and across splits, a file that is no image, and a brighter test split.

    A fifth of 120 records is held out: too few for an attack that the default policy requires, so that one refuses.
    """
    from PIL import Image

    rng = np.random.default_rng(0)
    for split, count, bright in (("train", 60, 0), ("test", 15, 90)):
        for label, low in (("light", 60), ("dark", 0)):
            folder = tmp_path / "scans" / split / label
            folder.mkdir(parents=True)
            for i in range(count):
                size = (24, 30, 48)[i % 3]
                pixels = rng.integers(low, low + 90, (size, size + 6, 3)) + bright
                image = Image.fromarray(pixels.astype(np.uint8))
                image = image.convert("L") if i % 4 == 0 else image
                image.save(folder / f"{i}.{'jpg' if i % 2 else 'png'}")
    scans = tmp_path / "scans"
    for i in range(1, 7):
        ending = "jpg" if i % 2 else "png"
        shutil.copy(scans / f"train/light/{i}.{ending}", scans / f"train/light/copy-{i}.{ending}")
        shutil.copy(scans / f"train/dark/{i}.{ending}", scans / f"test/dark/copy-{i}.{ending}")
    (scans / "train" / "dark" / "broken.jpg").write_bytes(b"\xff\xd8\xff not an image")
    (scans / "train" / "dark" / "notes.txt").write_text("camera 2")
    assert locum("keygen", "holder.pem").code == 0
    asked = ("publish", "scans", "-o", "out", "--key", "holder.pem", "--classes-public", "--minutes", "0.1", "--json")
    # The usual policy needs 40 records that were held out.
    few = locum(*asked, timeout=600)
    assert few.code == 2
    assert "closest record: it needs at least 40 non-members" in few.err
    assert not (tmp_path / "out").exists()
    # A policy that noise cannot fail.
    (tmp_path / "proven.toml").write_text(PROVEN)
    asked += ("--holdout", "0.5", "--policy", "proven.toml")
    made = locum(*asked, timeout=600)
    assert made.code == 0, made.err
    assert made.json["published"]
    records = made.json["records"]
    assert records["skipped"] == 1
    assert (records["ignored"], records["ignored_kinds"]) == (1, [".txt"])
    assert "1 file that is not an image (.txt) was ignored." in made.json["story"]
    page = (tmp_path / "out" / "internal" / "summary.html").read_text()
    assert '<a href="audit.html">' in page
    # One color for one result, whichever page shows it.
    tone = f'<div class="verdict {made.json["audit"]["tone"]}">'
    assert tone in page
    assert tone in (tmp_path / "out" / "internal" / "audit.html").read_text()
    assert records["copies"] == 6
    assert records["used"] + records["held_out"] == 120
    assert records["not_used"] == {"test": 36}
    assert "broken.jpg" in (tmp_path / "out" / "internal" / "vectors.skipped.csv").read_text()
    assert "broken" not in made.err + made.out
