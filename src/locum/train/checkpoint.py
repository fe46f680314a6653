"""Resuming a fit that was killed. Checkpoints hold private state: mode 0600, never part of a release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from locum.errors import CheckpointError, ConfigError
from locum.io import private_folder, write_bytes

if TYPE_CHECKING:
    from locum.train.loop import History


def fingerprint(settings: Mapping[str, Any], *tensors: Tensor) -> str:
    """What makes a fit this fit: its settings and its data."""
    digest = hashlib.sha256(json.dumps(dict(settings), sort_keys=True, default=str).encode())
    for tensor in tensors:
        digest.update(str((tuple(tensor.shape), tensor.dtype)).encode())
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One file that is replaced as a whole. A checkpoint of another fit is refused, not overwritten."""

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
        """Write beside the target, sync, rename: a kill leaves the old or the new file."""
        tensors = {f"module/{k}": v.detach().contiguous() for k, v in module.state_dict().items()}
        tensors |= {f"best/{k}": v.contiguous() for k, v in best.items()}
        for i, slot in optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{i}/{k}": torch.as_tensor(v).contiguous() for k, v in slot.items()}
        tensors["coins"] = rng.get_state()
        # safetensors refuses tensors that share memory; a copy is cheap beside an epoch.
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
                f"The checkpoint {str(self.path)!r} cannot be written: {error.strerror}. Choose another place."
            ) from error

    def load(self) -> _State | None:
        """The state saved by an earlier run of the same fit, if there is one."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="pt") as f:
                meta = f.metadata() or {}
                tensors = {key: f.get_tensor(key) for key in f.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"The checkpoint {str(self.path)!r} is damaged: remove it to start anew."
            ) from error
        if meta.get("fingerprint") != self.fingerprint:
            raise CheckpointError(
                f"The checkpoint {str(self.path)!r} belongs to other data or settings: "
                "remove it, or name another file."
            )
        return _State(int(meta["epoch"]), json.loads(meta["history"]), tensors)

    def remove(self) -> None:
        """After a finished fit: private state does not lie around."""
        self.path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class _State:
    epoch: int
    history: dict[str, Any]
    tensors: dict[str, Tensor]

    def restore(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, rng: torch.Generator, history: History
    ) -> tuple[int, dict[str, Tensor]]:
        """Put everything back; the epoch to go on from and the best weights so far."""
        module.load_state_dict(self._part("module/"))
        slots: dict[int, dict[str, Tensor]] = {}
        for key, value in self._part("optimizer/").items():
            number, name = key.split("/", 1)
            slots.setdefault(int(number), {})[name] = value
        optimizer.load_state_dict({"state": slots, "param_groups": optimizer.state_dict()["param_groups"]})
        rng.set_state(self.tensors["coins"])
        for name, value in self.history.items():
            setattr(history, name, value)
        return self.epoch, self._part("best/")

    def _part(self, prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}
