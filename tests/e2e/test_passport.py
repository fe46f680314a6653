"""Passport files on the command line: keygen, passport, sign, decide, verify, and the page in a browser."""

from __future__ import annotations

import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from locum.generate import ClassGaussian
from locum.types import DP, SAFES, AttackResult, Estimate

Run = Callable[..., Any]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BUDGET = ("--epsilon", "1", "--delta", "1e-4", "--n-public", "200", "--classes", "ant,bee,cat")
pytest.importorskip("cryptography")


def test_the_whole_journey(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", "train.npz", "-o", "r", *BUDGET).code == 0
    made = program("keygen", "holder", "--json")
    assert made.code == 0, made.err
    assert made.json["public"] == "holder.pub"
    assert stat.S_IMODE((tmp_path / "holder").stat().st_mode) == 0o600
    written = program("passport", "r", "--json")
    assert written.code == 0, written.err
    assert written.json["claim"]["kind"] == "dp"
    assert written.json["audit"] is None
    assert "dp-registry.json" in written.json["files"]
    signed = program("sign", "r", "--key", "holder", "--json")
    assert signed.code == 0, signed.err
    assert signed.json["key"] == made.json["key"]
    assert set(signed.json["files"]) == {"manifest.json", "passport.json"}
    found = program("verify", "r", "--key", "holder.pub", "--ledger", ".locum/ledger.sqlite", "--json")
    assert found.code == 0, found.err
    assert found.json["signed_by"] == made.json["key"]
    (open_question,) = found.json["not_checked"]
    assert "noise was drawn" in open_question
    assert found.json["passport"] == written.json["passport"] == signed.json["files"]["passport.json"]
    assert {"the claimed epsilon covers what its events cost", "the ledger has the charge of this release"} <= set(
        found.json["checks"]
    )
    # The receiver's other verbs read it as any release.
    assert program("sample", "r", "-n", 5, "-o", "s.npz").code == 0
    unasked = program("verify", "r")
    assert unasked.code == 0
    assert "--  the signature was not checked" in unasked.out
    with (tmp_path / "r" / "passport.html").open("a") as page:
        page.write("<!-- -->")
    altered = program("verify", "r", "--key", "holder.pub")
    assert altered.code == 2
    assert "passport.html" in altered.err
    assert altered.out == ""


def test_an_audit_is_told_in_the_words_of_its_file(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", "train.npz", "-o", "r", "--no-dp").code == 0
    fingerprint = program("verify", "r", "--json").json["fingerprint"]
    result = AttackResult(
        "nearest distance",
        "auc",
        attack=Estimate(0.777, 0.7, 0.8, 4711),
        control=Estimate(0.5, 0.45, 0.55, 4711),
        baseline=Estimate.exact(0.5),
    )
    assert result.verdict == "leak"
    audit = {"fingerprint": fingerprint, "verdict": "leak", "results": [result.to_dict()]}
    (tmp_path / "audit.json").write_text(json.dumps(audit))
    shown = program("passport", "r", "--audit", "audit.json")
    assert shown.code == 0, shown.err
    assert "audit       leak" in shown.out
    assert "verdicts of the audit" in shown.out
    again = program("passport", "r", "--audit", "audit.json", "--include-measured", "--force", "--json")
    assert again.json["measured"] is True
    text = (tmp_path / "r" / "passport.md").read_text()
    assert "0.78" in text
    assert "4711" not in text


def test_a_test_says_so_everywhere(program: Run, blobs: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    budget = DP(1.0, 1e-5, n_public=200)
    model = ClassGaussian(privacy=budget, classes=[0, 1, 2], insecure_seed=0)
    model.fit(*blobs).release().save(tmp_path / "r")
    assert program("passport", "r", "--json").json["claim"]["test"] is True
    checked = program("verify", "r", "--json")
    assert checked.json["claim"] == json.loads((tmp_path / "r" / "manifest.json").read_text())["claim"]
    assert checked.json["claim"]["kind"] == "none"
    assert "claim       none; a test with an insecure seed" in program("verify", "r").out
    for name in ("README.md", "passport.md", "passport.html", "croissant.json"):
        assert "This is a test" in (tmp_path / "r" / name).read_text(), name


def test_wrong_use_gets_one_sentence(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", "train.npz", "-o", "r", "--no-dp").code == 0
    (tmp_path / "word").write_text("open sesame\n")
    assert program("keygen", "locked", "--passphrase-file", "word").code == 0
    assert program("keygen", "open").code == 0
    for arguments, word in (
        (("passport", "nothing"), "not a folder"),
        (("passport", "r", "--include-measured"), "--audit FILE"),
        (("passport", "r", "--audit", "none.json"), "none.json"),
        (("passport", "r", "--audit", "word"), "not the JSON of an audit"),
        (("keygen", "open"), "never replaced"),
        (("keygen", "no/such/place"), "Nothing can be written"),
        (("keygen", "asked", "--passphrase"), "--passphrase-file"),
        (("sign", "r", "--key", "none"), "no key"),
        (("sign", "r", "--key", "locked"), "has a passphrase"),
        (("sign", "r", "--key", "open.pub"), "is a public key, which cannot sign"),
        (("sign", "nothing", "--key", "open"), "not a folder"),
        (("verify", "r", "--key", "open.pub"), "is not signed"),
        (("verify", "r", "--key", "open"), "stays with its owner"),
    ):
        if arguments[-1] == "open.pub" and arguments[0] == "sign":
            (tmp_path / "open.pub").chmod(0o600)
        ran = program(*arguments)
        assert ran.code == 2, (arguments, ran.out)
        assert word in ran.err, (arguments, ran.err)
        assert len(ran.err.strip().splitlines()) == 1, ran.err
        assert ran.out == ""
    assert not (tmp_path / "asked").exists()
    assert len(list((tmp_path / "r").iterdir())) == 3
    assert program("sign", "r", "--key", "locked", "--passphrase-file", "word").code == 0
    assert program("verify", "r", "--key", "locked.pub").code == 0


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_the_page_opens_without_a_network(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    assert program("fit", "train.npz", "-o", "r", *BUDGET).code == 0
    assert program("passport", "r").code == 0
    page_file = tmp_path / "r" / "passport.html"
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--headless", "--no-sandbox"])
        for width in (1200, 400):
            context = browser.new_context(offline=True, viewport={"width": width, "height": 900})
            page = context.new_page()
            complaints: list[str] = []
            requests: list[str] = []
            page.on("console", lambda message, seen=complaints: seen.append(message.text))
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.goto(page_file.as_uri())
            assert complaints == []
            assert requests == [page_file.as_uri()]
            for section in ("summary", "claim", "ledger", "audit", "utility", "threats", "check", "glossary"):
                assert page.locator(f"#{section}").is_visible(), section
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 0, "no sideways scrolling"
            assert page.locator("script, img, iframe").count() == 0
            context.close()
        browser.close()


def test_signing_against_the_policy_needs_a_reason_that_everyone_sees(
    program: Run, files: dict[str, Path], tmp_path: Path
) -> None:
    assert program("fit", files["train"], "-o", "r", "--no-dp").code == 0
    sets = ("--members", files["train"], "--non-members", files["test"])
    assert program("audit", "r", *sets, "-o", "audit.json", "--seed", 0).code == 3
    written = program("passport", "r", "--audit", "audit.json")
    assert "NOT met" in written.out.splitlines()[0]
    assert program("keygen", "key").code == 0
    refused = program("sign", "r", "--key", "key")
    assert refused.code == 3
    assert "NOT met" in refused.err
    assert "--override REASON" in refused.err
    assert not (tmp_path / "r" / "signature.json").exists()
    signed = program("sign", "r", "--key", "key", "--override", "agreed with the ethics board, case 17")
    assert signed.code == 0, signed.err
    assert "NOT met" in signed.out.splitlines()[0]
    found = program("verify", "r", "--key", "key.pub")
    assert "NOT met" in found.out.splitlines()[0]
    assert "ethics board, case 17" in found.out.splitlines()[1]
    assert program("verify", "r", "--json").json["override"] == "agreed with the ethics board, case 17"
    # The reason is part of what was signed.
    path = tmp_path / "r" / "signature.json"
    path.write_text(path.read_text().replace("case 17", "case 18"))
    assert program("verify", "r", "--key", "key.pub").code == 2


def test_an_override_that_nothing_needs_is_refused(program: Run, files: dict[str, Path]) -> None:
    assert program("fit", files["train"], "-o", "r", "--no-dp").code == 0
    assert program("keygen", "key").code == 0
    assert "leave it out" in program("sign", "r", "--key", "key", "--override", "because").err
    assert program("sign", "r", "--key", "key").code == 0
    assert program("verify", "r").out.startswith("audit       no passport: no attack on this release is reported")


def test_a_decision_from_the_command_line(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", files["train"], "-o", "r", "--no-dp").code == 0
    assert program("keygen", "key").code == 0
    who = ("--name", "Rosalind Okafor", "--reason", "case seventeen", "--key", "key")
    everyone = ("--confirm", "projects,people,settings,data,outputs")
    for words, tells in (
        ((), "--approve or --refuse"),
        (("--approve", "--refuse"), "--approve or --refuse"),
        (("--approve", "--confirm", "projects, data"), "open: people, settings, outputs"),
        (("--approve", "--confirm", "luck"), "'luck'"),
        (("--refuse", "-o", "r/decision.json"), "names a person"),
        (("--refuse", "-o", "key"), "already exists"),
        (("--refuse", "-o", "key", "--force"), "not a decision"),
        (("--refuse", "--evaluation", "key"), "--include-measured"),
    ):
        ran = program("decide", "r", *who, *words)
        assert ran.code == 2, (words, ran.out)
        assert tells in ran.err, (words, ran.err)
        assert len(ran.err.strip().splitlines()) == 1
        assert ran.out == ""
    shown = "".join(program("decide", "--help").out.replace("│", "").split())
    assert all("".join(question.split()) in shown for _, question in SAFES.values())
    assert len(list((tmp_path / "r").iterdir())) == 3
    approved = program("decide", "r", *who, "--approve", *everyone)
    assert approved.code == 0, approved.err
    assert "no attack on this release is reported" in approved.out.splitlines()[0]
    assert "decision    approved by the holder on" in approved.out.splitlines()[1]
    assert "Okafor" not in approved.out
    assert stat.S_IMODE((tmp_path / "r-decision.json").stat().st_mode) == 0o600
    assert program("decide", "r", *who, "--refuse").code == 2
    refused = program("decide", "r", *who, "--refuse", "--force", "--json")
    assert refused.code == 0, refused.err
    assert refused.json["outcome"] == "refused"
    found = program("verify", "r", "--key", "key.pub", "--decision", "r-decision.json", "--json")
    assert found.code == 0, found.err
    assert found.json["refused"]
    assert found.json["decision"] == refused.json["decision"]
    assert "decision    REFUSED by the holder on" in program("verify", "r").out
    assert "decision    REFUSED" in program("sign", "r", "--key", "key", "--force").out
    assert "decision    removed" in program("passport", "r", "--force").out
    assert program("verify", "r", "--decision", "key.pub").code == 2


def test_approving_against_the_policy_ends_with_code_3(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", files["train"], "-o", "r", "--no-dp").code == 0
    sets = ("--members", files["train"], "--non-members", files["test"])
    assert program("audit", "r", *sets, "-o", "audit.json", "--seed", 0).code == 3
    assert program("keygen", "key").code == 0
    words = ("decide", "r", "--approve", "--name", "R. Okafor", "--reason", "case 17", "--key", "key")
    words += ("--audit", "audit.json", "--confirm", "projects,people,settings,data,outputs")
    refused = program(*words)
    assert refused.code == 3
    assert "--override REASON" in refused.err
    assert not (tmp_path / "r-decision.json").exists()
    assert program(*words, "--override", "agreed with the ethics board").code == 0
    lines = program("verify", "r", "--key", "key.pub", "--decision", "r-decision.json").out.splitlines()
    assert "NOT met" in lines[0]
    assert "ethics board" in lines[1]
    assert "approved by the holder" in lines[2]


def test_consent_to_a_decision_is_typed(program: Run, files: dict[str, Path], tmp_path: Path) -> None:
    assert program("fit", files["train"], "-o", "r", "--no-dp").code == 0
    assert program("keygen", "key").code == 0
    (tmp_path / "locum.toml").write_text('[decide]\nconfirm = "projects,people,settings,data,outputs"\n')
    ran = program("decide", "r", "--approve", "--name", "R", "--reason", "r", "--key", "key")
    assert ran.code == 2
    assert "confirm" in ran.err
