"""What the coordinator remembers of a run: public things and what sites have paid for, in one file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.errors import CheckpointError, ConfigError, UnderstudyError
from understudy.federated.files import UNREADABLE, locked, named, part_of, read_tensors, write_tensors
from understudy.federated.settings import FederationSettings
from understudy.federated.terms import Terms, read_terms

__all__ = ["RunState", "alone_in"]

_FILE, _LOCK = "coordinator.state", "coordinator.lock"


@contextmanager
def alone_in(out: Path) -> Iterator[None]:
    """No other coordinator works in the folder meanwhile: two of them would ask sites for the same round twice."""
    out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(out / _LOCK, wait=False))
        except BlockingIOError:
            raise ConfigError(f"Another coordinator is at work in {str(out)!r}: wait for it, or stop it.") from None
        yield


@dataclass(slots=True)
class RunState:
    """The run's name, who joined on which terms with which sums, the decoder, and the last whole round."""

    file: Path
    settings: FederationSettings
    run: str
    round: int = 0
    terms: dict[str, Terms] = field(default_factory=dict)
    sums: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)
    decoder: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    # Of sites that are to mask their sums: what they said when they joined, their public key among it.
    joined: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def open(cls, out: Path, settings: FederationSettings) -> RunState:
        """A new run, or the one that was begun in `out`; other settings are another run, and are refused there."""
        file = out / _FILE
        if not file.exists():
            if out.exists() and any(file.name != _LOCK for file in out.iterdir()):
                raise ConfigError(f"{str(out)!r} is not empty and holds no run to go on with: name another folder.")
            out.mkdir(parents=True, exist_ok=True)
            state = cls(file, settings, secrets.token_hex(16))
            # Its name is on disk before any site hears it: sites pay for it.
            state.save()
            return state
        try:
            meta, tensors = read_tensors(file)
            known = FederationSettings.from_dict(meta["settings"])
            terms = {name: read_terms(told) for name, told in meta["terms"].items()}
            state = cls(file, known, meta["run"], meta["round"], terms, joined=meta["joined"])
            state.sums, state.decoder = part_of(tensors, "sums"), part_of(tensors, "decoder")
        except (*UNREADABLE, UnderstudyError) as error:
            raise CheckpointError(
                f"{str(file)!r} is damaged: put back a copy, or begin a new run elsewhere."
            ) from error
        if known != settings:
            raise ConfigError(
                f"{str(out)!r} holds a run with other settings: name another folder, or go back to them."
            )
        return state

    def save(self) -> None:
        """Whole or not at all."""
        meta = {
            "settings": self.settings.to_dict(),
            "run": self.run,
            "round": self.round,
            "joined": self.joined,
            "terms": {name: terms.to_dict() for name, terms in self.terms.items()},
        }
        write_tensors(self.file, named("sums", self.sums) | named("decoder", self.decoder), meta)
