from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest

from locum.errors import ConfigError
from locum.federated import FederationSettings

pytest.importorskip("flwr")

from locum.federated import make_certificates, pin_keys, write_federation
from locum.federated.site_keys import key_id, read_key_texts, read_site_keys

SETTINGS = FederationSettings(
    classes=('Läsion "A"', "b\\c", "ü"), dim=12, mode="decoder", rounds=3, hidden=(8, 4), beta=1e-5
)


@pytest.fixture
def study(tmp_path: Path) -> Path:
    write_federation(tmp_path / "study", SETTINGS, sites=["clinic", "ward-2"], host="fed.example.org", port=8443)
    return tmp_path / "study"


def test_the_terms_come_back_as_they_were(study: Path) -> None:
    assert FederationSettings.read(study / "federation.toml") == SETTINGS


def test_every_setting_is_written_out(study: Path) -> None:
    written = tomllib.loads((study / "federation.toml").read_text())
    # The keys of sites come later.
    assert written.keys() == {k for k, v in SETTINGS.to_dict().items() if v is not None} - {"sites"}


def test_the_page_has_every_command(study: Path) -> None:
    page = (study / "README.md").read_text()
    for word in (
        "locum federate certificates keys --host fed.example.org",
        "locum federate coordinate federation.toml --keys keys --port 8443 -o out",
        "locum federate key keys clinic",
        "`clinic.pub`, `ward-2.pub`",
        "locum federate join site.toml --coordinator fed.example.org:8443",
        "--ca ca.crt --key keys/clinic.key",
        "Who can do what",
    ):
        assert word in page
    # What opens the port to everyone, or turns a safeguard off, is in no command.
    for word in ("0.0.0.0", "insecure", "flwr", "flower-super", "{", "}"):
        assert word not in page


def test_the_commands_are_those_of_the_program(study: Path) -> None:
    import click

    from locum.cli.federate import group

    page = (study / "README.md").read_text().replace("\\\n", " ")
    lines = re.findall(r"locum federate (\w+) (\S[^;\n`]*)", page.split("## Who can do what")[0])
    assert {verb for verb, _ in lines} == {"certificates", "coordinate", "key", "join"}
    for verb, words in lines:
        command = group.get_command(click.Context(group), verb)
        assert command is not None
        known = {option for param in command.params for option in param.opts}
        assert set(re.findall(r"(?<!\S)--?[a-z]+", words)) <= known


def test_the_site_example_is_a_site_file(study: Path) -> None:
    from locum.federated import SiteFile

    site = SiteFile.read(study / "site.example.toml")
    assert site.privacy() is not None


@pytest.mark.parametrize("place", [".", "/", "release", "release/deeper"])
def test_it_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "release").mkdir()
    (tmp_path / "release" / "manifest.json").write_text("{}")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"made to be sent|need their own folder"):
        write_federation(place, SETTINGS, sites=["a", "b"])
    assert sorted(tmp_path.rglob("*")) == before


def test_no_path_of_this_machine_is_written(study: Path) -> None:
    for file in study.iterdir():
        text = file.read_text()
        assert str(Path.home()) not in text
        assert os.getcwd() not in text
        assert str(study.parent) not in text


def test_nothing_is_overwritten(study: Path) -> None:
    (study / "README.md").unlink()
    before = (study / "federation.toml").read_text()
    with pytest.raises(ConfigError, match="already exists"):
        write_federation(study, FederationSettings(classes=(0, 1), dim=3), sites=["a", "b", "c"])
    assert (study / "federation.toml").read_text() == before
    assert not (study / "README.md").exists()


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
        write_federation(tmp_path / "study", SETTINGS, **options)  # type: ignore[arg-type]
    assert not (tmp_path / "study").exists()


class TestPinning:
    NAMES = ("ant", "bee", "cow")

    @pytest.fixture
    def terms(self, tmp_path: Path) -> Path:
        settings = FederationSettings(classes=("0", "1"), dim=3)
        write_federation(tmp_path / "study", settings, sites=self.NAMES)
        make_certificates(tmp_path / "keys", sites=self.NAMES)
        return tmp_path / "study" / "federation.toml"

    def test_keys_are_in_the_terms_and_anyone_can_compare_them(self, terms: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="pins no keys yet"):
            pin_keys(terms)
        found = pin_keys(terms, tmp_path / "keys")
        text = terms.read_text()
        assert text.startswith("# The terms")
        assert FederationSettings.read(terms).sites == read_key_texts(tmp_path / "keys")
        assert pin_keys(terms) == pin_keys(terms, tmp_path / "keys") == found
        assert terms.read_text() == text
        keys = read_site_keys(tmp_path / "keys")
        assert found == {name: key_id(keys[name]) for name in self.NAMES}

    def test_other_keys_are_refused_and_nothing_is_written(self, terms: Path, tmp_path: Path) -> None:
        pin_keys(terms, tmp_path / "keys")
        before = terms.read_text()
        make_certificates(tmp_path / "others", sites=self.NAMES)
        for folder in ("others", "study"):
            with pytest.raises(ConfigError, match=r"pins other keys|no public key"):
                pin_keys(terms, tmp_path / folder)
        assert terms.read_text() == before

    def test_too_few_sites_are_refused(self, terms: Path, tmp_path: Path) -> None:
        before = terms.read_text()
        (tmp_path / "keys" / "cow.pub").unlink()
        with pytest.raises(ConfigError, match=r"keys of ant, bee, and these terms need at least 3 sites"):
            pin_keys(terms, tmp_path / "keys")
        assert terms.read_text() == before
