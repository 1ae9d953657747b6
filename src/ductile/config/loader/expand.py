"""Expand the variables of the merged tree: values for the schema, locations, secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ductile.config.loader.interpolate import Variables, warn_of_lookalike
from ductile.config.loader.nodes import Location, MappingNode, Node, ScalarNode, SequenceNode
from ductile.config.loader.secrets import SecretCollector
from ductile.config.loader.yaml import NotJson, type_of
from ductile.config.models.fields import RawScalar
from ductile.errors import Path, Problem


@dataclass(slots=True)
class Expanded:
    data: Any = None
    """Dicts and lists of `RawScalar`, and None for a key that is left empty."""
    locations: dict[Path, Location] = field(default_factory=dict)
    keys: dict[Path, Location] = field(default_factory=dict)
    secrets: SecretCollector = field(default_factory=SecretCollector)
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
        secret = self.out.secrets.add(path, text, value, expansion.used)
        if warning := warn_of_lookalike(scalar.text, scalar.location, quote=not secret):
            self.out.problems.append(warning)
        if value is None and path not in self.out.broken:
            return None
        return RawScalar(text, value, scalar.location, secret)

    def _reject(self, scalar: ScalarNode, path: Path, message: str, allowed: str | None) -> None:
        self.out.broken.add(path)
        self.out.problems.append(scalar.location.problem(message, path=path, allowed=allowed))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value
