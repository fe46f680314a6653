"""Tables 4 to 8 of the thesis (DINOv2 embeddings, ratio 100, means of five heads on one CVAE), and where ours differ.

Accuracy in percent: overall, many, medium and, on CIFAR-100 LT, few. CIFAR-10 LT has no class of 20 records or fewer.
"""

from __future__ import annotations

Row = tuple[float, ...]
# By size and sampling variance: Table 4 (CIFAR-100 LT) and Table 5 (CIFAR-10 LT).
TABLE4: dict[str, dict[float, Row]] = {
    "small": {
        0.25: (83.64, 93.09, 85.02, 71.47),
        0.5: (83.91, 93.31, 84.85, 72.28),
        0.75: (84.42, 93.20, 85.22, 73.63),
        1.0: (84.22, 93.37, 85.12, 72.89),
        2.0: (84.02, 93.31, 84.74, 72.74),
        3.0: (84.19, 93.14, 84.42, 73.83),
    },
    "large": {
        0.25: (83.67, 93.17, 84.69, 71.83),
        0.5: (84.83, 92.87, 85.32, 75.21),
        0.75: (85.67, 92.37, 85.43, 78.37),
        1.0: (84.62, 91.95, 84.89, 76.03),
        2.0: (83.26, 92.19, 84.02, 72.33),
        3.0: (83.70, 92.74, 84.60, 72.50),
    },
}
TABLE5: dict[str, dict[float, Row]] = {
    "small": {
        0.25: (97.61, 98.37, 94.58),
        0.5: (97.72, 98.38, 95.05),
        0.75: (97.77, 98.46, 95.02),
        1.0: (97.72, 98.39, 95.05),
        2.0: (97.58, 98.32, 94.62),
        3.0: (97.68, 98.34, 95.01),
    },
    "large": {
        0.25: (97.64, 98.36, 94.75),
        0.5: (97.80, 98.37, 95.52),
        0.75: (98.05, 98.42, 96.60),
        1.0: (98.11, 98.35, 97.19),
        2.0: (97.81, 98.21, 96.18),
        3.0: (97.73, 98.25, 95.65),
    },
}
# Table 6 by the names of our rows: CIFAR-10 LT, then CIFAR-100 LT.
TABLE6: dict[str, tuple[Row, Row]] = {
    "none": ((96.88, 98.18, 91.67), (80.47, 93.80, 82.30, 63.40)),
    "class-balanced sampling": ((97.78, 98.43, 95.19), (83.74, 93.02, 85.18, 71.70)),
    "smote": ((97.69, 98.39, 94.87), (83.31, 93.42, 84.10, 71.04)),
    "adasyn": ((97.51, 98.35, 94.14), (82.87, 93.33, 83.78, 70.07)),
    "remix": ((98.08, 98.51, 96.35), (84.91, 92.65, 85.60, 75.42)),
    "thesis' large CVAE": ((98.02, 98.29, 96.93), (85.52, 91.61, 85.54, 78.62)),
    "thesis' large CVAE + remix": ((98.15, 98.10, 98.38), (85.84, 90.73, 85.61, 80.57)),
}
# Tables 8 (CIFAR-10 LT) and 7 (CIFAR-100 LT) by loss: alone, and with the large CVAE.
TABLE8: dict[str, tuple[Row, Row]] = {
    "cross_entropy": ((96.89, 98.19, 91.70), (98.11, 98.38, 97.00)),
    "balanced_softmax": ((98.26, 98.42, 97.63), (95.74, 94.80, 99.47)),
    "class_balanced": ((97.10, 98.14, 92.93), (98.13, 98.21, 97.78)),
    "focal": ((96.46, 97.89, 90.77), (97.72, 98.06, 96.34)),
    "equalization": ((96.90, 98.15, 91.92), (98.09, 98.34, 97.06)),
    "ldam": ((96.28, 97.52, 91.33), (97.19, 97.45, 96.14)),
}
TABLE7: dict[str, tuple[Row, Row]] = {
    "cross_entropy": ((80.59, 93.87, 82.30, 63.72), (85.40, 91.71, 85.68, 77.97)),
    "balanced_softmax": ((86.26, 92.26, 86.38, 79.35), (84.09, 82.83, 84.02, 85.58)),
    "class_balanced": ((83.17, 93.34, 83.78, 71.03), (85.97, 89.43, 84.94, 83.19)),
    "focal": ((78.86, 93.10, 81.26, 60.15), (84.12, 90.67, 84.11, 76.75)),
    "equalization": ((82.41, 93.83, 82.04, 69.92), (84.52, 88.76, 82.19, 82.30)),
    "ldam": ((77.14, 90.44, 79.54, 59.50), (80.65, 89.26, 80.66, 70.90)),
}
HEADER = ("thesis, CIFAR-10 LT (overall / many / medium)", "thesis, CIFAR-100 LT (... / few)")


def beside(*rows: Row | None) -> list[str]:
    """Figures of the thesis for one row of a table; a dash where it has none."""
    return ["-" if row is None else " / ".join(f"{value:.2f}" for value in row) for row in rows]


# Differences below this are within the scatter of the thesis' own tables: one setting has 98.11, 98.02 and 98.11.
LEAST = 0.1
# Why an order differs from the thesis', by row; what is not here is not explained.
# From trials on training folds (README), and seen on test records in the rows on longer vectors.
WHY = {
    "remix": "how far ten epochs carry a head: on vectors x 5 remix is above smote and adasyn, and ties with "
    "class-balanced sampling",
    "ldam": "likely the layer: with weights and inputs at length 1, as LDAM's authors have it, LDAM is last here too",
    "focal": "how far ten epochs carry a head: on vectors x 5 focal is below cross entropy",
}
