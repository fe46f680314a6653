"""Training together: private heads over masked sums, the federated paper with its true epsilon, and baselines."""

from __future__ import annotations

import fed_confounders
import fed_decoders
import fed_paper
import fed_results
import fed_tails

from locum.recipes import SetNeeds, Study

STUDIES: dict[str, Study] = {
    "federated-results": Study(
        "Training together",
        fed_results.cells,
        fed_results.render,
        sets=fed_results.NEEDS,
        check=fed_results.check,
        names={"without": None, "slow": None},
    ),
    "federated-factors": Study(
        "Training together, one factor at a time",
        fed_results.factor_cells,
        fed_results.factor_render,
        sets=fed_results.FACTOR_NEEDS,
        check=fed_results.check_factors,
        names={"backbones": None, "paper_backbones": None},
    ),
    "federated-tails": Study(
        "Rare classes in a federation",
        fed_tails.cells,
        fed_tails.render,
        sets="Its rare classes are those of CIFAR-10 LT; `federated-results` takes other sets.",
    ),
    "federated-confounders": Study(
        "Confounders in a federation",
        fed_confounders.cells,
        fed_confounders.render,
        sets="Its confounder is the view of a chest X-ray, which other sets do not have.",
    ),
    "federated-decoders": Study(
        "Averaged decoders, and which distance tells their use",
        fed_decoders.cells,
        fed_decoders.render,
        sets=SetNeeds("set"),
        check=fed_decoders.check,
    ),
    "federated-table1": Study(
        "Table 1 of the federated paper, on its own data",
        fed_paper.cells,
        fed_paper.render,
        sets=fed_paper.NEEDS,
        check=fed_paper.check,
    ),
}
