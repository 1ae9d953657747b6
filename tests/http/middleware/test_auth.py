"""Access control: every route refuses missing tokens, missing scopes, wrong hosts and origins."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator

import pytest

from ductile.engine.ingress import login_limiter
from ductile.errors import LedgerError
from ductile.http.endpoint import Endpoint
from ductile.http.middleware.source import is_from_this_machine
from ductile.http.route_table import ENDPOINTS
from ductile.http.routes.healthz import check_health
from tests.http.harness import ADMIN, CONFIG, NOTHING, READER, ApiHarness, running_api
from tests.waiting import WAIT_LIMIT

OPEN_TO_ANY_TOKEN = {
    ("GET", path)
    for path in (
        "/pipelines",
        "/pipeline/{name}",
        "/plugins",
        "/plugin/{plugin}",
        "/plugin/{plugin}/openapi.json",
        "/skills",
        "/openapi.json",
        "/.well-known/ai-plugin.json",
        "/ui/session",
    )
} | {("DELETE", "/ui/session")}
PUBLIC = {
    ("GET", "/"),
    ("GET", "/healthz"),
    ("GET", "/docs"),
    ("POST", "/gateway/webhooks/{webhook_id}"),
    ("POST", "/ui/session"),
}
GUARDED = [endpoint for endpoint in ENDPOINTS if endpoint.token_scope is not None]
SCOPED = [e for e in ENDPOINTS if (e.method, e.path) not in OPEN_TO_ANY_TOKEN | PUBLIC]
VALUES = {"plugin": "echo", "command": "poll"}


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with pytest.MonkeyPatch.context() as patch, running_api(working=False) as api:
        patch.setattr(login_limiter, "MAX_FAILURES", 1_000_000)
        yield api


def path_of(endpoint: Endpoint) -> str:
    path = endpoint.path
    for part in path.split("/"):
        if part.startswith("{"):
            path = path.replace(part, VALUES.get(part.strip("{}"), "x"))
    return path


def test_only_the_listed_routes_are_open_to_any_token_or_to_everyone() -> None:
    by_scope: dict[str | None, set[tuple[str, str]]] = {}
    for endpoint in ENDPOINTS:
        by_scope.setdefault(endpoint.token_scope, set()).add((endpoint.method, endpoint.path))
    assert by_scope["any"] == OPEN_TO_ANY_TOKEN
    assert by_scope[None] == PUBLIC


def test_missing_token_returns_401_on_every_route(api: ApiHarness) -> None:
    for endpoint in GUARDED:
        answer = api.ask(endpoint.method, path_of(endpoint), token=None)
        assert (answer.status, answer.slug) == (401, "unauthorized"), endpoint
        assert answer.headers["www-authenticate"] == "Bearer", endpoint


@pytest.mark.parametrize("token", ["wrong", "dtk_wrong", ADMIN[:-1], ADMIN + "x"])
def test_wrong_token_returns_401_on_every_route(api: ApiHarness, token: str) -> None:
    for endpoint in GUARDED:
        answer = api.ask(endpoint.method, path_of(endpoint), token=token)
        assert answer.status == 401, endpoint


def test_missing_scope_returns_403_on_every_route(api: ApiHarness) -> None:
    for endpoint in SCOPED:
        answer = api.ask(endpoint.method, path_of(endpoint), token=NOTHING)
        assert (answer.status, answer.slug) == (403, "forbidden"), endpoint


def test_wrong_host_returns_421_on_every_route(api: ApiHarness) -> None:
    for endpoint in ENDPOINTS:
        answer = api.ask(endpoint.method, path_of(endpoint), headers={"Host": "evil.example"})
        assert (answer.status, answer.slug) == (421, "wrong_host"), endpoint


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_foreign_origin_returns_403_on_every_route(api: ApiHarness, origin: str) -> None:
    for endpoint in ENDPOINTS:
        answer = api.ask(endpoint.method, path_of(endpoint), headers={"Origin": origin})
        assert (answer.status, answer.slug) == (403, "foreign_origin"), endpoint


@pytest.mark.parametrize(
    "header", ["Basic abc", "Bearer", "", f"Token {ADMIN}", f"Bearer  x {ADMIN}"]
)
def test_invalid_authorization_header_returns_401(api: ApiHarness, header: str) -> None:
    answer = api.ask("GET", "/jobs", token=None, headers={"Authorization": header})
    assert answer.status == 401


def test_repeated_authorization_header_returns_401(api: ApiHarness) -> None:
    with api.connect() as raw:
        line = f"Authorization: Bearer {ADMIN}\r\n"
        raw.sendall(f"GET /jobs HTTP/1.1\r\nHost: localhost\r\n{line}{line}\r\n".encode())
        assert raw.recv(100).startswith(b"HTTP/1.1 401")


def test_unknown_path_returns_401_without_a_token(api: ApiHarness) -> None:
    assert api.ask("GET", "/nowhere", token=None).status == 401
    assert api.ask("GET", "/nowhere").status == 404
    assert api.ask("DELETE", "/jobs", token=None).status == 401
    assert api.ask("DELETE", "/jobs").status == 405


def test_scope_allows_its_routes_only(api: ApiHarness) -> None:
    assert api.ask("GET", "/jobs", token=READER).status == 200
    assert api.ask("GET", "/plugins", token=READER).status == 200
    assert api.ask("GET", "/plugins", token=NOTHING).status == 200
    assert api.ask("POST", "/plugin/echo/peek", "{}", token=READER).status == 202
    assert api.ask("POST", "/plugin/echo/poll", "{}", token=READER).status == 403
    assert api.ask("POST", "/plugin/other/peek", "{}", token=READER).status == 403
    assert api.ask("POST", "/plugin/echo/poll", "{}").status == 202
    assert api.ask("POST", "/plugin/echo/nothing", "{}").status == 400
    assert api.ask("POST", "/plugin/other/poll", "{}").status == 400
    assert api.ask("POST", "/job/x/cancel", token=READER).status == 403


TOKENS_YAML = """\
tokens:
  - {name: hook, key: hook-secret-0123456789}
  - {name: ci, key: ci-token-0123456789, scopes: [jobs:ro]}
"""


@pytest.mark.parametrize("path", ["/plugins", "/pipelines", "/openapi.json", "/jobs"])
def test_entry_without_scopes_does_not_authenticate(path: str) -> None:
    files = {"tokens.yaml": TOKENS_YAML}
    config = f"include: [tokens.yaml]\n{CONFIG}"
    with running_api(config, working=False, files=files, seal=True) as api:
        assert api.ask("GET", path, token="ci-token-0123456789").status == 200
        answer = api.ask("GET", path, token="hook-secret-0123456789")
        assert (answer.status, answer.slug) == (401, "unauthorized")


def test_own_host_names_are_accepted(api: ApiHarness) -> None:
    for host in ("localhost", "127.0.0.1", "LOCALHOST:99", "[::1]:8080", "localhost."):
        assert api.ask("GET", "/healthz", headers={"Host": host}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "[127.0.0.1]evil.com", "[127.0.0.1]", "[::1]evil.com", "[::1", "localhost:80:80",
        "localhost:x", "localhost,evil.com", "localhost@evil.com", "user@localhost", "localhost/",
        "127.0.0.1 evil.com", "localhost:\u0661", "",
    ],
)  # fmt: skip
def test_invalid_host_is_refused(api: ApiHarness, host: str) -> None:
    answer = api.ask("GET", "/healthz", headers={"Host": host.encode().decode("latin-1")})
    assert (answer.status, answer.slug) == (421, "wrong_host")


def test_repeated_host_header_is_refused(api: ApiHarness) -> None:
    with api.connect() as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n")
        assert raw.recv(100).split()[1] in (b"400", b"421")


def test_own_origin_is_accepted(api: ApiHarness) -> None:
    host, port = api.address("api")
    answer = api.ask("GET", "/jobs", headers={"Origin": f"http://{host}:{port}"})
    assert answer.status == 200
    assert "access-control-allow-origin" not in answer.headers


def test_configured_hosts_and_origins_are_accepted() -> None:
    more = "  allowed_hosts: [gw.example, '*.lan']\n  allowed_origins: ['https://ui.example']\n"
    with running_api(CONFIG + more, working=False) as api:
        for host in ("gw.example:8080", "a.lan"):
            assert api.ask("GET", "/healthz", headers={"Host": host}).status == 200
        assert api.ask("GET", "/healthz", headers={"Host": "xlan"}).status == 421
        origin = {"Origin": "https://ui.example"}
        answer = api.ask("GET", "/jobs", headers=origin)
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://ui.example"
        preflight = api.ask("OPTIONS", "/jobs", token=None, headers=origin)
        assert preflight.status == 204
        assert "Authorization" in preflight.headers["access-control-allow-headers"]
        assert api.ask("GET", "/jobs", token=None, headers=origin).status == 401


def test_reload_replaces_tokens_and_keeps_connections() -> None:
    with running_api() as own:
        kept = http.client.HTTPConnection(*own.address("api"), timeout=WAIT_LIMIT)

        def status(token: str) -> int:
            kept.request("GET", "/jobs", headers={"Authorization": f"Bearer {token}"})
            response = kept.getresponse()
            response.read()
            return response.status

        assert status(ADMIN) == 200
        before = kept.sock
        own.write("config.yaml", CONFIG.replace(ADMIN, "another-admin-012345"))
        assert own.ask("POST", "/system/reload").status == 200
        assert status(ADMIN) == 401
        assert status("another-admin-012345") == 200
        assert kept.sock is before
        kept.close()


def test_healthz_is_public_with_details_for_local_callers(api: ApiHarness) -> None:
    near = api.ask("GET", "/healthz", token=None)
    assert near.json["status"] == "ok"
    assert near.json["plugins_circuit_open"] == 0
    assert near.json["plugins_loaded"] == 1


@pytest.mark.parametrize(
    ("client", "near"),
    [
        (("127.0.0.1", 1), True),
        (("::1", 1), True),
        (("::ffff:127.0.0.1", 1), True),
        (("10.0.0.1", 1), False),
        (("2001:db8::1", 1), False),
        (("localhost.evil.example", 1), False),
    ],
)
def test_loopback_addresses_are_local(api: ApiHarness, client: tuple[str, int], near: bool) -> None:
    assert is_from_this_machine({"client": client}) is near
    body = json.loads(asyncio.run(check_health(api.gateway, details=near)).body)
    assert (body.keys() == {"status"}) is not near


@pytest.mark.parametrize("near", [True, False])
def test_healthz_returns_503_if_the_ledger_fails(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, near: bool
) -> None:
    def broken(*_: object) -> None:
        raise LedgerError("the disk is gone")

    monkeypatch.setattr(api.gateway.ledger, "read", broken)
    answer = asyncio.run(check_health(api.gateway, details=near))
    body = json.loads(answer.body)
    assert (answer.status_code, body["status"]) == (503, "error")
    assert (body.get("error") == "the disk is gone") is near
    assert (body.keys() == {"status"}) is not near
