"""`locum federate` on the command line: simulate, init, predict, and its error messages."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum import EmbeddingSet
from locum.data import split, write_embeddings
from locum.release import load

Run = Callable[..., Any]
BUDGET = ("--epsilon", "2", "--delta", "1e-4", "--n-public", "60", "--classes", "ant,bee,cat")
SMALL = ("--mode", "decoder", "--sites", "2", "--rounds", "1", "--local-epochs", "1", "--batch", "20")


@pytest.mark.usefixtures("hardly_trained_personal_models")
def test_a_simulation_as_json(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    budget = ("--partition", "dirichlet", "--alpha", "5", *SMALL, *BUDGET, "--seed", "1", "--json")
    ran = program("federate", "simulate", "train.npz", *budget, "-o", "out")
    assert ran.code == 0, ran.err
    told = ran.json
    assert len(told["sites"]) == 2
    for site in told["sites"]:
        assert {"name", "n", "epsilon_spent", "lambda", "acc", "bacc"} <= site.keys()
        assert 0 < site["epsilon_spent"] <= 2
        assert 0 <= site["lambda"] <= 1
    assert told["release"] == "out/release"
    assert told["test"] is True
    release = load(tmp_path / "out" / "release")
    assert release.claim.kind == "none"
    assert release.claim.test
    assert program("verify", "out/release").code == 0
    # The simulated sites are deleted, and no ledger was opened.
    assert not list(tmp_path.rglob("site.toml"))
    assert not list(tmp_path.rglob("ledger.sqlite"))


@pytest.mark.usefixtures("hardly_trained_personal_models")
def test_without_a_folder_only_the_figures_are_left(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    words = ("federate", "simulate", "train.npz", "--mode", "sums", "--no-dp", "--sites", "3")
    ran = program(*words, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["release"] is None
    assert [s["epsilon_spent"] for s in ran.json["sites"]] == [None] * 3
    assert program(*words, "--json").out == ran.out
    shown = program(*words)
    assert "guarantees nothing" in shown.out
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--no-dp", "--n-public", "60"), "--no-dp"),
        (("--delta", "2"), "delta"),
        (("--absent", "1"), "absent"),
        (("--colluding", "0"), "colluding"),
        (("--colluding", "2"), "needs 4 or more sites"),
        ((*BUDGET[:4], "--n-public", "60000", *BUDGET[6:]), "n_public"),
        (("--epsilon", "0", *BUDGET[2:]), "epsilon"),
        ((*BUDGET[:7], "ant,bee"), "not among"),
        ((*BUDGET, "--unit", "subject"), "subject"),
        (("--sites", "1"), "two or more sites"),
        (("--sites", "0"), "sites"),
        (("--sites", "100"), "fewer sites"),
        (("--partition", "by-site"), "site"),
        (("--partition", "dirichlet", "--alpha", "-1"), "alpha"),
        (("--rounds", "0"), "rounds"),
        (("--batch", "0"), "batch"),
        (("--secure", "--mode", "decoder"), "secure"),
        (("--sites", "2"), "--mode sums"),
        (("--secure", "--mode", "sums", "--sites", "2"), "needs 3 or more sites"),
        (("--average", "trimmed-mean", "--sites", "2"), "needs 3 or more sites"),
        (("--seed", "-1"), "seed"),
        (("-o", "train.npz"), "train.npz"),
        (("-o", "."), "not an empty folder"),
    ],
    ids=str,
)
def test_wrong_input_is_one_sentence_and_writes_nothing(
    words: tuple[str, ...], told: str, program: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    out = () if "-o" in words else ("-o", "out")
    ran = program("federate", "simulate", "train.npz", "--sites", "3", "--rounds", "1", *out, *words)
    assert ran.code == 2, ran.out + ran.err
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    "verb", ["init", "certificates", "key", "pin", "coordinate", "join", "simulate", "merge", "predict"]
)
def test_every_verb_explains_itself(verb: str, program: Run) -> None:
    ran = program("federate", verb, "--help")
    assert ran.code == 0
    assert "--json" in ran.out
    assert verb in program("federate", "--help").out


def test_begin_a_federation(program: Run, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    words = (
        "--classes",
        "ant,bee",
        "--dim",
        "8",
        "--backbone",
        "own",
        "--site",
        "north",
        "--site",
        "south",
        "--site",
        "east",
        "--json",
    )
    other = program("federate", "init", "app", "--classes", "ant,bee", "--dim", "8")
    assert other.code == 2
    assert "'efflite0' have 1280 features" in other.err
    begun = program("federate", "init", "app", *words)
    assert begun.code == 0, begun.err
    assert begun.json["sites"] == ["north", "south", "east"]
    assert all((tmp_path / f).is_file() for f in begun.json["files"])
    again = program("federate", "init", "app", *words)
    assert again.code == 2
    assert "app" in again.err
    made = program("federate", "certificates", "keys", "--host", "localhost", "--site", "north", "--json")
    assert made.code == 0, made.err
    own = program("federate", "key", "own", "south", "--json")
    assert own.code == 0, own.err
    few = program("federate", "pin", "app/federation.toml", "--keys", "keys")
    assert few.code == 2
    assert "sites" in few.err
    assert (
        program("federate", "certificates", "all", "--site", "north", "--site", "south", "--site", "east").code == 0
    )
    pinned = program("federate", "pin", "app/federation.toml", "--keys", "all", "--json")
    assert pinned.code == 0, pinned.err
    assert pinned.json == program("federate", "pin", "app/federation.toml", "--json").json
    assert pinned.json.keys() == {"north", "south", "east"}
    private = [f for d in ("keys", "own") for f in (tmp_path / d).iterdir() if f.suffix == ".key"]
    assert len(private) >= 3
    assert {stat.S_IMODE(f.stat().st_mode) for f in private} == {0o600}
    kept = {f: f.read_bytes() for f in private}
    for words in (("certificates", "keys", "--site", "north"), ("key", "own", "south")):
        assert program("federate", *words).code == 2
    assert {f: f.read_bytes() for f in private} == kept


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--classes", "ant"), "two classes"),
        (("--classes", "ant,ant"), "each once"),
        (("--classes", "ant,bee", "--dim", "0"), "dim"),
        (("--classes", "ant,bee", "--secure", "--mode", "decoder"), "secure"),
        (("--classes", "ant,bee", "--epsilon", "0"), "epsilon"),
        (("--classes", "ant,bee", "--site", "a", "--site", "a"), "each once"),
        (("--classes", "ant,bee", "--site", "../a", "--site", "b"), "name"),
    ],
    ids=str,
)
def test_a_wrong_beginning_writes_nothing(words: tuple[str, ...], told: str, program: Run, tmp_path: Path) -> None:
    ran = program("federate", "init", "app", *words)
    assert ran.code == 2, ran.out
    assert told in ran.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", [".", "/", "release", "release/keys"])
@pytest.mark.parametrize(
    "words",
    [("certificates", "PLACE", "--site", "north"), ("key", "PLACE", "north"), ("init", "PLACE", "--classes", "a,b")],
    ids=lambda words: words[0],
)
def test_keys_stay_out_of_releases_and_of_folders_that_hold_other_things(
    words: tuple[str, ...], place: str, program: Run, tmp_path: Path
) -> None:
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "manifest.json").write_text("{}")
    before = [sorted(tmp_path.rglob("*")), sorted(Path("/").iterdir())]
    ran = program("federate", *(place if word == "PLACE" else word for word in words))
    assert ran.code == 2, ran.out
    assert ran.err.count("\n") == 1
    assert "made to be sent" in ran.err if "release" in place else "need their own folder" in ran.err
    assert [sorted(tmp_path.rglob("*")), sorted(Path("/").iterdir())] == before


SITES = ("--site", "a", "--site", "b", "--site", "c")
COORDINATE = ("coordinate", "study/federation.toml", "--keys", "keys")
JOIN = (
    "join",
    "study/site.example.toml",
    "--coordinator",
    "localhost:1",
    "--ca",
    "keys/ca.crt",
    "--key",
    "keys/a.key",
)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("coordinate", "nowhere.toml", "--keys", "keys"), "nowhere.toml"),
        (("coordinate", "keys/ca.crt", "--keys", "keys"), "TOML"),
        (("coordinate", "study/federation.toml"), "--keys"),
        ((*COORDINATE[:3], "study"), "0 have a key"),
        ((*COORDINATE, "--listen", "everywhere"), "everywhere"),
        ((*COORDINATE, "--port", "0"), "port"),
        ((*COORDINATE, "--sites", "9"), "9 sites"),
        ((*COORDINATE, "--wait", "-1"), "wait"),
        ((*COORDINATE, "-o", "keys/ca.crt"), "new folder"),
        ((*COORDINATE, "--wait", "0", "--port", "PORT"), "sites are connected"),
        ((*JOIN[:3], "localhost", *JOIN[4:]), "HOST:PORT"),
        ((*JOIN[:5], "keys/a.pub", *JOIN[6:]), "authority"),
        ((*JOIN[:7], "keys/ca.crt"), "keys/ca.crt"),
        ((*JOIN[:1], "study/federation.toml", *JOIN[2:]), "site file"),
        (JOIN[:7], "--key"),
    ],
    ids=str,
)
def test_wrong_words_for_a_live_run_are_one_sentence(
    words: tuple[str, ...], told: str, program: Run, tmp_path: Path
) -> None:
    pytest.importorskip("flwr")
    assert program("federate", "init", "study", "--classes", "a,b", *SITES).code == 0
    assert program("federate", "certificates", "keys", *SITES).code == 0
    before = sorted(tmp_path.rglob("*"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ran = program("federate", *(port if word == "PORT" else word for word in words))
    assert ran.code in (2, 3), ran.out + ran.err
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert sorted(tmp_path.rglob("*")) == before


def test_releases_of_sites_are_merged(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.npz").write_bytes(files[name].read_bytes())
        budget = ("--epsilon", "2", "--delta", "1e-4", "--n-public", "100", "--classes", "ant,bee,cat")
        fitted = program("fit", f"{name}/data.npz", "-o", f"r-{name}", *budget, "--generator", "gaussian")
        assert fitted.code == 0, fitted.err
    ran = program("federate", "merge", "r-train", "r-test", "-o", "all", "--max-sites-per-subject", "1", "--json")
    assert ran.code == 0, ran.err
    claim = load(tmp_path / "all").claim
    assert claim.dp is not None
    assert claim.dp.epsilon <= 2
    for words in (("r-train",), ("r-train", "r-train"), ("r-train", "nowhere"), ("r-train", "r-test")):
        wrong = program("federate", "merge", *words, "-o", "all" if "r-test" in words else "none")
        assert wrong.code == 2, words
        assert "Traceback" not in wrong.err
    assert not (tmp_path / "none").exists()


def test_a_site_predicts_with_its_personal_model(program: Run, blob_set: EmbeddingSet, tmp_path: Path) -> None:
    """Two sites that pay, a real run between them, then the program at one of them."""
    from locum.federated import Coordinator, FederationSettings, LocalChannel

    parts = split(blob_set, {"train": 0.4, "val": 0.4, "test": 0.2}, rng=np.random.default_rng(0))
    write_embeddings(tmp_path / "new.npz", parts["test"])
    sites = {}
    for name in ("train", "val"):
        home = tmp_path / name
        home.mkdir()
        write_embeddings(home / "records.npz", parts[name])
        (home / "site.toml").write_text('data = "records.npz"\nepsilon = 5\ndelta = 1e-4\nn_public = 100\n')
        sites[name] = home / "site.toml"
    early = program("federate", "predict", "train/site.toml", "new.npz")
    assert early.code == 2
    assert "take part in a federation first" in early.err
    settings = FederationSettings(("ant", "bee", "cat"), dim=8, mode="sums")
    for name in sites:
        (tmp_path / name / "federation.toml").write_text(settings.to_toml())
    Coordinator(settings, tmp_path / "out").run(LocalChannel(sites))

    ran = program("federate", "predict", "train/site.toml", "new.npz", "--json")
    assert ran.code == 0, ran.err
    told = ran.json
    assert told["records"] == len(told["predictions"]) == len(parts["test"])
    guess = np.array([p["label"] for p in told["predictions"]])
    assert (guess == parts["test"].labels).mean() > 0.8

    ran = program("federate", "predict", "train/site.toml", "new.npz", "-o", "p.csv")
    assert ran.code == 0, ran.err
    assert stat.S_IMODE((tmp_path / "p.csv").stat().st_mode) == 0o600
    again = program("federate", "predict", "train/site.toml", "new.npz", "-o", "p.csv")
    assert again.code == 2
    assert "already exists" in again.err
    for words, told in (
        (("nowhere.toml", "new.npz"), "nowhere.toml"),
        (("train/site.toml", "nowhere.npz"), "nowhere.npz"),
        (("new.npz", "new.npz"), "TOML"),
    ):
        wrong = program("federate", "predict", *words)
        assert wrong.code == 2
        assert told in wrong.err
    left = program("ledger", "show", "--ledger", "train/.locum/ledger.sqlite", "--json")
    assert left.code == 0, left.err
    assert "federation" in json.dumps(left.json)
