"""Attacks on a release, each with a control and a baseline; the audit that runs them; the policies it answers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.audit.attack import Attack
    from understudy.audit.attribute_inference import AttributeInference
    from understudy.audit.audit_report import AuditReport
    from understudy.audit.auditing import SAMPLE_ATTACKS, audit
    from understudy.audit.checks import Problem, check_sets
    from understudy.audit.closest_record import ClosestRecord
    from understudy.audit.density_ratio import DensityRatio
    from understudy.audit.hole import Hole
    from understudy.audit.linkage import Linkage
    from understudy.audit.nearest_distance import LEAST_NON_MEMBERS, NearestDistance
    from understudy.audit.policy import POLICIES, Finding, Policy, load_policy
    from understudy.audit.reidentification import Reidentification
    from understudy.audit.sandwich import Sandwich
    from understudy.audit.scores import ScoreAttack, Scores
    from understudy.audit.screening import Screening, screen
    from understudy.audit.singling_out import SinglingOut

__all__ = [
    "LEAST_NON_MEMBERS",
    "POLICIES",
    "SAMPLE_ATTACKS",
    "Attack",
    "AttributeInference",
    "AuditReport",
    "ClosestRecord",
    "DensityRatio",
    "Finding",
    "Hole",
    "Linkage",
    "NearestDistance",
    "Policy",
    "Problem",
    "Reidentification",
    "Sandwich",
    "ScoreAttack",
    "Scores",
    "Screening",
    "SinglingOut",
    "audit",
    "check_sets",
    "load_policy",
    "screen",
]

_HOMES = {
    "LEAST_NON_MEMBERS": "understudy.audit.nearest_distance",
    "POLICIES": "understudy.audit.policy",
    "SAMPLE_ATTACKS": "understudy.audit.auditing",
    "Attack": "understudy.audit.attack",
    "AttributeInference": "understudy.audit.attribute_inference",
    "AuditReport": "understudy.audit.audit_report",
    "ClosestRecord": "understudy.audit.closest_record",
    "DensityRatio": "understudy.audit.density_ratio",
    "Finding": "understudy.audit.policy",
    "Hole": "understudy.audit.hole",
    "Linkage": "understudy.audit.linkage",
    "NearestDistance": "understudy.audit.nearest_distance",
    "Policy": "understudy.audit.policy",
    "Problem": "understudy.audit.checks",
    "Reidentification": "understudy.audit.reidentification",
    "Sandwich": "understudy.audit.sandwich",
    "ScoreAttack": "understudy.audit.scores",
    "Scores": "understudy.audit.scores",
    "Screening": "understudy.audit.screening",
    "SinglingOut": "understudy.audit.singling_out",
    "audit": "understudy.audit.auditing",
    "check_sets": "understudy.audit.checks",
    "load_policy": "understudy.audit.policy",
    "screen": "understudy.audit.screening",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
