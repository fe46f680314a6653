"""`locum federate`: sites train one stand-in together."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from locum.cli import output
from locum.cli.options import (
    MOST_SEED,
    PRIVACY,
    WHERE,
    Data,
    Delta,
    Force,
    Json,
    UnitName,
    existing,
    listed,
    sensible_epsilon,
)
from locum.cli.verb import Group
from locum.types import DEFAULT_DELTA, DEFAULT_EPSILON

if TYPE_CHECKING:
    from locum.federated import Simulation


group = Group("Sites train one stand-in together, each with its own ledger; no record leaves a site.")


class Mode(StrEnum):
    """What sites train together."""

    head = "head"
    sums = "sums"
    decoder = "decoder"


class Partition(StrEnum):
    """How records are partitioned among sites."""

    iid = "iid"
    dirichlet = "dirichlet"
    by_site = "by-site"


class Average(StrEnum):
    """How the decoders of sites are averaged."""

    mean = "mean"
    median = "median"
    trimmed = "trimmed-mean"


class Engine(StrEnum):
    """What runs the sites of a simulation."""

    local = "local"
    ray = "ray"


METHOD = "The method"

ModeOption = Annotated[
    Mode,
    typer.Option(
        help="head: a classifier by private, masked gradient steps. sums: one round of noisy class statistics. "
        "decoder: rounds of training, as in the federated paper.",
        rich_help_panel=METHOD,
    ),
]
SecureOption = Annotated[
    bool,
    typer.Option(
        "--secure",
        help="With --mode sums: mask each site's sums, so that only their total can be read.",
        rich_help_panel=METHOD,
    ),
]
RoundsOption = Annotated[int, typer.Option(help="Rounds of training (mode decoder).", rich_help_panel=METHOD)]
SubjectOption = Annotated[
    int | None,
    typer.Option(
        metavar="K",
        help="At how many sites one subject can have records (default: all; with masked sums one).",
        rich_help_panel=METHOD,
    ),
]
AbsentOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Masked sums: how many sites may be absent from a sum (default: one in eight).",
        rich_help_panel=METHOD,
    ),
]
ColludingOption = Annotated[
    int,
    typer.Option(
        metavar="N", help="Masked sums: how many sites may collude with the coordinator.", rich_help_panel=METHOD
    ),
]


@group.verb()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new folder for the files.")],
    classes: Annotated[
        str,
        typer.Option(
            metavar="A,B,...", help="All classes that can occur, at any site.", rich_help_panel="The federation"
        ),
    ],
    dim: Annotated[
        int,
        typer.Option(
            help="Number of features of the vectors (EfficientNet-Lite 0: 1280).", rich_help_panel="The federation"
        ),
    ] = 1280,
    backbone: Annotated[
        str, typer.Option(help="The backbone that made the vectors.", rich_help_panel="The federation")
    ] = "efflite0",
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Public statistics that the terms name by hash (default: the backbone's).",
            rich_help_panel="The federation",
            callback=existing,
        ),
    ] = None,
    site: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A site; repeat for each (default: three sites).", rich_help_panel="The federation"
        ),
    ] = None,
    mode: ModeOption = Mode.head,
    secure: SecureOption = False,
    rounds: RoundsOption = 50,
    average: Annotated[
        Average,
        typer.Option(help="median and trimmed-mean resist a poisoned site.", rich_help_panel="The federation"),
    ] = Average.mean,
    max_sites_per_subject: SubjectOption = None,
    absent: AbsentOption = None,
    colluding: ColludingOption = 1,
    epsilon: Annotated[
        float,
        typer.Option(
            help="Masked sums: the guarantee that all sites pay for.",
            rich_help_panel=PRIVACY,
            callback=sensible_epsilon,
        ),
    ] = DEFAULT_EPSILON,
    delta: Delta = DEFAULT_DELTA,
    unit: Annotated[
        UnitName,
        typer.Option(
            help="What is protected: one record, or a subject with all its records.", rich_help_panel=PRIVACY
        ),
    ] = UnitName.record,
    host: Annotated[
        str, typer.Option(help="The host name where sites reach the coordinator.", rich_help_panel="The network")
    ] = "localhost",
    port: Annotated[int, typer.Option(help="The coordinator's port.", rich_help_panel="The network")] = 8010,
    as_json: Json = False,
) -> None:
    """Write the folder that a federation starts from: terms, an example site file, and a README with all commands."""
    from locum.recipes import start_federation

    names = site or ["site-a", "site-b", "site-c"]
    settings = {
        "dim": dim,
        "mode": mode.value,
        "secure": secure,
        "rounds": rounds,
        "average": average.value,
        "max_sites_per_subject": max_sites_per_subject,
        "colluding": colluding,
        "epsilon": epsilon,
        "delta": delta,
        "unit": unit.value,
        **({} if absent is None else {"absent": absent}),
    }
    files = start_federation(
        folder,
        listed(classes),
        sites=names,
        backbone=backbone,
        reference=reference,
        settings=settings,
        host=host,
        port=port,
    )
    if as_json:
        output.print_json({"files": [str(f) for f in files], "sites": names})
        return
    output.say(f"Written to {folder}. See {folder / 'README.md'} for the commands, in order.", "bold")


@group.verb()
def certificates(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for certificates and keys; nothing is overwritten.")
    ],
    host: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A name or address of the coordinator.")
    ] = None,
    site: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Also make a key pair for this site; repeat for each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a certificate authority, the coordinator's certificate, and key pairs for sites."""
    from locum.recipes import make_federation_keys

    files = make_federation_keys(folder, hosts=host or ("localhost", "127.0.0.1"), sites=site or ())
    _files(files, as_json)


@group.verb()
def key(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder for the key pair; nothing is overwritten.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="The site's name.")],
    as_json: Json = False,
) -> None:
    """Make a key pair at a site: NAME.key stays there, NAME.pub goes to the coordinator, which admits it."""
    from locum.recipes import make_key_for_site

    _files(make_key_for_site(folder, name), as_json)


@group.verb()
def pin(
    terms: Annotated[Path, typer.Argument(metavar="TERMS", help="The terms, federation.toml.", callback=existing)],
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder with NAME.pub of every site (default: only show pinned keys).",
            callback=existing,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the sites' public keys into the terms: with masked sums, a site works only with these."""
    from locum.recipes import pin_sites

    found = pin_sites(terms, keys)
    if as_json:
        output.print_json(found)
        return
    output.show_table(["site", "fingerprint of its key"], [[name, value] for name, value in found.items()])
    if keys is None:
        output.say("Compare these with the other sites, not through the coordinator.", "bold")
    else:
        output.say(
            f"{len(found)} sites are pinned in {terms}: send it to every site, and compare fingerprints.", "bold"
        )


@group.verb()
def coordinate(
    terms: Annotated[Path, typer.Argument(metavar="TERMS", help="The terms, federation.toml.", callback=existing)],
    keys: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="The coordinator's certificate and key, and NAME.pub of every site that may take part.",
            callback=existing,
            rich_help_panel="The network",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Release, log and state; a run that stopped resumes there.",
            rich_help_panel=WHERE,
        ),
    ] = Path("out"),
    listen: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="This machine's address in the network of the sites (default: only sites on this machine).",
            rich_help_panel="The network",
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port for sites.", rich_help_panel="The network")] = 8010,
    sites: Annotated[
        int | None,
        typer.Option(
            help="Start when this many are connected (default: all with a key).", rich_help_panel="The network"
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait for the sites to connect.", rich_help_panel="The network")
    ] = 600,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait for a reply.", rich_help_panel="The network")
    ] = 3600,
    patience: Annotated[
        float, typer.Option(help="Seconds to wait for a lost site to come back.", rich_help_panel="The network")
    ] = 300,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Public statistics, if the terms name a file by hash.",
            rich_help_panel="The federation",
            callback=existing,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a federation as its coordinator. Only sites with a known key can connect; nobody can send code."""
    from locum.recipes import coordinate_federation

    release = coordinate_federation(
        terms,
        keys,
        out,
        listen=listen,
        port=port,
        sites=sites,
        wait=wait,
        timeout=timeout,
        patience=patience,
        reference=reference,
        on_event=_tell,
    )
    if as_json:
        output.print_json({"release": str(release)})
        return
    output.say(f"Release written to {release}", "bold")


@group.verb()
def join(
    site: Annotated[Path, typer.Argument(metavar="SITE", help="The site's site.toml.", callback=existing)],
    coordinator: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where the coordinator listens.")],
    ca: Annotated[Path, typer.Option(metavar="FILE", help="The coordinator's ca.crt.", callback=existing)],
    key: Annotated[Path, typer.Option(metavar="FILE", help="The site's private key, NAME.key.", callback=existing)],
    as_json: Json = False,
) -> None:
    """Take part in a federation as a site, until the result arrives. The site accepts requests, but no code."""
    from locum.recipes import join_federation

    join_federation(site, coordinator, authority=ca, key=key, on_event=_tell)
    if as_json:
        output.print_json({"site": str(site), "done": True})
        return
    output.say("The result has arrived: `locum federate predict` uses it.", "bold")


@group.verb()
def simulate(
    data: Data,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Keep the release and the log here; a run that stopped resumes there.",
            rich_help_panel=WHERE,
        ),
    ] = None,
    sites: Annotated[int, typer.Option(help="Number of sites.", rich_help_panel="Sites")] = 5,
    partition: Annotated[
        Partition, typer.Option(help="How records are partitioned among sites.", rich_help_panel="Sites")
    ] = Partition.iid,
    alpha: Annotated[
        float, typer.Option(help="For dirichlet: the smaller, the more the sites differ.", rich_help_panel="Sites")
    ] = 0.3,
    site_attribute: Annotated[
        str,
        typer.Option(metavar="NAME", help="For by-site: the attribute that names the site.", rich_help_panel="Sites"),
    ] = "site",
    ranges: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="For a .csv table: a .csv with name,low,high, the public range of each feature.",
            rich_help_panel="Sites",
            callback=existing,
        ),
    ] = None,
    mode: ModeOption = Mode.head,
    secure: SecureOption = False,
    absent: AbsentOption = None,
    colluding: ColludingOption = 1,
    rounds: RoundsOption = 50,
    local_epochs: Annotated[
        int, typer.Option(help="Passes of a site over its records in each round.", rich_help_panel="Training")
    ] = 5,
    batch: Annotated[int, typer.Option(help="Expected batch size of a site.", rich_help_panel="Training")] = 256,
    average: Annotated[
        Average, typer.Option(help="How decoders are averaged.", rich_help_panel="Training")
    ] = Average.mean,
    balanced: Annotated[
        bool,
        typer.Option(
            "--balanced", help="Heads weight all classes equally, however rare.", rich_help_panel="Training"
        ),
    ] = False,
    epsilon: Annotated[
        float,
        typer.Option(
            help="The budget of a real run that is simulated.", rich_help_panel=PRIVACY, callback=sensible_epsilon
        ),
    ] = DEFAULT_EPSILON,
    delta: Delta = DEFAULT_DELTA,
    no_dp: Annotated[
        bool, typer.Option("--no-dp", help="Simulate a run without noise or clipping.", rich_help_panel=PRIVACY)
    ] = False,
    n_public: Annotated[
        int | None,
        typer.Option(
            help="A site's declared number of records, if not masked (default: about the mean).",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="All classes (default: those of the data; a real run must declare them).",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    unit: Annotated[
        UnitName,
        typer.Option(
            help="What is protected: one record, or a subject with all its records.", rich_help_panel=PRIVACY
        ),
    ] = UnitName.record,
    engine: Annotated[
        Engine, typer.Option(help="local: one process. ray: Flower's simulation engine.", rich_help_panel="Sites")
    ] = Engine.local,
    validation: Annotated[
        bool,
        typer.Option(
            "--validation",
            help="Choose lambda on held-out records, as in the federated paper, not by cross-validation.",
            rich_help_panel="Training",
        ),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_SEED,
            help="Seeds all randomness, noise included: that is why the release is a test.",
            rich_help_panel="Training",
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a federation on this machine with the code of a real run; its release is marked as a test."""
    import tempfile

    from locum.cli.stages import Stages
    from locum.errors import ConfigError
    from locum.types import DP

    privacy = None if no_dp else DP(epsilon, delta, unit.value, n_public)
    if no_dp and n_public is not None:
        raise ConfigError("--n-public belongs to a budget: leave it out with --no-dp.")
    settings: dict[str, Any] = {
        "mode": mode.value,
        "secure": secure,
        "rounds": rounds,
        "local_epochs": local_epochs,
        "batch": batch,
        "average": average.value,
        "balanced": balanced,
        "colluding": colluding,
        **({} if absent is None else {"absent": absent}),
    }
    with (
        tempfile.TemporaryDirectory(prefix="locum-") as spare,
        output.resumable(out is not None),
        output.progress_bar("simulate") as progress,
    ):
        stages = Stages(progress)
        stages.show("read the data", 0, 1)
        # Imported late: it takes seconds, and something is shown before.
        from locum.recipes import simulate_federation

        found = simulate_federation(
            data,
            out if out is not None else Path(spare) / "out",
            sites=sites,
            partition=partition.value,
            alpha=alpha,
            site_attribute=site_attribute,
            privacy=privacy,
            classes=None if classes is None else listed(classes),
            ranges=ranges,
            settings=settings,
            engine=engine.value,
            validation=validation,
            seed=seed,
            on_event=stages,
        )
    if as_json:
        scores = [site.to_dict() for site in found.sites]
        kept = str(found.release) if out is not None else None
        output.print_json(
            {"sites": scores, "release": kept, "test": True, "warning": found.warning, "notes": stages.notes}
        )
    else:
        _show(found, out)
        for note in stages.notes:
            output.say(note)


# More notes would hide the table.
_NOTES = 5


def _show(found: Simulation, out: Path | None) -> None:
    rows = [
        [
            s.name,
            str(s.n),
            "-" if s.epsilon_spent is None else f"{s.epsilon_spent:.3f}",
            f"{s.lam:.1f}",
            output.short_estimate(s.acc),
            f"{s.bacc:.3f}",
            f"{s.alone['local']['bacc']:.3f}",
            f"{s.alone['global']['bacc']:.3f}",
        ]
        for s in found.sites
    ]
    columns = ["site", "records", "epsilon", "lambda", "accuracy", "bacc", "bacc local", "bacc global"]
    output.show_table(columns, rows)
    output.say(
        "A simulation: randomness is seeded, so the release guarantees nothing. epsilon is the cost of a real run. "
        "bacc is the mean accuracy over classes on held-out records of the site; lambda is the weight of the site's "
        "own head."
    )
    if found.warning:
        output.say(found.warning, "bold")
    for note in found.notes[:_NOTES]:
        output.say(note)
    if len(found.notes) > _NOTES:
        output.say(f"More notes ({len(found.notes) - _NOTES}): add --json.")
    if out is not None:
        output.say(f"Release written to {found.release}", "bold")


@group.verb()
def merge(
    releases: Annotated[list[Path], typer.Argument(metavar="A B ...", help="Releases of different sites.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="The merged release.", rich_help_panel=WHERE)
    ],
    max_sites_per_subject: SubjectOption = None,
    equal: Annotated[
        bool,
        typer.Option("--equal", help="Weight all sites equally, not by their noisy counts.", rich_help_panel=METHOD),
    ] = False,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Public statistics of the releases, if not shipped: sums are added.",
            rich_help_panel=METHOD,
            callback=existing,
        ),
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Merge releases that sites made on their own: statistics of Gaussians are added, decoders become a mixture."""
    from locum.recipes import merge_to_folder

    found = merge_to_folder(
        releases,
        out,
        max_sites_per_subject=max_sites_per_subject,
        weights="equal" if equal else "counts",
        reference=reference,
        overwrite=force,
    )
    if as_json:
        output.print_json(found.to_dict())
        return
    what = "their statistics were added up" if found.how == "sums" else "a mixture of their decoders"
    output.say(f"{len(found.sites)} releases merged into {found.release} ({what})", "bold")
    output.show_claim(found.claim)


@group.verb()
def predict(
    site: Annotated[Path, typer.Argument(metavar="SITE", help="The site.toml of the site.", callback=existing)],
    data: Data,
    lam: Annotated[
        float | None,
        typer.Option("--lambda", help="Weight of the site's own head, 0..1, instead of the one it chose."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write a CSV.")] = None,
    as_json: Json = False,
) -> None:
    """Predict with the personal model of a site: its own head and the global one, interpolated."""
    from locum.recipes import predict_personally

    with output.progress_bar("embed") as progress:
        found = predict_personally(site, data, lam=lam, out=out, progress=progress)
    if as_json:
        output.print_json(found.to_dict())
        return
    summary = found.to_dict()
    output.show_table(["class", "predicted"], [[name, str(n)] for name, n in sorted(summary["predicted"].items())])
    output.say(f"{summary['records']} records, lambda {found.lam:.1f} (the weight of the site's own head)")
    for note in found.notes:
        output.say(note)
    if out is not None:
        output.say(f"Written to {out} (only you may read it)")


def _files(files: dict[str, Path], as_json: bool) -> None:
    if as_json:
        output.print_json({name: str(file) for name, file in files.items()})
        return
    for file in files.values():
        output.say(str(file))


def _tell(event: dict[str, Any]) -> None:
    import json

    output.say_aside(json.dumps(event, default=str))
