"""The folder that a federation starts from: the terms, an example site file, and a README with every command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from locum.errors import ConfigError
from locum.federated.certificates import check_host, check_new_folder
from locum.federated.settings import FederationSettings
from locum.federated.site_keys import check_site_name, key_id, read_key_texts, read_public_key
from locum.io import write_bytes

_TERMS = """\
# The terms of the federation. They are public: every site gets them and must agree to them.
"""

_SITE = """\
# Copy to site.toml, next to the site's records, and keep it there. Only epsilon, delta, n_public and unit
# leave the site.
federation = "federation.toml"    # a copy of the terms that this site agreed to: it replies under no others
data = "embeddings.npz"       # relative to this file; "FILE#train" picks a split
# validation = "held.npz"     # chooses the site's lambda; without it, cross-validation does
epsilon = {epsilon}                 # what this run may cost; all of it is charged when the site joins
delta = {delta}
{size}unit = "{unit}"               # or "subject": the guarantee covers all records of a patient
# measure = "accuracy"        # what the site wants of its own model; default: balanced_accuracy
# holding = "clinic"          # the data holding whose budget pays
# ledger = "ledger.sqlite"    # default: beside the data
# reference = "ref.safetensors"  # if the terms ask for public statistics in a file; default: what `embed` made
"""

_PIN = """
Write the keys into the terms. A site works only with the sites in its copy of the terms:

```console
$ locum federate pin federation.toml --keys keys
```

It prints a fingerprint of each key. A site prints those in its own copy with `locum federate pin federation.toml` and
compares them with the other sites, by phone or in a meeting: a coordinator who could swap keys could read the sums of
single sites.
"""

_README = """\
# A federation

`federation.toml` holds the terms, which are public. Each site keeps its records, its budget and its ledger to itself.
Install the same version everywhere: `pip install 'locum[federated]'`.

## 1. Each site makes a key

`{first}.key` stays at the site, `{first}.pub` goes to the coordinator, over a channel on which it can tell who sent
it:

```console
$ locum federate key keys {first}
```

## 2. The coordinator gathers the keys

Make the certificates, which expire after two years, and put the public key of each site into `keys`: {public}.

```console
$ locum federate certificates keys --host {host}
```
{pin}
Send `federation.toml` and `keys/ca.crt` to every site. `server.key` stays here.

Then start the run, in the folder for the results:

```console
$ locum federate coordinate federation.toml --keys keys --port {port} -o out
```

It listens on 127.0.0.1, for sites on this machine. For sites elsewhere add `--listen ADDRESS`: the address of this
machine in the network that it shares with the sites, at best a private one (VPN).

The release is in `out/release`, the log in `out/log.jsonl`. If the run stops, because too few sites replied or the
machine was restarted, run the same command again: it resumes after the last complete round.

## 3. Each site joins

Copy `site.example.toml` to `site.toml`, and `federation.toml` with it, beside the records. Read the terms, which must
not change afterward, and set the budget. Then:

```console
$ until locum federate join site.toml --coordinator {address} \\
    --ca ca.crt --key keys/{first}.key; do sleep 5; done
```

It ends when the result has arrived. The loop restarts a process that died; so does a service with
`Restart=on-failure`. Errors at a site appear in this window only: the coordinator learns just the class of the error.

## Who can do what

| who | can | cannot |
|---|---|---|
| anyone who reaches the coordinator's port | see that it is there, and try to keep it busy | connect as a site, \
start a run, send code, read a message |
| a site, with a key whose public half is in `keys` | reply in its own name; spoil the result with false replies | \
send requests, reply for others, run code elsewhere, read what others sent |
| the coordinator | start runs, admit sites, stop a run; send requests to sites; read what is paid for: totals of \
masked sums, or the noisy sums and decoders of each site | run code at a site; get replies under other terms than \
those in the site's own copy, or beyond its budget; read a masked sum of one site; learn a record, count, loss or \
lambda |
| whoever can write `keys` or `out` on the coordinator's machine | all that the coordinator can | |

All connections are encrypted. Sites connect to the coordinator; nothing connects to a site. No code travels: each
side runs the package that it installed, so install it from a source that you trust.
"""


def write_federation(
    folder: str | Path,
    settings: FederationSettings,
    *,
    sites: Sequence[str],
    host: str = "localhost",
    port: int = 8010,
) -> list[Path]:
    """Write the folder that a federation starts from; its `README.md` has all commands, in order.

    Encryption and authentication cannot be turned off. No file is overwritten: if one exists, none is written.

    Parameters
    ----------
    folder
        The folder; the current folder, the root and the inside of a release are refused.
    settings
        The public terms.
    sites
        Names of the sites, at least `settings.least_sites`.
    host, port
        Where the sites reach the coordinator.

    Returns
    -------
    list of Path
        The files.

    Examples
    --------
    >>> from locum.federated import FederationSettings, write_federation
    >>> settings = FederationSettings(("benign", "malignant"), dim=1280)
    >>> [file.name for file in write_federation("study", settings, sites=["site-a", "site-b", "site-c"])]
    ['federation.toml', 'site.example.toml', 'README.md']
    """
    names = [check_site_name(s) for s in sites]
    if len(set(names)) < len(names) or len(names) < settings.least_sites:
        raise ConfigError(
            f"`sites` must name {settings.least_sites} or more sites (`least_sites`), each once; got {list(sites)!r}."
        )
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ConfigError(f"`port` must be 1 to 65535; got {port!r}.")
    check_host(host)
    target = Path(folder)
    check_new_folder(target)
    page = _README.format(
        pin=_PIN if settings.masked else "",
        host=host,
        port=port,
        address=f"[{host}]:{port}" if ":" in host else f"{host}:{port}",
        first=names[0],
        public=", ".join(f"`{name}.pub`" for name in names),
    )
    # Masked sums do not need a size.
    size = (
        "" if settings.masked else "n_public = 1000               # the declared, rounded number of records: public\n"
    )
    site = _SITE.format(epsilon=settings.epsilon, delta=settings.delta, unit=settings.unit, size=size)
    files = {"federation.toml": _TERMS + settings.to_toml(), "site.example.toml": site, "README.md": page}
    for name in files:
        if (target / name).exists():
            raise ConfigError(f"{str(target / name)!r} already exists: name another folder.")
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in files]


def pin_keys(terms: str | Path, keys: str | Path | None = None) -> dict[str, str]:
    """Write the public keys of the sites into the terms: sites work only with these.

    Parameters
    ----------
    terms
        The public terms, `federation.toml`; the file is replaced. Terms that pin other keys already are refused.
    keys
        Folder with the public key (`NAME.pub`) of every site. None: nothing is written, so that a site can compare
        the fingerprints of the keys in its copy of the terms.

    Returns
    -------
    dict
        The fingerprint of each site's key by its name, for the sites to compare.

    Examples
    --------
    >>> from locum.federated import FederationSettings, make_certificates, pin_keys, write_federation
    >>> names = ["site-a", "site-b", "site-c"]
    >>> _ = write_federation("trial", FederationSettings(("benign", "malignant"), dim=30), sites=names)
    >>> _ = make_certificates("trial-keys", sites=names)
    >>> sorted(pin_keys("trial/federation.toml", "trial-keys"))
    ['site-a', 'site-b', 'site-c']
    """
    settings, file = FederationSettings.read(terms), Path(terms)
    found = dict(settings.sites) if keys is None else read_key_texts(keys)
    if not found and keys is None:
        raise ConfigError(f"{str(terms)!r} pins no keys yet: name their folder with --keys.")
    if not found:
        raise ConfigError(f"There is no public key of a site (NAME.pub) in {str(keys)!r}: put them there first.")
    if len(found) < settings.least_sites:
        raise ConfigError(
            f"{str(keys)!r} has public keys of {', '.join(sorted(found))}, and these terms need at least "
            f"{settings.least_sites} sites: put NAME.pub of every site there first."
        )
    if settings.sites and dict(settings.sites) != found:
        raise ConfigError(
            f"{str(terms)!r} pins other keys already, which sites may have agreed to: start from new terms."
        )
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    comments = "".join(line for line in lines if line.startswith("#"))
    if keys is not None:
        pinned = replace(settings, sites=found)
        write_bytes(file, (comments + pinned.to_toml()).encode(), mode=0o644)
    return {name: key_id(read_public_key(name, text)) for name, text in sorted(found.items())}
