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
    """Draw on one pair of axes; afterwards the figure is in the file, complete or not at all.

    Needs `locum[figures]`. A legend beside the axes names what has a label. The same numbers give the same SVG.

    Parameters
    ----------
    path
        The file; its suffix picks the format: .svg, .png or .pdf.
    width
        Width in inches; the height is 4.

    Yields
    ------
    matplotlib.axes.Axes
        The axes to draw on.

    Examples
    --------
    >>> from locum.io import figure_file
    >>> with figure_file("curve.svg") as axes:  # doctest: +SKIP
    ...     axes.plot([0, 1], [0.5, 0.7], label="accuracy")
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
