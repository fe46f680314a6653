"""A small hub on this machine: the calls that huggingface_hub makes to read and to push, with files in memory."""

from __future__ import annotations

import base64
import hashlib
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

COMMIT = "c" * 40


@dataclass
class Repo:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Hub:
    """Repositories by "models/OWNER/NAME", what was asked for, and what cards were checked."""

    repos: dict[str, Repo] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    cards: list[dict[str, Any]] = field(default_factory=list)
    # A hub whose organization makes everything public.
    always_public: bool = False
    endpoint: str = ""


class Handler(http.server.BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: Any) -> None: ...

    def answer(self, body: Any, status: int = 200, **headers: str) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(raw)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def missing(self, code: str = "RepoNotFound") -> None:
        self.answer({"error": "not found"}, 404, X_Error_Code=code)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.hub.calls.append(f"{self.command} {self.path}")
        if found := re.match(r"/api/(models|datasets)/([^/]+/[^/?]+)(/revision/[^?]+)?(\?.*)?$", self.path):
            repo = self.hub.repos.get(f"{found[1]}/{found[2]}")
            if repo is None:
                return self.missing()
            files = [{"rfilename": name, "size": len(raw)} for name, raw in repo.files.items()]
            about = {"id": found[2], "private": repo.private, "sha": COMMIT, "siblings": files, "tags": []}
            return self.answer({**about, "modelId": found[2], "downloads": 0, "likes": 0})
        if found := re.match(r"/(datasets/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)$", self.path):
            repo = self.hub.repos.get(f"{'datasets' if found[1] else 'models'}/{found[2]}")
            raw = None if repo is None else repo.files.get(found[3])
            if raw is None:
                return self.missing("EntryNotFound")
            return self.answer(raw, ETag=f'"{hashlib.sha1(raw).hexdigest()}"', X_Repo_Commit=COMMIT)
        return self.missing()

    def do_POST(self) -> None:
        self.hub.calls.append(f"POST {self.path}")
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/api/validate-yaml":
            self.hub.cards.append(json.loads(raw))
            return self.answer({"errors": [], "warnings": []})
        if self.path == "/api/repos/create":
            asked = json.loads(raw)
            owner = asked.get("organization") or "me"
            kind = f"{asked.get('type') or 'model'}s"
            private = asked.get("private", asked.get("visibility") == "private")
            self.hub.repos[f"{kind}/{owner}/{asked['name']}"] = Repo(bool(private) and not self.hub.always_public)
            return self.answer(
                {"url": f"{self.hub.endpoint}/{owner}/{asked['name']}", "name": f"{owner}/{asked['name']}"}
            )
        found = re.match(r"/api/(models|datasets)/([^/]+/[^/]+)/(preupload|commit)/", self.path)
        if found and found[3] == "preupload":
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(raw)["files"]
            ]
            return self.answer({"files": files})
        if found:
            repo = self.hub.repos[f"{found[1]}/{found[2]}"]
            for line in map(json.loads, raw.decode().splitlines()):
                if line["key"] == "file":
                    repo.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    del repo.files[line["value"]["path"]]
            url = f"{self.hub.endpoint}/{found[2]}/commit/{COMMIT}"
            return self.answer({"commitUrl": url, "commitOid": COMMIT, "pullRequestUrl": None})
        return self.missing()


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()
    handler = type("OwnHandler", (Handler,), {"hub": hub})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        hub.endpoint = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield hub
        finally:
            server.shutdown()
