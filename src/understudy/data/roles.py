"""What the columns of a table mean, told from their names alone."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from understudy.data.arrays import ATTRIBUTE
from understudy.errors import DataError

__all__ = ["LABELS", "SUBJECTS", "Roles", "find_roles", "guess_label"]

LABELS = ("label", "y", "target", "class")
SUBJECTS = ("subject", "patient", "patient_id")

# A person's number that nobody declared would become a feature, or be split apart: ask instead.
_PERSON = re.compile(r"(^|[_\W])(patient|subject)s?[_\W]?(id|ids|nr|no|num|number|name|key|code)?$", re.IGNORECASE)
_NUMBERED = re.compile(r"^(\D*)\d+$")


@dataclass(frozen=True, slots=True)
class Roles:
    """Columns by what they mean; `rest` holds those that the names leave open."""

    label: str | None
    subject: str | None
    split: str | None
    attributes: dict[str, str]
    rest: tuple[str, ...]


def find_roles(names: Sequence[str], path: str) -> Roles:
    """Label, subject, split and `attr_...` columns; capitals do not matter."""
    twice = sorted({n for n in names if list(names).count(n) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(f"{path} has two columns called `{twice[0]}`: rename one.")
    attributes = {n.removeprefix(ATTRIBUTE): n for n in names if n.startswith(ATTRIBUTE) and len(n) > len(ATTRIBUTE)}
    free = [n for n in names if n not in attributes.values()]
    label = _only(free, LABELS, "labels", path)
    subject = _only(free, SUBJECTS, "subjects", path)
    split = _only(free, ("split",), "splits", path)
    rest = tuple(n for n in free if n not in (label, subject, split))
    for name in rest:
        if _PERSON.search(name):
            raise DataError(
                f"Column `{name}` of {path} seems to say who a record belongs to: rename it to `subject`, "
                f"or to `{ATTRIBUTE}{name}` if it does not."
            )
    return Roles(label, subject, split, attributes, rest)


def guess_label(roles: Roles, names: Sequence[str], path: str) -> Roles:
    """The same roles with the last column as label where no name says so.

    Refused where the last column plainly is something else: one of many numbered features, or a
    subject, a split or an attribute.
    """
    if roles.label is not None:
        return roles
    last = names[-1]
    number = _NUMBERED.match(last)
    series = number is not None and sum(_series(n) == number.group(1) for n in roles.rest) > 1
    if last not in roles.rest or series or len(roles.rest) < 2:
        raise DataError(f"{path} has vectors but no labels: name the column of classes `label`.")
    return Roles(last, roles.subject, roles.split, roles.attributes, roles.rest[:-1])


def _series(name: str) -> str | None:
    found = _NUMBERED.match(name)
    return None if found is None else found.group(1)


def _only(names: Collection[str], wanted: Sequence[str], what: str, path: str) -> str | None:
    found = [n for n in names if n.lower() in wanted]
    if len(found) > 1:
        raise DataError(
            f"Both `{found[0]}` and `{found[1]}` of {path} could hold the {what}: "
            f"rename one, for example to `{ATTRIBUTE}{found[1]}`."
        )
    return found[0] if found else None
