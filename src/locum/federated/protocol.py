"""The messages between coordinator and sites, whatever carries them: requests, replies, and why there is no reply."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from locum.errors import FormatError

Tensors = Mapping[str, npt.NDArray[Any]]
Step = Literal["join", "share", "begin", "sum", "confirm", "open", "train", "finish"]
STEPS: tuple[Step, ...] = get_args(Step)
# The text of a message is never longer than this.
_MAX_TEXT = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """From the coordinator to one site.

    "join" asks for a site's terms and noisy sums, or, where sums are masked, for its signed mask keys. Then "share"
    asks for encrypted shares of its secrets and "begin" for its terms; for each sum, "sum" asks for masked sums,
    "confirm" for a signed list of those who answered, "open" for the shares that remove the masks. "train" asks for a
    decoder after local training; "finish" sends the result and asks for nothing.

    Parameters
    ----------
    step
        One of the above.
    round
        Number of the round, or of the masked sum, from 0.
    nonce
        Used once; the reply repeats it.
    facts
        Public settings.
    tensors
        Arrays by name, such as the shared decoder.

    Examples
    --------
    >>> from locum.federated import Request
    >>> Request("join", 0, "6d1f", {"run": "first"}).facts["run"]
    'first'
    """

    step: Step
    round: int
    nonce: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """From a site: results it has paid for, and public facts.

    It never holds a loss, count, accuracy or lambda.

    Parameters
    ----------
    step, round, nonce
        Those of the request.
    declined
        Why the site does not take part; empty if it does.
    facts
        Public facts, such as the terms it paid for.
    tensors
        Arrays by name, such as noisy sums or a decoder.

    Examples
    --------
    >>> from locum.federated import Reply
    >>> Reply("join", 0, "6d1f", declined="its budget does not allow this").tensors
    {}
    """

    step: Step
    round: int
    nonce: str
    declined: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    tensors: Tensors = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoReply:
    """There is no readable reply: an error at the site, a lost node or a broken message.

    Parameters
    ----------
    reason
        What happened, in a few words.

    Examples
    --------
    >>> from locum.federated import NoReply
    >>> NoReply("the node was lost").reason
    'the node was lost'
    """

    reason: str


class Channel(Protocol):
    """Carries requests to the sites: Flower's grid, or calls in one process."""

    def sites(self) -> list[str]:
        """The sites that can be asked now, by names that the transport has authenticated."""

    def ask(
        self, requests: Mapping[str, Request], *, timeout: float, enough: int | None = None, grace: float = 10.0
    ) -> dict[str, Reply | NoReply]:
        """Send each site its request; one entry per site, after at most `timeout` seconds.

        Once `enough` sites have sent a reply that does not decline, the others have `grace` seconds more; None: they
        have the whole timeout.
        """


def pack(message: Request | Reply) -> tuple[str, dict[str, npt.NDArray[Any]]]:
    """A message as JSON and arrays."""
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
    """Undo `pack` and refuse anything else. A message with the field `declined` is a reply."""
    try:
        head: Any = json.loads(text, parse_constant=_refuse_constant) if len(text) <= _MAX_TEXT else None
        kind = Reply if "declined" in head else Request
        message = kind(**head, tensors=dict(arrays))
        valid = (
            message.step in STEPS
            and type(message.round) is int
            and isinstance(message.nonce, str)
            and isinstance(message.facts, dict)
            and isinstance(getattr(message, "declined", ""), str)
            and all(a.dtype in (np.float32, np.float64, np.uint64, np.uint8) for a in message.tensors.values())
        )
    except (ValueError, TypeError, RecursionError):
        valid = False
    if not valid:
        raise FormatError("A message could not be read: it is not from Locum, or from another version of it.")
    return message


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a finite number")
