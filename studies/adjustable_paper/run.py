"""The adjustable paper's remaining figures, tables and remarks: on UCI Adult, and on CelebA for whoever has it."""

from __future__ import annotations

import adj_celeba
import adj_questions
import adj_table3

from locum.recipes import Study

STUDIES = {
    "adult-table3": Study("Table 3 of the adjustable paper on UCI Adult", adj_table3.cells, adj_table3.render),
    "celeba-curves": Study("CelebA: the adjustable paper's three cases", adj_celeba.cells, adj_celeba.render),
    "adult-paper": Study(
        "UCI Adult: what else the adjustable paper says or shows", adj_questions.cells, adj_questions.render
    ),
}
