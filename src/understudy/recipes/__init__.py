"""One function a verb: what the program does can be done from Python too.

Fetched when first used: `sample` and `verify` must not wait for what `fit` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.recipes.audit_page import make_audit_page, write_audit_page
    from understudy.recipes.audit_risk import write_risk
    from understudy.recipes.demo import run_demo
    from understudy.recipes.doctor import examine
    from understudy.recipes.embed import EmbedSummary, embed_to_file
    from understudy.recipes.evaluate import Evaluation, evaluate_release
    from understudy.recipes.federate import PersonalPredictions, predict_personally, simulate_federation
    from understudy.recipes.federate_merge import MergeSummary, merge_to_folder
    from understudy.recipes.fit import FitSummary, fit_release
    from understudy.recipes.ledger import export_ledger, set_budget, show_ledger
    from understudy.recipes.obfuscate import ObfuscatorSummary, fit_obfuscator
    from understudy.recipes.obfuscate_apply import AppliedSummary, apply_obfuscator
    from understudy.recipes.obfuscate_trade_off import TradeOffSummary, measure_trade_off
    from understudy.recipes.passport import PassportSummary, write_passport
    from understudy.recipes.plan import explain, make_plan
    from understudy.recipes.predict import PredictSummary, predict_records
    from understudy.recipes.rebalance import RebalanceSummary, rebalance_to_file
    from understudy.recipes.rebalance_compare import Comparison, compare_methods
    from understudy.recipes.report import make_report
    from understudy.recipes.sample import sample_to_file
    from understudy.recipes.sign import KeySummary, SignSummary, make_key_pair, sign_release
    from understudy.recipes.study import Study, StudyResults, check_study, find_studies, run_study
    from understudy.recipes.train import TrainSummary, train_head
    from understudy.recipes.verify import verify_release

__all__ = [
    "AppliedSummary",
    "Comparison",
    "EmbedSummary",
    "Evaluation",
    "FitSummary",
    "KeySummary",
    "MergeSummary",
    "ObfuscatorSummary",
    "PassportSummary",
    "PersonalPredictions",
    "PredictSummary",
    "RebalanceSummary",
    "SignSummary",
    "Study",
    "StudyResults",
    "TradeOffSummary",
    "TrainSummary",
    "apply_obfuscator",
    "check_study",
    "compare_methods",
    "embed_to_file",
    "evaluate_release",
    "examine",
    "explain",
    "export_ledger",
    "find_studies",
    "fit_obfuscator",
    "fit_release",
    "make_audit_page",
    "make_key_pair",
    "make_plan",
    "make_report",
    "measure_trade_off",
    "merge_to_folder",
    "predict_personally",
    "predict_records",
    "rebalance_to_file",
    "run_demo",
    "run_study",
    "sample_to_file",
    "set_budget",
    "show_ledger",
    "sign_release",
    "simulate_federation",
    "train_head",
    "verify_release",
    "write_audit_page",
    "write_passport",
    "write_risk",
]

_HOMES = {
    "AppliedSummary": "understudy.recipes.obfuscate_apply",
    "Comparison": "understudy.recipes.rebalance_compare",
    "EmbedSummary": "understudy.recipes.embed",
    "Evaluation": "understudy.recipes.evaluate",
    "FitSummary": "understudy.recipes.fit",
    "KeySummary": "understudy.recipes.sign",
    "MergeSummary": "understudy.recipes.federate_merge",
    "ObfuscatorSummary": "understudy.recipes.obfuscate",
    "PassportSummary": "understudy.recipes.passport",
    "PersonalPredictions": "understudy.recipes.federate",
    "PredictSummary": "understudy.recipes.predict",
    "RebalanceSummary": "understudy.recipes.rebalance",
    "SignSummary": "understudy.recipes.sign",
    "Study": "understudy.recipes.study",
    "StudyResults": "understudy.recipes.study",
    "TradeOffSummary": "understudy.recipes.obfuscate_trade_off",
    "TrainSummary": "understudy.recipes.train",
    "apply_obfuscator": "understudy.recipes.obfuscate_apply",
    "check_study": "understudy.recipes.study",
    "compare_methods": "understudy.recipes.rebalance_compare",
    "embed_to_file": "understudy.recipes.embed",
    "evaluate_release": "understudy.recipes.evaluate",
    "examine": "understudy.recipes.doctor",
    "explain": "understudy.recipes.plan",
    "export_ledger": "understudy.recipes.ledger",
    "find_studies": "understudy.recipes.study",
    "fit_obfuscator": "understudy.recipes.obfuscate",
    "fit_release": "understudy.recipes.fit",
    "make_audit_page": "understudy.recipes.audit_page",
    "make_key_pair": "understudy.recipes.sign",
    "make_plan": "understudy.recipes.plan",
    "make_report": "understudy.recipes.report",
    "measure_trade_off": "understudy.recipes.obfuscate_trade_off",
    "merge_to_folder": "understudy.recipes.federate_merge",
    "predict_personally": "understudy.recipes.federate",
    "predict_records": "understudy.recipes.predict",
    "rebalance_to_file": "understudy.recipes.rebalance",
    "run_demo": "understudy.recipes.demo",
    "run_study": "understudy.recipes.study",
    "sample_to_file": "understudy.recipes.sample",
    "set_budget": "understudy.recipes.ledger",
    "show_ledger": "understudy.recipes.ledger",
    "sign_release": "understudy.recipes.sign",
    "simulate_federation": "understudy.recipes.federate",
    "train_head": "understudy.recipes.train",
    "verify_release": "understudy.recipes.verify",
    "write_audit_page": "understudy.recipes.audit_page",
    "write_passport": "understudy.recipes.passport",
    "write_risk": "understudy.recipes.audit_risk",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
