"""A figure as a file."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from locum.errors import ConfigError
from locum.io.atomic import write_bytes

FORMATS = (".svg", ".png", ".pdf")


@contextmanager
def figure_file(path: str | os.PathLike[str], width: float = 7.0) -> Iterator[Any]:
    """One pair of axes; what is drawn on it is in the file afterwards, whole or not at all.

    Needs `locum[figures]`. The suffix picks the format; the same numbers give the same SVG.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigError(f"A figure ends in {', '.join(FORMATS)}; got {os.fspath(path)!r}.")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("Figures need matplotlib: pip install 'locum[figures]'.") from None
    # A fixed salt and no date: the same figures give the same file.
    with rc_context({"svg.hashsalt": "locum", "svg.fonttype": "none"}):
        figure = Figure(figsize=(width, 4), layout="constrained")
        axis = figure.add_subplot()
        yield axis
        # Beside the axes: on them it would hide what it names.
        figure.legend(fontsize=8, loc="outside right upper")
        image = io.BytesIO()
        figure.savefig(image, format=suffix[1:], metadata={"Date": None} if suffix == ".svg" else None)
    write_bytes(os.fspath(path), image.getvalue())
