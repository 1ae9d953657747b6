"""Removes secrets from what is given to others: values, names, texts, and whole documents."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import orjson

from ductile.config.loader.secrets import hide_url_secrets
from ductile.core.values.redact import (
    REDACTED,
    SHORTEST_SECRET,
    Redactor,
    hide_secret_keys,
    names_a_secret,
)
from ductile.model import Json

_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "
_PRIVATE = "PRIVATE KEY-----"
_NAME = re.compile(r"""(?<![\w.-])([A-Za-z_][\w.-]{0,63})["']?[ \t]{0,8}[:=][ \t]{0,8}["']?""")
_CHARACTERS = r"[\w.~+/=%@!:#&*^$-]"
_VALUE = re.compile(
    r"(?:(?:bearer|basic|token)[ \t]{1,8})?"
    rf"""((?=[^\s"'\d]{{0,200}}\d|{_CHARACTERS}{{20}})(?![#&*^$]){_CHARACTERS}{{8,}})([(\[{{]?)""",
    re.IGNORECASE,
)
"""A value with a digit or of 20 characters, behind the scheme of a header; and what makes it an
expression."""
_QUOTED = {mark: re.compile(rf"((?:[^{mark}\\\n]|\\.){{8,200}})(){mark}") for mark in "'\""}
"""By the quotation mark before it, a value up to the next one."""


class SecretRemover:
    """Knows the secrets of a configuration, and of the variables that its plugins receive.

    Beyond those it removes what is below a key that names a secret, also in text (`API_TOKEN=...`,
    `Authorization: Bearer ...`), passwords in URLs, and private keys. A secret that nothing of this
    recognises stays: who passes a file on has to read it.
    """

    def __init__(self, secrets: Iterable[str], environment: Mapping[str, str]) -> None:
        named = {value for name, value in environment.items() if names_a_secret(name)}
        known = {secret for secret in (*secrets, *named) if len(secret) >= SHORTEST_SECRET}
        in_hex = {secret.encode("utf-8", "surrogatepass").hex() for secret in known}
        self._redactor = Redactor({*known, *in_hex, *map(str.upper, in_hex)})

    def document(self, value: Json) -> Json:
        return self._clean(hide_secret_keys(value))

    def _clean(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self._clean(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(item) for item in value]
        # A number, for example, may be a secret too.
        if value is None or isinstance(value, bool):
            return value
        text = orjson.dumps(value).decode()
        return REDACTED if self._redactor.text(text) != text else value

    def text(self, text: str) -> str:
        return _hide_private_keys(_hide_assigned(hide_url_secrets(self._redactor.text(text))))

    def file(self, text: str) -> str:
        """The text of a file; of a JSON file also without what is below secret keys."""
        if text.lstrip()[:1] in ("{", "["):
            try:
                document = orjson.loads(text)
            except orjson.JSONDecodeError:
                return self.text(text)
            if hide_secret_keys(document) != document:
                return orjson.dumps(self.document(document), option=orjson.OPT_INDENT_2).decode()
        return self.text(text)


def _hide_assigned(text: str) -> str:
    """`text` without values that are assigned to a name of a secret, if they look like one.

    A word (`invalid token: expired`) and an expression (`TOKEN=$(cat file)`) are not removed.
    """
    parts, end, seen = list[str](), 0, 0
    for name in _NAME.finditer(text):
        if name.start() < seen or not names_a_secret(name[1]):
            continue
        quoted = _QUOTED.get(text[name.end() - 1])
        value = quoted.match(text, name.end()) if quoted else None
        value = value or _VALUE.match(text, name.end())
        seen = name.end() if value is None else value.end()
        if value is not None and not value[2]:
            parts += [text[end : value.start(1)], REDACTED]
            end = seen = value.end(1)
    return "".join(parts) + text[end:]


def _hide_private_keys(text: str) -> str:
    """`text` without the blocks of private keys, also of one that is cut off."""
    if _PRIVATE not in text:
        return text
    parts = []
    while (found := text.find(_KEY_BEGIN)) >= 0:
        line_end = text.find("\n", found)
        line = text[found : line_end if line_end >= 0 else len(text)]
        if _PRIVATE not in line:
            parts.append(text[: found + len(_KEY_BEGIN)])
            text = text[found + len(_KEY_BEGIN) :]
            continue
        parts.append(text[:found] + REDACTED)
        end = text.find(_KEY_END, found)
        closing = -1 if end < 0 else text.find("-----", end + len(_KEY_END))
        text = "" if closing < 0 else text[closing + len("-----") :]
    return "".join(parts) + text
