"""A federation simulated on one machine: the code of a real run, with seeded randomness, so nothing is guaranteed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from locum.accounting import epsilon_of
from locum.data import stratified_split, subject_split, write_embeddings
from locum.errors import ConfigError
from locum.federated.certificates import make_site_key
from locum.federated.coordinator import Coordinator
from locum.federated.personal import PersonalModel
from locum.federated.settings import FederationSettings
from locum.federated.site import Site
from locum.federated.terms import plan_site
from locum.federated.transport.local import LocalChannel
from locum.metrics import accuracy, balanced_accuracy, clopper_pearson, f1
from locum.types import DP, EmbeddingSet, Estimate

Engine = Literal["local", "ray"]
# As in the federated paper: a fifth to test on and, if asked for, a fifth of the rest to choose lambda.
_FIFTH = 0.2
_LAMBDAS = {"interpolated": None, "global": 0.0, "local": 1.0}


@dataclass(frozen=True, slots=True)
class SiteScore:
    """The scores of one site on its test records: with its own lambda, and with either head alone.

    `epsilon_spent` is computed from the events that a real run would charge; None without a budget. `fallback`: the
    site uses its own head alone, because the mix was not better beyond chance. `notes` are warnings to the site.
    """

    name: str
    n: int
    epsilon_spent: float | None
    lam: float
    acc: Estimate
    bacc: float
    f1: float
    alone: Mapping[str, Mapping[str, float]]
    fallback: bool = False
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON."""
        return {
            "name": self.name,
            "n": self.n,
            "epsilon_spent": self.epsilon_spent,
            "lambda": self.lam,
            "acc": self.acc.value,
            "acc_interval": [self.acc.low, self.acc.high],
            "bacc": self.bacc,
            "f1": self.f1,
            **{name: dict(scores) for name, scores in self.alone.items()},
            "fallback": self.fallback,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """The release of a simulation, which is always marked as a test, and the scores of the sites.

    Attributes
    ----------
    release
        Folder of the release.
    sites
        One entry per site: `name`, number of records `n`, `epsilon_spent`, `lam`, accuracy `acc` with its interval,
        balanced accuracy `bacc`, `f1`, the scores of either head `alone`, whether the site falls back to its own
        head, and `notes`. Private.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.federated import simulate
    >>> found = simulate(parts, settings, None, out=Path("out"), work=Path("work"))  # doctest: +SKIP
    >>> [(site.name, site.lam, site.acc.value) for site in found.sites]  # doctest: +SKIP
    """

    release: Path
    sites: tuple[SiteScore, ...]

    @property
    def warning(self) -> str:
        """A note if the interpolation is useless: at every site the same head gets all the weight."""
        lams = {site.lam for site in self.sites}
        if lams == {0.0}:
            return "Every lambda is 0: no site gains from its own records. Are they too few, or badly labeled?"
        if lams == {1.0}:
            return "Every lambda is 1: no site gains from the federation. Is the budget too small?"
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings of all sites, with the sites that have them; the most frequent first."""
        sites: dict[str, list[str]] = {}
        for site in self.sites:
            for note in site.notes:
                sites.setdefault(note, []).append(site.name)
        ordered = sorted(sites.items(), key=lambda item: -len(item[1]))
        return tuple(f"{', '.join(names)}: {note}" for note, names in ordered)


def write_sites(
    parts: Mapping[str, EmbeddingSet],
    folder: Path,
    privacy: DP | None,
    seed: int,
    *,
    validation: bool = False,
    test: EmbeddingSet | None = None,
    reference: Path | None = None,
) -> dict[str, EmbeddingSet]:
    """Write one folder per site with its records and `site.toml`; returns the test records, held out from training.

    With `test` these are the same for all sites, and each site trains on all of its own records. Files that are there
    already are written again, the same; the state of a site is not touched.
    """
    held = {}
    for i, (name, data) in enumerate(parts.items()):
        home = folder / f"site-{i}"
        home.mkdir(parents=True, mode=0o700, exist_ok=True)
        rng = np.random.default_rng([seed, i])
        split = stratified_split if data.subject is None else subject_split
        shares = {} if test is not None else {"test": _FIFTH}
        left = 1 - sum(shares.values())
        shares |= {"val": _FIFTH * left, "train": (1 - _FIFTH) * left} if validation else {"train": left}
        # A single part needs no split, and its share of 1 would be read as a size.
        found = split(data, shares, rng=rng) if len(shares) > 1 else {"train": data}
        if any(part not in found or not len(found[part]) for part in shares):
            raise ConfigError(f"{name} has too few records to be split into {', '.join(shares)}: use fewer sites.")
        settings: dict[str, Any] = {"data": "train.npz", "insecure_seed": 1000 * seed + i}
        write_embeddings(home / "train.npz", found["train"])
        if validation:
            write_embeddings(home / "val.npz", found["val"])
            # As in the federated paper.
            settings |= {"validation": "val.npz", "rule": "paper", "measure": "log_loss"}
        if not (home / f"site-{i}.key").exists():
            make_site_key(home, f"site-{i}")
        settings["key"] = f"site-{i}.key"
        if reference is not None:
            settings["reference"] = str(reference)
        if privacy is not None:
            names = ("epsilon", "delta", "n_public", "unit", "relation")
            settings |= {k: getattr(privacy, k) for k in names if getattr(privacy, k) is not None}
        (home / "site.toml").write_text("".join(f"{k} = {json.dumps(v)}\n" for k, v in settings.items()))
        held[name] = found["test"] if test is None else test
    return held


def simulate(
    parts: Mapping[str, EmbeddingSet],
    settings: FederationSettings,
    privacy: DP | None,
    *,
    out: Path,
    work: Path,
    engine: Engine = "local",
    seed: int = 0,
    validation: bool = False,
    test: EmbeddingSet | None = None,
    reference: str | Path | None = None,
    on_event: Callable[[dict[str, Any]], None] | None = None,
) -> Simulation:
    """Simulate a federation on this machine, in one process or on Flower's simulation engine: the same result.

    Randomness is seeded: the release in `out` is marked as a test and guarantees nothing, whatever `privacy` says.

    Parameters
    ----------
    parts
        The records of each site, by name.
    settings
        The public terms.
    privacy
        Budget of each site; None: nothing is clipped and no noise is added.
    out
        Folder for the release and the coordinator's state.
    work
        A folder for what a real site keeps to itself, such as its records. A simulation that was killed resumes if it
        is started again with the same arguments, `out` and `work`.
    engine
        "local": one process; "ray": Flower's simulation engine.
    seed
        Seed of everything.
    validation
        Choose lambda on held-out records, as in the federated paper, and not by cross-validation.
    test
        Records that all sites are tested on; None: each site holds out a fifth of its own.
    reference
        File of public statistics, if the terms name one by its hash.
    on_event
        Called with one plain dict per event.

    Returns
    -------
    Simulation
        The release's folder and the scores of the sites.

    Examples
    --------
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from locum.data import load_sample, partition_iid
    >>> from locum.federated import FederationSettings, simulate
    >>> parts = partition_iid(load_sample("breast-cancer"), 2, np.random.default_rng(0))
    >>> settings = FederationSettings(("malignant", "benign"), dim=30, mode="sums")
    >>> found = simulate(parts, settings, None, out=Path("out"), work=Path("work"), validation=True)
    >>> len(found.sites)
    2
    """
    if reference is not None:
        reference = Path(reference).resolve()
    held = write_sites(parts, work, privacy, seed, validation=validation, test=test, reference=reference)
    if settings.masked:
        settings = _with_sites(settings, privacy, work, len(parts))
    if engine == "local":
        files = {f"site-{i}": work / f"site-{i}" / "site.toml" for i in range(len(parts))}
        release = Coordinator(settings, out, reference=reference, on_event=on_event).run(
            LocalChannel(files, on_event=on_event)
        )
    else:
        from locum.federated.transport.ray import simulate_on_ray

        release = simulate_on_ray(settings, work, len(parts), out, reference=reference, on_event=on_event)
    scores = []
    for i, (name, records) in enumerate(held.items()):
        site = Site(work / f"site-{i}" / "site.toml")
        scores.append(_score(name, len(parts[name]), site, settings, privacy, records))
    return Simulation(release, tuple(scores))


def _with_sites(settings: FederationSettings, privacy: DP | None, work: Path, sites: int) -> FederationSettings:
    """The terms of a simulation with masked sums: its sites, and the budget that they have."""
    names = [f"site-{i}" for i in range(sites)]
    keys = {name: (work / name / f"{name}.pub").read_text().strip() for name in names}
    budget = {} if privacy is None else {k: getattr(privacy, k) for k in ("epsilon", "delta", "unit", "relation")}
    return replace(settings, sites=keys, **budget)


def _score(
    name: str, n: int, site: Site, settings: FederationSettings, privacy: DP | None, test: EmbeddingSet
) -> SiteScore:
    model = PersonalModel.open(site.personal_folder)
    test = test.with_classes(settings.classes)
    guesses = {kind: model.predict(test.X, lam) for kind, lam in _LAMBDAS.items()}
    own = guesses["interpolated"]
    spent = None
    if privacy is not None:
        spent = epsilon_of(plan_site(settings, privacy).events, privacy.delta, privacy.relation)
    alone = {
        kind: {
            "acc": accuracy(test.y, guess),
            "bacc": balanced_accuracy(test.y, guess),
            "f1": f1(test.y, guess),
        }
        for kind, guess in guesses.items()
        if kind != "interpolated"
    }
    return SiteScore(
        name,
        n,
        spent,
        model.lam,
        clopper_pearson(int((own == test.y).sum()), len(test)),
        balanced_accuracy(test.y, own),
        f1(test.y, own),
        alone,
        model.fallback,
        model.notes,
    )
