"""The public terms of a federation: all sites share them, and anyone may know them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from locum.data import REFERENCES
from locum.errors import ConfigError
from locum.federated.secure import colluders
from locum.io import read_toml

Mode = Literal["sums", "decoder"]
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
        "sums": one round, in which sites send noisy class statistics; the result is a class Gaussian. "decoder":
        that, then `rounds` of training, in which decoders are averaged and encoders stay at the sites.
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
    secure, colluding
        For sums: each site's are masked, so that only their total can be read, and all sites together add the noise
        of one. `colluding` is the share of the sites that may collude with the coordinator; if more do, the guarantee
        does not hold.
    max_sites, max_size, max_epsilon, max_noise
        What the coordinator lets a site declare, and how many sites may mask their sums together: a site that
        declares impossibly many records, or hardly any privacy, would spoil the result or the claim for all.
    min_sites
        A round with fewer usable replies stops the run.
    max_sites_per_subject
        At how many sites one subject can have records; None means all of them. It is part of the claim.
    balanced
        Heads weight all classes equally, however rare.
    seed
        Seed of the initial weights, which all sites share, and of the heads of the sites; 0 or more.

    Examples
    --------
    >>> from locum.federated import FederationSettings
    >>> settings = FederationSettings(("benign", "malignant"), dim=1280, mode="sums", secure=True)
    >>> settings.least_sites
    3
    """

    classes: tuple[str, ...]
    dim: int
    reference: str = "none"
    reference_sha256: str = ""
    backbone: str = "unknown"
    mode: Mode = "decoder"
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
    colluding: float = 1 / 3
    min_sites: int = 2
    max_sites: int = 1000
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
        integers = ("dim", "latent", "batch", "local_epochs", "rounds", "min_sites", "max_sites", "max_size")
        for name in integers:
            _check(name, getattr(self, name), isinstance(getattr(self, name), int), least=1)
        if not self.hidden or any(isinstance(h, bool) or not isinstance(h, int) or h < 1 for h in self.hidden):
            raise ConfigError(f"`hidden` must be widths of 1 or more; got {list(self.hidden)!r}.")
        for name in ("beta", "learning_rate", "clip", "max_epsilon", "max_noise"):
            _check(name, getattr(self, name), True, least=1e-12)
        _check("trim", self.trim, self.trim < 0.5, least=0, hint=" Below 0.5: something must be left.")
        _check("colluding", self.colluding, self.colluding < 1, least=0, hint=" Below 1: some site must be honest.")
        if self.secure and self.mode != "sums":
            raise ConfigError(f"`secure` masks sums and needs mode 'sums'; got mode {self.mode!r}.")
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
        if self.reference == "own" and not self.reference_sha256:
            raise ConfigError("`reference` 'own' needs `reference_sha256`: `locum reference show FILE` prints it.")

    @property
    def least_sites(self) -> int:
        """How many sites a round needs: `min_sites`, or more where the average or the masks need more."""
        least = max(self.min_sites, 3 if self.average == "trimmed-mean" and self.mode == "decoder" else 1)
        while self.secure and least - colluders(least, self.colluding) < 2:
            least += 1
        return least

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {**asdict(self), "classes": list(self.classes), "hidden": list(self.hidden)}

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
        settings = self.to_dict().items()
        return "".join(f"{k} = {json.dumps(v, ensure_ascii=False)}\n" for k, v in settings if v is not None)


_SHA256 = re.compile("([0-9a-f]{64})?")
_CHOICES: dict[str, tuple[str, ...]] = {
    # Never a file name: the author of the terms must not choose which files of a site are read.
    "reference": ("none", "own", *REFERENCES),
    "mode": ("sums", "decoder"),
    "initial_query": ("class", "public"),
    "covariance": ("public", "own"),
    "weights": ("equal", "counts"),
    "average": ("mean", "median", "trimmed-mean"),
}


def _check(name: str, value: Any, fine: bool, least: float, hint: str = "") -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not fine or not least <= value < math.inf:
        raise ConfigError(f"`{name}` must be {'a number' if hint else 'at least'} {least:g}; got {value!r}.{hint}")
