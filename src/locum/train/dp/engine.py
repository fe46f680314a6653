"""DP-SGD: sampling, clipping, noise and payment in one object, so that they cannot get out of step.

Gradients are summed in float64, and noise is scaled to a sensitivity that includes the rounding of these sums (see
`clipping`). That assumes that a record's gradient does not depend, in any bit, on its batch: `ASSUMPTIONS`.

Limits: the noise is a rounded normal distribution, not a discrete Gaussian. It is drawn and added in float64 and only
then rounded to the weights' float32, which hides the low bits of the sum; that is not a proof for the noise. The time
of a step depends on its batch: an observer who can time the machine is not covered.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from locum.accounting import NonPrivateSGD, PlanSteps
from locum.errors import ConfigError, DataError, LocumError, PrivacyError
from locum.mechanisms import SecureRandom
from locum.train.checkpoint import Checkpoint, History, fingerprint
from locum.train.dp.clipping import ClippedNetwork, Subjects, check_rows
from locum.train.dp.initial_query import InitialQuery
from locum.train.loop import seeded
from locum.train.losses import RowLoss
from locum.types import Progress, Unit

if TYPE_CHECKING:
    from locum.accounting import Charge, Ledger, SGDPlan


@dataclass(slots=True)
class PrivateHistory(History):
    """The history of a private fit. All but `steps` depends on records and stays local.

    Parameters
    ----------
    train_loss
        The mean loss of the drawn rows, one per pass over the data.
    validation_loss, best_epoch, stopped_early
        Not used: a private fit has no validation and runs every step.
    steps
        How many steps were done.
    ignored
        How many rows had a gradient that was not finite.
    paid
        The identity of the charge; empty in a test, and for a part of a plan.

    Examples
    --------
    >>> from locum.train.dp import PrivateHistory
    >>> PrivateHistory().steps
    0
    """

    steps: int = 0
    ignored: int = 0
    paid: str = ""


# Matrix products treat the last few rows of a small batch in another way, with other roundings.
_ROWS_AT_ONCE = 8


def _filled_up(rows: Tensor) -> Tensor:
    """The rows and as many of zeros as make a multiple of eight."""
    missing = -len(rows) % _ROWS_AT_ONCE
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows


class PrivateRun:
    """One private fit of `module` on `rows`, paid for before the first step; `run` may be called once.

    In each of `plan.steps` steps every unit joins independently with probability `plan.rate`. Each unit's joint
    gradient is clipped to `plan.clip`, the sum gets normal noise of `plan.noise_multiplier` times its sensitivity
    (the clip and a little for rounding) and is divided by `plan.batch`, the public expected size. Empty batches
    count, and get noise. Gradients that are not finite count as 0. The optimizer sees only the noisy result.

    Parameters
    ----------
    module
        See `ClippedNetwork`. All of it is trained, in place; a CVAE always with latent noise.
    rows
        One row per record: the module's input, then columns that only `loss` reads, if any.
    loss
        Losses per row and their gradients: `CVAELoss`, or `RowLossByAutograd` around a function.
    plan, ledger, holding, purpose
        What is done, and who pays for it. `holding` must count by the plan's unit and relation.
    subject
        A whole number per row, for a plan whose unit is the subject: a subject's gradient is the sum over its rows.
    optimizer, learning_rate, weight_decay
        "adam" or "sgd" on the noisy gradient: public settings.
    insecure_seed
        A seed for all randomness. Such a run is a test (`is_test`): it pays nothing, and nothing can be claimed.
    checkpoint, checkpoint_seconds
        A private file (mode 0600) from which a killed fit resumes without a second charge; randomness is drawn anew.
        It is the receipt of one fit: finishing copies of it spends more than was paid.
    progress
        Called after each pass over the data.
    initial_query
        A noisy sum before the first step, paid for by the plan; `noisy` holds it afterwards. A resumed fit keeps it.
    public_gradient
        A gradient that needs no record, as one flat tensor over all weights in order: a GAN's on generated rows. It
        is called once per step, before the batch is used, and added after noise and division. It gets no arguments:
        it may read the module's weights, which are noisy already, and train anything that learns from them alone, for
        free. Nothing checks what else it reads: a function that holds records breaks the guarantee. Checkpoints do
        not save what it trains, so the two exclude each other. Autograd is off while it runs.
    part
        Some steps of a plan that `PaidPlan` has paid for in full. Nothing is charged then, and neither
        `initial_query` nor `checkpoint` is possible.

    Attributes
    ----------
    charge
        What was paid, once `run` has begun; None in a test.
    noisy
        The noisy sums of `initial_query`, once `run` has drawn them; None without one.
    is_test
        Whether `insecure_seed` was given.
    clipped
        The share of the rows used, over all steps of this run, whose unit had a gradient longer than the clip; None
        before any was used. Private: it has no noise and is not paid for, so it must stay with the records.

    Examples
    --------
    >>> import torch
    >>> from locum.accounting import Ledger, plan_sgd
    >>> from locum.train import RowLossByAutograd
    >>> from locum.train.dp import PrivateRun
    >>> from locum.types import DP
    >>> plan = plan_sgd(DP(1.0, 1e-6, n_public=100), batch=20, epochs=2)
    >>> loss = RowLossByAutograd(lambda out, rows: (out - rows).square().sum(dim=1))
    >>> with Ledger("ledger.sqlite") as ledger:
    ...     _ = ledger.open_for(plan.privacy, "scans")
    ...     run = PrivateRun(torch.nn.Linear(3, 3), torch.randn(100, 3), loss, plan, ledger, "scans")
    ...     run.run().steps, run.charge.epsilon <= 1.0
    (10, True)
    """

    def __init__(
        self,
        module: nn.Module,
        rows: Tensor | npt.ArrayLike,
        loss: RowLoss,
        plan: SGDPlan | NonPrivateSGD,
        ledger: Ledger | None = None,
        holding: str = "",
        *,
        subject: npt.ArrayLike | None = None,
        purpose: str = "DP-SGD",
        optimizer: Literal["adam", "sgd"] = "adam",
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        insecure_seed: int | None = None,
        checkpoint: str | Path | None = None,
        checkpoint_seconds: float = 20.0,
        progress: Progress | None = None,
        initial_query: InitialQuery | None = None,
        public_gradient: Callable[[], Tensor] | None = None,
        part: PlanSteps | None = None,
    ) -> None:
        self.charge: Charge | None = None
        self.noisy: npt.NDArray[np.float64] | None = None
        self.is_test = insecure_seed is not None
        self.clipped: float | None = None
        self._plan, self._loss, self._ledger, self._holding = plan, loss, ledger, holding
        self._purpose, self._insecure_seed, self._progress = purpose, insecure_seed, progress
        self._initial_query, self._public_gradient = initial_query, public_gradient
        self._part = part
        self._last = plan.steps if part is None else part.stop
        self._begun = False
        if part is not None and not 0 <= part.start < part.stop <= plan.steps:
            raise PrivacyError(f"The plan has paid for {plan.steps} steps; {part.name} are not among them.")
        if part is not None and (initial_query is not None or checkpoint is not None):
            raise ConfigError("A part of a plan has neither `initial_query` nor `checkpoint`: leave them out.")
        self._check_payment()
        if initial_query is not None:
            if isinstance(plan, NonPrivateSGD):
                raise ConfigError("A plan without a budget cannot pay for an `initial_query`: leave it out.")
            initial_query.noise(plan)
        self._network = ClippedNetwork(module)
        self._rows = self._checked_rows(rows)
        self._subjects = self._checked_subjects(subject)
        self._optimizer = _optimizer(self._network.flat, optimizer, learning_rate, weight_decay)
        self._check_loss()
        self._checkpoint = None
        if checkpoint is not None:
            if public_gradient is not None:
                raise ConfigError("A checkpoint does not save what `public_gradient` trains: leave one of them out.")
            # The plan identifies the fit: a receipt for one plan cannot pay for another.
            same = {
                "plan": repr(plan),
                "holding": holding,
                "module": str(module),
                "loss": repr(loss),
                "optimizer": [optimizer, learning_rate, weight_decay],
                "test": insecure_seed,
            }
            codes = torch.as_tensor([] if subject is None else np.asarray(subject))
            self._checkpoint = Checkpoint(Path(checkpoint), fingerprint(same, self._rows, codes), checkpoint_seconds)

    def run(self) -> PrivateHistory:
        """Pay, then train every planned step; the module is left in evaluation mode.

        The number of steps does not depend on the data: an early stop would reveal something about them.
        """
        if self._begun:
            raise PrivacyError("A run is paid for once and can be run once: create another.")
        self._begun = True
        module = self._network.module
        try:
            history = self._pay()
            self._ask_initial_query(history)
            module.train()
            with torch.no_grad():
                self._train(history)
            module.eval()
            if self._ledger is not None and self.charge is not None:
                self._ledger.finish(self.charge, self._digest(), self._part.name if self._part is not None else "")
        finally:
            self._network.release()
        return history

    def _digest(self) -> str:
        """A hash of what the charge has paid for: the weights and the noisy sums."""
        noisy = torch.from_numpy(self.noisy) if self.noisy is not None else torch.empty(0)
        return fingerprint({}, self._network.flat.detach(), noisy)

    def remove_checkpoint(self) -> None:
        """Delete the checkpoint once the result is saved, so that no private state is left behind."""
        if self._checkpoint is not None:
            self._checkpoint.remove()

    def _train(self, history: PrivateHistory) -> None:
        plan, network, subjects = self._plan, self._network, self._subjects
        rng = SecureRandom(
            np.ones(len(self._rows), dtype=np.int64) if subjects is None else subjects.counts,
            plan.rate,
            network.flat.numel(),
            # Without noise the bound is infinite, and 0 times infinity is not a number.
            plan.noise_multiplier * network.sensitivity(plan.clip, self._unit) if plan.noise_multiplier else 0.0,
            latent=network.latent,
            dtype=self._rows.numpy().dtype,
            insecure_seed=self._insecure_seed,
            cos_sin=_cos_sin,
        )
        gradient = network.flat.grad
        assert gradient is not None
        a_pass = max(1, round(1 / plan.rate))
        total, count, saved_at = torch.zeros((), dtype=torch.float64), 0, time.monotonic()
        cut = used = 0
        for members, noise, latent in rng.steps(history.steps, self._last):
            public = self._ask_public()
            index, blocks = (members, None) if subjects is None else subjects.rows(members)
            rows = _filled_up(self._rows[torch.from_numpy(index)])
            outputs = network.forward(rows, _filled_up(torch.from_numpy(latent)))
            losses, gradients = self._loss(outputs, rows)
            network.backward([_filled_up(part[: len(index)]) for part in gradients])
            history.ignored += network.clipped_sum(plan.clip, blocks)
            cut, used = cut + network.clipped, used + len(index)
            # Rounded after the noise is added; the divisor is public.
            gradient.copy_(torch.from_numpy(noise).add_(network.sums).div_(plan.batch))
            if public is not None:
                gradient.add_(public)
            self._optimizer.step()
            history.steps += 1
            total = total + losses[: len(index)].nan_to_num_(0.0, 0.0, 0.0).sum()
            count += len(index)
            if history.steps % a_pass == 0 or history.steps == self._last:
                history.train_loss.append(float(total) / max(count, 1))
                total, count = torch.zeros((), dtype=torch.float64), 0
                if self._progress is not None:
                    done = math.ceil(history.steps / a_pass)
                    self._progress(done, math.ceil(self._last / a_pass), f"loss {history.train_loss[-1]:.4g}")
            if self._checkpoint is not None and time.monotonic() - saved_at >= self._checkpoint.every_seconds:
                self._save(history)
                saved_at = time.monotonic()
        self.clipped = cut / used if used else None
        self._save(history)

    def _ask_initial_query(self, history: PrivateHistory) -> None:
        """After payment: draw the noisy sums, save them before they are used, and make the rows from them."""
        if self._initial_query is None:
            return
        if self.noisy is None:
            assert not isinstance(self._plan, NonPrivateSGD)
            self.noisy = self._initial_query.noisy(self._plan, self._insecure_seed).numpy()
            self._save(history)
        rows = self._checked_rows(self._initial_query.rows(self.noisy))
        if rows.shape != self._rows.shape:
            raise ConfigError(
                f"`initial_query` must keep the shape of the rows; it made {tuple(rows.shape)} of them."
            )
        self._rows = rows

    def _ask_public(self) -> Tensor | None:
        if self._public_gradient is None:
            return None
        out = self._public_gradient()
        # A single number would silently be added to all weights.
        if out.shape != self._network.flat.shape:
            raise ConfigError(
                f"`public_gradient` must give one number per weight ({self._network.flat.numel()}), as a flat "
                f"tensor; got shape {tuple(out.shape)}."
            )
        return out

    def _pay(self) -> PrivateHistory:
        """The history to continue: of an earlier run that paid and was killed, or a new one, paid now."""
        history = PrivateHistory()
        if self._part is not None:
            self.charge, history.steps = self._part.charge, self._part.start
            return history
        if self._checkpoint is not None and (state := self._checkpoint.load()) is not None:
            _, kept = state.restore(self._network.module, self._optimizer, seeded(0), history)
            if "initial_query" in kept:
                self.noisy = kept["initial_query"].numpy()
        if self._ledger is None:
            return history
        plan = self._plan
        if history.paid:
            self.charge = self._ledger.paid(history.paid, plan.events)
            return history
        # Find out before anything is spent whether the file can be written.
        self._save(history)
        assert plan.privacy is not None
        try:
            self.charge = self._ledger.charge(
                self._holding,
                plan.events,
                delta=plan.privacy.delta,
                purpose=self._purpose,
                within=plan.privacy.epsilon,
            )
        except LocumError:
            self.remove_checkpoint()
            raise
        history.paid = self.charge.identity
        self._save(history)
        return history

    def _save(self, history: PrivateHistory) -> None:
        if self._checkpoint is not None:
            # The state of the rng is not saved: whoever found it could remove the noise.
            noisy = {} if self.noisy is None else {"initial_query": torch.from_numpy(self.noisy)}
            self._checkpoint.save(self._network.module, self._optimizer, seeded(0), history, history.steps, noisy)

    def _check_payment(self) -> None:
        test, privacy = self._insecure_seed, self._plan.privacy
        if test is not None:
            if isinstance(test, bool) or not isinstance(test, int) or test < 0:
                raise ConfigError(f"`insecure_seed` must be a whole number, 0 or more; got {test!r}.")
            if self._ledger is not None:
                raise PrivacyError(
                    "A run with `insecure_seed` is not private and pays nothing: leave the ledger out."
                )
            return
        if privacy is None:
            raise PrivacyError("A plan without a budget is only for tests: set `insecure_seed`, or give a budget.")
        if self._ledger is None:
            raise PrivacyError("A private fit needs a ledger that it is charged to; got none.")
        if self._part is not None:
            if self._part.charge is None:
                raise PrivacyError("A part of a plan must have been paid for; it has no charge.")
            self._ledger.paid(self._part.charge.identity, self._plan.events)
        known = self._ledger.holding(self._holding)
        if (known.unit, known.relation) != (privacy.unit, privacy.relation):
            raise PrivacyError(
                f"The holding {known.name!r} counts by {known.unit} and {known.relation}; the plan by {privacy.unit} "
                f"and {privacy.relation}. Make a plan for the former: another holding would be a second budget for "
                "the same people."
            )

    @property
    def _unit(self) -> Unit:
        return "record" if self._plan.privacy is None else self._plan.privacy.unit

    def _checked_rows(self, rows: Tensor | npt.ArrayLike) -> Tensor:
        out = torch.as_tensor(rows).detach().to(self._network.flat.dtype)
        if out.ndim != 2 or out.shape[1] < self._network.inputs:
            raise DataError(
                f"The network takes rows of {self._network.inputs} columns or more; got shape {tuple(out.shape)[1:]}."
            )
        check_rows(len(out))
        return out.contiguous()

    def _checked_subjects(self, subject: npt.ArrayLike | None) -> Subjects | None:
        unit = self._unit
        if (unit == "subject") != (subject is not None):
            raise ConfigError(
                f"`subject` belongs to a plan whose unit is the subject, and is needed there; the unit is {unit!r}."
            )
        if subject is None:
            return None
        codes = np.asarray(subject)
        if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer) or len(codes) != len(self._rows):
            raise DataError("`subject` must hold one whole number for each row.")
        return Subjects(codes)

    def _check_loss(self) -> None:
        """Check on made-up rows that a row's loss does not depend on other rows, or clipping would not bound it."""
        rng = seeded(0)
        with torch.no_grad():
            rows = torch.rand(3, self._rows.shape[1], generator=rng, dtype=self._rows.dtype)
            noise = torch.randn(3, self._network.latent, generator=rng, dtype=self._rows.dtype)
            outputs = self._network.forward(rows, noise)
            together = self._loss(outputs, rows)
            apart = [self._loss(tuple(out[i : i + 1] for out in outputs), rows[i : i + 1]) for i in range(3)]
        fine = together[0].shape == (3,)
        for k, whole in enumerate((together[0], *together[1])):
            pieces = [(losses, *gradients)[k] for losses, gradients in apart]
            fine = fine and torch.allclose(whole, torch.cat(pieces), rtol=1e-3, atol=1e-5)
        if not fine:
            raise PrivacyError(
                "The loss must give one number per row, and a row's loss must not depend on the others."
            )


def _cos_sin(angle: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Cosine and sine by torch, which is four times as fast as numpy."""
    x = torch.from_numpy(angle)
    return torch.cos(x).numpy(), torch.sin(x).numpy()


def _optimizer(flat: nn.Parameter, kind: str, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    if kind not in ("adam", "sgd"):
        raise ConfigError(f"`optimizer` must be 'adam' or 'sgd'; got {kind!r}.")
    if not 0 < learning_rate < math.inf:
        raise ConfigError(f"`learning_rate` must be above 0; got {learning_rate!r}. 0.001 is usual.")
    if not 0 <= weight_decay < math.inf:
        raise ConfigError(f"`weight_decay` must be 0 or more; got {weight_decay!r}.")
    settings: dict[str, Any] = {"lr": learning_rate, "weight_decay": weight_decay, "fused": True}
    if kind == "sgd":
        return torch.optim.SGD([flat], **settings)
    return (torch.optim.AdamW if weight_decay else torch.optim.Adam)([flat], **settings)
