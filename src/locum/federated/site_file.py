"""What a site keeps to itself: where its records lie, who pays, and how much it is ready to spend."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from locum.data import read_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.federated.settings import FederationSettings
from locum.io import ledger_path
from locum.types import DP, EmbeddingSet


@dataclass(frozen=True, slots=True, eq=False)
class SiteRecords:
    """What is learnt from, and what picks lambda where it is named; both stay here."""

    train: EmbeddingSet
    validation: EmbeddingSet | None = None


@dataclass(frozen=True, slots=True)
class SiteFile:
    """`site.toml`: the settings of one site. Nothing of it but the budget's public numbers ever leaves.

    Paths are relative to the file. `data` and `validation` are files of embeddings, perhaps with `#split`; without
    `validation` lambda is picked by cross-validation on `data`. `ledger` is beside the data unless named.
    `federation` is the site's copy of the terms that it agreed to: it answers on no others, so that nobody can ask
    for its classes one by one, or spend its budget on terms that its owner has not seen. Rehearsals need none.
    `insecure_seed` seeds everything, for simulations: nothing is paid, and nothing claimed. Only there may `epsilon`
    be missing, which means no privacy at all.
    """

    folder: Path
    data: str
    federation: str = "federation.toml"
    validation: str | None = None
    ledger: str | None = None
    holding: str = "default"
    epsilon: float | None = None
    delta: float | None = None
    n_public: int | None = None
    unit: str = "record"
    relation: str = "add-or-remove"
    insecure_seed: int | None = None

    @classmethod
    def read(cls, file: str | Path) -> SiteFile:
        """A checked file, or one sentence that says why not."""
        path = Path(file)
        try:
            with path.open("rb") as f:
                found: dict[str, Any] = tomllib.load(f)
        except OSError as error:
            raise ConfigError(f"The site file {str(file)!r} cannot be read: {error.strerror}.") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"The site file {str(file)!r} is not valid TOML: {error}.") from None
        known = [f.name for f in fields(cls) if f.name != "folder"]
        if unknown := sorted(set(found) - set(known)):
            raise ConfigError(f"A site file has no setting {unknown[0]!r}; it has {', '.join(known)}.")
        if not isinstance(found.get("data"), str):
            raise ConfigError(f'The site file {str(file)!r} must say where the records are: data = "FILE".')
        for name in ("validation", "ledger", "holding", "federation"):
            if not isinstance(found.get(name, ""), str):
                raise ConfigError(f"`{name}` in the site file must be text; got {found[name]!r}.")
        rng = found.get("insecure_seed", 0)
        # `false` would switch the coins on: what counts is whether the line is there.
        if isinstance(rng, bool) or not isinstance(rng, int) or rng < 0:
            raise ConfigError(f"`insecure_seed` must be a whole number, 0 or more, or be left out; got {rng!r}.")
        site = cls(path.parent, **found)
        site.privacy()
        return site

    def privacy(self) -> DP | None:
        """The budget of this run; None only in a rehearsal without privacy."""
        if self.epsilon is None:
            if self.insecure_seed is None:
                raise PrivacyError("A site takes part with a budget: set `epsilon`, `delta` and `n_public`.")
            return None
        if self.delta is None or self.n_public is None:
            raise PrivacyError("A budget needs `delta` and `n_public`, the rounded number of records, too.")
        return DP(self.epsilon, self.delta, self.unit, self.n_public, self.relation)  # type: ignore[arg-type]

    @property
    def ledger_file(self) -> Path:
        """Where spending is written down."""
        return ledger_path(self._place(self.data)) if self.ledger is None else self.folder / self.ledger

    def check_terms(self, settings: FederationSettings) -> None:
        """Refuse terms that the site's owner has not agreed to."""
        if self.insecure_seed is None and FederationSettings.read(self.folder / self.federation) != settings:
            raise PrivacyError("These are not the terms that this site agreed to, in its copy of federation.toml.")

    def records(self, settings: FederationSettings) -> SiteRecords:
        """The site's records with the federation's classes; vectors of another kind are refused."""
        train = self._read(self.data, settings)
        return SiteRecords(train, None if self.validation is None else self._read(self.validation, settings))

    def _read(self, name: str, settings: FederationSettings) -> EmbeddingSet:
        data = read_embeddings(self._place(name))
        if data.dim != settings.dim:
            raise DataError(
                f"The federation learns from {settings.dim} features; the site's records have {data.dim}."
            )
        if settings.backbone not in ("unknown", data.info.backbone) and data.info.backbone != "unknown":
            raise DataError(
                f"The federation learns from vectors of {settings.backbone!r}; the site's are of "
                f"{data.info.backbone!r}. Embed the images again."
            )
        if self.unit == "subject" and data.subject is None:
            raise DataError("A promise for each subject needs `subject` in the site's file; it has none.")
        return data.with_classes(settings.classes)

    def _place(self, name: str) -> str:
        # Text, for a `#split` may follow.
        return str(self.folder / name)
