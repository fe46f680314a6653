"""A passport as Croissant metadata for catalogs, and as an entry for registries of differential privacy."""

from __future__ import annotations

import json
from typing import Any

from locum.errors import ConfigError
from locum.io import MANIFEST
from locum.release.folder import CARD, tensor_file
from locum.release.manifest import Manifest
from locum.release.passport.schema import Passport

# SPDX's word for "nobody says"; a sentence is not a license, and without the property validators warn.
NO_LICENSE = "NOASSERTION"
_TERMS_OF_USE = "No license is stated: ask the data holder for the terms of use."
# A longer list is useless on a catalog page; the manifest has all classes.
_CLASSES = 1000
_TERMS = {
    **{
        name: f"cr:{name}"
        for name in (
            "citeAs", "column", "equivalentProperty", "extract", "field", "fileObject", "fileProperty", "fileSet",
            "format", "includes",
            "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex",
            "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
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
    "decoder": "It is not a table but a decoder, which can draw any number of new vectors. Its tensor file holds "
    "weights, not rows: Locum, or any reader of the release format, turns them into vectors.",
    "data": "It is a fixed table of vectors that stand in for records.",
}


def render_croissant(manifest: Manifest, passport: Passport) -> str:
    """Croissant metadata as JSON text: what the folder is, its files, its classes, and what is not covered.

    Croissant cannot read rows from a release's tensors, and a decoder has no rows: the only record set is that of the
    classes, with their released, rounded shares.

    Parameters
    ----------
    manifest
        The manifest of a saved release, which lists its files.
    passport
        Its passport.

    Returns
    -------
    str
        JSON-LD; the same input gives the same text.

    Examples
    --------
    >>> import json
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release import load
    >>> from locum.release.passport import build_passport, render_croissant
    >>> release = load(ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).save("croissant"))
    >>> passport = build_passport(release.manifest, release.fingerprint, written_on="2025-01-31")
    >>> json.loads(render_croissant(release.manifest, passport))["datePublished"]
    '2025-01-31'
    """
    claim = passport.claim
    numbers = tensor_file(manifest.kind)
    about: dict[str, Any] = {
        "@context": _TERMS,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": f"locum-release-{passport.release.fingerprint[:16]}",
        "description": (
            f"A stand-in for private data, made by Locum's {manifest.generator}. "
            f"{_WHAT[manifest.kind]} Vectors have {manifest.embedding.dim} features ({manifest.embedding.backbone}). "
            f"Claim: {claim.title}. {claim.sentence()} {_TERMS_OF_USE}"
        ),
        # Only the holder can say more, and neither manifest nor passport has a place for it.
        "license": NO_LICENSE,
        "citeAs": _citation(manifest, passport),
        "datePublished": passport.written_on,
        "version": f"{manifest.schema_version}.0.0",
        "isLiveDataset": False,
        "keywords": ["synthetic data", "privacy", "embeddings", f"claim: {manifest.claim.kind}"],
        "rai:dataLimitations": "; ".join(claim.not_covered),
        "rai:personalSensitiveInformation": (
            "Made from records of subjects; the records are not in it. What can still be learned about them is "
            "bounded by the claim, if it is of kind dp, and by nothing else."
        ),
        "distribution": [
            _file(MANIFEST, "application/json", passport.release.fingerprint, "Content and claim"),
            _file(numbers, "application/octet-stream", manifest.files[numbers].sha256, "Tensors, as safetensors"),
            _file(CARD, "text/markdown", manifest.files[CARD].sha256, "The card"),
        ],
    }
    if len(manifest.classes) <= _CLASSES:
        about["recordSet"] = [_classes(manifest)]
    return json.dumps(about, indent=1, sort_keys=True, allow_nan=False) + "\n"


def _citation(manifest: Manifest, passport: Passport) -> str:
    """BibTeX from public facts; the fingerprint tells one release from all others."""
    fingerprint = passport.release.fingerprint
    return (
        f"@misc{{locum-release-{fingerprint[:16]}, title={{A stand-in for private data ({manifest.generator})}}, "
        f"year={{{passport.written_on[:4]}}}, note={{Locum release, SHA-256 {fingerprint}}}}}"
    )


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
        "description": "The classes of the vectors and the share of each, rounded as released.",
        "field": [
            _field("name", "sc:Text", "Name of the class"),
            _field("share", "sc:Float", "Share of vectors of this class"),
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
    """Product, flavor, unit, parameters, mechanisms and accounting as JSON text, for registries of DP deployments.

    The keys are those of public registries; the data holder fills in `data_holder`.

    Parameters
    ----------
    manifest
        The manifest of the release.
    passport
        Its passport, with a claim of kind "dp".

    Returns
    -------
    str
        JSON; the same input gives the same text.

    Raises
    ------
    ConfigError
        If the claim is not of kind "dp".

    Examples
    --------
    >>> import numpy as np
    >>> from locum.generate import ClassGaussian
    >>> from locum.release.passport import build_passport, render_registry
    >>> manifest = ClassGaussian().fit(np.eye(4), [0, 0, 1, 1]).release(no_dp=True).manifest
    >>> render_registry(manifest, build_passport(manifest, "0" * 64, written_on="2025-01-31"))
    Traceback (most recent call last):
        ...
    locum.errors.ConfigError: A DP registry needs a claim of kind 'dp'; got 'none'.
    """
    dp = passport.claim.dp
    if dp is None:
        raise ConfigError(f"A DP registry needs a claim of kind 'dp'; got {passport.claim.kind!r}.")
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
        "flavor": "approximate differential privacy",
        "model": "central, at each of several sites" if "sites" in manifest.settings else "central",
        "unit": {"protected": unit, "neighbors": dp.relation, "in_words": _RELATIONS[dp.relation].format(unit=unit)},
        "parameters": {"epsilon": dp.epsilon, "delta": dp.delta, "scope": "this release alone"},
        "mechanisms": [dict(event) for event in dp.events],
        "accounting": {
            "method": "privacy-loss distributions: the epsilon of the mechanisms at delta, rounded up",
            "library": f"dp-accounting {passport.versions.get('dp-accounting', '')}".strip(),
            "across_releases": "a ledger of the data holding adds up all releases, valid under adaptive choice",
            "ledger_tip": dp.ledger,
            "check": "locum verify computes epsilon again from the mechanisms",
        },
        "implementation": {
            "software": manifest.written_by,
            "randomness": "cryptographic, keyed by the operating system",
        },
        "not_covered": list(passport.claim.not_covered),
    }
    return json.dumps(record, indent=1, sort_keys=True, allow_nan=False) + "\n"
