"""Data at addresses: an object store that fails now and then, and a web server. What is there is what is here."""

from __future__ import annotations

import functools
import gzip
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.object_store import Store, flaky_proxy, object_store

from locum import load
from locum.accounting import Ledger
from locum.cli.main import main
from locum.data import open_batches, read_embeddings, write_embeddings
from locum.errors import DataError, PrivacyError
from locum.recipes import evaluate_release, fit_release
from locum.types import DP, EmbeddingSet


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("vectors")
    y = rng.integers(0, 2, 3000)
    data = EmbeddingSet.from_arrays(rng.normal(size=(3000, 8)) + y[:, None], y, subject=rng.integers(0, 700, 3000))
    for k in range(6):
        write_embeddings(folder / f"{k}.parquet", data.take(range(500 * k, 500 * (k + 1))))
    write_embeddings(folder / "_table.csv", data)
    return folder


@pytest.fixture(scope="module")
def address(store: Store, local: Path) -> str:
    place = f"{store.bucket()}/vectors"
    store.upload(local, place)
    return place


def _same(one: EmbeddingSet, two: EmbeddingSet) -> None:
    np.testing.assert_array_equal(one.X, two.X)
    np.testing.assert_array_equal(one.y, two.y)
    assert one.info.class_names == two.info.class_names


def test_reading_from_a_store(store: Store, local: Path, address: str) -> None:
    _same(read_embeddings(address), read_embeddings(local))
    _same(read_embeddings(f"{address}/3.parquet"), read_embeddings(local / "3.parquet"))
    _same(read_embeddings(f"{address}/_table.csv"), read_embeddings(local / "_table.csv"))
    assert len(read_embeddings(f"{address}#[100]")) == 100
    with pytest.raises(DataError, match="nothing at"):
        read_embeddings(f"{address}/none.parquet")
    with pytest.raises(DataError, match="Parquet files at its top level"):
        read_embeddings(f"{address.removesuffix('/vectors')}/elsewhere")


def test_a_store_that_fails_now_and_then(store: Store, local: Path, address: str) -> None:
    with flaky_proxy(store, fail=0.2, delay=0.1) as proxy:
        _same(read_embeddings(address), read_embeddings(local))
    assert proxy.failed > 0


@pytest.mark.parametrize("unit", ["record", "subject"])
def test_a_private_fit_needs_a_ledger_that_everybody_shares(
    store: Store, local: Path, address: str, tmp_path: Path, unit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing may be written where the program happens to run.
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    given: dict[str, Any] = {"privacy": DP(0.5, 1e-6, unit=unit), "classes_public": True}
    if unit == "record":
        # One pass: with subjects, further passes read the sorted copy.
        given["settings"] = {"mechanism": "means"}
    with pytest.raises(PrivacyError, match="--ledger"):
        fit_release(address, tmp_path / "refused", **given)
    ledger = tmp_path / "shared" / "ledger.sqlite"
    with flaky_proxy(store, fail=0.05, delay=0.05):
        summary = fit_release(address, tmp_path / "release", ledger=ledger, **given)
    assert summary.records == 3000
    assert len(Ledger(ledger).holdings()["default"].charges) == 1
    assert not list(work.iterdir())
    assert sorted(p.name for p in ledger.parent.iterdir() if "ledger" not in p.name) == []
    found = evaluate_release(summary.release, test=address, seeds=1)
    here = evaluate_release(summary.release, test=str(local), seeds=1)
    assert found.rows[0].scores == here.rows[0].scores
    assert load(summary.release).claim.unit == unit


def test_the_program_in_a_terminal(
    store: Store, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["fit", address, "-o", "release", "--classes-public"]
    monkeypatch.chdir(tmp_path)
    # What is refused is refused in this process too, without the time of a start.
    for refused, reason in (
        (words, "--ledger"),
        (["fit", "nowhere://x/y", "-o", "other", "--classes-public"], "an address of a kind that cannot be read"),
    ):
        monkeypatch.setattr("sys.argv", ["locum", *refused])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert reason in said
        assert "Traceback" not in said
    command = [sys.executable, "-m", "locum", *words, "--ledger", "l.sqlite"]
    done = subprocess.run(command, env={**os.environ, **store.env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["l.sqlite", "release"]


def test_a_web_server(local: Path, tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress((local / "_table.csv").read_bytes()))
    (tmp_path / "v.parquet").write_bytes((local / "0.parquet").read_bytes())
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        place = f"http://127.0.0.1:{server.server_port}"
        _same(read_embeddings(f"{place}/v.parquet"), read_embeddings(local / "0.parquet"))
        assert len(open_batches(f"{place}/v.parquet")["all"]) == 500
        _same(read_embeddings(f"{place}/t.csv.gz"), read_embeddings(local / "_table.csv"))
        with pytest.raises(DataError, match="nothing at"):
            read_embeddings(f"{place}/none.parquet")
    finally:
        server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass
