"""Removes secrets from what is given to others: values, names, texts, and whole documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import orjson

from ductile.config.loader.secrets import hide_url_secrets
from ductile.core.values.redact import REDACTED, Redactor, hide_secret_keys, names_a_secret
from ductile.model import Json

_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "
_PRIVATE = "PRIVATE KEY-----"


class SecretRemover:
    """Knows the secrets of a configuration, and of the variables that its plugins receive.

    Beyond those it removes what is below a key that names a secret, passwords in URLs, and private
    keys. A secret that nothing of this recognises stays: who passes a file on has to read it.
    """

    def __init__(self, secrets: Iterable[str], environment: Mapping[str, str]) -> None:
        named = {value for name, value in environment.items() if names_a_secret(name)}
        self._redactor = Redactor({*secrets, *named})

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
        return _hide_private_keys(hide_url_secrets(self._redactor.text(text)))

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
