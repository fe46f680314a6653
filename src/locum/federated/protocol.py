"""What coordinator and sites say to each other, whatever carries it: questions, answers, and reasons for none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError

Tensors = Mapping[str, npt.NDArray[Any]]
Step = Literal["join", "sums", "train", "finish"]
STEPS: tuple[Step, ...] = ("join", "sums", "train", "finish")
# Nothing that is asked or answered is larger, text aside.
_MOST_TEXT = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """From the coordinator to one site. `facts` are public settings; `nonce` is answered, and used once.

    "join" asks for a site's terms and noisy sums, or for a key where sums are to be masked, and "sums" for them then;
    "train" asks for a decoder after local training; "finish" hands out the result and asks for nothing.
    """

    step: Step
    round: int
    nonce: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """From a site: what it paid for, and public facts. A site that does not take part (any more) says why.

    No loss, count, accuracy or lambda is ever in here.
    """

    step: Step
    round: int
    nonce: str
    declined: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoReply:
    """No answer, or none that could be read: an error at the site, a lost node, a broken message."""

    reason: str


class Channel(Protocol):
    """How questions get to the sites: Flower's grid, or calls in one process."""

    def sites(self) -> list[str]:
        """The sites that can be asked now, by names that the transport vouches for."""

    def ask(self, requests: Mapping[str, Request], *, timeout: float) -> dict[str, Reply | NoReply]:
        """One question to each site; an entry for each of them, in at most `timeout` seconds."""


def pack(message: Request | Reply) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """A message as JSON and arrays, for a transport that carries these."""
    head: dict[str, Any] = {
        "step": message.step,
        "round": message.round,
        "nonce": message.nonce,
        "facts": dict(message.facts),
    }
    if isinstance(message, Reply):
        head["declined"] = message.declined
    arrays = {name: np.ascontiguousarray(value) for name, value in message.tensors.items()}
    return json.dumps(head, allow_nan=False), arrays


def unpack(text: str, arrays: Tensors) -> Request | Reply:
    """Undo `pack`; what is not a message of ours is refused. An answer is what has the field `declined`."""
    try:
        head: Any = json.loads(text, parse_constant=_no_number) if len(text) <= _MOST_TEXT else None
        kind = Reply if "declined" in head else Request
        message = kind(**head, tensors=dict(arrays))
        fine = (
            message.step in STEPS
            and type(message.round) is int
            and isinstance(message.nonce, str)
            and isinstance(message.facts, dict)
            and isinstance(getattr(message, "declined", ""), str)
            and all(a.dtype in (np.float32, np.float64, np.uint64) for a in message.tensors.values())
        )
    except (ValueError, TypeError, RecursionError):
        fine = False
    if not fine:
        raise FormatError("A message could not be read: it is not one of Locum's, or of another version.")
    return message


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
