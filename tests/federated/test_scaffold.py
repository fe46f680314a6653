from __future__ import annotations

import os
import re
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from locum.errors import ConfigError
from locum.federated import FederationSettings

pytest.importorskip("flwr")

from locum.federated import write_app

SETTINGS = FederationSettings(classes=('Läsion "A"', "b\\c", "ü"), dim=12, rounds=3, hidden=(8, 4), beta=1e-5)


@pytest.fixture
def app(tmp_path: Path) -> Path:
    write_app(tmp_path / "app", SETTINGS, sites=["clinic", "ward-2"], host="fed.example.org", port=8443)
    return tmp_path / "app"


def test_the_terms_come_back_as_they_were(app: Path) -> None:
    assert FederationSettings.read(app / "federation.toml") == SETTINGS


def test_every_setting_is_written_out(app: Path) -> None:
    written = tomllib.loads((app / "federation.toml").read_text())
    assert written.keys() == {k for k, v in SETTINGS.to_dict().items() if v is not None}


def test_the_bundle_holds_the_terms_and_nothing_else(app: Path) -> None:
    from flwr.cli.build import build_fab_from_disk

    (app / "site.toml").write_text('data = "patients.npz"')
    (app / "keys.json").write_text("{}")
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(app))) as bundle:
        assert sorted(bundle.namelist()) == [".info/CONTENT", "federation.toml", "pyproject.toml"]


def test_flower_finds_the_app(app: Path) -> None:
    from flwr.cli.config_utils import load_and_validate
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.supercore.object_ref import load_app

    config, warnings = load_and_validate(app / "pyproject.toml")
    assert warnings == []
    parts = config["tool"]["flwr"]["app"]["components"]
    assert isinstance(load_app(parts["serverapp"], ValueError), ServerApp)
    assert isinstance(load_app(parts["clientapp"], ValueError), ClientApp)
    assert config["tool"]["flwr"]["app"]["config"]["sites"] == 2


def test_the_page_has_every_command_with_its_safeguards(app: Path) -> None:
    page = (app / "README.md").read_text()
    for word in (
        "FLWR_TELEMETRY_ENABLED=0",
        "FLWR_DISABLE_UPDATE_CHECK=1",
        "--disable-runtime-dependency-installation",
        "--enable-supernode-auth",
        "--ssl-ca-certfile",
        "--auth-supernode-private-key clinic.key",
        "flwr supernode register keys/ward-2.pub locum --name ward-2",
        "--superlink fed.example.org:8443",
        "--host fed.example.org --site clinic --site ward-2",
        "flwr run . locum",
    ):
        assert word in page
    assert "insecure" not in page.lower()
    assert "insecure" not in (app / "flower-config.toml").read_text()


def test_the_options_are_flowers(app: Path) -> None:
    from flwr.superlink.cli.flower_superlink import _parse_args_run_superlink
    from flwr.supernode.cli.flower_supernode import _parse_args_run_supernode

    page = (app / "README.md").read_text().replace("\\\n", " ")
    for command, parser in (
        ("flower-superlink", _parse_args_run_superlink()),
        ("flower-supernode", _parse_args_run_supernode()),
    ):
        (line,) = re.findall(rf"{command} (--[^;\n]*)", page)
        parser.parse_args([word.strip("'") for word in line.split()])


def test_insecure_is_opt_in_and_the_page_says_so_first(tmp_path: Path) -> None:
    write_app(tmp_path / "app", SETTINGS, sites=["a", "b"], insecure=True)
    page = (tmp_path / "app" / "README.md").read_text()
    assert page.splitlines()[2].startswith("> **INSECURE")
    assert "--host 127.0.0.1" in page
    assert "keys/" not in page
    assert tomllib.loads((tmp_path / "app" / "flower-config.toml").read_text())["superlink"]["locum"]["insecure"]


def test_the_site_example_is_a_site_file(app: Path) -> None:
    from locum.federated import SiteFile

    site = SiteFile.read(app / "site.example.toml")
    assert site.privacy() is not None


def test_no_path_of_this_machine_is_written(app: Path) -> None:
    for file in app.iterdir():
        text = file.read_text()
        assert str(Path.home()) not in text
        assert os.getcwd() not in text
        assert str(app.parent) not in text


def test_nothing_is_overwritten(app: Path) -> None:
    (app / "README.md").unlink()
    before = (app / "federation.toml").read_text()
    with pytest.raises(ConfigError, match="already exists"):
        write_app(app, FederationSettings(classes=(0, 1), dim=3), sites=["a", "b"])
    assert (app / "federation.toml").read_text() == before
    assert not (app / "README.md").exists()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"sites": ["a"]}, "2 or more sites"),
        ({"sites": ["a", "a"]}, "each once"),
        ({"sites": ["a", "b c"]}, "name must be"),
        ({"sites": ["a", "b"], "port": 0}, "port"),
        ({"sites": ["a", "b"], "host": "x y"}, "host"),
        ({"sites": ["a", "b"], "host": "$(reboot)"}, "host"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, object], word: str) -> None:
    with pytest.raises(ConfigError, match=word):
        write_app(tmp_path / "app", SETTINGS, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "app").exists()
