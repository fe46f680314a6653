"""`verify`: what anyone can check about a release, and what its holder can check against the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from locum.errors import ConfigError, PrivacyError
from locum.generate.table import is_table
from locum.recipes.verify_decoder import check_decoder
from locum.recipes.verify_table import verify_table
from locum.release import (
    OpenedRelease,
    Verification,
    open_release,
    verify_opened,
)
from locum.release.passport import check_decision, read_decision
from locum.types import DPClaim, PrivacyClaim, at_least

if TYPE_CHECKING:
    from locum.accounting import Charge, Ledger


def verify_release(
    path: Path,
    *,
    ledger: Path | None = None,
    key: Path | None = None,
    site_keys: Path | None = None,
    reference: Path | None = None,
    decision: Path | None = None,
) -> Verification:
    """Check a release folder; the claimed epsilon is computed again from the events.

    Without a ledger nobody can tell whether the release was made as it says.

    Parameters
    ----------
    path
        Folder of the release, or of a private table.
    ledger
        The holder's ledger: it must have exactly the charge of this release (for a federated one, of one of its
        sites). If not, it is another ledger or an old copy that was put back; then later charges are missing, and no
        budget in it can be trusted.
    key
        A public key, whose owner must have signed the release.
    site_keys
        Folder with the public key (`NAME.pub`) of every site of a federation: each must have signed a receipt of what
        it paid, and the claim must follow from those receipts.
    reference
        File of the public statistics that the release was made with, if they do not ship with Locum: with it and the
        ledger, the decoder is computed again from the noisy sums.
    decision
        The holder's private file from `decide`: it must be the one whose hash is in the passport.

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
    >>> release = fit_release("tumors.npz", Path("release-to-verify"), no_dp=True).release
    >>> verify_release(release).checks[2]
    'no other file, no link, no pickle'
    """
    if is_table(path):
        if not (key is None and site_keys is None and reference is None and decision is None):
            raise ConfigError(
                "A private table has no passport and no sites: leave out --key, --site-keys, --reference and "
                "--decision."
            )
        return verify_table(path, ledger, _paid)
    return verify_opened_release(
        open_release(path), ledger=ledger, key=key, site_keys=site_keys, reference=reference, decision=decision
    )


def verify_opened_release(
    opened: OpenedRelease,
    *,
    ledger: Path | None = None,
    key: Path | None = None,
    site_keys: Path | None = None,
    reference: Path | None = None,
    decision: Path | None = None,
) -> Verification:
    """The checks of `verify_release` on a folder that was read already."""
    if reference is not None and ledger is None:
        raise ConfigError("--reference is for computing the decoder again from what the ledger knows: add --ledger.")
    found = verify_opened(opened, key=key)
    claim, checks = found.claim, list(found.checks)
    if opened.passport_files.passport is not None:
        checks.append(_check_pages(opened))
    if decision is not None:
        check_decision(read_decision(decision), opened.passport_files.passport)
        checks.append("the decision is about this release, and its hash is the one in the passport")
    if claim.dp is not None:
        checks.append(check_cost(claim.dp))
    not_checked = list(found.not_checked)
    joint = bool(opened.release.manifest.settings.get("sites"))
    if site_keys is not None:
        from locum.federated import check_receipts

        more, open_questions = check_receipts(opened.release, site_keys)
        checks += more
        not_checked += open_questions
    elif joint and claim.dp is not None:
        if "federation" in opened.release.manifest.settings:
            from locum.federated import check_joint_claim

            checks.append(check_joint_claim(opened.release))
        not_checked.append(
            "what each site paid: check the sites' signed receipts with --site-keys"
            if "run" in opened.release.manifest.settings
            else "what each site paid: the release has no signed receipts; each site can check its own ledger"
        )
    if ledger is not None:
        if claim.dp is None:
            raise ConfigError(
                f"{str(opened.path)!r} has no claim of differential privacy, so it has no charge: leave out --ledger."
            )
        if joint:
            more, open_questions = _check_site(opened, claim.dp, ledger)
            checks += more
            not_checked += open_questions
        else:
            book, charge = _paid(claim, claim.dp, ledger)
            checks.append("the ledger has the charge of this release")
            checks.append(_check_bound(opened, book, charge))
            more, open_questions = check_decoder(opened.release, charge, book.results(charge), reference)
            checks += more
            not_checked += open_questions
        not_checked.append(
            "that noise was drawn as the charge says: no ledger can show it; `locum audit --canaries` tests the code"
        )
    return replace(found, checks=tuple(checks), not_checked=tuple(not_checked))


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
    return "the claimed epsilon covers what its events cost"


def _check_pages(opened: OpenedRelease) -> str:
    """Whether the files beside the passport say what the passport says; another version may word them differently."""
    from locum.report import render_passport_files

    files = opened.passport_files
    assert files.passport is not None
    expected = render_passport_files(opened.release.manifest, files.passport)
    if {name: text.encode() for name, text in expected.items()} == files.listed:
        return "the files beside the passport are what this version would write from it"
    return "the files beside the passport were written by another version or by hand: trust only the passport"


def _check_site(opened: OpenedRelease, dp: DPClaim, ledger: Path) -> tuple[list[str], list[str]]:
    """What one site's ledger confirms of a joint release, and what it cannot."""
    from locum.accounting import joint_sites
    from locum.recipes.ledger import existing_ledger

    listed, book = joint_sites(opened.release.manifest.settings.get("sites"), dp.ledger), existing_ledger(ledger)
    for holding in book.holdings().values():
        for charge in holding.charges:
            site = listed.get(charge.tip)
            if site is None:
                continue
            same = (charge.epsilon, charge.delta) == (site.get("epsilon"), site.get("delta"))
            terms = (holding.unit, holding.relation) == (opened.release.claim.unit, dp.relation)
            # A joint claim is never better than that of one of its sites.
            if same and terms and dp.epsilon >= charge.epsilon and dp.delta >= charge.delta:
                return _check_part(opened, book, charge, site)
            raise PrivacyError(_other_numbers(ledger))
    raise PrivacyError(
        f"The ledger {str(ledger)!r} has no charge of any site of this release: it belongs to none of them, or is an "
        "old copy that was put back. Find the newest copy before you spend anything else."
    )


def _check_part(
    opened: OpenedRelease, book: Ledger, charge: Charge, site: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """What a site's ledger knows about the joint release that its charge went into."""
    checks = ["the ledger has the charge of one of the sites for this release"]
    others = "that the decoder was made from what these sites paid for, and from nothing else"
    if "fingerprint" in site:
        # Merged from files: the ledger knows the site's own release.
        if site["fingerprint"] not in book.releases(charge):
            raise PrivacyError(_unknown(book))
        return [*checks, "the ledger knows the site's own release, which was merged"], [others]
    if not book.releases(charge):
        return checks, [others, "whether this is the result of the run: the site's ledger was not told"]
    if opened.fingerprint not in book.releases(charge):
        raise PrivacyError(_unknown(book))
    return [*checks, "the ledger noted this release when the coordinator sent it as the result"], [others]


def _paid(claim: PrivacyClaim, dp: DPClaim, ledger: Path) -> tuple[Ledger, Charge]:
    """The charge that a claim names, with the same numbers, and the ledger that has it."""
    from locum.accounting import events_to_json
    from locum.recipes.ledger import existing_ledger

    book = existing_ledger(ledger)
    for holding in book.holdings().values():
        for charge in holding.charges:
            if charge.tip != dp.ledger:
                continue
            paid = (charge.epsilon, charge.delta, holding.unit, holding.relation, events_to_json(charge.events))
            if paid == (dp.epsilon, dp.delta, claim.unit, dp.relation, list(dp.events)):
                return book, charge
            raise PrivacyError(_other_numbers(ledger))
    raise PrivacyError(
        f"The ledger {str(ledger)!r} does not have the charge of this release: it is another ledger, or an old copy "
        "that was put back. Find the newest copy before you spend anything else."
    )


def _check_bound(opened: OpenedRelease, book: Ledger, charge: Charge) -> str:
    """Whether the ledger noted this very release, decoder, claim and all, when it was made."""
    if opened.fingerprint not in book.releases(charge):
        raise PrivacyError(_unknown(book))
    return "the ledger knows this release by its fingerprint: decoder, claim and settings are those it paid for"


def _unknown(book: Ledger) -> str:
    return (
        f"The ledger {str(book.file)!r} has the charge that this release names, but does not know this release: it "
        "was altered, or made by somebody else. Do not use it."
    )


def _other_numbers(ledger: Path) -> str:
    return (
        f"The ledger {str(ledger)!r} has the charge that this release names, but with other numbers: the release was "
        "altered."
    )
