"""The bar in a real kernel: it moves while the work runs, and nothing of it is saved with the notebook."""

from __future__ import annotations

import pytest

from locum.io import bar_html

CODE = """
import time
from locum.io import ProgressBar
with ProgressBar("fit") as progress:
    for i in range(4):
        time.sleep(0.3)
        progress(i + 1, 5, "loss <0.1>")
    seen = progress._cell is not None
print(seen)
"""


def test_text_is_escaped() -> None:
    assert "<script>" not in bar_html("<script>alert(1)</script>", 1, 2, 3.0)
    assert 'value="2" max="2"' in bar_html("done", 9, 2, None)


def test_a_kernel_shows_the_bar_and_saves_nothing_of_it() -> None:
    pytest.importorskip("nbclient", reason="needs a Jupyter kernel: pip install nbclient ipykernel")
    pytest.importorskip("ipykernel")
    import nbformat
    from nbclient import NotebookClient

    drawn: list[str] = []
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    client = NotebookClient(book, timeout=60, kernel_name="python3")
    client.on_cell_executed = None
    process = client.process_message

    def spy(msg, cell, cell_index):  # type: ignore[no-untyped-def]
        if msg["msg_type"] in ("display_data", "update_display_data"):
            drawn.append(msg["content"]["data"].get("text/html", ""))
        return process(msg, cell, cell_index)

    client.process_message = spy
    client.execute()
    assert any('value="2"' in html and "loss &lt;0.1&gt;" in html for html in drawn)
    outputs = book.cells[0].outputs
    assert [o.text for o in outputs if o.output_type == "stream"] == ["True\n"]
    assert "loss" not in str([o.data for o in outputs if o.output_type == "display_data"])
