"""Refused webhooks: no details for the sender, a log line for the operator."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from ductile.http.routes import webhooks
from tests.http.harness import CONFIG, ApiHarness, running_api
from tests.http.routes.test_webhooks import HOOKS, PLUGINS, SECRET, post, sign
from tests.waiting import WAIT_LIMIT

FORGED = sign(b"{}", "another-secret-0123456789")
OLD = f"t={int(time.time()) - 3600},v1={FORGED}"


@pytest.fixture
def api(webhook_route: str) -> Iterator[ApiHarness]:
    with running_api(CONFIG + HOOKS, plugins=PLUGINS, working=False) as api:
        yield api


def refusals(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["message"] == "webhook refused"]


def test_sender_of_a_too_large_body_gets_its_413(api: ApiHarness) -> None:
    """urllib sends the whole body, asks for the connection's end, and then reads."""
    host, port = api.address("webhooks")
    url = f"http://{host}:{port}/hook/plain"
    for _ in range(5):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(url, b"x" * 5_000_000), timeout=WAIT_LIMIT)
        assert refused.value.code == 413
        refused.value.close()


@pytest.mark.parametrize(
    ("path", "body", "headers", "reason"),
    [
        ("/hook/plain", b"{}", {}, "missing header x-hub-signature-256"),
        ("/hook/own", b"{}", {"X_Hub_Signature_256": FORGED}, "missing header x-own"),
        ("/hook/plain", b"{}", {"X_Hub_Signature_256": FORGED}, "the signature does not match"),
        (
            "/hook/stripe",
            b"{}",
            {"Stripe_Signature": OLD},
            "the timestamp is too far from this gateway's clock",
        ),
        ("/hook/stripe", b"{}", {"Stripe_Signature": f"v1={FORGED}"}, "missing timestamp"),
        ("/hook/plain", b"x" * 1001, {}, "too large"),
    ],
)
def test_reason_is_logged_and_not_sent(
    api: ApiHarness,
    capsys: pytest.CaptureFixture[str],
    path: str,
    body: bytes,
    headers: dict[str, str],
    reason: str,
) -> None:
    answer = post(api, path, body, **headers)
    assert answer.json.keys() == {"error", "code"}
    assert reason not in answer.raw.decode() or answer.status == 413
    (line,) = refusals(capsys)
    assert (line["level"], line["path"], line["reason"]) == ("warn", path, reason)
    assert FORGED not in json.dumps(line)
    assert SECRET not in json.dumps(line)


def test_equal_refusals_are_logged_once_per_interval_with_their_number(
    api: ApiHarness, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(5):
        post(api, "/hook/plain", b"{}", X_Hub_Signature_256=FORGED)
    post(api, "/hook/plain", b"{}")
    said = refusals(capsys)
    assert [line["reason"] for line in said] == [
        "the signature does not match",
        "missing header x-hub-signature-256",
    ]
    post(api, "/hook/unknown", b"{}")
    post(api, "/hook/plain", b"{}", Host="elsewhere.example")
    status = api.ask("GET", "/system/status?health=last").json["refused_webhooks"]
    assert {(row["endpoint"], row["reason"]): row["requests"] for row in status} == {
        ("/hook/plain", "the signature does not match"): 5,
        ("/hook/plain", "missing header x-hub-signature-256"): 1,
        ("/hook/plain", "the Host is not in webhooks.allowed_hosts"): 1,
        (None, "no endpoint has this path"): 1,
    }
    monkeypatch.setattr(webhooks, "LOG_INTERVAL", 0.0)
    post(api, "/hook/plain", b"{}", X_Hub_Signature_256=FORGED)
    (line,) = refusals(capsys)
    assert line["refused_since_last_log"] == 5
