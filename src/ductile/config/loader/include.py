"""Read config.yaml and the files that it includes, and merge them into one tree."""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path

from ductile._fast_dataclass import dataclass
from ductile.config import checksums
from ductile.config.checksums import Seal
from ductile.config.loader import normalize
from ductile.config.loader.files import Drafts, Reader, Source, absolute
from ductile.config.loader.interpolate import Variables
from ductile.config.loader.nodes import (
    Location,
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    is_null,
)
from ductile.config.loader.yaml import compose
from ductile.errors import ConfigError, Problem, Severity, errors_of
from ductile.errors import Path as KeyPath


def merge(base: Node, later: Node) -> Node:
    """Merge two trees: mappings merge key by key, lists append, scalars of `later` replace.

    An empty key (`plugins:`) does not replace a mapping or a list.
    """
    if isinstance(base, MappingNode) and isinstance(later, MappingNode):
        items = dict(base.items)
        for key, entry in later.items.items():
            old = items.get(key)
            if old is None:
                items[key] = entry
            else:
                value = merge(old.value, entry.value)
                items[key] = old if value is old.value else MappingEntry(entry.key, value)
        return MappingNode(items, base.location)
    if isinstance(base, SequenceNode) and isinstance(later, SequenceNode):
        return SequenceNode(base.items + later.items, base.location)
    if not isinstance(base, ScalarNode) and is_null(later):
        return base
    return later


@dataclass(slots=True)
class Sources:
    """The merged files, not expanded yet, and the problems found while reading them."""

    root: Path
    """The directory of config.yaml."""
    reader: Reader
    tree: MappingNode
    variables: Variables = field(default_factory=Variables)
    env_files: list[Source] = field(default_factory=list)
    scope_files: dict[str, Source] = field(default_factory=dict)
    """By the text of `scopes_file`."""
    listed: set[Path] = field(default_factory=set)
    """Files that are read because they are in an included directory."""
    granting: set[Path] = field(default_factory=set)
    """Included files that hold tokens, webhook endpoints or peers, and must be sealed."""
    lost_scopes: dict[str, Problem] = field(default_factory=dict)
    """Scope files that could not be read; the token decides whether that is an error."""
    problems: list[Problem] = field(default_factory=list)


def gather(
    config: Path,
    seal: Seal | None,
    drafts: Drafts | None = None,
    *,
    home: str | None = None,
) -> Sources:
    """Read `config` (absolute) and the files it includes, depth first, each file once.

    High-security files that are not included are read as well, for comparison with the seal. A
    file that violates `seal` is not used. Variables are not expanded.
    `drafts` replace the content of their files. `home` is what `~` means; default: `$HOME`.
    """
    gatherer = _Gatherer(config, seal, drafts, home or os.environ.get("HOME"))
    gatherer.load(config, Location(str(config), 1, 1), ())
    gatherer.read_scopes()
    gatherer.read_high_security()
    gatherer.sources.problems[:0] = gatherer.sources.reader.problems
    return gatherer.sources


def gather_readable(config: Path, drafts: Drafts | None = None) -> Sources:
    """As `gather`, without a seal; raises `ConfigError` if a file cannot be read."""
    sources = gather(config, None, drafts)
    if errors := errors_of(sources.problems):
        raise ConfigError(errors)
    return sources


def _grants_access(table: MappingNode) -> bool:
    """Whether a file decides who may call the gateway: by tokens, webhook endpoints or peers.

    Not asked of config.yaml, which would then need a seal wherever the API is enabled.
    """
    lists = (
        ("tokens",),
        ("api", "auth", "tokens"),
        ("webhooks", "endpoints"),
        ("remote_ingress", "peers"),
    )
    for path in lists:
        node: Node | None = table
        for key in path:
            node = node.get(key) if isinstance(node, MappingNode) else None
        if isinstance(node, SequenceNode) and node.items:
            return True
    return False


class _Gatherer:
    def __init__(
        self,
        config: Path,
        seal: Seal | None,
        drafts: Drafts | None,
        home: str | None,
    ) -> None:
        nothing = MappingNode({}, Location(str(config), 1, 1))
        self.sources = Sources(config.parent, Reader(config.parent, drafts), nothing)
        self._seal = seal
        self._home = home
        self._seen: set[Path] = set()

    def load(self, path: Path, asked: Location, chain: tuple[Path, ...]) -> None:
        if path in chain:
            names = " -> ".join(str(link) for link in (*chain[chain.index(path) :], path))
            self._report(asked, f"circular include: {names}; remove one of the includes")
            return
        if path in self._seen:
            self._report(
                asked, f"{path} is already included; remove this include", Severity.WARNING
            )
            return
        self._seen.add(path)
        source = self.sources.reader.read(path, asked)
        if source is None or (self._seal and not self._seal.accepts(source)):
            return
        table = self._parse(source)
        if table is None:
            return
        if chain and _grants_access(table):
            self.sources.granting.add(path)
            if self._seal and not self._seal.matches(source):
                return
        includes = self._read_paths(table.get(normalize.INCLUDE), (normalize.INCLUDE,))
        environment = table.items.get(normalize.ENVIRONMENT)
        env_files = self._read_env_paths(environment.value) if environment else []
        body = table.without(normalize.INCLUDE, normalize.ENVIRONMENT)
        merged = merge(self.sources.tree, body) if self.sources.tree.items else body
        assert isinstance(merged, MappingNode)
        self.sources.tree = merged
        for scalar in env_files:
            target = self._resolve(scalar.text, path)
            if env := self.sources.reader.read(target, scalar.location):
                self.sources.env_files.append(env)
        for scalar in includes:
            target = self._resolve(scalar.text, path)
            for file in self._list_targets(target, scalar.location):
                self.load(file, scalar.location, (*chain, path))

    def read_scopes(self) -> None:
        """Read the scope files, so they are compared with the seal before they are used."""
        tokens = self.sources.tree.get("tokens")
        for index, token in enumerate(tokens.items if isinstance(tokens, SequenceNode) else ()):
            node = token.get("scopes_file") if isinstance(token, MappingNode) else None
            if not isinstance(node, ScalarNode) or is_null(node) or "\0" in node.text:
                continue
            if not self._check_literal(node, ("tokens", index, "scopes_file")):
                continue
            if node.text in self.sources.scope_files or node.text in self.sources.lost_scopes:
                continue
            reader = self.sources.reader
            before = len(reader.problems)
            source = reader.read(self._resolve(node.text, None), node.location)
            if source is None:
                self.sources.lost_scopes[node.text] = reader.problems[-1]
                del reader.problems[before:]
            else:
                self.sources.scope_files[node.text] = source

    def read_high_security(self) -> None:
        """Read the files that must be sealed although nothing includes them yet."""
        scopes = self.sources.root / checksums.SCOPES
        paths = [self.sources.root / name for name in checksums.HIGH_SECURITY]
        paths += self._seal.high_security if self._seal else ()
        try:
            reader = self.sources.reader
            paths += reader.list_files(scopes, ".json") if reader.is_directory(scopes) else ()
        except OSError as error:
            self._report(
                Location(str(scopes), 1, 1), f"cannot list the directory: {error.strerror}", path=()
            )
        for path in paths:
            if path not in self.sources.reader.hashes and self.sources.reader.exists(path):
                self.sources.reader.read(path, Location(str(path), 1, 1))

    def _parse(self, source: Source) -> MappingNode | None:
        file = str(source.path)
        text = source.text()
        if isinstance(text, Problem):
            self.sources.problems.append(text)
            return None
        concealed, problems = self.sources.variables.conceal(text, file)
        self.sources.problems += problems
        node, problems = compose(concealed, file)
        self.sources.problems += map(self._restore_path, problems)
        if node is None or is_null(node):
            return None
        if not isinstance(node, MappingNode):
            self._report(
                node.location, "a configuration file must be a mapping of keys to values", path=()
            )
            return None
        table, problems = normalize.normalize(node)
        self.sources.problems += problems
        return table

    def _restore_path(self, problem: Problem) -> Problem:
        restore = self.sources.variables.restore
        path = tuple(restore(part) if isinstance(part, str) else part for part in problem.path)
        return replace(problem, path=path)

    def _read_env_paths(self, node: Node) -> list[ScalarNode]:
        if is_null(node):
            return []
        if not isinstance(node, MappingNode):
            self._report(node.location, "must be a mapping", path=(normalize.ENVIRONMENT,))
            return []
        for key, entry in node.items.items():
            if key != normalize.INCLUDE:
                self.sources.problems.append(
                    entry.key.problem(
                        f"unknown key {key!r}",
                        path=(normalize.ENVIRONMENT, key),
                        allowed=normalize.INCLUDE,
                    )
                )
        return self._read_paths(
            node.get(normalize.INCLUDE), (normalize.ENVIRONMENT, normalize.INCLUDE)
        )

    def _read_paths(self, node: Node | None, path: KeyPath) -> list[ScalarNode]:
        if node is None or is_null(node):
            return []
        if not isinstance(node, SequenceNode):
            self._report(node.location, "must be a list of paths", path=path)
            return []
        found = []
        for index, item in enumerate(node.items):
            if not isinstance(item, ScalarNode) or not item.text or "\0" in item.text:
                self._report(item.location, "must be a path", path=(*path, index))
            elif self._check_literal(item, (*path, index)):
                found.append(item)
        return found

    def _check_literal(self, scalar: ScalarNode, path: KeyPath) -> bool:
        if not self.sources.variables.conceals(scalar.text):
            return True
        self.sources.problems.append(
            scalar.location.problem(
                "the path of a file must not contain variables",
                path=path,
                found=self.sources.variables.restore(scalar.text),
                allowed="a path without ${...}",
            )
        )
        return False

    def _resolve(self, text: str, declaring: Path | None) -> Path:
        """The path relative to the directory of config.yaml or, if there is no such file, to the
        declaring file, as in the Go program. `~` is the home directory."""
        if self._home and (text == "~" or text.startswith("~/")):
            return absolute(Path(self._home), text[2:])
        target = absolute(self.sources.root, text)
        if declaring is not None and not self.sources.reader.exists(target):
            sibling = absolute(declaring.parent, text)
            if self.sources.reader.exists(sibling):
                return sibling
        return target

    def _list_targets(self, target: Path, asked: Location) -> list[Path]:
        try:
            reader = self.sources.reader
            if not reader.is_directory(target):
                return [target]
            found = reader.list_files(target, ".yaml")
            self.sources.listed.update(found)
            return found
        except OSError as error:
            self._report(asked, f"cannot list {target}: {error.strerror}")
            return []

    def _report(
        self,
        location: Location,
        message: str,
        severity: Severity = Severity.ERROR,
        path: KeyPath = (normalize.INCLUDE,),
    ) -> None:
        self.sources.problems.append(location.problem(message, path=path, severity=severity))
