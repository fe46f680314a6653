"""Noisy sums that are drawn one after the other and were paid for as a whole.

The filter is here: no sequence of draws, whatever it depends on, gets more precision than the plan has.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from locum.accounting import Charge, Ledger, QueryPlan
from locum.errors import CheckpointError, ConfigError, PrivacyError
from locum.io import private_folder, write_bytes
from locum.mechanisms import ExactSums, noisy
from locum.release import transcript_hash

Array = npt.NDArray[np.float64]

# Shares are floating-point numbers: their sum may exceed 1 by less than this, and each draw gets more noise by it.
_SLACK = 1e-9


class PaidSums:
    """Noisy sums within one payment, and the file from which a killed fit goes on without a second payment.

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
        self._identity, self._results = identity, _Results("", [])
        self._shares: list[float] = []
        self.charge: Charge | None = None
        if ledger is not None:
            self._results = self._load() or _Results(secrets.token_hex(16), [])
            # The name is on disk before the payment, so that a kill in between cannot pay twice.
            self._save()
            self.charge = ledger.charge(
                holding,
                plan.events,
                delta=plan.privacy.delta,
                purpose=purpose,
                within=plan.privacy.epsilon,
                identity=self._results.charge,
            )

    @property
    def left(self) -> float:
        """The share of the precision that is not used yet."""
        return max(0.0, 1 - math.fsum(self._shares))

    @property
    def transcript(self) -> npt.NDArray[np.float32]:
        """All results so far, one after the other, as a release holds them."""
        return np.concatenate([*self._results.drawn[: len(self._shares)], np.zeros(0, np.float32)])

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
        """
        number = len(self._shares)
        if not 0 < share <= 1 or math.fsum([*self._shares, share]) > 1 + _SLACK or number >= self.plan.sums:
            raise PrivacyError(
                f"Sum {number + 1} with {share:.3g} of the precision is not paid for: {self.left:.3g} is left, and "
                f"{self.plan.sums} sums were planned."
            )
        if number == len(self._results.drawn):
            noise = self.plan.noise_multiplier / math.sqrt(share) * (1 + _SLACK)
            found = noisy(sums(), noise, insecure_seed=self._insecure_seed, step=number)
            # Rounding after the noise costs nothing.
            self._results.drawn.append(found.to_array().astype(np.float32))
            self._save()
        self._shares.append(share)
        result = self._results.drawn[number]
        if self._ledger is not None and self.charge is not None:
            # A copy of the file cannot draw the same sum twice: the ledger knows the first result.
            self._ledger.finish(self.charge, transcript_hash(result), f"steps {number} to {number + 1}")
        return result.astype(np.float64)

    def finish(self) -> npt.NDArray[np.float32]:
        """Note the hash of the whole transcript before anything is made from it, and return it."""
        if self._ledger is not None and self.charge is not None:
            self._ledger.finish(self.charge, transcript_hash(self.transcript))
        return self.transcript

    def _save(self) -> None:
        if self._file is None:
            return
        from safetensors.numpy import save

        tensors = {f"{number:04d}": result for number, result in enumerate(self._results.drawn)}
        raw = save(tensors, metadata={"identity": self._identity, "charge": self._results.charge})
        try:
            private_folder(self._file.parent)
            write_bytes(self._file, raw)
        except OSError as error:
            raise ConfigError(
                f"The checkpoint {str(self._file)!r} cannot be written: {error.strerror}. Choose another file."
            ) from error

    def _load(self) -> _Results | None:
        if self._file is None or not self._file.exists():
            return None
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(self._file, framework="np") as opened:
                known = opened.metadata() or {}
                drawn = [opened.get_tensor(name) for name in sorted(opened.keys())]
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"The checkpoint {str(self._file)!r} is damaged: remove it to pay anew.") from error
        if known.get("identity") != self._identity or not known.get("charge"):
            raise CheckpointError(
                f"The checkpoint {str(self._file)!r} belongs to other data or settings: remove it, or name another "
                "file."
            )
        return _Results(known["charge"], drawn)


class _Results:
    """The name of a payment, and what was drawn for it."""

    def __init__(self, charge: str, drawn: list[npt.NDArray[np.float32]]) -> None:
        self.charge, self.drawn = charge, drawn


def identity_of(settings: Mapping[str, Any], *arrays: npt.NDArray[Any] | None) -> str:
    """A hash that identifies a fit by its settings and records. It depends on records: it stays local."""
    digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True, default=str).encode())
    for array in arrays:
        if array is not None:
            digest.update(str((array.shape, array.dtype)).encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
