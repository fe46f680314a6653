"""A differentially private release as a registry of deployments would list it."""

from __future__ import annotations

import json
from typing import Any

from understudy.errors import ConfigError
from understudy.release.manifest import Manifest
from understudy.release.passport import Passport

__all__ = ["render_registry"]

_RELATIONS = {
    "add-or-remove": "one {unit} more or less",
    "replace-one": "one {unit} replaced by another",
}


def render_registry(manifest: Manifest, passport: Passport) -> str:
    """Product, flavour, unit, parameters, mechanisms and accounting as JSON text.

    The columns are those of public registries of deployments; who the holder is, is for the holder to fill in.
    """
    dp = passport.ledger
    if dp is None:
        raise ConfigError(f"A registry of differential privacy takes no claim of kind {passport.claim.kind!r}.")
    unit = passport.claim.unit
    record: dict[str, Any] = {
        "format": "understudy-dp-registry",
        "schema_version": 1,
        "product": {
            "name": f"Understudy release ({manifest.generator})",
            "description": "Parameters of a generator of vectors that stand in for records"
            if manifest.kind == "decoder"
            else "A table of vectors that stand in for records",
            "fingerprint": passport.release.fingerprint,
            "year": int(passport.written_on[:4]),
            "data_holder": None,
        },
        "flavour": "approximate differential privacy",
        "model": "central, at each of several sites" if "sites" in manifest.settings else "central",
        "unit": {"protected": unit, "neighbours": dp.relation, "in_words": _RELATIONS[dp.relation].format(unit=unit)},
        "parameters": {"epsilon": dp.epsilon, "delta": dp.delta, "scope": "this release alone"},
        "mechanisms": [dict(event) for event in dp.events],
        "accounting": {
            "method": "privacy-loss distributions: the epsilon of the mechanisms at delta, rounded up",
            "library": f"dp-accounting {passport.versions.get('dp-accounting', '')}".strip(),
            "across_releases": "a ledger of the data holding, valid under adaptive choice, adds up all releases",
            "ledger_head": dp.ledger,
            "check": "understudy verify computes epsilon anew from the mechanisms",
        },
        "implementation": {"software": manifest.written_by, "coins": "cryptographic, keyed by the operating system"},
        "not_covered": list(passport.claim.not_covered),
    }
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
