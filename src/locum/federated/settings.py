"""The public terms of a federation: all sites share them, and anyone may know them."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from locum.data import REFERENCES
from locum.errors import ConfigError
from locum.federated.site_keys import check_site_name, key_id, read_public_key
from locum.io import read_toml
from locum.types import DP, Relation, Unit

Mode = Literal["head", "sums", "decoder"]
Average = Literal["mean", "median", "trimmed-mean"]


@dataclass(frozen=True, slots=True)
class FederationSettings:
    """What is learned together, and how. Budgets, paths and sizes of the sites are not part of it: they stay local.

    Parameters
    ----------
    classes
        The names of all classes that can occur, at any site.
    dim, reference, reference_sha256, backbone
        The vectors: how many features, which public statistics whiten them, which backbone made them. "own": a file
        that every site and the coordinator have, with this hash (`locum reference show`). A site whose statistics
        have another hash is refused; an empty one is not checked.
    mode
        "head": sites learn a linear classifier together by private gradient steps, each of which is one masked sum;
        the result is a class Gaussian that carries it. "sums": one round, in which sites send noisy class statistics;
        the result is a class Gaussian. "decoder": that, then `rounds` of training, in which decoders are averaged and
        encoders stay at the sites.
    sites
        The public signing key of each site by its name, as NAME.pub has it (`locum federate pin` writes them). Masked
        sums need them: a site answers together with these sites only.
    epsilon, delta, unit, relation
        The guarantee of all masked sums together; a site that has a smaller budget does not take part. Without masks
        each site states its own.
    initial_query
        For decoders: "class" trains around the noisy class means of all sites; "public" around 0, as in the federated
        paper.
    covariance
        For sums: "public" uses the covariance of the reference, "own" pays for a noisy one.
    hidden, latent, beta, batch, local_epochs, rounds, learning_rate, clip
        The network of a site and its training. The defaults are those of the federated paper.
    weights
        How decoders are averaged: "equal", or "counts" for the noisy counts that sites have paid for.
    average, trim
        "mean", or an average that resists a poisoned site: "median", or "trimmed-mean" without the share `trim` at
        either end.
    secure
        For mode "sums": mask them, so that only their total can be read, and all sites together add the noise of
        about one. Mode "head" always does.
    colluding, absent
        For masked sums: how many sites may collude with the coordinator (if more do, the guarantee is weaker: the
        claim says by how much), and how many may stay away from a sum. Both cost noise.
    max_size, max_epsilon, max_noise
        What the coordinator lets a site declare: a site that declares impossibly many records, or hardly any privacy,
        would spoil the result or the claim for all.
    min_sites
        A round with fewer usable replies stops the run.
    max_sites_per_subject
        At how many sites one subject can have records. It is part of the claim, and with masked sums it multiplies
        the noise. None: one with masked sums, otherwise all of them.
    balanced
        Heads weight all classes equally, however rare.
    seed
        Seed of the initial weights, which all sites share, and of the heads of the sites; 0 or more.

    Examples
    --------
    >>> from locum.federated import FederationSettings
    >>> settings = FederationSettings(("benign", "malignant"), dim=1280)
    >>> settings.mode, settings.masked, settings.privacy.epsilon
    ('head', True, 1.0)
    """

    classes: tuple[str, ...]
    dim: int
    reference: str = "none"
    reference_sha256: str = ""
    backbone: str = "unknown"
    mode: Mode = "head"
    sites: Mapping[str, str] = field(default_factory=dict)
    epsilon: float = 1.0
    delta: float = 1e-6
    unit: Unit = "record"
    relation: Relation = "add-or-remove"
    initial_query: Literal["class", "public"] = "class"
    covariance: Literal["public", "own"] = "public"
    hidden: tuple[int, ...] = (256, 256, 256)
    latent: int = 100
    beta: float = 0.1
    batch: int = 256
    local_epochs: int = 5
    rounds: int = 50
    learning_rate: float = 1e-3
    clip: float = 1.5
    weights: Literal["equal", "counts"] = "counts"
    average: Average = "mean"
    trim: float = 0.2
    secure: bool = False
    colluding: int = 1
    absent: int = 0
    min_sites: int = 2
    max_size: int = 1_000_000
    max_epsilon: float = 20.0
    max_noise: float = 10_000.0
    max_sites_per_subject: int | None = None
    balanced: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", tuple(str(c) for c in self.classes))
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if len(self.classes) < 2 or len(set(self.classes)) < len(self.classes):
            raise ConfigError(f"`classes` must name two classes or more, each once; got {list(self.classes)!r}.")
        object.__setattr__(self, "sites", {str(k): v for k, v in self.sites.items()})
        integers = ("dim", "latent", "batch", "local_epochs", "rounds", "min_sites", "max_size", "colluding")
        for name in integers:
            _check(name, getattr(self, name), isinstance(getattr(self, name), int), least=1)
        if not self.hidden or any(isinstance(h, bool) or not isinstance(h, int) or h < 1 for h in self.hidden):
            raise ConfigError(f"`hidden` must be widths of 1 or more; got {list(self.hidden)!r}.")
        for name in ("beta", "learning_rate", "clip", "max_epsilon", "max_noise"):
            _check(name, getattr(self, name), True, least=1e-12)
        _check("trim", self.trim, self.trim < 0.5, least=0, hint=" Below 0.5: something must be left.")
        _check("absent", self.absent, isinstance(self.absent, int), least=0)
        if self.secure and self.mode == "decoder":
            raise ConfigError("`secure` masks sums, and mode 'decoder' sends decoders: use mode 'head' or 'sums'.")
        _check("seed", self.seed, isinstance(self.seed, int), least=0)
        if self.seed >= 2**32:
            raise ConfigError(f"`seed` must be below {2**32}; got {self.seed!r}.")
        if self.max_sites_per_subject is not None:
            _check(
                "max_sites_per_subject", self.max_sites_per_subject, isinstance(self.max_sites_per_subject, int), 1
            )
        for name in ("secure", "balanced"):
            # The text "false" would count as true.
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"`{name}` must be true or false; got {getattr(self, name)!r}.")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ConfigError(f"`{name}` must be one of {', '.join(allowed)}; got {getattr(self, name)!r}.")

        if not isinstance(self.reference_sha256, str) or not _SHA256.fullmatch(self.reference_sha256):
            raise ConfigError(
                f"`reference_sha256` must be empty or 64 hexadecimal digits; got {self.reference_sha256!r:.80}."
            )
        # Checks the numbers too.
        _ = self.privacy
        self._check_sites()
        if self.reference == "own" and not self.reference_sha256:
            raise ConfigError("`reference` 'own' needs `reference_sha256`: `locum reference show FILE` prints it.")

    def _check_sites(self) -> None:
        if not self.sites:
            return
        keys = [read_public_key(check_site_name(name), text) for name, text in self.sites.items()]
        if len({key_id(key) for key in keys}) < len(keys):
            raise ConfigError("Two sites have the same public key in `sites`: each site needs its own.")
        if self.masked:
            # Imported late: it needs cryptography, which other modes and readers of a release do without.
            from locum.federated.mask_terms import check_sites

            check_sites(len(self.sites), self.absent, self.colluding)
            if self.max_size * len(self.sites) > _MOST_RECORDS:
                raise ConfigError(
                    f"Masked sums of {len(self.sites)} sites with `max_size` {self.max_size} could be larger than "
                    f"64-bit integers: set `max_size` to {_MOST_RECORDS // len(self.sites)} or less."
                )

    @property
    def masked(self) -> bool:
        """Whether sites mask their sums, so that only totals can be read."""
        return self.mode == "head" or (self.mode == "sums" and self.secure)

    @property
    def honest(self) -> int:
        """How many honest sites every masked sum has, if no more stay away or collude than the terms allow."""
        return len(self.sites) - self.absent - self.colluding

    @property
    def privacy(self) -> DP:
        """The guarantee of masked sums."""
        return DP(self.epsilon, self.delta, self.unit, relation=self.relation)

    @property
    def sites_per_subject(self) -> int | None:
        """At how many sites one subject can have records; None: at all of them."""
        if self.max_sites_per_subject is None and self.masked:
            return 1
        return self.max_sites_per_subject

    @property
    def least_sites(self) -> int:
        """How many sites a round or a sum needs."""
        if self.masked:
            # Without a list of sites, the least that any list could have.
            least = max(self.absent + self.colluding + 1, self.colluding + 2)
            return len(self.sites) - self.absent if self.sites else least
        return max(self.min_sites, 3 if self.average == "trimmed-mean" and self.mode == "decoder" else 1)

    def hash(self) -> str:
        """SHA-256 of all settings: sites sign it, so that all of them work under the same terms."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            **asdict(self),
            "classes": list(self.classes),
            "hidden": list(self.hidden),
            "sites": dict(sorted(self.sites.items())),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FederationSettings:
        """Undo `to_dict`. An unknown setting is an error: a typo must not fall back to a default."""
        known = {f.name for f in fields(cls)}
        for name in data:
            if name not in known:
                raise ConfigError(f"There is no setting {name[:80]!r}; there are {', '.join(sorted(known))}.")
        for name in ("classes", "hidden"):
            given = data.get(name, ())
            # Named by its type: a hostile one may be too deep to print.
            parts = given if isinstance(given, list | tuple) else [None]
            if wrong := [part for part in parts if not isinstance(part, str | int)]:
                found = (
                    f"one with a {type(wrong[0]).__name__} in it" if parts is given else f"a {type(given).__name__}"
                )
                raise ConfigError(f"`{name}` must be a list of names or numbers; got {found}.")
        sites = data.get("sites", {})
        if not isinstance(sites, dict) or not all(isinstance(key, str) for key in sites.values()):
            raise ConfigError("`sites` must be a table of public keys by name, as `locum federate pin` writes it.")
        try:
            return cls(**data)
        except TypeError as error:
            raise ConfigError(f"The settings of the federation cannot be read: {str(error)[:200]}.") from None

    @classmethod
    def read(cls, file: str | Path) -> FederationSettings:
        """Read the terms from a file, `federation.toml`."""
        return cls.from_dict(read_toml(file, "terms file"))

    def to_toml(self) -> str:
        """Every setting, so that later defaults change nothing. JSON values are valid TOML; None is left out."""
        settings = self.to_dict()
        sites = settings.pop("sites")
        lines = [f"{k} = {json.dumps(v, ensure_ascii=False)}\n" for k, v in settings.items() if v is not None]
        # A table comes last in TOML.
        if sites:
            lines += ["\n[sites]\n", *(f"{name} = {json.dumps(key)}\n" for name, key in sites.items())]
        return "".join(lines)


# Sums of so many records, each below 2**36, are below 2**62.
_MOST_RECORDS = 2**26
_SHA256 = re.compile("([0-9a-f]{64})?")
_CHOICES: dict[str, tuple[str, ...]] = {
    # Never a file name: the author of the terms must not choose which files of a site are read.
    "reference": ("none", "own", *REFERENCES),
    "mode": ("head", "sums", "decoder"),
    "initial_query": ("class", "public"),
    "covariance": ("public", "own"),
    "weights": ("equal", "counts"),
    "average": ("mean", "median", "trimmed-mean"),
}


def _check(name: str, value: Any, fine: bool, least: float, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not fine or not least <= value < math.inf:
        raise ConfigError(f"`{name}` must be {'a number' if hint else 'at least'} {least:g}; got {value!r}.{hint}")
