"""Rare classes: which method wins, chosen on training data and tested afterwards."""

from __future__ import annotations

from reb_choice import choice, choice_minutes, render_choice
from reb_methods import methods, methods_minutes, render_methods
from reb_questions import questions_minutes, render_questions, requests

from locum.recipes import SetNeeds, Study

# Every fold needs a record of each class.
IN_FOLDS = SetNeeds("sets", parts=("train",), per_class=lambda config: int(config["folds"]))

STUDIES: dict[str, Study] = {
    "rebalance-choice": Study(
        "Rare classes: which head, chosen on training records", choice, render_choice, choice_minutes, sets=IN_FOLDS
    ),
    "rebalance-questions": Study(
        "Rare classes: the thesis' open questions", requests, render_questions, questions_minutes, sets=IN_FOLDS
    ),
    "rebalance-methods": Study(
        "Rare classes: every method on the test set", methods, render_methods, methods_minutes, sets=SetNeeds("sets")
    ),
}
