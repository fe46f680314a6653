"""Generated rows while a head trains: their weight in the loss, how they vary, and how many there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.model_selection import StratifiedKFold
from torch.nn.functional import cross_entropy

from locum.data import read_embeddings
from locum.generate import ClassGaussian
from locum.heads import augment_probability
from locum.recipes import StudyResults
from locum.recipes.study import Cell, data_folder, markdown_table
from locum.release import Release

Array = npt.NDArray[Any]
TITLES = {"lt100": "CIFAR-10 LT, ratio 100", "lt1000": "CIFAR-10 LT, ratio 1000"}
# The same thinning as in the studies of rare classes.
THINNED = (5000, 2320, 1077, 500, 232, 107, 50, 23, 10, 5)
# The thesis' head, on raw embeddings.
EPOCHS, BATCH, RATE = 10, 256, 1e-3
HEADS = {"balanced": "class-balanced draws, cross entropy", "softmax": "records as they come, balanced softmax"}


@dataclass(frozen=True)
class Rule:
    """How generated rows take part in training.

    `weight` is theirs in the loss, beside 1 for a record. The variance goes from `start` to `end` over the epochs,
    times the loss of the class on its records over the mean of all classes, to the power `follow`; the probability
    that a record is replaced follows the same ratio to the power `chance`. With `counted`, class sizes are not known
    but counted in the mini-batches seen so far.
    """

    weight: float = 1.0
    start: float = 1.0
    end: float = 1.0
    follow: float = 0.0
    most: float = 0.7
    chance: float = 0.0
    counted: bool = False


RULES = {
    "as it is": Rule(),
    "no generated rows": Rule(most=0.0),
    "weight 0.25": Rule(weight=0.25),
    "weight 0.5": Rule(weight=0.5),
    "weight 2": Rule(weight=2.0),
    "weight 4": Rule(weight=4.0),
    "variance 0.5": Rule(start=0.5, end=0.5),
    "variance 2": Rule(start=2.0, end=2.0),
    "variance from 2 to 0.5": Rule(start=2.0, end=0.5),
    "variance from 0.5 to 2": Rule(start=0.5, end=2.0),
    "variance grows with the loss of a class": Rule(follow=1.0),
    "variance falls with the loss of a class": Rule(follow=-1.0),
    "probability grows with the loss of a class": Rule(chance=1.0),
    "probability falls with the loss of a class": Rule(chance=-1.0),
    "class sizes counted on the way": Rule(counted=True),
}


@cache
def records(name: str) -> tuple[Array, Array]:
    """Training records, thinned by a fixed seed for ratio 1000. No test record is read."""
    found = read_embeddings(data_folder() / "cifar10lt_efflite0.npz", "train")
    if name == "lt100":
        return found.X, found.y
    rng = np.random.default_rng(0)
    keep = [rng.permutation(np.flatnonzero(found.y == c))[:n] for c, n in enumerate(THINNED)]
    rows = np.sort(np.concatenate(keep))
    return found.X[rows], found.y[rows]


@cache
def folds(name: str, count: int, seed: int) -> list[tuple[Array, Array]]:
    X, y = records(name)
    return list(StratifiedKFold(count, shuffle=True, random_state=seed).split(X, y))


@lru_cache(maxsize=16)
def generator(name: str, count: int, seed: int, fold: int) -> Release:
    """The Gaussian of a fold's training records, which all rules share."""
    X, y = records(name)
    kept = folds(name, count, seed)[fold][0]
    return ClassGaussian(random_state=seed).fit(X[kept], y[kept]).release(no_dp=True)


def variances(rule: Rule, epoch: int, losses: Array | None) -> Array:
    """The variance of each class in an epoch; `losses` are those of the last epoch, by class, None in the first."""
    level = rule.start + (rule.end - rule.start) * epoch / (EPOCHS - 1)
    if losses is None or not rule.follow:
        return np.full(1 if losses is None else len(losses), level)
    return np.asarray(level * relative(losses) ** rule.follow)


def relative(losses: Array) -> Array:
    """Each class's loss over the mean; one that is already learned must not get a factor of 0 or without bound."""
    return np.clip(losses / losses.mean(), 0.25, 4.0)


def sizes_by_batch(codes: Array, before: Array) -> Array:
    """What was counted before each mini-batch of `codes`, and after the last."""
    each = [np.bincount(codes[i : i + BATCH], minlength=len(before)) for i in range(0, len(codes), BATCH)]
    return before + np.concatenate([np.zeros((1, len(before))), np.cumsum(each, axis=0)])


def chances(rule: Rule, sizes: Array, losses: Array | None) -> Array:
    """How probable it is that a record of each class is replaced."""
    if not rule.most:
        return np.zeros(len(sizes))
    usual = augment_probability(sizes, 0.01, rule.most)
    return usual if losses is None or not rule.chance else np.minimum(usual * relative(losses) ** rule.chance, 1.0)


def train(X: Array, y: Array, release: Release, rule: Rule, kind: str, seed: int) -> torch.nn.Linear:
    """A linear head on records, some of which are replaced by generated rows, fresh in each epoch."""
    rng, counts = np.random.default_rng(seed), np.bincount(y)
    torch.manual_seed(seed)
    head = torch.nn.Linear(X.shape[1], len(counts))
    steps = torch.optim.Adam(head.parameters(), lr=RATE)
    # One record of each class to begin with, where nothing is known.
    sizes = np.ones((1, len(counts)))
    means, losses = release.tensors["means"].astype(np.float32), None
    share = 1 / counts[y] / len(counts) if kind == "balanced" else None
    for epoch in range(EPOCHS):
        order = rng.choice(len(X), len(X), p=share) if share is not None else rng.permutation(len(X))
        rows, codes = X[order], y[order]
        # Which of the known sizes hold for a draw.
        at = np.arange(len(order)) // BATCH if rule.counted else np.zeros(len(order), dtype=int)
        sizes = sizes_by_batch(codes, sizes[-1]) if rule.counted else counts[None]
        made = rng.random(len(order)) < np.stack([chances(rule, known, losses) for known in sizes])[at, codes]
        prior = torch.from_numpy(np.log(sizes / sizes.sum(axis=1, keepdims=True)) * (kind == "softmax")).float()
        if made.any():
            spread = np.broadcast_to(variances(rule, epoch, losses), len(counts))
            wanted = {c: int(n) for c, n in enumerate(np.bincount(codes[made], minlength=len(counts))) if n}
            drawn, labels = release.sample(per_class=wanted, random_state=int(rng.integers(2**31)))
            # A Gaussian with another variance is the same draw, nearer to its mean or farther from it.
            drawn = means[labels] + np.sqrt(spread[labels])[:, None].astype(np.float32) * (drawn - means[labels])
            place = np.flatnonzero(made)
            rows[place[np.argsort(codes[place], kind="stable")]] = drawn[np.argsort(labels, kind="stable")]
        weight = torch.from_numpy(np.where(made, rule.weight, 1.0)).float()
        x, target = torch.from_numpy(rows), torch.from_numpy(codes)
        total, seen = np.zeros(len(counts)), np.zeros(len(counts))
        for i in torch.arange(len(x)).split(BATCH):
            found = cross_entropy(head(x[i]) + prior[at[i[0]]], target[i], reduction="none")
            steps.zero_grad()
            ((found * weight[i]).sum() / weight[i].sum()).backward()
            steps.step()
            real = ~made[i.numpy()]
            np.add.at(total, codes[i.numpy()][real], found.detach().numpy()[real])
            np.add.at(seen, codes[i.numpy()][real], 1)
        # A class whose rows were all replaced counts as the mean of the others.
        known = total / np.maximum(seen, 1)
        losses = np.maximum(np.where(seen > 0, known, known[seen > 0].mean()), 1e-6)
    return head


def by_group(y: Array, guess: Array) -> dict[str, float]:
    """Mean of class accuracies in percent: all classes, those with more than 100 records, and the others."""
    sizes = np.bincount(y)
    right = np.array([(guess[y == c] == c).mean() for c in range(len(sizes))]) * 100
    groups = {"overall": sizes > 0, "many": sizes > 100, "tail": sizes <= 100}
    return {name: float(right[mine].mean()) for name, mine in groups.items() if mine.any()}


def ruled(config: Mapping[str, Any], name: str, kind: str, words: str, seed: int) -> Mapping[str, float]:
    """One rule by cross-validation on training records alone."""
    X, y = records(name)
    guess = np.empty_like(y)
    for fold, (a, b) in enumerate(folds(name, config["folds"], seed)):
        release = generator(name, config["folds"], seed, fold)
        head = train(X[a], y[a], release, RULES[words], kind, seed)
        with torch.no_grad():
            guess[b] = head(torch.from_numpy(X[b])).argmax(dim=1).numpy()
    return by_group(y, guess)


def weight_cells(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each rule with each head."""
    return {
        f"{name}/{kind}/{words}": partial(ruled, config, name, kind, words)
        for name in config["sets"]
        for kind in config["heads"]
        for words in rules_for(kind)
    }


def rules_for(kind: str) -> list[str]:
    """Class-balanced draws need the sizes before they can draw."""
    return [words for words, rule in RULES.items() if kind == "softmax" or not rule.counted]


def render_weights(results: StudyResults, out: Path) -> str:
    """One table for each set and head, with differences from the rule in use."""
    config, text = results.config, []
    for name in config["sets"]:
        for kind in config["heads"]:
            rows = []
            for words in rules_for(kind):
                cell, base = f"{name}/{kind}/{words}", f"{name}/{kind}/as it is"
                shown = [f"{results.estimate(cell, group).value:.1f}" for group in ("overall", "many", "tail")]
                gaps = [
                    "-" if cell == base else f"{results.difference(cell, base, g):+.1f}" for g in ("overall", "tail")
                ]
                rows.append([words, *shown, *gaps])
            text.append(f"## {TITLES[name]}: {HEADS[kind]}")
            text.append(markdown_table(["rule", "overall", "many", "tail", "difference", "difference, tail"], rows))
    text.append(
        f"Accuracy in percent by {config['folds']}-fold cross-validation on training records, mean over classes, "
        f"{len(config['seeds'])} ways to make folds; differences paired by them, with 95 % intervals. No test record "
        "was read. A class Gaussian replaces up to 70 % of the draws of a class, fresh in each of ten epochs."
    )
    return "\n\n".join(text)


def weight_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    return 0.08 * config["folds"] * len(config["seeds"]) * len(config["sets"]) * len(config["heads"]) * len(RULES)
