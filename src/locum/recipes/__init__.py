"""One function a verb: what the program does can be done from Python too.

Fetched when first used: `sample` and `verify` must not wait for what `fit` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from locum._lazy import lazy_exports

if TYPE_CHECKING:
    from locum.recipes.archive import pack_to_file as pack_to_file, receive_release as receive_release
    from locum.recipes.audit import (
        Audited as Audited,
        audit_data as audit_data,
        make_audit_page as make_audit_page,
    )
    from locum.recipes.data_sets import (
        CheckedFile as CheckedFile,
        DataFile as DataFile,
        DataSet as DataSet,
        check_data as check_data,
        contents_sha256 as contents_sha256,
        list_data as list_data,
        read_data_sets as read_data_sets,
    )
    from locum.recipes.decide import (
        DecideSummary as DecideSummary,
        decide_release as decide_release,
        default_decision_path as default_decision_path,
    )
    from locum.recipes.demo import run_demo as run_demo
    from locum.recipes.dial import dial_curves as dial_curves
    from locum.recipes.doctor import examine as examine
    from locum.recipes.embed import EmbedSummary as EmbedSummary, embed_to_file as embed_to_file
    from locum.recipes.embed_parts import embed_to_folder as embed_to_folder
    from locum.recipes.evaluate import Evaluation as Evaluation, evaluate_release as evaluate_release
    from locum.recipes.evaluate_groups import Breakdown as Breakdown
    from locum.recipes.export import (
        ExportSummary as ExportSummary,
        export_onnx as export_onnx,
        push_to_hub as push_to_hub,
    )
    from locum.recipes.federate import (
        make_federation_keys as make_federation_keys,
        make_key_for_site as make_key_for_site,
        merge_to_folder as merge_to_folder,
        pin_sites as pin_sites,
        predict_personally as predict_personally,
        simulate_federation as simulate_federation,
        start_federation as start_federation,
    )
    from locum.recipes.federate_network import (
        coordinate_federation as coordinate_federation,
        join_federation as join_federation,
    )
    from locum.recipes.fetch import FetchSummary as FetchSummary, fetch_data as fetch_data
    from locum.recipes.fit import FitSummary as FitSummary, fit_release as fit_release
    from locum.recipes.forecasting import (
        Forecast as Forecast,
        epsilon_for as epsilon_for,
        forecast as forecast,
    )
    from locum.recipes.ledger import (
        backup_ledger as backup_ledger,
        export_ledger as export_ledger,
        find_ledger as find_ledger,
        ledger_knows as ledger_knows,
        restore_ledger as restore_ledger,
        set_budget as set_budget,
        show_ledger as show_ledger,
    )
    from locum.recipes.obfuscate import (
        AppliedSummary as AppliedSummary,
        ObfuscatorSummary as ObfuscatorSummary,
        apply_obfuscator as apply_obfuscator,
        fit_obfuscator as fit_obfuscator,
    )
    from locum.recipes.obfuscate_data import list_columns as list_columns
    from locum.recipes.obfuscate_private import (
        PrivateTableSummary as PrivateTableSummary,
        SampledSummary as SampledSummary,
        draft_domain as draft_domain,
        fit_private_table as fit_private_table,
        sample_table as sample_table,
    )
    from locum.recipes.obfuscate_trade_off import (
        TradeOffSummary as TradeOffSummary,
        measure_trade_off as measure_trade_off,
    )
    from locum.recipes.passport import PassportSummary as PassportSummary, write_passport as write_passport
    from locum.recipes.plan import explain as explain, make_plan as make_plan
    from locum.recipes.predict import PredictSummary as PredictSummary, predict_records as predict_records
    from locum.recipes.preview import (
        preview_budgets as preview_budgets,
        preview_groups as preview_groups,
        preview_records as preview_records,
    )
    from locum.recipes.publish import PublishSummary as PublishSummary, publish_release as publish_release
    from locum.recipes.rebalance import (
        PRIVATE as PRIVATE,
        RebalanceSummary as RebalanceSummary,
        rebalance_to_file as rebalance_to_file,
    )
    from locum.recipes.rebalance_compare import Comparison as Comparison, compare_methods as compare_methods
    from locum.recipes.reference import (
        ReferenceSummary as ReferenceSummary,
        make_reference as make_reference,
        show_reference as show_reference,
    )
    from locum.recipes.report import default_report_path as default_report_path, make_report as make_report
    from locum.recipes.review import (
        findings_beside as findings_beside,
        read_risk as read_risk,
        review_release as review_release,
        show_cost as show_cost,
    )
    from locum.recipes.sample import sample_to_file as sample_to_file
    from locum.recipes.sample_parts import sample_to_folder as sample_to_folder
    from locum.recipes.sign import (
        make_key_pair as make_key_pair,
        read_passphrase as read_passphrase,
        sign_release as sign_release,
    )
    from locum.recipes.studio_demo import make_studio_demo as make_studio_demo
    from locum.recipes.study import (
        Expected as Expected,
        FoundStudy as FoundStudy,
        Study as Study,
        StudyResults as StudyResults,
        apply_settings as apply_settings,
        expect_time as expect_time,
        find_studies as find_studies,
        load_studies as load_studies,
        render_study as render_study,
        run_study as run_study,
    )
    from locum.recipes.study_check import check_at_random as check_at_random, check_study as check_study
    from locum.recipes.study_coverage import (
        CoverageRow as CoverageRow,
        check_coverage as check_coverage,
        coverage_totals as coverage_totals,
        read_coverage as read_coverage,
    )
    from locum.recipes.study_papers import (
        Paper as Paper,
        PaperPart as PaperPart,
        PartResult as PartResult,
        find_papers as find_papers,
        run_paper as run_paper,
    )
    from locum.recipes.study_sets import (
        SetNeeds as SetNeeds,
        StudySet as StudySet,
        prepare_set as prepare_set,
        study_set as study_set,
        study_splits as study_splits,
    )
    from locum.recipes.survey import DataSurvey as DataSurvey, survey_data as survey_data
    from locum.recipes.train import SCORED_ON as SCORED_ON, TrainSummary as TrainSummary, train_head as train_head
    from locum.recipes.verify import verify_release as verify_release

__getattr__, __dir__, __all__ = lazy_exports(__name__)
