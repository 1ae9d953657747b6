"""Keeping secrets out of text that leaves the process."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

from ductile.model import Json

REDACTED = "[REDACTED]"
SHORTEST_SECRET = 8
"""Shorter values would black out ordinary words."""

JSON_INSIDE_JSON = 3
"""Plugins quote: a log line may hold a document that holds a document."""

_SECRET_PARTS = frozenset({"secret", "key", "token", "password", "passwd", "credential", "auth"})
_NOT_SECRET = frozenset({"dedupe_key", "key_id", "secret_ref", "require_key_id"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


def names_a_secret(key: str) -> bool:
    """Whether a scalar under this key is hidden: one of its name's parts says so."""
    if key in _NOT_SECRET:
        return False
    parts = {word.lower().removesuffix("s") for word in _WORDS.findall(key)}
    return not _SECRET_PARTS.isdisjoint(parts)


def hide_secret_keys(value: Json) -> Json:
    """The same document with every scalar below a secret-named key replaced, at any depth."""
    return _hide(value, secret=False)


def _hide(value: Json, *, secret: bool) -> Json:
    if isinstance(value, Mapping):
        return {
            key: _hide(item, secret=secret or names_a_secret(str(key)))
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_hide(item, secret=secret) for item in value]
    return REDACTED if secret and value is not None else value


def _spellings(secret: str) -> set[str]:
    """How the secret may be written: plain, in a URL, in base64, in JSON, in JSON inside JSON."""
    raw = secret.encode("utf-8", "surrogatepass")
    found = {secret, quote(raw, safe=""), quote(raw), quote_plus(raw)}
    found |= {_ESCAPED.sub(lambda match: match[0].lower(), text) for text in found}
    found |= _in_base64(raw)
    # Some writers of JSON escape the slash as well.
    found |= {text.replace("/", "\\/") for text in found}
    for _ in range(JSON_INSIDE_JSON):
        found |= {json.dumps(text)[1:-1] for text in found}
        found |= {json.dumps(text, ensure_ascii=False)[1:-1] for text in found}
    return found


def _in_base64(raw: bytes) -> set[str]:
    """What base64 makes of these bytes, whatever stands before and behind them."""
    found = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode()
        certain = text[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        found |= {certain, certain.translate(_URL_SAFE)}
    return found


_ESCAPED = re.compile("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
SHORTEST_PART = 4
"""Of a secret that was cut off; less of it tells nothing."""


class Redactor:
    """Replaces the known secret values in text, also as JSON, a URL or base64 write them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {
            spelling
            for secret in secrets
            if len(secret) >= SHORTEST_SECRET
            for spelling in _spellings(secret)
        }
        self._spellings = sorted(spellings, key=lambda text: (-len(text), text))
        # An alternative of so many words is slow where none of them is there, as is usual.
        self._pattern = re.compile("|".join(map(re.escape, self._spellings)))

    @property
    def knows_any(self) -> bool:
        """Whether there is a secret to look for."""
        return bool(self._spellings)

    def text(self, text: str) -> str:
        """`text` without any of the secrets."""
        if not any(spelling in text for spelling in self._spellings):
            return text
        return self._pattern.sub(REDACTED, text)

    def beginning(self, text: str) -> str:
        """The same of a text whose end was cut off, and with it perhaps the end of a secret."""
        shown = self.text(text)
        # What stands for a character that was cut in two may end a secret's beginning.
        known = shown.removesuffix("\ufffd")
        cut = max((_overlap(known, spelling) for spelling in self._spellings), default=0)
        return known[:-cut] + REDACTED if cut else shown

    def maybe(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def document(self, value: Json) -> Json:
        """A JSON document without any of the secrets, keys included."""
        if not self._spellings:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        return value


def _overlap(text: str, secret: str) -> int:
    """How much of the secret's beginning the text ends with."""
    most = min(len(secret) - 1, len(text))
    return next((n for n in range(most, SHORTEST_PART - 1, -1) if text.endswith(secret[:n])), 0)
