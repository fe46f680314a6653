"""`verify`: what anyone can check about a release, and what its holder can check against the ledger."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from locum.errors import ConfigError, PrivacyError
from locum.release import OpenedRelease, Verification, open_release, verify_opened
from locum.types import DPClaim, PrivacyClaim, at_least


def verify_release(path: Path, *, ledger: Path | None = None, key: Path | None = None) -> Verification:
    """Check a release folder; the claimed epsilon is computed again from the events.

    Without a ledger nobody can tell whether the release was made as it says.

    Parameters
    ----------
    path
        Folder of the release.
    ledger
        The holder's ledger: it must have exactly the charge of this release (for a federated one, of one of its
        sites). If not, it is another ledger or an old copy that was put back; then later charges are missing, and no
        budget in it can be trusted.
    key
        A public key, whose owner must have signed the release.

    Returns
    -------
    Verification
        The checks that passed, and what was not checked.

    Raises
    ------
    ReleaseError
        If the folder is damaged, altered or inconsistent.
    PrivacyError
        If the events cost more than is claimed, or the ledger does not have the charge.

    Examples
    --------
    >>> from pathlib import Path
    >>> from locum.data import load_sample, write_embeddings
    >>> from locum.recipes import fit_release, verify_release
    >>> write_embeddings("tumors.npz", load_sample("breast-cancer"))
    >>> release = fit_release("tumors.npz", Path("release-to-verify")).release
    >>> verify_release(release).checks[2]
    'no other file, no link, no pickle'
    """
    return verify_opened_release(open_release(path), ledger=ledger, key=key)


def verify_opened_release(
    opened: OpenedRelease, *, ledger: Path | None = None, key: Path | None = None
) -> Verification:
    """The checks of `verify_release` on a folder that was read already."""
    found = verify_opened(opened, key=key)
    claim, checks = found.claim, list(found.checks)
    if opened.passport_files.passport is not None:
        checks.append(_check_pages(opened))
    if claim.dp is not None:
        checks.append(check_cost(claim.dp))
    if ledger is not None:
        if claim.dp is None:
            raise ConfigError(
                f"{str(opened.path)!r} has no claim of differential privacy, and so no charge: leave out --ledger."
            )
        sites = opened.release.manifest.settings.get("sites")
        checks.append(_check_site(sites, ledger) if sites else _check_paid(claim, claim.dp, ledger))
    return replace(found, checks=tuple(checks))


def check_cost(dp: DPClaim) -> str:
    """Compute the epsilon of a claim's events again; a PrivacyError if it is more than claimed."""
    from locum.accounting import epsilon_of, events_from_json

    cost = epsilon_of(events_from_json(dp.events), dp.delta, dp.relation)
    # Another processor may round the last digits of a sum differently.
    if cost > dp.epsilon * (1 + 1e-6):
        raise PrivacyError(
            f"The release claims epsilon {at_least(dp.epsilon)}, but composing its events costs {at_least(cost)}: "
            "do not use it, and ask the sender."
        )
    return "the claimed epsilon is what its events cost"


def _check_pages(opened: OpenedRelease) -> str:
    """Whether the files beside the passport say what the passport says; another version may word them differently."""
    from locum.report import render_passport_files

    files = opened.passport_files
    assert files.passport is not None
    expected = render_passport_files(opened.release.manifest, files.passport)
    if {name: text.encode() for name, text in expected.items()} == files.listed:
        return "the files beside the passport are what this version would write from it"
    return "the files beside the passport were written by another version or by hand: trust only the passport"


def _check_site(sites: Any, ledger: Path) -> str:
    """A ledger can confirm one site's part of a joint release; the other sites have their own ledgers."""
    from locum.recipes.ledger import existing_ledger

    listed = {site.get("ledger"): site for site in sites if isinstance(site, dict)} if isinstance(sites, list) else {}
    for holding in existing_ledger(ledger).holdings().values():
        for charge in holding.charges:
            site = listed.get(charge.tip)
            if site is None:
                continue
            if (charge.epsilon, charge.delta) == (site.get("epsilon"), site.get("delta")):
                return "the ledger has the charge of one of the sites for this release"
            raise PrivacyError(_other_numbers(ledger))
    raise PrivacyError(
        f"The ledger {str(ledger)!r} has no charge of any site of this release: it belongs to none of them, or is an "
        "old copy that was put back. Find the newest copy before you spend anything else."
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
                return "the ledger has the charge of this release"
            raise PrivacyError(_other_numbers(ledger))
    raise PrivacyError(
        f"The ledger {str(ledger)!r} does not have the charge of this release: it is another ledger, or an old copy "
        "that was put back. Find the newest copy before you spend anything else."
    )


def _other_numbers(ledger: Path) -> str:
    return (
        f"The ledger {str(ledger)!r} has the charge that this release names, but with other numbers: the release was "
        "altered."
    )
