"""A named body of data, its budget, and what has been spent of it."""

from __future__ import annotations

import math
import shlex
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from locum.accounting.events import Event
from locum.errors import ConfigError, PrivacyError
from locum.types import DP, Relation, Unit, at_least, at_most


@dataclass(frozen=True, slots=True)
class Charge:
    """One payment from the budget of a holding, as `Ledger.charge` returns it.

    Attributes
    ----------
    identity
        Random name of the payment: 32 hexadecimal digits.
    holding
        Name of the holding that paid.
    epsilon, delta
        What was paid.
    events
        What was paid for.
    purpose
        What the work was for, in a few words.
    tip
        The ledger's hash right after the payment.

    Examples
    --------
    >>> from locum.accounting import Gaussian, Ledger
    >>> ledger = Ledger("charge.sqlite")
    >>> opened = ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
    >>> paid = ledger.charge("scans", [Gaussian(5.0)], delta=1e-6, purpose="means")
    >>> paid.purpose, round(paid.epsilon, 2)
    ('means', 0.83)
    """

    identity: str
    holding: str
    epsilon: float
    delta: float
    events: tuple[Event, ...]
    purpose: str
    tip: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A named body of data: one unit, one relation, one budget, and what has been spent of it.

    Epsilons and deltas add up: this is valid even if each fit was chosen after a look at the last (docs/adr/0013).
    Sums are exact, over the decimal figures as they are written: ten charges of 0.1 fit a budget of 1.

    Parameters
    ----------
    name
        Name of the data.
    unit
        What is hidden: a "record", or a "subject" with all of its records.
    relation
        What neighbors are: "add-or-remove" or "replace-one" (see `DP`).
    epsilon, delta
        The budget for all charges together.
    charges
        What was paid so far.

    Examples
    --------
    >>> from locum.accounting import Charge, Gaussian, Holding
    >>> paid = Charge("1", "scans", 0.75, 1e-6, (Gaussian(5.0),), "means", tip="")
    >>> Holding("scans", "record", "add-or-remove", 2.0, 1e-5, (paid,)).left
    (1.25, 9e-06)
    """

    name: str
    unit: Unit
    relation: Relation
    epsilon: float
    delta: float
    charges: tuple[Charge, ...] = ()

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta so far."""
        epsilon, delta = self._spent()
        return float(epsilon), float(delta)

    @property
    def left(self) -> tuple[float, float]:
        """What may still be spent, never below 0; rounded down, so that all of it can be asked for."""
        epsilon, delta = self._spent()
        return _below(_exact(self.epsilon) - epsilon), _below(_exact(self.delta) - delta)

    def check(self, charge: Charge, ledger: Path | None = None) -> None:
        """Refuse a charge that exceeds what is left; the error says how much that is, and in which ledger."""
        epsilon, delta = self._spent()
        if (
            not math.isfinite(charge.epsilon)
            or epsilon + _exact(charge.epsilon) > _exact(self.epsilon)
            or delta + _exact(charge.delta) > _exact(self.delta)
        ):
            raise PrivacyError(
                f"The budget of {self.name!r} does not allow this: epsilon {at_least(charge.epsilon)} and delta "
                f"{at_least(charge.delta)} are asked for, {left_in_words(self.left, charge.epsilon, charge.delta)}. "
                f"{ways_out(ledger, spent=is_spent(self.left, charge.epsilon, charge.delta))}"
            )

    def check_terms(self, dp: DP) -> None:
        """Refuse another unit or another relation: what is hidden would differ from charge to charge."""
        if (self.unit, self.relation) != (dp.unit, dp.relation):
            raise PrivacyError(
                f"The holding {self.name!r} counts by {self.unit} and {self.relation}; got {dp.unit} and "
                f"{dp.relation}. The two cannot be mixed in one budget, and another holding would be a second budget "
                f"for the same people: ask for {self.unit} and {self.relation}."
            )

    def _spent(self) -> tuple[Fraction, Fraction]:
        epsilon = sum((_exact(c.epsilon) for c in self.charges), Fraction(0))
        return epsilon, sum((_exact(c.delta) for c in self.charges), Fraction(0))


def left_in_words(left: tuple[float, float], epsilon: float, delta: float) -> str:
    """What is left of a budget; less than a thousandth of what is asked for is nothing, as rounding leaves it.

    Parameters
    ----------
    left
        Epsilon and delta that are left.
    epsilon, delta
        What is asked for.

    Returns
    -------
    str
        Part of a sentence.

    Examples
    --------
    >>> from locum.accounting import left_in_words
    >>> left_in_words((3.2e-08, 0.0), 1.0, 1e-06), left_in_words((0.5, 0.0), 1.0, 1e-06)
    ('nothing is left', 'epsilon 0.5 and no delta are left')
    """
    if is_spent(left, epsilon, delta):
        return "nothing is left"
    words = []
    for name, rest, asked in (("epsilon", left[0], epsilon), ("delta", left[1], delta)):
        words.append(f"no {name}" if _is_nothing(rest, asked) else f"{name} {at_most(rest)}")
    return f"{' and '.join(words)} are left"


def is_spent(left: tuple[float, float], epsilon: float, delta: float) -> bool:
    """Whether nothing is left of a budget but what rounding leaves.

    Parameters
    ----------
    left
        Epsilon and delta that are left.
    epsilon, delta
        What is asked for.

    Returns
    -------
    bool
        True if both are less than a thousandth of what is asked for.

    Examples
    --------
    >>> from locum.accounting import is_spent
    >>> is_spent((3.2e-08, 0.0), 1.0, 1e-06), is_spent((0.5, 0.0), 1.0, 1e-06)
    (True, False)
    """
    return _is_nothing(left[0], epsilon) and _is_nothing(left[1], delta)


def left_figures(left: tuple[float, float], budget: tuple[float, float]) -> str:
    """What is left of a budget, rounded down; less than a thousandth of it is nothing, as rounding leaves it.

    Parameters
    ----------
    left
        Epsilon and delta that are left.
    budget
        Epsilon and delta of the whole budget.

    Returns
    -------
    str
        Epsilon / delta.

    Examples
    --------
    >>> from locum.accounting import left_figures
    >>> left_figures((3.2e-08, 0.0), (1.0, 1e-06)), left_figures((0.5, 1e-07), (1.0, 1e-06))
    ('0 / 0', '0.5 / 1e-07')
    """
    return " / ".join(
        at_most(0.0 if _is_nothing(rest, whole) else rest) for rest, whole in zip(left, budget, strict=True)
    )


def _is_nothing(rest: float, whole: float) -> bool:
    """Whether what is left is only what rounding leaves: less than a thousandth."""
    return rest <= 0 or (math.isfinite(whole) and rest < whole / 1000)


def ways_out(ledger: Path | None = None, *, spent: bool = False) -> str:
    """What someone whose budget does not allow a fit can do.

    Parameters
    ----------
    ledger
        Its file; None: not known.
    spent
        Nothing is left, so that it would not help to ask for less.

    Returns
    -------
    str
        Two sentences.

    Examples
    --------
    >>> from locum.accounting import ways_out
    >>> ways_out().split(".")[0]
    '`locum ledger show` lists what spent it'
    """
    named = "" if ledger is None else f" --ledger {shlex.quote(str(ledger))}"
    first = "Use the release that was made" if spent else "Ask for less"
    return (
        f"`locum ledger show{named}` lists what spent it. {first}; name another holding with --holding if these "
        "are data of other people; or raise the budget with `locum ledger set-budget`, if that is yours to decide."
    )


def check_name(name: str) -> None:
    """Refuse a name that people could not tell from another, or not type.

    Parameters
    ----------
    name
        Name of a holding.

    Raises
    ------
    ConfigError
        If it is empty, longer than 100 letters, not printable, or begins or ends with a blank.

    Examples
    --------
    >>> from locum.accounting import check_name
    >>> check_name("scans")
    """
    if not name or len(name) > 100 or not name.isprintable() or name != name.strip():
        raise ConfigError(f"A holding needs a printable name of up to 100 letters; got {name[:100]!r}.")


def same_name(name: str, others: Iterable[str]) -> None:
    """Refuse a new name that looks like a known one: a slip of the pen must not open a second budget."""
    for other in others:
        if _looks(other) == _looks(name):
            raise ConfigError(
                f"The ledger has a holding {other!r} already; got {name!r}, which looks the same: use the known name."
            )


def _exact(value: float) -> Fraction:
    return Fraction(repr(value))


def _below(exact: Fraction) -> float:
    if exact <= 0:
        return 0.0
    near = float(exact)
    return near if _exact(near) <= exact else math.nextafter(near, 0.0)


def _looks(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()
