"""`site.toml`, which a site keeps to itself: where its records are, which ledger pays, and how much it may spend."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import get_args

from locum.data import is_drawn, ledger_for, place_of, read_embeddings
from locum.errors import ConfigError, DataError, PrivacyError
from locum.federated.interpolation import Measure, Rule, Unseen
from locum.federated.settings import FederationSettings
from locum.io import read_toml
from locum.types import DP, EmbeddingInfo, EmbeddingSet


@dataclass(frozen=True, slots=True, eq=False)
class SiteRecords:
    """Records to train on, and optional ones to choose lambda; both stay at the site."""

    train: EmbeddingSet
    validation: EmbeddingSet | None = None


@dataclass(frozen=True, slots=True)
class SiteFile:
    r"""The settings of one site. Only the public numbers of the budget ever leave.

    Parameters
    ----------
    folder
        Folder of the file; paths are relative to it.
    data
        File of embeddings to train on, optionally with `#split`.
    federation
        The site's copy of the terms that it agreed to. It replies under no other terms, so that nobody can query its
        classes one by one, or spend its budget on terms that its owner has not seen. Simulations need none.
    validation
        File of embeddings to choose lambda on; None: cross-validation on `data`.
    ledger
        The ledger that pays; None: that of the data.
    holding
        The data holding whose budget pays.
    reference
        File of public statistics, where the terms ask for one; None: the one that `embed` made for the data.
    epsilon, delta
        What a run may cost; all of it is charged when the site joins. `epsilon` None, in simulations only: no
        privacy.
    n_public
        The declared, rounded number of units; not needed where sums are masked.
    unit
        "record" or "subject".
    relation
        "add-or-remove" or "replace-one".
    measure
        What the site wants of its personal model: "balanced_accuracy", "accuracy", "f1" or "log_loss".
    rule
        How lambda is chosen: "robust", or "paper" for the best value on the grid; see `fit_personal`.
    unseen
        Who speaks for classes without records at the site: "mix", or "global" for the global head alone.
    key
        File of the site's private signing key, NAME.key; `locum federate join --key` names it too.
    insecure_seed
        For simulations: seeds all randomness. Nothing is paid, and nothing is claimed.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.federated import SiteFile
    >>> text = 'data = "train.npz"\nepsilon = 1.0\ndelta = 1e-5\nn_public = 1000'
    >>> _ = Path("site.toml").write_text(text)
    >>> SiteFile.read("site.toml").privacy().epsilon
    1.0
    """

    folder: Path
    data: str
    federation: str = "federation.toml"
    validation: str | None = None
    ledger: str | None = None
    holding: str = "default"
    reference: str | None = None
    epsilon: float | None = None
    delta: float | None = None
    n_public: int | None = None
    unit: str = "record"
    relation: str = "add-or-remove"
    measure: str = "balanced_accuracy"
    rule: str = "robust"
    unseen: str = "mix"
    key: str | None = None
    insecure_seed: int | None = None

    @classmethod
    def read(cls, file: str | Path) -> SiteFile:
        """Read and check a file."""
        path = Path(file)
        found = read_toml(path, "site file")
        known = [f.name for f in fields(cls) if f.name != "folder"]
        if unknown := sorted(set(found) - set(known)):
            raise ConfigError(f"A site file has no setting {unknown[0]!r}; it has {', '.join(known)}.")
        if not isinstance(found.get("data"), str):
            raise ConfigError(f'The site file {str(file)!r} must say where the records are: data = "FILE".')
        for name in (
            "validation",
            "ledger",
            "holding",
            "federation",
            "reference",
            "measure",
            "rule",
            "unseen",
            "key",
        ):
            if not isinstance(found.get(name, ""), str):
                raise ConfigError(f"`{name}` in the site file must be text; got {found[name]!r}.")
        for name, kind in (("measure", Measure), ("rule", Rule), ("unseen", Unseen)):
            choices = get_args(kind)
            if found.get(name, choices[0]) not in choices:
                raise ConfigError(f"`{name}` in the site file must be {' or '.join(choices)}; got {found[name]!r}.")
        seed = found.get("insecure_seed", 0)
        # `insecure_seed = false` would turn it on: what counts is whether the line is there.
        if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
            raise ConfigError(f"`insecure_seed` must be an integer, 0 or more, or be left out; got {seed!r}.")
        site = cls(path.parent, **found)
        if site.privacy() is not None and is_drawn(site._place(site.data)):
            raise PrivacyError(
                f"`data` in the site file is a random part of the records ({site.data!r}), and which ones are in it "
                "depends on how many there are: a guarantee needs all of them, so leave the brackets out."
            )
        return site

    def privacy(self) -> DP | None:
        """The budget of this run; None only in a simulation without privacy."""
        if self.epsilon is None:
            if self.insecure_seed is None:
                raise PrivacyError("A site needs a budget to take part: set `epsilon` and `delta`.")
            return None
        if self.delta is None:
            raise PrivacyError("A budget also needs `delta`, such as 1e-6.")
        return DP(self.epsilon, self.delta, self.unit, self.n_public, self.relation)  # type: ignore[arg-type]

    @property
    def key_file(self) -> Path | None:
        """The site's private signing key, if the file names one."""
        return None if self.key is None else self.folder / self.key

    @property
    def ledger_file(self) -> Path:
        """Where spending is written down."""
        return ledger_for(self._place(self.data)) if self.ledger is None else self.folder / self.ledger

    @property
    def data_place(self) -> str:
        """Where the records lie that the ledger pays for."""
        return place_of(self._place(self.data))

    def reference_file(self, info: EmbeddingInfo) -> str | None:
        """The site's file of public statistics, for terms that ask for one; None if there is none."""
        return self._place(self.reference) if self.reference is not None else info.reference or None

    def data_mark(self) -> str:
        """Changes whenever the files of the site's records do; for keeping what was read from them."""
        path = Path(self._place(self.data).partition("#")[0])
        files = sorted(path.rglob("*")) if path.is_dir() else [path]
        marks = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists()]
        return str((self, marks))

    def check_terms(self, settings: FederationSettings) -> None:
        """Refuse terms that the owner of the site has not agreed to."""
        if self.insecure_seed is None and FederationSettings.read(self.folder / self.federation) != settings:
            raise PrivacyError("These are not the terms that this site agreed to, in its copy of federation.toml.")

    def records(self, settings: FederationSettings) -> SiteRecords:
        """The site's records with the federation's classes; vectors of another backbone or size are refused."""
        train = self._read(self.data, settings)
        return SiteRecords(train, None if self.validation is None else self._read(self.validation, settings))

    def _read(self, name: str, settings: FederationSettings) -> EmbeddingSet:
        data = read_embeddings(self._place(name))
        if data.dim != settings.dim:
            raise DataError(
                f"The federation uses vectors of {settings.dim} features; the site's records have {data.dim}."
            )
        if settings.backbone not in ("unknown", data.info.backbone) and data.info.backbone != "unknown":
            raise DataError(
                f"The federation uses vectors of {settings.backbone!r}; the site's are of "
                f"{data.info.backbone!r}. Embed the images again."
            )
        if self.unit == "subject" and data.subject is None:
            raise DataError("A guarantee per subject needs `subject` in the site's data; it has none.")
        return data.with_classes(settings.classes)

    def _place(self, name: str) -> str:
        # Text, because a `#split` may follow.
        return str(self.folder / name)
