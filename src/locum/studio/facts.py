"""What the page shows, as plain JSON: what recipes say about data and releases, with names below the root."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from locum.data import SPLITS, feature_columns
from locum.embed import holds_images
from locum.errors import LocumError, PolicyError
from locum.io import parquet_files
from locum.studio.actions import Fit, beside
from locum.studio.jobs import Jobs
from locum.studio.places import Root
from locum.types import DP


def about_data(root: Root, name: str) -> dict[str, Any]:
    """A data set at a glance, without opening it."""
    place = root.path(name)
    files = [p for p in place.rglob("*") if p.is_file()] if place.is_dir() else [place]
    return {
        "path": name,
        "kind": _folder_kind(place) if place.is_dir() else f"{place.suffix.lower().lstrip('.')} file",
        # Of a folder only: the parts of a file are known after it was opened.
        "parts": [part for part in SPLITS if (place / part).is_dir()] if place.is_dir() else None,
        # Of a table: a private fit then needs their ranges.
        "columns": len(_columns(place)),
        "files": len(files),
        "megabytes": sum(p.stat().st_size for p in files) / 1e6,
    }


def _columns(place: Path) -> tuple[str, ...]:
    try:
        return () if holds_images(place) else feature_columns(place)
    except LocumError:
        return ()


def about_columns(root: Root, name: str) -> dict[str, Any]:
    """The columns of a table, without any value."""
    from locum.recipes import list_columns

    return list_columns(str(root.path(name))) | {"path": name}


def about_release(root: Root, jobs: Jobs, name: str) -> dict[str, Any]:
    """A release, what was found about it, and where it stands on its way out."""
    from locum.recipes import review_release

    facts = review_release(root.path(name))
    made = next((j for j in jobs.all() if j["kind"] == "fit" and j["arguments"].get("out") == name), None)
    paid = facts["claim"].get("dp")
    return facts | {
        "path": name,
        "ledger": _ledger_of(root, paid["ledger"]) if paid else None,
        "made": None if made is None else {"data": made["arguments"].get("data"), "command": made["command"]},
        "head": beside(name, "head.safetensors").as_posix() if facts["has_head"] else None,
    }


def about_ledger(root: Root, name: str) -> dict[str, Any]:
    """A ledger as `locum ledger show` shows it."""
    from locum.recipes import show_ledger

    return {**show_ledger(root.path(name)), "file": name}


def about_plan(root: Root, fit: Fit) -> dict[str, Any]:
    """What a fit would cost, what is left, and its command line; no record is used."""
    from locum.recipes import show_cost

    out = {"command": fit.command(), "cost": None, "holding": None, "problem": ""}
    if fit.no_dp:
        return out
    budget = DP(fit.epsilon, fit.delta, "subject" if fit.unit == "subject" else "record")
    return out | show_cost(str(root.records(fit.data)), budget, fit.holding, unit_from_data=fit.unit == "auto")


def measured(root: Root) -> list[dict[str, Any]]:
    """What attacks and evaluations measured on the releases below the root, for the dial's curves."""
    from locum.recipes import review_release

    out = []
    for name in root.listing()["releases"]:
        try:
            facts = review_release(root.path(name))
        except LocumError:
            # The desk says what is wrong with it.
            continue
        strongest, use = facts["page"]["strongest"], facts["page"]["usefulness"]
        out.append(
            {
                "release": name,
                "epsilon": None if facts["claim"].get("dp") is None else facts["claim"]["dp"]["epsilon"],
                "classes": len(facts["classes"]),
                "features": facts["features"],
                "attack": None if strongest is None else {"name": strongest["name"], **strongest["auc"]},
                "auc": None if use is None else use["released"],
            }
        )
    return out


def check_approved(release: Path) -> None:
    """Refuse to hand out a release that nobody approved."""
    from locum.recipes import review_release

    facts = review_release(release)
    if facts["outcome"] != "approved":
        raise PolicyError("Only an approved release can be downloaded: decide about it first.")
    if facts["outdated"]:
        raise PolicyError("An attack since the approval had another outcome: decide about the release again.")


def _ledger_of(root: Root, tip: str) -> str | None:
    """The ledger below the root that has a charge."""
    from locum.recipes import ledger_knows

    return next((name for name in root.listing()["ledgers"] if ledger_knows(root.folder / name, tip)), None)


def _folder_kind(place: Path) -> str:
    return "folder of Parquet files" if parquet_files(place) else "folder of images"
