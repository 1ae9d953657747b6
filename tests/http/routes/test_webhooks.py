"""Inbound webhooks over real sockets: verified, capped, taken in once, routed."""

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
from tests.http.doors import CONFIG, ECHO, Answer, House, opened, read_all
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
routes:
  - {{from: plain, event_type: webhook.plain, to: other}}
pipelines:
  - {{name: paid, on: webhook.money, steps: [{{uses: other}}]}}
"""
PLUGINS = dict.fromkeys(("echo", "other"), ECHO)


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + HOOKS, plugins=PLUGINS, working=False) as house:
        yield house


@pytest.fixture(scope="module")
def working() -> Iterator[House]:
    with opened(CONFIG + HOOKS, plugins=PLUGINS) as house:
        yield house


def sign(body: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def post(house: House, path: str, body: bytes, **headers: str) -> Answer:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return house.ask("POST", path, body, token=None, headers=sent, door="webhooks")


def job(house: House, job_id: str) -> dict[str, object]:
    found = house.gateway.ledger.read(lambda tx: read.describe_job(tx, job_id))
    assert found is not None
    return found


@pytest.mark.parametrize("prefix", ["", "sha256="])
def test_a_signed_delivery_is_a_job(house: House, prefix: str) -> None:
    body = b'{"a": 1}'
    answer = post(house, "/hook/plain", body, X_Hub_Signature_256=prefix + sign(body))
    assert answer.status == 202
    made = job(house, answer.json["job_id"])
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
def test_an_event_goes_to_routes_and_pipelines_too(house: House, body: bytes) -> None:
    at = int(time.time())
    signature = sign(f"{at}.".encode() + body)
    answer = post(house, "/hook/stripe", body, Stripe_Signature=f"t={at},v1={signature}")
    assert answer.status == 202
    event_id = job(house, answer.json["job_id"])["source_event_id"]
    rows = house.gateway.ledger.read(lambda tx: tx.dicts("pending_jobs", limit=1000))
    made = [row for row in rows if row["source_event_id"] == event_id]
    assert {(row["plugin"], row["pipeline"]) for row in made} == {("echo", ""), ("other", "paid")}
    again = post(house, "/hook/stripe", body, Stripe_Signature=f"t={at},v1={signature}")
    assert again.json == {**answer.json, "duplicate": True}

    plain = post(house, "/hook/plain", b"{}", X_Hub_Signature_256=sign(b"{}")).json["job_id"]
    event_id = job(house, plain)["source_event_id"]
    rows = house.gateway.ledger.read(lambda tx: tx.dicts("pending_jobs", limit=1000))
    assert {row["plugin"] for row in rows if row["source_event_id"] == event_id} == {
        "echo",
        "other",
    }


def test_a_delivery_is_taken_in_once(house: House) -> None:
    body = b'{"ref": "main"}'
    headers = {"X_Hub_Signature_256": f"sha256={sign(body)}", "X_GitHub_Delivery": "guid-1"}
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(house, "/hook/github", body, **headers), range(16)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert sum("duplicate" not in answer.json for answer in answers) == 1
    other = post(house, "/hook/github", body, **{**headers, "X_GitHub_Delivery": "guid-2"})
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
def test_without_a_good_signature_nothing_is_told(house: House, headers: dict[str, str]) -> None:
    answer = post(house, "/hook/plain", b"{}", **headers)
    assert (answer.status, answer.json) == (403, {"error": "forbidden", "code": "forbidden"})


def test_an_endpoints_own_header(house: House) -> None:
    assert post(house, "/hook/own", b"{}", X_Own=sign(b"{}")).status == 202
    assert post(house, "/hook/own", b"{}", X_Hub_Signature_256=sign(b"{}")).status == 403


def test_a_signature_that_comes_twice_is_refused(house: House) -> None:
    line = f"X-Hub-Signature-256: {sign(b'{}')}\r\n"
    head = "POST /hook/plain HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    with house.connect("webhooks") as raw:
        raw.sendall(f"{head}{line}{line}Content-Length: 2\r\n\r\n{{}}".encode())
        assert read_all(raw).startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_is_capped_while_it_streams(house: House, chunked: bool) -> None:
    body = b" " * 1001
    connection = http.client.HTTPConnection(*house.address("webhooks"), timeout=WAIT_LIMIT)
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
        post(house, "/hook/plain", body[:1000], X_Hub_Signature_256=sign(body[:1000])).status == 202
    )


@pytest.mark.parametrize(
    ("body", "kind", "payload"),
    [
        (b"[1, 2]", "application/json", [1, 2]),
        (b"a=1&b=2&b=3", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"]}),
        (b"payload=%7B%22x%22%3A1%7D", "application/x-www-form-urlencoded", {"x": 1}),
        (b"\xff{", "application/json", {"body": "\ufffd{"}),
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
def test_bodies_become_payloads(house: House, body: bytes, kind: str, payload: object) -> None:
    answer = post(house, "/hook/plain", body, X_Hub_Signature_256=sign(body), Content_Type=kind)
    assert answer.status == 202
    event = job(house, answer.json["job_id"])["payload"]
    assert isinstance(event, dict)
    assert event["payload"] == payload


@pytest.mark.parametrize("levels", [100, 101, 253, 254, 255])
def test_however_deep_a_body_is_its_job_runs_and_can_be_seen(working: House, levels: int) -> None:
    body = b"[" * levels + b"]" * levels
    answer = post(working, "/hook/own", body, X_Own=sign(body))
    assert answer.status == 202
    path = f"/job/{answer.json['job_id']}"
    until(lambda: working.ask("GET", path).json["status"] == "succeeded")
    shown = working.ask("GET", path).json["payload"]["payload"]
    assert shown == (json.loads(body) if levels <= DEEPEST else {"body": body.decode()})


def test_strangers_get_nothing_else(house: House) -> None:
    assert house.ask("GET", "/hook/plain", token=None, door="webhooks").status == 405
    assert house.ask("POST", "/nowhere", "{}", token=None, door="webhooks").status == 404
    assert house.ask("GET", "/jobs", door="webhooks").status == 404
    assert house.ask("GET", "/healthz", token=None, door="webhooks").json["status"] == "ok"
    foreign = {"Host": "evil.example"}
    assert house.ask("GET", "/healthz", token=None, door="webhooks", headers=foreign).status == 421
    assert post(house, "/hook/plain", b"{}", Host="evil.example").status == 421
    assert post(house, "/hook/plain", b"{}", Origin="https://evil.example").status == 403


def test_a_delivery_to_a_disabled_plugin_is_kept_as_a_dead_job() -> None:
    """None is lost: it can be retried once the plugin is enabled again."""
    with opened(CONFIG + HOOKS, plugins=PLUGINS) as own:
        off = CONFIG + HOOKS + "plugins: {echo: {enabled: false}}\n"
        own.write("config.yaml", off)
        reloaded = own.ask("POST", "/system/reload")
        assert "plugin echo is disabled" in " ".join(reloaded.json["warnings"])
        taken = post(own, "/hook/own", b"{}", X_Own=sign(b"{}"))
        assert taken.status == 202
        job = own.ask("GET", f"/job/{taken.json['job_id']}?wait=20").json
        assert (job["status"], job["last_error"]) == ("dead", "plugin disabled")


def test_a_reload_swaps_endpoints() -> None:
    with opened(CONFIG + HOOKS, plugins=PLUGINS) as own:
        own.write("config.yaml", (CONFIG + HOOKS).replace("/hook/own", "/hook/new"))
        assert own.ask("POST", "/system/reload").status == 200
        assert post(own, "/hook/new", b"{}", X_Own=sign(b"{}")).status == 202
        assert post(own, "/hook/own", b"{}", X_Own=sign(b"{}")).status == 404
        own.write("config.yaml", CONFIG)
        refused = own.ask("POST", "/system/reload")
        assert refused.status == 409
        assert "webhooks" in refused.json["error"]
