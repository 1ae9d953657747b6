from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ductile.http.app import local_app
from ductile.http.routes.webhooks import WebhookFastPath
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.http.server.listeners import HttpServer, Listener, bind_local
from tests.engine.conftest import site  # noqa: F401 - a fixture
from tests.engine.site import Running, Site
from tests.http.client import Client
from tests.store.engines.sqlite.conftest import disk  # noqa: F401 - fixture


@pytest.fixture(scope="module", params=["fast path", "normal route"])
def webhook_route(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the tests of a module twice: each webhook guarantee holds on both routes."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "normal route":
            patch.setattr(WebhookFastPath, "route_for", lambda *_: None)
        yield request.param


class Served:
    def __init__(self, running: Running, client: Client) -> None:
        self.running, self.client = running, client
        self.get, self.post = client.get, client.post


@pytest.fixture
def serve(site: Site) -> Iterator[Callable[[], Served]]:  # noqa: F811
    """Start a gateway and its local socket with the plugins and settings of the test."""
    with ExitStack() as stack:

        def serve() -> Served:
            running = stack.enter_context(site.running())
            path = running.gateway.socket_path
            server = HttpServer(
                [
                    Listener(
                        "local", local_app(running.gateway), bind_local(path), ConnectionLimiter()
                    )
                ]
            )
            server.start()
            stack.callback(server.stop)
            return Served(running, Client(path))

        yield serve
