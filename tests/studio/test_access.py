"""Who gets in: one browser, from the studio's own pages. What everybody else gets says nothing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from locum.studio.access import HEADERS, Access
from locum.studio.places import Root

MISSING = "in the folder that the studio was opened on."
# Of each kind one: the page, a file of it, reading, changing.
ADDRESSES = [
    ("GET", "/"),
    ("GET", "/static/studio.css"),
    ("GET", "/static/nowhere.js"),
    ("GET", "/api/desk"),
    ("POST", "/api/jobs"),
    ("PUT", "/api/drops/0/file?path=a"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("method", "target"), ADDRESSES)
def test_without_the_cookie_there_is_nothing(studio: Any, method: str, target: str) -> None:
    for headers in ({}, {"x-locum-key": studio.key}, {"cookie": studio.cookie[:-1] + "!", "x-locum-key": studio.key}):
        answer = studio.raw(method, target, headers)
        assert answer.status == 401
        assert studio.key.encode() not in answer.body
        assert b"Run `locum studio` again in the same folder" in answer.body


@pytest.mark.parametrize(("method", "target"), ADDRESSES)
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "https://127.0.0.1:{port}"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=str,
)
def test_other_pages_are_refused(studio: Any, method: str, target: str, headers: dict[str, str]) -> None:
    given = {name.replace("-", "_"): value.format(port=studio.port) for name, value in headers.items()}
    assert studio.ask(method, target, **given).status == 403
    assert (
        studio.ask("GET", "/", origin=f"http://127.0.0.1:{studio.port}", sec_fetch_site="same-origin").status == 200
    )


@pytest.mark.parametrize(
    "hosts", [["evil.example"], ["127.0.0.1:1"], ["127.0.0.1"], ["{own}", "evil.example"], ["{own}", "{own}"], []]
)
def test_other_hosts_are_refused(studio: Any, hosts: list[str]) -> None:
    own = f"127.0.0.1:{studio.port}"
    for target in ("/", "/api/desk", f"/enter?token={studio.token}", "/link", "http://evil.example/"):
        # Without any host only old HTTP is well formed.
        lines = [
            f"GET {target} HTTP/1.{min(1, len(hosts))}",
            f"Cookie: {studio.cookie}",
            f"X-Locum-Key: {studio.key}",
        ]
        lines += [f"Host: {host.format(own=own)}" for host in hosts]
        back = studio.send("\r\n".join([*lines, "Connection: close", "", ""]).encode())
        # Two of them are no HTTP at all.
        assert back.split()[1] == (b"400" if len(hosts) == 2 else b"421")


def test_both_names_of_this_machine_are_its_own(studio: Any) -> None:
    for host in (f"127.0.0.1:{studio.port}", f"localhost:{studio.port}"):
        assert studio.ask("GET", "/", host=host).status == 200


@pytest.mark.parametrize(("method", "target"), [a for a in ADDRESSES if a[1].startswith("/api")])
def test_the_cookie_alone_reads_and_changes_nothing(studio: Any, method: str, target: str) -> None:
    for key in ({}, {"x-locum-key": ""}, {"x-locum-key": "wrong"}, {"x-locum-key": studio.key + "x"}):
        assert studio.raw(method, target, {"cookie": studio.cookie, **key}).status == 403
    lines = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{studio.port}", f"Cookie: {studio.cookie}"]
    lines += [f"X-Locum-Key: {studio.key}", "X-Locum-Key: other", "Connection: close", "", ""]
    assert studio.send("\r\n".join(lines).encode()).split()[1] == b"403"


def test_a_path_in_other_spellings_needs_the_key_too(studio: Any) -> None:
    for target in ("/api%2fdesk", "/%61pi/desk", "//api/desk", "/./api/desk", "/static/../api/desk", "/api//desk"):
        assert studio.raw("GET", target, {"cookie": studio.cookie}).status in (403, 404)


def test_a_token_works_once(start: Callable[..., Any]) -> None:
    studio = start()
    for token in (studio.token, "wrong", "", "%00", "%ff" * 50, "x" * 5000):
        answer = studio.raw("GET", f"/enter?token={token}")
        assert answer.status == 403
        assert "set-cookie" not in answer.headers
        assert studio.key.encode() not in answer.body
    secret = json.loads((studio.state / "studio.json").read_bytes())["secret"]
    token = studio.raw("POST", "/link", {"x-locum-secret": secret}).json["token"]
    assert studio.raw("HEAD", f"/enter?token={token}").status == 401
    assert studio.raw("GET", f"/enter?token={token}", {"sec-fetch-site": "cross-site"}).status == 200
    assert studio.raw("GET", f"/enter?token={token}").status == 403


def test_a_link_needs_the_secret(studio: Any) -> None:
    secret = json.loads((studio.state / "studio.json").read_bytes())["secret"]
    for headers in ({}, {"x-locum-secret": "wrong"}, {"cookie": studio.cookie, "x-locum-key": studio.key}):
        assert studio.raw("POST", "/link", headers).status == 403
    own = f"http://127.0.0.1:{studio.port}"
    assert studio.raw("POST", "/link", {"x-locum-secret": secret, "origin": own}).status == 403
    assert studio.raw("POST", "/link", {"x-locum-secret": secret}).status == 200


def test_the_cookie_is_for_this_page_alone(start: Callable[..., Any]) -> None:
    studio = start()
    secret = json.loads((studio.state / "studio.json").read_bytes())["secret"]
    token = studio.raw("POST", "/link", {"x-locum-secret": secret}).json["token"]
    cookie = studio.raw("GET", f"/enter?token={token}").headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert "Domain" not in cookie


@pytest.mark.parametrize("other", ['a={"json": [1]}', "x", "=", "a=b=c", 'q="unclosed', "é=1", "{own}=wrong", ";;"])
def test_cookies_of_other_servers_do_not_lock_the_owner_out(studio: Any, other: str) -> None:
    other = other.format(own=studio.cookie.split("=")[0]) if "{own}" in other else other
    for jar in (f"{other}; {studio.cookie}", f"{studio.cookie}; {other}", f"{studio.cookie};{other}"):
        assert studio.ask("GET", "/", cookie=jar.encode().decode("latin-1")).status == 200
    assert studio.ask("GET", "/", cookie=other.encode().decode("latin-1")).status == 401


def test_only_the_newest_unused_tokens_work() -> None:
    access = Access(1)
    tokens = [access.new_token() for _ in range(100)]
    assert not access.use_token(tokens[0])
    assert access.use_token(tokens[-1])
    assert not access.use_token(tokens[-1])


def test_every_answer_has_the_headers(studio: Any) -> None:
    def asks() -> list[Any]:
        wrong = {"kind": "fit", "arguments": {"data": 1}}
        return [
            *(studio.ask(method, target) for method, target in ADDRESSES),
            *(studio.raw(method, target) for method, target in ADDRESSES),
            *(studio.ask("GET", "/", origin=origin) for origin in ("null", "http://evil.example")),
            *(studio.ask(method, "/api/desk") for method in ("DELETE", "OPTIONS", "HEAD", "TRACE", "FOO")),
            studio.ask("POST", "/api/jobs", wrong),
            studio.ask("POST", "/api/jobs", b"{"),
            studio.ask("POST", "/api/jobs", b" " * 2**21),
            studio.ask("GET", "/static/studio.css", range="bytes=5-1"),
            studio.ask("GET", "/static/studio.css", range="bytes=0-4"),
            studio.ask("GET", "/api/data?path=nowhere"),
            studio.raw("GET", "/enter?token=wrong"),
            studio.raw("GET", "/", {"host": "evil.example"}),
        ]

    answers = asks()
    assert {answer.status for answer in answers} >= {200, 400, 401, 403, 404, 405, 413, 421}
    for answer in answers:
        assert {name: answer.headers.get(name) for name, _ in HEADERS} == dict(HEADERS)
    # Also what never reaches an application.
    # The last is no longer than what is taken in at once: whoever still sends loses the answer.
    for raw in (b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"GET /" + b"a" * 70_000):
        back = studio.send(raw).decode()
        assert back.startswith("HTTP/1.1 400")
        assert all(f"{name}: {value}\r\n" in back for name, value in HEADERS)


@pytest.fixture(scope="module")
def escapes(studio: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of things outside the root, and of the studio's own."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret.npz").write_bytes((studio.root / "data.npz").read_bytes())
    (studio.root / "link.npz").symlink_to(outside / "secret.npz")
    (studio.root / "way-out").symlink_to(outside)
    (studio.root / "inward").symlink_to(studio.state)
    (studio.root / "loop").symlink_to(studio.root / "loop")
    (studio.root / "folder#").mkdir()
    (studio.root / "folder").mkdir()
    up = os.path.relpath(outside, studio.root)
    return [
        f"{up}/secret.npz",
        str(outside / "secret.npz"),
        f"/{outside}/secret.npz",
        f"folder/../{up}/secret.npz",
        f"folder#/../{up}/secret.npz",
        "folder#/../data.npz",
        "link.npz",
        "way-out",
        "way-out/secret.npz",
        "inward/studio.json",
        "loop",
        "loop/x",
        "..",
        ".",
        "./",
        "/",
        "//",
        "data.npz\0",
        "\0",
        "data.npz/x",
        "..\\secret.npz",
        "%2e%2e/secret.npz",
        "x" * 999,
        "x/" * 450,
        "é" * 300,
        ".locum",
        ".locum/studio",
        ".locum/studio/studio.json",
        "./.locum/studio/studio.json",
        ".locum//studio/studio.json",
        ".locum/studio/jobs/../studio.json",
        "nowhere.npz",
    ]


def same(words: str) -> str:
    """A sentence about a missing thing without the name in it."""
    return re.sub(r"There is no .* in the folder", "There is no ... in the folder", words)


@pytest.mark.parametrize(
    "target",
    [
        "data?path=",
        "release?path=",
        "ledger?path=",
        "risk?release=",
        "zip?release=",
        "verify?key=data.npz&release=",
        "verify?release=data.npz&key=",
    ],
)
def test_reading_outside_the_root_is_as_reading_nothing(studio: Any, escapes: list[str], target: str) -> None:
    for name in escapes:
        for split in ("", "#train"):
            answer = studio.ask("GET", f"/api/{target}{quote(name + split, safe='')}")
            if len(name + split) > 1000:
                continue
            assert (answer.status, same(answer.error)) == (404, f"There is no ... {MISSING}"), name
            assert "outside" not in answer.error or "outside" in name
            assert not re.search(r"(^|[\s'\"])/", answer.error)


def test_jobs_outside_the_root_are_refused(studio: Any, escapes: list[str]) -> None:
    good = {"release": "data.npz", "members": "data.npz", "non_members": "data.npz"}
    shapes: list[tuple[str, dict[str, Any], str]] = [
        ("fit", {"out": "new-release"}, "data"),
        ("fit", {"data": "data.npz", "out": "new-release"}, "non_members"),
        *[("audit", good, name) for name in (*good, "ledger")],
        ("evaluate", {"test": "data.npz"}, "release"),
        ("evaluate", {"release": "data.npz"}, "test"),
        ("evaluate", {"release": "data.npz", "test": "data.npz"}, "train"),
        ("survey", {}, "data"),
        ("train", {}, "release"),
        ("predict", {"data": "data.npz"}, "head"),
        ("predict", {"head": "data.npz"}, "data"),
        ("map", {}, "release"),
        ("preview", {"mode": "records"}, "data"),
    ]
    for name in escapes:
        for kind, others, field in shapes:
            for split in ("", "#train"):
                body = {"kind": kind, "arguments": {**others, field: name + split}}
                answer = studio.ask("POST", "/api/jobs", body)
                if len(name + split) > 1000:
                    continue
                assert (answer.status, same(answer.error)) == (404, f"There is no ... {MISSING}"), (kind, field, name)
        for place in (name, f"{name}/x"):
            if place in ("nowhere.npz", "..\\secret.npz", "%2e%2e/secret.npz", "./x", ".//x"):
                continue
            fit = {"data": "data.npz", "out": place}
            assert studio.ask("POST", "/api/jobs", {"kind": "fit", "arguments": fit}).status in (400, 404), place
            assert studio.ask("POST", "/api/plan", fit).status in (400, 404)
            assert studio.ask("POST", "/api/keys", {"name": place}).status in (400, 404)
        decision = {
            "release": name,
            "outcome": "refused",
            "name": "A",
            "reason": "r",
            "checklist": {},
            "key": "data.npz",
        }
        answer = studio.ask("POST", "/api/decide", decision)
        assert (answer.status, same(answer.error)) == (404, f"There is no ... {MISSING}")
    assert studio.ask("GET", "/api/jobs").json == []


def test_a_name_that_is_there_is_not_split(tmp_path: Path) -> None:
    root = Root(tmp_path)
    for name in ("a", "a#b"):
        (tmp_path / name).write_bytes(b"")
    assert root.records("a#b") == tmp_path.resolve() / "a#b"
    assert root.records("a#c") == tmp_path.resolve() / "a"


def test_a_ledger_is_hidden_but_shown(studio: Any) -> None:
    (studio.root / ".locum" / "ledger.sqlite").write_bytes(b"")
    assert studio.ask("GET", "/api/ledger?path=.locum/ledger.sqlite").json["holdings"] == []
    (studio.root / ".locum" / "ledger.sqlite").unlink()
    for out in (".locum/ledger.sqlite", "a\nb"):
        fit = {"data": "data.npz", "out": out}
        assert studio.ask("POST", "/api/jobs", {"kind": "fit", "arguments": fit}).status == 404


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no '{root}/a/b.npz' here", "no 'a/b.npz' here"),
        ("no {root} here", "no the root here"),
        ("in '{root}': no", "in 'the root': no"),
        ("no {root}-old/x here", "no a file elsewhere here"),
        ("no '/home/Jane Doe/x.npz' here", "no a file elsewhere here"),
        ("no /etc/passwd, sorry", "no a file elsewhere, sorry"),
        ("and/or 1/2 either/or", "and/or 1/2 either/or"),
    ],
)
def test_absolute_paths_are_hidden(tmp_path: Path, text: str, shown: str) -> None:
    root = Root(tmp_path)
    assert root.hide(text.format(root=root.folder)) == shown


def test_the_whole_machine_as_a_root_hides_absolute_paths_too() -> None:
    assert Root(Path("/")).hide("no 'a/b' and no '/etc/passwd'") == "no 'a/b' and no a file elsewhere"


def test_names_that_are_no_text_do_not_break_the_desk(start: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"\xff.npz")).write_bytes(b"")
    (tmp_path / "picture.png").write_bytes(b"")
    (tmp_path / "good.npz").write_bytes(b"")
    (tmp_path / "train" / "cats").mkdir(parents=True)
    (tmp_path / "train" / "cats" / "1.png").write_bytes(b"")
    studio = start()
    assert studio.ask("GET", "/api/desk").json["data"] == ["good.npz"]
    assert studio.log == ""


def test_a_file_that_leaves_is_named_safely(studio: Any) -> None:
    assert studio.ask("GET", "/api/zip?" + urlencode({"release": "data.npz"})).status == 400
