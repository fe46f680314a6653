"""What anyone with the sites' public keys can check about the joint claim of a federation."""

from __future__ import annotations

from pathlib import Path

from locum.accounting import joint_sites
from locum.errors import ConfigError, PrivacyError
from locum.federated.receipts import is_receipt, key_id, read_site_keys
from locum.federated.result import run_claim
from locum.federated.settings import FederationSettings
from locum.federated.terms import read_terms
from locum.release import Release


def check_receipts(release: Release, folder: str | Path) -> tuple[str, ...]:
    """Check that every site signed what it paid, and that the claim follows from what they signed.

    Receipts cover payments, settings and the run, not the decoder: a site's own ledger knows the result that it got.

    Parameters
    ----------
    release
        The result of a federation.
    folder
        Folder with the public key (`NAME.pub`) of every site.

    Returns
    -------
    tuple of str
        What was checked, one sentence each.

    Raises
    ------
    PrivacyError
        If a receipt is missing or false, or the claim says more than the receipts.

    Examples
    --------
    >>> from locum.federated import check_receipts
    >>> from locum.release import load
    >>> check_receipts(load("out/release"), "keys")  # doctest: +SKIP
    ('each of the 3 sites signed a receipt of its charge (site-a, site-b, site-c)', ...)
    """
    dp, settings = release.claim.dp, release.manifest.settings
    if dp is None or not isinstance(settings.get("run"), str):
        raise ConfigError("The release has no receipts of sites: leave out --site-keys.")
    keys = {key_id(key): (name, key) for name, key in read_site_keys(folder).items()}
    if not keys:
        raise ConfigError(f"There is no public key of a site (NAME.pub) in {str(folder)!r}.")
    terms, claims, signers = FederationSettings.from_dict(settings["federation"]), [], set()
    for site in joint_sites(settings.get("sites"), dp.ledger).values():
        receipt = site.get("receipt")
        known = keys.get(str(receipt.get("key"))) if isinstance(receipt, dict) else None
        if known is None:
            raise PrivacyError(
                f"A site of this release has no receipt signed with a key in {str(folder)!r}: its key is missing "
                "there, or the release was altered."
            )
        name, key = known
        if not is_receipt(receipt, site, terms, settings["run"], key):
            raise PrivacyError(f"The receipt of {name!r} is false: the release was altered. Do not use it.")
        signers.add(name)
        # Noise and size are not signed, and no claim depends on them.
        claims.append(read_terms({"noise": 1.0, "size": 1, "terms": site}).claim)
    if len(signers) < len(claims):
        raise PrivacyError("One key signed for two sites: the release was altered, or a site took part twice.")
    expected = run_claim(terms, claims)
    if (
        expected.dp is None
        or (release.claim.unit, dp.relation) != (expected.unit, expected.dp.relation)
        # Another processor may round the last digits differently.
        or dp.epsilon < expected.dp.epsilon * (1 - 1e-6)
        or dp.delta < expected.dp.delta * (1 - 1e-12)
        or not set(expected.not_covered) <= set(release.claim.not_covered)
        or not set(expected.assumptions) <= set(release.claim.assumptions)
    ):
        raise PrivacyError("The claim does not follow from what the sites signed: the release was altered.")
    return (
        f"each of the {len(claims)} sites signed a receipt of its charge ({', '.join(sorted(signers))})",
        "the claim follows from the receipts",
    )
