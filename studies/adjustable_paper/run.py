"""The adjustable paper's remaining figures, tables and remarks: on UCI Adult, and on CelebA for whoever has it."""

from __future__ import annotations

import adj_celeba
import adj_questions
import adj_table3

from locum.recipes import Study

OWN = "It keeps UCI Adult's income and hides its sex; `locum obfuscate trade-off` measures a table of your own."

STUDIES = {
    "adult-table3": Study(
        "Table 3 of the adjustable paper on UCI Adult",
        adj_table3.cells,
        adj_table3.render,
        sets=OWN,
        names={"variants": adj_table3.VARIANTS},
    ),
    "celeba-curves": Study(
        "CelebA: the adjustable paper's three cases",
        adj_celeba.cells,
        adj_celeba.render,
        sets="Its cases are attributes of CelebA, whose folder is the setting `celeba`.",
        check=adj_celeba.check,
    ),
    "adult-paper": Study(
        "UCI Adult: what else the adjustable paper says or shows", adj_questions.cells, adj_questions.render, sets=OWN
    ),
}
