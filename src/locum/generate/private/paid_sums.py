"""Noisy sums that are drawn one after the other and were paid for as a whole.

The filter is here: no sequence of draws, whatever it depends on, gets more precision than the plan has.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum._version import __version__
from locum.accounting import Charge, Ledger, QueryPlan
from locum.errors import CheckpointError, ConfigError, PrivacyError
from locum.io import private_folder, write_bytes
from locum.mechanisms import ExactSums, check_noise, noisy
from locum.release import transcript_hash

Array = npt.NDArray[np.float64]

# Shares are floating-point numbers: their sum may exceed 1 by less than this, and each draw gets more noise by it.
_SLACK = 1e-9


class PaidSums:
    """Noisy sums within one payment, and the file from which a killed fit resumes without a second payment.

    Each sum gets a share of the precision that the plan paid for; which sums come next, and their shares, may depend
    on the results so far. The results are private until they are released.

    Parameters
    ----------
    plan
        What is paid for.
    ledger
        The ledger that pays; None with an insecure seed: nothing is paid and nothing claimed.
    holding
        The name of the data in the ledger.
    purpose
        What the work is for, in a few words.
    insecure_seed
        A seed for the noise, for tests.
    checkpoint
        A file that keeps the payment's name and the results so far, with mode 0600; None: a killed fit pays again.
    identity
        A hash of settings and records: the file of another fit is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.accounting import plan_query
    >>> from locum.generate.private import PaidSums
    >>> from locum.mechanisms import ExactSums
    >>> from locum.types import DP
    >>> paid = PaidSums(plan_query(DP(1.0, 1e-6), sums=2), None, "scans", "an example", insecure_seed=0)
    >>> sums = ExactSums(np.full(3, 2.0**-30))
    >>> paid.draw(lambda: sums, share=0.5).shape, paid.left
    ((3,), 0.5)
    """

    def __init__(
        self,
        plan: QueryPlan,
        ledger: Ledger | None,
        holding: str,
        purpose: str,
        *,
        insecure_seed: int | None = None,
        checkpoint: Path | None = None,
        identity: str = "",
    ) -> None:
        if (ledger is None) != (insecure_seed is not None):
            raise PrivacyError("Noisy sums are paid from a ledger, or drawn with an insecure seed for a test.")
        self.plan, self._ledger, self._insecure_seed = plan, ledger, insecure_seed
        # A test costs nothing, so it keeps nothing.
        self._file = None if ledger is None else checkpoint
        self._identity, self._name = identity, secrets.token_hex(16)
        self._drawn: list[_Drawn] = []
        self._used = 0
        self.charge: Charge | None = None
        if ledger is not None:
            # Before the payment: what is refused later would be paid for nothing.
            check_noise(plan.noise_multiplier)
            known = self._load()
            # The name is on disk before the payment, so that a kill in between cannot pay twice.
            self._save()
            try:
                self.charge = ledger.charge(
                    holding,
                    plan.events,
                    delta=plan.privacy.delta,
                    purpose=purpose,
                    within=plan.privacy.epsilon,
                    identity=self._name,
                )
            except PrivacyError:
                if self._file is not None and not known:
                    self._file.unlink(missing_ok=True)
                raise

    @property
    def left(self) -> float:
        """The share of the precision that is not used yet."""
        return max(0.0, 1 - math.fsum(one.share for one in self._drawn[: self._used]))

    @property
    def transcript(self) -> npt.NDArray[np.float32]:
        """All results so far, one after the other, as a release holds them."""
        return np.concatenate([*(one.result for one in self._drawn[: self._used]), np.zeros(0, np.float32)])

    def draw(self, sums: Callable[[], ExactSums], share: float) -> Array:
        """The next sums with noise, rounded to 32 bits; `sums` is not called if an earlier process drew them.

        Parameters
        ----------
        sums
            Gives sums that one unit moves by at most 1 in L2, whatever was drawn before.
        share
            The share of the plan's precision, above 0.

        Returns
        -------
        ndarray
            The noisy sums, each with noise of the plan's multiplier over the root of `share`.

        Raises
        ------
        PrivacyError
            If so much precision, or one more sum, is not paid for.
        """
        number = self._used
        shares = [*(one.share for one in self._drawn[:number]), share]
        if not 0 < share <= 1 or math.fsum(shares) > 1 + _SLACK or number >= self.plan.sums:
            raise PrivacyError(
                f"Sum {number + 1} with {share:.3g} of the precision is not paid for: {self.left:.3g} is left, and "
                f"{self.plan.sums} sums were planned."
            )
        if number == len(self._drawn):
            self._check_not_drawn(number)
            noise = self.plan.noise_multiplier / math.sqrt(share) * (1 + _SLACK)
            found = noisy(sums(), noise, insecure_seed=self._insecure_seed, step=number)
            # Rounding after the noise costs nothing.
            self._drawn.append(_Drawn(share, found.to_array().astype(np.float32)))
            self._save()
        elif self._drawn[number].share != share:
            raise CheckpointError(
                f"Sum {number + 1} was drawn with {self._drawn[number].share:.6g} of the precision, not with "
                f"{share:.6g}: the checkpoint {str(self._file)!r} is of another version. Remove it to pay again."
            )
        self._used += 1
        result = self._drawn[number].result
        if self._ledger is not None and self.charge is not None:
            # A copy of the file cannot draw the same sum twice: the ledger knows the first result.
            self._ledger.finish(self.charge, transcript_hash(result), _part(number))
        return result.astype(np.float64)

    def _check_not_drawn(self, number: int) -> None:
        """Draw nothing that was drawn before: a file that lacks it is an old copy."""
        if self._ledger is None or self.charge is None:
            return
        if _part(number) in self._ledger.results(self.charge):
            raise PrivacyError(
                f"The ledger knows a result that the checkpoint {str(self._file)!r} lacks: it is an old copy. Put "
                "the newest one back, or remove it to pay again."
            )

    def finish(self) -> npt.NDArray[np.float32]:
        """Note the hash of the whole transcript before anything is made from it, and return it."""
        if self._ledger is not None and self.charge is not None:
            self._ledger.finish(self.charge, transcript_hash(self.transcript))
        return self.transcript

    def _save(self) -> None:
        if self._file is None:
            return
        from safetensors.numpy import save

        tensors = {f"{number:04d}": one.result for number, one in enumerate(self._drawn)}
        shares = json.dumps([one.share for one in self._drawn])
        raw = save(tensors, metadata={"identity": self._identity, "charge": self._name, "shares": shares})
        try:
            private_folder(self._file.parent)
            write_bytes(self._file, raw)
        except OSError as error:
            raise ConfigError(
                f"The checkpoint {str(self._file)!r} cannot be written: {error.strerror}. Choose another file."
            ) from error

    def _load(self) -> bool:
        """Take over what an earlier process left; False if there is nothing."""
        if self._file is None or not self._file.exists():
            return False
        from safetensors import SafetensorError, safe_open

        damaged = f"The checkpoint {str(self._file)!r} is damaged: remove it to pay again."
        try:
            with safe_open(self._file, framework="np") as opened:
                known = opened.metadata() or {}
                results = [opened.get_tensor(name) for name in sorted(opened.keys())]
            shares = [float(share) for share in json.loads(known.get("shares", "[]"))]
        except (SafetensorError, OSError, ValueError, TypeError) as error:
            raise CheckpointError(damaged) from error
        if known.get("identity") != self._identity or not known.get("charge"):
            raise CheckpointError(
                f"The checkpoint {str(self._file)!r} belongs to other data or settings: remove it, or name another "
                "file."
            )
        if len(shares) != len(results) or any(one.ndim != 1 or one.dtype != np.float32 for one in results):
            raise CheckpointError(damaged)
        self._name = known["charge"]
        self._drawn = [_Drawn(share, result) for share, result in zip(shares, results, strict=True)]
        return True


@dataclass(frozen=True, slots=True, eq=False)
class _Drawn:
    """One noisy result, and the share of the precision that it was drawn with."""

    share: float
    result: npt.NDArray[np.float32]


def _part(number: int) -> str:
    """By which the ledger knows a draw."""
    return f"steps {number} to {number + 1}"


def identity_of(settings: Mapping[str, Any], *arrays: npt.NDArray[Any] | None) -> str:
    """A hash that identifies a fit by its settings, its records and the version. It stays local."""
    digest = hashlib.sha256(json.dumps([__version__, dict(settings)], sort_keys=True, default=str).encode())
    for array in arrays:
        if array is not None:
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
