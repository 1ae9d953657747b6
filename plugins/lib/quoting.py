"""What others said, quoted for people: without our secrets, and no longer than it may be."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

HIDDEN = "[REDACTED]"
SHORTEST_PART = 4
"""Of a secret that a cut divided; less of it tells nothing."""
BROKEN = "\ufffd"
"""What decoding leaves of a character that a cut divided; of one's end, three at most."""
MOST_BROKEN = 3
LARGEST_EXCERPT = 4096
SECRET_NAMES = ("token", "secret", "password", "key")


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without the secrets, also as JSON or a URL write them."""
    return _replaced(text, _spellings(secrets))


def beginning(text: str, secrets: Iterable[str]) -> str:
    """The same of a text whose end was cut off, and with it perhaps the end of a secret."""
    spellings = _spellings(secrets)
    text = _replaced(text, spellings).removesuffix(BROKEN)
    cut = max((_divided(text, spelling) for spelling in spellings), default=0)
    return text[: len(text) - cut]


def ending(text: str, secrets: Iterable[str]) -> str:
    """The same of a text whose beginning was cut off."""
    spellings = _spellings(secrets)
    text = _replaced(text, spellings)
    for _ in range(MOST_BROKEN):
        text = text.removeprefix(BROKEN)
    cut = max((_divided(text[::-1], spelling[::-1]) for spelling in spellings), default=0)
    return text[cut:]


def excerpt(raw: bytes, secrets: Iterable[str]) -> str:
    """The beginning of a document, as text; how much more there was is said."""
    text = raw[:LARGEST_EXCERPT].decode("utf-8", "replace")
    more = len(raw) - LARGEST_EXCERPT
    if more <= 0:
        return hidden(text, secrets)
    return f"{beginning(text, secrets)}\n[{more} more bytes are left out]"


def secrets_in(*documents: Mapping[str, Any]) -> list[str]:
    """The texts that stand under the name of a secret."""
    return [
        value
        for document in documents
        for name, value in document.items()
        if isinstance(value, str) and any(part in name for part in SECRET_NAMES)
    ]


def _spellings(secrets: Iterable[str]) -> list[str]:
    """Each secret as it may be written; the longest first, for one may hold another."""
    import json
    from urllib.parse import quote

    found: set[str] = set()
    for secret in secrets:
        plain = {secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
        found |= plain | {one.replace("/", "\\/") for one in plain}
        found.add(quote(secret.encode("utf-8", "replace"), safe=""))
    return sorted(found - {""}, key=len, reverse=True)


def _replaced(text: str, spellings: Iterable[str]) -> str:
    for spelling in spellings:
        text = text.replace(spelling, HIDDEN)
    return text


def _divided(text: str, secret: str) -> int:
    """How much of the secret's beginning the text ends with."""
    most = min(len(secret) - 1, len(text))
    return next((n for n in range(most, SHORTEST_PART - 1, -1) if text.endswith(secret[:n])), 0)
