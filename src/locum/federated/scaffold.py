"""The folder that `flwr run` starts: the shared terms, and a README with every command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from locum._version import __version__
from locum.errors import ConfigError
from locum.federated.certificates import check_host, check_site_name
from locum.federated.settings import FederationSettings

_PYPROJECT = """\
# A Flower app. Its code is in the package locum; only federation.toml is sent with it.
[project]
name = "locum-federation"
version = "{version}"
description = "Sites train one stand-in together, each with its own ledger."
license = "Apache-2.0"
dependencies = ["locum>={version}", "flwr>=1.41,<1.42"]

[tool.flwr.app]
publisher = "locum"
fab-include = ["federation.toml"]

[tool.flwr.app.components]
serverapp = "locum.federated.transport.flower:server_app"
clientapp = "locum.federated.transport.flower:client_app"

# Every site gets these settings: nothing private belongs here. A site's private settings are in its own site.toml.
[tool.flwr.app.config]
federation = "federation.toml"
out = "out"           # release, log and state, relative to where the SuperLink was started
sites = {number}             # how many must be connected before the run starts
wait = 600            # seconds for them to connect
timeout = 3600        # seconds for a reply
patience = 300        # seconds for a lost site to come back within a round
"""

_TERMS = """\
# The terms of the federation. They are public: every site gets them and must agree to them.
"""

_SITE = """\
# Copy to site.toml, beside the site's records, where it stays. Only epsilon, delta, n_public and unit leave the site.
federation = "federation.toml"    # a copy of the terms that this site agreed to: it replies under no others
data = "embeddings.npz"       # relative to this file; "FILE#train" picks a split
# validation = "held.npz"     # chooses the site's lambda; without it, cross-validation does
epsilon = 1.0                 # what this run may cost; all of it is charged when the site joins
delta = 1e-5
n_public = 1000               # the declared, rounded number of records: it is public
unit = "record"               # or "subject": the guarantee covers all records of a patient
# holding = "clinic"          # the data holding whose budget pays
# ledger = "ledger.sqlite"    # default: beside the data
"""

_CONNECTION = """\
# Append to config.toml in $FLWR_HOME (~/.flwr unless set), with a full path.
[superlink.locum]
address = "{address}"
{trust}
"""

_OFF = """\
```console
$ export FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1
```
"""

_README = """\
# A federation

{warning}`federation.toml` holds the terms, which are public. Each site keeps its records, its budget and its ledger
to itself. Install the same version everywhere: `pip install 'locum[federated]'`. In every shell, first:

{off}
## The coordinator

{keys}Start the SuperLink in the folder for the results (keep `superlink.db`: it lists the registered sites):

```console
$ flower-superlink --host {bind} --port {port} --database superlink.db --disable-runtime-dependency-installation \\
    {link}
```

Append `flower-config.toml` to `config.toml` in `$FLWR_HOME` (`~/.flwr` unless set){register}

## Each site

Copy `site.example.toml` to `site.toml`, and `federation.toml` with it, beside the records; read the terms, and set
the budget. Then, for the first site:

```console
$ until flower-supernode --superlink {address} --port 9094 \\
    {node} \\
    --node-config 'site="/PATH/TO/site.toml"'; do sleep 5; done
```

The loop restarts a node that died; so does a service with `Restart=on-failure`. A node that was killed can connect
again a minute after its last sign of life, and then finishes the round. Nodes on one machine need different values
of `--port`. Errors at a site appear in this window only: the coordinator learns just the class of the error.

## Run

```console
$ flwr run . locum --stream
```

The release is in `out/release`, the log in `out/log.jsonl`. If the run stops, because too few sites replied or the
SuperLink was killed, start what is missing and run the same command again: it resumes after the last complete round.

## Who must be trusted

{trust}
- Whoever starts runs decides which code the sites run: `flwr run` sends an app, which can be another one than this.
  Flower 1.41 lets everyone who reaches the port start runs and register keys, sites included. Sites need only the
  paths under `/v1/fleet/`: put a proxy in front that allows nothing else, and keep the port itself to the
  coordinator.
- The coordinator sees each site's noisy sums and decoders, which are paid for. It sees no record, count, loss or
  lambda.
"""

_SECURE = {
    "warning": "",
    "bind": "0.0.0.0",
    "keys": """\
Make the certificates, which expire after two years, and a key for each site:

```console
$ locum federate certificates keys --host {host} {flags}
```

`keys/ca.crt` and `NAME.key` go to site NAME; `server.key` stays here. Better: each site makes its own key with
`locum federate key keys NAME` and sends only `NAME.pub`.

""",
    "link": "--enable-supernode-auth --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt "
    "--ssl-keyfile keys/server.key",
    "register": """,
with the full path of `keys/ca.crt`, and register the sites:

```console
{registrations}
```""",
    "node": "--root-certificates ca.crt --auth-supernode-private-key {first}.key",
    "trust": "- All connections are encrypted, and only sites with registered keys can connect.",
    "connection": 'root-certificates = "/PATH/TO/keys/ca.crt"',
}

_INSECURE = {
    "warning": """\
> **INSECURE: there is no encryption and no authentication.** Anyone on the network can read every message, and anyone
> who reaches the port can act as a site. Use this only on one machine, with made-up records. For anything else, write
> the folder again without `--insecure`.

""",
    "keys": "",
    "bind": "127.0.0.1",
    "link": "--insecure",
    "register": ".",
    "node": "--insecure",
    "trust": "- **Nothing is encrypted and no site is authenticated.** A site that restarts is a new site.",
    "connection": "insecure = true",
}


def write_app(
    folder: str | Path,
    settings: FederationSettings,
    *,
    sites: Sequence[str],
    insecure: bool = False,
    host: str = "localhost",
    port: int = 8010,
) -> list[Path]:
    """Write the folder that `flwr run` starts; its `README.md` has all commands, in order.

    TLS and node authentication are on unless `insecure` is set. No file is overwritten: if one exists, none is
    written.

    Parameters
    ----------
    folder
        The folder.
    settings
        The public terms.
    sites
        Names of the sites, at least `settings.least_sites`.
    insecure
        Turn encryption and authentication off; the README then says so at the top.
    host, port
        Where the sites reach the SuperLink.

    Returns
    -------
    list of Path
        The files.

    Examples
    --------
    >>> from locum.federated import FederationSettings, write_app
    >>> settings = FederationSettings(("benign", "malignant"), dim=1280)
    >>> [file.name for file in write_app("app", settings, sites=["site-a", "site-b"])][:2]
    ['pyproject.toml', 'federation.toml']
    """
    names = [check_site_name(s) for s in sites]
    if len(set(names)) < len(names) or len(names) < settings.least_sites:
        raise ConfigError(
            f"`sites` must name {settings.least_sites} or more sites (`least_sites`), each once; got {list(sites)!r}."
        )
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise ConfigError(f"`port` must be 1 to 65535; got {port!r}.")
    check_host(host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    texts = _INSECURE if insecure else _SECURE
    blanks = {
        "host": host,
        "first": names[0],
        "flags": " ".join(f"--site {n}" for n in names),
        "registrations": "\n".join(f"$ flwr supernode register keys/{n}.pub locum --name {n}" for n in names),
    }
    filled = {key: text.format(**blanks) for key, text in texts.items()}
    files = {
        "pyproject.toml": _PYPROJECT.format(version=__version__, number=len(names)),
        "federation.toml": _TERMS + settings.to_toml(),
        "site.example.toml": _SITE,
        "flower-config.toml": _CONNECTION.format(address=address, trust=filled["connection"]),
        "README.md": _README.format(off=_OFF, address=address, port=port, **filled),
    }
    target = Path(folder)
    for name in files:
        if (target / name).exists():
            raise ConfigError(f"{str(target / name)!r} already exists: name another folder.")
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text, encoding="utf-8")
    return [target / name for name in files]
