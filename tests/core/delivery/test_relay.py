"""Relay envelopes: built, signed, and verified by the receiver."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest

from ductile.core.delivery.relay import (
    RETRY_SECONDS,
    Peer,
    RelayedEvent,
    RelayRejection,
    RelayRequest,
    SignatureRules,
    build_envelope,
    compute_relay_signature,
    is_permanent_rejection,
    is_receipt,
    judge_send,
    rename_sender,
    sign_request,
    verify_request,
)
from ductile.core.delivery.retry_policy import DeliveryStatus, DeliveryUpdate
from ductile.core.jobs.limits import DEEPEST, LONGEST_DEDUPE_KEY, LONGEST_NAME, fits
from ductile.core.pipelines.baggage import MAX_CONTEXT
from ductile.core.pipelines.step_io import RelayMessage
from ductile.core.values.json_values import Failure

NOW = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
PATH = "/ingest/peer/home"
PEER = Peer("home", "a shared secret", "v1", frozenset({"backup.ready"}), frozenset({"trace_id"}))
RULES = SignatureRules(timedelta(minutes=5), require_key_id=True)
ENVELOPE: dict[str, Any] = {
    "event": {"type": "backup.ready", "payload": {"n": 1}},
    "origin": {"instance": "home", "plugin": "backup", "job_id": "j", "event_id": "e-1"},
    "baggage": {"trace_id": "t", "secret": "x", "ductile": {"route_depth": 0}},
}


def own_headers(
    us: str, raw: bytes, *, at: datetime = NOW, path: str = PATH
) -> dict[str, list[str]]:
    signed = sign_request(us, PEER, path, raw, at)
    return {name.lower(): [value] for name, value in signed.items()}


def request(
    body: Any = ENVELOPE, *, at: datetime = NOW, path: str = PATH, **changed: Any
) -> RelayRequest:
    """A valid request; `changed` headers replace the valid ones, None removes one."""
    raw = body if isinstance(body, bytes) else orjson.dumps(body)
    headers = own_headers("home", raw, at=at, path=path)
    for name, value in changed.items():
        header = "x-ductile-" + name.replace("_", "-")
        headers[header] = [] if value is None else value if isinstance(value, list) else [value]
    return RelayRequest(path, headers, raw)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def judged(
    given: RelayRequest, peer: Peer = PEER, rules: SignatureRules = RULES
) -> RelayedEvent | RelayRejection:
    return verify_request(given, peer, rules, NOW)


def let_in(given: RelayRequest, peer: Peer = PEER) -> RelayedEvent:
    answer = judged(given, peer)
    assert isinstance(answer, RelayedEvent), answer
    return answer


def refused(given: RelayRequest, rules: SignatureRules = RULES) -> RelayRejection:
    answer = judged(given, rules=rules)
    assert isinstance(answer, RelayRejection)
    return answer


def changed(**parts: Any) -> dict[str, Any]:
    """The envelope with some of its fields (`event__type`) replaced."""
    body: dict[str, Any] = orjson.loads(orjson.dumps(ENVELOPE))
    for path, value in parts.items():
        part, _, key = path.partition("__")
        if key:
            body[part][key] = value
        else:
            body[part] = value
    return body


def test_valid_request_is_accepted() -> None:
    event = let_in(request())
    assert (event.peer, event.event_type, event.payload) == ("home", "backup.ready", {"n": 1})
    assert event.event_id == "e-1"


def test_signature_covers_method_path_timestamp_and_body() -> None:
    signed = b"POST\n/p\n2026-05-03T12:00:00.000000Z\nbody"
    expected = hmac.new(b"k", signed, hashlib.sha256).hexdigest()
    assert compute_relay_signature("k", "/p", "2026-05-03T12:00:00.000000Z", b"body") == expected


def test_default_dedupe_key_is_made_from_the_event_id() -> None:
    assert let_in(request()).dedupe_key == "relay:home:home:e-1"


def test_default_dedupe_key_of_the_longest_names_fits() -> None:
    name = "n" * LONGEST_NAME
    body = orjson.dumps(changed(origin={"instance": name, "event_id": name}))
    key = let_in(
        RelayRequest(PATH, own_headers(name, body), body), replace(PEER, name=name)
    ).dedupe_key
    assert key is not None
    assert fits(key, LONGEST_DEDUPE_KEY)


@pytest.mark.parametrize("sign", ["k", "😀"])
@pytest.mark.parametrize(
    ("part", "most"),
    [
        ("event__dedupe_key", LONGEST_DEDUPE_KEY),
        ("event__type", LONGEST_NAME),
        ("origin__event_id", LONGEST_NAME),
    ],
)
def test_length_of_names_is_measured_in_bytes(part: str, most: int, sign: str) -> None:
    peer, longest = replace(PEER, accept=frozenset()), sign * (most // len(sign.encode()))
    assert isinstance(judged(request(changed(**{part: longest})), peer), RelayedEvent)
    refusal = judged(request(changed(**{part: longest + sign})), peer)
    assert isinstance(refusal, RelayRejection)
    path = part.replace("__", ".")
    assert refusal.message == f"{path} must be a string of at most {most} bytes"


def test_dedupe_key_of_the_sender_is_kept() -> None:
    assert let_in(request(changed(event__dedupe_key="mine"))).dedupe_key == "mine"


def test_no_default_dedupe_key_without_an_event_id() -> None:
    event = let_in(request(changed(origin={})))
    assert (event.event_id, event.dedupe_key) == (None, None)


def test_only_allowed_baggage_is_accepted() -> None:
    assert let_in(request()).baggage == {"trace_id": "t"}


def test_reserved_baggage_is_never_accepted() -> None:
    peer = replace(PEER, baggage=frozenset({"ductile", "ductile_plugin"}))
    assert let_in(request(), peer).baggage == {}


def test_missing_payload_is_an_empty_object() -> None:
    assert let_in(request(changed(event={"type": "backup.ready"}))).payload == {}


@pytest.mark.parametrize("off", [timedelta(minutes=4, seconds=59), -timedelta(minutes=5)])
def test_timestamp_within_the_skew_is_accepted(off: timedelta) -> None:
    assert isinstance(judged(request(at=NOW + off)), RelayedEvent)


def test_timestamp_may_be_unix_seconds() -> None:
    raw = orjson.dumps(ENVELOPE)
    at = str(int(NOW.timestamp()))
    given = request(
        raw, timestamp=at, signature=compute_relay_signature(PEER.secret, PATH, at, raw)
    )
    assert isinstance(judged(given), RelayedEvent)


def test_signature_may_be_bare_hex() -> None:
    good = request().headers["x-ductile-signature"][0].removeprefix("sha256=")
    assert isinstance(judged(request(signature=good)), RelayedEvent)


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(request(at=NOW - timedelta(minutes=5, seconds=1)), id="skewed into the past"),
        pytest.param(request(at=NOW + timedelta(minutes=5, seconds=1)), id="into the future"),
        pytest.param(request(peer="lab"), id="another peer's name"),
        pytest.param(request(peer=None), id="no peer"),
        pytest.param(request(peer=["home", "home"]), id="the peer twice"),
        pytest.param(request(key_id="v2"), id="another key"),
        pytest.param(request(key_id=None), id="no key"),
        pytest.param(request(timestamp=None), id="no timestamp"),
        pytest.param(request(timestamp="soon"), id="no time"),
        pytest.param(request(timestamp="9" * 30), id="a time beyond all calendars"),
        pytest.param(request(timestamp="2026-05-03T12:00:01.000000Z"), id="re-dated"),
        pytest.param(request(signature=None), id="no signature"),
        pytest.param(request(signature="sha256=" + "0" * 64), id="a wrong signature"),
        pytest.param(request(signature="é"), id="no hex at all"),
        pytest.param(request(signature=["a", "b"]), id="two signatures"),
        pytest.param(replace(request(), body=b"{}"), id="another body"),
        pytest.param(replace(request(), path=PATH + "x"), id="another path"),
        pytest.param(request(changed(origin__instance="lab")), id="another origin"),
    ],
)
def test_unverified_request_is_forbidden_without_details(given: RelayRequest) -> None:
    answer = refused(given)
    assert (answer.status, answer.message) == (403, "forbidden")


def test_signature_with_another_secret_is_forbidden() -> None:
    other = replace(PEER, secret="another secret")
    assert isinstance(judged(request(), other), RelayRejection)


def test_key_id_may_be_required() -> None:
    peer = replace(PEER, key_id=None)
    given = request(key_id=None)
    assert isinstance(verify_request(given, peer, RULES, NOW), RelayRejection)
    assert isinstance(
        verify_request(given, peer, replace(RULES, require_key_id=False), NOW), RelayedEvent
    )


def test_unexpected_key_id_is_ignored() -> None:
    assert let_in(request(key_id="v2"), replace(PEER, key_id=None)).event_id == "e-1"


def test_timestamp_may_have_nanoseconds() -> None:
    raw, at = orjson.dumps(ENVELOPE), "2026-05-03T12:00:00.123456789Z"
    given = request(
        raw, timestamp=at, signature=compute_relay_signature(PEER.secret, PATH, at, raw)
    )
    assert isinstance(judged(given), RelayedEvent)


def test_event_type_that_is_not_accepted_is_rejected() -> None:
    answer = refused(request(changed(event__type="report.made")))
    assert answer.status == 422
    assert "report.made" in answer.message


def test_every_event_type_is_accepted_by_default() -> None:
    peer = replace(PEER, accept=frozenset())
    assert let_in(request(changed(event__type="report.made")), peer).event_type == "report.made"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"1",
        b'{"event": []}',
        b'{"event": {}}',
        b'{"event": {"type": 5}}',
        b'{"event": {"type": ""}}',
        b'{"event": {"type": "a"}, "origin": 3}',
        b'{"event": {"type": "a"}, "baggage": "x"}',
        b'{"event": {"type": "a", "dedupe_key": {}}}',
        orjson.dumps({"event": {"type": "a" * 256}}),
        b'{"event": {"type": "a\\u0000"}}',
        b'{"event": {"type": "a", "payload": ' + b"[" * 500 + b"]" * 500 + b"}}",
        b'{"event": {"type": "a", "payload": "\\ud800"}}',
        b'{"event": {"type": "a", "payload": 1e999}}',
        b'{"event": {"type": "a", "payload": "\xff"}}',
        b'\xef\xbb\xbf{"event": {"type": "a"}}',
        orjson.dumps({"event": {"type": "a"}, "origin": {"event_id": "e" * 256}}),
        orjson.dumps(
            {"event": {"type": "backup.ready"}, "baggage": {"trace_id": "x" * MAX_CONTEXT}}
        ),
    ],
)
def test_malformed_signed_body_is_rejected_with_the_reason(body: bytes) -> None:
    assert refused(request(body)).status == 400


@pytest.mark.parametrize(
    "parts",
    [{"event__payload": nested(DEEPEST + 1)}, {"baggage": {"trace_id": nested(DEEPEST)}}],
)
def test_too_deep_payload_or_baggage_is_rejected(parts: dict[str, Any]) -> None:
    refusal = refused(request(changed(**parts)))
    assert refusal.status == 400
    assert "nested more than 100 levels deep" in refusal.message


def test_ignored_baggage_may_be_large() -> None:
    body = changed(baggage={"trace_id": "t", "other": "x" * MAX_CONTEXT})
    assert let_in(request(body)).baggage == {"trace_id": "t"}


def test_u0000_is_stored_as_ufffd() -> None:
    body = changed(event__payload={"a\0": ["b\0"]}, baggage={"trace_id": {"c\0": "d\0"}})
    event = let_in(request(body))
    assert event.payload == {"a\ufffd": ["b\ufffd"]}
    assert event.baggage == {"trace_id": {"c\ufffd": "d\ufffd"}}


def counting(number: bytes) -> RelayRequest:
    return request(b'{"event": {"type": "backup.ready", "payload": {"n": ' + number + b"}}}")


@pytest.mark.parametrize(
    ("text", "read"),
    [(b"18446744073709551615", 2**64 - 1), (b"123456789012345680000", 1.2345678901234568e20)],
)
def test_large_integer_is_exact_or_the_float_of_a_gateway(text: bytes, read: Any) -> None:
    event = let_in(counting(text))
    assert event.payload["n"] == read
    assert type(event.payload["n"]) is type(read)


@pytest.mark.parametrize("text", [b"18446744073709551616", b"123456789012345678901234567890"])
def test_integer_beyond_64_bits_is_rejected(text: bytes) -> None:
    refusal = refused(counting(text))
    assert refusal.status == 400
    assert "exceeds 64 bits" in refusal.message


def test_too_deep_unknown_field_is_rejected() -> None:
    deep = b"[" * 1000 + b"12345678901234567890" + b"]" * 1000
    refusal = refused(request(b'{"event": {"type": "backup.ready"}, "more": ' + deep + b"}"))
    assert "nested more than 100 levels deep" in refusal.message


def sent(message: RelayMessage) -> str | Failure:
    return build_envelope(message, instance="home", plugin=None, job_id="j", event_id="e")


@pytest.mark.parametrize(
    ("payload", "key", "carried"),
    [
        ([1, 2], "k", 7),
        ({}, "k" * LONGEST_DEDUPE_KEY, None),
        (nested(DEEPEST), None, nested(DEEPEST - 1)),
    ],
)
def test_envelope_is_accepted_by_a_peer(payload: Any, key: str | None, carried: Any) -> None:
    body = sent(RelayMessage("lab", "backup.ready", payload, key, {"trace_id": carried}, {}))
    assert isinstance(body, str)
    event = let_in(request(body.encode()))
    assert (event.payload, event.baggage) == (payload, {"trace_id": carried})
    assert event.dedupe_key == (key or "relay:home:home:e")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (RelayMessage("lab", "a", nested(DEEPEST + 1), None, {}, {}), "100 levels deep"),
        (RelayMessage("lab", "a", {}, None, {"x": nested(DEEPEST)}, {}), "100 levels deep"),
        (RelayMessage("lab", "a", {}, "k" * 1025, {}, {}), "relay.dedupe_key must be"),
        (RelayMessage("lab", "a", {}, "k\0", {}, {}), "relay.dedupe_key must be"),
        (RelayMessage("lab", "a" * 256, {}, None, {}, {}), "relay.event"),
    ],
)
def test_event_that_no_peer_accepts_is_not_sent(message: RelayMessage, reason: str) -> None:
    body = sent(message)
    assert isinstance(body, Failure)
    assert reason in body.reason


@pytest.mark.parametrize(
    ("status", "body", "is_one"),
    [
        (202, b'{"status": "accepted", "receiver_event_id": "e", "job_id": null}', True),
        (200, b'{"status": "accepted", "receiver_event_id": "e", "job_id": null}', False),
        (202, b'{"status": "accepted"}', False),
        (202, b'{"receiver_event_id": 1}', False),
        (202, b'["receiver_event_id"]', False),
        (202, b'{"receiver_event_id": "e', False),
        (202, b"<html>Welcome to this hotel</html>", False),
        (204, b"", False),
        (403, b'{"receiver_event_id": "e"}', False),
        (None, b"", False),
    ],
)
def test_only_a_response_of_a_gateway_is_a_receipt(
    status: int | None, body: bytes, is_one: bool
) -> None:
    assert is_receipt(status, body) is is_one


@pytest.mark.parametrize(
    ("status", "body", "is_so"),
    [
        (400, b'{"error": "event.type is required", "code": "bad_request"}', True),
        (400, b'{"error": "no", "code": "other"}', False),
        (400, b"<html>The plain HTTP request was sent to HTTPS port</html>", False),
        (400, b"[]", False),
        (403, b'{"error": "forbidden", "code": "bad_request"}', False),
        (None, b"", False),
    ],
)
def test_only_a_response_of_a_gateway_is_a_permanent_rejection(
    status: int | None, body: bytes, is_so: bool
) -> None:
    assert is_permanent_rejection(status, body) is is_so


def test_failed_send_is_retried_by_the_schedule() -> None:
    for before, delay in enumerate(RETRY_SECONDS):
        update = judge_send(before, "no luck", final=False, now=NOW)
        due = NOW + timedelta(seconds=delay)
        assert update == DeliveryUpdate(DeliveryStatus.FAILED, before + 1, due, "no luck")


@pytest.mark.parametrize(("before", "final"), [(len(RETRY_SECONDS), False), (0, True)])
def test_relay_is_dead_after_the_last_send_or_a_permanent_rejection(
    before: int, final: bool
) -> None:
    update = judge_send(before, "no luck", final=final, now=NOW)
    assert update == DeliveryUpdate(DeliveryStatus.DEAD, before + 1, None, "no luck")


def test_receipt_after_failed_sends_is_a_delivery() -> None:
    update = judge_send(3, None, final=False, now=NOW)
    assert update == DeliveryUpdate(DeliveryStatus.DELIVERED, 3)


def test_envelope_is_unchanged_without_a_new_name() -> None:
    message = RelayMessage("lab", "made", {"n": [1.5, 2**64 - 1, "ü"]}, "k", {"t": None}, {})
    body = sent(message)
    assert isinstance(body, str)
    assert rename_sender(body, "home") == body.encode()


def test_new_name_is_written_to_the_envelope() -> None:
    body = rename_sender(
        '{"event":{},"origin":{"instance":"old","event_id":"e"},"baggage":{}}', "new"
    )
    assert body == b'{"event":{},"origin":{"instance":"new","event_id":"e"},"baggage":{}}'


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"origin": []}', "\ud800"])
def test_invalid_envelope_is_not_sent(body: str) -> None:
    assert rename_sender(body, "home") is None


def test_repr_contains_no_secret() -> None:
    assert "a shared secret" not in repr(PEER)
