"""Training together: private heads over masked sums, the federated paper with its true epsilon, and baselines."""

from __future__ import annotations

import fed_confounders
import fed_decoders
import fed_paper
import fed_results
import fed_tails

from locum.recipes import Study

STUDIES: dict[str, Study] = {
    "federated-results": Study("Training together", fed_results.cells, fed_results.render),
    "federated-factors": Study(
        "Training together, one factor at a time", fed_results.factor_cells, fed_results.factor_render
    ),
    "federated-tails": Study("Rare classes in a federation", fed_tails.cells, fed_tails.render),
    "federated-confounders": Study("Confounders in a federation", fed_confounders.cells, fed_confounders.render),
    "federated-decoders": Study(
        "Averaged decoders, and which distance tells their use", fed_decoders.cells, fed_decoders.render
    ),
    "federated-paper": Study("The federated paper's own data", fed_paper.cells, fed_paper.render),
}
