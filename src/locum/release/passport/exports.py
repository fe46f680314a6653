"""A differentially private release as a registry of deployments would list it."""

from __future__ import annotations

import json
from typing import Any

from locum.errors import ConfigError
from locum.io import MANIFEST
from locum.release.folder import CARD, tensor_file
from locum.release.manifest import Manifest
from locum.release.passport.schema import Passport

# A catalogue's page of more classes helps nobody; the manifest has them all.
_CLASSES = 1000
_TERMS = {
    **{
        name: f"cr:{name}"
        for name in (
            "citeAs", "column", "extract", "field", "fileObject", "fileProperty", "fileSet", "format", "includes",
            "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
            "repeated", "replace", "separator", "source", "subField", "transform",
        )
    },
    "@language": "en",
    "@vocab": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
}  # fmt: skip
_WHAT = {
    "decoder": "It is no table but a decoder, which gives ever new vectors. Its file of numbers holds weights, not "
    "rows: Locum, or any reader of the release format, turns them into vectors.",
    "data": "It is a fixed table of vectors that stand in for records.",
}


def render_croissant(manifest: Manifest, passport: Passport) -> str:
    """The metadata as JSON text: what the folder is, its files, its classes, and what nothing protects.

    The vectors of a release are in no form that Croissant can read rows from, and a decoder has no rows: the one
    record set is that of the classes, with the shares as released, which are rounded.
    """
    claim = passport.privacy_claim()
    numbers = tensor_file(manifest.kind)
    about: dict[str, Any] = {
        "@context": _TERMS,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"locum-release-{passport.release.fingerprint[:16]}",
        "description": (
            f"A stand-in for data that stayed at home, made by Locum's {manifest.generator}. "
            f"{_WHAT[manifest.kind]} Vectors have {manifest.embedding.dim} features ({manifest.embedding.backbone}). "
            f"Claim: {claim.title}. {claim.sentence()}"
        ),
        "datePublished": passport.written_on,
        "version": f"{manifest.schema_version}.0.0",
        "isLiveDataset": False,
        "keywords": ["synthetic data", "privacy", "embeddings", f"claim: {manifest.claim.kind}"],
        "rai:dataLimitations": "; ".join(claim.not_covered),
        "rai:personalSensitiveInformation": (
            "Made from records of people, which are not in it. What can still be learnt of them is bounded by the "
            "claim where there is one, and by nothing else."
        ),
        "distribution": [
            _file(MANIFEST, "application/json", passport.release.fingerprint, "What it is and what it promises"),
            _file(numbers, "application/octet-stream", manifest.files[numbers].sha256, "Numbers, as safetensors"),
            _file(CARD, "text/markdown", manifest.files[CARD].sha256, "The card, for people"),
        ],
    }
    if len(manifest.classes) <= _CLASSES:
        about["recordSet"] = [_classes(manifest)]
    return json.dumps(about, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _file(name: str, form: str, sha256: str, words: str) -> dict[str, str]:
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": words,
        "contentUrl": name,
        "encodingFormat": form,
        "sha256": sha256,
    }


def _classes(manifest: Manifest) -> dict[str, Any]:
    shares = [0.0] * len(manifest.classes)
    for codes, p in manifest.joint:
        shares[codes[0]] += p
    rows = [
        {"classes/name": name, "classes/share": round(share, 4)}
        for name, share in zip(manifest.class_names, shares, strict=True)
    ]
    return {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "description": "The classes that vectors are drawn for, and the share of each, rounded as released.",
        "field": [
            _field("name", "sc:Text", "Name of the class"),
            _field("share", "sc:Float", "Share of vectors that are drawn for it"),
        ],
        "data": rows,
    }


def _field(name: str, kind: str, words: str) -> dict[str, str]:
    return {
        "@type": "cr:Field",
        "@id": f"classes/{name}",
        "name": f"classes/{name}",
        "description": words,
        "dataType": kind,
    }


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
        "format": "locum-dp-registry",
        "schema_version": 1,
        "product": {
            "name": f"Locum release ({manifest.generator})",
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
            "check": "locum verify computes epsilon anew from the mechanisms",
        },
        "implementation": {"software": manifest.written_by, "coins": "cryptographic, keyed by the operating system"},
        "not_covered": list(passport.claim.not_covered),
    }
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
