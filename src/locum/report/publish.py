"""What one run of `publish` did, on one internal page: as a plain dict, and as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from locum._version import __version__
from locum.release import Release, decision_sentence, holder_refuses
from locum.release.passport import Passport
from locum.report.decision import decision_facts
from locum.report.page import pages
from locum.report.text import AFTER_LEAK, AFTER_REFUSAL, POLICY_FIRST, PUBLISH_BANNER, plain, proven_words
from locum.types import at_most

# Less epsilon than this is what rounding leaves.
_NOTHING = 1e-4


def publish_facts(
    release: Release,
    *,
    published: bool,
    audit: Mapping[str, Any],
    records: Mapping[str, Any],
    limit: Mapping[str, Any],
    budget: Mapping[str, Any],
    forecasts: Sequence[Mapping[str, Any]] = (),
    checks: Sequence[str] = (),
    passport: Passport | None = None,
    decide: str = "locum decide RELEASE",
    audit_page: str = "",
) -> dict[str, Any]:
    """Everything on the page of a run of `publish`. It is internal: it holds counts and measured figures.

    Parameters
    ----------
    release
        The release.
    published
        Whether the policy is met, and it was signed.
    audit
        What `audit_facts` returned.
    records
        Counts: `used`, `held_out`, `copies`, `kept_copies`, `not_used` by split, `unit`; for images also `images`,
        `skipped`, `skipped_file`, `ignored` and `ignored_kinds`.
    limit
        The proven limit as plain JSON.
    budget
        `ledger`, `holding` and what is `left` (`epsilon`, `delta`).
    forecasts
        What the release is expected to keep of the usefulness of real data, as plain JSON.
    checks
        What `verify` checked; empty if it was not published.
    passport
        Its passport, which names the decision if there is one; None if it was not published.
    decide
        The command that records a decision.
    audit_page
        The page with all attacks, as a link from this one; empty if there is none.

    Returns
    -------
    dict
        Plain JSON types, with all text made safe for pages.

    Examples
    --------
    >>> from locum.report import publish_facts
    >>> facts = publish_facts(  # doctest: +SKIP
    ...     release, published=True, audit=found, records=counts, limit=limit, budget=budget
    ... )
    >>> facts["title"]  # doctest: +SKIP
    'Published: all checks passed and the release is signed; a person decides whether it leaves'
    """
    facts = decision_facts(release, audit=audit)
    left = budget["left"]
    more = {
        "title": _title(published, passport),
        "published": published,
        "reasons": [f"{rule['rule']}. {rule['words']}" for rule in audit["failed"]],
        "next": _next(published, limit, passport, decide, leak=audit["verdict"] == "leak"),
        "records": dict(records),
        "story": _story(records),
        "limit": {"words": proven_words(limit["auc"]), "sentence": limit["sentence"]},
        "budget": {**budget, "words": _budget(budget["holding"], left)},
        "usefulness": [_usefulness(one) for one in forecasts],
        "checks": list(checks),
        "audit": {key: audit[key] for key in ("verdict", "title", "because", "tone")} | {"page": audit_page},
        "written_on": datetime.now(UTC).date().isoformat(),
        "written_by": f"locum {__version__}",
    }
    out: dict[str, Any] = plain(facts | more)
    return out


def publish_html(facts: Mapping[str, Any]) -> str:
    """A complete page from the facts of a run of `publish`, without scripts or links. It is internal, and says so.

    Parameters
    ----------
    facts
        What `publish_facts` returned.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> from locum.report import publish_html
    >>> page = publish_html(facts)  # doctest: +SKIP
    """
    return pages().get_template("publish.html.jinja").render(p=facts, banner=PUBLISH_BANNER)


def _story(records: Mapping[str, Any]) -> list[str]:
    """What happened to the data on the way, in sentences."""
    out = []
    if "images" in records:
        out.append(f"{_count(records['images'], 'image', 'images')} became vectors.")
        if records["skipped"]:
            out.append(
                f"{_count(records['skipped'], 'image', 'images')} could not be read and {_were(records['skipped'])} "
                f"left out; {records['skipped_file']} lists {'it' if records['skipped'] == 1 else 'them'}."
            )
        if records["ignored"]:
            kinds = f" ({', '.join(found)})" if (found := records.get("ignored_kinds")) else ""
            files = _count(records["ignored"], "file that is not an image", "files that are not images")
            out.append(f"{files}{kinds} {_were(records['ignored'])} ignored.")
    if records["copies"]:
        out.append(
            f"{_count(records['copies'], 'record equals', 'records equal')} another and {_were(records['copies'])} "
            "left out."
        )
    if records["kept_copies"]:
        out.append(
            f"{_count(records['kept_copies'], 'copy', 'copies')} of another subject's record stayed: no subject may "
            "affect what happens to the records of others."
        )
    together = ", all records of a subject on one side" if records["unit"] == "subject" else ""
    out.append(
        f"{_count(records['used'], 'record', 'records')} went into the release. "
        f"{_count(records['held_out'], 'was', 'were')} held out to attack it with{together}."
    )
    for name, count in records["not_used"].items():
        out.append(
            f"The {name} split ({_count(count, 'record', 'records')}) was not used: it may come from elsewhere. Use "
            "it to measure how useful the release is."
        )
    return out


def _title(published: bool, passport: Passport | None) -> str:
    if not published:
        return "Not published: the policy is not met"
    decided = passport is not None and passport.decision is not None
    rest = f"it was {decision_sentence(passport)}" if decided else "a person decides whether it leaves"
    return f"Published: all checks passed and the release is signed; {rest}"


def _next(
    published: bool, limit: Mapping[str, Any], passport: Passport | None, decide: str, *, leak: bool
) -> list[dict[str, str]]:
    """What to do now: sentences, each with a command if there is one."""
    if published and holder_refuses(passport):
        return [{"text": "Do not send the folder `release`: it was refused.", "type": ""}]
    if published:
        decided = passport is not None and passport.decision is not None
        first = {
            "text": "Decide: answer the questions in `locum decide --help`, then record it (or --refuse) with",
            "type": decide,
        }
        return [
            *([] if decided else [first]),
            {
                "text": f"{'Send' if decided else 'Once it is approved, send'} the folder `release` as it is. Keep "
                "the folder `internal`.",
                "type": "",
            },
            {
                "text": "Give receivers your public key over another channel. They check the release with",
                "type": "locum verify release --key KEY.pub",
            },
            {"text": "They train on it with", "type": "locum train release -o head.safetensors"},
        ]
    out = [
        {
            "text": "The release was paid for. It is kept, unsigned, in the folder `internal`, and costs nothing "
            "more.",
            "type": "",
        }
    ]
    for line in limit["open_assumptions"]:
        name = str(line).split(":")[0]
        out.append({"text": "If you know this to be true, run the same command with", "type": f'--accept "{name}"'})
    out += [{"text": text, "type": ""} for text in (AFTER_LEAK if leak else AFTER_REFUSAL, POLICY_FIRST)]
    return out


def _budget(holding: str, left: Mapping[str, float]) -> str:
    if left["epsilon"] < _NOTHING:
        return f"Nothing is left of the budget of “{holding}”: another release of these data needs a larger budget."
    rest = f"Epsilon {at_most(left['epsilon'])} and delta {at_most(left['delta'])}"
    return f"{rest} are left of the budget of “{holding}”."


def _usefulness(forecast: Mapping[str, Any]) -> str:
    kept = forecast["kept"]
    return (
        f"At epsilon {forecast['epsilon']:g}, a classifier should keep about {kept['value']:.0%} ({kept['low']:.0%} "
        f"to {kept['high']:.0%}) of what one trained on real data gains over chance in AUC. That is a forecast from "
        "releases of other data."
    )


def _count(n: int, one: str, many: str) -> str:
    return f"{n:,} {one if n == 1 else many}"


def _were(n: int) -> str:
    return "was" if n == 1 else "were"
