from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from locum.federated import Reply, Request

pytest.importorskip("flwr")

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from locum.federated.transport.client_app import app
from locum.federated.transport.flower import to_record


def ask(content: RecordDict, node_config: dict[str, Any], run_config: dict[str, Any] | None = None) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1
    message = Message(content, dst_node_id=5, message_type="train", ttl=60, group_id="1")
    context = Context(run_id=7, node_id=5, node_config=node_config, state=RecordDict(), run_config=run_config or {})
    return app(message, context)


def test_an_error_tells_its_class_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mrs-smith.toml"
    reply = ask(to_record(Request("join", 0, "n")), {"site": str(file)})
    assert reply.has_error()
    assert reply.error.reason == "ConfigError"
    assert "smith" in capfd.readouterr().err  # at the site it is said in full


def test_nor_does_a_bug(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "site.toml").write_bytes(b"\0")
    reply = ask(to_record(Request("join", 0, "n")), {"site": "mrs-smith\0.toml"})
    assert reply.error.reason == "ValueError"
    assert "Traceback" in capfd.readouterr().err


def test_the_run_cannot_choose_the_files_of_a_site(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    here = {"site": str(tmp_path / "site.toml"), "sites-folder": str(tmp_path)}
    assert ask(to_record(Request("join", 0, "n")), {"partition-id": 0}, here).error.reason == "ConfigError"
    assert "--node-config" in capfd.readouterr().err


@pytest.mark.parametrize("content", [RecordDict(), to_record(Reply("join", 0, "n"))])
def test_what_is_no_question_is_refused(content: RecordDict, capfd: pytest.CaptureFixture[str]) -> None:
    assert ask(content, {"site": "x"}).error.reason == "FormatError"


def test_it_starts_without_torch() -> None:
    code = (
        "import sys, locum.federated.transport.client_app as c; assert not {'torch', 'sklearn'} & set(sys.modules), c"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
