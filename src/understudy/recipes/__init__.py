"""One function a verb: what the program does can be done from Python too."""

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
