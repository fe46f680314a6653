"""Questions that the papers leave open: few records, a smallest distance, corrupted images, weights of rows."""

from __future__ import annotations

from que_corruptions import corruption_cells, corruption_minutes, render_corruptions
from que_distance import DISTANCE_NEEDS, check_distance, distance_cells, distance_minutes, render_distance
from que_few import FEW_NEEDS, check_few, few_cells, few_minutes, render_few
from que_weights import render_weights, weight_cells, weight_minutes

from locum.recipes import Study

STUDIES: dict[str, Study] = {
    "few-records": Study(
        "Ten, thirty and a hundred records per class",
        few_cells,
        render_few,
        few_minutes,
        sets=FEW_NEEDS,
        check=check_few,
    ),
    "min-distance": Study(
        "A smallest distance from records",
        distance_cells,
        render_distance,
        distance_minutes,
        sets=DISTANCE_NEEDS,
        check=check_distance,
    ),
    "corruptions": Study(
        "Corrupted images",
        corruption_cells,
        render_corruptions,
        corruption_minutes,
        sets="It corrupts gray images of 28 x 28 pixels before they are embedded, by amounts made for that size.",
    ),
    "generated-weights": Study(
        "Generated rows while a head trains: weight and variance",
        weight_cells,
        render_weights,
        weight_minutes,
        sets="It asks about rare classes, which it takes from CIFAR-10 LT; `rebalance-methods` takes other sets.",
    ),
}
