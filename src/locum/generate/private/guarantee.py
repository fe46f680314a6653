"""The guarantee of a generator: what differential privacy needs before a fit, how it is paid, and the claim."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from locum.accounting import Charge, events_to_json
from locum.data import Reference
from locum.errors import ConfigError, PrivacyError
from locum.types import DP, DPClaim, PrivacyClaim

if TYPE_CHECKING:
    from locum.accounting import Ledger

# What a test does not cover.
TEST = "everything: made with an insecure seed, so anyone can repeat its random numbers"
# What no private fit covers.
NOT_COVERED = (
    "the fact that the data passed the checks before the fit: two records or more, finite numbers, labels from "
    "`classes`, a subject for every record where subjects are the unit, at most 1 / (10 delta) units and 16 million "
    "records",
    "the values of epsilon, delta, `n_public` and `classes`: chosen by the holder, not hidden",
)
# What a fit does not cover if somebody looked at previews on the records before it (`Ledger.note_look`).
LOOKED = "settings were chosen after previews on the records"
# Sums of so many contributions fit into 64-bit integers.
MOST_ROWS = 2**24
# What training a network does not cover; sums are integers, and noise on them is drawn on a grid.
FLOATING = "floating point: noise on gradients is rounded to 53 bits, not drawn on a grid"


def rounded_shares(shares: npt.NDArray[np.float64]) -> tuple[tuple[tuple[int], float], ...]:
    """Noisy class frequencies as a release holds them: rounded to three digits, and none is 0.

    Parameters
    ----------
    shares
        The frequency of each class; they sum to 1.

    Returns
    -------
    tuple
        One pair per class: its code in a tuple, and its frequency.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate.private import rounded_shares
    >>> rounded_shares(np.array([0.7004, 0.2996]))
    (((0,), 0.7), ((1,), 0.3))
    """
    rounded = np.maximum(np.round(1000 * shares), 1)
    return tuple(((c,), float(p)) for c, p in enumerate(rounded / rounded.sum()))


def reference_settings(reference: Reference) -> dict[str, str]:
    """Settings of a release that name the public statistics in use.

    Parameters
    ----------
    reference
        The public statistics.

    Returns
    -------
    dict
        "reference", its name, and "reference_source", where it comes from.

    Examples
    --------
    >>> from locum.data import load_reference
    >>> from locum.generate.private import reference_settings
    >>> reference_settings(load_reference("none", 3))
    {'reference': 'none', 'reference_source': 'none'}
    """
    return {"reference": reference.name, "reference_source": reference.source}


def subjects(subject: Any) -> npt.NDArray[np.int64]:
    """Subjects as integers; a missing subject is an error.

    Parameters
    ----------
    subject
        The subject of each record: text or numbers. Subjects with the same text are the same.

    Returns
    -------
    ndarray of shape (n,)
        Whole numbers from 0, in the order of first appearance.

    Raises
    ------
    PrivacyError
        If a subject is None, NaN or blank: two subjects without a name would count as one.

    Examples
    --------
    >>> from locum.generate.private import subjects
    >>> subjects(["p7", "p2", "p7"]).tolist()
    [0, 1, 0]
    """
    place: dict[str, int] = {}
    entries = one_by_one(subject)
    out = np.empty(len(entries), dtype=np.int64)
    for i, who in enumerate(entries.tolist()):
        name = str(who)
        # Two subjects without a name would count as one and move the sums by more than one subject may.
        if _is_missing(who) or not name.strip():
            raise PrivacyError("The unit `subject` needs a subject for every record; one is missing.")
        out[i] = place.setdefault(name, len(place))
    return out


def _is_missing(who: Any) -> bool:
    try:
        return who is None or bool(who != who)
    except TypeError:
        # Pandas' NA is neither equal to itself nor unequal.
        return True


def one_by_one(subject: Any) -> npt.NDArray[Any]:
    """Subjects as an array of objects, none of which another one can change.

    A common type for all entries would do that: whole numbers beside one fraction become floating-point numbers, and
    long ones among them become equal.
    """
    if getattr(getattr(subject, "dtype", None), "kind", None) == "f":
        raise PrivacyError(
            "Subjects and attributes must be text or whole numbers; got an array of floating-point numbers, in which "
            "long numbers can become equal. Read the column as text."
        )
    entries = subject.tolist() if isinstance(subject, np.ndarray) else list(subject)
    out = np.empty(len(entries), dtype=object)
    for i, entry in enumerate(entries):
        out[i] = entry
    return out


class Guarantee:
    """Mixin for generators with a `privacy` setting: checks, payment and claim."""

    privacy: DP | None
    classes: Sequence[Any] | None
    ledger: str | Path | None
    holding: str
    insecure_seed: int | None
    # What the last fit paid.
    _charge: Charge | None = None
    # Whether this generator can be fitted with differential privacy, and whether its plan then needs `n_public`.
    _SUPPORTS_DP = False
    _NEEDS_SIZE = True
    # Whether `condition_values` declares the values of its conditions.
    _DECLARES_VALUES = False

    def _check_privacy(self, subject: Any) -> None:
        """Check everything that a guarantee needs, before any record is used."""
        name = type(self).__name__
        if self.privacy is None:
            return
        if not isinstance(self.privacy, DP):
            raise ConfigError(f"`privacy` must be None or DP(epsilon, delta); got {self.privacy!r}.")
        if not self._SUPPORTS_DP:
            raise PrivacyError(
                f"{name} does not support differential privacy: use ClassGaussian, CVAEGenerator or CGANGenerator, "
                "or privacy=None."
            )
        if self._NEEDS_SIZE:
            self.privacy.size()
        if getattr(self, "classes", None) is None:
            raise PrivacyError(
                "Under differential privacy the set of classes is private too: name all classes that can occur with "
                "`classes` (--classes); a class may be empty."
            )
        if getattr(self, "condition_on", None) and not self._DECLARES_VALUES:
            raise PrivacyError(
                f"Under differential privacy {name} takes no `condition_on`, which would reveal the values that "
                "occur: leave it out, or use ClassGaussian, where they are declared."
            )
        if self.privacy.unit == "subject" and subject is None:
            raise PrivacyError("The unit `subject` needs `subject`: say which records belong together.")

    def _check_size(self, records: int, units: int) -> None:
        """Refuse more records than sums can hold, and so many units that `delta` would allow publishing some."""
        if records > MOST_ROWS:
            raise ConfigError(f"A private fit takes up to {MOST_ROWS} records: leave some out.")
        if self.privacy is not None and self.privacy.delta > 1 / (10 * units):
            # A power of ten: the delta becomes public, and must not tell the number.
            declared = 10.0 ** math.floor(math.log10(1 / (10 * units)))
            raise PrivacyError(
                f"A delta of {self.privacy.delta:g} is too large for so many {self.privacy.unit}s, since it must be "
                f"at most 1 / (10 n): declare a delta of {declared:g} or less (--delta {declared:g})."
            )

    def _budget(self) -> DP:
        """The budget; an error if there is none."""
        if self.privacy is None:
            raise ConfigError("A plan needs a budget: set `privacy=DP(...)`.")
        self._check_privacy(())
        return self.privacy

    @contextmanager
    def _open_ledger(self) -> Iterator[Ledger | None]:
        """The ledger that pays; None with an insecure seed, which gives no guarantee."""
        from locum.accounting import Ledger

        if self.insecure_seed is not None:
            yield None
            return
        if self.ledger is None:
            raise PrivacyError(
                "A guarantee is paid from the ledger of the data: pass its place with `ledger`, for instance "
                "locum.ledger_for('scans.npz'), or `data.info.ledger` for images that you embedded."
            )
        with Ledger(self.ledger) as ledger:
            ledger.open_for(self._budget(), self.holding)
            yield ledger

    def _bind(self, fingerprint: str) -> None:
        """Note in the ledger which release the charge paid for."""
        if self._charge is not None:
            with self._open_ledger() as ledger:
                assert ledger is not None
                ledger.bind(self._charge, fingerprint)

    def _subjects(self, subject: npt.NDArray[Any] | None) -> npt.NDArray[np.int64] | None:
        """Subjects as integers if the unit is `subject`, else None."""
        if self._budget().unit != "subject":
            return None
        return subjects(subject)

    def _dp_claim(self, charge: Charge | None, *not_covered: str) -> PrivacyClaim:
        """The claim that the charge paid for; it says if previews on the records were noted in the ledger."""
        assert self.privacy is not None
        self._charge = charge
        outside = not_covered
        if self.privacy.unit == "record":
            outside = ("subjects with several records: the guarantee is about one record each", *outside)
        if charge is None:
            # The unit all the same: attacks add up a subject's records as the release did.
            return PrivacyClaim("none", (TEST, *outside), test=True, unit=self.privacy.unit)
        with self._open_ledger() as ledger:
            assert ledger is not None
            if ledger.looks():
                outside = (*outside, LOOKED)
        paid = DPClaim(
            charge.epsilon, charge.delta, self.privacy.relation, tuple(events_to_json(charge.events)), charge.tip
        )
        return PrivacyClaim("dp", outside, unit=self.privacy.unit, dp=paid)
