"""Addresses: one sentence about whatever is wrong with them."""

from __future__ import annotations

import functools
import http.server
import threading
from pathlib import Path

import pytest

from locum.data import open_batches
from locum.errors import DataError


@pytest.mark.parametrize("address", ["s3://", "hf://x"])
def test_an_address_that_names_nothing(address: str) -> None:
    if address.startswith("hf"):
        pytest.importorskip("huggingface_hub")
    with pytest.raises(DataError, match="not a valid address"):
        open_batches(address)


def test_a_damaged_file_elsewhere_is_not_quoted(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    (tmp_path / "scans.parquet").write_bytes(b"PAR1 Jane Doe " * 50)
    served = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), served) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with pytest.raises(DataError) as caught:
                open_batches(f"http://127.0.0.1:{server.server_port}/scans.parquet")
        finally:
            server.shutdown()
    assert "Jane" not in str(caught.value)
