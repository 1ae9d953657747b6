"""Webhook signatures: the providers as data, how they are verified, and how ours are made.

Nothing here parses a body: the signature covers the received bytes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.core.values.json_values import Failure

Headers = Mapping[str, list[str]]
"""From lower-case names to all their values."""
TOLERANCE = 300.0
"""Seconds by which a signed timestamp may differ from the clock."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a provider signs."""

    header: str
    """The header that holds the signature."""
    read: Callable[[str], tuple[str | None, list[bytes]]]
    """From the header's value to the timestamp in it, if any, and its signatures."""
    signed: Callable[[str, str, bytes], bytes] = lambda _id, _at, body: body
    """From delivery id, timestamp and body to the bytes that the signature covers."""
    key: Callable[[str], bytes] = str.encode
    timestamp_header: str | None = None
    timed: bool = False
    """Whether a timestamp is signed, and must be within `TOLERANCE`."""
    id_header: str | None = None
    id_signed: bool = False
    id_field: str | None = None
    """The field of the verified body that holds the delivery id."""
    event_header: str | None = None
    """The header that holds the event type."""


@dataclass(frozen=True, slots=True)
class VerifiedWebhook:
    """What the headers of a verified request say."""

    delivery_id: str | None
    event: str | None
    signature: str = ""
    """The signature that the gateway computed, as hex: headers may spell it in several ways."""


def _read_hex(text: str) -> tuple[str | None, list[bytes]]:
    """Bare hex, or `sha256=` hex."""
    return None, _decode_all([text.strip().removeprefix("sha256=")], bytes.fromhex)


def _read_base64(text: str) -> tuple[str | None, list[bytes]]:
    return None, _decode_all([text.strip()], _decode_base64)


def _read_stripe(text: str) -> tuple[str | None, list[bytes]]:
    """`t=1492774577,v1=5257a8...,v0=6ffbb5...`; versions other than v1 are ignored."""
    pairs = [part.strip().partition("=") for part in text.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    signatures = [value for name, _, value in pairs if name == "v1"]
    return times[0] if len(times) == 1 else None, _decode_all(signatures, bytes.fromhex)


def _read_slack(text: str) -> tuple[str | None, list[bytes]]:
    version, _, signature = text.strip().partition("=")
    return None, _decode_all([signature] if version == "v0" else [], bytes.fromhex)


def _read_standard(text: str) -> tuple[str | None, list[bytes]]:
    """`v1,<base64>` once per key, separated by spaces."""
    pairs = [part.partition(",") for part in text.split()]
    return None, _decode_all([value for name, _, value in pairs if name == "v1"], _decode_base64)


def _decode_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decode_all(texts: Iterable[str], decode: Callable[[str], bytes]) -> list[bytes]:
    found = []
    for text in texts:
        try:
            found.append(decode(text))
        except (ValueError, binascii.Error):
            continue
    return found


def decode_standard_key(secret: str) -> bytes:
    """`whsec_` and base64 with or without padding; a secret that is not base64 is used as it is."""
    text = secret.removeprefix("whsec_")
    padding = "" if text == secret else "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text + padding, validate=True)
    except (ValueError, binascii.Error):
        return secret.encode()


def _join_with_dot(_id: str, at: str, body: bytes) -> bytes:
    return at.encode() + b"." + body


PROVIDERS: Mapping[str, Scheme] = {
    "github": Scheme(
        "x-hub-signature-256",
        _read_hex,
        id_header="x-github-delivery",
        event_header="x-github-event",
    ),
    "stripe": Scheme("stripe-signature", _read_stripe, _join_with_dot, timed=True, id_field="id"),
    "slack": Scheme(
        "x-slack-signature",
        _read_slack,
        lambda _id, at, body: b"v0:" + at.encode() + b":" + body,
        timestamp_header="x-slack-request-timestamp",
        timed=True,
        id_field="event_id",
    ),
    "shopify": Scheme(
        "x-shopify-hmac-sha256",
        _read_base64,
        id_header="x-shopify-webhook-id",
        event_header="x-shopify-topic",
    ),
    "standard": Scheme(
        "webhook-signature",
        _read_standard,
        lambda id, at, body: id.encode() + b"." + _join_with_dot(id, at, body),
        key=decode_standard_key,
        timestamp_header="webhook-timestamp",
        timed=True,
        id_header="webhook-id",
        id_signed=True,
    ),
}
PLAIN = Scheme("x-hub-signature-256", _read_hex)
"""For an endpoint without a `provider`."""


def verify(
    scheme: Scheme, secret: str, headers: Headers, body: bytes, now: float
) -> VerifiedWebhook | None:
    """As `judge`, but None instead of the reason."""
    judged = judge(scheme, secret, headers, body, now)
    return judged if isinstance(judged, VerifiedWebhook) else None


def judge(
    scheme: Scheme,
    secret: str,
    headers: Headers,
    body: bytes,
    now: float,
    *,
    header: str | None = None,
) -> VerifiedWebhook | Failure:
    """Verify that the sender knows `secret` and signed these bytes recently.

    A request that repeats a signature, timestamp, id or event header is rejected. `header` replaces
    the scheme's signature header. The reason of a failure is for the log, not for the sender; it
    contains nothing of the request.
    """
    names = (scheme.timestamp_header, scheme.id_header, scheme.event_header)
    for name in names:
        if name and len(headers.get(name, ())) > 1:
            return Failure(f"repeated header {name}")
    own = (header or scheme.header).lower()
    given = headers.get(own, [])
    if len(given) != 1:
        return Failure(f"repeated header {own}" if given else f"missing header {own}")
    at, signatures = scheme.read(given[0])
    at = at or find_single(headers, scheme.timestamp_header)
    id = find_single(headers, scheme.id_header)
    if scheme.timed and not at:
        return Failure("missing timestamp")
    if scheme.timed and not _is_recent(at, now):
        return Failure("the timestamp is too far from this gateway's clock")
    if scheme.id_signed and not id:
        return Failure(f"missing header {scheme.id_header}")
    key = scheme.key(secret)
    if not key:
        return Failure("the secret is an empty key")
    expected = hmac.digest(key, scheme.signed(id or "", at or "", body), "sha256")
    # All are compared, so that the duration reveals nothing.
    matches = [hmac.compare_digest(expected, signature) for signature in signatures]
    if not any(matches):
        return Failure("the signature does not match")
    return VerifiedWebhook(id, find_single(headers, scheme.event_header), expected.hex())


def find_single(headers: Headers, name: str | None) -> str | None:
    """The first value of a header; None if it is absent or empty."""
    values = headers.get(name, []) if name else []
    return values[0] if values and values[0] else None


def _is_recent(at: str | None, now: float) -> bool:
    return at is not None and at.isdecimal() and len(at) < 16 and abs(int(at) - now) <= TOLERANCE


SIGNATURE_HEADER = "X-Observatory-Signature"
OBSERVATORY = Scheme(SIGNATURE_HEADER.lower(), PLAIN.read)
"""How webhooks for agents are signed: `sha256=` and hex, over the body."""


def compute_signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of these bytes in hex; the key is the text of the secret."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def sign_headers(secret: str, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The gateway's own signature and the one of Standard Webhooks, over exactly these bytes.

    The key of the latter is the decoded secret if that is base64, with or without `whsec_`, else
    its text.
    """
    standard = PROVIDERS["standard"]
    at = str(int(now.timestamp()))
    signed = hmac.new(
        standard.key(secret), standard.signed(message_id, at, body), hashlib.sha256
    ).digest()
    return {
        SIGNATURE_HEADER: f"sha256={compute_signature(secret, body)}",
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
