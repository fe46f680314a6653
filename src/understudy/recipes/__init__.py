"""One function a verb: what the program does can be done from Python too.

Fetched when first used: `sample` and `verify` must not wait for what `fit` needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy._lazy import lazy_names

if TYPE_CHECKING:
    from understudy.recipes.demo import run_demo
    from understudy.recipes.doctor import examine
    from understudy.recipes.evaluate import Evaluation, evaluate_release
    from understudy.recipes.fit import FitSummary, fit_release
    from understudy.recipes.sample import sample_to_file
    from understudy.recipes.study import Study, StudyResults, check_study, find_studies, run_study

__all__ = [
    "Evaluation",
    "FitSummary",
    "Study",
    "StudyResults",
    "check_study",
    "evaluate_release",
    "examine",
    "find_studies",
    "fit_release",
    "run_demo",
    "run_study",
    "sample_to_file",
]

_HOMES = {
    "Evaluation": "understudy.recipes.evaluate",
    "FitSummary": "understudy.recipes.fit",
    "Study": "understudy.recipes.study",
    "StudyResults": "understudy.recipes.study",
    "check_study": "understudy.recipes.study",
    "evaluate_release": "understudy.recipes.evaluate",
    "examine": "understudy.recipes.doctor",
    "find_studies": "understudy.recipes.study",
    "fit_release": "understudy.recipes.fit",
    "run_demo": "understudy.recipes.demo",
    "run_study": "understudy.recipes.study",
    "sample_to_file": "understudy.recipes.sample",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
