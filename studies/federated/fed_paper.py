"""The federated paper on its own data, ready to run for whoever has the files, with its figures beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from fed_averaged import averaged_cgan
from fed_methods import HEAD, Method, centralized, fedavg, federation, summary, the_paper, together
from fed_sets import Deal, held_out, joined

from locum.data import partition_by, partition_dirichlet, partition_iid
from locum.errors import DataError
from locum.recipes import SetNeeds, StudyResults, study_set, study_splits
from locum.recipes.study import Cell, markdown_table
from locum.recipes.study_sets import SITE_COLUMNS
from locum.types import EmbeddingSet

TITLES = {
    "organs-iid": "OrganSMNIST (CT), 10 sites, alike",
    "organs-dirichlet": "OrganSMNIST (CT), 10 sites, Dirichlet 0.3",
    "camelyon": "Camelyon17, by hospital",
}
# All that the text at hand gives of Table 1.
TARGETS = {"organs-iid": "accuracy about .77 to .78, balanced accuracy about .71 to .72, for the paper's method"}
HAVE = {
    "organs": "OrganSMNIST (MedMNIST, all splits) through DINOv2 ViT-B/14",
    "camelyon": "4,600 patches of Camelyon17 through DINOv2 ViT-B/14, with the hospital of each as an attribute",
}


def methods(config: Mapping[str, Any]) -> dict[str, Method]:
    """The rows of Table 1, the paper's method at its noise and at a true epsilon of 1, and ours."""
    rounds = int(config["paper_rounds"])
    return {
        "the paper, its noise": the_paper("published", rounds),
        "the paper, epsilon 1": the_paper(1.0, rounds),
        "the paper, no privacy": the_paper(None, rounds),
        "FedAvg, as in the paper": fedavg(rounds=50, whiten=False),
        "FedProx, as in the paper": fedavg(rounds=50, proximal=0.05, whiten=False),
        "FedLambda, as in the paper": fedavg(rounds=50, whiten=False, mixed=True),
        "DP-CGAN, averaged": averaged_cgan(1.0, int(config["cgan_rounds"])),
        "centralized": centralized,
        "ours: head, epsilon 1": federation(HEAD, 1.0),
    }


def whole(config: Mapping[str, Any], key: str) -> EmbeddingSet:
    """All splits of a set as one."""
    return joined(list(study_splits(str(config.get(key, key))).values()))


def other_sets(config: Mapping[str, Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Each given set at sites that are alike and at sites that differ."""
    return {"sets": [f"{name}-{how}" for name in names for how in ("iid", "dirichlet")]}


def read(config: Mapping[str, Any]) -> list[str]:
    """The sets behind the scenarios."""
    keys = dict.fromkeys(name.rpartition("-")[0] or name for name in config["sets"])
    return [str(config.get(key, key)) for key in keys]


def hospital_of(config: Mapping[str, Any], data: EmbeddingSet) -> str | None:
    """The attribute that names the hospital: as the settings say, or as `locum embed` calls it."""
    return next((c for c in (str(config["hospital"]), *SITE_COLUMNS) if c in data.attributes), None)


def check(config: Mapping[str, Any]) -> None:
    """Raise `DataError` for hospitals that are not named."""
    if "camelyon" in config["sets"]:
        data = whole(config, "camelyon")
        if hospital_of(config, data) is None:
            known = ", ".join(data.attributes) or "none"
            raise DataError(
                f"{HAVE['camelyon']}: there is no attribute {config['hospital']!r}, the attributes are {known}. Name "
                "the right one: `--set hospital=NAME`."
            )


NEEDS = SetNeeds("sets", parts=(), settings=("organs", "camelyon"), choose=other_sets, names=read)


def dealt(config: Mapping[str, Any], name: str, seed: int) -> Deal:
    """The paper's sites: per label a fifth for testing; its rows then hold out a fifth of the rest for lambda."""
    data, rng = whole(config, name.rpartition("-")[0] or name), np.random.default_rng(seed)
    sites = int(config["sites"])
    if name == "camelyon":
        parts = partition_by(data, str(hospital_of(config, data)))
    elif name.endswith("-dirichlet"):
        parts = partition_dirichlet(data, sites, 0.3, rng, min_records=20)
    else:
        parts = partition_iid(data, sites, rng)
    train, test = held_out(parts, seed)
    # A tenth of one record among all sites.
    delta = 10.0 ** -np.ceil(np.log10(10 * len(data)))
    return Deal(train, test, str(config["reference"]), own_test=True, delta=float(delta))


def cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """One cell per set and method."""
    known = methods(config)

    def cell(name: str, method: str, seed: int) -> Mapping[str, float | str]:
        return summary(*together(known[method], [dealt(config, name, seed)], seed))

    return {f"{s}/{m}": partial(cell, s, m) for s in config["sets"] for m in known}


def titled(name: str, config: Mapping[str, Any]) -> str:
    """A scenario in words."""
    if is_paper_s(name, config):
        return TITLES[name]
    key, _, how = name.rpartition("-")
    title = study_set(str(config.get(key, key))).title
    return f"{title}, {config['sites']} sites, {'alike' if how == 'iid' else 'Dirichlet 0.3'}"


def is_paper_s(name: str, config: Mapping[str, Any]) -> bool:
    """Whether a scenario runs on the paper's set: its file, or one given under its name."""
    key = name.rpartition("-")[0] or name
    value = str(config.get(key, key))
    return key in HAVE and (value == key or study_set(value).file == study_set(key).file)


def render(results: StudyResults, out: Path) -> str:
    """One table per set, with the paper's figures beside where the text gives them."""
    text, columns = [], ("interpolated acc", "interpolated bacc", "global bacc", "local bacc", "lambda", "epsilon")
    for name in results.config["sets"]:
        rows = []
        for method in methods(results.config):
            cell = f"{name}/{method}"
            first = results.raw[cell][str(results.config["seeds"][0])]
            many = len(results.config["seeds"]) > 1
            rows.append(
                [
                    method,
                    *(
                        (f"{results.estimate(cell, c):.3f}" if many else f"{first[c]:.3f}") if c in first else "-"
                        for c in columns
                    ),
                ]
            )
        text += [f"## {titled(name, results.config)}", markdown_table(["method", *columns], rows)]
        if is_paper_s(name, results.config):
            text.append(f"The paper's Table 1: {TARGETS.get(name, 'not given in the text at hand')}.")
        elif name in TARGETS:
            text.append(f"A stand-in for {TITLES[name]}, of which the paper's Table 1 says: {TARGETS[name]}.")
    return "\n\n".join(text)
