"""What else the adjustable paper says or shows, asked on UCI Adult: one cell per question."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from adj_linkage import linked
from adj_published import CELEBA, CELEBA_FIGURE_12
from adj_rows import FIGURES, LAMBDA, SHOWN, TEST, fitted, judged, originals, prefixed, rows_of
from adj_table3 import optimized
from torch import Tensor
from torch.nn import functional

from locum.nets import Obfuscator, table_obfuscator
from locum.obfuscate import Labeled, Masking, TableObfuscator
from locum.obfuscate.baselines import BASELINES
from locum.obfuscate.evaluation import mean_release
from locum.obfuscate.judges import TreesJudge, label_only
from locum.obfuscate.noise import PaperNoise
from locum.recipes import StudyResults
from locum.recipes.study import SPREAD, Cell, markdown_table
from locum.types import Estimate

Array = npt.NDArray[Any]
Config = Mapping[str, Any]
PRESETS = {"ours": "calibrated", "paper": "paper"}
NAMES = {"ours": "ours, calibrated", "paper": "the paper's preset"}


def model_of(config: Config, name: str, seed: int) -> TableObfuscator:
    """Ours or the paper's."""
    return fitted(seed, config["rows"], PRESETS[name], config[f"{name}_epochs"])


def release(masking: Masking, rows: Labeled, *stream: int) -> Array:
    """One release of each row, with its own random stream."""
    return mean_release(masking, rows, np.random.default_rng(stream))


def share(predict: Callable[[Array], Array], X: Array, wanted: Array) -> float:
    """Accuracy."""
    return float((predict(X) == wanted).mean())


# One function a question.


def lambdas(config: Config, seed: int) -> Mapping[str, float]:
    """The whole grid without noise, by judges who learned on originals; three lambdas at several noises."""
    found, rows = originals(seed, config["rows"], config["judge_rows"]), rows_of(seed, config["rows"])
    few = rows.few(config["judge_rows"])
    income, out = TreesJudge().fit(few.X, few.utility, seed), {"label only": label_only(few, rows.test).value}
    for name in PRESETS:
        model = model_of(config, name, seed)
        for value in (*config["lambdas"], None):
            shown = release(model.masking(noise=0.0, lambda_=value), rows.test, seed, 1)
            key = "C" if value is None else f"{value:g}"
            out |= {
                f"{name}/{key}/sex": share(found.attackers["trees"], shown, rows.test.private),
                f"{name}/{key}/income": share(income, shown, rows.test.utility),
            }
        for value in config["curve_lambdas"]:
            for noise in config["curve_noises"][name]:
                mask = model.masking(noise=noise, lambda_=value)
                out |= prefixed(f"{name}/{value:g}/{noise:g}", judged(found, mask))
    return out


@cache
def plain(seed: int, most: int, epochs: int, softmax: bool) -> tuple[Obfuscator, tuple[tuple[float, float], ...]]:
    """The paper's network with C's probabilities or their logarithms, and (squared error, C's accuracy) by epoch.

    Columns lie between 0 and 1, and nothing is held out: both are measured on test rows, and nothing is chosen by it.
    """
    rows = rows_of(seed, most)
    x, y = torch.from_numpy(rows.train.X), torch.from_numpy(rows.train.utility)
    tried, wanted = torch.from_numpy(rows.test.X), torch.from_numpy(rows.test.utility)
    trace: list[tuple[float, float]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = table_obfuscator(x.shape[1], [2])

        def rebuilt(some: Tensor) -> tuple[Tensor, Tensor]:
            needed, rest = net.split(some)
            return net.join(needed.exp() if softmax else needed, rest), needed

        def loss(batch: Tensor) -> Tensor:
            out, needed = rebuilt(x[batch])
            return functional.mse_loss(out, x[batch]) + functional.nll_loss(needed, y[batch])

        def each() -> None:
            with torch.no_grad():
                out, needed = rebuilt(tried)
                right = (needed.argmax(dim=1) == wanted).double().mean()
                trace.append((float(functional.mse_loss(out, tried)), float(right)))

        optimized(net, len(x), epochs, loss, torch.Generator().manual_seed(seed), each)
    return net, tuple(trace)


def softmax(config: Config, seed: int) -> Mapping[str, float]:
    """SoftMax against LogSoftMax at the end of C: does training converge, and what do releases give?"""
    rows, found = rows_of(seed, config["rows"]), originals(seed, config["rows"], config["judge_rows"])
    out: dict[str, float] = {}
    for name, is_soft in (("LogSoftMax", False), ("SoftMax", True)):
        net, trace = plain(seed, config["rows"], config["paper_epochs"], is_soft)
        for epoch in config["trace_epochs"]:
            error, right = trace[min(epoch, len(trace)) - 1]
            out |= {f"{name}/{epoch}/error": error, f"{name}/{epoch}/C": right}
        with torch.no_grad():
            rest = net.split(torch.from_numpy(rows.train.X))[1].numpy()
        noise = PaperNoise.fit(rest, authors_compat=False, per_batch=False)
        for strength in config["softmax_noises"]:
            masking = partial(_masked, net, noise, strength, rows.codec.snap, is_soft)
            out |= prefixed(f"{name}/{strength:g}", judged(found, masking))
    return out


def _masked(
    net: Obfuscator, noise: PaperNoise, strength: float, snap: Callable[[Array], Array], is_soft: bool,
    X: Array, codes: Array, rng: np.random.Generator,
) -> Array:  # fmt: skip
    """A release with the label written as probabilities 1 and 0, or as 0 and lambda."""
    one_hot = np.eye(2, dtype=np.float32)[codes]
    labels = one_hot if is_soft else np.float32(LAMBDA) * (1 - one_hot)
    with torch.no_grad():
        rest = net.split(torch.from_numpy(np.ascontiguousarray(X)))[1].numpy()
        noisy = noise.apply(rest, codes[:, None], strength, rng).astype(np.float32)
        out: Array = net.join(torch.from_numpy(labels), torch.from_numpy(noisy)).numpy()
    return snap(out)


def little(config: Config, seed: int) -> Mapping[str, float]:
    """Does a little noise help receivers? Several releases at each noise, so that a difference has an interval."""
    rows, out = rows_of(seed, config["rows"]), {}
    few = rows.few(config["judge_rows"])
    for name in PRESETS:
        model = model_of(config, name, seed)
        for noise in config["little_noises"]:
            masking = model.masking(noise=noise, lambda_=LAMBDA)
            for i in range(config["little_releases"]):
                shown = release(masking, few, seed, 2, i)
                user = TreesJudge().fit(shown, few.utility, seed + i)
                out[f"{name}/{noise:g}/{i}"] = share(user, rows.test.X, rows.test.utility)
    return out


def providers(config: Config, seed: int) -> Mapping[str, float]:
    """Providers who choose different noises, in one pool: what the receiver gets, what each provider gives away."""
    rows, out = rows_of(seed, config["rows"]), {}
    few, noises = rows.few(config["judge_rows"]), config["provider_noises"]
    groups = [np.arange(i, len(few), len(noises)) for i in range(len(noises))]
    model = model_of(config, "ours", seed)
    masks = [model.masking(noise=noise, lambda_=LAMBDA) for noise in noises]
    tested = [release(mask, rows.test, seed, 3, i) for i, mask in enumerate(masks)]

    def pooled(stream: int) -> Array:
        pool = np.empty_like(few.X)
        for i, (mask, group) in enumerate(zip(masks, groups, strict=True)):
            pool[group] = release(mask, few.take(group), seed, stream, i)
        return pool

    user = TreesJudge().fit(pooled(4), few.utility, seed)
    attacker = TreesJudge().fit(pooled(5), few.private, seed)
    out["pool/utility"] = share(user, rows.test.X, rows.test.utility)
    for i, (noise, mask) in enumerate(zip(noises, masks, strict=True)):
        own = TreesJudge().fit(release(mask, few, seed, 6, i), few.private, seed)
        alone = TreesJudge().fit(release(mask, few, seed, 7, i), few.utility, seed)
        part = few.take(groups[i])
        only = TreesJudge().fit(release(mask, part, seed, 8, i), part.utility, seed)
        out |= {
            f"{noise:g}/attacker of the pool": share(attacker, tested[i], rows.test.private),
            f"{noise:g}/attacker of this noise": share(own, tested[i], rows.test.private),
            f"{noise:g}/all at this noise": share(alone, rows.test.X, rows.test.utility),
            f"{noise:g}/this provider alone": share(only, rows.test.X, rows.test.utility),
        }
    return out


class TypeIgnorant(TableObfuscator):
    """Releases what the decoder puts out: shares in place of categories, and numbers that are not whole."""

    def _outputs(self, out: Array, rng: np.random.Generator) -> Array:
        if self.preset == "paper":
            return out
        odds = np.empty_like(out)
        for block in self._blocks:
            powers = np.exp(out[:, block] - out[:, block].max(axis=1, keepdims=True))
            odds[:, block] = powers / powers.sum(axis=1, keepdims=True)
        return self._expected(odds)

    def _expected(self, odds: Array) -> Array:
        """Shares of the categories, and the expected value of each number."""
        bins = self.bins_
        made = np.empty((len(odds), bins.width), dtype=np.float32)
        others = [j for j in range(bins.width) if j not in set(bins.columns)]
        made[:, others] = odds[:, : len(others)]
        for j, block, low, high in zip(bins.columns, bins.blocks, bins.low, bins.high, strict=True):
            made[:, j] = odds[:, block] @ ((low + high) / 2)
        return made


def types(config: Config, seed: int) -> Mapping[str, float]:
    """Valid records against what the decoder puts out."""
    found, out = originals(seed, config["rows"], config["judge_rows"]), {}
    for name in PRESETS:
        valid = model_of(config, name, seed)
        raw = copy(valid)
        raw.__class__ = TypeIgnorant
        for noise in config["types_noises"][name]:
            for kind, model in (("valid", valid), ("raw", raw)):
                mask = model.masking(noise=noise, lambda_=LAMBDA)
                out |= prefixed(f"{name}/{noise:g}/{kind}", judged(found, mask))
    return out


def linkage(config: Config, seed: int) -> Mapping[str, float]:
    """Which original is a release of? Among those with its label, by distance in records and in R's output."""
    rows = rows_of(seed, config["rows"])
    some = rows.test.take(np.arange(min(config["linkage_rows"], len(rows.test))))
    out: dict[str, float] = {}

    def tried(name: str, masking: Masking, model: TableObfuscator | None) -> None:
        shown = release(masking, some, seed, 9)
        found = {"records": linked(some.X, shown, some.utility, seed)}
        if model is not None:
            own, theirs = (model._split(model._inputs(X))[1] for X in (some.X, shown))
            spread = own.std(axis=0) + 1e-6
            found["code"] = linked(own / spread, theirs / spread, some.utility, seed)
        for space, figures in found.items():
            out.update({f"{name}/{space} {figure}": value for figure, value in figures.items()})

    for name in PRESETS:
        model = model_of(config, name, seed)
        for noise in config["linkage_noises"][name]:
            tried(f"{name}/{noise:g}", model.masking(noise=noise, lambda_=LAMBDA), model)
    for strength in config["linkage_gaussian"]:
        baseline = BASELINES["gaussian"](strength)
        baseline.fit(rows.train.X, rows.train.utility, None, blocks=rows.codec.blocks, seed=seed)
        tried(f"gaussian/{strength:g}", baseline.masking(), None)
    return out


def cells(config: Config) -> dict[str, Cell]:
    """One cell per question."""
    return {name: partial(QUESTIONS[name][0], config) for name in config["questions"]}


# What is written about them.


def accuracies(results: StudyResults, cell: str, prefix: str) -> list[str]:
    """The accuracies of a release."""
    return [results.told(cell, f"{prefix}/{figure}") for figure in FIGURES]


def render(results: StudyResults, out: Path) -> str:
    """One section a question."""
    c = results.config
    text = [
        f"{len(c['seeds'])} seed(s). Obfuscators learn from {c['rows']:,} rows (ours {c['ours_epochs']} epochs, the "
        f"paper's preset {c['paper_epochs']}), boosted trees from {c['judge_rows']:,}; tried on {TEST:,}: by the "
        f"choice of test rows alone an accuracy is good to 0.01. Lambda is {LAMBDA:g} where nothing else is said. "
        f"Means over seeds; where these differ by more than {SPREAD:g}, the lowest and the highest follow.",
    ]
    for name in c["questions"]:
        text += QUESTIONS[name][1](results)
    return "\n\n".join(text)


def _lambdas(results: StudyResults) -> list[str]:
    c = results.config
    keys = [*(f"{v:g}" for v in c["lambdas"]), "C"]
    rows = [
        ["C's own scores" if key == "C" else key]
        + [results.told("lambda", f"{name}/{key}/{side}") for name in PRESETS for side in ("sex", "income")]
        for key in keys
    ]
    paper = [[v, f"{sex:.3f}", f"{smile:.3f}"] for v, (sex, smile) in CELEBA_FIGURE_12.items()]
    curves = [
        [NAMES[name], f"{v:g}", f"{n:g}", *accuracies(results, "lambda", f"{name}/{v:g}/{n:g}")]
        for name in PRESETS
        for v in c["curve_lambdas"]
        for n in c["curve_noises"][name]
    ]
    header = ["lambda", *(f"{NAMES[name]}: {side}" for name in PRESETS for side in ("sex", "income"))]
    return [
        "## The lambda grid (Figures 7, 11, 12)",
        "Without noise: what judges who learned on originals find in releases. Sex by the label alone: "
        f"{results.told('lambda', 'label only')}.",
        markdown_table(header, rows),
        "The paper's Figure 12 (CelebA-G-S, epoch 183):",
        markdown_table(["lambda", "gender", "smiling"], paper),
        "With noise (Figure 7):",
        markdown_table(["preset", "lambda", "noise", *SHOWN], curves),
    ]


def _softmax(results: StudyResults) -> list[str]:
    c = results.config
    ends = ("LogSoftMax", "SoftMax")
    traces = [
        [epoch, *(results.told("softmax", f"{e}/{epoch}/{m}", ".4f") for e in ends for m in ("error", "C"))]
        for epoch in c["trace_epochs"]
    ]
    rows = [[e, f"{n:g}", *accuracies(results, "softmax", f"{e}/{n:g}")] for e in ends for n in c["softmax_noises"]]
    return [
        "## SoftMax against LogSoftMax",
        "The paper: with SoftMax training does not converge, or late. Squared error and C's accuracy on test rows:",
        markdown_table(["epoch", *(f"{e}: {m}" for e in ends for m in ("squared error", "C"))], traces),
        markdown_table(["C ends in", "noise", *SHOWN], rows),
    ]


def _little(results: StudyResults) -> list[str]:
    c, rows = results.config, []

    def runs(name: str, noise: float) -> list[float]:
        """The mean of a seed's releases, by seed; of a single seed the releases."""
        found = [results.runs("little", f"{name}/{noise:g}/{i}") for i in range(c["little_releases"])]
        return [float(np.mean(one)) for one in (zip(*found, strict=True) if len(c["seeds"]) > 1 else found)]

    for name in PRESETS:
        base = runs(name, c["little_noises"][0])
        for noise in c["little_noises"]:
            own = runs(name, noise)
            more = Estimate.from_runs([a - b for a, b in zip(own, base, strict=True)])
            rows.append([NAMES[name], f"{noise:g}", f"{np.mean(own):.4f}", f"{more:+.4f}" if noise else ""])
    gain = CELEBA["CelebA-G-S"][15][2] - CELEBA["CelebA-G-S"][0][2]
    return [
        "## A little noise (Figure 5)",
        f"The paper: a little noise helps receivers, as it makes the data more diverse ({gain:+.4f} at noise 15 on "
        f"CelebA-G-S, one run). Receivers on original rows, {c['little_releases']} releases at each noise; intervals "
        f"are over {'seeds' if len(c['seeds']) > 1 else 'releases'}:",
        markdown_table(["preset", "noise", "receiver", "more than without noise"], rows),
    ]


def _providers(results: StudyResults) -> list[str]:
    names = ("attacker of the pool", "attacker of this noise", "this provider alone", "all at this noise")
    rows = [
        [f"{n:g}", *(results.told("providers", f"{n:g}/{name}") for name in names)]
        for n in results.config["provider_noises"]
    ]
    header = [
        "provider's noise", "attacker who learned on a pool", "attacker who learned at this noise",
        "receiver of this provider alone", "receiver if all chose this noise",
    ]  # fmt: skip
    return [
        "## Providers who choose different noises",
        "Ours; the providers hold equally many rows. The receiver of their pool finds income in original rows with "
        f"{results.told('providers', 'pool/utility')}.",
        markdown_table(header, rows),
    ]


def _types(results: StudyResults) -> list[str]:
    rows = [
        [NAMES[name], f"{n:g}", kind, *accuracies(results, "types", f"{name}/{n:g}/{kind}")]
        for name in PRESETS
        for n in results.config["types_noises"][name]
        for kind in ("valid", "raw")
    ]
    said = (
        "Valid: records with the columns' own types. Raw: what the decoder puts out, shares and numbers that no "
        "record has, as the authors release them."
    )
    return ["## Outputs that ignore types", said, markdown_table(["preset", "noise", "released", *SHOWN], rows)]


def _linkage(results: StudyResults) -> list[str]:
    some = results.raw["linkage"][str(results.config["seeds"][0])]
    knobs = list(dict.fromkeys(m.rpartition("/")[0] for m in some))
    rows = []
    for knob in sorted(knobs, key=lambda k: (k.split("/")[0], float(k.split("/")[1]))):
        method, _, strength = knob.partition("/")
        row: list[object] = [NAMES.get(method, "Gaussian noise"), strength]
        for space in ("records", "code"):
            for figure, digits in (("rank-1", ".4f"), ("AUC", ".3f")):
                metric = f"{knob}/{space} {figure}"
                row.append(results.told("linkage", metric, digits) if metric in some else "")
        rows.append(row)
    chance = results.told("linkage", f"{knobs[0]}/records chance", ".4f")
    header = ["method", "strength", "rank-1, records", "AUC, records", "rank-1, R's output", "AUC, R's output"]
    return [
        "## Re-identification: which original is a release of?",
        f"The attacker has {results.config['linkage_rows']:,} originals with their labels and one release of each, "
        "and takes the nearest original with the release's label. Rank-1: how often that is right (equally near ones "
        f"share the guess); chance {chance}. AUC: whether the distance tells a release's own original from another "
        "one with the same label; chance 0.5. By distances between records, and between R's outputs, which who "
        "has the obfuscator can compute.",
        markdown_table(header, rows),
    ]


Asks = Callable[[Config, int], Mapping[str, float]]
Writes = Callable[[StudyResults], list[str]]
QUESTIONS: dict[str, tuple[Asks, Writes]] = {
    "lambda": (lambdas, _lambdas),
    "softmax": (softmax, _softmax),
    "little": (little, _little),
    "providers": (providers, _providers),
    "types": (types, _types),
    "linkage": (linkage, _linkage),
}
