"""`obfuscate fit` and `obfuscate apply`: an obfuscator in a folder, and obfuscated records with their claim."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum.embed import ImageTable
from locum.errors import ConfigError, DataError, LocumError
from locum.generate.table import is_table
from locum.io import ProgressBar, check_output_folder
from locum.obfuscate import (
    ImageObfuscator,
    SavedObfuscator,
    TableObfuscator,
    open_obfuscator,
    save_obfuscator,
    written_by,
)
from locum.recipes.inputs import checkpoint_path, choose_split
from locum.recipes.obfuscate_data import (
    Rows,
    check_place,
    column,
    columns_of,
    identifies,
    joined,
    read_rows,
    taken,
    write_images,
    write_table,
)
from locum.recipes.obfuscate_private import apply_table
from locum.types import PrivacyClaim, at_least, seems_subject

Array = npt.NDArray[Any]
# Images that are obfuscated at once.
_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class ObfuscatorSummary:
    """What was fitted by `fit_obfuscator`. It includes the number of records: do not share it.

    Attributes
    ----------
    obfuscator
        Folder of the obfuscator.
    fingerprint
        SHA-256 of its manifest.
    kind
        "table" or "image".
    preset
        "substitute", "calibrated" or "paper".
    takes
        The columns that it obfuscates, or the shape of images.
    utility
        The utility attributes and their values.
    left_out
        Columns of the data that are neither.
    records
        How many records it was fitted on.
    parameters, epochs
        How many numbers were learned, and the epoch whose weights were kept.
    megabytes, seconds
        Size of the folder, and how long the fit took.
    claim
        The claim, of kind "none".

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import fit_obfuscator
    >>> pd.DataFrame({"age": range(40), "job": ["cook", "nurse"] * 20}).to_csv("staff.csv", index=False)
    >>> summary = fit_obfuscator("staff.csv", Path("staff-obfuscator"), utility=["job"], epochs=1)
    >>> summary.takes, summary.utility
    (('age',), {'job': ('cook', 'nurse')})
    """

    obfuscator: str
    fingerprint: str
    kind: str
    preset: str
    takes: tuple[str, ...]
    utility: dict[str, tuple[str | int, ...]]
    left_out: tuple[str, ...]
    records: int
    parameters: int
    epochs: int
    megabytes: float
    seconds: float
    claim: PrivacyClaim

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        facts = asdict(self) | {"claim": self.claim.to_dict()}
        return facts | {"megabytes": round(self.megabytes, 3), "seconds": round(self.seconds, 2)}


def fit_obfuscator(
    data: str,
    out: Path,
    *,
    utility: Sequence[str],
    drop: Sequence[str] = (),
    preset: str | None = None,
    donors: str | None = None,
    show_quarters: bool = False,
    epochs: int | None = None,
    beta: float | None = None,
    authors_compat: bool = False,
    attributes: str | None = None,
    side: int | None = None,
    channels: int = 3,
    limit: int | None = None,
    seed: int = 0,
    device: str = "auto",
    overwrite: bool = False,
    resume: bool = True,
    verbose: bool = False,
) -> ObfuscatorSummary:
    """Fit an obfuscator on `data` and write it to the folder `out`.

    If the data have splits, "train" is used. No private attribute is needed.

    Parameters
    ----------
    data
        A .csv or .parquet table, UCI Adult's or CelebA's folder, an .npz of images, or a folder of images.
    out
        Folder of the obfuscator.
    utility
        Columns that must stay useful. They are removed from a table before the fit, and written with each record.
    drop
        Further columns of a table to remove, such as identifiers.
    preset
        "calibrated", "paper" for the network and noise of the adjustable paper, or, for images, "substitute". None:
        "calibrated" for tables, "substitute" for images.
    donors
        With "substitute": images with the same utility attributes that may be shown to anyone as they are. An .npz,
        CelebA's folder, or a folder of images with the attributes in its `attributes.csv`.
    show_quarters
        With "substitute" and no donors: one quarter of each image of `data` may be shown as it is, in collages.
    epochs
        Passes over the data; None: the preset's.
    beta
        Of calibrated tables: how strongly training hides; None: 0.06.
    authors_compat
        With "paper": no floor under the noise, as the authors ran it.
    attributes
        Table about the images in a folder.
    side, channels
        Images in a folder are resized to `side` pixels (None: 64) and 1 or 3 channels.
    limit
        Use only the first records of each split.
    seed
        Seed of the training.
    device
        Where to train, as in `TableObfuscator`.
    overwrite
        Replace `out` if it is an obfuscator.
    resume
        Continue an interrupted fit; its checkpoint is kept beside the data.
    verbose
        Show progress.

    Returns
    -------
    ObfuscatorSummary
        What was fitted. Private: it includes the number of records.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import fit_obfuscator
    >>> staff = pd.DataFrame({"id": range(40), "age": range(40), "job": ["cook", "nurse"] * 20})
    >>> staff.to_csv("staff.csv", index=False)
    >>> summary = fit_obfuscator("staff.csv", Path("obfuscator"), utility=["job"], drop=["id"], epochs=1)
    >>> summary.takes, summary.left_out
    (('age',), ('id',))
    """
    check_output_folder(out, overwrite=overwrite)
    if not utility:
        raise ConfigError("Name what must stay useful: --utility COLUMN, once or more.")
    if len(set(utility)) < len(utility):
        raise ConfigError(f"--utility names a column twice; got {list(utility)}.")
    settings: dict[str, Any] = {
        "max_epochs": epochs,
        "beta": beta,
        "authors_compat": authors_compat,
        "device": device,
    }
    if preset is not None:
        settings["preset"] = preset
    if donors is not None and preset not in (None, "substitute"):
        raise ConfigError(f"--donors are for --preset substitute; got {preset}: leave one of them out.")
    if show_quarters and (donors is not None or preset not in (None, "substitute")):
        raise ConfigError("--show-quarters is for --preset substitute without --donors: leave it out.")
    # Report wrong settings before data are read.
    (ImageObfuscator if preset == "substitute" or donors is not None else TableObfuscator)(**settings)._check()
    rows = choose_split(
        read_rows(data, attributes=attributes, side=side, channels=channels, limit=limit), data, "train"
    )
    labels = {name: column(rows, name, data, "--utility") for name in utility}
    images = isinstance(rows, ImageTable)
    kind = ImageObfuscator if images else TableObfuscator
    records = _images_to_learn(rows, drop) if images else _table_to_learn(rows, data, utility, drop)
    _check_groups(labels)
    given = None
    if donors is not None:
        if not isinstance(rows, ImageTable):
            raise ConfigError(f"--donors are images, and {data!r} is a table: leave them out.")
        given = _donors(donors, utility, rows)
    if show_quarters and not images:
        raise ConfigError(f"--show-quarters is about images, and {data!r} is a table: leave it out.")
    started = time.monotonic()
    bar = ProgressBar("fitting an obfuscator", show=verbose)
    model = kind(
        **settings,
        random_state=seed,
        progress=bar,
        checkpoint=checkpoint_path(data, "obfuscator", kind.__name__, settings, utility, drop, seed)
        if resume
        else None,
    )
    with bar:
        if isinstance(model, ImageObfuscator):
            owner = next(filter(seems_subject, columns_of(rows)), None) if show_quarters else None
            subject = None if owner is None else rows.attributes[owner]
            model.fit(records, labels, donors=given, show_quarters=show_quarters, subject=subject)
        else:
            model.fit(records, labels)
    save_obfuscator(model, out, overwrite=overwrite)
    if model.checkpoint is not None:
        Path(model.checkpoint).unlink(missing_ok=True)
    saved = open_obfuscator(out)
    takes = tuple(str(n) for n in model.shape_) if isinstance(model, ImageObfuscator) else model.codec_.columns
    return ObfuscatorSummary(
        obfuscator=str(out),
        fingerprint=saved.fingerprint,
        kind=saved.manifest.data.kind,
        preset=model.preset,
        takes=takes,
        utility=dict(zip(model.labels_.names, model.labels_.values, strict=True)),
        left_out=tuple(name for name in columns_of(rows) if name not in (*takes, *utility)),
        records=len(rows),
        parameters=model.parameters_,
        epochs=model.history_.best_epoch,
        megabytes=sum(entry.bytes for entry in saved.manifest.files.values()) / 1e6,
        seconds=time.monotonic() - started,
        claim=saved.claim,
    )


@dataclass(frozen=True, slots=True)
class AppliedSummary:
    """What was written by `apply_obfuscator`; the claim is also in a file beside it.

    Attributes
    ----------
    file, claim_file
        The obfuscated records, and the file with their claim.
    records
        How many records were written.
    left_out
        Columns of the data that were not written.
    about
        What the claim file holds: among others the knobs and the obfuscator's fingerprint.
    claim
        The claim, of kind "none".

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import apply_obfuscator
    >>> summary = apply_obfuscator(Path("obfuscator"), "staff.csv", Path("safe.csv"), noise=5.0)  # doctest: +SKIP
    >>> summary.claim_file  # doctest: +SKIP
    'safe.claim.json'
    """

    file: str
    claim_file: str
    records: int
    left_out: tuple[str, ...]
    about: dict[str, Any]
    claim: PrivacyClaim

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {name: getattr(self, name) for name in ("file", "claim_file", "records", "left_out", "about")}


def apply_obfuscator(
    obfuscator: Path,
    data: str,
    out: Path,
    *,
    noise: float | None = None,
    lambda_: float | Literal["own"] | None = None,
    true_label: bool = True,
    delta: float = 1e-5,
    keep_order: bool = False,
    attributes: str | None = None,
    limit: int | None = None,
    seed: int | None = None,
    overwrite: bool = False,
) -> AppliedSummary:
    """Obfuscate the records of `data` and write them, their utility labels and a claim.

    Columns that the obfuscator does not know are left out. A folder that `fit_private_table` wrote draws a row for
    each record given its true label; its guarantee is about rows from `sample_table`, and not about these.

    Parameters
    ----------
    obfuscator
        Folder of the obfuscator, or of a private table.
    data
        Records of the kind that it was fitted on; all splits are used.
    out
        A .csv or .parquet file for a table. For images an .npz, or a folder of numbered PNGs with the labels in
        `attributes.csv`.
    noise
        How much to hide, 0 or more; 0 hides least. A private table takes none: it hides all but the label.
    lambda_
        How clearly utility labels are written: 0 not at all, -50 fully, "own" as the obfuscator's classifier C scores
        them. None: fully, -50 or, for images under the preset "paper", -3000.
    true_label
        Write the true utility labels; False: C's prediction.
    delta
        Delta at which the local epsilon is computed.
    keep_order
        Do not shuffle the records: their positions then tell whose they are.
    attributes
        Table about the images in a folder.
    limit
        Use only the first records of each split.
    seed
        Seed of noise and order; None: fresh randomness. With a seed, anyone who guesses it can remove the noise, and
        the claim says so.
    overwrite
        Replace `out` if it exists.

    Returns
    -------
    AppliedSummary
        What was written, and the claim.

    Examples
    --------
    >>> from pathlib import Path
    >>> import pandas as pd
    >>> from locum.recipes import apply_obfuscator, fit_obfuscator
    >>> pd.DataFrame({"age": range(40), "job": ["cook", "nurse"] * 20}).to_csv("staff.csv", index=False)
    >>> _ = fit_obfuscator("staff.csv", Path("obfuscator-to-apply"), utility=["job"], epochs=1)
    >>> summary = apply_obfuscator(Path("obfuscator-to-apply"), "staff.csv", Path("safe.csv"), noise=5.0)
    >>> summary.records, summary.claim.kind
    (40, 'none')
    """
    if is_table(obfuscator):
        if noise is not None or lambda_ is not None or not true_label or attributes is not None or limit is not None:
            raise ConfigError(
                "A private table hides all but the true label: leave out --noise, --lambda, --no-true-label, "
                "--attributes and --limit."
            )
        drawn = apply_table(obfuscator, data, out, seed=seed, keep_order=keep_order, overwrite=overwrite)
        return AppliedSummary(str(out), drawn.claim_file, drawn.records, drawn.left_out, drawn.about, drawn.claim)
    if noise is None:
        raise ConfigError("An obfuscator needs --noise, how much to hide: 0 is least, and inf is all but the labels.")
    saved = open_obfuscator(obfuscator)
    kind = saved.manifest.data.kind
    check_place(out, kind, overwrite=overwrite)
    if not 0 < delta < 1:
        raise ConfigError(f"--delta must lie between 0 and 1; got {delta!r}. 1e-5 is usual.")
    plain = default_lambda(saved) if lambda_ is None else None if lambda_ == "own" else lambda_
    # Report wrong knobs before data are read.
    saved.model.masking(noise=noise, lambda_=plain, use_true_label=true_label)
    rows = joined(records_for(saved, data, attributes, limit))
    labels = utility_of(saved, rows, data) if true_label else None
    rng = np.random.default_rng(seed)
    if not keep_order:
        # In the original order, a row's position would tell whose record it is.
        order = rng.permutation(len(rows))
        rows = taken(rows, order)
        labels = None if labels is None else {name: values[order] for name, values in labels.items()}
    about = _about(saved, noise, plain, true_label, delta, seeded=seed is not None, ordered=keep_order)
    knobs: dict[str, Any] = {"noise": noise, "lambda_": plain, "use_true_label": true_label, "random_state": rng}
    model = saved.model
    if seed is None and saved.shown is not None:
        # Substitutes are then drawn with the secure generator.
        knobs["random_state"] = None
    if isinstance(model, ImageObfuscator):
        known = [*model.labels_.names]
        pixels, carried = _images(model, rows.images, labels, knobs)
        claim_file = write_images(out, pixels, carried, about, overwrite=overwrite)
    else:
        known = [*model.codec_.columns, *model.labels_.names]
        frame = rows[list(model.codec_.columns)]
        released = model.transform(frame, labels, **knobs)
        guessed = {} if labels else model.predict(frame)
        for name in model.labels_.names:
            released[name] = guessed[name] if guessed else rows[name].to_numpy()
        order_of = [name for name in columns_of(rows) if name in known]
        order_of += [name for name in known if name not in order_of]
        claim_file = write_table(out, released[order_of], about)
    return AppliedSummary(
        file=str(out),
        claim_file=str(claim_file),
        records=len(rows),
        left_out=tuple(name for name in columns_of(rows) if name not in known),
        about=about,
        claim=PrivacyClaim.from_dict(about["claim"]),
    )


def records_for(saved: SavedObfuscator, data: str, attributes: str | None, limit: int | None) -> dict[str, Rows]:
    """Every split of `data`, as this obfuscator takes it; an error if they are of another kind."""
    model = saved.model
    shape = model.shape_ if isinstance(model, ImageObfuscator) else (3, 64, 64)
    splits = read_rows(data, attributes=attributes, side=shape[1], channels=shape[0], limit=limit)
    for rows in splits.values():
        if isinstance(rows, ImageTable) != isinstance(model, ImageObfuscator):
            raise DataError(f"The obfuscator takes {saved.manifest.data.kind}s, and {data!r} has none.")
        if isinstance(model, TableObfuscator):
            if lacking := [name for name in model.codec_.columns if name not in columns_of(rows)]:
                raise DataError(f"{data!r} lacks columns that the obfuscator was fitted on: {', '.join(lacking)}.")
            if both := set(model.codec_.columns) & set(model.labels_.names):
                raise ConfigError(f"{sorted(both)[0]!r} is both a column and a utility attribute: fit without it.")
    return splits


def utility_of(saved: SavedObfuscator, rows: Rows, data: str) -> dict[str, Array]:
    """The utility labels of each record; values that the obfuscator was not fitted on are an error."""
    names = saved.model.labels_.names
    labels = {name: column(rows, name, data, "the obfuscator's utility") for name in names}
    try:
        saved.model.codes(labels)
    except LocumError:
        raise
    except ValueError:
        raise DataError(
            f"The utility labels of {data!r} have another type than those the obfuscator was fitted on."
        ) from None
    return labels


def default_lambda(saved: SavedObfuscator) -> float:
    """The `lambda_` that writes a label plainly: the adjustable paper's values."""
    return -3000.0 if saved.manifest.data.kind == "image" and saved.model.preset == "paper" else -50.0


def _table_to_learn(rows: Rows, data: str, utility: Sequence[str], drop: Sequence[str]) -> Rows:
    for name in drop:
        if name not in columns_of(rows):
            raise ConfigError(f"{data!r} has no column {name!r}, which --drop names: check the spelling.")
    frame = rows.drop(columns=[*utility, *(name for name in drop if name not in utility)])
    if not len(frame.columns):
        raise ConfigError("--utility and --drop leave no column to obfuscate: drop fewer.")
    for name in frame.columns:
        if identifies(frame[name]):
            # Categories leave with the obfuscator: these would be identifiers.
            raise DataError(
                f"Column {name!r} has a different value for most records: it would identify them, and its values "
                f"leave with the obfuscator. Leave it out with --drop {name}."
            )
    return frame


def _images_to_learn(rows: ImageTable, drop: Sequence[str]) -> Array:
    if drop:
        raise ConfigError("--drop is for columns of tables; for images only what --utility names is kept.")
    return rows.images


def _donors(path: str, utility: Sequence[str], like: ImageTable) -> tuple[Array, dict[str, Array]]:
    """Images that may be shown, and their utility labels; from a folder they come in the size of the others."""
    table = Path(path) / "attributes.csv"
    splits = read_rows(
        path,
        attributes=str(table) if table.is_file() else None,
        side=like.images.shape[1],
        channels=like.images.shape[3] if like.images.ndim == 4 else 1,
    )
    rows = joined(splits)
    if not isinstance(rows, ImageTable):
        raise DataError(f"Donors must be images; {path!r} is a table.")
    return rows.images, {name: column(rows, name, path, "--utility") for name in utility}


def _check_groups(labels: dict[str, Array]) -> None:
    """The means by utility label leave with the obfuscator: the mean of one record would be that record."""
    codes = np.stack([np.unique(values, return_inverse=True)[1].ravel() for values in labels.values()], axis=1)
    if np.unique(codes, axis=0, return_counts=True)[1].min() < 2:
        raise DataError(
            "A combination of utility labels has a single record, and its mean would give that record away: merge "
            "rare values, or leave that record out."
        )


def _images(
    model: ImageObfuscator, images: Array, labels: Mapping[str, Array] | None, knobs: Mapping[str, Any]
) -> tuple[Array, dict[str, Array]]:
    """Obfuscated images and the labels they carry, computed in chunks."""
    made, guessed = [], []
    for start in range(0, len(images), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        some = None if labels is None else {name: values[part] for name, values in labels.items()}
        made.append(model.transform(images[part], some, **knobs))
        if labels is None:
            guessed.append(model.predict(images[part]))
    if labels is None:
        labels = {name: np.concatenate([part[name] for part in guessed]) for name in model.labels_.names}
    return np.concatenate(made), dict(labels)


def _about(
    saved: SavedObfuscator,
    noise: float,
    lambda_: float | None,
    true_label: bool,
    delta: float,
    *,
    seeded: bool,
    ordered: bool,
) -> dict[str, Any]:
    """What accompanies obfuscated records: knobs, the obfuscator's fingerprint, and a claim of kind none."""
    not_covered = [
        "utility labels: each record carries its own, by design"
        if true_label
        else "utility labels: each record carries what the obfuscator predicts them to be, by design",
        "what an attacker learns: measured, not proven; `locum obfuscate trade-off` measures it",
        "repeated releases of one record: they add up, and their mean has less noise",
        "records that the obfuscator was fitted on: nothing is proven about them",
        "whether a record is included: there is a row for each",
    ]
    if saved.shown is not None:
        not_covered.insert(0, saved.shown)
    epsilon = saved.model.local_epsilon(noise, delta=delta)
    local = None
    if seeded:
        not_covered.append("the noise: it was seeded, as for a test; anyone who guesses the seed can remove it")
    elif lambda_ is None:
        not_covered.append("C's scores of the utility labels: they are written without noise")
    elif math.isfinite(epsilon):
        delta = delta if saved.shown is None else 0.0
        drawn = (
            " if nobody knows the random seed; the generator is not cryptographic"
            if saved.shown is None
            else ", drawn with the operating system's secure generator; nor may it be a donor"
        )
        local = {"epsilon": epsilon, "delta": delta}
        not_covered.append(
            "local differential privacy, which is not part of this claim: one release of a record that the "
            f"obfuscator was not fitted on, given the labels written with it, has epsilon {at_least(epsilon)} at "
            f"delta {delta:g}{drawn}"
        )
    if ordered:
        not_covered.append("which record is whose: they are in the order of the data")
    claim = PrivacyClaim(kind="none", not_covered=tuple(not_covered), test=seeded)
    return {
        "format": "locum-obfuscated",
        "schema_version": 1,
        "written_by": written_by(),
        "obfuscator": saved.fingerprint,
        "preset": saved.model.preset,
        "knobs": {
            "noise": noise if math.isfinite(noise) else "infinite",
            "lambda": "own" if lambda_ is None else lambda_,
            "labels": "true" if true_label else "guessed",
        },
        "utility": list(saved.model.labels_.names),
        "local": local,
        "claim": claim.to_dict(),
    }
