"""What a site remembers between rounds: one private file, replaced as a whole, for one run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from understudy.errors import CheckpointError
from understudy.federated.files import UNREADABLE, locked, named, part_of, read_tensors, write_tensors
from understudy.federated.messages import Answer, Question

__all__ = ["SiteState", "question_key"]

Arrays = dict[str, npt.NDArray[Any]]


def question_key(question: Question) -> str:
    """What is asked, whoever asks and how often: the same question has the same key, but for its nonce."""
    digest = hashlib.sha256(json.dumps([question.step, question.round, question.facts], sort_keys=True).encode())
    for name, value in sorted(question.tensors.items()):
        digest.update(f"{name} {value.shape} {value.dtype}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


@dataclass(slots=True)
class SiteState:
    """The charge, the steps used (of a test), personal encoder and key, and the last answer with what it answered.

    A question that comes again gets the same answer: to ask twice costs nothing and tells nothing new.
    """

    file: Path
    identity: str = ""
    used: int = 0
    key: str = ""
    answer: Answer | None = None
    encoder: Arrays = field(default_factory=dict)
    key_pair: bytes = b""

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, run: str) -> Iterator[SiteState]:
        """The state of a run, held by this process alone: one that was left behind may still be at work."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = hashlib.sha256(run.encode()).hexdigest()[:16]
        with locked(folder / f"{name}.lock", wait=True):
            yield cls._read(folder / f"{name}.state")

    def answered(self, question: Question) -> Answer | None:
        """The answer that this question has had, for its present nonce."""
        if self.answer is None or self.key != question_key(question):
            return None
        said = self.answer
        return Answer(said.step, said.round, question.nonce, said.declined, said.facts, said.tensors)

    def keep(self, question: Question, answer: Answer) -> None:
        """Write all of it, before the answer leaves."""
        self.key, self.answer = question_key(question), answer
        head = {"step": answer.step, "round": answer.round, "declined": answer.declined, "facts": dict(answer.facts)}
        meta = {
            "identity": self.identity,
            "used": self.used,
            "key": self.key,
            "answer": head,
            "pair": self.key_pair.hex(),
        }
        write_tensors(self.file, named("answer", answer.tensors) | named("encoder", self.encoder), meta)

    @classmethod
    def _read(cls, file: Path) -> SiteState:
        if not file.exists():
            return cls(file)
        try:
            meta, tensors = read_tensors(file)
            head = meta["answer"]
            answer = Answer(**head, nonce="", tensors=part_of(tensors, "answer"))
            encoder, pair = part_of(tensors, "encoder"), bytes.fromhex(meta["pair"])
            return cls(file, meta["identity"], meta["used"], meta["key"], answer, encoder, pair)
        except UNREADABLE as error:
            raise CheckpointError(
                f"The site's state {str(file)!r} is damaged: put back a copy of it, or leave this run."
            ) from error
