"""Table 1 of the replica paper, what its text says of Figures 2 and 3, and why our orders differ.

AUC in percent at noise 0, 1, 2 and 3 on test vectors: DINOv2, heads that learn online from CVAEs, three seeds. The
points of Figure 2 are drawn, not printed: the text gives their order alone.
"""

from __future__ import annotations

NOISE = (0, 1, 2, 3)
Row = tuple[float, float, float, float]
TABLE1: dict[str, dict[str, Row]] = {
    "Skin Lesion": {
        "2-Same": (83.2, 78.9, 72.3, 67.2),
        "5-Same": (74.9, 71.7, 66.9, 63.1),
        "10-Same": (72.2, 69.8, 65.6, 62.2),
        "15-Same": (68.1, 66.5, 63.5, 60.7),
        "CVAE 0.5": (82.4, 80.5, 75.9, 71.4),
        "CVAE 1.0": (78.9, 75.4, 69.9, 65.4),
        "CVAE 1.5": (73.2, 69.1, 63.9, 60.3),
    },
    "BreastMNIST": {
        "2-Same": (86.6, 83.5, 77.2, 72.4),
        "5-Same": (85.0, 82.3, 76.6, 72.2),
        "10-Same": (80.5, 78.4, 72.8, 68.7),
        "15-Same": (79.0, 76.7, 71.8, 67.9),
        "CVAE 0.5": (82.9, 81.2, 77.7, 74.2),
        "CVAE 1.0": (82.6, 81.2, 77.8, 73.8),
        "CVAE 1.5": (83.5, 81.9, 76.9, 72.0),
    },
    "Axial Organ": {
        "2-Same": (98.8, 98.2, 96.0, 92.2),
        "5-Same": (97.6, 96.9, 94.8, 91.2),
        "10-Same": (96.5, 95.6, 93.3, 89.6),
        "15-Same": (95.6, 94.7, 92.1, 88.3),
        "CVAE 0.5": (98.2, 97.6, 95.3, 91.1),
        "CVAE 1.0": (98.5, 97.8, 95.2, 90.5),
        "CVAE 1.5": (98.6, 98.0, 95.3, 90.4),
    },
    "OCTDL": {
        "2-Same": (95.6, 92.3, 84.7, 77.9),
        "5-Same": (93.4, 90.0, 82.2, 75.4),
        "10-Same": (89.8, 87.8, 82.6, 76.8),
        "15-Same": (86.2, 84.5, 79.4, 74.5),
        "CVAE 0.5": (93.3, 91.2, 86.5, 81.1),
        "CVAE 1.0": (92.6, 90.2, 84.5, 78.4),
        "CVAE 1.5": (91.0, 88.2, 82.1, 75.7),
    },
}
FIGURE2 = (
    "the CVAE has a high distance D and a high AUC",
    "k-Same with k = 2 or 5 has a like AUC and a low D",
    "k-Same with k = 10 or 15 has a higher D and a lower AUC",
    "the CVAE has a larger maximum dispersion (the sum of all pairwise distances) than k-Same",
)
# Differences below this (in points of AUC) are within the scatter of three seeds on a few hundred records.
LEAST = 0.5
WHY: dict[str, str] = {}
