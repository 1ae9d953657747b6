"""Keeping secrets out of text that leaves the process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote

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
    """The same document with every scalar under a secret-named key replaced, at any depth."""
    if isinstance(value, Mapping):
        return {key: _hide(key, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [hide_secret_keys(item) for item in value]
    return value


def _hide(key: object, item: Json) -> Json:
    if not names_a_secret(str(key)):
        return hide_secret_keys(item)
    if isinstance(item, Mapping):
        return {inner: _hide(inner, value) for inner, value in item.items()}
    if isinstance(item, list | tuple):
        return [REDACTED if not isinstance(one, Mapping) else hide_secret_keys(one) for one in item]
    return None if item is None else REDACTED


def _spellings(secret: str) -> set[str]:
    """How the secret may be written: plain, in a URL, in JSON, in JSON inside JSON."""
    found = {secret, quote(secret, safe="")}
    for _ in range(JSON_INSIDE_JSON):
        found |= {json.dumps(text)[1:-1] for text in found}
        found |= {json.dumps(text, ensure_ascii=False)[1:-1] for text in found}
    return found


class Redactor:
    """Replaces the known secret values in text, also where JSON or a URL has escaped them."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {
            spelling
            for secret in secrets
            if len(secret) >= SHORTEST_SECRET
            for spelling in _spellings(secret)
        }
        longest_first = sorted(spellings, key=lambda text: (-len(text), text))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if spellings else None

    def text(self, text: str) -> str:
        """`text` without any of the secrets."""
        return text if self._pattern is None else self._pattern.sub(REDACTED, text)

    def maybe(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def document(self, value: Json) -> Json:
        """A JSON document without any of the secrets, keys included."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        return value
