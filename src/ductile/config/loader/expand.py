"""Expand the variables of the merged tree: values for the schema, locations, secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ductile.config.loader.interpolate import Variables, warn_of_lookalike
from ductile.config.loader.nodes import Location, MappingNode, Node, ScalarNode, SequenceNode
from ductile.config.loader.yaml import NotJson, type_of
from ductile.config.models.fields import RawScalar
from ductile.config.models.service import POSTGRES
from ductile.core.values.redact import REDACTED, SHORTEST_SECRET, names_a_secret
from ductile.errors import Path, Problem

_URL_PASSWORD = re.compile(
    r"((?<=://)[^\s/:@]*:)([^\s/@]+)(?=@)|((?<=[?&])(?:ssl)?password=)([^\s&]+)"
)
"""A password before the host, or in the query of a PostgreSQL URL, with the text before it."""
_DATABASE: tuple[Path, ...] = tuple(
    path for name in ("state", "database") for path in ((name,), (name, "url"))
)
_TEMPLATE = re.compile(r"\{(payload|context|config)\.")
_GIVEN = {"plugins": "config", "pipelines": "with"}
"""Sections with a part that is passed to plugins unchanged."""


@dataclass(slots=True)
class Expanded:
    data: Any = None
    """Dicts and lists of `RawScalar`, and None for a key that is left empty."""
    locations: dict[Path, Location] = field(default_factory=dict)
    keys: dict[Path, Location] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    broken: set[Path] = field(default_factory=set)
    """Scalars that have a problem already, or whose variables were not looked up; the schema's
    errors about them are dropped."""
    problems: list[Problem] = field(default_factory=list)


def expand(tree: MappingNode, variables: Variables, values: Mapping[str, str] | None) -> Expanded:
    """Replace the variables in every scalar of `tree` by `values`; keys are never expanded.

    Without `values`, a scalar that refers to a variable is left as it was written.
    """
    expander = _Expander(variables, values)
    expander.out.locations[()] = tree.location
    expander.out.data = expander.walk(tree, ())
    return expander.out


class _Expander:
    def __init__(self, variables: Variables, values: Mapping[str, str] | None) -> None:
        self.out = Expanded()
        self._variables = variables
        self._values = values

    def walk(self, node: Node, path: Path) -> Any:
        match node:
            case MappingNode():
                table = {}
                for raw, entry in node.items.items():
                    key = self._variables.restore(raw)
                    here = (*path, key)
                    self.out.locations[here] = entry.location
                    self.out.keys[here] = entry.key
                    table[key] = self.walk(entry.value, here)
                return table
            case SequenceNode():
                for index, item in enumerate(node.items):
                    self.out.locations[(*path, index)] = item.location
                return [self.walk(item, (*path, index)) for index, item in enumerate(node.items)]
            case ScalarNode():
                return self._scalar(node, path)

    def _scalar(self, scalar: ScalarNode, path: Path) -> RawScalar | None:
        if self._values is None and self._variables.conceals(scalar.text):
            self.out.broken.add(path)
            text = self._variables.restore(scalar.text)
            return RawScalar(text, text, scalar.location, secret=True)
        expansion = self._variables.expand(scalar, self._values or {})
        text = expansion.text
        for name in dict.fromkeys(expansion.missing):
            self._reject(
                scalar,
                path,
                f"the variable {name} is not set; set it in the environment or an .env file, "
                f"or write ${{{name}:-default}}",
                None,
            )
        for name, content in expansion.used:
            if not _is_text(content):
                self._reject(scalar, path, f"the variable {name} is not UTF-8 text", "UTF-8")
        value: Any
        try:
            value = type_of(scalar, text)
        except NotJson as reason:
            value = reason
        except ValueError as error:
            self._reject(scalar, path, str(error), None)
            value = text
        secret = self._keep_secrets(path, text, value, expansion.used)
        if warning := warn_of_lookalike(scalar.text, scalar.location, quote=not secret):
            self.out.problems.append(warning)
        if value is None and path not in self.out.broken:
            return None
        return RawScalar(text, value, scalar.location, secret)

    def _reject(self, scalar: ScalarNode, path: Path, message: str, allowed: str | None) -> None:
        self.out.broken.add(path)
        self.out.problems.append(scalar.location.problem(message, path=path, allowed=allowed))

    def _keep_secrets(
        self, path: Path, text: str, value: Any, used: tuple[tuple[str, str], ...]
    ) -> bool:
        secret = is_secret(path) and not _is_name_table(path) and not _TEMPLATE.search(text)
        # A number in a nested key (a time, a count) would redact unrelated text.
        known = secret and (isinstance(value, str) or names_a_secret(_names(path)[-1]))
        kept = {text} if known else set()
        kept |= {content for name, content in used if known or names_a_secret(name)}
        kept |= _passwords(text)
        self.out.secrets |= {content for content in kept if len(content) >= SHORTEST_SECRET}
        return secret or bool(kept) or is_other_dsn(path, text)


def is_secret(path: Path) -> bool:
    """Whether the scalar at `path` is redacted: its key has the name of a secret.

    In a plugin's `config` and a step's `with`, any key above it counts; elsewhere only its own,
    because those above are section names (`api.auth`) or a plugin's name.
    """
    names = _names(path)
    given = _GIVEN.get(names[0]) if names else None
    under = names[names.index(given) + 1 :] if given in names else names[-1:]
    return any(map(names_a_secret, under))


def is_other_dsn(path: Path, text: str) -> bool:
    """Whether `text` is given for the database and is not a PostgreSQL URL.

    It may be a connection string of another form, with a password.
    """
    return path in _DATABASE and not text.startswith(POSTGRES)


def hide_passwords(text: str) -> str:
    """`text` with the passwords of its URLs redacted."""
    return _URL_PASSWORD.sub(rf"\1\3{REDACTED}", text)


def _passwords(text: str) -> set[str]:
    """The passwords of the URLs in `text`, as written and percent-decoded."""
    found = {match[2] or match[4] for match in _URL_PASSWORD.finditer(text)}
    return found | set(map(unquote, found))


def _is_name_table(path: Path) -> bool:
    """Whether the keys at `path` are names of events, claims or commands."""
    names = _names(path)
    ours = names[0] in ("pipelines", "plugins") and "config" not in names
    return ours and names[-2] in ("on_events", "baggage", "timeouts")


def _names(path: Path) -> list[str]:
    return [part for part in path if isinstance(part, str)]


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value
