"""The report as a plain dict: one builder for the holder of the records, one for everyone else.

`shareable_report` has no argument through which a real vector could come in; that is how it stays safe.
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
from locum.release.passport import AuditEntry, DecisionEntry
from locum.report.audit import entry_facts
from locum.report.maps import flat_map, points_to_draw
from locum.report.measured import Scale, closeness, shareable_figures
from locum.report.text import (
    BANNERS,
    GLOSSARY,
    READING,
    absent,
    claim_facts,
    guess_words,
    plain,
    reason_words,
    summary,
    with_audit_terms,
)
from locum.types import verdict_text

Rows = tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]
# An untrusted manifest can name 100,000 classes; a page stays readable.
_CLASSES = 56
_SETTINGS, _VALUES, _TEXT = 80, 20, 200


def internal_report(
    release: Release,
    *,
    records: Rows | None = None,
    held_out: Rows | None = None,
    measured: Mapping[str, Any] | None = None,
    audit: Mapping[str, Any] | None = None,
    decision: DecisionEntry | None = None,
    map: str = "auto",
    random_state: int = 0,
) -> dict[str, Any]:
    """All that is known about a release. It holds real points and exact counts, so it must not be sent.

    Sections without data are listed under `missing`, with the command that fills them.

    Parameters
    ----------
    release
        The release.
    records
        The records that it was made from: vectors in its space, and class codes in its order.
    held_out
        Records that were not used, in the same form.
    measured
        An evaluation as plain JSON, as `locum evaluate --json` gives it.
    audit
        What `audit_facts` returned.
    decision
        What the holder decided, as the passport names it; None if nothing was decided yet.
    map
        Method of the map: "auto", "tsne" or "pca"; see `flat_map`.
    random_state
        Seed of the draws and of the map.

    Returns
    -------
    dict
        Plain JSON types, for `render`.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.report import internal_report
    >>> X, y = np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1])
    >>> report = internal_report(ClassGaussian().fit(X, y).release(no_dp=True), records=(X, y), map="pca")
    >>> report["records"], sorted(report["missing"])
    (4, ['membership', 'utility'])
    """
    rng = np.random.default_rng(random_state)
    report = _about(release, "internal", digits=3) | {"decision": decision.sentence() if decision else ""}
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
    _in_units(report["utility"], None if report["distances"] is None else report["distances"]["unit"])
    if real is None:
        report["missing"]["map_real"] = absent("internal", "map_real")
        if measured is None:
            report["banner"] = BANNERS["internal without records" if audit is None else "internal with audit"]
    report["files"] = [{"name": n, "sha256": f.sha256, "bytes": f.bytes} for n, f in release.manifest.files.items()]
    return _finished(report)


def shareable_report(
    release: Release,
    *,
    measured: Mapping[str, Any] | None = None,
    audit: AuditEntry | None = None,
    decision: DecisionEntry | None = None,
    map: str = "auto",
    random_state: int = 0,
) -> dict[str, Any]:
    """What a release says about itself: no real point, no exact count, no real distance.

    Parameters
    ----------
    release
        The release.
    measured
        An evaluation as plain JSON, given only at the holder's request. It is rounded, and named in `not_covered`.
    audit
        The audit in the form of a passport, without classes, curves, counts and notes. It is named in `not_covered`.
    decision
        What the holder decided, as the passport names it; None if nothing was decided yet.
    map
        Method of the map: "auto", "tsne" or "pca"; see `flat_map`. A fixed table gets no map.
    random_state
        Seed of the draws and of the map.

    Returns
    -------
    dict
        Plain JSON types, for `render`.

    Raises
    ------
    PrivacyError
        If `audit` is in any other form.

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.report import shareable_report
    >>> report = shareable_report(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True), map="pca")
    >>> report["audience"], "records" in report
    ('shareable', False)
    """
    rng = np.random.default_rng(random_state)
    report = _about(release, "shareable", digits=2) | {"decision": decision.sentence() if decision else ""}
    report["classes"] = _classes(release, None)
    if measured is not None:
        report["utility"], report["membership"] = _figures(shareable_figures(measured))
    if audit is not None:
        if not isinstance(audit, AuditEntry):
            raise PrivacyError("A shareable page accepts an audit only in the form of a passport (`AuditEntry`).")
        report["audit"] = entry_facts(audit.model_dump(), decision=report["decision"])
        report["claim"]["not_covered"].append(
            "the verdicts of attacks on this page: they depend on real records, and no guarantee covers them"
        )
    if measured is not None or (audit is not None and any(result.measured for result in audit.results)):
        report["claim"]["not_covered"].append(
            "the measured figures on this page: they were computed from real records, no guarantee covers them, and "
            "the width of an interval hints at how many records were tested"
        )
        report["banner"] += (
            " Figures measured on records were added on request, rounded; the claim does not cover them."
        )
    # A fixed table has one row per record: its points could be counted.
    report["map"] = None if release.manifest.kind == "data" else _map(release, None, "", map, rng)
    # No file sizes either: that of a fixed table gives its number of rows.
    report["files"] = [{"name": n, "sha256": f.sha256} for n, f in release.manifest.files.items()]
    return _finished(report)


def _about(release: Release, audience: str, *, digits: int) -> dict[str, Any]:
    """What the manifest says, the same for both audiences."""
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
        "claim": claim_facts(claim),
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


def _finished(report: dict[str, Any]) -> dict[str, Any]:
    for section in ("utility", "map", "distances", "membership"):
        if report[section] is None:
            report["missing"][section] = absent(report["audience"], section)
    if report["membership"] is not None:
        words = verdict_text(report["membership"]["verdict"])
        why = report["membership"].get("inconclusive_because", "")
        because = reason_words(why) if report["membership"]["verdict"] == "inconclusive" else ""
        auc = report["membership"]["attack"]
        said = f"{guess_words(auc)} {words.attack}{because}"
        report["membership"] |= {"title": words.title, "sentence": said, "words": f"{words.title}. {said}"}
    if report["audit"] is not None:
        report["glossary"] = with_audit_terms(report["glossary"])
    out: dict[str, Any] = plain(report | {"summary": summary(report)})
    return out


def _in_units(utility: dict[str, Any] | None, unit: float | None) -> None:
    """Put distances to the nearest record in units of the usual one among records; without that, leave them out.

    An evaluation that has them in those units decides, so that a page and `evaluate` show the same.
    """
    if utility is None:
        return
    rows = []
    for row in utility["rows"]:
        far = row["distance"] if unit is not None else None
        keys = ("value", "low", "high")
        if row.get("distance_ratio") is not None:
            far = row["distance_ratio"]
        elif far is not None and unit is not None:
            far = {**far, **{k: None if far[k] is None else far[k] / unit for k in keys}}
        rows.append({**{k: v for k, v in row.items() if k != "distance_ratio"}, "distance": far})
    utility["rows"] = rows


def _figures(measured: Mapping[str, Any] | None) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """The table and the membership check of an evaluation."""
    if measured is None:
        return None, None
    attack = measured["membership"]
    return {k: v for k, v in measured.items() if k != "membership"}, None if attack is None else dict(attack)


def _classes(release: Release, labels: npt.NDArray[np.int64] | None) -> dict[str, Any]:
    """Share of each class in the release, and among the records if they are known."""
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
    """Equally many real and released vectors on one map, or released vectors alone."""
    n = points_to_draw(method, release.manifest.embedding.dim)
    sides: list[tuple[str, Rows]] = []
    if real is not None:
        pick = rng.permutation(len(real[0]))[:n]
        sides.append((f"Real {of}", (real[0][pick], real[1][pick])))
        n = len(pick)
    sides.append(("Released vectors", _draw(release, n, rng)))
    scale = Scale(sides[0][1][0])
    flat = flat_map([scale(X) for _, (X, _) in sides], method)
    # The most common classes get their own mark, in the release's order; the rest share one.
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
