"""One tree out of many files: who includes whom, what is merged, where it was written."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ductile.config import checksums
from ductile.config.checksums import Seal
from ductile.config.loader import normalize
from ductile.config.loader.files import Reader, Source, absolute, is_directory, listed
from ductile.config.loader.interpolate import Variables
from ductile.config.loader.nodes import Entry, Listing, Node, Place, Scalar, Table, is_null
from ductile.config.loader.yaml import compose
from ductile.errors import ConfigError, Problem, Severity, errors_of
from ductile.errors import Path as KeyPath


def merge(base: Node, later: Node) -> Node:
    """Maps merge with the later winning, lists append, scalars replace.

    A key that a file leaves empty (`plugins:`) takes nothing away from a map or a list.
    """
    if isinstance(base, Table) and isinstance(later, Table):
        items = dict(base.items)
        for key, entry in later.items.items():
            old = items.get(key)
            if old is None:
                items[key] = entry
            else:
                value = merge(old.value, entry.value)
                items[key] = old if value is old.value else Entry(entry.key, value)
        return Table(items, base.place)
    if isinstance(base, Listing) and isinstance(later, Listing):
        return Listing(base.items + later.items, base.place)
    if not isinstance(base, Scalar) and is_null(later):
        return base
    return later


@dataclass(slots=True)
class Sources:
    """What the files say, merged but not yet expanded, and all that was wrong with them."""

    root: Path
    """The directory that holds config.yaml."""
    reader: Reader
    tree: Table
    variables: Variables = field(default_factory=Variables)
    env_files: list[Source] = field(default_factory=list)
    scope_files: dict[str, Source] = field(default_factory=dict)
    """By the text of `scopes_file`."""
    lost_scopes: dict[str, Problem] = field(default_factory=dict)
    """Scope files that could not be read: whether that is an error, their token decides."""
    problems: list[Problem] = field(default_factory=list)


def gather(config: Path, seal: Seal | None, drafts: Mapping[Path, bytes] | None = None) -> Sources:
    """Read `config` (absolute) and all that it includes, depth first, each file once.

    High-security files that nobody includes are read as well, to be held to the seal. One that
    `seal` finds broken is not parsed. Nothing is expanded.
    `drafts` stand for the content of their files.
    """
    gatherer = _Gatherer(config, seal, drafts)
    gatherer.load(config, Place(str(config), 1, 1), ())
    gatherer.scopes()
    gatherer.guarded()
    gatherer.sources.problems[:0] = gatherer.sources.reader.problems
    return gatherer.sources


def gather_readable(config: Path, drafts: Mapping[Path, bytes] | None = None) -> Sources:
    """As `gather`, whatever the seal says; `ConfigError` where something cannot be read."""
    sources = gather(config, None, drafts)
    if errors := errors_of(sources.problems):
        raise ConfigError(errors)
    return sources


class _Gatherer:
    def __init__(
        self, config: Path, seal: Seal | None, drafts: Mapping[Path, bytes] | None
    ) -> None:
        nothing = Table({}, Place(str(config), 1, 1))
        self.sources = Sources(config.parent, Reader(config.parent, drafts), nothing)
        self._seal = seal
        self._seen: set[Path] = set()

    def load(self, path: Path, asked: Place, chain: tuple[Path, ...]) -> None:
        if path in chain:
            names = " -> ".join(str(link) for link in (*chain[chain.index(path) :], path))
            self._problem(asked, f"files include each other in a circle: {names}")
            return
        if path in self._seen:
            self._problem(asked, f"{path} is already included; once is enough", Severity.WARNING)
            return
        self._seen.add(path)
        source = self.sources.reader.read(path, asked)
        if source is None or (self._seal and not self._seal.trusts(source)):
            return
        table = self._table(source)
        if table is None:
            return
        includes = self._paths(table.get(normalize.INCLUDE), (normalize.INCLUDE,))
        environment = table.items.get(normalize.ENVIRONMENT)
        env_files = self._env_paths(environment.value) if environment else []
        body = table.without(normalize.INCLUDE, normalize.ENVIRONMENT)
        merged = merge(self.sources.tree, body) if self.sources.tree.items else body
        assert isinstance(merged, Table)
        self.sources.tree = merged
        for scalar in env_files:
            target = self._target(scalar.text, path)
            if env := self.sources.reader.read(target, scalar.place):
                self.sources.env_files.append(env)
        for scalar in includes:
            target = self._target(scalar.text, path)
            for file in self._files(target, scalar.place):
                self.load(file, scalar.place, (*chain, path))

    def scopes(self) -> None:
        """Read the scope files now: they are judged with all others, before anything is used."""
        tokens = self.sources.tree.get("tokens")
        for index, token in enumerate(tokens.items if isinstance(tokens, Listing) else ()):
            node = token.get("scopes_file") if isinstance(token, Table) else None
            if not isinstance(node, Scalar) or is_null(node) or "\0" in node.text:
                continue
            if not self._literal(node, ("tokens", index, "scopes_file")):
                continue
            if node.text in self.sources.scope_files or node.text in self.sources.lost_scopes:
                continue
            reader = self.sources.reader
            before = len(reader.problems)
            source = reader.read(self._target(node.text, None), node.place)
            if source is None:
                self.sources.lost_scopes[node.text] = reader.problems[-1]
                del reader.problems[before:]
            else:
                self.sources.scope_files[node.text] = source

    def guarded(self) -> None:
        """Read what must be sealed though nothing refers to it: one edit away from being used."""
        scopes = self.sources.root / checksums.SCOPES
        paths = [self.sources.root / name for name in checksums.HIGH_SECURITY]
        paths += self._seal.high_security if self._seal else ()
        try:
            paths += listed(scopes, ".json") if is_directory(scopes) else ()
        except OSError as error:
            self._problem(Place(str(scopes), 1, 1), f"cannot list it: {error.strerror}", path=())
        for path in paths:
            if path not in self.sources.reader.hashes and os.path.lexists(path):
                self.sources.reader.read(path, Place(str(path), 1, 1))

    def _table(self, source: Source) -> Table | None:
        file = str(source.path)
        text = source.text()
        if isinstance(text, Problem):
            self.sources.problems.append(text)
            return None
        concealed, problems = self.sources.variables.conceal(text, file)
        self.sources.problems += problems
        node, problems = compose(concealed, file)
        self.sources.problems += map(self._as_written, problems)
        if node is None or is_null(node):
            return None
        if not isinstance(node, Table):
            self._problem(
                node.place, "a configuration file is a mapping of keys to values", path=()
            )
            return None
        table, problems = normalize.one_shape(node)
        self.sources.problems += problems
        return table

    def _as_written(self, problem: Problem) -> Problem:
        restore = self.sources.variables.restore
        path = tuple(restore(part) if isinstance(part, str) else part for part in problem.path)
        return replace(problem, path=path)

    def _env_paths(self, node: Node) -> list[Scalar]:
        if is_null(node):
            return []
        if not isinstance(node, Table):
            self._problem(node.place, "must be a mapping", path=(normalize.ENVIRONMENT,))
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
        return self._paths(node.get(normalize.INCLUDE), (normalize.ENVIRONMENT, normalize.INCLUDE))

    def _paths(self, node: Node | None, path: KeyPath) -> list[Scalar]:
        if node is None or is_null(node):
            return []
        if not isinstance(node, Listing):
            self._problem(node.place, "must be a list of paths", path=path)
            return []
        found = []
        for index, item in enumerate(node.items):
            if not isinstance(item, Scalar) or not item.text or "\0" in item.text:
                self._problem(item.place, "must be a path", path=(*path, index))
            elif self._literal(item, (*path, index)):
                found.append(item)
        return found

    def _literal(self, scalar: Scalar, path: KeyPath) -> bool:
        if not self.sources.variables.conceals(scalar.text):
            return True
        self.sources.problems.append(
            scalar.place.problem(
                "which files are read must not depend on variables",
                path=path,
                found=self.sources.variables.restore(scalar.text),
                allowed="a path without ${...}",
            )
        )
        return False

    def _target(self, text: str, declaring: Path | None) -> Path:
        """Against the directory of config.yaml; where nothing is there, beside the declaring
        file, which is where the Go program looks."""
        target = absolute(self.sources.root, text)
        if declaring is not None and not os.path.lexists(target):
            beside = absolute(declaring.parent, text)
            if os.path.lexists(beside):
                return beside
        return target

    def _files(self, target: Path, asked: Place) -> list[Path]:
        try:
            return listed(target, ".yaml") if is_directory(target) else [target]
        except OSError as error:
            self._problem(asked, f"cannot list {target}: {error.strerror}")
            return []

    def _problem(
        self,
        place: Place,
        message: str,
        severity: Severity = Severity.ERROR,
        path: KeyPath = (normalize.INCLUDE,),
    ) -> None:
        self.sources.problems.append(place.problem(message, path=path, severity=severity))
