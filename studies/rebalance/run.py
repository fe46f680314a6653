"""Rare classes: which method wins, chosen on training data and tested afterwards."""

from __future__ import annotations

from reb_choice import choice, choice_minutes, render_choice
from reb_methods import methods, methods_minutes, render_methods
from reb_questions import questions_minutes, render_questions, requests

from locum.recipes import Study

STUDIES: dict[str, Study] = {
    "rebalance-choice": Study(
        "Rare classes: which head, chosen on training records", choice, render_choice, choice_minutes
    ),
    "rebalance-questions": Study(
        "Rare classes: the thesis' open questions", requests, render_questions, questions_minutes
    ),
    "rebalance-methods": Study(
        "Rare classes: every method on the test set", methods, render_methods, methods_minutes
    ),
}
