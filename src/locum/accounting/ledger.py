"""The book of what was spent on each data holding: durable, append-only, chained by hashes, shared by processes."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from locum.accounting.cost import epsilon_of
from locum.accounting.events import Event, events_from_json, events_to_json
from locum.accounting.holding import Charge, Holding, check_name, same_name
from locum.accounting.paid_data import data_entry, places_noted
from locum.accounting.shown import ledger_html
from locum.accounting.store import EntryFile, check_chain, link
from locum.errors import ConfigError, PrivacyError
from locum.types import DP, Relation, Unit, at_least, html_card

_log = logging.getLogger(__name__)

_STEPS = re.compile(r"steps (\d+) to (\d+)")


class Ledger:
    """A SQLite file that remembers every charge; a charge is on disk before the work that it pays for begins.

    Two processes at once cannot overspend: each charge is one exclusive transaction, synced before it returns, and
    nothing takes it back. Threads and forked processes may share a `Ledger`: nothing is held open. The file is
    private (mode 0600), and is made on first use.

    Entries are only ever added, and each holds the hash of the one before: if one is edited, deleted or moved, the
    chain breaks, and nothing more can be spent. The file alone does not show whether entries were cut off at the
    end, or an old copy was put back: the tip in a newer release does (`knows`). Nothing here stops somebody who
    deletes the file and all releases, or who writes a new chain (docs/explain/limitations.md).

    Parameters
    ----------
    file
        Where it is, or will be; its folder is made if only that is missing.

    Raises
    ------
    DataError
        If the file cannot be used, is not a ledger, or was written by a newer version.

    Examples
    --------
    >>> from locum.accounting import Gaussian, Ledger
    >>> ledger = Ledger("ledger.sqlite")
    >>> opened = ledger.set_budget("scans", epsilon=2.0, delta=1e-5)
    >>> paid = ledger.charge("scans", [Gaussian(5.0)], delta=1e-6, purpose="means")
    >>> round(ledger.holding("scans").left[0], 2), ledger.knows(paid.tip)
    (1.17, True)
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._entries = EntryFile(file)

    @property
    def file(self) -> Path:
        """Where it is."""
        return self._entries.file

    def set_budget(
        self,
        holding: str,
        *,
        epsilon: float,
        delta: float,
        unit: Unit = "record",
        relation: Relation = "add-or-remove",
    ) -> Holding:
        """Open a holding with a budget, or change its budget; unit and relation can never change."""
        return self._budget(DP(epsilon, delta, unit, None, relation), holding, keep=False)

    def open_for(self, dp: DP, holding: str) -> Holding:
        """The holding, opened with exactly the budget of `dp` if it has none yet; unit and relation must agree.

        A second fit is then refused until somebody raises the budget, which is a decision of its own.
        """
        return self._budget(dp, holding, keep=True)

    def charge(
        self,
        holding: str,
        events: Sequence[Event],
        *,
        delta: float,
        purpose: str,
        within: float | None = None,
        identity: str | None = None,
    ) -> Charge:
        """Pay for `events`, now and for good, or refuse with what is left.

        The epsilon is computed here from the events, for the holding's relation. `within` is what the caller believes
        it costs at most; more is an error, so that a claim and the ledger cannot drift apart. `identity` is a name
        that the caller keeps: if the ledger has a charge of that name already, for the same events, holding and
        delta, nothing is paid and that charge is returned, so that a killed fit does not pay twice.
        """
        if not events:
            raise ConfigError("A charge needs the events that it pays for; got none.")
        _check_purpose(purpose)
        # Before the others have to wait: it may take seconds, and a holding's relation never changes.
        epsilon = epsilon_of(events, delta, self.holding(holding).relation)
        if within is not None and not epsilon <= within:
            raise PrivacyError(
                f"The plan costs epsilon {at_least(epsilon)} at delta {delta:g}, more than the {within:.6g} it was "
                "made for: nothing was spent. Plan again."
            )
        name = identity or secrets.token_hex(16)
        charge = Charge(name, holding, epsilon, float(delta), tuple(events), purpose, tip="")
        with self._entries.turn() as turn:
            for known in (one for held in self._sum_up(turn.entries).values() for one in held.charges):
                if known.identity == name:
                    if replace(known, tip="", purpose=purpose) != charge:
                        raise PrivacyError(
                            "The checkpoint names a payment for something else: it belongs to another plan. Delete "
                            "the checkpoint to start over, and pay again."
                        )
                    return known
            self._pick(turn.entries, holding).check(charge, self.file)
            tip = turn.append(
                {
                    "kind": "charge",
                    "holding": holding,
                    "identity": charge.identity,
                    "epsilon": charge.epsilon,
                    "delta": charge.delta,
                    "events": events_to_json(events),
                    "purpose": purpose,
                }
            )
            # In one turn: a fit that is killed right now has noted what it paid for.
            if noted := data_entry(turn.entries, holding, self.file):
                turn.append(noted)
        _log.info("charged epsilon %.4g at delta %g to a ledger", charge.epsilon, charge.delta)
        return replace(charge, tip=tip)

    def paid(self, identity: str, events: Sequence[Event]) -> Charge:
        """The charge that a resumed fit paid before it was interrupted; it must be for just these events."""
        for holding in self.holdings().values():
            for charge in holding.charges:
                if charge.identity == identity and charge.events == tuple(events):
                    return charge
        raise PrivacyError(
            "The checkpoint names a payment that this ledger does not know: it belongs to another ledger or another "
            "plan. Delete the checkpoint to start over, and pay again."
        )

    def finish(self, charge: Charge, result: str, part: str = "") -> None:
        """Note what a charge, or a part of what it pays for, has bought, by a hash: it can never buy anything else.

        So a fit that is resumed twice, from copies or by two processes at once, ends in an error the second time.
        Parts called "steps A to B" must not overlap: a step is used once, however rounds are cut.
        """
        with self._entries.turn() as turn:
            _check_known(turn.entries, charge)
            known = _results(turn.entries, charge.identity)
            if known.get(part, result) != result or any(_overlap(part, other) for other in known if other != part):
                raise PrivacyError(
                    "This charge has paid for another result already: the same fit was finished before, from a copy "
                    "of its checkpoint or by another process. Delete the checkpoint, and pay again."
                )
            if part not in known:
                body = {"kind": "result", "holding": charge.holding, "identity": charge.identity, "result": result}
                turn.append({**body, "part": part} if part else body)

    def bind(self, charge: Charge, release: str) -> None:
        """Note that a charge has paid for the release with this fingerprint, before the release is in its place.

        A charge can pay for several: what is made from one noisy result costs nothing more. A release that is not
        noted here was not made by the holder of this ledger, or was altered since.
        """
        if not re.fullmatch("[0-9a-f]{64}", release):
            raise ConfigError(f"A fingerprint is a SHA-256 in hex; got {release[:80]!r}.")
        with self._entries.turn() as turn:
            _check_known(turn.entries, charge)
            if release not in _releases(turn.entries, charge.identity):
                body = {"kind": "release", "holding": charge.holding, "identity": charge.identity}
                turn.append({**body, "release": release})

    def note_look(self, holding: str, purpose: str) -> None:
        """Note that somebody will look at the records to choose settings; it costs nothing and opens no budget.

        No guarantee covers such a choice. Claims of private fits with this ledger say so from then on, whichever
        holding they name: the same people can be in several.
        """
        check_name(holding)
        _check_purpose(purpose)
        with self._entries.turn() as turn:
            holdings = self._sum_up(turn.entries)
            if holding not in holdings:
                same_name(holding, holdings)
            turn.append({"kind": "looked", "holding": holding, "purpose": purpose})

    def looks(self, holding: str | None = None) -> int:
        """How many looks were noted, for one holding or for all."""
        bodies = [entry["body"] for entry in self._entries.read()]
        looked = [body["holding"] for body in bodies if body["kind"] == "looked"]
        return len(looked) if holding is None else looked.count(holding)

    def data(self) -> tuple[Path, ...]:
        """The files and folders that were paid for, of all holdings; see `paying_for`."""
        return places_noted(self._entries.read(), self.file)

    def releases(self, charge: Charge) -> tuple[str, ...]:
        """Fingerprints of the releases that a charge has paid for."""
        return _releases(self._entries.read(), charge.identity)

    def results(self, charge: Charge) -> dict[str, str]:
        """What a charge has bought so far: a hash for each part of what it pays for."""
        return _results(self._entries.read(), charge.identity)

    def holding(self, name: str) -> Holding:
        """One holding; an error that lists the others if there is none of that name."""
        return self._pick(self._entries.read(), name)

    def holdings(self) -> dict[str, Holding]:
        """All holdings by name; the chain is checked on the way."""
        return self._sum_up(self._entries.read())

    @property
    def tip(self) -> str:
        """The hash of the last entry: it goes into every release."""
        return check_chain(self._entries.read())

    def knows(self, tip: str) -> bool:
        """Whether `tip`, as a release gives it, is the hash of one of the entries.

        If not, this is another ledger, or an old copy that was put back: what was spent since is missing from it.
        """
        return tip in {entry["hash"] for entry in self._entries.read()}

    def export(self) -> list[dict[str, Any]]:
        """Every entry with its hashes, as plain JSON; checked, and `check_chain` can check it again elsewhere."""
        return self._entries.read()

    def backup(self) -> bytes:
        """The file as it is now, checked, with nobody writing to it; put back with `restore`."""
        return self._entries.copy()

    def restore(self, entries: Sequence[Mapping[str, Any]]) -> int:
        """Take over the entries of a backup that this ledger lacks, and return how many those are.

        Refused if this ledger holds an entry that the backup does not: a charge would be forgotten.
        """
        check_chain(entries, "backup")
        with self._entries.turn() as turn:
            known = [entry["hash"] for entry in turn.entries]
            given = [entry["hash"] for entry in entries]
            if known != given[: len(known)]:
                lost = len([one for one in known if one not in set(given)])
                raise PrivacyError(
                    f"The ledger {str(self.file)!r} holds {lost} entries that the backup does not: restoring it "
                    "would forget what they spent. Nothing was changed; keep the ledger as it is."
                )
            for entry in entries[len(known) :]:
                turn.added.append(link(entry["number"], entry["previous"], entry["body"]))
        return len(entries) - len(known)

    def __repr__(self) -> str:
        return f"Ledger({str(self.file)!r})"

    def _repr_html_(self) -> str:
        """For notebooks; looking makes no new file, which would say that nothing was spent."""
        if not self.file.exists():
            return html_card([("ledger", f"{self.file} is gone: put a backup back")], tone="bad")
        return ledger_html(str(self.file), self.holdings().values(), self.tip, self.looks())

    def close(self) -> None:
        """Nothing is held open; here so that a ledger can be used like a file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _budget(self, dp: DP, name: str, *, keep: bool) -> Holding:
        check_name(name)
        with self._entries.turn() as turn:
            holdings = self._sum_up(turn.entries)
            known = holdings.get(name)
            if known is None:
                same_name(name, holdings)
                known = Holding(name, dp.unit, dp.relation, dp.epsilon, dp.delta)
            else:
                known.check_terms(dp)
                if keep:
                    return known
            terms = {"epsilon": dp.epsilon, "delta": dp.delta, "unit": dp.unit, "relation": dp.relation}
            turn.append({"kind": "budget", "holding": name, **terms})
        return replace(known, epsilon=dp.epsilon, delta=dp.delta)

    def _pick(self, entries: Sequence[dict[str, Any]], name: str) -> Holding:
        holdings = self._sum_up(entries)
        if name not in holdings:
            others = f"it knows {', '.join(map(repr, holdings))}" if holdings else "it knows none"
            raise ConfigError(
                f"The ledger {str(self.file)!r} has no holding {name!r}; {others}. Open one with `locum ledger "
                "set-budget`."
            )
        return holdings[name]

    def _sum_up(self, entries: Sequence[dict[str, Any]]) -> dict[str, Holding]:
        try:
            return _holdings(entries)
        except (KeyError, TypeError, ValueError):
            raise PrivacyError(f"The ledger {str(self.file)!r} holds an entry that is not valid.") from None


def joint_ledger(tips: Sequence[str]) -> str:
    """One hash for the ledgers of several sites, whose joint release names it.

    Parameters
    ----------
    tips
        The tip of each site's ledger, as its release or claim names it; each once.

    Returns
    -------
    str
        The SHA-256, in hex, of the tips in sorted order, one per line.

    Raises
    ------
    ConfigError
        If a tip occurs twice: a release was given twice.

    Examples
    --------
    >>> from locum.accounting import joint_ledger
    >>> joint_ledger(["b" * 64, "a" * 64]) == joint_ledger(["a" * 64, "b" * 64])
    True
    """
    if len(set(tips)) < len(tips):
        raise ConfigError("A release was given twice: two of them name the same ledger entry. Give each once.")
    return hashlib.sha256("\n".join(sorted(tips)).encode()).hexdigest()


def joint_sites(listed: Any, ledger: str) -> dict[str, dict[str, Any]]:
    """What each site of a joint release paid, by the entry of its ledger, as the release's settings list it.

    Parameters
    ----------
    listed
        `settings["sites"]` of the release, which is not trusted.
    ledger
        What the release's claim names: see `joint_ledger`.

    Returns
    -------
    dict
        The entry of each site by the tip of its ledger.

    Raises
    ------
    PrivacyError
        If these are not the two or more sites that the claim names.

    Examples
    --------
    >>> from locum.accounting import joint_ledger, joint_sites
    >>> tips = ["a" * 64, "b" * 64]
    >>> len(joint_sites([{"ledger": tip} for tip in tips], joint_ledger(tips)))
    2
    """
    sites = listed if isinstance(listed, list) else []
    found = {site["ledger"]: site for site in sites if isinstance(site, dict) and isinstance(site.get("ledger"), str)}
    if len(found) < 2 or len(found) < len(sites) or joint_ledger(list(found)) != ledger:
        raise PrivacyError(
            "The release names sites, but its claim is not the joint claim of two or more of them: it was altered."
        )
    return found


def _check_purpose(purpose: str) -> None:
    if not purpose or len(purpose) > 200 or not purpose.isprintable():
        raise ConfigError(f"A purpose needs up to 200 printable letters; got {purpose[:200]!r}.")


def _overlap(one: str, two: str) -> bool:
    """Whether two parts are steps, and share some."""
    steps = [_STEPS.fullmatch(name) for name in (one, two)]
    if not all(steps):
        return False
    (a, b), (c, d) = ((int(found[1]), int(found[2])) for found in steps if found is not None)
    return a < d and c < b


def _results(entries: Sequence[dict[str, Any]], identity: str) -> dict[str, str]:
    bodies = [entry["body"] for entry in entries]
    mine = [body for body in bodies if body["kind"] == "result" and body["identity"] == identity]
    return {body.get("part", ""): body["result"] for body in mine}


def _check_known(entries: Sequence[dict[str, Any]], charge: Charge) -> None:
    bodies = [entry["body"] for entry in entries]
    if not any(body["kind"] == "charge" and body["identity"] == charge.identity for body in bodies):
        raise PrivacyError("This ledger does not know the charge: it was paid elsewhere.")


def _releases(entries: Sequence[dict[str, Any]], identity: str) -> tuple[str, ...]:
    bodies = [entry["body"] for entry in entries]
    return tuple(b["release"] for b in bodies if b["kind"] == "release" and b["identity"] == identity)


def _holdings(entries: Sequence[dict[str, Any]]) -> dict[str, Holding]:
    out: dict[str, Holding] = {}
    for entry in entries:
        body = entry["body"]
        name = body["holding"]
        if body["kind"] == "budget":
            charges = out[name].charges if name in out else ()
            out[name] = Holding(name, body["unit"], body["relation"], body["epsilon"], body["delta"], charges)
        elif body["kind"] == "charge":
            paid = (body["epsilon"], body["delta"], events_from_json(body["events"]), body["purpose"])
            charge = Charge(body["identity"], name, *paid, tip=entry["hash"])
            out[name] = replace(out[name], charges=(*out[name].charges, charge))
        elif body["kind"] == "looked":
            # A look spends nothing, so it needs no budget.
            if not isinstance(name, str) or not isinstance(body["purpose"], str):
                raise KeyError(body["kind"])
        elif body["kind"] == "data":
            if name not in out or not isinstance(body["place"], str):
                raise KeyError(body["kind"])
        elif body["kind"] not in ("result", "release") or name not in out:
            raise KeyError(body["kind"])
    return out
