"""The merged tree with its variables expanded: values for the schema, places, secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from ductile.config.loader.interpolate import Variables, lookalike
from ductile.config.loader.nodes import Listing, Node, Place, Scalar, Table
from ductile.config.loader.yaml import NotJson, type_of
from ductile.config.models.fields import Found
from ductile.config.models.service import POSTGRES
from ductile.core.values.redact import REDACTED, SHORTEST_SECRET, names_a_secret
from ductile.errors import Path, Problem

_URL_PASSWORD = re.compile(
    r"((?<=://)[^\s/:@]*:)([^\s/@]+)(?=@)|((?<=[?&])(?:ssl)?password=)([^\s&]+)"
)
"""Before the host, or in the query as PostgreSQL takes it: what leads to it, and itself."""
_DATABASE: tuple[Path, ...] = tuple(
    path for name in ("state", "database") for path in ((name,), (name, "url"))
)
_TEMPLATE = re.compile(r"\{(payload|context|config)\.")
_GIVEN = {"plugins": "config", "pipelines": "with"}
"""Below these keys stands what is handed to plugins as it is."""


@dataclass(slots=True)
class Expanded:
    data: Any = None
    """Dicts and lists of `Found`, and None where a file leaves a key empty."""
    places: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    secrets: set[str] = field(default_factory=set)
    broken: set[Path] = field(default_factory=set)
    """Scalars that already have a problem, or whose variables were not looked up; what the
    schema thinks of them is noise."""
    problems: list[Problem] = field(default_factory=list)


def expand(tree: Table, variables: Variables, values: Mapping[str, str] | None) -> Expanded:
    """Every scalar of `tree` by the variables in `values`; keys are never expanded.

    Without `values` no scalar is: one that refers to a variable is left as it was written.
    """
    expander = _Expander(variables, values)
    expander.out.places[()] = tree.place
    expander.out.data = expander.walk(tree, ())
    return expander.out


class _Expander:
    def __init__(self, variables: Variables, values: Mapping[str, str] | None) -> None:
        self.out = Expanded()
        self._variables = variables
        self._values = values

    def walk(self, node: Node, path: Path) -> Any:
        match node:
            case Table():
                table = {}
                for raw, entry in node.items.items():
                    key = self._variables.restore(raw)
                    here = (*path, key)
                    self.out.places[here] = entry.place
                    self.out.keys[here] = entry.key
                    table[key] = self.walk(entry.value, here)
                return table
            case Listing():
                for index, item in enumerate(node.items):
                    self.out.places[(*path, index)] = item.place
                return [self.walk(item, (*path, index)) for index, item in enumerate(node.items)]
            case Scalar():
                return self._scalar(node, path)

    def _scalar(self, scalar: Scalar, path: Path) -> Found | None:
        if self._values is None and self._variables.conceals(scalar.text):
            self.out.broken.add(path)
            text = self._variables.restore(scalar.text)
            return Found(text, text, scalar.place, secret=True)
        expansion = self._variables.expand(scalar, self._values or {})
        text = expansion.text
        for name in dict.fromkeys(expansion.missing):
            self._break(
                scalar,
                path,
                f"the variable {name} is not set",
                f"set it in the environment or an .env file, or write ${{{name}:-default}}",
            )
        for name, content in expansion.used:
            if not _is_text(content):
                self._break(scalar, path, f"the variable {name} is not UTF-8 text", "UTF-8")
        value: Any
        try:
            value = type_of(scalar, text)
        except NotJson as reason:
            value = reason
        except ValueError as error:
            self._break(scalar, path, str(error), None)
            value = text
        secret = self._keep_secrets(path, text, value, expansion.used)
        if warning := lookalike(scalar.text, scalar.place, quote=not secret):
            self.out.problems.append(warning)
        if value is None and path not in self.out.broken:
            return None
        return Found(text, value, scalar.place, secret)

    def _break(self, scalar: Scalar, path: Path, message: str, allowed: str | None) -> None:
        self.out.broken.add(path)
        self.out.problems.append(scalar.place.problem(message, path=path, allowed=allowed))

    def _keep_secrets(
        self, path: Path, text: str, value: Any, used: tuple[tuple[str, str], ...]
    ) -> bool:
        secret = is_secret(path) and not _names_ours(path) and not _TEMPLATE.search(text)
        # A number further below (a time, a count) would black out what has nothing to do with it.
        known = secret and (isinstance(value, str) or names_a_secret(_names(path)[-1]))
        kept = {text} if known else set()
        kept |= {content for name, content in used if known or names_a_secret(name)}
        kept |= _passwords(text)
        self.out.secrets |= {content for content in kept if len(content) >= SHORTEST_SECRET}
        return secret or bool(kept) or is_no_url(path, text)


def is_secret(path: Path) -> bool:
    """Whether the scalar at `path` is hidden: it stands under a secret-named key.

    In what plugins are given that is any key above it; elsewhere the one that it stands under,
    for those above are our own (`api.auth`), or a plugin's name.
    """
    names = _names(path)
    given = _GIVEN.get(names[0]) if names else None
    under = names[names.index(given) + 1 :] if given in names else names[-1:]
    return any(map(names_a_secret, under))


def is_no_url(path: Path, text: str) -> bool:
    """Whether `text` stands for the database and is none of its URLs.

    Somebody may have written a connection string instead, password and all.
    """
    return path in _DATABASE and not text.startswith(POSTGRES)


def hide_passwords(text: str) -> str:
    """`text` without the passwords of the URLs in it."""
    return _URL_PASSWORD.sub(rf"\1\3{REDACTED}", text)


def _passwords(text: str) -> set[str]:
    """The passwords of the URLs in `text`, as they stand and as they are meant."""
    found = {match[2] or match[4] for match in _URL_PASSWORD.finditer(text)}
    return found | set(map(unquote, found))


def _names_ours(path: Path) -> bool:
    """Whether it stands where keys name events, claims and commands."""
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
