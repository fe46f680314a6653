"""Figures of the adjustable paper, from its text and from the points that its authors published with their code."""

from __future__ import annotations

from dataclasses import dataclass

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Published:
    """A curve of the paper's Figures 14 to 17: (attacker, receiver) at each strength, and its hull AUC in Table 3."""

    points: tuple[Pair, ...]
    table3: float | None = None


def _points(attacker: list[float], receiver: list[float]) -> tuple[Pair, ...]:
    return tuple(zip(attacker, receiver, strict=True))


# UCI Adult (Figure 17, Table 3). The corner that the authors add to every curve is what their networks find in
# unobfuscated rows.
ADULT_CORNER: Pair = (0.8512, 0.8572)
ADULT_NOISES = (1, 2, 3, 5, 7, 10)
ADULT: dict[str, Published] = {
    "proposed": Published(
        _points(
            [0.7559, 0.7309, 0.7176, 0.6971, 0.6909, 0.6828],
            [0.8255, 0.8324, 0.8183, 0.8189, 0.8065, 0.8116],
        ),
        0.4183,
    ),
    "AE-PUPET": Published(
        _points(
            [0.8437, 0.7952, 0.7611, 0.7145, 0.6937, 0.6867, 0.6837, 0.6819],
            [0.8475, 0.8459, 0.8434, 0.8343, 0.8298, 0.8270, 0.8259, 0.8207],
        ),
        0.4236,
    ),
    "UAE-PUPET": Published(
        _points(
            [0.8431, 0.7952, 0.7605, 0.7151, 0.6952, 0.6852, 0.6813],
            [0.8482, 0.8457, 0.8407, 0.8339, 0.8309, 0.8264, 0.8227],
        ),
        0.4234,
    ),
    "VAE-PUPET": Published(
        _points([0.7413, 0.6991, 0.6855, 0.6801], [0.7952, 0.7809, 0.7714, 0.7645]),
        0.3995,
    ),
    "beta-VAE-PUPET": Published(_points([0.7271, 0.6970, 0.6774], [0.7873, 0.7823, 0.7634]), 0.4001),
    "VFAE": Published(((0.802, 0.851),)),
    "LMIFR": Published(((0.728, 0.829),)),
    "emb-g-filter": Published(((0.717, 0.822),)),
}

# CelebA (Figures 5, 14 to 16, Table 3). CORNERS are the points that close the hulls: they were read from a figure of
# the Sanitizer paper, whose judges are larger networks. OWN is what the authors' own networks find.
CELEBA_OWN: dict[str, Pair] = {
    "CelebA-G-M": (0.9688, 0.9237),
    "CelebA-G-S": (0.9688, 0.9193),
    "CelebA-G-C": (0.9688, 0.8580),
}
CELEBA_CORNER: dict[str, Pair] = {
    "CelebA-G-M": (0.9892, 0.9505),
    "CelebA-G-S": (0.9879, 0.9495),
    "CelebA-G-C": (0.9942, 0.9473),
}
# Noise -> (weak attacker, strong attacker, receiver on original images), lambda -3000.
CELEBA: dict[str, dict[float, tuple[float, float, float]]] = {
    "CelebA-G-M": {
        5: (0.7781, 0.8493, 0.8160),
        10: (0.7324, 0.7915, 0.8211),
        15: (0.6739, 0.7438, 0.8183),
        20: (0.6450, 0.7167, 0.8152),
        30: (0.5888, 0.6690, 0.8192),
        60: (0.5339, 0.6245, 0.8097),
        200: (0.5068, 0.6145, 0.8107),
    },
    "CelebA-G-S": {
        0: (0.8440, 0.8942, 0.8572),
        5: (0.8040, 0.8559, 0.8673),
        10: (0.7308, 0.8073, 0.8778),
        15: (0.6699, 0.7640, 0.8780),
        20: (0.6183, 0.7330, 0.8675),
        25: (0.5904, 0.7095, 0.8600),
        30: (0.5704, 0.6813, 0.8522),
        35: (0.5396, 0.6671, 0.8573),
        40: (0.5344, 0.6550, 0.8625),
        60: (0.5066, 0.6324, 0.8566),
        80: (0.4888, 0.6215, 0.8436),
        120: (0.4683, 0.6158, 0.8383),
        200: (0.4679, 0.6138, 0.8454),
    },
    "CelebA-G-C": {
        5: (0.7963, 0.8677, 0.7994),
        10: (0.7358, 0.8114, 0.7889),
        20: (0.6290, 0.7380, 0.7368),
        30: (0.5786, 0.6838, 0.7306),
        60: (0.5241, 0.6306, 0.7632),
        200: (0.5016, 0.6134, 0.7568),
    },
}
# Without g, CelebA-G-S: noise -> (weak, strong, receiver).
CELEBA_NO_G: dict[float, tuple[float, float, float]] = {
    0: (0.8353, 0.8949, 0.8828),
    5: (0.7980, 0.8573, 0.8915),
    10: (0.7198, 0.8057, 0.8896),
    15: (0.6546, 0.7622, 0.8400),
    20: (0.6061, 0.7293, 0.8153),
    40: (0.5228, 0.6499, 0.7833),
    200: (0.4668, 0.6133, 0.7480),
}
# Other lambdas, CelebA-G-S (Figure 7): lambda -> noise -> (weak, receiver).
CELEBA_LAMBDAS: dict[int, dict[float, Pair]] = {
    -1000: {
        0: (0.8171, 0.8544),
        5: (0.7927, 0.8804),
        10: (0.7209, 0.8813),
        15: (0.6766, 0.8813),
        20: (0.6422, 0.8411),
    },
    -5000: {
        0: (0.8214, 0.8114),
        5: (0.7800, 0.8466),
        10: (0.7332, 0.8661),
        15: (0.6862, 0.8686),
        20: (0.6166, 0.8689),
    },
}
# Figure 12 (epoch 183, no noise): lambda -> accuracy of well-trained networks for (gender, smiling) on releases.
CELEBA_FIGURE_12: dict[int, Pair] = {
    -1: (0.8298, 0.8285),
    -500: (0.8314, 0.9025),
    -1000: (0.8338, 0.9477),
    -2000: (0.8345, 0.9808),
    -3000: (0.8316, 0.9920),
    -4000: (0.8265, 0.9974),
    -5000: (0.8214, 0.9991),
    -10000: (0.7835, 1.0000),
}
# Figure 9: epoch -> the same, without f and g.
CELEBA_FIGURE_9: dict[int, Pair] = {
    1: (0.6454, 0.7305),
    13: (0.7682, 0.8384),
    50: (0.8026, 0.8375),
    183: (0.8357, 0.8508),
}
# Table 3 for images, and the points of the other methods that the authors took from the Sanitizer paper's figures.
CELEBA_TABLE3: dict[str, dict[str, float]] = {
    "Sanitizer": {"CelebA-G-M": 0.5210, "CelebA-G-S": 0.5337, "CelebA-G-C": 0.5241},
    "TIPRDC": {"CelebA-G-M": 0.5121, "CelebA-G-S": 0.4690, "CelebA-G-C": 0.4736},
    "GAP": {"CelebA-G-M": 0.4701, "CelebA-G-S": 0.4690, "CelebA-G-C": 0.4715},
    "Gaussian noise": {"CelebA-G-M": 0.4701, "CelebA-G-S": 0.4690, "CelebA-G-C": 0.4709},
    "learned noise": {"CelebA-G-M": 0.4701, "CelebA-G-S": 0.4693, "CelebA-G-C": 0.4709},
    "proposed": {"CelebA-G-M": 0.5790, "CelebA-G-S": 0.5963, "CelebA-G-C": 0.5566},
}
