"""What anyone with the sites' public keys can check about the joint claim of a federation."""

from __future__ import annotations

import math
from pathlib import Path

from locum.accounting import joint_sites
from locum.errors import ConfigError, PrivacyError
from locum.federated.claims import run_claim
from locum.federated.receipts import is_receipt
from locum.federated.settings import FederationSettings
from locum.federated.site_keys import key_id, read_site_keys
from locum.federated.terms import paid_terms, read_terms
from locum.release import Release


def check_receipts(release: Release, folder: str | Path) -> tuple[list[str], list[str]]:
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
    checks, not_checked : list of str
        What was checked and what was not, one sentence each.

    Raises
    ------
    PrivacyError
        If a receipt is missing or false, or the claim says more than the receipts.

    Examples
    --------
    >>> from locum.federated import check_receipts
    >>> from locum.release import load
    >>> checks, not_checked = check_receipts(load("out/release"), "keys")  # doctest: +SKIP
    """
    dp, settings = release.claim.dp, release.manifest.settings
    if dp is None or not isinstance(settings.get("run"), str):
        raise ConfigError("The release has no receipts of sites: leave out --site-keys.")
    keys = {key_id(key): (name, key) for name, key in read_site_keys(folder).items()}
    if not keys:
        raise ConfigError(f"There is no public key of a site (NAME.pub) in {str(folder)!r}.")
    terms, signers = _settings(release), set()
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
        if name in signers:
            raise PrivacyError("One key signed for two sites: the release was altered, or a site took part twice.")
        signers.add(name)
    check_run_claim(release, terms)
    checks = [
        f"each of the {len(signers)} sites signed a receipt of its charge ({', '.join(sorted(signers))})",
        "the claim follows from the receipts",
    ]
    not_checked = ["the decoder: receipts cover payments, not the result that the coordinator made"]
    if silent := sorted({name for name, _ in keys.values()} - signers):
        not_checked.append(f"whether records of {', '.join(silent)} were used: no receipt of theirs is listed")
    return checks, not_checked


def check_run_claim(release: Release, settings: FederationSettings) -> None:
    """Raise unless a federation's release makes the claim that follows from what its listed sites paid.

    Nothing here shows that the list is complete, or that its entries are true.
    """
    manifest, dp = release.manifest, release.claim.dp
    altered = PrivacyError("The claim does not follow from what the sites paid: the release was altered.")
    embedding = (manifest.embedding.dim, manifest.embedding.backbone)
    if _settings(release) != settings or manifest.class_names != settings.classes or dp is None:
        raise altered
    if embedding != (settings.dim, settings.backbone):
        raise altered
    claims = []
    for site in joint_sites(manifest.settings.get("sites"), dp.ledger).values():
        # Noise and size are not listed, and no claim depends on them.
        claim = read_terms({"noise": 1.0, "size": 1, "terms": site}).claim
        assert claim.dp is not None
        if site.keys() - {"receipt"} != paid_terms(claim).keys() or not _same(site["epsilon"], claim.dp.epsilon):
            raise altered
        claims.append(claim)
    expected = run_claim(settings, claims)
    if (
        expected.dp is None
        or (release.claim.unit, dp.relation, dp.events) != (expected.unit, expected.dp.relation, expected.dp.events)
        or not (_same(dp.epsilon, expected.dp.epsilon) and _same(dp.delta, expected.dp.delta))
        or not set(expected.not_covered) <= set(release.claim.not_covered)
        or not set(expected.assumptions) <= set(release.claim.assumptions)
    ):
        raise altered


def _same(one: object, two: float) -> bool:
    """Equal up to what another processor may round differently."""
    return isinstance(one, float | int) and math.isclose(one, two, rel_tol=1e-6)


def _settings(release: Release) -> FederationSettings:
    found = release.manifest.settings.get("federation")
    if not isinstance(found, dict):
        raise PrivacyError("The release does not say under which settings the federation ran: it was altered.")
    return FederationSettings.from_dict(found)
