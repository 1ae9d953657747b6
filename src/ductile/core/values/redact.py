"""Redact secrets in text that leaves the process."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import quote, quote_plus

from ductile.model import Json

REDACTED = "[REDACTED]"
SHORTEST_SECRET = 8
"""Redacting shorter values would replace ordinary words."""

JSON_INSIDE_JSON = 3
"""Levels of JSON inside JSON strings, as in log lines that quote documents."""

_SECRET_PARTS = frozenset(
    {
        *("secret", "key", "token", "password", "passwd", "passphrase", "pwd", "credential"),
        *("auth", "authorization", "cookie", "bearer", "jwt", "pat"),
    }
)
_SECRET_ENDINGS = (
    *("token", "secret", "password", "passwd", "passphrase", "authorization", "cookie"),
    *("apikey", "accesskey", "secretkey", "privatekey", "signingkey"),
)
"""Of words that are written together, such as `accesstoken`."""
_SIGNATURES = frozenset({"sig", "signature"})
_NOT_SECRET = frozenset({"dedupe_key", "key_id", "secret_ref", "require_key_id"})
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")


_LINK_PATH = r"(approve(?:\\{0,7}/|%(?:25){0,3}2[Ff]))"
"""Before the token of an approval link; its slash may be escaped for JSON or for a URL."""
_TOKEN_CHARACTER = "[A-Za-z0-9_-]"
_APPROVAL_LINK = re.compile(_LINK_PATH + _TOKEN_CHARACTER + "{43}")
_CUT_LINK = re.compile(_LINK_PATH + _TOKEN_CHARACTER + r"{1,42}\Z")
_LONGEST_CUT_LINK = 64
_WITHOUT_TOKEN = rf"\1{REDACTED}"


def _hide_approval_links(text: str) -> str:
    """`text` without the tokens of approval links: who may read jobs may not decide for others."""
    return _APPROVAL_LINK.sub(_WITHOUT_TOKEN, text) if "approve" in text else text


def _find_cut_token(text: str) -> int | None:
    """Where the incomplete token begins that the text ends with."""
    before = max(0, len(text) - _LONGEST_CUT_LINK)
    found = _CUT_LINK.search(text[before:])
    return None if found is None else before + found.end(1)


def names_a_secret(key: str) -> bool:
    """Whether a scalar with this key is redacted: a word of the key names a secret."""
    if key in _NOT_SECRET:
        return False
    parts = _split_words(key)
    return not _SECRET_PARTS.isdisjoint(parts) or any(
        part.endswith(_SECRET_ENDINGS) for part in parts
    )


def names_a_secret_parameter(name: str) -> bool:
    """Whether the value of this parameter of a URL is redacted: a secret, or a signature."""
    return names_a_secret(name) or not _SIGNATURES.isdisjoint(_split_words(name))


def _split_words(name: str) -> set[str]:
    return {word.lower().removesuffix("s") for word in _WORDS.findall(name)}


def hide_secret_keys(value: Json) -> Json:
    """The document with every scalar below a key that names a secret replaced, at any depth."""
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
    """The encodings of a secret: plain, URL, base64, JSON, and JSON inside JSON."""
    raw = secret.encode("utf-8", "surrogatepass")
    found = {secret, quote(raw, safe=""), quote(raw), quote_plus(raw)}
    found |= {_ESCAPED.sub(lambda match: match[0].lower(), text) for text in found}
    found |= _in_base64(raw)
    # Some JSON encoders escape the slash.
    found |= {text.replace("/", "\\/") for text in found}
    for _ in range(JSON_INSIDE_JSON):
        found |= {json.dumps(text)[1:-1] for text in found}
        found |= {json.dumps(text, ensure_ascii=False)[1:-1] for text in found}
    return found


def _in_base64(raw: bytes) -> set[str]:
    """The parts of base64 text that these bytes determine, for any bytes around them."""
    found = set()
    for before in range(3):
        text = base64.b64encode(b"\0" * before + raw).decode()
        certain = text[-(-before * 8 // 6) : (before + len(raw)) * 8 // 6]
        found |= {certain, certain.translate(_URL_SAFE)}
    return found


_ESCAPED = re.compile("%[0-9A-F]{2}")
_URL_SAFE = str.maketrans("+/", "-_")
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s",:\[\]{}]+')
"""A string, or a number or word outside of one."""
_QUOTED = f'"{REDACTED}"'
SHORTEST_PART = 4
"""Shortest part of a truncated secret that is redacted."""


class Redactor:
    """Replaces secret values in text, also if they are encoded as JSON, URL or base64.

    The tokens of approval links are replaced too, and before all else.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {
            spelling
            for secret in secrets
            if len(secret) >= SHORTEST_SECRET
            for spelling in map(_hide_approval_links, _spellings(secret))
        }
        self._spellings = sorted(spellings, key=lambda text: (-len(text), text))
        # Usually no secret is there, and an alternation of so many words is slow to exclude.
        self._pattern = re.compile("|".join(map(re.escape, self._spellings)))

    def text(self, text: str) -> str:
        """`text` with every secret replaced."""
        text = _hide_approval_links(text)
        if not any(spelling in text for spelling in self._spellings):
            return text
        return self._pattern.sub(REDACTED, text)

    def json(self, text: str) -> str:
        """As `text`, for JSON documents, which stay valid JSON.

        A number outside of a string becomes a string if a secret is part of it.
        """
        text = _hide_approval_links(text)
        if not any(spelling in text for spelling in self._spellings):
            return text
        shown = _JSON_TOKEN.sub(lambda match: self._json_token(match[0]), text)
        if not self._pattern.search(shown):
            return shown
        if not _is_json(shown):
            return self._pattern.sub(REDACTED, shown)
        # The secret is a document itself, and is there as one.
        replaced = self._pattern.sub(_QUOTED, shown)
        return replaced if _is_json(replaced) else shown

    def _json_token(self, token: str) -> str:
        if not self._pattern.search(token):
            return token
        if not token.startswith('"'):
            return _QUOTED
        shown = f'"{self._pattern.sub(REDACTED, token[1:-1])}"'
        # The text of a secret may begin or end within an escape sequence, as in `\\nsecret`.
        return shown if _is_json(shown) else json.dumps(self.text(json.loads(token)))

    def truncated_text(self, text: str) -> str:
        """As `text`, for a truncated text that may end with part of a secret."""
        shown = self.text(text)
        # A replacement character may follow that part, if a character was cut in two.
        known = shown.removesuffix("\ufffd")
        token = _find_cut_token(known)
        if token is not None:
            return known[:token] + REDACTED
        cut = max((_overlap(known, spelling) for spelling in self._spellings), default=0)
        return known[:-cut] + REDACTED if cut else shown

    def partial_text(self, text: str) -> str:
        """As `text`, for the beginning of a text, without an end that may become a secret."""
        text = _hide_approval_links(text)
        text = text[: _find_cut_token(text)]
        starts = {
            len(text) - length
            for spelling in self._spellings
            for length in range(1, min(len(spelling), len(text) + 1))
            if text.endswith(spelling[:length])
        }
        if not starts:
            return self.text(text)
        # What begins inside of a whole secret is replaced with it.
        whole = [match.span() for match in self._pattern.finditer(text)]
        unsettled = (start for start in sorted(starts) if not any(a < start < b for a, b in whole))
        return self.text(text[: next(unsettled, len(text))])

    def optional_text(self, text: str | None) -> str | None:
        return None if text is None else self.text(text)

    def document(self, value: Json) -> Json:
        """A JSON document with every secret replaced, in keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.document(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.document(item) for item in value]
        return value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _overlap(text: str, secret: str) -> int:
    """The length of the longest start of the secret that the text ends with."""
    most = min(len(secret) - 1, len(text))
    return next((n for n in range(most, SHORTEST_PART - 1, -1) if text.endswith(secret[:n])), 0)
