"""Signatures of webhooks: providers as data, and one function that judges.

Nothing here parses a body: what is signed are the bytes that were received.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping

from ductile.core.values.json_values import Failure
from ductile.record import dataclass

Headers = Mapping[str, list[str]]
"""Lower-case names to all their values."""
TOLERANCE = 300.0
"""Seconds that a signed timestamp may be off, either way."""


@dataclass(frozen=True, slots=True)
class Scheme:
    """How a sender signs."""

    header: str
    """Where the signature stands."""
    read: Callable[[str], tuple[str | None, list[bytes]]]
    """From the header: its own timestamp if it has one, and the signatures in it."""
    signed: Callable[[str, str, bytes], bytes] = lambda _id, _at, body: body
    """From delivery id, timestamp and body: what the signature covers."""
    key: Callable[[str], bytes] = str.encode
    timestamp_header: str | None = None
    timed: bool = False
    """Whether a timestamp is signed, and must be near."""
    id_header: str | None = None
    id_signed: bool = False
    id_field: str | None = None
    """Where the body, once it is verified, says which delivery it is."""
    event_header: str | None = None
    """Where the sender names the event."""


@dataclass(frozen=True, slots=True)
class Verified:
    delivery_id: str | None
    event: str | None


def _hex(text: str) -> tuple[str | None, list[bytes]]:
    """Bare hex, or `sha256=` hex."""
    return None, _decoded([text.strip().removeprefix("sha256=")], bytes.fromhex)


def _base64(text: str) -> tuple[str | None, list[bytes]]:
    return None, _decoded([text.strip()], _unbase64)


def _stripe(text: str) -> tuple[str | None, list[bytes]]:
    """`t=1492774577,v1=5257a8...,v0=6ffbb5...`: other versions do not count."""
    pairs = [part.strip().partition("=") for part in text.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    signatures = [value for name, _, value in pairs if name == "v1"]
    return times[0] if len(times) == 1 else None, _decoded(signatures, bytes.fromhex)


def _slack(text: str) -> tuple[str | None, list[bytes]]:
    version, _, signature = text.strip().partition("=")
    return None, _decoded([signature] if version == "v0" else [], bytes.fromhex)


def _standard(text: str) -> tuple[str | None, list[bytes]]:
    """`v1,<base64>` as often as there are keys, divided by spaces."""
    pairs = [part.partition(",") for part in text.split()]
    return None, _decoded([value for name, _, value in pairs if name == "v1"], _unbase64)


def _unbase64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _decoded(texts: Iterable[str], decode: Callable[[str], bytes]) -> list[bytes]:
    found = []
    for text in texts:
        try:
            found.append(decode(text))
        except (ValueError, binascii.Error):
            continue
    return found


def _standard_key(secret: str) -> bytes:
    """`whsec_` and base64, its padding or not; a secret that is no base64 is taken as it is."""
    text = secret.removeprefix("whsec_")
    padding = "" if text == secret else "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text + padding, validate=True)
    except (ValueError, binascii.Error):
        return secret.encode()


def _dotted(_id: str, at: str, body: bytes) -> bytes:
    return at.encode() + b"." + body


PROVIDERS: Mapping[str, Scheme] = {
    "github": Scheme(
        "x-hub-signature-256",
        _hex,
        id_header="x-github-delivery",
        event_header="x-github-event",
    ),
    "stripe": Scheme("stripe-signature", _stripe, _dotted, timed=True, id_field="id"),
    "slack": Scheme(
        "x-slack-signature",
        _slack,
        lambda _id, at, body: b"v0:" + at.encode() + b":" + body,
        timestamp_header="x-slack-request-timestamp",
        timed=True,
        id_field="event_id",
    ),
    "shopify": Scheme(
        "x-shopify-hmac-sha256",
        _base64,
        id_header="x-shopify-webhook-id",
        event_header="x-shopify-topic",
    ),
    "standard": Scheme(
        "webhook-signature",
        _standard,
        lambda id, at, body: id.encode() + b"." + _dotted(id, at, body),
        key=_standard_key,
        timestamp_header="webhook-timestamp",
        timed=True,
        id_header="webhook-id",
        id_signed=True,
    ),
}
PLAIN = Scheme("x-hub-signature-256", _hex)
"""An endpoint that names no provider (002 §10.2)."""


def verify(
    scheme: Scheme, secret: str, headers: Headers, body: bytes, now: float
) -> Verified | None:
    """Who sent these bytes knows `secret`, and sent them just now; None is no. See `judge`."""
    judged = judge(scheme, secret, headers, body, now)
    return judged if isinstance(judged, Verified) else None


def judge(
    scheme: Scheme,
    secret: str,
    headers: Headers,
    body: bytes,
    now: float,
    *,
    header: str | None = None,
) -> Verified | Failure:
    """The same, with the reason of a no: for our log alone, and without what was sent.

    A header that decides and comes twice decides nothing. `header` stands in the place of
    the scheme's own.
    """
    names = (scheme.timestamp_header, scheme.id_header, scheme.event_header)
    for name in names:
        if name and len(headers.get(name, ())) > 1:
            return Failure(f"more than one header {name}")
    own = (header or scheme.header).lower()
    given = headers.get(own, [])
    if len(given) != 1:
        return Failure(f"more than one header {own}" if given else f"no header {own}")
    at, signatures = scheme.read(given[0])
    at = at or _one(headers, scheme.timestamp_header)
    id = _one(headers, scheme.id_header)
    if scheme.timed and not at:
        return Failure("no timestamp")
    if scheme.timed and not _near(at, now):
        return Failure("its timestamp is too far from our clock")
    if scheme.id_signed and not id:
        return Failure(f"no header {scheme.id_header}")
    expected = hmac.new(
        scheme.key(secret), scheme.signed(id or "", at or "", body), hashlib.sha256
    ).digest()
    # Every one is compared, so that time tells nothing.
    matches = [hmac.compare_digest(expected, signature) for signature in signatures]
    if not any(matches):
        return Failure("the signature does not match")
    return Verified(id, _one(headers, scheme.event_header))


def _one(headers: Headers, name: str | None) -> str | None:
    values = headers.get(name, []) if name else []
    return values[0] if values and values[0] else None


def _near(at: str | None, now: float) -> bool:
    return at is not None and at.isdecimal() and len(at) < 16 and abs(int(at) - now) <= TOLERANCE
