"""Finds the handler of a method and path by a few look-ups, however many routes there are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import DuctileError
from ductile.http.middleware.auth import access_of
from ductile.http.responses import (
    Handler,
    error_response,
    exception_response,
    refusal_response,
    services_of,
)

if TYPE_CHECKING:
    from ductile.http.middleware.fast_path import FastPath

ParameterNames = tuple[str, ...]


class _PathNode:
    """A part of a path: the literal parts or the parameter that may follow, and its handlers."""

    __slots__ = ("literals", "methods", "parameter")

    def __init__(self) -> None:
        self.literals: dict[str, _PathNode] = {}
        self.parameter: _PathNode | None = None
        self.methods: dict[str, tuple[Handler, ParameterNames]] = {}

    def add_child(self, part: str) -> _PathNode:
        if not part.startswith("{"):
            return self.literals.setdefault(part, _PathNode())
        if self.parameter is None:
            self.parameter = _PathNode()
        return self.parameter


class PathRouter:
    """An application of routes such as `/job/{job_id}/tree`; a literal precedes a parameter."""

    fast_path: FastPath | None = None

    def __init__(self, routes: Iterable[tuple[str, str, Handler]]) -> None:
        self.state = State()
        self._root = _PathNode()
        for method, path, handler in routes:
            node, parts = self._root, path.split("/")[1:]
            for part in parts:
                node = node.add_child(part)
            names = tuple(part[1:-1] for part in parts if part.startswith("{"))
            for served in ("GET", "HEAD") if method == "GET" else (method,):
                node.methods[served] = handler, names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self
        request = Request(scope, receive, send)
        try:
            response = await self._find(scope)(request)
        except HTTPException as error:
            response = _no_route(request, error)
        except asyncio.CancelledError:
            if not services_of(request).stopping.is_set():
                raise
            response = error_response(503, "the gateway is stopping", "stopping", scope["path"])
        except Exception as error:  # noqa: BLE001 - every error has a response
            response = exception_response(error, services_of(request), scope["path"])
        await response(scope, receive, send)

    def has_route(self, path: str) -> bool:
        """Return whether any method has a route for this path."""
        return next(_matches(self._root, path.split("/"), 1, ()), None) is not None

    def _find(self, scope: Any) -> Handler:
        """Return the handler and store the path's parameters; raises 404 and 405."""
        parts, method = _split_path(scope), scope["method"]
        allowed: set[str] = set()
        for node, values in _matches(self._root, parts, 1, ()):
            found = node.methods.get(method)
            if found is not None:
                handler, names = found
                scope["path_params"] = dict(zip(names, values, strict=True))
                return handler
            allowed.update(node.methods)
        if allowed:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
        raise HTTPException(404)


def _split_path(scope: Any) -> list[str]:
    """The parts of the path; an encoded slash is part of a name."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower():
        path: str = scope["path"]
        return path.split("/")
    return [unquote(part) for part in raw.decode("latin-1").split("/")]


def _matches(
    node: _PathNode, parts: list[str], at: int, values: tuple[str, ...]
) -> Iterator[tuple[_PathNode, tuple[str, ...]]]:
    if at == len(parts):
        if node.methods:
            yield node, values
        return
    part = parts[at]
    literal = node.literals.get(part)
    if literal is not None:
        yield from _matches(literal, parts, at + 1, values)
    if node.parameter is not None and part:
        yield from _matches(node.parameter, parts, at + 1, (*values, part))


def _no_route(request: Request, error: HTTPException) -> Response:
    """Return 404 or 405; 401 without a valid token, so that strangers cannot list the routes."""
    path, status = request.scope["path"], error.status_code
    try:
        access_of(request).require_principal(request.scope)
    except DuctileError as unauthorized:
        return refusal_response(unauthorized, path)
    code = "method_not_allowed" if status == 405 else "not_found"
    return error_response(status, error.detail, code, path, headers=error.headers)
