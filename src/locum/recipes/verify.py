"""`verify`: what anyone can check about a release, and what its holder can check against the ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from locum.errors import ConfigError, PrivacyError
from locum.release import Verification, load, verify
from locum.release.passport import read_passport_files
from locum.types import DPClaim, PrivacyClaim, at_least


def verify_release(path: Path, *, ledger: Path | None = None, key: Path | None = None) -> Verification:
    """Check a release folder; the epsilon of a promise is computed anew from what it says was done.

    With `key`, a public one, it must be signed by the owner of that key.
    With `ledger`, its holder also learns whether that ledger has just this charge. If not, it is another one, or an
    old copy that was put back: then what was spent since is missing from it, and no budget in it can be trusted.
    Without it nobody can tell whether what was done is what the release says.
    """
    found = verify(path, key=key)
    if found.passport is not None:
        found = replace(found, checks=(*found.checks, _check_pages(path)))
    claim = PrivacyClaim.from_dict(found.claim)
    if claim.dp is None:
        if ledger is not None:
            raise ConfigError(f"{str(path)!r} carries no differentially private promise: nothing to look up.")
        return found
    checks = [*found.checks, check_cost(claim.dp)]
    if ledger is not None:
        sites = load(path).manifest.settings.get("sites")
        checks.append(_check_site(sites, ledger) if sites else _check_paid(claim, claim.dp, ledger))
    return replace(found, checks=tuple(checks))


def check_cost(dp: DPClaim) -> str:
    """Compute the epsilon of a claim's events anew; complain if it is more than what is claimed."""
    from locum.accounting import epsilon_of, events_from_json

    relation: Any = dp.relation
    cost = epsilon_of(events_from_json(dp.events), dp.delta, relation)
    # Another processor may round the last digits of a sum otherwise.
    if cost > dp.epsilon * (1 + 1e-6):
        raise PrivacyError(
            f"The release claims epsilon {at_least(dp.epsilon)}, but what it says was done costs {at_least(cost)}: "
            "do not use it, and ask who sent it."
        )
    return "the claimed epsilon is what its events cost"


def _check_pages(path: Path) -> str:
    """Whether the papers for people say what the passport says; another version may have other words."""
    from locum.recipes.passport import render_passport_files

    release = load(path)
    passport = read_passport_files(path, release.manifest, release.fingerprint or "").passport
    assert passport is not None
    passport_files = render_passport_files(release.manifest, passport)
    if all((path / name).read_bytes() == text.encode() for name, text in passport_files.items()):
        return "the papers beside the passport are what this version would write from it"
    return "the papers beside the passport were written by another version or by hand: trust the passport alone"


def _check_site(sites: Any, ledger: Path) -> str:
    """Of a joint release a ledger can back one site's part; the others have ledgers of their own."""
    from locum.recipes.ledger import existing_ledger

    told = {site.get("ledger"): site for site in sites if isinstance(site, dict)} if isinstance(sites, list) else {}
    for holding in existing_ledger(ledger).holdings().values():
        for charge in holding.charges:
            site = told.get(charge.tip)
            if site is None:
                continue
            if (charge.epsilon, charge.delta) == (site.get("epsilon"), site.get("delta")):
                return "the ledger knows what one of the sites paid for this release"
            raise PrivacyError(
                f"The ledger {str(ledger)!r} has the charge that this release names, but for other numbers: the "
                "release was altered."
            )
    raise PrivacyError(
        f"The ledger {str(ledger)!r} knows no charge of any site of this release: it is no site's, or an old copy "
        "that was put back. Find the newest one before anything else is spent."
    )


def _check_paid(claim: PrivacyClaim, dp: DPClaim, ledger: Path) -> str:
    from locum.accounting import events_to_json
    from locum.recipes.ledger import existing_ledger

    for holding in existing_ledger(ledger).holdings().values():
        for charge in holding.charges:
            if charge.tip != dp.ledger:
                continue
            paid = (charge.epsilon, charge.delta, holding.unit, holding.relation, events_to_json(charge.events))
            if paid == (dp.epsilon, dp.delta, claim.unit, dp.relation, list(dp.events)):
                return "the ledger knows what this release paid"
            raise PrivacyError(
                f"The ledger {str(ledger)!r} has the charge that this release names, but for other numbers: the "
                "release was altered."
            )
    raise PrivacyError(
        f"The ledger {str(ledger)!r} does not know the charge of this release: it is another ledger, or an old copy "
        "that was put back. Find the newest one before anything else is spent."
    )
