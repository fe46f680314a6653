"""The studio's web application: every address, thin; what it does is in the recipes, jobs and facts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from locum._version import __version__
from locum.errors import ConfigError, LocumError, PolicyError, missing_extra
from locum.io import one_line
from locum.studio import facts
from locum.studio.access import ENTER, LINK, NEW_LINK, Access
from locum.studio.actions import ACTIONS, Action, Fit
from locum.studio.drops import Drops
from locum.studio.jobs import Jobs
from locum.studio.places import NotBelowRootError, Root
from locum.studio.terms import TERMS
from locum.types import DEFAULT_DELTA, DP

STATIC = Path(__file__).parent / "static"
_KINDS = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
# How often a job's events are looked for, in seconds.
_LOOK = 0.15

_ENTER = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Locum studio</title>
<meta name="locum-key" content="{key}"><script src="/static/enter.js"></script></head>
<body><p>Opening the studio. It needs JavaScript.</p></body></html>
"""

Name = Annotated[str, Query(min_length=1, max_length=1000)]
Units = Annotated[float, Query(ge=1, le=1e8)]
Count = Annotated[int, Query(ge=2, le=1000)]
Features = Annotated[int, Query(ge=1, le=100_000)]
Auc = Annotated[float, Query(gt=0.5, le=1)]
Delta = Annotated[float, Query(gt=0, lt=1)]


class Body(BaseModel):
    """What a page sends."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class JobBody(Body):
    """A job to start."""

    kind: Annotated[str, Field(max_length=40)]
    arguments: dict[str, Any]


class Check(Body):
    """One line of the checklist."""

    ok: bool
    note: Annotated[str, Field(max_length=300)] = ""


class DecideBody(Body):
    """A decision."""

    release: Annotated[str, Field(min_length=1, max_length=1000)]
    outcome: Literal["approved", "refused"]
    name: Annotated[str, Field(max_length=200)]
    reason: Annotated[str, Field(max_length=2000)]
    checklist: dict[str, Check]
    key: Annotated[str, Field(min_length=1, max_length=1000)]
    passphrase: Annotated[str, Field(max_length=1024)] | None = None
    include_measured: bool = False
    override: Annotated[str, Field(max_length=500)] | None = None
    overwrite: bool = False


class KeyBody(Body):
    """A key pair to make."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    passphrase: Annotated[str, Field(max_length=1024)] | None = None


def make_app(root: Root, access: Access, jobs: Jobs) -> FastAPI:
    """The application without its guard: `Guard` decides who reaches it."""
    app = FastAPI(title="Locum studio", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    drops = Drops(root)
    drops.clear()
    _errors(app, root)
    _pages(app, access)
    _reading(app, root, jobs)
    _dial(app, root)
    _working(app, root, jobs)
    _deciding(app, root)
    _dropping(app, root, drops)
    return app


def _errors(app: FastAPI, root: Root) -> None:
    """One sentence for whatever goes wrong, with no path outside the root in it."""

    def told(status: int, words: str) -> JSONResponse:
        return JSONResponse({"error": root.hide(one_line(words))}, status_code=status)

    @app.exception_handler(LocumError)
    def known(_: Request, error: LocumError) -> JSONResponse:
        if isinstance(error, NotBelowRootError):
            return told(404, str(error))
        return told(409 if isinstance(error, PolicyError) else 400, str(error))

    @app.exception_handler(RequestValidationError)
    def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        return told(400, _first(error.errors()))

    @app.exception_handler(ModuleNotFoundError)
    def missing(_: Request, error: ModuleNotFoundError) -> JSONResponse:
        return told(400, str(missing_extra(error) or error))

    @app.exception_handler(OSError)
    def refused(_: Request, error: OSError) -> JSONResponse:
        # In quotes, so that a path with spaces is hidden as a whole.
        where = f": {error.filename!r}" if error.filename else ""
        return told(400, f"{error.strerror or 'The system refused'}{where}.")

    @app.exception_handler(Exception)
    def unforeseen(_: Request, error: Exception) -> JSONResponse:
        # It is raised again, and the guard writes it to the log.
        return told(500, "Something went wrong in the studio, and was written to its log.")

    @app.exception_handler(HTTPException)
    def wrong_address(_: Request, error: HTTPException) -> JSONResponse:
        words = {404: "There is nothing at this address.", 405: "This address does not accept that method."}
        return told(error.status_code, words.get(error.status_code, "This request is not valid here."))


def _pages(app: FastAPI, access: Access) -> None:
    @app.get(ENTER)
    def enter(token: str = "") -> Response:
        if not access.use_token(token):
            words = f"This link was used already, or is not one of this studio: each works once. {NEW_LINK}\n"
            return PlainTextResponse(words, status_code=403)
        return HTMLResponse(_ENTER.format(key=access.key), headers={"set-cookie": access.set_cookie()})

    @app.post(LINK)
    def link() -> dict[str, str]:
        return {"token": access.new_token()}

    @app.get("/")
    def page() -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    @app.get("/static/{name:path}")
    def static(name: str) -> Response:
        file = STATIC / name
        # Only what was shipped, by its name in the folder.
        if name not in _shipped():
            raise HTTPException(404)
        return FileResponse(file, media_type=_KINDS.get(file.suffix, "text/plain"))


@cache
def _shipped() -> frozenset[str]:
    return frozenset(p.relative_to(STATIC).as_posix() for p in STATIC.rglob("*") if p.is_file())


def _reading(app: FastAPI, root: Root, jobs: Jobs) -> None:
    @app.get("/api/desk")
    def desk() -> dict[str, Any]:
        return root.listing() | {"version": __version__}

    @app.get("/api/data")
    def data(path: Name) -> dict[str, Any]:
        return facts.about_data(root, path)

    @app.get("/api/columns")
    def columns(path: Name) -> dict[str, Any]:
        return facts.about_columns(root, path)

    @app.get("/api/release")
    def release(path: Name) -> dict[str, Any]:
        return facts.about_release(root, jobs, path)

    @app.get("/api/ledger")
    def ledger(path: Name) -> dict[str, Any]:
        return facts.about_ledger(root, path)

    @app.get("/api/risk")
    def risk(release: Name) -> dict[str, Any]:
        from locum.recipes import read_risk

        return read_risk(root.path(release))

    @app.get("/api/verify")
    def verify(release: Name, key: Name) -> dict[str, Any]:
        from locum.recipes import verify_release

        return verify_release(root.path(release), key=root.path(key)).to_dict() | {"path": release}

    @app.get("/api/terms")
    def terms() -> Mapping[str, str]:
        return TERMS


def _dial(app: FastAPI, root: Root) -> None:
    @app.get("/api/curves")
    def curves(
        units: Units, classes: Count, features: Features = 1280, real_auc: Auc = 0.95, delta: Delta = DEFAULT_DELTA
    ) -> dict[str, Any]:
        from locum.recipes import dial_curves

        return dial_curves(units=units, classes=classes, features=features, real_auc=real_auc, delta=delta)

    @app.get("/api/epsilon")
    def epsilon(
        want_auc: Auc,
        units: Units,
        classes: Count,
        features: Features = 1280,
        real_auc: Auc = 0.95,
        delta: Delta = DEFAULT_DELTA,
    ) -> dict[str, Any]:
        from locum.recipes import epsilon_for

        return epsilon_for(
            want_auc, DP(1.0, delta), units=units, classes=classes, features=features, real_auc=real_auc
        ).to_dict()

    @app.get("/api/measured")
    def measured() -> list[dict[str, Any]]:
        return facts.measured(root)


def _working(app: FastAPI, root: Root, jobs: Jobs) -> None:
    @app.post("/api/plan")
    def plan(body: Fit) -> dict[str, Any]:
        body.check(root)
        return facts.about_plan(root, body)

    def asked_for(body: JobBody) -> Action:
        if body.kind not in ACTIONS:
            raise ConfigError(f"There is no job {body.kind!r}: there are {', '.join(ACTIONS)}.")
        try:
            action = ACTIONS[body.kind].model_validate(body.arguments)
        except ValidationError as error:
            raise ConfigError(_first(error.errors())) from None
        action.check(root)
        return action

    @app.post("/api/command")
    def command(body: JobBody) -> dict[str, str]:
        return {"command": asked_for(body).command()}

    @app.post("/api/jobs", status_code=201)
    def start(body: JobBody) -> dict[str, Any]:
        action = asked_for(body)
        return _shown(jobs.about(jobs.start(body.kind, action.model_dump(), action.command())))

    @app.get("/api/jobs")
    def all_jobs() -> list[dict[str, Any]]:
        return [_shown(job) for job in jobs.all()]

    @app.get("/api/jobs/{job}")
    def one(job: str) -> dict[str, Any]:
        return _shown(jobs.about(job)) | {"result": jobs.result(job)}

    @app.post("/api/jobs/{job}/cancel")
    def cancel(job: str) -> dict[str, Any]:
        jobs.cancel(job)
        return _shown(jobs.about(job))

    def known(job: str) -> None:
        # Before the answer begins: a job that is not there is an error, not a stream that breaks.
        jobs.about(job)

    @app.get("/api/jobs/{job}/events", response_class=EventSourceResponse, dependencies=[Depends(known)])
    async def events(job: str, request: Request) -> AsyncIterator[ServerSentEvent]:
        given = request.headers.get("last-event-id", "0")
        seen = int(given) if given.isdecimal() and len(given) < 12 else 0
        while not await request.is_disconnected():
            # Looked at first: what happens meanwhile is read in the next round.
            over = await asyncio.to_thread(jobs.over, job)
            for event in await asyncio.to_thread(jobs.events, job, seen):
                seen = event["number"]
                yield ServerSentEvent(data=event, id=str(seen))
            if over:
                yield ServerSentEvent(data=_shown(await asyncio.to_thread(jobs.about, job)), event="over")
                return
            await asyncio.sleep(_LOOK)


def _shown(job: dict[str, Any]) -> dict[str, Any]:
    return job | {"title": ACTIONS[job["kind"]].TITLE if job["kind"] in ACTIONS else job["kind"]}


def _deciding(app: FastAPI, root: Root) -> None:
    @app.post("/api/keys", status_code=201)
    def key(body: KeyBody) -> dict[str, Any]:
        from locum.recipes import make_key_pair

        place = root.new(body.name)
        made = make_key_pair(place, passphrase=body.passphrase.encode() if body.passphrase else None)
        return {"path": root.name(place), "key": made.key, "encrypted": made.encrypted}

    @app.post("/api/decide")
    def decide(body: DecideBody) -> dict[str, Any]:
        from locum.recipes import decide_release, findings_beside

        release = root.path(body.release)
        found = findings_beside(release)
        return decide_release(
            release,
            outcome=body.outcome,
            name=body.name,
            reason=body.reason,
            checklist={name: check.model_dump() for name, check in body.checklist.items()},
            key=root.path(body.key),
            passphrase=body.passphrase.encode() if body.passphrase else None,
            audit=found.get("audit"),
            evaluation=found.get("evaluation") if body.include_measured else None,
            include_measured=body.include_measured,
            override=body.override,
            overwrite=body.overwrite,
        ).to_dict()

    @app.get("/api/zip")
    def packed(release: Name) -> Response:
        from locum.release import pack_release

        place = root.path(release)
        facts.check_approved(place)
        # Quotes and line breaks would end the header.
        name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{place.name}.zip")
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(pack_release(place), media_type="application/zip", headers=headers)


def _dropping(app: FastAPI, root: Root, drops: Drops) -> None:
    @app.post("/api/drops", status_code=201)
    def begin() -> dict[str, str]:
        return {"id": drops.begin()}

    @app.put("/api/drops/{drop}/file", status_code=201)
    async def add(drop: str, path: Name, request: Request) -> dict[str, str]:
        await drops.add(drop, path, request.stream())
        return {"path": path}

    @app.post("/api/drops/{drop}/keep")
    def keep(drop: str) -> dict[str, str]:
        return {"path": drops.keep(drop)}

    @app.post("/api/drops/{drop}/receive")
    def receive(drop: str) -> dict[str, Any]:
        from locum.recipes import receive_release

        try:
            found = receive_release(drops.only(drop), root.new("received"))
        finally:
            drops.forget(drop)
        return found | {"path": root.name(Path(found["path"]))}

    @app.post("/api/drops/{drop}/forget")
    def forget(drop: str) -> dict[str, str]:
        drops.forget(drop)
        return {}


def _first(errors: Any) -> str:
    """The first fault that a check of fields found, in a sentence."""
    first = errors[0]
    # The first part says where in the request the field was; a field may have such a name too.
    at = first["loc"][1:] if first["loc"][:1] and first["loc"][0] in ("body", "query", "path") else first["loc"]
    where = ".".join(str(part) for part in at)
    return f"{where or 'The request'}: {str(first['msg'])[:1].lower()}{str(first['msg'])[1:]}."
