"""Quote output of programs and providers without secrets and with limited length."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

HIDDEN = "[REDACTED]"
SHORTEST_PART = 4
"""Shortest part of a truncated secret that is removed."""
BROKEN = "\ufffd"
"""The replacement character that decoding leaves of a truncated character."""
MAX_BROKEN = 3
"""Replacement characters that the end of one character can leave."""
MAX_QUOTE = 4096
SECRET_NAMES = ("token", "secret", "password", "key")


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` with the secrets replaced, also if they are encoded as JSON or URL."""
    return _replace(text, _spellings(secrets))


def redact_start(text: str, secrets: Iterable[str]) -> str:
    """As `redact`, for a text that was truncated at its end, maybe within a secret."""
    spellings = _spellings(secrets)
    text = _replace(text, spellings).removesuffix(BROKEN)
    cut = max((_overlap(text, spelling) for spelling in spellings), default=0)
    return text[: len(text) - cut]


def redact_end(text: str, secrets: Iterable[str]) -> str:
    """As `redact`, for a text that was truncated at its start."""
    spellings = _spellings(secrets)
    text = _replace(text, spellings)
    for _ in range(MAX_BROKEN):
        text = text.removeprefix(BROKEN)
    cut = max((_overlap(text[::-1], spelling[::-1]) for spelling in spellings), default=0)
    return text[cut:]


def quote_start(raw: bytes, secrets: Iterable[str]) -> str:
    """The start of a document as text, with the number of omitted bytes."""
    text = raw[:MAX_QUOTE].decode("utf-8", "replace")
    more = len(raw) - MAX_QUOTE
    if more <= 0:
        return redact(text, secrets)
    return f"{redact_start(text, secrets)}\n[{more} more bytes omitted]"


def find_secrets(*documents: Mapping[str, Any]) -> list[str]:
    """The texts whose keys name a secret."""
    return [
        value
        for document in documents
        for name, value in document.items()
        if isinstance(value, str) and any(part in name for part in SECRET_NAMES)
    ]


def _spellings(secrets: Iterable[str]) -> list[str]:
    """The encodings of each secret, longest first, because one may contain another."""
    import json
    from urllib.parse import quote

    found: set[str] = set()
    for secret in secrets:
        plain = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        found |= plain | {one.replace("/", "\\/") for one in plain}
        found.add(quote(secret.encode("utf-8", "replace"), safe=""))
    return sorted(found - {""}, key=len, reverse=True)


def _replace(text: str, spellings: Iterable[str]) -> str:
    for spelling in spellings:
        text = text.replace(spelling, HIDDEN)
    return text


def _overlap(text: str, secret: str) -> int:
    """The length of the longest start of the secret that the text ends with."""
    most = min(len(secret) - 1, len(text))
    return next((n for n in range(most, SHORTEST_PART - 1, -1) if text.endswith(secret[:n])), 0)
