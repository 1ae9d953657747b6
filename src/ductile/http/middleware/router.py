"""From a method and a path to its handler by a few look-ups, however many routes there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import DuctileError
from ductile.http.middleware.auth import access_of
from ductile.http.responses import Handler, gateway_of, problem, raised, refuse

if TYPE_CHECKING:
    from ductile.http.middleware.fast_path import FastPath

Names = tuple[str, ...]
"""What a route calls the values in its path."""


class _Node:
    """A part of a path: the words that may follow it, a value that may, and what it answers."""

    __slots__ = ("methods", "value", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.value: _Node | None = None
        self.methods: dict[str, tuple[Handler, Names]] = {}

    def following(self, part: str) -> _Node:
        if not part.startswith("{"):
            return self.words.setdefault(part, _Node())
        if self.value is None:
            self.value = _Node()
        return self.value


class PathRouter:
    """An application of routes such as `/job/{job_id}/tree`; a word goes before a value."""

    fast_path: FastPath | None = None

    def __init__(self, routes: Iterable[tuple[str, str, Handler]]) -> None:
        self.state = State()
        self._root = _Node()
        for method, path, handler in routes:
            node, parts = self._root, path.split("/")[1:]
            for part in parts:
                node = node.following(part)
            names = tuple(part[1:-1] for part in parts if part.startswith("{"))
            for answered in ("GET", "HEAD") if method == "GET" else (method,):
                node.methods[answered] = handler, names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        scope["app"] = self
        request = Request(scope, receive, send)
        try:
            response = await self._find(scope)(request)
        except HTTPException as error:
            response = _no_route(request, error)
        except Exception as error:  # noqa: BLE001 - each has its answer
            response = raised(error, gateway_of(request), scope["path"])
        await response(scope, receive, send)

    def knows(self, path: str) -> bool:
        """Whether a route stands for it, by whatever method."""
        return next(_matches(self._root, path.split("/"), 1, ()), None) is not None

    def _find(self, scope: Any) -> Handler:
        """The handler, with what the path names in the scope; 404 and 405 are raised."""
        parts, method = scope["path"].split("/"), scope["method"]
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


def _matches(
    node: _Node, parts: list[str], at: int, values: tuple[str, ...]
) -> Iterator[tuple[_Node, tuple[str, ...]]]:
    if at == len(parts):
        if node.methods:
            yield node, values
        return
    part = parts[at]
    word = node.words.get(part)
    if word is not None:
        yield from _matches(word, parts, at + 1, values)
    if node.value is not None and part:
        yield from _matches(node.value, parts, at + 1, (*values, part))


def _no_route(request: Request, error: HTTPException) -> Response:
    """404 or 405; 401 without a valid token, so that strangers cannot list the routes."""
    path, status = request.scope["path"], error.status_code
    try:
        access_of(request).require_principal(request.scope)
    except DuctileError as unauthorized:
        return problem(unauthorized, path)
    slug = "method_not_allowed" if status == 405 else "not_found"
    return refuse(status, error.detail, slug, path, headers=error.headers)
