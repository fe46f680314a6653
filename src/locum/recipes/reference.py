"""`reference make` and `reference show`: public statistics of a backbone, or of a table with declared ranges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from locum.data import load_reference, reference_from_ranges
from locum.errors import ConfigError
from locum.generate.private import reference_hash
from locum.io import check_output_file
from locum.types import Progress


@dataclass(frozen=True, slots=True)
class ReferenceSummary:
    """What public statistics say about themselves. None of it is private.

    Attributes
    ----------
    name
        The name of shipped statistics, or the file.
    source
        Where they come from.
    features, directions
        Number of features, and of directions that have a variance of their own.
    sha256
        The hash by which releases and federations name them.
    backbone, revision, preprocessing
        The vectors that they describe; "unknown": any.
    images, seed, drawing
        Of drawn images: how many, the seed, and the version of the program that drew them; 0: none were drawn.

    Examples
    --------
    >>> from locum.recipes import show_reference
    >>> show_reference("efflite0").features
    1280
    """

    name: str
    source: str
    features: int
    directions: int
    sha256: str
    backbone: str
    revision: str
    preprocessing: str
    images: int
    seed: int
    drawing: int

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def make_reference(
    out: Path,
    *,
    backbone: str | None = None,
    ranges: Path | None = None,
    images: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
    tell: Callable[[str], None] | None = None,
    progress: Progress | None = None,
) -> ReferenceSummary:
    r"""Write public statistics of a backbone, from drawn images, or of a table, from the ranges of its features.

    Parameters
    ----------
    out
        The .safetensors file to write.
    backbone
        A name or a model as in `load_backbone`; or None, with `ranges`.
    ranges
        A .csv with the columns name, low and high and one row per feature, in the order of the features: the usual
        range of each, known without looking at the records.
    images
        How many images to draw; None: 3,000. More images give steadier statistics.
    seed
        Seed of the drawing; None: 0.
    overwrite
        Replace an existing file.
    tell
        Called with a line that says how long it will take. None: nothing is said.
    progress
        Called while images are drawn.

    Returns
    -------
    ReferenceSummary
        What was written.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_reference
    >>> _ = Path("ranges.csv").write_text("name,low,high\nage,18,98\nheight,140,200\n")
    >>> made = make_reference(Path("table.safetensors"), ranges=Path("ranges.csv"))
    >>> made.features, made.source
    (2, 'declared ranges of 2 features')
    """
    if (backbone is None) == (ranges is None):
        raise ConfigError("Say what to make statistics of: --backbone NAME or --ranges FILE, but not both.")
    check_output_file(out, overwrite=overwrite, suffixes=(".safetensors",))
    if ranges is not None:
        if images is not None or seed is not None:
            raise ConfigError("--images and --seed are for drawn images: leave them out with --ranges.")
        made = reference_from_ranges(ranges)
    else:
        from locum.embed import IMAGES, load_backbone, make_drawn_reference

        assert backbone is not None
        model = load_backbone(backbone)
        made = make_drawn_reference(
            model, IMAGES if images is None else images, seed or 0, tell=tell, progress=progress
        )
    made.save(out)
    return show_reference(str(out))


def show_reference(name: str) -> ReferenceSummary:
    """What public statistics say about themselves.

    Parameters
    ----------
    name
        The name of statistics that ship with Locum, or a file.

    Returns
    -------
    ReferenceSummary
        Source, size and hash.

    Examples
    --------
    >>> from locum.recipes import show_reference
    >>> show_reference("efflite2").source
    '3,000 images drawn by Locum (drawing 1, seed 0)'
    """
    found = load_reference(name)
    return ReferenceSummary(
        name=name,
        source=found.source,
        features=found.dim,
        directions=len(found.values),
        sha256=reference_hash(found),
        backbone=found.info.backbone,
        revision=found.info.revision,
        preprocessing=found.info.preprocessing,
        images=found.images,
        seed=found.seed,
        drawing=found.drawing,
    )
