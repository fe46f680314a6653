"""Sites learn one stand-in together and show nobody a record: each with its own ledger.

Fetched when first used: torch and Flower take their time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.federated.averaging import average
    from understudy.federated.claims import joint_claim
    from understudy.federated.coordinator import Coordinator
    from understudy.federated.local_channel import LocalChannel
    from understudy.federated.merge import merge_releases
    from understudy.federated.messages import Answer, Channel, Question, Silence
    from understudy.federated.personal import PersonalModel, fit_personal
    from understudy.federated.plans import SitePlan, plan_site
    from understudy.federated.rehearsal import Rehearsal, SiteScore, rehearse
    from understudy.federated.settings import FederationSettings
    from understudy.federated.site import Site
    from understudy.federated.site_file import SiteFile

__all__ = [
    "Answer",
    "Channel",
    "Coordinator",
    "FederationSettings",
    "LocalChannel",
    "PersonalModel",
    "Question",
    "Rehearsal",
    "Silence",
    "Site",
    "SiteFile",
    "SitePlan",
    "SiteScore",
    "average",
    "fit_personal",
    "joint_claim",
    "merge_releases",
    "plan_site",
    "rehearse",
]

_HOMES = {
    "Answer": "understudy.federated.messages",
    "Channel": "understudy.federated.messages",
    "Coordinator": "understudy.federated.coordinator",
    "FederationSettings": "understudy.federated.settings",
    "LocalChannel": "understudy.federated.local_channel",
    "PersonalModel": "understudy.federated.personal",
    "Question": "understudy.federated.messages",
    "Rehearsal": "understudy.federated.rehearsal",
    "Silence": "understudy.federated.messages",
    "Site": "understudy.federated.site",
    "SiteFile": "understudy.federated.site_file",
    "SitePlan": "understudy.federated.plans",
    "SiteScore": "understudy.federated.rehearsal",
    "average": "understudy.federated.averaging",
    "fit_personal": "understudy.federated.personal",
    "joint_claim": "understudy.federated.claims",
    "merge_releases": "understudy.federated.merge",
    "plan_site": "understudy.federated.plans",
    "rehearse": "understudy.federated.rehearsal",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
