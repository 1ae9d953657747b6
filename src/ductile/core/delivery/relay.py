"""Relay between gateways: the envelope, its signature, and what a receiver makes of both.

The signature covers method, path, timestamp and the exact bytes of the body. Until it has
been verified a sender learns nothing but that it is refused.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import field
from datetime import UTC, datetime, timedelta

import orjson

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
from ductile.record import dataclass

METHOD = "POST"
PEER = "X-Ductile-Peer"
KEY_ID = "X-Ductile-Key-Id"
TIMESTAMP = "X-Ductile-Timestamp"
SIGNATURE = "X-Ductile-Signature"
ACCEPTED = 202
MALFORMED = 400
MALFORMED_CODE = "bad_request"
RETRY_SECONDS = (1, 5, 30, 120, 600, 3600, 21600, 43200)
"""After the first failed send, the second, and so on; then it is dead."""
ANYWHERE = ("0.0.0.0/0", "::/0")
"""An instance is named by the operator, who may mean a private address."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A gateway that may send us events, or one that we send to."""

    name: str
    secret: str = field(repr=False)
    key_id: str | None = None
    accept: frozenset[str] = frozenset()
    """Event types; none named, all."""
    baggage: frozenset[str] = frozenset()
    """Keys of its baggage that are taken over."""

    def accepts(self, event_type: str) -> bool:
        return not self.accept or event_type in self.accept


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for all peers."""

    clock_skew: timedelta
    require_key_id: bool


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True)
class Relayed:
    """An event that a peer has sent, verified."""

    peer: str
    event_type: str
    payload: Json
    dedupe_key: str | None
    event_id: str | None
    """The sender's own id of the event: the same however often it is sent."""
    baggage: dict[str, Json]
    signature: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in; `reason` is for our log where `told` says less."""

    status: int
    told: str
    reason: str


def envelope(
    message: RelayMessage, *, instance: str, plugin: str | None, job_id: str, event_id: str
) -> str | Failure:
    """The body to send: what was emitted, where it comes from, and what it carries."""
    if flaw := _flaw(message.event_type, LONGEST_NAME):
        return Failure(f"relay.event {flaw}")
    if flaw := _flaw(message.dedupe_key, LONGEST_DEDUPE_KEY):
        return Failure(f"relay.dedupe_key {flaw}")
    if too_deep(message.payload) or too_deep(message.baggage):
        return Failure(f"relay: its payload or baggage is nested more than {DEEPEST} levels deep")
    event = {"type": message.event_type, "payload": message.payload}
    if message.dedupe_key is not None:
        event["dedupe_key"] = message.dedupe_key
    origin = {"instance": instance, "plugin": plugin, "job_id": job_id, "event_id": event_id}
    told = {key: value for key, value in origin.items() if value is not None}
    body = {"event": event, "origin": told, "baggage": message.baggage}
    return orjson.dumps(body).decode()


def named(body: str, us: str) -> bytes | None:
    """The bytes to send, with the name that this gateway has by now; None for no envelope.

    A receiver wants the same name there as in the header, whenever the message was made.
    """
    try:
        given = orjson.loads(body)
        given["origin"]["instance"] = us
        return orjson.dumps(given)
    except (ValueError, TypeError, KeyError):
        return None


def signed_headers(us: str, to: Peer, path: str, body: bytes, now: datetime) -> dict[str, str]:
    """What a request to `to` carries beside its body; `us` is how it knows us."""
    timestamp = to_text(now)
    headers = {
        "Content-Type": "application/json",
        PEER: us,
        TIMESTAMP: timestamp,
        SIGNATURE: f"sha256={signature(to.secret, path, timestamp, body)}",
    }
    return headers if to.key_id is None else {**headers, KEY_ID: to.key_id}


def signature(secret: str, path: str, timestamp: str, body: bytes) -> str:
    """In bare hex."""
    signed = b"\n".join((METHOD.encode(), path.encode(), timestamp.encode(), body))
    return hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()


def is_receipt(status: int | None, body: bytes) -> bool:
    """Whether an answer says that the event is durable there; any 2xx of a stranger does not."""
    return status == ACCEPTED and isinstance(_said(body, "receiver_event_id"), str)


def is_final(status: int | None, body: bytes) -> bool:
    """Whether a gateway says that it cannot take these bytes, today or tomorrow.

    A 400 of a proxy on the way, which may be mended, is no such word.
    """
    return status == MALFORMED and _said(body, "code") == MALFORMED_CODE


def _said(body: bytes, key: str) -> Json:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return answer.get(key) if isinstance(answer, dict) else None


def after_send(attempts: int, error: str | None, *, final: bool, now: datetime) -> DeliveryUpdate:
    """`attempts` is the number of failed sends before this one."""
    if error is None:
        return mark_delivered(attempts)
    if final:
        return mark_rejected(attempts, error)
    return mark_failed(attempts, error, now, RETRY_SECONDS)


def verify(request: Request, peer: Peer, terms: Terms, now: datetime) -> Relayed | Refusal:
    """Let the request in, or not. The body is parsed only once its signature is good."""
    told = {name: _single(request.headers, name) for name in (PEER, KEY_ID, TIMESTAMP, SIGNATURE)}
    if told[PEER] != peer.name:
        return _forbidden(f"{PEER} does not name the peer of this path")
    if peer.key_id and told[KEY_ID] != peer.key_id:
        return _forbidden("another key id than this peer's")
    if terms.require_key_id and not told[KEY_ID]:
        return _forbidden("no key id")
    sent_at = _moment(told[TIMESTAMP] or "")
    if sent_at is None:
        return _forbidden("no timestamp that can be read")
    if abs(now - sent_at) > terms.clock_skew:
        return _forbidden("its timestamp is too far from our clock")
    given = (told[SIGNATURE] or "").removeprefix("sha256=").lower()
    good = signature(peer.secret, request.path, told[TIMESTAMP] or "", request.body)
    if not hmac.compare_digest(given.encode(), good.encode()):
        return _forbidden("the signature does not match")
    return _read(request.body, peer, good)


def _read(body: bytes, peer: Peer, signed: str) -> Relayed | Refusal:
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError:
        return _malformed("the body is not JSON")
    if not isinstance(given, dict):
        return _malformed("the body must be an object")
    parts = {key: given.get(key) or {} for key in ("event", "origin", "baggage")}
    for key, part in parts.items():
        if not isinstance(part, dict):
            return _malformed(f"{key} must be an object")
    event, origin = parts["event"], parts["origin"]
    inner = (event.get("payload"), parts["baggage"])
    if any(too_deep(part, body) for part in inner) or too_deep(given, body, DEEPEST + 2):
        return _malformed(f"its payload or baggage is nested more than {DEEPEST} levels deep")
    if has_integer_altered_by_parsing(body):
        return _malformed("it holds an integer beyond 64 bits; send it as text")
    names = {
        "event.type": event.get("type"),
        "event.dedupe_key": event.get("dedupe_key"),
        "origin.instance": origin.get("instance"),
        "origin.event_id": origin.get("event_id"),
    }
    for path, value in names.items():
        longest = LONGEST_DEDUPE_KEY if path == "event.dedupe_key" else LONGEST_NAME
        if flaw := _flaw(value, longest):
            return _malformed(f"{path} {flaw}")
    if not names["event.type"]:
        return _malformed("event.type is required")
    if names["origin.instance"] not in (None, "", peer.name):
        return _forbidden("origin.instance is another gateway than the peer")
    if not peer.accepts(names["event.type"]):
        reason = f"the event type {names['event.type']} is not accepted from this peer"
        return Refusal(422, reason, reason)
    baggage = _taken_over(parts["baggage"], peer)
    if size_of(baggage) > MAX_CONTEXT:
        return _malformed(f"at most {MAX_CONTEXT} bytes of baggage are taken over")
    payload = event.get("payload")
    return Relayed(
        peer=peer.name,
        event_type=names["event.type"],
        payload={} if payload is None else without_nul(payload),
        dedupe_key=names["event.dedupe_key"] or _default_key(names, peer),
        event_id=names["origin.event_id"] or None,
        baggage=baggage,
        signature=signed,
    )


def _taken_over(baggage: Mapping[str, Json], peer: Peer) -> dict[str, Json]:
    allowed = {key: value for key, value in baggage.items() if key in peer.baggage - RESERVED}
    taken: dict[str, Json] = without_nul(allowed)
    return taken


def _default_key(names: Mapping[str, Json], peer: Peer) -> str | None:
    """Of three names: together they are shorter than a dedupe key may be."""
    event_id = names["origin.event_id"]
    return f"relay:{peer.name}:{names['origin.instance'] or ''}:{event_id}" if event_id else None


def _single(headers: Headers, name: str) -> str | None:
    """The one value of a header; None where there is none, or more than one."""
    values = headers.get(name.lower(), [])
    return values[0].strip() or None if len(values) == 1 else None


def _moment(text: str) -> datetime | None:
    """RFC 3339, or whole seconds since 1970."""
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text), UTC)
        return from_text(text)
    except (ValueError, OverflowError, OSError):
        return None


def _flaw(value: Json, longest: int) -> str | None:
    """What is wrong with it, to follow its name; None where nothing is, or nothing was given."""
    if value is None or (isinstance(value, str) and "\0" not in value and fits(value, longest)):
        return None
    return f"must be a text of at most {longest} bytes"


def _forbidden(reason: str) -> Refusal:
    return Refusal(403, "forbidden", reason)


def _malformed(reason: str) -> Refusal:
    return Refusal(MALFORMED, reason, reason)
