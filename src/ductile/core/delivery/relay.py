"""Relay between gateways: the envelope, its signature, and how a receiver verifies both.

The signature covers the method, the path, the timestamp and the exact bytes of the body. Until it
is verified, the sender learns only that the request is rejected.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.delivery.retry_policy import (
    DeliveryUpdate,
    mark_delivered,
    mark_failed,
    mark_rejected,
)
from ductile.core.delivery.signatures import Headers
from ductile.core.jobs.limits import DEEPEST, LONGEST_DEDUPE_KEY, LONGEST_NAME, fits, too_deep
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.core.pipelines.baggage import MAX_CONTEXT, RESERVED
from ductile.core.pipelines.step_io import RelayMessage
from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.core.values.json_values import Failure, size_of
from ductile.model import Json

METHOD = "POST"
PEER = "X-Ductile-Peer"
KEY_ID = "X-Ductile-Key-Id"
TIMESTAMP = "X-Ductile-Timestamp"
SIGNATURE = "X-Ductile-Signature"
ACCEPTED = 202
MALFORMED = 400
MALFORMED_CODE = "bad_request"
RETRY_SECONDS = (1, 5, 30, 120, 600, 3600, 21600, 43200)
"""Delay after the first failed send, the second, and so on; then the relay is dead."""
ANYWHERE = ("0.0.0.0/0", "::/0")
"""Instances are configured by the operator, so private addresses are allowed."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway that sends events to this one, or receives events from it."""

    name: str
    secret: str = field(repr=False)
    key_id: str | None = None
    accept: frozenset[str] = frozenset()
    """Accepted event types; empty means all."""
    baggage: frozenset[str] = frozenset()
    """Accepted keys of its baggage."""

    def accepts(self, event_type: str) -> bool:
        return not self.accept or event_type in self.accept


@dataclass(frozen=True, slots=True)
class SignatureRules:
    """What holds for the requests of every peer."""

    clock_skew: timedelta
    require_key_id: bool


@dataclass(frozen=True, slots=True)
class RelayRequest:
    """A request of a peer, not yet verified."""

    path: str
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class RelayedEvent:
    """A verified event of a peer."""

    peer: str
    event_type: str
    payload: Json
    dedupe_key: str | None
    event_id: str | None
    """The sender's id of the event: the same for every send."""
    baggage: dict[str, Json]
    signature: str


@dataclass(frozen=True, slots=True)
class RelayRejection:
    """Why a request is rejected."""

    status: int
    message: str
    """For the sender."""
    reason: str
    """For the log; it may say more than `message`."""


def build_envelope(
    message: RelayMessage,
    *,
    instance: str,
    plugin: str | None,
    job_id: str | None,
    event_id: str,
) -> str | Failure:
    """The body to send: the event, its origin and its baggage."""
    if flaw := _find_flaw(message.event_type, LONGEST_NAME):
        return Failure(f"relay.event {flaw}")
    if flaw := _find_flaw(message.dedupe_key, LONGEST_DEDUPE_KEY):
        return Failure(f"relay.dedupe_key {flaw}")
    if too_deep(message.payload) or too_deep(message.baggage):
        return Failure(f"relay: payload or baggage is nested more than {DEEPEST} levels deep")
    event = {"type": message.event_type, "payload": message.payload}
    if message.dedupe_key is not None:
        event["dedupe_key"] = message.dedupe_key
    origin = {"instance": instance, "plugin": plugin, "job_id": job_id, "event_id": event_id}
    known = {key: value for key, value in origin.items() if value is not None}
    body = {"event": event, "origin": known, "baggage": message.baggage}
    return orjson.dumps(body).decode()


def rename_sender(body: str, name: str) -> bytes | None:
    """The bytes to send, with this gateway's current name; None if `body` is not an envelope.

    A receiver requires the same name there and in the header.
    """
    try:
        given = orjson.loads(body)
        given["origin"]["instance"] = name
        return orjson.dumps(given)
    except (ValueError, TypeError, KeyError):
        return None


def sign_request(sender: str, to: Peer, path: str, body: bytes, now: datetime) -> dict[str, str]:
    """The headers of a request to `to`; `sender` is the name by which it knows this gateway."""
    timestamp = to_text(now)
    headers = {
        "Content-Type": "application/json",
        PEER: sender,
        TIMESTAMP: timestamp,
        SIGNATURE: f"sha256={compute_relay_signature(to.secret, path, timestamp, body)}",
    }
    return headers if to.key_id is None else {**headers, KEY_ID: to.key_id}


def compute_relay_signature(secret: str, path: str, timestamp: str, body: bytes) -> str:
    """In hex, without a prefix."""
    signed = b"\n".join((METHOD.encode(), path.encode(), timestamp.encode(), body))
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def is_receipt(status: int | None, body: bytes) -> bool:
    """Whether the response is a gateway's receipt of a durable event; any other 2xx is not."""
    return status == ACCEPTED and isinstance(_read_field(body, "receiver_event_id"), str)


def is_permanent_rejection(status: int | None, body: bytes) -> bool:
    """Whether a gateway will reject these bytes every time.

    A proxy between the gateways may respond with 400 as well; that can be repaired.
    """
    return status == MALFORMED and _read_field(body, "code") == MALFORMED_CODE


def _read_field(body: bytes, key: str) -> Json:
    try:
        response = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return response.get(key) if isinstance(response, dict) else None


def judge_send(attempts: int, error: str | None, *, final: bool, now: datetime) -> DeliveryUpdate:
    """What a send changes; `attempts` is the number of failed sends before this one."""
    if error is None:
        return mark_delivered(attempts)
    if final:
        return mark_rejected(attempts, error)
    return mark_failed(attempts, error, now, RETRY_SECONDS)


def verify_request(
    request: RelayRequest, peer: Peer, rules: SignatureRules, now: datetime
) -> RelayedEvent | RelayRejection:
    """The event of the request. The body is parsed only after its signature is verified."""
    given = {name: _single(request.headers, name) for name in (PEER, KEY_ID, TIMESTAMP, SIGNATURE)}
    if given[PEER] != peer.name:
        return _forbid(f"{PEER} does not name the peer of this path")
    if peer.key_id and given[KEY_ID] != peer.key_id:
        return _forbid("the key id is not this peer's")
    if rules.require_key_id and not given[KEY_ID]:
        return _forbid("the key id is missing")
    sent_at = _parse_time(given[TIMESTAMP] or "")
    if sent_at is None:
        return _forbid("the timestamp is missing or invalid")
    if abs(now - sent_at) > rules.clock_skew:
        return _forbid("the timestamp is too far from this gateway's clock")
    signature = (given[SIGNATURE] or "").removeprefix("sha256=").lower()
    expected = compute_relay_signature(
        peer.secret, request.path, given[TIMESTAMP] or "", request.body
    )
    if not hmac.compare_digest(signature.encode(), expected.encode()):
        return _forbid("the signature does not match")
    return _parse_event(request.body, peer, expected)


def _parse_event(body: bytes, peer: Peer, signature: str) -> RelayedEvent | RelayRejection:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _refuse_body("the body is not JSON")
    if not isinstance(given, dict):
        return _refuse_body("the body must be an object")
    parts = {key: given.get(key) or {} for key in ("event", "origin", "baggage")}
    for key, part in parts.items():
        if not isinstance(part, dict):
            return _refuse_body(f"{key} must be an object")
    event, origin = parts["event"], parts["origin"]
    inner = (event.get("payload"), parts["baggage"])
    if any(too_deep(part, body) for part in inner) or too_deep(given, body, DEEPEST + 2):
        return _refuse_body(f"payload or baggage is nested more than {DEEPEST} levels deep")
    if has_integer_altered_by_parsing(body):
        return _refuse_body("an integer exceeds 64 bits; send it as a string")
    names: dict[str, Any] = {
        "event.type": event.get("type"),
        "event.dedupe_key": event.get("dedupe_key"),
        "origin.instance": origin.get("instance"),
        "origin.event_id": origin.get("event_id"),
    }
    if rejection := _check_names(names, peer):
        return rejection
    baggage = _filter_baggage(parts["baggage"], peer)
    if size_of(baggage) > MAX_CONTEXT:
        return _refuse_body(f"accepted baggage is larger than {MAX_CONTEXT} bytes")
    payload = event.get("payload")
    return RelayedEvent(
        peer=peer.name,
        event_type=names["event.type"],
        payload={} if payload is None else without_nul(payload),
        dedupe_key=names["event.dedupe_key"] or _make_dedupe_key(names, peer),
        event_id=names["origin.event_id"] or None,
        baggage=baggage,
        signature=signature,
    )


def _check_names(names: Mapping[str, Any], peer: Peer) -> RelayRejection | None:
    for path, value in names.items():
        longest = LONGEST_DEDUPE_KEY if path == "event.dedupe_key" else LONGEST_NAME
        if flaw := _find_flaw(value, longest):
            return _refuse_body(f"{path} {flaw}")
    if not names["event.type"]:
        return _refuse_body("event.type is required")
    if names["origin.instance"] not in (None, "", peer.name):
        return _forbid("origin.instance is not the peer")
    if not peer.accepts(names["event.type"]):
        reason = f"the event type {names['event.type']} is not accepted from this peer"
        return RelayRejection(422, reason, reason)
    return None


def _filter_baggage(baggage: Mapping[str, Json], peer: Peer) -> dict[str, Json]:
    allowed = {key: value for key, value in baggage.items() if key in peer.baggage - RESERVED}
    accepted: dict[str, Json] = without_nul(allowed)
    return accepted


def _make_dedupe_key(names: Mapping[str, Json], peer: Peer) -> str | None:
    """Three names together are shorter than the longest dedupe key."""
    event_id = names["origin.event_id"]
    return f"relay:{peer.name}:{names['origin.instance'] or ''}:{event_id}" if event_id else None


def _single(headers: Headers, name: str) -> str | None:
    """The value of a header; None if it is missing or repeated."""
    values = headers.get(name.lower(), [])
    return values[0].strip() or None if len(values) == 1 else None


def _parse_time(text: str) -> datetime | None:
    """RFC 3339, or whole seconds since 1970."""
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        return from_text(text)
    except (ValueError, OverflowError, OSError):
        return None


def _find_flaw(value: Json, longest: int) -> str | None:
    """What is wrong with a value, to follow its name; a missing value is fine."""
    if value is None or (isinstance(value, str) and "\0" not in value and fits(value, longest)):
        return None
    return f"must be a string of at most {longest} bytes"


def _forbid(reason: str) -> RelayRejection:
    return RelayRejection(403, "forbidden", reason)


def _refuse_body(reason: str) -> RelayRejection:
    return RelayRejection(MALFORMED, reason, reason)
