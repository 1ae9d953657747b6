"""OAuth 1.0a signatures (RFC 5849, HMAC-SHA1), which one of Garmin's endpoints requires."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def sign_request(
    method: str,
    url: str,
    form: Mapping[str, str],
    *,
    consumer: tuple[str, str],
    token: tuple[str, str],
    now: float,
) -> str:
    """The Authorization header; `consumer` and `token` are pairs of key and secret."""
    import base64
    import hashlib
    import hmac
    import secrets

    oauth = {
        "oauth_consumer_key": consumer[0],
        "oauth_nonce": secrets.token_hex(16),
        "oauth_signature_method": "HMAC-SHA1",
        "oauth_timestamp": str(int(now)),
        "oauth_token": token[0],
        "oauth_version": "1.0",
    }
    pairs = sorted((_quote(name), _quote(value)) for name, value in {**oauth, **form}.items())
    parameters = "&".join(f"{name}={value}" for name, value in pairs)
    base = "&".join(map(_quote, (method, url, parameters)))
    key = f"{_quote(consumer[1])}&{_quote(token[1])}"
    digest = hmac.new(key.encode(), base.encode(), hashlib.sha1).digest()
    signed = {**oauth, "oauth_signature": base64.b64encode(digest).decode()}
    return "OAuth " + ", ".join(f'{name}="{_quote(value)}"' for name, value in signed.items())


def _quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="-._~")
