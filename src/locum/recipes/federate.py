"""`federate init`, `certificates`, `key`, `pin`, `simulate`, `merge` and `predict`."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from locum.data import (
    SPLITS,
    MixedTable,
    Reference,
    is_drawn,
    load_reference,
    partition_by,
    partition_dirichlet,
    partition_iid,
    read_ranges,
    read_table,
    reference_for,
)
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.federated import (
    SIMULATION,
    FederationSettings,
    PersonalModel,
    Simulation,
    Site,
    Weights,
    make_certificates,
    make_site_key,
    merge_releases,
    pin_keys,
    simulate,
    write_federation,
)
from locum.generate.private import reference_hash
from locum.io import check_output_folder, hold_folder, is_remote, split_path, write_bytes, write_private_table
from locum.recipes.inputs import check_source, choose_split, only_real, read_sets
from locum.recipes.verify import verify_release
from locum.release import load
from locum.types import DP, EmbeddingInfo, EmbeddingSet, PrivacyClaim, Progress

# A site needs some records to train on and some to test on.
_MIN_RECORDS = 10
# Says which simulation was begun in a folder; and what is left of one that is done.
_ASKED, _DONE = "simulation.json", ".locum-simulation-done"


def start_federation(
    folder: Path,
    classes: Sequence[str],
    *,
    sites: Sequence[str] = ("site-a", "site-b", "site-c"),
    backbone: str = "efflite0",
    reference: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    host: str = "localhost",
    port: int = 8010,
) -> list[Path]:
    """Write the folder that a federation starts from: terms, an example site file, and a README with all commands.

    Parameters
    ----------
    folder
        Folder to write. No file is overwritten.
    classes
        Class names, which are public.
    sites
        Names of the sites: letters, digits and inner hyphens.
    backbone
        Model that makes the sites' vectors.
    reference
        File of public statistics, which the terms name by its hash: send it to every site. None: those that ship with
        the backbone, if any.
    settings
        Further fields of `FederationSettings`; `dim`, the number of features, is required.
    host, port
        Where the sites reach the coordinator.

    Returns
    -------
    list of Path
        The files.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import start_federation
    >>> files = start_federation(Path("federation"), ["benign", "malignant"], settings={"dim": 1280})
    >>> sorted(file.name for file in files)
    ['README.md', 'federation.toml', 'site.example.toml']
    """
    given = {"min_sites": min(len(sites), 2), "absent": usual_absent(len(sites)), **dict(settings or {})}
    terms = FederationSettings(tuple(classes), backbone=backbone, **given)
    named = _reference_terms(reference or reference_for(EmbeddingInfo(backbone)), terms.dim)
    terms = replace(terms, **named)
    return list(write_federation(folder, terms, sites=sites, host=host, port=port))


def _reference_terms(name: str | Path, dim: int) -> dict[str, Any]:
    """Public statistics as terms name them: never by a path."""
    return {"reference": "none"} if name == "none" else _named(load_reference(name, dim))


def _named(reference: Reference) -> dict[str, Any]:
    return {"reference": reference.name, "reference_sha256": reference_hash(reference)}


def make_federation_keys(
    folder: Path, *, hosts: Sequence[str] = ("localhost", "127.0.0.1"), sites: Sequence[str] = ()
) -> dict[str, Path]:
    """Make a certificate authority, the coordinator's certificate, and a key pair per site; nothing is overwritten.

    Parameters
    ----------
    folder
        Folder for the files.
    hosts
        Names or addresses under which sites reach the coordinator.
    sites
        Names of the sites that get a key pair. Better, each site makes its own: see `make_key_for_site`.

    Returns
    -------
    dict
        The path of each file by its name; files ending in `.key` are private.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_federation_keys
    >>> sorted(make_federation_keys(Path("keys"), sites=["site-a"]))
    ['ca.crt', 'server.crt', 'server.key', 'site-a.key', 'site-a.pub']
    """
    return make_certificates(folder, tuple(hosts), tuple(sites))


def make_key_for_site(folder: Path, name: str) -> dict[str, Path]:
    """Make a key pair at a site; nothing is overwritten.

    Parameters
    ----------
    folder
        Folder for the two files.
    name
        Name of the site: letters, digits and inner hyphens.

    Returns
    -------
    dict
        The path of each file by its name: NAME.key stays at the site, NAME.pub goes to the coordinator, which admits
        it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_key_for_site
    >>> sorted(make_key_for_site(Path("own-keys"), "site-b"))
    ['site-b.key', 'site-b.pub']
    """
    return make_site_key(folder, name)


def pin_sites(terms: Path, keys: Path | None = None) -> dict[str, str]:
    """Write the public keys of the sites into the terms: sites work only with these.

    Parameters
    ----------
    terms
        The public terms, `federation.toml`; the file is replaced. Terms that pin other keys already are refused.
    keys
        Folder with the public key (`NAME.pub`) of every site. None: nothing is written; a site compares the
        fingerprints of the keys in its copy of the terms.

    Returns
    -------
    dict
        The fingerprint of each site's key by its name, for the sites to compare.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import make_federation_keys, pin_sites, start_federation
    >>> files = start_federation(Path("study"), ["benign", "malignant"], settings={"dim": 30}, backbone="unknown")
    >>> _ = make_federation_keys(Path("all-keys"), sites=["site-a", "site-b", "site-c"])
    >>> sorted(pin_sites(Path("study/federation.toml"), Path("all-keys")))
    ['site-a', 'site-b', 'site-c']
    """
    return pin_keys(terms, keys)


def usual_absent(sites: int) -> int:
    """How many sites may stay away from a masked sum unless the terms say otherwise: one in eight."""
    return sites // 8


def simulate_federation(
    data: str,
    out: Path,
    *,
    sites: int = 5,
    partition: str = "iid",
    alpha: float = 0.3,
    site_attribute: str = "site",
    privacy: DP | None = None,
    classes: Sequence[str] | None = None,
    ranges: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    engine: Literal["local", "ray"] = "local",
    validation: bool = False,
    seed: int = 0,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    progress: Progress | None = None,
) -> Simulation:
    """Partition `data` among sites and run a federation on them with the code of a real run; see `simulate`.

    Randomness is seeded, so the release is marked as a test and guarantees nothing.

    Parameters
    ----------
    data
        File or folder of records; with splits, "train" is used.
    out
        A new or empty folder for the release and the log; or that of the same simulation, which was stopped: it goes
        on there. While it runs, a private folder there holds what the sites would keep to themselves.
    sites
        How many sites, for the partitions "iid" and "dirichlet".
    partition
        "iid", "dirichlet" (sites differ in their classes), or "by-site": by the values of `site_attribute`.
    alpha
        Of "dirichlet": the smaller, the more sites differ.
    site_attribute
        Of "by-site": the attribute that names each record's site.
    privacy
        Budget of each site; None: no noise. Where a size is needed and `n_public` is None, each site declares the
        mean of their training records, rounded down to tens.
    classes
        Names of all classes there can be; None: those of the data. A real run declares them.
    ranges
        For a CSV table: a CSV with name, low and high, the public range of each feature. None: they are read off the
        records, which an event "table" says. A simulation guarantees nothing; a real run declares them.
    settings
        Further fields of `FederationSettings`.
    engine
        "local": one process; "ray": Flower's simulation engine. The result is the same.
    validation
        Choose lambda on held-out records, as in the federated paper, and not by cross-validation.
    seed
        Seed of everything, 0 or more.
    on_event
        Called with each entry of the log.
    progress
        Called while images are embedded.

    Returns
    -------
    Simulation
        The release's folder, and the scores of each site on its test records.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import simulate_federation
    >>> found = simulate_federation("digits.npz", Path("trial"), settings={"mode": "sums"})  # doctest: +SKIP
    >>> [site.acc.value for site in found.sites]  # doctest: +SKIP
    """
    _begun_in(out)
    if seed < 0:
        raise ConfigError(f"`seed` must be 0 or more; got {seed!r}.")
    if privacy is not None and is_drawn(data):
        raise PrivacyError(
            f"{data!r} is a random part of the data, and which records are in it depends on how many there are: a "
            "guarantee needs all of them, so leave the brackets out."
        )
    table = _read_table(data, site_attribute if partition == "by-site" else None, ranges)
    sets = read_sets(data, progress=progress) if table is None else table.splits
    records = only_real(choose_split(sets, data, "train"), "given")
    if classes is not None:
        records = records.with_classes(tuple(classes))
    parts = deal_out(records, sites, partition, alpha, site_attribute, np.random.default_rng(seed))
    backbone, reference = records.info.backbone, reference_for(records.info)
    made = None if table is None or "reference" in (settings or {}) else table.reference()
    named = _reference_terms(reference, records.dim) if made is None else _named(made)
    chosen: dict[str, Any] = {
        "classes": records.info.class_names,
        "dim": records.dim,
        **({} if "reference" in (settings or {}) else named),
        "backbone": backbone,
        "min_sites": min(2, len(parts)),
        "absent": usual_absent(len(parts)),
        "seed": seed,
        **dict(settings or {}),
    }
    terms = FederationSettings.from_dict(chosen)
    if privacy is not None and privacy.n_public is None and not terms.masked:
        mean = float(np.mean([len(part) for part in parts.values()]))
        privacy = replace(privacy, n_public=max(10, 10 * int(0.08 * mean)))
    if len(parts) < terms.least_sites:
        raise ConfigError(
            f"With these settings a federation needs {terms.least_sites} or more sites; there are {len(parts)}."
            + (" Two sites can use --mode sums or decoder." if terms.masked else "")
        )
    if privacy is not None and privacy.unit == "subject" and records.subject is None:
        raise DataError("A guarantee per subject needs `subject` in the data; there is none.")
    asked = json.dumps(
        {
            "records": {name: _fingerprint(part) for name, part in parts.items()},
            "terms": terms.to_dict(),
            "privacy": None if privacy is None else asdict(privacy),
            "seed": seed,
            "validation": validation,
        },
        sort_keys=True,
    )
    with hold_folder(out):
        work, begun = out / SIMULATION, _begun_in(out)
        if begun not in (None, asked):
            raise ConfigError(
                f"{str(out)!r} holds a simulation that was stopped, of other records or settings: start that one "
                "again to finish it, or name another folder."
            )
        work.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_bytes(work / _ASKED, asked.encode())
        before = set(out.iterdir())
        if made is not None and table is not None:
            reference = str(made.save(work / "ranges.safetensors"))
            _tell_about(table, on_event)
        try:
            found = simulate(
                parts,
                terms,
                privacy,
                out=out,
                work=work / "sites",
                engine=engine,
                seed=seed,
                validation=validation,
                reference=reference if terms.reference == "own" else None,
                on_event=on_event,
            )
        except LocumError:
            # Whatever was learned is kept; if nothing was, nothing is left.
            if set(out.iterdir()) == before:
                shutil.rmtree(work)
                with suppress(OSError):
                    out.rmdir()
            raise
        # A kill from here on leaves a complete release, and records in a folder that the next run deletes.
        work.rename(out / _DONE)
        shutil.rmtree(out / _DONE)
    return found


def _read_table(data: str, attribute: str | None, ranges: Path | None) -> MixedTable | None:
    """A CSV as a table of mixed columns; None for other data, and for a random part of a file."""
    file, split = split_path(data)
    if not file.lower().endswith((".csv", ".csv.gz")) or is_remote(file) or split not in (None, *SPLITS):
        if ranges is not None:
            raise ConfigError("--ranges describes the features of a CSV table: leave it out for other data.")
        return None
    wanted = () if attribute is None else (attribute,)
    table = read_table(file, attributes=wanted, ranges=None if ranges is None else read_ranges(ranges))
    if split is not None:
        if split not in table.splits:
            raise DataError(f"{file} has no split {split!r}: it holds {', '.join(table.splits)}.")
        table = replace(table, splits={split: table.splits[split]})
    return table


def _tell_about(table: MixedTable, on_event: Callable[[dict[str, Any]], None] | None) -> None:
    if on_event is not None:
        on_event(
            {
                "event": "table",
                "features": list(table.ranges),
                "ranges": "declared" if table.declared else "records",
                "gaps": table.gaps,
                "texts": list(table.texts),
            }
        )


def _begun_in(out: Path) -> str | None:
    """What simulation was stopped in a folder; None in a new or empty one, and an error in any other."""
    shutil.rmtree(out / _DONE, ignore_errors=True)
    file = out / SIMULATION / _ASKED
    if file.is_file():
        return file.read_text()
    if out.exists() and (not out.is_dir() or any(inside.name != SIMULATION for inside in out.iterdir())):
        raise ConfigError(f"{str(out)!r} is not an empty folder: name another one for the simulation.")
    return None


def _fingerprint(records: EmbeddingSet) -> str:
    digest = hashlib.sha256(records.X.tobytes())
    for column in (records.y, records.subject):
        digest.update(b"" if column is None else np.asarray(column).astype(str).tobytes())
    return digest.hexdigest()


def deal_out(
    records: EmbeddingSet, sites: int, partition: str, alpha: float, attribute: str, rng: np.random.Generator
) -> dict[str, EmbeddingSet]:
    """The records of each site by its name; each has at least ten."""
    if partition == "by-site":
        parts = partition_by(records, attribute)
    elif partition == "iid":
        parts = partition_iid(records, sites, rng)
    elif partition == "dirichlet":
        parts = partition_dirichlet(records, sites, alpha, rng, min_records=_MIN_RECORDS)
    else:
        raise ConfigError(f"`partition` must be iid, dirichlet or by-site; got {partition!r}.")
    if len(parts) < 2:
        raise DataError(f"A federation needs two or more sites; got {len(parts)}.")
    if small := [name for name, part in parts.items() if len(part) < _MIN_RECORDS]:
        raise DataError(
            f"{small[0]!r} has {len(parts[small[0]])} records; a site needs {_MIN_RECORDS}: use fewer sites."
        )
    return parts


@dataclass(frozen=True, slots=True, eq=False)
class PersonalPredictions:
    """Predictions of a site's personal model; private, like the model."""

    classes: tuple[str, ...]
    lam: float
    proba: npt.NDArray[np.float64]
    file: Path | None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON; includes each prediction if no file was written."""
        labels = [self.classes[best] for best in self.proba.argmax(axis=1)]
        out: dict[str, Any] = {
            "classes": list(self.classes),
            "lambda": self.lam,
            "records": len(labels),
            "predicted": dict(Counter(labels)),
            "file": None if self.file is None else str(self.file),
            "notes": list(self.notes),
        }
        if self.file is None:
            out["predictions"] = [
                {"label": label, "probabilities": row} for label, row in zip(labels, self.proba.tolist(), strict=True)
            ]
        return out


def predict_personally(
    site: Path, data: str, *, lam: float | None = None, out: Path | None = None, progress: Progress | None = None
) -> PersonalPredictions:
    """Classify `data` with the personal model of a site after a federation.

    Parameters
    ----------
    site
        Path of the site's `site.toml`.
    data
        File or folder of records; with splits, "test" is used.
    lam
        Replaces the lambda that the site chose: 0 uses only the global head, 1 only the site's own.
    out
        A new .csv file for the predictions, readable only by its owner; None: no file.
    progress
        Called while images are embedded.

    Returns
    -------
    PersonalPredictions
        `classes`, `lam`, `proba` (one row per record), `file`, and `notes` about the model. Private, like the model.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.recipes import predict_personally
    >>> found = predict_personally(Path("site.toml"), "new.npz", out=Path("predictions.csv"))  # doctest: +SKIP
    """
    if lam is not None and not 0 <= lam <= 1:
        raise ConfigError(
            f"lambda must be between 0 and 1; got {lam!r}. 0 uses only the global head, 1 only the site's own."
        )
    model = PersonalModel.open(Site(site).personal_folder)
    records = choose_split(read_sets(data, progress=progress), data, "test")
    check_source(EmbeddingInfo(model.backbone), records.info, "given")
    proba = model.predict_proba(records.X, lam)
    if out is not None:
        if out.exists():
            raise ConfigError(f"{str(out)!r} already exists: name another file.")
        rows = [[str(i), model.classes[int(row.argmax())], *(f"{p:.6g}" for p in row)] for i, row in enumerate(proba)]
        write_private_table(out, ["record", "label", *(f"p({c})" for c in model.classes)], rows)
    notes = tuple(model.notes) if lam is None else ()
    return PersonalPredictions(model.classes, model.lam if lam is None else lam, proba, out, notes)


@dataclass(frozen=True, slots=True)
class MergeSummary:
    """What was merged, and the claim of the result. The release holds all of it too."""

    release: Path
    fingerprint: str
    # "sums": statistics were added up; "mixture": a mixture of decoders.
    how: str
    sites: tuple[dict[str, Any], ...]
    max_sites_per_subject: int
    claim: PrivacyClaim
    classes: tuple[str, ...]
    megabytes: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "release": str(self.release),
            "fingerprint": self.fingerprint,
            "how": self.how,
            "sites": [dict(site) for site in self.sites],
            "max_sites_per_subject": self.max_sites_per_subject,
            "claim": self.claim.to_dict(),
            "classes": list(self.classes),
            "megabytes": round(self.megabytes, 3),
        }


def merge_to_folder(
    paths: Sequence[Path],
    out: Path,
    *,
    max_sites_per_subject: int | None = None,
    weights: Weights = "counts",
    reference: Path | None = None,
    overwrite: bool = False,
) -> MergeSummary:
    """Verify the releases of several sites, merge them and write the result; see `merge_releases`.

    Each must pass `verify_release`: a site that states less than its events cost would make the joint claim false.

    Parameters
    ----------
    paths
        Folders of the releases.
    out
        Folder of the merged release.
    max_sites_per_subject
        At how many sites one subject can have records; None: at all of them. It is part of the claim.
    weights
        "counts": sites count by the noisy counts that they paid for; "equal": all count the same.
    reference
        File of the public statistics of all releases, if they do not ship with Locum: then their sums can be added.
    overwrite
        Replace `out` if it is a release.

    Returns
    -------
    MergeSummary
        `how` they were merged ("sums" or "mixture"), the `sites`, the `claim`, `classes` and size of the result.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, merge_to_folder
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> paths = [fit_release("tumors.npz", Path(f"site-{i}"), no_dp=True, seed=i).release for i in range(2)]
    >>> merge_to_folder(paths, Path("merged")).how
    'mixture'
    """
    check_output_folder(out, overwrite=overwrite)
    if out.resolve() in {path.resolve() for path in paths}:
        raise ConfigError(f"{str(out)!r} is one of the releases to merge: name another folder for the result.")
    for path in paths:
        verify_release(path)
    merged = merge_releases([load(path) for path in paths], max_sites_per_subject, weights, reference)
    merged.save(out, overwrite=overwrite)
    saved = load(out)
    settings = saved.manifest.settings
    return MergeSummary(
        release=out,
        fingerprint=saved.fingerprint or "",
        how=settings["how"],
        sites=tuple(settings["sites"]),
        max_sites_per_subject=settings["max_sites_per_subject"],
        claim=saved.claim,
        classes=saved.manifest.class_names,
        megabytes=sum(entry.bytes for entry in saved.manifest.files.values()) / 1e6,
    )
