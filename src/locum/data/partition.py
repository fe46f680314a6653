"""Partitions of one data set into sites, to simulate federated learning."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from locum.data.splits import class_table, units
from locum.errors import ConfigError, DataError
from locum.types import EmbeddingSet

Index = npt.NDArray[np.int64]

_TRIES = 20


def partition_iid(data: EmbeddingSet, sites: int, rng: np.random.Generator) -> dict[str, EmbeddingSet]:
    """Sites "site-0", "site-1", ... that are random samples of one population.

    Sizes differ by at most one record. With subjects, each subject is at one site, and sizes differ
    by at most the records of one subject.

    Parameters
    ----------
    data
        Data to divide; at least one record, or one subject, per site.
    sites
        Number of sites, 1 or more.
    rng
        Chooses the records.

    Returns
    -------
    dict of str to EmbeddingSet
        The records of each site, by its name; each record is at exactly one.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, partition_iid
    >>> [len(s) for s in partition_iid(load_sample("digits"), 4, np.random.default_rng(0)).values()]
    [450, 449, 449, 449]
    """
    unit = units(data)
    size = np.bincount(unit)
    _check_sites(sites, size, data, least=1)
    shuffled = rng.permutation(len(size))
    site = np.empty(len(size), dtype=np.int64)
    if data.subject is None:
        site[shuffled] = np.arange(len(size)) % sites
    else:
        load = np.zeros(sites, dtype=np.int64)
        for u in shuffled[np.argsort(-size[shuffled], kind="stable")]:
            site[u] = np.argmin(load)
            load[site[u]] += size[u]
    return _sites(data, site[unit], sites)


def partition_dirichlet(
    data: EmbeddingSet, sites: int, alpha: float, rng: np.random.Generator, *, min_records: int = 1
) -> dict[str, EmbeddingSet]:
    """Sites "site-0", "site-1", ... with different class frequencies; the smaller `alpha`, the more they differ.

    Each class is divided by a draw from a symmetric Dirichlet distribution. With subjects, each subject is at one
    site, and counts toward the class of most of its records.

    Parameters
    ----------
    data
        Data to divide.
    sites
        Number of sites, 1 or more.
    alpha
        Above 0: 0.1 gives sites with one or two classes, 100 nearly equal class frequencies.
    rng
        Draws shares and records.
    min_records
        No site gets fewer. Shares are redrawn a few times to reach this; after that, records move
        from the largest sites to those with too few, which makes the sites more alike.

    Returns
    -------
    dict of str to EmbeddingSet
        The records of each site, by its name; each record is at exactly one.

    Raises
    ------
    DataError
        If there are too few records or subjects for so many sites.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import load_sample, partition_dirichlet
    >>> parts = partition_dirichlet(load_sample("digits"), 3, 0.5, np.random.default_rng(0), min_records=50)
    >>> sum(len(p) for p in parts.values()), min(len(p) for p in parts.values()) >= 50
    (1797, True)
    """
    if not 0 < alpha < float("inf"):
        raise ConfigError(f"`alpha` must be above 0; got {alpha!r}. Small values make sites differ more.")
    if min_records < 1:
        raise ConfigError(f"`min_records` must be 1 or more; got {min_records!r}.")
    unit = units(data)
    table = class_table(unit, data)
    size = table.sum(axis=1)
    _check_sites(sites, size, data, least=min_records)
    kind = np.argmax(table, axis=1)
    for _ in range(_TRIES):
        site = _draw(kind, size, sites, alpha, rng)
        if np.bincount(site, weights=size, minlength=sites).min() >= min_records:
            break
    else:
        _repair(site, size, sites, min_records, rng)
    return _sites(data, site[unit], sites)


def partition_by(data: EmbeddingSet, attribute: str) -> dict[str, EmbeddingSet]:
    """Sites by the values of an attribute, such as the hospital of each record.

    Sites are as in the data: small sites stay small, and a subject with records at two sites is at both.

    Parameters
    ----------
    data
        Data to divide.
    attribute
        Name of one of `data.attributes`.

    Returns
    -------
    dict of str to EmbeddingSet
        The records of each site, by the value of the attribute.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.data import partition_by
    >>> from locum.types import EmbeddingSet
    >>> data = EmbeddingSet.from_arrays(np.eye(3), [0, 1, 0], attributes={"site": ["Bonn", "Kyiv", "Kyiv"]})
    >>> {name: len(part) for name, part in partition_by(data, "site").items()}
    {'Bonn': 1, 'Kyiv': 2}
    """
    if attribute not in data.attributes:
        known = ", ".join(repr(k) for k in data.attributes) or "none"
        raise DataError(f"There is no attribute {attribute!r}; these data have {known}.")
    values = data.attributes[attribute]
    if values.dtype.kind == "S":
        values = values.astype(np.str_)
    return {str(v): data.take(np.flatnonzero(values == v)) for v in np.unique(values)}


def _check_sites(sites: int, size: Index, data: EmbeddingSet, least: int) -> None:
    if sites < 1:
        raise ConfigError(f"`sites` must be 1 or more; got {sites!r}.")
    if len(size) < sites:
        what = "records" if data.subject is None else "subjects"
        raise DataError(f"{sites} sites need at least {sites} {what}; got {len(size)}: ask for fewer sites.")
    if len(data) < sites * least:
        raise DataError(
            f"{sites} sites of {least} records or more need {sites * least} records; got {len(data)}: "
            f"ask for fewer sites or lower `min_records`."
        )


def _draw(kind: Index, size: Index, sites: int, alpha: float, rng: np.random.Generator) -> Index:
    """A site for each unit: its position along its class, in records, falls into the share of one site."""
    site = np.empty(len(kind), dtype=np.int64)
    for c in np.unique(kind):
        members = rng.permutation(np.flatnonzero(kind == c))
        ends = np.cumsum(rng.dirichlet(np.full(sites, alpha)))
        place = (np.cumsum(size[members]) - size[members] / 2) / size[members].sum()
        # Rounding may leave the sum of the shares slightly below 1.
        site[members] = np.minimum(np.searchsorted(ends, place, side="right"), sites - 1)
    return site


def _repair(site: Index, size: Index, sites: int, least: int, rng: np.random.Generator) -> None:
    """Move random units from the largest sites to those below `least`, without taking any site below it."""
    load = np.bincount(site, weights=size, minlength=sites).astype(np.int64)
    while load.min() < least:
        poor = int(np.argmin(load))
        for rich in np.argsort(-load, kind="stable"):
            able = np.flatnonzero((site == rich) & (size <= load[rich] - least))
            if rich != poor and len(able):
                break
        else:
            raise DataError(
                f"{sites} sites of {least} records or more cannot be made without splitting a subject: "
                f"ask for fewer sites or lower `min_records`."
            )
        moved = rng.choice(able)
        site[moved] = poor
        load[rich] -= size[moved]
        load[poor] += size[moved]


def _sites(data: EmbeddingSet, site: Index, sites: int) -> dict[str, EmbeddingSet]:
    return {f"site-{i}": data.take(np.flatnonzero(site == i)) for i in range(sites)}
