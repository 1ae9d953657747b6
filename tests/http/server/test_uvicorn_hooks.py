"""The private parts of uvicorn that `HttpConnection` and the server rely on.

uvicorn may rename them in any release, and would then silently ignore the overrides: the fast
path was off under 0.32. pyproject.toml pins the tested versions; raise the pin after this passes.
"""

from __future__ import annotations

import inspect
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from ductile.http.server.connection import HttpConnection
from ductile.http.server.listeners import _Server

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
OVERRIDDEN = [
    (HttpConnection, HttpToolsProtocol, name)
    for name in (
        "connection_made",
        "connection_lost",
        "data_received",
        "on_message_begin",
        "on_url",
        "on_header",
        "on_headers_complete",
        "on_body",
        "on_message_complete",
        "on_response_complete",
        "_start_asgi_task",
        "pause_writing",
        "resume_writing",
        "send_400_response",
    )
] + [
    (_Server, uvicorn.Server, name)
    for name in ("capture_signals", "startup", "shutdown", "main_loop", "on_tick")
]
READ = {
    HttpToolsProtocol: (
        "app",
        "cycle",
        "flow",
        "headers",
        "loop",
        "parser",
        "pipeline",
        "server_state",
        "transport",
    ),
    RequestResponseCycle: (
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "on_response",
        "response_complete",
        "response_started",
        "scope",
        "transport",
        "waiting_for_100_continue",
    ),
    FlowControl: ("write_paused",),
    ServerState: ("connections", "default_headers"),
}


@pytest.mark.parametrize(("ours", "theirs", "name"), OVERRIDDEN, ids=lambda value: str(value))
def test_every_overridden_hook_exists_with_the_same_parameters(
    ours: type, theirs: type, name: str
) -> None:
    assert name in vars(ours)
    own, original = getattr(ours, name), getattr(theirs, name, None)
    assert original is not None, f"uvicorn has no {theirs.__name__}.{name} any more"
    assert list(inspect.signature(own).parameters) == list(inspect.signature(original).parameters)


def test_every_override_of_a_uvicorn_method_is_listed() -> None:
    listed = {(ours, name) for ours, _, name in OVERRIDDEN}
    for ours, theirs in ((HttpConnection, HttpToolsProtocol), (_Server, uvicorn.Server)):
        shared = {n for n in vars(ours) if callable(vars(ours)[n]) and hasattr(theirs, n)}
        plain = {n for n in shared if not n.startswith("__")}
        assert {(ours, name) for name in plain} <= listed


@pytest.mark.parametrize("owner", READ, ids=lambda owner: owner.__name__)
def test_every_attribute_that_is_read_is_set_by_uvicorn(owner: type[Any]) -> None:
    source = inspect.getsource(owner.__init__)
    missing = [name for name in READ[owner] if f"self.{name}" not in source]
    assert missing == []


def test_uvicorn_starts_every_request_by_the_hook_of_the_fast_path() -> None:
    """`_start_asgi_task` must be called for the first request and for pipelined ones."""
    for method in (HttpToolsProtocol.on_headers_complete, HttpToolsProtocol.on_response_complete):
        assert "self._start_asgi_task(" in inspect.getsource(method)
    # `_normalize_target` has replaced the URL before uvicorn splits it.
    assert "parse_url(self.url)" in inspect.getsource(HttpToolsProtocol.on_headers_complete)
    assert httptools_impl.STATUS_LINE[202].startswith(b"HTTP/1.1 202")


@pytest.mark.parametrize("name", ["uvicorn", "httptools"])
def test_installed_version_is_within_a_pin_with_an_upper_bound(name: str) -> None:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    pin = next(r for r in map(Requirement, project["dependencies"]) if r.name == name)
    assert version(name) in pin.specifier
    assert any(part.operator == "<" for part in pin.specifier)
