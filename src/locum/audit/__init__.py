"""Attacks on a release, each with a control and a baseline; the audit that runs them; policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.audit.attacks.attribute_inference import AttributeInference as AttributeInference
    from locum.audit.attacks.base import Attack as Attack, ScoreAttack as ScoreAttack
    from locum.audit.attacks.catalog import (
        ATTACKS as ATTACKS,
        DECODER_ATTACKS as DECODER_ATTACKS,
        DEFAULT_ATTACKS as DEFAULT_ATTACKS,
        DEFAULT_MINUTES as DEFAULT_MINUTES,
        DEFAULT_SHADOWS as DEFAULT_SHADOWS,
        SAMPLE_ATTACKS as SAMPLE_ATTACKS,
        SHADOW_ATTACKS as SHADOW_ATTACKS,
        attack_name as attack_name,
        shadow_attacks as shadow_attacks,
    )
    from locum.audit.attacks.closest_record import ClosestRecord as ClosestRecord
    from locum.audit.attacks.density_ratio import DensityRatio as DensityRatio
    from locum.audit.attacks.elbo import EncoderELBO as EncoderELBO
    from locum.audit.attacks.hole import Hole as Hole
    from locum.audit.attacks.latent_search import LatentSearch as LatentSearch, Search as Search
    from locum.audit.attacks.likelihood_ratio import LikelihoodRatio as LikelihoodRatio
    from locum.audit.attacks.linkage import Linkage as Linkage
    from locum.audit.attacks.lira import LiRA as LiRA
    from locum.audit.attacks.nearest_distance import (
        NearestDistance as NearestDistance,
        check_membership as check_membership,
    )
    from locum.audit.attacks.reidentification import Reidentification as Reidentification
    from locum.audit.attacks.rmia import RMIA as RMIA
    from locum.audit.attacks.singling_out import SinglingOut as SinglingOut
    from locum.audit.attacks.sum_lira import SumLiRA as SumLiRA
    from locum.audit.auditing import audit as audit, undecidable as undecidable
    from locum.audit.checks import Problem as Problem, check_sets as check_sets
    from locum.audit.doubts import doubts_in_words as doubts_in_words
    from locum.audit.epsilon.bounds import (
        Guesses as Guesses,
        LowerBound as LowerBound,
        refuted_epsilon as refuted_epsilon,
    )
    from locum.audit.epsilon.epsilon_audit import EpsilonAudit as EpsilonAudit, audit_epsilon as audit_epsilon
    from locum.audit.limit import (
        ProvenLimit as ProvenLimit,
        proven_limit as proven_limit,
        with_limit as with_limit,
    )
    from locum.audit.policy import (
        POLICIES as POLICIES,
        Policy as Policy,
        load_policy as load_policy,
    )
    from locum.audit.report import (
        COLUMNS as COLUMNS,
        STAYS as STAYS,
        VERDICT_TONES as VERDICT_TONES,
        AuditReport as AuditReport,
    )
    from locum.audit.risk import RiskMap as RiskMap, check_risk_file as check_risk_file
    from locum.audit.shadows.ray_engine import RayShadows as RayShadows
    from locum.audit.statistics import Scores as Scores
    from locum.audit.view import LEAST_NON_MEMBERS as LEAST_NON_MEMBERS

__getattr__, __dir__, __all__ = lazy_exports(__name__)
