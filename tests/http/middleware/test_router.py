"""Finding a handler: literals precede parameters; unknown paths and methods are refused."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from ductile.core.values.redact import Redactor
from ductile.errors import NotFound
from ductile.http.middleware.auth import AccessControl
from ductile.http.middleware.router import PathRouter
from ductile.http.responses import Handler

ROUTES = (
    ("GET", "/"),
    ("GET", "/jobs"),
    ("GET", "/plugin/{plugin}"),
    ("GET", "/plugin/{plugin}/openapi.json"),
    ("POST", "/plugin/{plugin}/{command}"),
    ("GET", "/job/{job_id}"),
    ("GET", "/job/{id}/tree"),
)


def naming(route: str) -> Handler:
    """Return a handler that responds with the route's path and parameters."""

    async def handler(request: Request) -> Response:
        values = [f"{name}={value}" for name, value in sorted(request.path_params.items())]
        return PlainTextResponse(" ".join([route, *values]))

    return handler


def raising(error: Exception) -> Handler:
    async def handler(_request: Request) -> Response:
        raise error

    return handler


def ask(method: str, path: str, handler: Handler | None = None) -> tuple[int, str, dict[str, str]]:
    router = PathRouter((m, p, handler or naming(p)) for m, p in ROUTES)
    gateway = SimpleNamespace(compiled=SimpleNamespace(redactor=Redactor()))
    context: Any = SimpleNamespace(services=gateway)
    router.state.app_context = context
    router.state.access = AccessControl(context, local=True)
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "headers": [],
        "query_string": b"",
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(router(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], sent[1]["body"].decode(), headers


@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("GET", "/", "/"),
        ("GET", "/jobs", "/jobs"),
        ("HEAD", "/jobs", "/jobs"),
        ("GET", "/plugin/echo", "/plugin/{plugin} plugin=echo"),
        ("GET", "/plugin/a b", "/plugin/{plugin} plugin=a b"),
        ("GET", "/plugin/echo/openapi.json", "/plugin/{plugin}/openapi.json plugin=echo"),
        (
            "POST",
            "/plugin/echo/openapi.json",
            "/plugin/{plugin}/{command} command=openapi.json plugin=echo",
        ),
        ("GET", "/job/1", "/job/{job_id} job_id=1"),
        ("GET", "/job/1/tree", "/job/{id}/tree id=1"),
        ("GET", "/job/tree", "/job/{job_id} job_id=tree"),
        ("GET", "/job/a%2Fb%C3%A9", "/job/{job_id} job_id=a/b\u00e9"),
        ("GET", "/job/a%2ftree", "/job/{job_id} job_id=a/tree"),
        ("GET", "/job/a%2Fb/tree", "/job/{id}/tree id=a/b"),
    ],
)
def test_path_finds_its_handler_and_parameters(method: str, path: str, said: str) -> None:
    assert ask(method, path)[:2] == (200, said)


@pytest.mark.parametrize(
    "path", ["", "/nowhere", "/jobs/", "//jobs", "/plugin/", "/plugin//poll", "/job/1/tree/x"]
)
def test_unknown_path_returns_404(path: str) -> None:
    assert ask("GET", path)[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", "/jobs", "GET, HEAD"),
        ("PUT", "/plugin/echo/openapi.json", "GET, HEAD, POST"),
        ("GET", "/plugin/echo/poll", "POST"),
    ],
)
def test_other_method_returns_405_with_the_allowed_ones(
    method: str, path: str, allowed: str
) -> None:
    status, _, headers = ask(method, path)
    assert (status, headers["allow"]) == (405, allowed)


def test_error_of_a_handler_becomes_a_response(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask("GET", "/jobs", raising(NotFound("there is none")))[:2] == (
        404,
        '{"error":"there is none","code":"not_found"}\n',
    )
    assert ask("GET", "/jobs", raising(ClientDisconnect()))[0] == 400
    assert ask("GET", "/jobs", raising(KeyError("secret")))[:2] == (
        500,
        '{"error":"internal error","code":"internal"}\n',
    )
    assert "request failed" in capsys.readouterr().out


def test_look_up_does_not_depend_on_the_number_of_routes() -> None:
    router = PathRouter(("GET", f"/r{number}", naming("x")) for number in range(1000))
    looked: list[str] = []

    class Watched(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            looked.append(key)
            return super().get(key, default)

    router._root.literals = Watched(router._root.literals)
    router._find({"path": "/r999", "method": "GET"})
    assert looked == ["r999"]
