"""`predict`: the predictions of a saved head, as a table that is safe to open."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from locum.heads import SavedHead
from locum.io import check_output_file, printable, write_atomically, write_private_table
from locum.recipes.inputs import read_vectors, scored
from locum.types import Estimate, PrivacyClaim, Progress

_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?")
# At the start of a cell, or where a spreadsheet that splits at semicolons would start one.
_FORMULA = re.compile(r"(^|[,;|])([\s\"]*)(?=[=+@＝＋＠－-])")


@dataclass(frozen=True, slots=True, eq=False)
class PredictSummary:
    """Predictions, and scores if labels are known. It describes the receiver's own records and stays with them.

    Attributes
    ----------
    head
        File of the head.
    kind
        Kind of head.
    release
        Fingerprint of the release it was trained on, or None.
    claim
        The claim of that release.
    classes
        Class names.
    names
        One name per record: its number, or the path of an image.
    proba
        Probabilities, one row per record and one column per class.
    scores
        Accuracy and other scores with intervals over these records; empty if no label is known.
    scored_records
        How many records had a label that the head knows.
    unknown_labels
        How many had another label: they are predicted but not scored.
    skipped
        How many images could not be read.
    file
        The .csv file of predictions, or None.
    skipped_file
        The file that names skipped images, or None.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import predict_records
    >>> found = predict_records(Path("head.safetensors"), "new.npz")  # doctest: +SKIP
    >>> found.labels[:3]  # doctest: +SKIP
    """

    head: Path
    kind: str
    release: str | None
    claim: PrivacyClaim
    classes: tuple[str, ...]
    names: Sequence[str]
    proba: npt.NDArray[np.float64]
    scores: dict[str, Estimate]
    scored_records: int
    unknown_labels: int
    skipped: int
    file: Path | None
    skipped_file: Path | None = None

    @property
    def labels(self) -> list[str]:
        """The most likely class of each record, by name."""
        return [self.classes[best] for best in self.proba.argmax(axis=1)]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON, with all predictions if no file holds them."""
        out: dict[str, Any] = {
            "head": str(self.head),
            "kind": self.kind,
            "release": self.release,
            "claim": self.claim.to_dict(),
            "classes": list(self.classes),
            "records": len(self.names),
            "skipped": self.skipped,
            "predicted": dict(Counter(self.labels)),
            "scores": {name: value.to_dict() for name, value in self.scores.items()},
            "scored_records": self.scored_records,
            "unknown_labels": self.unknown_labels,
            "file": None if self.file is None else str(self.file),
            "skipped_file": None if self.skipped_file is None else str(self.skipped_file),
        }
        if self.file is None:
            out["predictions"] = [
                {"record": name, "label": label, "probabilities": row}
                for name, label, row in zip(self.names, self.labels, self.proba.tolist(), strict=True)
            ]
        return out

    def write_csv(self, stream: BinaryIO) -> None:
        """Columns record, label, probability (of that label), and p_CLASS for each class; UTF-8, commas.

        Names of classes and images can come from outside. Unprintable characters become question marks, and a sign
        that would start a formula in a spreadsheet (= + - @) gets an apostrophe before it; plain numbers such as -1
        and all other names are not changed.
        """
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        try:
            table = csv.writer(text, lineterminator="\n")
            table.writerow(["record", "label", "probability", *(_harmless(f"p_{name}") for name in self.classes)])
            classes = [_harmless(name) for name in self.classes]
            for name, row in zip(self.names, self.proba, strict=True):
                best = int(row.argmax())
                table.writerow([_harmless(name), classes[best], f"{row[best]:.6g}", *(f"{p:.6g}" for p in row)])
        finally:
            # The caller closes the stream.
            text.detach()


def predict_records(
    head: Path,
    data: str,
    *,
    out: Path | None = None,
    backbone: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> PredictSummary:
    """Predict every record of `data` with a saved head.

    Vectors of another backbone are refused. Labels that the head does not know are allowed. Scores have intervals
    over these records: they say nothing about other records.

    Parameters
    ----------
    head
        File of the head, as `train_head` wrote it.
    data
        File or folder of vectors or images; with splits, "test" is used, else "val". Images are embedded as the
        release requires.
    out
        A .csv file for the predictions, readable only by its owner; None: no file. Images that cannot be read are
        listed in a private file beside it.
    backbone
        Path of a custom model, if images have to be embedded with one.
    overwrite
        Replace `out` if it exists.
    progress
        Called while images are embedded.

    Returns
    -------
    PredictSummary
        Probabilities and labels per record, and scores if labels are known.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, predict_records, train_head
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-predict"), no_dp=True).release
    >>> head = train_head(release, Path("tumors.safetensors"), samples=200, settings={"max_epochs": 5}).head
    >>> predict_records(head, "tumors.npz").proba.shape
    (569, 2)
    """
    if out is not None:
        check_output_file(out, overwrite=overwrite, suffixes=(".csv",))
    model = SavedHead.open(head)
    vectors = read_vectors(data, model.info, backbone=backbone, progress=progress)
    skipped = None
    if out is not None and vectors.problems:
        skipped = out.with_name(f"{out.stem}.skipped.csv")
        write_private_table(skipped, ("image", "problem"), vectors.problems)
    proba = model.predict_proba(vectors.X)
    y = np.full(len(proba), -1) if vectors.y is None else vectors.y
    known = y >= 0
    summary = PredictSummary(
        head=head,
        kind=model.manifest.head,
        release=model.manifest.release,
        claim=model.claim,
        classes=model.manifest.class_names,
        names=vectors.names,
        proba=proba,
        scores=scored(y[known], proba[known]) if known.any() else {},
        scored_records=int(known.sum()),
        unknown_labels=0 if vectors.y is None else int((~known).sum()),
        skipped=len(vectors.problems),
        file=out,
        skipped_file=skipped,
    )
    if out is not None:
        write_atomically(str(out), summary.write_csv)
    return summary


def _harmless(cell: str) -> str:
    """The cell, made so that neither a terminal nor a spreadsheet takes it for a command."""
    plain = printable(cell)
    return plain if _NUMBER.fullmatch(plain) else _FORMULA.sub(r"\1\2'", plain)
