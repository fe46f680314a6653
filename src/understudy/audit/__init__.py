"""Attacks on a release, each with a control and a baseline; the audit that runs them; the policies it answers to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.audit.attack import Attack
    from understudy.audit.attribute_inference import AttributeInference
    from understudy.audit.audit_report import AuditReport
    from understudy.audit.auditing import audit
    from understudy.audit.canaries import CanaryRun, run_canaries
    from understudy.audit.catalogue import (
        ATTACKS,
        DECODER_ATTACKS,
        DEFAULT_ATTACKS,
        SAMPLE_ATTACKS,
        SHADOW_ATTACKS,
        make_attack,
        shadow_attacks,
    )
    from understudy.audit.checks import Problem, check_sets
    from understudy.audit.closest_record import ClosestRecord
    from understudy.audit.density_ratio import DensityRatio
    from understudy.audit.elbo import EncoderELBO
    from understudy.audit.hole import Hole
    from understudy.audit.latent_search import LatentSearch, Search
    from understudy.audit.linkage import Linkage
    from understudy.audit.lira import LiRA
    from understudy.audit.lower_bound import Guesses, LowerBound, plan_guesses, refuted_epsilon
    from understudy.audit.nearest_distance import LEAST_NON_MEMBERS, NearestDistance
    from understudy.audit.policy import POLICIES, Finding, Policy, load_policy
    from understudy.audit.reidentification import Reidentification
    from understudy.audit.risk import RiskMap
    from understudy.audit.rmia import RMIA
    from understudy.audit.sandwich import Sandwich, audit_epsilon
    from understudy.audit.scores import ScoreAttack, Scores
    from understudy.audit.screening import Screening, screen
    from understudy.audit.singling_out import SinglingOut

__all__ = [
    "ATTACKS",
    "DECODER_ATTACKS",
    "DEFAULT_ATTACKS",
    "LEAST_NON_MEMBERS",
    "POLICIES",
    "RMIA",
    "SAMPLE_ATTACKS",
    "SHADOW_ATTACKS",
    "Attack",
    "AttributeInference",
    "AuditReport",
    "CanaryRun",
    "ClosestRecord",
    "DensityRatio",
    "EncoderELBO",
    "Finding",
    "Guesses",
    "Hole",
    "LatentSearch",
    "LiRA",
    "Linkage",
    "LowerBound",
    "NearestDistance",
    "Policy",
    "Problem",
    "Reidentification",
    "RiskMap",
    "Sandwich",
    "ScoreAttack",
    "Scores",
    "Screening",
    "Search",
    "SinglingOut",
    "audit",
    "audit_epsilon",
    "check_sets",
    "load_policy",
    "make_attack",
    "plan_guesses",
    "refuted_epsilon",
    "run_canaries",
    "screen",
    "shadow_attacks",
]

_HOMES = {
    "ATTACKS": "understudy.audit.catalogue",
    "DECODER_ATTACKS": "understudy.audit.catalogue",
    "DEFAULT_ATTACKS": "understudy.audit.catalogue",
    "LEAST_NON_MEMBERS": "understudy.audit.nearest_distance",
    "POLICIES": "understudy.audit.policy",
    "SAMPLE_ATTACKS": "understudy.audit.catalogue",
    "SHADOW_ATTACKS": "understudy.audit.catalogue",
    "Attack": "understudy.audit.attack",
    "AttributeInference": "understudy.audit.attribute_inference",
    "AuditReport": "understudy.audit.audit_report",
    "CanaryRun": "understudy.audit.canaries",
    "ClosestRecord": "understudy.audit.closest_record",
    "DensityRatio": "understudy.audit.density_ratio",
    "EncoderELBO": "understudy.audit.elbo",
    "Finding": "understudy.audit.policy",
    "Guesses": "understudy.audit.lower_bound",
    "Hole": "understudy.audit.hole",
    "LatentSearch": "understudy.audit.latent_search",
    "LiRA": "understudy.audit.lira",
    "Linkage": "understudy.audit.linkage",
    "LowerBound": "understudy.audit.lower_bound",
    "NearestDistance": "understudy.audit.nearest_distance",
    "Policy": "understudy.audit.policy",
    "Problem": "understudy.audit.checks",
    "RMIA": "understudy.audit.rmia",
    "RiskMap": "understudy.audit.risk",
    "Reidentification": "understudy.audit.reidentification",
    "Sandwich": "understudy.audit.sandwich",
    "ScoreAttack": "understudy.audit.scores",
    "Scores": "understudy.audit.scores",
    "Screening": "understudy.audit.screening",
    "Search": "understudy.audit.latent_search",
    "SinglingOut": "understudy.audit.singling_out",
    "audit": "understudy.audit.auditing",
    "audit_epsilon": "understudy.audit.sandwich",
    "check_sets": "understudy.audit.checks",
    "load_policy": "understudy.audit.policy",
    "make_attack": "understudy.audit.catalogue",
    "plan_guesses": "understudy.audit.lower_bound",
    "refuted_epsilon": "understudy.audit.lower_bound",
    "run_canaries": "understudy.audit.canaries",
    "screen": "understudy.audit.screening",
    "shadow_attacks": "understudy.audit.catalogue",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
