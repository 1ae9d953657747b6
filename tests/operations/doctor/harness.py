"""Running the doctor on the installation of a test."""

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


def make_context(site: Site, **more: Any) -> DoctorContext:
    found = DoctorContext(site.write(), site.environ, datetime.now(UTC))
    for name, value in more.items():
        setattr(found, name, value)
    return found


def examine(site: Site, **more: Any) -> list[Finding]:
    subject = make_context(site, **more)
    try:
        return doctor.examine(subject)
    finally:
        subject.close()


def find_one(findings: list[Finding], what: str) -> Finding:
    """The only finding with this text."""
    [found] = [finding for finding in findings if what in finding.what]
    assert found.why
    return found


@contextmanager
def run_with_socket(site: Site) -> Iterator[tuple[Running, dict[str, Any]]]:
    """A running gateway with its socket, and the arguments for a doctor that uses it."""
    with site.running() as running:
        path = running.gateway.socket_path
        server = HttpServer(
            [Listener("local", local_app(running.gateway), bind_local(path), ConnectionLimiter())]
        )
        server.start()
        client = Client(path)
        try:
            yield running, {"ask": lambda target: client.get(target).json}
        finally:
            server.stop()
            path.unlink()
