"""A reload opens, moves and closes the listeners of the API and of webhooks."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ductile.config import load
from ductile.engine.gateway import Gateway
from ductile.errors import ConfigError, Refused
from ductile.http.server.listeners import Listener
from ductile.http.server.open import open_listeners
from tests.http.harness import ADMIN, CONFIG, ApiHarness, running_api
from tests.waiting import WAIT_LIMIT, until

HOOKS = """\
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{name: hook, path: /hook, plugin: echo, secret: abcdefghijklmnop}]
"""
LOG_IN = {"Authorization": f"Bearer {ADMIN}"}


@pytest.fixture
def api() -> Iterator[ApiHarness]:
    with running_api(working=False) as api:
        yield api


def names(api: ApiHarness) -> list[str]:
    return [listener.name for listener in api.server.listeners]


def is_closed(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=WAIT_LIMIT).close()
    except ConnectionRefusedError:
        return True
    return False


def is_closed_by_peer(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_first_webhooks_section_is_served_and_its_removal_closes_it(api: ApiHarness) -> None:
    before = api.address("api")
    api.write("config.yaml", CONFIG + HOOKS)
    api.gateway.reload()
    assert names(api) == ["local", "api", "webhooks"]
    assert api.ask("POST", "/hook", {}, listener="webhooks").status == 403
    hooks = api.address("webhooks")
    api.write("config.yaml", CONFIG)
    # Over the API, whose own connection stays: only what has changed is replaced.
    assert api.ask("POST", "/system/reload", {}).status == 200
    assert (names(api), api.address("api"), is_closed(hooks)) == (["local", "api"], before, True)


def test_moved_listener_answers_open_requests_and_takes_no_others(api: ApiHarness) -> None:
    old = api.address("api")
    job_id = api.ask("POST", "/plugin/echo/poll", {}).json["job_id"]
    idle, waiting = (http.client.HTTPConnection(*old, timeout=WAIT_LIMIT) for _ in range(2))
    with closing(idle), closing(waiting):
        idle.request("GET", "/jobs", headers=LOG_IN)
        idle.getresponse().read()
        waiting.request("GET", f"/job/{job_id}?wait=2", headers=LOG_IN)
        until(lambda: any(each.state.name == "ACTIVE" for each in api.limiter()))
        api.write("config.yaml", CONFIG.replace("127.0.0.1:0", "localhost:0"))
        api.gateway.reload()
        assert api.address("api") != old
        assert is_closed(old)
        answer = waiting.getresponse()
        assert (answer.status, json.loads(answer.read())["status"]) == (200, "queued")
        assert answer.getheader("connection") == "close"
        assert idle.sock.recv(1) == b""
    assert api.ask("GET", "/jobs").status == 200


def test_moved_listener_receives_the_rest_of_a_body_and_answers(api: ApiHarness) -> None:
    """Both on the fast path and on a normal route, whose body is larger than those of the first."""
    bodies = [json.dumps({"payload": {"text": "x" * size}}).encode() for size in (10, 100_000)]
    with ExitStack() as stack:
        clients = []
        for body in bodies:
            client = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
            clients.append(stack.enter_context(closing(client)))
            client.putrequest("POST", "/plugin/echo/poll")
            for name, value in (*LOG_IN.items(), ("Content-Length", str(len(body)))):
                client.putheader(name, value)
            client.endheaders(body[:-1])
        until(lambda: [each.state.name for each in api.limiter()] == ["AWAITING_BODY"] * 2)
        api.write("config.yaml", CONFIG.replace("127.0.0.1:0", "localhost:0"))
        api.gateway.reload()
        for client, body in zip(clients, bodies, strict=True):
            client.send(body[-1:])
            answer = client.getresponse()
            assert (answer.status, json.loads(answer.read())["status"]) == (202, "queued")
            assert answer.getheader("connection") == "close"


def test_connection_that_is_accepted_during_the_reload_is_closed(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = api.server._server
    replace = server.replace
    turns = iter(range(4))
    """An accept takes several turns of the loop, and the connection is known after the last one."""

    async def connect_and_replace(listeners: Sequence[Listener]) -> None:
        client.connect()
        for _ in range(next(turns)):
            await asyncio.sleep(0)
        await replace(listeners)

    monkeypatch.setattr(server, "replace", connect_and_replace)
    for host in ["localhost", "127.0.0.1"] * 2:
        client = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
        api.write("config.yaml", CONFIG.replace("127.0.0.1:0", f"{host}:0"))
        api.gateway.reload()
        with closing(client):
            assert is_closed_by_peer(client.sock)


def test_reload_that_closes_a_listener_before_it_is_served_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    gateway = Gateway(load(tmp_path, environ={}), environ={})
    gateway.open()
    try:
        server = open_listeners(gateway)
        (tmp_path / "config.yaml").write_text(CONFIG.replace("enabled: true", "enabled: false"))
        before = gateway.compiled
        with pytest.raises(Refused, match="the gateway is starting"):
            gateway.reload()
        assert gateway.compiled is before
        for listener in server.listeners:
            listener.socket.close()
    finally:
        gateway.close()


def test_address_in_use_refuses_the_reload_and_changes_nothing(api: ApiHarness) -> None:
    before, old = api.gateway.compiled, api.address("api")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        changed = f"{HOOKS}service: {{max_workers: 5}}\n".replace(":0\n", f":{port}\n")
        api.write("config.yaml", CONFIG.partition("\n")[2] + changed)
        with pytest.raises(ConfigError, match="cannot listen on") as refused:
            api.gateway.reload()
    [problem] = refused.value.problems
    assert (problem.path, problem.line is not None) == (("webhooks", "listen"), True)
    assert (api.gateway.compiled is before, names(api)) == (True, ["local", "api"])
    assert (api.address("api"), api.ask("GET", "/jobs").status) == (old, 200)


def test_port_of_the_own_listener_needs_a_restart(api: ApiHarness) -> None:
    port = api.address("api")[1]
    api.write("config.yaml", CONFIG.replace("127.0.0.1:0", f"127.0.0.1:{port}"))
    with pytest.raises(ConfigError, match="this gateway holds the port"):
        api.gateway.reload()


def test_api_that_is_disabled_is_closed_and_returns(api: ApiHarness) -> None:
    old = api.address("api")
    api.write("config.yaml", CONFIG.replace("enabled: true", "enabled: false"))
    api.gateway.reload()
    assert (names(api), is_closed(old)) == (["local"], True)
    api.write("config.yaml", CONFIG)
    api.gateway.reload()
    assert api.ask("GET", "/jobs").status == 200
