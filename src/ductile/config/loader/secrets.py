"""Which values of a configuration are secrets: by key, by variable, in URLs, by a mark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any
from urllib.parse import unquote

from ductile._fast_dataclass import dataclass
from ductile.config.loader.secret_sources import is_secret_source
from ductile.config.models.service import POSTGRES
from ductile.core.values.redact import (
    REDACTED,
    SHORTEST_SECRET,
    names_a_secret,
    names_a_secret_parameter,
)
from ductile.errors import Path

_URL_SECRET = re.compile(
    r"""((?<=://)[^\s/:@]*:)([^\s/@]+)(?=@)|(?<=[?&])([^\s=&#]+=)([^\s&#"']+)"""
)
"""A password before the host, or a parameter of a query, with the text before its value."""
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\s+(\S.*)", re.DOTALL)
"""A value of an Authorization header: the credentials follow the scheme."""
_DATABASE: tuple[Path, ...] = tuple(
    path for name in ("state", "database") for path in ((name,), (name, "url"))
)
_SECRET_URLS: frozenset[Path] = frozenset({("dead_man", "url")})
"""URLs whose path is a secret: a program that knows it can report a dead gateway as healthy."""
_TEMPLATE = re.compile(r"\{(payload|context|config)\.")
_GIVEN = {"plugins": "config", "pipelines": "with"}
"""Sections with a part that is passed to plugins unchanged."""
_KEYED_SECTIONS = frozenset({"concurrency", "rate", "debounce"})
"""Limits, whose `key` groups jobs and is not a secret."""
PUBLIC_VARIABLES = frozenset(
    {
        *("HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "TZ", "TMPDIR"),
        *("HOSTNAME", "PWD", "OLDPWD"),
    }
)
"""They describe the machine; as secrets, they would remove every path from the logs."""

_WORD = re.compile("[a-z]{1,12}")
"""A variable's value that is a plain word, such as `succeeded` or `production`.

Where neither the key nor the variable names a secret, it is a choice: redacted wherever it occurs,
it would remove the gateway's own words from responses and logs.
"""


@dataclass(frozen=True, slots=True)
class KnownSecrets:
    """The secrets of one configuration."""

    values: frozenset[str] = frozenset()
    """Secrets wherever they occur."""
    by_path: Mapping[Path, frozenset[str]] = field(default_factory=dict)
    """Scalars that are secrets unless their key is marked as public, with the secret values."""
    marks: Mapping[Path, bool] = field(default_factory=dict)
    """Whether a key of a plugin's `config` is secret, where the manifest or the operator says."""

    @property
    def long_values(self) -> frozenset[str]:
        """The values that are redacted in any text."""
        marked = (v for path, v in self.by_path.items() if self.mark(path) is not False)
        found = self.values.union(*marked)
        return frozenset(value for value in found if len(value) >= SHORTEST_SECRET)

    def is_secret(self, path: Path) -> bool:
        """Whether the scalar at `path` is redacted as a whole."""
        mark = self.mark(path)
        return (is_secret(path) or path in self.by_path) if mark is None else mark

    def with_marks(
        self, marks: Mapping[str, Mapping[str, bool]], configs: Mapping[str, Mapping[str, Any]]
    ) -> KnownSecrets:
        """The same with the marks of plugins, by name and key, and the values in `configs`."""
        values = set(self.values)
        for plugin, keys in marks.items():
            for key in (key for key, secret in keys.items() if secret):
                values.update(_texts(configs.get(plugin, {}).get(key), top=True))
        by_path: dict[Path, bool] = {
            ("plugins", plugin, "config", key): secret
            for plugin, keys in marks.items()
            for key, secret in keys.items()
        }
        return replace(self, values=frozenset(values), marks=by_path)

    def mark(self, path: Path) -> bool | None:
        """Whether the key of `path` is marked as secret; None if it is not marked."""
        return self.marks.get(path[:4])


def _texts(value: Any, *, top: bool) -> Iterator[str]:
    """The texts in a document, and a number that is the whole document."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _texts(item, top=False)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item, top=False)
    elif isinstance(value, str) or (top and value is not None):
        yield str(value)


class SecretCollector:
    """Collects the secrets while variables are expanded."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._by_path: dict[Path, frozenset[str]] = {}

    @property
    def known(self) -> KnownSecrets:
        return KnownSecrets(frozenset(self._values), dict(self._by_path))

    def add(self, path: Path, text: str, value: Any, used: Iterable[tuple[str, str]]) -> bool:
        """Add the secrets of a scalar; whether it must not be quoted.

        `used` are its variables with their values.
        """
        variables = [pair for pair in used if pair[0] not in PUBLIC_VARIABLES]
        secret = is_secret(path) and not _is_name_table(path) and not _TEMPLATE.search(text)
        # A number in a nested key (a time, a count) would redact unrelated text.
        known = secret and (isinstance(value, str) or names_a_secret(_names(path)[-1]))
        certain = {
            content for name, content in variables if names_a_secret(name) or is_secret_source(name)
        }
        certain |= _url_secrets(text)
        kept = {text} | _credentials(text, path) if known else set()
        hidden = bool(kept) or any(is_secret_source(name) for name, _ in variables)
        if known or _hides_variables(path):
            found = {content for _, content in variables}
            hidden = hidden or bool(found)
            kept |= {content for content in found if known or not _WORD.fullmatch(content)}
        self._values |= certain
        if hidden and value is not None:
            self._by_path[path] = frozenset(kept)
        return secret or bool(hidden or certain) or is_other_dsn(path, text)


def is_secret(path: Path) -> bool:
    """Whether the scalar at `path` is redacted: its key has the name of a secret, or it is known.

    In a plugin's `config` and a step's `with`, any key above it counts; elsewhere only its own,
    because those above are section names (`api.auth`) or a plugin's name.
    """
    if path in _SECRET_URLS:
        return True
    names = _names(path)
    given = _given_names(names)
    if names[:1] == ["plugins"] and names[2:] == ["secrets"]:
        return False  # Names of secrets, not their values.
    if is_limit_key(path):
        return False
    return any(map(names_a_secret, given or names[-1:]))


def is_limit_key(path: Path) -> bool:
    """Whether the value at `path` is the `key` of a limit, which groups jobs or runs."""
    names = _names(path)
    has_section = len(names) > 1 and names[-1] == "key" and names[-2] in _KEYED_SECTIONS
    return has_section and not _given_names(names)


def is_other_dsn(path: Path, text: str) -> bool:
    """Whether `text` is given for the database and is not a PostgreSQL URL.

    It may be a connection string of another form, with a password.
    """
    return path in _DATABASE and not text.startswith(POSTGRES)


def hide_url_secrets(text: str) -> str:
    """`text` with the passwords and the secret parameters of its URLs redacted."""
    return _URL_SECRET.sub(
        lambda match: f"{match[1] or match[3]}{REDACTED}" if _is_url_secret(match) else match[0],
        text,
    )


def _url_secrets(text: str) -> set[str]:
    """The passwords and secret parameters of the URLs in `text`, as written and decoded."""
    found = {match[2] or match[4] for match in _URL_SECRET.finditer(text) if _is_url_secret(match)}
    return found | set(map(unquote, found))


def _is_url_secret(match: re.Match[str]) -> bool:
    return match[1] is not None or names_a_secret_parameter(unquote(match[3]))


def _credentials(text: str, path: Path) -> set[str]:
    """What follows the scheme in the value of an Authorization header."""
    match = _SCHEME.fullmatch(text) if _names(path)[-1].lower().endswith("authorization") else None
    return {match[1]} if match else set()


def _hides_variables(path: Path) -> bool:
    """Whether every variable here is a secret: in a plugin's `config`, its `env`, any `headers`."""
    names = _names(path)
    is_given = names[:1] == ["plugins"] and names[2:3] in (["config"], ["env"])
    return is_given or any(name.lower() == "headers" for name in names)


def _given_names(names: list[str]) -> list[str]:
    """The keys in the part that is passed to a plugin."""
    given = _GIVEN.get(names[0]) if names else None
    return names[names.index(given) + 1 :] if given in names else []


def _is_name_table(path: Path) -> bool:
    """Whether the keys at `path` are names of events, claims or commands."""
    names = _names(path)
    ours = names[0] in ("pipelines", "plugins") and "config" not in names
    return ours and names[-2] in ("on_events", "baggage", "timeouts")


def _names(path: Path) -> list[str]:
    return [part for part in path if isinstance(part, str)]
