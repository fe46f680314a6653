"""Tables 4 to 8 of the thesis: every method on the test set, the thesis' CVAE and ours each under its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from imblearn.under_sampling import RandomUnderSampler
from reb_choice import CANDIDATES, OURS
from reb_cosine import thesis_head
from reb_published import HEADER, LEAST, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8, WHY, beside
from reb_sets import (
    HEAD_MINUTES,
    Array,
    by_group,
    cvae_minutes,
    groups_of,
    in_group,
    records,
    share,
)

from locum.generate import ClassGaussian, CVAEGenerator
from locum.heads import Remix
from locum.io import figure_file
from locum.metrics import bootstrap_interval, compare, mean_interval
from locum.rebalance import METHODS, BySampler
from locum.recipes import StudyResults, study_set
from locum.recipes.published import reversed_table
from locum.recipes.study import Cell, markdown_table
from locum.recipes.study_sets import set_key

# The sets of the thesis' tables: each row of Table 6 has both, Table 8 is the first's and Table 7 the second's.
PUBLISHED = ("CIFAR-10 LT", "CIFAR-100 LT")
LOSSES = ("cross_entropy", "balanced_softmax", "class_balanced", "focal", "equalization", "ldam")
# Those that are built from class counts.
COUNTING = ("balanced_softmax", "class_balanced", "equalization", "ldam")
RESAMPLED = {name: METHODS[name].resample for name in ("none", "random", "smote", "adasyn", "gaussian")}
# Every class cut to the size of the smallest.
RESAMPLED["under-sampling"] = BySampler(RandomUnderSampler())
BALANCED = {"sampler": "class_balanced"}
# Settings of the head by row; those with Remix and no generator are the controls of the CVAE with Remix.
HEADS: dict[str, dict[str, Any]] = {
    "class-balanced sampling": BALANCED,
    "square-root sampling": {"sampler": "square_root"},
    "progressively balanced sampling": {"sampler": "progressive"},
    "mixup": {"remix": Remix(tau=0.0)},
    "remix": {"remix": True},
    "class-balanced sampling + remix": {**BALANCED, "remix": True},
    "balanced softmax + remix": {"loss": "balanced_softmax", "remix": True},
    "ours + remix": {**CANDIDATES[OURS], "remix": True},
    "class weights": {"class_weight": "balanced"},
    "logit adjustment": {"prior": "uniform"},
    "algorithm 1 with a Gaussian": {**BALANCED, "augment": ClassGaussian()},
    "algorithm 1 with a Gaussian + remix": {**BALANCED, "augment": ClassGaussian(), "remix": True},
    "ours": CANDIDATES[OURS],
    # As LDAM's authors have it, and `ldam` has not: margins between angles.
    "ldam, normalized layer": {"loss": "ldam", "cosine": 1.0, "centered": False},
}
# Whether orders depend on how far ten epochs carry a head: the same rows on vectors five times as long.
LONGER, FACTOR = ", vectors x 5", 5.0
STRETCHED = (
    "none",
    "smote",
    "adasyn",
    "class-balanced sampling",
    "remix",
    "class-balanced sampling + remix",
    "class_balanced",
    "focal",
    "ldam",
)
# Whose CVAE: the name of its cells and of its setting of epochs.
CELLS = {"thesis": "thesis", "ours": "cvae"}
NAMES = {"thesis": "thesis' {} CVAE", "ours": "our {} CVAE"}


def fitted(name: str, whose: str, preset: str, epochs: int, seed: int) -> CVAEGenerator:
    """The thesis' CVAE (min-max scaling, beta 0.01, no decoder noise, faults F1 and F2), or ours of that size."""
    return fitted_once(name, set_key(name), whose, preset, epochs, seed)


@cache
def fitted_once(name: str, key: tuple[str, int], whose: str, preset: str, epochs: int, seed: int) -> CVAEGenerator:
    """The same, kept in memory."""
    model = CVAEGenerator(preset, authors_compat=whose == "thesis", max_epochs=epochs, random_state=seed)
    return model.fit(*records(name, "train"))


def methods(config: Mapping[str, Any]) -> dict[str, Cell]:
    """Each method on the test set; a CVAE is fitted once per cell, for all variances and losses."""

    def score(
        name: str, seed: int, X: Array, y: Array, factor: float = 1.0, **settings: Any
    ) -> dict[str, float | str]:
        test, truth = records(name, "test")
        guess = thesis_head(seed, settings).fit(factor * X, y).predict(factor * test)
        right = np.packbits(guess == truth).tobytes().hex()
        return {**by_group(records(name, "train")[1], truth, guess), "right": right}

    def simple(name: str, settings: Mapping[str, Any], seed: int) -> Mapping[str, float | str]:
        return score(name, seed, *records(name, "train"), **settings)

    def resampled(name: str, method: str, factor: float, seed: int) -> Mapping[str, float | str]:
        found = RESAMPLED[method](*records(name, "train"), np.random.default_rng(seed))
        return score(name, seed, found.X, found.y, factor)

    def cvae(name: str, whose: str, preset: str, seed: int) -> Mapping[str, float | str]:
        X, y = records(name, "train")
        # The thesis trains one CVAE of each size, and five heads on it.
        which = seed % config["thesis_fits"] if whose == "thesis" else seed
        model = fitted(name, whose, preset, config[f"{CELLS[whose]}_epochs"], which)
        online = {"sampler": "class_balanced", "augment": model}
        out: dict[str, float | str] = {}
        for variance in config["variances"]:
            found = score(name, seed, X, y, **online | {"augment": _With(model, variance)})
            out |= {f"variance {variance:g}/{group}": v for group, v in found.items()}
        if preset == "large":
            for loss in LOSSES:
                # As in the thesis: the loss gets the records' counts, though batches are balanced.
                ways = {loss: {"counts": "records"}, f"{loss}, counts as drawn": {"counts": "drawn"}}
                for kind, more in (ways if loss in COUNTING else {loss: {}}).items():
                    found = score(name, seed, X, y, **online, loss=loss, **more)
                    out |= {f"{kind}/{group}": v for group, v in found.items()}
            found = score(name, seed, X, y, **online, remix=True)
            out |= {f"remix/{group}": v for group, v in found.items()}
        return out

    out: dict[str, Cell] = {}
    for name in config["sets"]:
        heads = {loss: {"loss": loss} for loss in LOSSES[1:]} | HEADS
        for method in RESAMPLED:
            out[f"{name}/{method}"] = partial(resampled, name, method, 1.0)
        for method, settings in heads.items():
            out[f"{name}/{method}"] = partial(simple, name, settings)
        for method in STRETCHED:
            stretched = partial(resampled, name, method, FACTOR)
            if method in heads:
                stretched = partial(simple, name, {**heads[method], "factor": FACTOR})
            out[f"{name}/{method}{LONGER}"] = stretched
        for whose, preset in product(CELLS, ("small", "large")):
            out[f"{name}/{CELLS[whose]}-{preset}"] = partial(cvae, name, whose, preset)
    return out


def methods_minutes(config: Mapping[str, Any]) -> float:
    """About how many minutes of one core."""
    # Records made equal in number are four times as many.
    plain = len(LOSSES) + len(HEADS) + len(STRETCHED) + 4 * len(RESAMPLED)
    on_cvaes = len(CELLS) * (2 * len(config["variances"]) + len(LOSSES) + len(COUNTING) + 1)
    total = 0.0
    for name in config["sets"]:
        total += len(config["seeds"]) * HEAD_MINUTES * share(name) * (plain + on_cvaes)
        for size in ("small", "large"):
            total += len(config["seeds"]) * cvae_minutes(name, size, config["cvae_epochs"])
            total += config["thesis_fits"] * cvae_minutes(name, size, config["thesis_epochs"])
    return total


class _With:
    """A fitted generator that samples with another variance; a head takes whatever can `sample`."""

    def __init__(self, model: CVAEGenerator, variance: float) -> None:
        self.classes_, self._model, self._variance = model.classes_, model, variance

    def sample(self, **budget: Any) -> tuple[Array, Array]:
        """As the generator does."""
        return self._model.sample(**{**budget, "variance": self._variance})


def render_methods(results: StudyResults, out: Path) -> str:
    """Tables 4 to 8 of the thesis for each set, its figures beside ours, and paired differences."""
    text = []
    for name in results.config["sets"]:
        groups = groups_of(next(iter(results.raw[f"{name}/ours"].values())))
        text += [f"## {study_set(name).title}", *_tables(results, name, groups), *_pairs(results, name, groups)]
        text.append(_other_tests(results, name))
    draw_sizes(results.config["sets"], out / "rebalance-sizes.svg")
    text.insert(0, "![Training records per class, as in Figure 7](rebalance-sizes.svg)")
    config = results.config
    trained = f"Our CVAEs were trained {config['cvae_epochs']} epochs, one per seed"
    if "thesis_epochs" in config:
        trained += (
            f"; the thesis' {config['thesis_epochs']} (500 in the thesis), {config['thesis_fits']} of each size for "
            "all seeds (1 in the thesis): intervals of its rows are over heads"
        )
    text.append(
        f"Accuracy in percent on balanced test records, mean over classes; {len(config['seeds'])} seeds, "
        "95 % intervals. many: over 100 training records, medium: 21 to 100, few: 20 or fewer, tail: 100 or fewer. "
        f"{trained}. The thesis has 768 DINOv2 features and a few points of room above its baseline; here it is "
        "1280 features of EfficientNet-Lite 0: orders compare, figures do not."
    )
    return "\n\n".join(text)


def draw_sizes(names: Sequence[str], path: Path) -> None:
    """Figure 7 of the thesis: training records per class, the largest first, on a logarithmic scale."""
    with figure_file(path) as axes:
        for name in names:
            sizes = np.sort(np.bincount(records(name, "train")[1]))[::-1]
            axes.plot(range(1, len(sizes) + 1), sizes, marker="o", label=study_set(name).title)
        axes.set(yscale="log", xlabel="class, the largest first", ylabel="training records")


Place = tuple[str, str]


def _places(results: StudyResults, name: str) -> dict[str, Place]:
    """Rows by name, the best first: their cell, and what their metrics start with. Cells not run are left out."""
    found = {
        c.partition("/")[2]: (c, "")
        for c in results.raw
        if c.startswith(f"{name}/") and not c.endswith(("-small", "-large"))
    }
    for whose, size in product(CELLS, ("small", "large")):
        words = NAMES[whose].format(size)
        found[words] = (f"{name}/{CELLS[whose]}-{size}", "variance 1/")
        if size == "large":
            found[f"{words} + remix"] = (f"{name}/{CELLS[whose]}-{size}", "remix/")
    known = {words: place for words, place in found.items() if place[0] in results.raw}
    best = {words: -results.estimate(cell, f"{prefix}overall").value for words, (cell, prefix) in known.items()}
    return {words: known[words] for words in sorted(known, key=lambda words: best[words])}


def _tables(results: StudyResults, name: str, groups: list[str]) -> list[str]:
    places, whose = _places(results, name), [w for w in CELLS if f"{name}/{CELLS[w]}-large" in results.raw]
    published = study_set(name).published
    shown = published in PUBLISHED
    which = PUBLISHED.index(published) if shown else 0
    by_loss = (TABLE8, TABLE7)[which]
    header = [*groups, *(HEADER if shown else ())]

    def row(title: str, place: Place, *theirs: tuple[float, ...] | None) -> list[str]:
        figures = [f"{results.estimate(place[0], place[1] + g):.1f}" for g in groups]
        return [title, *figures, *(beside(*(theirs or (None, None))) if shown else ())]

    missing = "" if "thesis" in whose else "The thesis' CVAE has not been run for this page.\n\n"
    rows = [row(words, place, *TABLE6.get(words, ())) for words, place in places.items()]
    text = [f"### Methods (Table 6)\n\n{missing}{markdown_table(['method', *header], rows)}"]
    runs = {words: results.runs(place[0], f"{place[1]}overall") for words, place in places.items()}
    if shown:
        text.append(_told({words: pair[which][0] for words, pair in TABLE6.items()}, runs, WHY, published))
    rows, alone, joint = [], {}, {}
    for loss in LOSSES:
        cell = f"{name}/{'none' if loss == 'cross_entropy' else loss}"
        rows.append(row(loss, (cell, ""), TABLE8[loss][0], TABLE7[loss][0]))
        alone[loss] = results.runs(cell, "overall")
        for w in whose:
            large, words = f"{name}/{CELLS[w]}-large", f"{loss} + {NAMES[w].format('large')}"
            rows.append(row(words, (large, f"{loss}/"), *((TABLE8[loss][1], TABLE7[loss][1]) * (w == "thesis"))))
            if loss in COUNTING:
                rows.append(row(f"{words}, counts as drawn", (large, f"{loss}, counts as drawn/")))
            if w == whose[0]:
                joint[loss] = results.runs(large, f"{loss}/overall")
    text.append("### Losses, alone and with a large CVAE (Tables 7, 8)\n\n" + markdown_table(["loss", *header], rows))
    if shown:
        text.append(
            "#### Alone\n\n" + _told({loss: pair[0][0] for loss, pair in by_loss.items()}, alone, WHY, published)
        )
        text.append(
            f"#### With {NAMES[whose[0]].format('large')}\n\n"
            + _told({loss: pair[1][0] for loss, pair in by_loss.items()}, joint, {}, published)
        )
    rows = []
    sizes = [(w, size) for w in whose for size in ("small", "large") if f"{name}/{CELLS[w]}-{size}" in results.raw]
    for (w, size), v in product(sizes, results.config["variances"]):
        theirs = (TABLE5[size].get(v), TABLE4[size].get(v)) if w == "thesis" else ()
        rows.append(
            row(f"{NAMES[w].format(size)}, {v:g}", (f"{name}/{CELLS[w]}-{size}", f"variance {v:g}/"), *theirs)
        )
    text.append("### Size and variance (Tables 4, 5)\n\n" + markdown_table(["CVAE, variance", *header], rows))
    return text


def _told(published: Mapping[str, float], runs: Mapping[str, list[float]], why: Mapping[str, str], name: str) -> str:
    return reversed_table(published, runs, why, what=f"orders of the thesis (overall, {name})", least=LEAST)


def _pairs(results: StudyResults, name: str, groups: list[str]) -> list[str]:
    """What a generator adds to the same head without it, and ours minus each other method."""
    places = _places(results, name)
    adds = {
        f"{words}{more}": f"class-balanced sampling{more}"
        for words in [w for w in places if "remix" not in w and ("CVAE" in w or w == "algorithm 1 with a Gaussian")]
        for more in ("", " + remix")
    }
    gap = partial(_paired, results, name, groups=groups)
    rows = [[a, b, *gap(places[a], places[b])] for a, b in adds.items() if a in places and b in places]
    text = [
        "### What a generator adds: paired bootstrap over test records, means of the seeds\n\n"
        + markdown_table(["with it", "without", *groups], rows)
    ]
    others = {words: place for words, place in places.items() if words != "ours"}
    for w in [w for w in CELLS if f"{name}/{CELLS[w]}-large" in results.raw]:
        large = f"{name}/{CELLS[w]}-large"
        others |= {f"{loss} + {NAMES[w].format('large')}": (large, f"{loss}/") for loss in LOSSES[1:]}
    rows = [[words, *gap(places["ours"], place)] for words, place in others.items()]
    text.append(
        "### Ours minus each other: paired bootstrap over test records, means of the seeds\n\n"
        + markdown_table(["against", *groups], rows)
    )
    return text


def right_by_record(results: StudyResults, cell: str, prefix: str, n: int) -> Array:
    """Whether each of `n` test records was classified right: one row per seed."""
    runs = [np.frombuffer(bytes.fromhex(r), dtype=np.uint8) for r in results.texts(cell, f"{prefix}right")]
    return np.stack([np.unpackbits(r, count=n) for r in runs])


def other_shares(sizes: Array) -> dict[str, Array]:
    """Shares of classes in test sets: all alike, those of the training records, and the same the other way round."""
    order, turned = np.argsort(sizes), np.empty(len(sizes))
    turned[order] = np.sort(sizes)[::-1]
    found = {"balanced": np.ones(len(sizes)), "as the training records": sizes, "the other way round": turned}
    return {words: np.asarray(share / share.sum()) for words, share in found.items()}


def _other_tests(results: StudyResults, name: str) -> str:
    """The same guesses on test sets of other class distributions: means of class accuracies, weighted."""
    truth, sizes = records(name, "test")[1], np.bincount(records(name, "train")[1])
    tested = np.bincount(truth, minlength=len(sizes)) > 0
    shares, rows = other_shares(sizes[tested]), []
    for words, (cell, prefix) in _places(results, name).items():
        if words.endswith(LONGER):
            continue
        right = right_by_record(results, cell, prefix, len(truth))
        by_class = 100 * np.stack([right[:, truth == c].mean(axis=1) for c in np.flatnonzero(tested)], axis=1)
        rows.append([words, *(f"{mean_interval(by_class @ share):.1f}" for share in shares.values())])
    return (
        "### Test sets with other class distributions\n\n"
        "Accuracy if test records had these shares of classes, from the same guesses; no head was adapted.\n\n"
        + markdown_table(["method", *shares], rows)
    )


def _paired(results: StudyResults, name: str, a: Place, b: Place, *, groups: list[str]) -> list[str]:
    """The first minus the second on the same test records, with a word where 0 is within the interval."""
    truth, sizes = records(name, "test")[1], np.bincount(records(name, "train")[1])
    # So that the mean over records is the mean over classes; 1 where test classes are of one size.
    tested = np.bincount(truth, minlength=len(sizes))

    def right(cell: str, prefix: str) -> Array:
        return right_by_record(results, cell, prefix, len(truth)).mean(axis=0)

    gap = 100 * (right(*a) - right(*b))
    rng, told = np.random.default_rng(0), []
    for group in groups:
        mine = in_group(sizes, group)
        weight = tested[mine].mean() / np.maximum(tested, 1)
        found = bootstrap_interval((weight[truth] * gap)[mine[truth]], rng)
        told.append(f"{found:+.1f}" + (" (tie)" if compare(found) == "tie" else ""))
    return told
