"""Sites in this very process, one after the other: for small trials and tests, with the code of a real run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from locum.errors import LocumError
from locum.federated.protocol import Answer, Question, Silence, pack, unpack
from locum.federated.site import Site


class LocalChannel:
    """A `Channel` that calls sites by their `site.toml`; messages are packed and unpacked as for a network."""

    def __init__(self, files: Mapping[str, str | Path]) -> None:
        self._files = dict(files)

    def sites(self) -> list[str]:
        """All of them, always."""
        return list(self._files)

    def ask(self, questions: Mapping[str, Question], *, timeout: float) -> dict[str, Answer | Silence]:
        """One after the other; there is no waiting, so `timeout` has no use."""
        return {name: self._one(name, question) for name, question in questions.items()}

    def _one(self, name: str, question: Question) -> Answer | Silence:
        asked = unpack(*pack(question))
        assert isinstance(asked, Question)
        try:
            answer = Site(self._files[name]).answer(asked)
        except LocumError as error:
            return Silence(f"{type(error).__name__}: {error}")
        back = unpack(*pack(answer))
        assert isinstance(back, Answer)
        return back
