"""Expand the references of the merged tree: values for the schema, locations, secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.config.loader.interpolate import Expansion, Variables, warn_of_lookalike
from ductile.config.loader.nodes import Location, MappingNode, Node, ScalarNode, SequenceNode
from ductile.config.loader.secret_sources import SecretSources, is_secret_source
from ductile.config.loader.secrets import SecretCollector
from ductile.config.loader.yaml import NotJson, type_of
from ductile.config.models.fields import RawScalar
from ductile.errors import Path, Problem


@dataclass(frozen=True, slots=True)
class ReceivedReferences:
    """The references in a scalar that a plugin receives: in its `config`, its `env`, the payload of
    a schedule of the plugin or of a pipeline with it, or the `with` of a step."""

    path: Path
    plugin: str
    names: tuple[str, ...]


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
    unset: list[Problem] = field(default_factory=list)
    """The problems of variables that are not set."""
    received: list[ReceivedReferences] = field(default_factory=list)
    has_unread_secrets: bool = False
    """Whether a reference to a secret was left as it was written."""
    as_written: dict[Path, tuple[str, str]] = field(default_factory=dict)
    """The text of each scalar that refers to a secret which is kept elsewhere: as it was written,
    and expanded."""


@dataclass(frozen=True, slots=True)
class ReferenceValues:
    """What references are replaced by."""

    variables: Mapping[str, str]
    secrets: SecretSources
    read_secrets: bool = True
    """If false, scalars outside of `state` that refer to secrets are left as they were written."""


_ALWAYS_READ = frozenset({"state", "database"})
"""Sections that every command needs, whether it runs plugins or not."""


def expand(tree: MappingNode, variables: Variables, values: ReferenceValues | None) -> Expanded:
    """Replace the references in every scalar of `tree` by `values`; keys are never expanded.

    Without `values`, a scalar that has a reference is left as it was written.
    """
    expander = _Expander(variables, values)
    expander.out.locations[()] = tree.location
    expander.out.data = expander.walk(tree, ())
    return expander.out


class _Expander:
    def __init__(self, variables: Variables, values: ReferenceValues | None) -> None:
        self.out = Expanded()
        self._receivers: tuple[str, ...] = ()
        self._members: tuple[str, ...] = ()
        """The plugins of the steps of the pipeline that is walked."""
        self._variables = variables
        self._values = values

    def walk(self, node: Node, path: Path) -> Any:
        match node:
            case MappingNode():
                table = {}
                if len(path) == 2 and path[0] == "pipelines":
                    self._members = tuple(dict.fromkeys(self._list_uses(node)))
                for raw, entry in node.items.items():
                    key = self._variables.restore(raw)
                    here = (*path, key)
                    self.out.locations[here] = entry.location
                    self.out.keys[here] = entry.key
                    outer = self._receivers
                    self._receivers = outer or self._find_receivers(node, here)
                    table[key] = self.walk(entry.value, here)
                    self._receivers = outer
                return table
            case SequenceNode():
                for index, item in enumerate(node.items):
                    self.out.locations[(*path, index)] = item.location
                return [self.walk(item, (*path, index)) for index, item in enumerate(node.items)]
            case ScalarNode():
                return self._scalar(node, path)

    def _find_receivers(self, node: MappingNode, path: Path) -> tuple[str, ...]:
        """The plugins that receive the value at `path`, which is an entry of `node`."""
        is_payload = path[2:3] == ("schedules",) and len(path) == 5 and path[4] == "payload"
        if path[0] == "plugins":
            is_own = path[2:] in (("config",), ("env",))
            return (str(path[1]),) if is_own or is_payload else ()
        if path[0] != "pipelines":
            return ()
        if is_payload:
            return self._members
        return self._expand_uses(node) if path[-1] == "with" else ()

    def _list_uses(self, node: Node) -> Iterator[str]:
        """The plugins of all steps below a node."""
        if isinstance(node, MappingNode):
            yield from self._expand_uses(node)
            for entry in node.items.values():
                yield from self._list_uses(entry.value)
        elif isinstance(node, SequenceNode):
            for item in node.items:
                yield from self._list_uses(item)

    def _expand_uses(self, step: MappingNode) -> tuple[str, ...]:
        uses, values = step.get("uses"), self._values
        if not isinstance(uses, ScalarNode):
            return ()
        if values is None:
            return (uses.text,)
        return (self._variables.expand(uses, values.variables, values.secrets).text,)

    def _scalar(self, scalar: ScalarNode, path: Path) -> RawScalar | None:
        names = self._variables.names_in(scalar.text)
        if names:
            self.out.received += [ReceivedReferences(path, one, names) for one in self._receivers]
        if self._values is None and self._variables.conceals(scalar.text):
            self.out.broken.add(path)
            return self._keep_as_written(scalar)
        sources = [name for name in names if is_secret_source(name)]
        if sources and not self._reads(sources, scalar, path):
            self.out.has_unread_secrets = True
            return self._keep_as_written(scalar)
        values = self._values
        expansion = (
            self._variables.expand(scalar, values.variables, values.secrets)
            if values
            else Expansion(scalar.text)
        )
        self._report_failures(expansion, scalar, path)
        text = expansion.text
        if sources:
            self.out.as_written[path] = (self._variables.restore(scalar.text), text)
        value: Any
        try:
            # A secret stays text, whatever it looks like: `0123` is a password, not a number.
            value = text if sources else type_of(scalar, text)
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

    def _reads(self, sources: list[str], scalar: ScalarNode, path: Path) -> bool:
        """Whether the secrets of a scalar are read now; refuses those that can never be."""
        if path[0] not in _ALWAYS_READ:
            return self._values is not None and self._values.read_secrets
        if any(name.startswith("command:") for name in sources):
            message = "every command needs this setting, so it cannot be the output of one"
            self._reject(scalar, path, message, "${NAME}, ${file:PATH} or ${credential:NAME}")
            return False
        return True

    def _keep_as_written(self, scalar: ScalarNode) -> RawScalar:
        text = self._variables.restore(scalar.text)
        return RawScalar(text, text, scalar.location, secret=True)

    def _report_failures(self, expansion: Expansion, scalar: ScalarNode, path: Path) -> None:
        for name in dict.fromkeys(expansion.missing):
            message = (
                f"the variable {name} is not set; set it in the environment or an .env file, "
                f"or write ${{{name}:-default}}"
            )
            self.out.broken.add(path)
            self.out.unset.append(scalar.location.problem(message, path=path))
        for name, reason in dict.fromkeys(expansion.unavailable):
            self._reject(scalar, path, f"cannot read the secret ${{{name}}}: {reason}", None)
        for name, content in expansion.used:
            if not _is_text(content):
                self._reject(scalar, path, f"the variable {name} is not UTF-8 text", "UTF-8")

    def _reject(self, scalar: ScalarNode, path: Path, message: str, allowed: str | None) -> None:
        self.out.broken.add(path)
        self.out.problems.append(scalar.location.problem(message, path=path, allowed=allowed))


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value
