"""The report as a plain dict: one builder for the holder's own eyes, one for everybody else's.

`shareable_report` has no argument through which a real vector could come in; that is the whole guard.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt

from locum._version import __version__
from locum.errors import PrivacyError
from locum.release import Release
from locum.release.passport import AuditEntry
from locum.report.audit import entry_facts
from locum.report.maps import flat_map, points_to_draw
from locum.report.measured import Scale, closeness, shareable_figures
from locum.report.text import BANNERS, GLOSSARY, READING, VERDICTS, absent, plain, summary, with_audit_terms

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
# A stranger's manifest can name 100,000 classes; a page of them helps nobody.
_CLASSES = 56
_SETTINGS, _VALUES, _TEXT = 80, 20, 200


def internal_report(
    release: Release,
    *,
    records: Rows | None = None,
    held_out: Rows | None = None,
    measured: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
    map: str = "auto",
    random_state: int = 0,
) -> dict[str, Any]:
    """All that is known of a release. Holds real points and exact counts: it stays in the building.

    `records` and `held_out` are vectors in the release's space with class codes in its order; `measured`
    is an evaluation as plain JSON, `audit` what `audit_facts` made of an audit. What is not given is named under
    `missing`, with what to type.
    """
    rng = np.random.default_rng(random_state)
    report = _about(release, "internal", digits=3)
    report["classes"] = _classes(release, None if records is None else records[1])
    report["utility"], report["membership"] = _figures(measured)
    report["audit"] = None if audit is None else dict(audit)
    real = records or held_out
    report["map"] = _map(release, real, "records" if records else "held-out records", map, rng)
    if records is not None:
        scale = Scale(records[0])
        drawn = _draw(release, 2000, rng)[0]
        others = None if held_out is None else scale(held_out[0])
        report["distances"] = closeness(scale(drawn), scale(records[0]), others, rng)
        report["records"] = len(records[0])
    if real is None:
        report["missing"]["map_real"] = absent("internal", "map_real")
    report["files"] = [{"name": n, "sha256": f.sha256, "bytes": f.bytes} for n, f in release.manifest.files.items()]
    return _finished(report)


def shareable_report(
    release: Release,
    *,
    measured: Mapping[str, Any] | None = None,
    audit: AuditEntry | None = None,
    map: str = "auto",
    random_state: int = 0,
) -> dict[str, Any]:
    """What a release tells of itself, and no real point, no exact count, no real distance.

    `measured`, given only where the holder asks for it, comes out blurred and is named in `not_covered`. So is an
    `audit`, which can come only as a passport holds it: no class, curve, count or note has a place there.
    """
    rng = np.random.default_rng(random_state)
    report = _about(release, "shareable", digits=2)
    report["classes"] = _classes(release, None)
    if measured is not None:
        report["utility"], report["membership"] = _figures(shareable_figures(measured))
    if audit is not None:
        if not isinstance(audit, AuditEntry):
            raise PrivacyError("A shareable page takes an audit only as a passport holds it (`AuditEntry`).")
        report["audit"] = entry_facts(audit.model_dump())
        report["claim"]["not_covered"].append(
            "the verdicts of attacks on this page: they depend on real records, and no promise covers them"
        )
    if measured is not None or (audit is not None and any(result.figures for result in audit.results)):
        report["claim"]["not_covered"].append(
            "the measured figures on this page: they were computed from real records, no promise covers them, and "
            "the width of an interval hints at how many records were tested"
        )
        report["banner"] += (
            " Figures measured on records were added on request, rounded; the claim does not cover them."
        )
    # A fixed table has a row for each record: its points could be counted.
    report["map"] = None if release.manifest.kind == "data" else _map(release, None, "", map, rng)
    # Nor sizes: that of a fixed table tells its number of rows.
    report["files"] = [{"name": n, "sha256": f.sha256} for n, f in release.manifest.files.items()]
    return _finished(report)


def _about(release: Release, audience: str, *, digits: int) -> dict[str, Any]:
    """What the manifest says, the same for every reader."""
    manifest, claim = release.manifest, release.claim
    settings = sorted(manifest.settings.items())[:_SETTINGS]
    return {
        "format": "locum-report",
        "version": 1,
        "audience": audience,
        "banner": BANNERS[audience],
        "written_on": datetime.now(UTC).date().isoformat(),
        "digits": digits,
        "release": {
            "generator": manifest.generator,
            "holds": manifest.decoder.kind,
            "kind": manifest.kind,
            "classes": len(manifest.classes),
            "features": manifest.embedding.dim,
            "conditions": {c.name: list(c.values[:_VALUES]) for c in manifest.conditions},
            "space": manifest.space,
            "written_by": manifest.written_by,
            "schema": manifest.schema_version,
            "fingerprint": release.fingerprint,
        },
        "claim": {
            "kind": claim.kind,
            "title": claim.title,
            "numbers": _numbers(claim.to_dict()) if claim.kind != "none" else {},
            "sentence": claim.sentence(),
            "not_covered": list(claim.not_covered),
        },
        "utility": None,
        "map": None,
        "distances": None,
        "membership": None,
        "audit": None,
        "missing": {},
        "settings": {k: _short(v if isinstance(v, str) else json.dumps(v, sort_keys=True)) for k, v in settings},
        "embedding": {
            "backbone": manifest.embedding.backbone,
            "revision": manifest.embedding.revision or "not given",
            "preprocessing": manifest.embedding.preprocessing or "not given",
        },
        "versions": {
            "locum": __version__,
            "python": platform.python_version(),
            "numpy": version("numpy"),
            "scikit-learn": version("scikit-learn"),
        },
        "reading": dict(READING),
        "glossary": dict(GLOSSARY),
    }


def _numbers(claim: Mapping[str, Any]) -> dict[str, Any]:
    """What a claim counts in, and of whom, however deep it keeps them: k, epsilon, delta, unit, relation."""
    found: dict[str, Any] = {}
    for name, value in claim.items():
        if isinstance(value, Mapping):
            found |= _numbers(value)
        elif isinstance(value, (int, float)) or name in ("unit", "relation"):
            found[name] = value
    return found


def _finished(report: dict[str, Any]) -> dict[str, Any]:
    for section in ("utility", "map", "distances", "membership"):
        if report[section] is None:
            report["missing"][section] = absent(report["audience"], section)
    if report["membership"] is not None:
        report["membership"]["words"] = VERDICTS[report["membership"]["verdict"]]
    if report["audit"] is not None:
        report["glossary"] = with_audit_terms(report["glossary"])
    out: dict[str, Any] = plain(report | {"summary": summary(report)})
    return out


def _figures(measured: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The table and the check of an evaluation."""
    if measured is None:
        return None, None
    attack = measured["membership"]
    return {k: v for k, v in measured.items() if k != "membership"}, None if attack is None else dict(attack)


def _classes(release: Release, labels: npt.NDArray[np.int64] | None) -> dict[str, Any]:
    """Share of each class as released, beside that among the records where they are known."""
    names = release.manifest.class_names
    prior = np.zeros(len(names))
    for codes, p in release.manifest.joint:
        prior[codes[0]] += p
    counts = None if labels is None else np.bincount(labels, minlength=len(names))
    shown = range(len(names)) if len(names) <= _CLASSES else np.sort(np.argsort(-prior, kind="stable")[:_CLASSES])
    rows = []
    for c in shown:
        row: dict[str, Any] = {"name": names[c], "released": round(float(prior[c]), 4)}
        if counts is not None:
            row |= {"records": int(counts[c]), "share": round(float(counts[c] / counts.sum()), 4)}
        rows.append(row)
    return {"rows": rows, "left_out": len(names) - len(rows)}


def _draw(release: Release, n: int, rng: np.random.Generator) -> Rows:
    if release.manifest.kind == "data":
        n = min(n, len(release.tensors["X"]))
    drawn = release.sample_set(n, random_state=rng)
    return drawn.X, drawn.y


def _map(release: Release, real: Rows | None, of: str, method: str, rng: np.random.Generator) -> dict[str, Any]:
    """Equally many real and released vectors on one map, or released ones alone."""
    n = points_to_draw(method, release.manifest.embedding.dim)
    sides: list[tuple[str, Rows]] = []
    if real is not None:
        pick = rng.permutation(len(real[0]))[:n]
        sides.append((f"Real {of}", (real[0][pick], real[1][pick])))
        n = len(pick)
    sides.append(("Released vectors", _draw(release, n, rng)))
    scale = Scale(sides[0][1][0])
    flat = flat_map([scale(X) for _, (X, _) in sides], method)
    # The commonest classes get a mark of their own, in the release's order; the rest share one.
    common = np.bincount(np.concatenate([y for _, (_, y) in sides]), minlength=len(release.manifest.classes))
    kept = np.sort(np.argsort(-common, kind="stable")[:_CLASSES])
    kept = kept[common[kept] > 0]
    mark = np.full(len(common), -1)
    mark[kept] = np.arange(len(kept))
    panels = [
        {
            "title": title,
            "points": [[round(a, 4), round(b, 4), int(m)] for (a, b), m in zip(at.tolist(), mark[y], strict=True)],
        }
        for (title, (_, y)), at in zip(sides, flat.places, strict=True)
    ]
    return {
        "method": flat.method,
        "why": flat.why,
        "axes": list(flat.axes),
        "classes": [release.manifest.class_names[c] for c in kept],
        "others": int(np.count_nonzero(common)) - len(kept),
        "panels": panels,
    }


def _short(text: str) -> str:
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
