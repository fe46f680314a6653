"""Names of columns that say whose a record is: one list, for everything that reads tables."""

from __future__ import annotations

import re

SUBJECT_COLUMNS = ("subject", "patient", "patient_id")
_SEEMS = re.compile(
    r"(^|[_\W])(patient|subject|person|mrn)s?[_\W]?(id|ids|nr|nbr|no|num|number|name|key|code)?$", re.IGNORECASE
)


def seems_subject(name: str) -> bool:
    """Whether a column of this name probably says whose a record is, as `patient_nbr` does.

    Such a column that nobody declared would become a feature, and the records of one person would count as those of
    several: ask, and do not guess.

    Parameters
    ----------
    name
        Of the column.

    Returns
    -------
    bool
        True also for the names that are always read so: `subject`, `patient` and `patient_id`.

    Examples
    --------
    >>> from locum.types import seems_subject
    >>> [name for name in ("age", "patient_nbr", "patient_age") if seems_subject(name)]
    ['patient_nbr']
    """
    return name.lower() in SUBJECT_COLUMNS or _SEEMS.search(name) is not None
