"""Frozen test vectors of masked sums: one small run with fixed secrets, every intermediate value in hex.

    python scripts/masking_vectors.py            # writes tests/federated/masking_vectors.json again

Another implementation of docs/explain/masked-sums.md must give the same values. Signatures are random: those in the
file are kept as long as they are valid.
"""

from __future__ import annotations

import hashlib
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, derive_private_key

from locum.federated.mask_keys import Announced, SiteKeys, is_signed, pair_stream, self_stream, sign
from locum.federated.mask_terms import canonical, statement
from locum.federated.masking import MaskedStep, MaskingSite, MaskTerms, announce
from locum.federated.secret_sharing import encode

FILE = Path(__file__).resolve().parents[1] / "tests" / "federated" / "masking_vectors.json"
NAMES = ("north", "east", "south", "west")
ANSWERED = ("east", "north", "south")
STEP, QUERY, WORDS = 1, hashlib.sha256(b"query").digest(), 5


def signing_key(name: str) -> EllipticCurvePrivateKey:
    """A fixed key; whoever reads this file has it too."""
    return derive_private_key(int.from_bytes(hashlib.sha256(f"sign {name}".encode()).digest(), "big"), SECP256R1())


def fixed_terms() -> MaskTerms:
    """Four sites, of which one may stay away and one may collude; two steps."""
    keys = {name: signing_key(name).public_key() for name in NAMES}
    return MaskTerms("vectors", hashlib.sha256(b"terms").hexdigest(), keys, absent=1, colluding=1, steps=2)


def vectors() -> dict[str, Any]:
    """All values; those under "signatures" differ from call to call."""
    terms = fixed_terms()
    masters = {name: hashlib.sha256(f"master {name}".encode()).digest() for name in NAMES}
    said = {name: announce(terms, name, masters[name], signing_key(name)) for name in NAMES}
    sites = {name: MaskingSite(terms, name, masters[name], signing_key(name)) for name in NAMES}
    blobs = {name: site.share(said) for name, site in sites.items()}
    for name, site in sites.items():
        site.receive({sender: sent[name] for sender, sent in blobs.items() if sender != name})
    integers = {name: np.arange(WORDS) * 10**17 - 3 * i for i, name in enumerate(NAMES)}
    words = {name: sites[name].mask(STEP, QUERY, NAMES, integers[name]) for name in ANSWERED}
    step = MaskedStep(terms, said, STEP, QUERY, NAMES, words)
    signed = {name: sites[name].confirm(STEP, ANSWERED) for name in ANSWERED}
    opened = {name: sites[name].open(STEP, signed) for name in ANSWERED}
    keys = {name: SiteKeys(terms, name, masters[name]) for name in NAMES}
    unsigned = {name: keys[name].announced() for name in NAMES}
    return {
        "run": terms.run,
        "terms": terms.terms,
        "absent": terms.absent,
        "colluding": terms.colluding,
        "steps": terms.steps,
        "signing_keys": {name: f"{signing_key(name).private_numbers().private_value:064x}" for name in NAMES},
        "parameters": terms.parameters,
        "masters": {name: master.hex() for name, master in masters.items()},
        "derived": {name: _derived(keys[name], unsigned[name]) for name in NAMES},
        "announcement_east": canonical(**unsigned["east"].body(terms)).decode(),
        "announcements": _announcements(terms, unsigned),
        "blobs": {sender: {to: blob.hex() for to, blob in sent.items()} for sender, sent in blobs.items()},
        "step": STEP,
        "query": QUERY.hex(),
        "context": step.context,
        "self_streams": {
            name: self_stream(keys[name].self_mask(STEP), name, step.context, WORDS).tolist() for name in NAMES
        },
        "pair_streams": {
            f"{a} {b}": pair_stream(keys[a].mask(STEP), unsigned[b].masks[STEP], (a, b), step.context, WORDS).tolist()
            for a, b in combinations(sorted(NAMES), 2)
        },
        "integers": {name: integers[name].tolist() for name in NAMES},
        "words": {name: words[name].tolist() for name in ANSWERED},
        "statement": statement(terms, STEP, step.context, ANSWERED).decode(),
        "opened": opened,
        "total": step.total(opened).tolist(),
        "signatures": {"announcement_east": said["east"]["signature"], "statement_east": signed["east"]},
    }


def _derived(keys: SiteKeys, announced: Announced) -> dict[str, Any]:
    steps = range(keys.terms.steps)
    shares = {
        kind: [{str(h): encode(s).hex() for h, s in keys.shares(k, kind).items()} for k in steps]
        for kind in ("self", "pair")
    }
    return {
        "encryption_private": keys.encryption().hex(),
        "encryption": announced.encryption,
        "mask_privates": [keys.mask(k).hex() for k in steps],
        "masks": list(announced.masks),
        "self_masks": [keys.self_mask(k).hex() for k in steps],
        "commitments": list(announced.commitments),
        "shares": shares,
    }


def _announcements(terms: MaskTerms, unsigned: dict[str, Announced]) -> str:
    bodies = [unsigned[name].body(terms) for name in sorted(unsigned)]
    return hashlib.sha256(canonical("announcements", list=bodies)).hexdigest()


def main() -> None:
    """Write the file, with the signatures that it has if they still hold."""
    found, terms = vectors(), fixed_terms()
    old = json.loads(FILE.read_text()).get("signatures", {}) if FILE.exists() else {}
    for name, signed in (("announcement_east", "announcement_east"), ("statement_east", "statement")):
        text = found[signed].encode()
        valid = is_signed(terms, "east", text, old.get(name))
        found["signatures"][name] = old[name] if valid else sign(signing_key("east"), text)
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
