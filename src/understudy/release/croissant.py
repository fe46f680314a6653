"""A release as catalogues of data sets read it: Croissant 1.0, which is JSON-LD on top of schema.org."""

from __future__ import annotations

import json
from typing import Any

from understudy.release.folder import CARD, MANIFEST, tensor_file
from understudy.release.manifest import Manifest
from understudy.release.passport import Passport

__all__ = ["render_croissant"]

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
    "rows: Understudy, or any reader of the release format, turns them into vectors.",
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
        "name": f"understudy-release-{passport.release.fingerprint[:16]}",
        "description": (
            f"A stand-in for data that stayed at home, made by Understudy's {manifest.generator}. "
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
