"""The history of a fit, and the checkpoint that lets a killed fit resume.

Checkpoints hold private state: mode 0600, never part of a release.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from locum.errors import CheckpointError, ConfigError
from locum.io import private_folder, write_bytes


@dataclass(slots=True)
class History:
    """Losses by epoch, and how the fit ended. It depends on records: it stays local.

    Parameters
    ----------
    train_loss
        The mean loss over the batches of each epoch.
    validation_loss
        The loss on held-out records after each epoch; empty without them.
    best_epoch
        The epoch whose weights were kept, counted from 1; 0 before training.
    stopped_early
        Whether training ended before the last planned epoch.

    Examples
    --------
    >>> from locum.train import History
    >>> History(train_loss=[0.9, 0.5], best_epoch=2)
    History(train_loss=[0.9, 0.5], validation_loss=[], best_epoch=2, stopped_early=False)
    """

    train_loss: list[float] = field(default_factory=list)
    validation_loss: list[float] = field(default_factory=list)
    best_epoch: int = 0
    stopped_early: bool = False


def fingerprint(settings: Mapping[str, Any], *tensors: Tensor) -> str:
    """A hash that identifies a fit by its settings and its data.

    Parameters
    ----------
    settings
        Settings by name; their order does not matter. Values that JSON cannot hold count by their text.
    *tensors
        The data, by shape, type and content. Their order matters.

    Returns
    -------
    str
        SHA-256, 64 hexadecimal digits. It depends on records: it stays local.

    Examples
    --------
    >>> import torch
    >>> from locum.train import fingerprint
    >>> fingerprint({"a": 1, "b": 2}, torch.ones(3)) == fingerprint({"b": 2, "a": 1}, torch.ones(3))
    True
    """
    digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True, default=str).encode())
    for tensor in tensors:
        digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One file from which a killed fit resumes, replaced atomically.

    A checkpoint of another fit is refused, not overwritten. The file holds weights and losses that depend on records:
    it is private, and has mode 0600.

    Parameters
    ----------
    path
        The file, in safetensors format.
    fingerprint
        What identifies the fit; see the function `fingerprint`.
    every_seconds
        Training saves when at least this many seconds have passed since the last time.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.train import Checkpoint, fingerprint
    >>> checkpoint = Checkpoint(Path("fit.safetensors"), fingerprint({"seed": 0}))
    >>> checkpoint.load() is None
    True
    """

    path: Path
    fingerprint: str
    every_seconds: float = 20.0

    def save(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        rng: torch.Generator,
        history: History,
        epoch: int,
        best: Mapping[str, Tensor],
    ) -> None:
        """Write the state atomically: a kill leaves the old or the new file."""
        tensors = {f"module/{k}": v.detach().contiguous() for k, v in module.state_dict().items()}
        tensors |= {f"best/{k}": v.contiguous() for k, v in best.items()}
        for i, slot in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{i}/{k}": torch.as_tensor(v).contiguous() for k, v in slot.items()}
        tensors["rng"] = rng.get_state()
        # safetensors refuses tensors that share memory; a copy is cheap compared to an epoch.
        raw = save(
            {k: v.clone() for k, v in tensors.items()},
            metadata={
                "fingerprint": self.fingerprint,
                "epoch": str(epoch),
                "history": json.dumps(asdict(history)),
            },
        )
        try:
            private_folder(self.path.parent)
            write_bytes(self.path, raw)
        except OSError as error:
            raise ConfigError(
                f"The checkpoint {str(self.path)!r} cannot be written: {error.strerror}. Choose another file."
            ) from error

    def load(self) -> _State | None:
        """The state that an earlier run of the same fit saved, if there is one."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as f:
                meta = f.metadata() or {}
                tensors = {key: f.get_tensor(key) for key in f.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"The checkpoint {str(self.path)!r} is damaged: remove it to start over."
            ) from error
        if meta.get("fingerprint") != self.fingerprint:
            raise CheckpointError(
                f"The checkpoint {str(self.path)!r} belongs to other data or settings: "
                "remove it, or name another file."
            )
        return _State(int(meta["epoch"]), json.loads(meta["history"]), tensors)

    def remove(self) -> None:
        """Delete the file after a finished fit, so that no private state is left behind."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _State:
    epoch: int
    history: dict[str, Any]
    tensors: dict[str, Tensor]

    def restore(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator, history: History
    ) -> tuple[int, dict[str, Tensor]]:
        """Restore everything; returns the epoch to continue from and the best weights so far."""
        module.load_state_dict(self._under("module/"))
        slots: dict[int, dict[str, Tensor]] = {}
        for key, value in self._under("optimizer/").items():
            number, name = key.split("/", 1)
            slots.setdefault(int(number), {})[name] = value
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
        rng.set_state(self.tensors["rng"])
        for name, value in self.history.items():
            setattr(history, name, value)
        return self.epoch, self._under("best/")

    def _under(self, prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}
