"""The verbs on releases. Each reads its options, calls its recipe and shows what came back."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from understudy.cli import output
from understudy.cli.embed import embed

if TYPE_CHECKING:
    from understudy.recipes.evaluate import Evaluation
    from understudy.recipes.fit import FitSummary
    from understudy.types import DP

__all__ = ["register"]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite what is there.")]
DATA_HELP = "Vectors (.npz, .parquet, .safetensors, .csv) or images (see `embed`); DATA#train picks a split."
BACKBONE_HELP = "For images: where the release's model is, if it is one of your own (onnx:FILE or hf:FOLDER)."


class GeneratorName(StrEnum):
    """Generators by the name that people type."""

    gaussian = "gaussian"
    cvae = "cvae"
    ksame = "ksame"


class UnitName(StrEnum):
    """Whose presence differential privacy hides."""

    record = "record"
    subject = "subject"


class HeadName(StrEnum):
    """Classifiers that can be put on samples."""

    linear = "linear"
    mlp = "mlp"


def fit(
    data: Annotated[str, typer.Argument(metavar="DATA", help=DATA_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="RELEASE", help="Folder to write.")],
    generator: Annotated[
        GeneratorName, typer.Option(help="What to fit; docs/explain/defaults.md says why.")
    ] = GeneratorName.gaussian,
    preset: Annotated[str | None, typer.Option(help="CVAE: replica, small, large or federated.")] = None,
    decoder_noise: Annotated[str | None, typer.Option(help="CVAE: none, diagonal or low-rank.")] = None,
    epochs: Annotated[int | None, typer.Option(help="CVAE: at most so many epochs.")] = None,
    condition_on: Annotated[str | None, typer.Option(help="CVAE: further attributes, separated by commas.")] = None,
    authors_compat: Annotated[bool, typer.Option(help="CVAE: what the seeds' authors ran, faults included.")] = False,
    rank: Annotated[int | None, typer.Option(help="Gaussian: directions of the shared covariance.")] = None,
    k: Annotated[int | None, typer.Option(help="k-Same: least size of a group.")] = None,
    per_class: Annotated[bool, typer.Option(help="k-Same: group within each class.")] = False,
    variance: Annotated[float | None, typer.Option(help="Sampling variance; 1 is what training assumes.")] = None,
    space: Annotated[str | None, typer.Option(help="raw, or unit: vectors scaled to length 1.")] = None,
    backbone: Annotated[
        str | None, typer.Option(help="For images: the vision model (default: efflite0; see `embed --backbones`).")
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of records held out for the membership check.")] = 0.1,
    non_members: Annotated[
        str | None, typer.Option(metavar="DATA", help="Other records for that check, instead of --holdout.")
    ] = None,
    fail_on_leak: Annotated[
        bool, typer.Option(help="If the check finds a leak, write nothing and end with code 3.")
    ] = False,
    epsilon: Annotated[float | None, typer.Option(help="Differential privacy: how much one unit may change.")] = None,
    delta: Annotated[
        float | None, typer.Option(help="With --epsilon: the chance that this fails; 1/(10 n) or less.")
    ] = None,
    n_public: Annotated[
        int | None, typer.Option(help="With --epsilon: about how many units, as a public number.")
    ] = None,
    classes: Annotated[str | None, typer.Option(help="With --epsilon: all classes there can be, by commas.")] = None,
    unit: Annotated[UnitName, typer.Option(help="With --epsilon: whose presence is hidden.")] = UnitName.record,
    holding: Annotated[str, typer.Option(help="With --epsilon: the name of the data whose budget pays.")] = "default",
    ledger: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --epsilon: the ledger (default: beside the data).")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Keep a private checkpoint beside the data, to resume from.")] = True,
    seed: Annotated[int, typer.Option(min=0, help="Seeds weights, batches and splits.")] = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn a generator from records and write a release that anyone can sample.

    Records of the validation or test split, or a share held out, are used to attack the release once.
    """
    from understudy.recipes.fit import fit_release

    settings: dict[str, Any] = {
        "preset": preset,
        "decoder_noise": decoder_noise,
        "max_epochs": epochs,
        "condition_on": [c.strip() for c in condition_on.split(",")] if condition_on else None,
        "authors_compat": authors_compat or None,
        "rank": rank,
        "k": k,
        "per_class": per_class or None,
        "variance": variance,
        "space": space,
    }
    with output.progress_bar("embed") as progress:
        summary = fit_release(
            data,
            out,
            generator=generator.value,
            settings={name: value for name, value in settings.items() if value is not None},
            holdout=holdout,
            non_members=non_members,
            backbone=backbone,
            privacy=_wish(epsilon, delta, n_public, unit.value),
            classes=None if classes is None else [name.strip() for name in classes.split(",")],
            ledger=ledger,
            holding=holding,
            refuse_leak=fail_on_leak,
            overwrite=force,
            resume=resume,
            verbose=not as_json,
            seed=seed,
            progress=progress,
        )
    if as_json:
        output.print_json(summary.to_dict())
    else:
        show_fit(summary)


def show_fit(summary: FitSummary) -> None:
    """What the data holder reads after a fit."""
    output.say(
        f"release     {summary.release} ({summary.generator}, {summary.megabytes:.2f} MB, {summary.seconds:.0f} s)",
        "bold",
    )
    output.say(f"fingerprint {summary.fingerprint}")
    output.say(f"records     {summary.records} used, {summary.held_out} not used (this stays with you)")
    output.show_claim(summary.claim)
    output.show_membership(summary.membership)


def sample(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help=".npz, .parquet, .safetensors or .csv")],
    n: Annotated[int | None, typer.Option("-n", help="How many, with labels by the released prior.")] = None,
    per_class: Annotated[str | None, typer.Option(help="Exact counts: benign=500,malignant=500.")] = None,
    variance: Annotated[float | None, typer.Option(help="Below 1: more typical vectors.")] = None,
    min_distance: Annotated[
        float | None, typer.Option(help="Keep this far from --real records (data holder only; see docs).")
    ] = None,
    real: Annotated[str | None, typer.Option(metavar="DATA", help="The records, for --min-distance.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Draw the same again; without it, fresh entropy.")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw vectors from a release into a file."""
    from understudy.recipes.sample import sample_to_file

    result = sample_to_file(
        release,
        out,
        n=n,
        per_class=None if per_class is None else _counts(per_class),
        variance=variance,
        min_distance=min_distance,
        real=real,
        seed=seed,
        overwrite=force,
    )
    if as_json:
        output.print_json(result)
    else:
        show_sample(result)


def show_sample(result: dict[str, Any]) -> None:
    """One line: what was drawn, and where it is."""
    output.say(f"{result['rows']} vectors of {result['features']} features written to {result['file']}")
    if result["not_covered"]:
        output.say(f"not covered: {result['not_covered']}")


def evaluate(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")],
    test: Annotated[str, typer.Option(metavar="DATA", help="Real data to test on. " + DATA_HELP)],
    train: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="The records: adds real data, k-Same, D and the membership check."),
    ] = None,
    head: Annotated[HeadName, typer.Option(help="Classifier to train on samples.")] = HeadName.linear,
    samples: Annotated[
        int | None, typer.Option(help="Vectors to draw (default: as many as --train, or 5000).")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Repetitions behind each interval.")] = 3,
    backbone: Annotated[str | None, typer.Option(help=BACKBONE_HELP)] = None,
    as_json: Json = False,
) -> None:
    """Train a classifier on the release, test it on real data, and compare with real data and k-Same."""
    from understudy.recipes.evaluate import evaluate_release

    with output.progress_bar("evaluating") as progress:
        result = evaluate_release(
            release,
            test,
            train=train,
            head=head.value,
            samples=samples,
            seeds=seeds,
            backbone=backbone,
            progress=progress,
        )
    if as_json:
        output.print_json(result.to_dict())
    else:
        show_evaluation(result)


def show_evaluation(result: Evaluation) -> None:
    """The table, then the check."""
    shown = {"auc": "AUC", "accuracy": "accuracy", "balanced_accuracy": "balanced acc.", "f1_macro": "F1"}
    metrics = [m for m in shown if m in result.rows[0].scores]
    rows = [
        [
            row.method,
            str(row.rows),
            *(output.short_estimate(row.scores[m]) for m in metrics),
            output.short_estimate(row.distance, 2),
        ]
        for row in result.rows
    ]
    output.show_table(["trained on", "rows", *(shown[m] for m in metrics), "D"], rows)
    output.say(
        f"{result.head} head, tested on {result.test_records} real records; mean and half of the 95 % interval over "
        f"{result.seeds} seeds. D: mean distance to the nearest record, z-scored."
    )
    if result.membership is not None:
        output.show_membership(result.membership)


def verify(
    release: Annotated[Path, typer.Argument(metavar="RELEASE", help="A release folder.")], as_json: Json = False
) -> None:
    """Check that a release is whole and well formed; offline, without the data."""
    from understudy.release import verify as check
    from understudy.types import PrivacyClaim

    result = check(release)
    if as_json:
        output.print_json(result.to_dict())
        return
    for line in result.checks:
        output.say(f"ok  {line}")
    output.say(f"fingerprint {result.fingerprint}", "bold")
    output.show_claim(PrivacyClaim.from_dict(result.claim))


def doctor(as_json: Json = False) -> None:
    """Look whether this machine has what Understudy needs."""
    from understudy.recipes.doctor import examine

    findings = examine()
    if as_json:
        output.print_json({"ok": all(f.ok for f in findings), "findings": [f.to_dict() for f in findings]})
    else:
        rows = [
            ["ok" if f.ok else "NO", f.what, f.found, "" if f.ok and f.found[:3] != "not" else f.advice]
            for f in findings
        ]
        output.show_table(["", "what", "found", "advice"], rows)
    if not all(f.ok for f in findings):
        raise typer.Exit(1)


def _wish(epsilon: float | None, delta: float | None, n_public: int | None, unit: str) -> DP | None:
    from understudy import types
    from understudy.errors import ConfigError

    if epsilon is None:
        if delta is not None or n_public is not None:
            raise ConfigError("--delta and --n-public belong to --epsilon: add it, or leave them out.")
        return None
    if delta is None or n_public is None:
        raise ConfigError(
            "--epsilon needs --delta and --n-public beside it: `understudy plan --explain` helps to choose."
        )
    return types.DP(epsilon, delta, unit, n_public)  # type: ignore[arg-type]  # one of two words


def _counts(text: str) -> dict[str, int]:
    from understudy.errors import ConfigError

    out = {}
    for part in text.split(","):
        name, _, count = part.rpartition("=")
        if not name or not count.strip().isdecimal() or len(count.strip()) > 12:
            raise ConfigError(f"--per-class takes NAME=COUNT, separated by commas; got {part!r}.")
        out[name.strip()] = int(count)
    return out


def register(app: typer.Typer) -> None:
    """Hang the verbs on the program, in the order in which people meet them."""
    # It takes its option types from here.
    from understudy.cli.demo import demo
    from understudy.cli.plan import plan
    from understudy.cli.receiver import predict, train
    from understudy.cli.report import report

    for verb in (embed, fit, sample, evaluate, train, predict, report, verify, plan, doctor, demo):
        app.command()(verb)
