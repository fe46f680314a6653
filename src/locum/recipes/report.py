"""`report`: one page about a release, internal or shareable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.errors import ConfigError
from locum.io import beside_folder, check_output_file, write_bytes
from locum.recipes.audit import audit_of
from locum.recipes.inputs import aligned, pick_split
from locum.recipes.passport import audit_entry
from locum.release import Release, load, open_release
from locum.release.passport import DecisionEntry
from locum.report import audit_facts, check_method, check_suffix, internal_report, render, shareable_report
from locum.types import Progress

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]


def make_report(
    release: Path,
    out: Path,
    *,
    train: str | None = None,
    test: str | None = None,
    audit: Path | None = None,
    share: bool = False,
    include_measured: bool = False,
    map: str = "auto",
    seeds: int = 3,
    head: str = "linear",
    backbone: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a report on a release, and return it as a plain dict.

    It is internal unless `share` is set: it shows real points and exact counts, and only the owner may read the file.
    A shareable report opens neither `train` nor `test` unless `include_measured` is set; the figures are then rounded
    and named in `not_covered`.

    Parameters
    ----------
    release
        Folder of the release.
    out
        File to write; its suffix (.html, .md or .json) selects the format.
    train
        File of the records behind the release.
    test
        File of real records that were not used for the fit.
    audit
        The JSON that `locum audit` wrote about this release. A shareable report takes from it what a passport would:
        verdicts, and rounded figures with `include_measured`.
    share
        Write a report that may leave.
    include_measured
        With `share`: also include rounded measured figures. Needs `test` or `audit`.
    map
        How vectors are drawn in two dimensions: "auto", "tsne" or "pca".
    seeds
        How many heads are trained per source of training data, to measure utility on `test`.
    head
        Kind of head: "linear" or "mlp".
    backbone
        Path of a custom model, if images have to be embedded with one.
    overwrite
        Replace `out` if it exists.
    progress
        Called as the work proceeds.

    Returns
    -------
    dict
        The report; `audience` is "internal" or "shareable".

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, make_report
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-report"), no_dp=True).release
    >>> make_report(release, Path("report.html"), share=True, map="pca")["audience"]
    'shareable'
    """
    check_suffix(out.suffix.lower())
    check_method(map)
    check_output_file(out, overwrite=overwrite, release=release)
    opened = load(release)
    found = None if audit is None else audit_of(audit, opened.fingerprint)
    decision = _decision(release)

    def measure(test: str) -> dict[str, Any]:
        # Loads torch, which a report without data does not need.
        from locum.recipes.evaluate import evaluate_release

        return evaluate_release(
            release, test, train=train, head=head, seeds=seeds, backbone=backbone, progress=progress
        ).to_dict()

    if share and include_measured and test is None and audit is None:
        raise ConfigError(
            "--include-measured needs something measured: add --test DATA or --audit FILE, or leave it out."
        )
    if share:
        measured = measure(test) if include_measured and test is not None else None
        _tell(progress, "map")
        entry = None if found is None else audit_entry(found, found["fingerprint"], include_measured=include_measured)
        report = shareable_report(opened, measured=measured, audit=entry, decision=decision, map=map)
    else:
        records = None if train is None else _read(opened, train, "train", backbone)
        held_out = None if test is None else _read(opened, test, "test", backbone)
        measured = None if test is None else measure(test)
        _tell(progress, "map and distances")
        attacks = None if found is None else audit_facts(found, decision=decision.sentence() if decision else "")
        report = internal_report(
            opened,
            records=records,
            held_out=held_out,
            measured=measured,
            audit=attacks,
            decision=decision,
            map=map,
        )
    # A shareable report is made to be sent; only the owner may read an internal one.
    write_bytes(out, render(report, out.suffix.lower()).encode(), mode=0o644 if share else 0o600)
    return report


def default_report_path(release: Path, *, share: bool = False) -> Path:
    """Where `locum report` writes unless told otherwise.

    That is next to the release, never inside it: a release holds only the files that it lists. The two kinds of
    report have different names.

    Parameters
    ----------
    release
        Folder of the release.
    share
        Whether the report is shareable.

    Returns
    -------
    Path
        A file ending in `-report.html` or `-report-shareable.html`.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import default_report_path
    >>> default_report_path(Path("out/release")).as_posix()
    'out/release-report.html'
    """
    return beside_folder(release, f"-report{'-shareable' if share else ''}.html")


def _decision(release: Path) -> DecisionEntry | None:
    """What the holder decided, as the passport in the folder names it."""
    passport = open_release(release).passport_files.passport if release.is_dir() else None
    return None if passport is None else passport.decision


def _read(release: Release, data: str, what: str, backbone: str | None) -> Rows:
    preferred = ("train",) if what == "train" else ("test", "val")
    return aligned(release, pick_split(data, *preferred, like=release.info, backbone=backbone), what)


def _tell(progress: Progress | None, what: str) -> None:
    if progress is not None:
        progress(0, 1, what)
