"""Rare classes: which method wins, chosen on training data and tested afterwards."""

from __future__ import annotations

from reb_choice import choice, render_choice
from reb_methods import methods, render_methods
from reb_questions import render_questions, requests

from locum.recipes import Study

STUDIES: dict[str, Study] = {
    "rebalance-choice": Study("Rare classes: which head, chosen on training records", choice, render_choice),
    "rebalance-questions": Study("Rare classes: the thesis' open questions", requests, render_questions),
    "rebalance-methods": Study("Rare classes: every method on the test set", methods, render_methods),
}
