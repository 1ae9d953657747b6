"""The webhook listener: verification, limits, deduplication, routing."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ductile.core.jobs.limits import DEEPEST
from ductile.store.jobs import read
from tests.http.harness import CONFIG, ECHO, Answer, ApiHarness, read_all, running_api
from tests.waiting import WAIT_LIMIT, until

SECRET = "hook-secret-0123456789"
HOOKS = f"""\
webhooks:
  listen: 127.0.0.1:0
  endpoints:
    - {{path: /hook/plain, plugin: echo, secret: {SECRET}, max_body_size: 1000}}
    - {{path: /hook/own, plugin: echo, secret: {SECRET}, signature_header: X-Own}}
    - {{path: /hook/github, plugin: echo, secret: {SECRET}, provider: github}}
    - {{path: /hook/stripe, plugin: echo, secret: {SECRET}, provider: stripe, name: money}}
    - {{path: /hook/direct, pipeline: direct, secret: {SECRET}, provider: github}}
routes:
  - {{from: direct, event_type: webhook.direct, to: other}}
  - {{from: plain, event_type: webhook.plain, to: other}}
pipelines:
  - {{name: paid, on: webhook.money, steps: [{{uses: other}}]}}
  - name: direct
    on: webhook.direct
    if: {{path: payload.never, op: exists}}
    steps: [{{uses: echo}}]
"""
PLUGINS = dict.fromkeys(("echo", "other"), ECHO)


@pytest.fixture(scope="module")
def api(webhook_route: str) -> Iterator[ApiHarness]:
    with running_api(CONFIG + HOOKS, plugins=PLUGINS, working=False) as api:
        yield api


@pytest.fixture(scope="module")
def working() -> Iterator[ApiHarness]:
    with running_api(CONFIG + HOOKS, plugins=PLUGINS) as api:
        yield api


def sign(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def post(api: ApiHarness, path: str, body: bytes, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return api.ask("POST", path, body, token=None, headers=sent, listener="webhooks")


def job(api: ApiHarness, job_id: str) -> dict[str, object]:
    found = api.gateway.ledger.read(lambda tx: read.describe_job(tx, job_id))
    assert found is not None
    return found


@pytest.mark.parametrize("prefix", ["", "sha256="])
def test_signed_delivery_creates_a_job(api: ApiHarness, prefix: str) -> None:
    body = b'{"a": 1}'
    answer = post(api, "/hook/plain", body, X_Hub_Signature_256=prefix + sign(body))
    assert answer.status == 202
    made = job(api, answer.json["job_id"])
    assert made["plugin"] == "echo"
    assert made["command"] == "handle"
    assert made["submitted_by"] == "webhook"
    event = made["payload"]
    assert isinstance(event, dict)
    assert event["type"] == "webhook.plain"
    assert event["payload"] == {"a": 1}


@pytest.mark.parametrize(
    "body", [b'{"id": "evt_1"}', b'{"id": "evt_2", "n": 18446744073709551616}']
)
def test_event_starts_routes_and_pipelines(api: ApiHarness, body: bytes) -> None:
    at = int(time.time())
    signature = sign(f"{at}.".encode() + body)
    answer = post(api, "/hook/stripe", body, Stripe_Signature=f"t={at},v1={signature}")
    assert answer.status == 202
    event_id = job(api, answer.json["job_id"])["source_event_id"]
    rows = api.gateway.ledger.read(lambda tx: tx.dicts("pending_jobs", limit=1000))
    made = [row for row in rows if row["source_event_id"] == event_id]
    assert {(row["plugin"], row["pipeline"]) for row in made} == {("echo", ""), ("other", "paid")}
    again = post(api, "/hook/stripe", body, Stripe_Signature=f"t={at},v1={signature}")
    assert again.json == {**answer.json, "duplicate": True}

    plain = post(api, "/hook/plain", b"{}", X_Hub_Signature_256=sign(b"{}")).json["job_id"]
    event_id = job(api, plain)["source_event_id"]
    rows = api.gateway.ledger.read(lambda tx: tx.dicts("pending_jobs", limit=1000))
    assert {row["plugin"] for row in rows if row["source_event_id"] == event_id} == {
        "echo",
        "other",
    }


def test_endpoint_starts_its_pipeline_once(api: ApiHarness) -> None:
    body = b'{"n": 1}'
    signed = {"X_Hub_Signature_256": f"sha256={sign(body)}", "X_GitHub_Delivery": "direct-1"}
    answer = post(api, "/hook/direct", body, **signed)
    assert answer.status == 202
    first = job(api, answer.json["job_id"])
    assert (first["plugin"], first["pipeline"]) == ("echo", "direct")
    assert first["submitted_by"] == "webhook"
    assert first["payload"]["payload"] == {"n": 1}  # type: ignore[index]
    again = post(api, "/hook/direct", body, **signed)
    assert again.json == {**answer.json, "duplicate": True}
    rows = api.gateway.ledger.read(lambda tx: tx.dicts("pending_jobs", limit=1000))
    made = [row for row in rows if row["source_event_id"] == first["source_event_id"]]
    assert sorted((row["plugin"], row["pipeline"]) for row in made) == [
        ("echo", "direct"),
        ("other", ""),
    ]


def test_delivery_is_accepted_once(api: ApiHarness) -> None:
    body = b'{"ref": "main"}'
    headers = {"X_Hub_Signature_256": f"sha256={sign(body)}", "X_GitHub_Delivery": "guid-1"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(api, "/hook/github", body, **headers), range(16)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert sum("duplicate" not in answer.json for answer in answers) == 1
    other = post(api, "/hook/github", body, **{**headers, "X_GitHub_Delivery": "guid-2"})
    assert other.json["job_id"] != answers[0].json["job_id"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"X_Hub_Signature_256": "sha256=" + "0" * 64},
        {"X_Hub_Signature_256": "garbage"},
        {"X_Hub_Signature": sign(b"{}")},
        {"X_Own": sign(b"{}")},
    ],
)
def test_invalid_signature_returns_403_without_details(
    api: ApiHarness, headers: dict[str, str]
) -> None:
    answer = post(api, "/hook/plain", b"{}", **headers)
    assert (answer.status, answer.json) == (403, {"error": "forbidden", "code": "forbidden"})


def test_endpoint_may_name_the_signature_header(api: ApiHarness) -> None:
    assert post(api, "/hook/own", b"{}", X_Own=sign(b"{}")).status == 202
    assert post(api, "/hook/own", b"{}", X_Hub_Signature_256=sign(b"{}")).status == 403


def test_repeated_signature_header_is_refused(api: ApiHarness) -> None:
    line = f"X-Hub-Signature-256: {sign(b'{}')}\r\n"
    head = "POST /hook/plain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with api.connect("webhooks") as raw:
        raw.sendall(f"{head}{line}{line}Content-Length: 2\r\n\r\n{{}}".encode())
        assert read_all(raw).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("chunked", [False, True])
def test_too_large_body_returns_413_while_it_arrives(api: ApiHarness, chunked: bool) -> None:
    body = b" " * 1001
    connection = http.client.HTTPConnection(*api.address("webhooks"), timeout=WAIT_LIMIT)
    headers = {"X-Hub-Signature-256": sign(body)}
    content = iter([body[:500], body[500:]]) if chunked else body
    connection.request("POST", "/hook/plain", content, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())) == (
        413,
        {"error": "too large", "code": "too_large"},
    )
    connection.close()
    assert (
        post(api, "/hook/plain", body[:1000], X_Hub_Signature_256=sign(body[:1000])).status == 202
    )


@pytest.mark.parametrize(
    ("body", "kind", "payload"),
    [
        (b"[1, 2]", "application/json", [1, 2]),
        (b"a=1&b=2&b=3", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"]}),
        (b"payload=%7B%22x%22%3A1%7D", "application/x-www-form-urlencoded", {"x": 1}),
        (b"\xff{", "application/json", {"body": "\ufffd{", "body_base64": "/3s="}),
        (b"[" * 400 + b"]" * 400, "application/json", {"body": "[" * 400 + "]" * 400}),
        (b'{"id": 18446744073709551615}', "application/json", {"id": 2**64 - 1}),
        (b'{"id": 18446744073709551616}', "", {"body": '{"id": 18446744073709551616}'}),
        (
            b"payload=%7B%22id%22%3A18446744073709551616%7D",
            "application/x-www-form-urlencoded",
            {"body": '{"id":18446744073709551616}'},
        ),
    ],
    ids=["json", "form", "json in a form", "neither", "deep", "large", "too large", "in a form"],
)
def test_body_becomes_the_payload_by_its_content_type(
    api: ApiHarness, body: bytes, kind: str, payload: object
) -> None:
    answer = post(api, "/hook/plain", body, X_Hub_Signature_256=sign(body), Content_Type=kind)
    assert answer.status == 202
    event = job(api, answer.json["job_id"])["payload"]
    assert isinstance(event, dict)
    assert event["payload"] == payload


@pytest.mark.parametrize("levels", [100, 101, 253, 254, 255])
def test_job_of_a_deep_body_runs_and_can_be_shown(working: ApiHarness, levels: int) -> None:
    body = b"[" * levels + b"]" * levels
    answer = post(working, "/hook/own", body, X_Own=sign(body))
    assert answer.status == 202
    path = f"/job/{answer.json['job_id']}"
    until(lambda: working.ask("GET", path).json["status"] == "succeeded")
    shown = working.ask("GET", path).json["payload"]["payload"]
    assert shown == (json.loads(body) if levels <= DEEPEST else {"body": body.decode()})


def test_other_paths_and_methods_are_refused(api: ApiHarness) -> None:
    assert api.ask("GET", "/hook/plain", token=None, listener="webhooks").status == 405
    assert api.ask("POST", "/nowhere", "{}", token=None, listener="webhooks").status == 404
    assert api.ask("GET", "/jobs", listener="webhooks").status == 404
    assert api.ask("GET", "/healthz", token=None, listener="webhooks").json["status"] == "ok"
    foreign = {"Host": "evil.example"}
    assert (
        api.ask("GET", "/healthz", token=None, listener="webhooks", headers=foreign).status == 421
    )
    assert post(api, "/hook/plain", b"{}", Host="evil.example").status == 421
    assert post(api, "/hook/plain", b"{}", Origin="https://evil.example").status == 403


def test_delivery_to_a_disabled_plugin_becomes_a_dead_job() -> None:
    """It can be retried once the plugin is enabled again."""
    with running_api(CONFIG + HOOKS, plugins=PLUGINS) as own:
        off = CONFIG + HOOKS + "plugins: {echo: {enabled: false}}\n"
        own.write("config.yaml", off)
        reloaded = own.ask("POST", "/system/reload")
        assert "plugin echo is disabled" in " ".join(reloaded.json["warnings"])
        taken = post(own, "/hook/own", b"{}", X_Own=sign(b"{}"))
        assert taken.status == 202
        job = own.ask("GET", f"/job/{taken.json['job_id']}?wait=20").json
        assert (job["status"], job["last_error"]) == ("dead", "plugin disabled")


def test_reload_replaces_endpoints() -> None:
    with running_api(CONFIG + HOOKS, plugins=PLUGINS) as own:
        own.write("config.yaml", (CONFIG + HOOKS).replace("/hook/own", "/hook/new"))
        assert own.ask("POST", "/system/reload").status == 200
        assert post(own, "/hook/new", b"{}", X_Own=sign(b"{}")).status == 202
        assert post(own, "/hook/own", b"{}", X_Own=sign(b"{}")).status == 404
