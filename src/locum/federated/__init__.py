"""Federation: sites train one stand-in together, each with its own ledger, and no record leaves a site.

Names are imported when first used, because torch and Flower are slow to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.federated.aggregation import average as average
    from locum.federated.certificates import make_certificates as make_certificates, make_site_key as make_site_key
    from locum.federated.claims import joint_claim as joint_claim
    from locum.federated.coordinator import Coordinator as Coordinator
    from locum.federated.merge import Weights as Weights, merge_releases as merge_releases
    from locum.federated.personal import PersonalModel as PersonalModel, fit_personal as fit_personal
    from locum.federated.protocol import (
        Channel as Channel,
        NoReply as NoReply,
        Reply as Reply,
        Request as Request,
    )
    from locum.federated.scaffold import pin_keys as pin_keys, write_federation as write_federation
    from locum.federated.settings import FederationSettings as FederationSettings
    from locum.federated.simulation import Simulation as Simulation, simulate as simulate
    from locum.federated.site import Site as Site
    from locum.federated.site_file import SiteFile as SiteFile
    from locum.federated.state import SIMULATION as SIMULATION
    from locum.federated.terms import plan_site as plan_site
    from locum.federated.transport.link import coordinate as coordinate
    from locum.federated.transport.local import LocalChannel as LocalChannel
    from locum.federated.transport.node import join as join
    from locum.federated.verification import check_receipts as check_receipts

__getattr__, __dir__, __all__ = lazy_exports(__name__)
