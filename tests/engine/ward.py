"""A doctor's visit to a test's own gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from ductile.http.app import local_app
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.http.server.listeners import HttpServer, Listener, bind_local
from ductile.operations import doctor
from ductile.operations.doctor import DoctorContext, Finding, Severity
from tests.engine.site import Running, Site
from tests.http.client import Client

ERROR, WARNING = Severity.ERROR, Severity.WARNING


def context(site: Site, **more: Any) -> DoctorContext:
    found = DoctorContext(site.write(), site.environ, datetime.now(UTC))
    for name, value in more.items():
        setattr(found, name, value)
    return found


def examined(site: Site, **more: Any) -> list[Finding]:
    who = context(site, **more)
    try:
        return doctor.examine(who)
    finally:
        who.close()


def one(findings: list[Finding], what: str) -> Finding:
    """The only finding that says so."""
    [found] = [finding for finding in findings if what in finding.what]
    assert found.why
    return found


@contextmanager
def attended(site: Site) -> Iterator[tuple[Running, dict[str, Any]]]:
    """A gateway at work with its socket, and how a doctor asks it."""
    with site.running() as house:
        path = house.gateway.socket_path
        server = HttpServer(
            [Listener("local", local_app(house.gateway), bind_local(path), ConnectionLimiter())]
        )
        server.start()
        client = Client(path)
        try:
            yield house, {"ask": lambda target: client.get(target).json}
        finally:
            server.stop()
            path.unlink()
