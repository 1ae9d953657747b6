"""`config get` and `config set`: reading one value of the files, and changing it in its place."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ductile.config.edit.paths import MISSING, at, placed, resolve
from ductile.config.edit.spans import Span, spans
from ductile.config.edit.splice import Splicer
from ductile.config.load import values
from ductile.config.loader.expand import expand, hide_passwords, is_no_url, is_secret
from ductile.config.loader.files import Source, replace
from ductile.config.loader.include import Sources, gather_readable
from ductile.config.loader.interpolate import RESERVED, Variables, names_in
from ductile.config.loader.nodes import Listing, Node, Place, Scalar, Table, is_null
from ductile.config.loader.yaml import NotJson, compose, type_of
from ductile.config.loader.yaml import resolve as typed
from ductile.config.models.fields import Found
from ductile.core.values.redact import REDACTED
from ductile.errors import ConfigError, Problem, Refused, UsageError, dotted, errors_of
from ductile.errors import Path as KeyPath
from ductile.model import Json
from ductile.record import dataclass


@dataclass(frozen=True, slots=True)
class Written:
    """A value as the files have it: variables expanded, secrets hidden."""

    path: KeyPath
    value: Json
    place: Place


@dataclass(frozen=True, slots=True)
class Edit:
    """One file before and after a value was set; nothing is written yet."""

    path: KeyPath
    file: Path
    before: bytes
    after: bytes
    references: tuple[str, ...] = ()
    """The variables that the new value is made of."""

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def shown(self) -> tuple[str, str]:
        """Both texts without a literal secret in them, for people to compare."""
        return _without_secrets(self.before.decode()), _without_secrets(self.after.decode())

    def write(self) -> None:
        """Put the new text in its place: whole, durably, with the old one's mode and owner.

        `Refused` where somebody has changed the file meanwhile.
        """
        try:
            real = self.file.resolve(strict=True)
            with _alone(real.parent):
                if real.read_bytes() != self.before:
                    raise Refused(f"{self.file} has changed meanwhile; nothing was written")
                replace(real, self.after, like=real.stat())
        except OSError as error:
            raise Refused(f"cannot write {self.file}: {error.strerror}") from error


class Draft:
    """The files of a configuration as they stand; `ConfigError` where they are not YAML."""

    def __init__(self, config: Path) -> None:
        """`config` is the path of config.yaml."""
        self.config = config
        self._sources = gather_readable(config)
        self.document = _document(self._sources)
        """What is written, merged: references as they stand, the rest by YAML's types."""

    def get(self, text: str, environ: Mapping[str, str]) -> Written | None:
        """The value that a path names; None where the files have none."""
        path = resolve(text, self.document)
        if at(self.document, path) is MISSING:
            return None
        problems: list[Problem] = []
        expanded = expand(
            self._sources.tree, self._sources.variables, values(self._sources, environ, problems)
        )
        wrong = [p for p in expanded.problems if p.path[: len(path)] == path]
        if errors := errors_of((*problems, *wrong)):
            raise ConfigError(errors)
        value = _shown(at(expanded.data, path), path)
        return Written(path, value, expanded.places[path])

    def set(self, text: str, value: Json, *, over_references: bool = False) -> Edit:
        """The edit that gives a path another value and leaves all else as it is.

        `Refused` where the value is made of variables now, unless that is meant, and where
        the text cannot be changed without changing the meaning of something else.
        """
        if RESERVED.search(json.dumps(value, ensure_ascii=False)):
            raise UsageError("a character of the last private-use plane is reserved here")
        path = resolve(text, self.document)
        target, rest = self._nearest(path)
        references = names_in(json.dumps(value))
        used = [] if rest or references or over_references else self._references(target)
        if used:
            raise Refused(
                f"{dotted(path)} is {used[0]} in {target.place.file}:{target.place.line}; set the "
                "variable, or say --replace-variable to write a value in its place",
                path=dotted(path),
            )
        wanted = placed(self.document, path, value)
        place = self._holder(target, rest, whole=path == rest)
        file = Path(place.file)
        before = _read(file)
        for after in self._candidates(before, file, path, value):
            if self._means(file, after, wanted):
                return Edit(path, file, before.encode(), after.encode(), references)
        raise Refused(
            f"{dotted(path)} cannot be set without changing something else; "
            f"edit {file}:{place.line} by hand",
            path=dotted(path),
        )

    def _nearest(self, path: KeyPath) -> tuple[Node, KeyPath]:
        """The node at `path` or, as far as it exists, above it; and what of the path is left."""
        node: Node = self._sources.tree
        for index, part in enumerate(path):
            inner = self._child(node, part)
            if inner is None:
                return node, path[index:]
            node = inner
        return node, ()

    def _holder(self, node: Node, rest: KeyPath, *, whole: bool) -> Place:
        """In whose file the edit is made: a new section goes to config.yaml, a new item to
        the file of the last one."""
        if whole:
            return Place(str(self.config), 1, 1)
        if rest and isinstance(node, Listing) and node.items:
            return node.items[-1].place
        return node.place

    def _child(self, node: Node, part: str | int) -> Node | None:
        if isinstance(node, Table):
            restore = self._sources.variables.restore
            items = node.items.items()
            return next((e.value for key, e in items if restore(key) == part), None)
        if isinstance(node, Listing) and isinstance(part, int) and part < len(node.items):
            return node.items[part]
        return None

    def _references(self, node: Node) -> list[str]:
        """The scalars of `node` that hold a reference, as they were written."""
        if isinstance(node, Scalar):
            variables = self._sources.variables
            return [variables.restore(node.text)] if variables.conceals(node.text) else []
        inner = node.items if isinstance(node, Listing) else [e.value for e in node.items.values()]
        return [text for child in inner for text in self._references(child)]

    def _candidates(self, text: str, file: Path, path: KeyPath, value: Json) -> Iterator[str]:
        concealed, _ = Variables().conceal(text, str(file))
        splicer = Splicer(text, concealed)
        node, rest = self._nearest(path)
        while rest:
            if isinstance(node, Scalar) and is_null(node):
                value, rest = placed(MISSING, rest, value), ()
                break
            yield from self._added(splicer, file, node, rest, value, root=len(rest) == len(path))
            if len(rest) == len(path):
                return
            # Its container is written in another shape: it gets one of its own.
            done = len(path) - len(rest) - 1
            node, _ = self._nearest(path[:done])
            rest = path[done:]
        span = _span(splicer, file, node)
        if span is not None:
            yield from splicer.replaced(span, value)

    def _added(
        self, splicer: Splicer, file: Path, node: Node, rest: KeyPath, value: Json, *, root: bool
    ) -> Iterator[str]:
        inner = placed(MISSING, rest[1:], value)
        if isinstance(node, Table):
            table = splicer.root if root else _span(splicer, file, node)
            if root or table is not None:
                yield from splicer.added(table, str(rest[0]), inner)
        elif isinstance(node, Listing):
            last = _span(splicer, file, node.items[-1]) if node.items else None
            listing = last.parent if last else _span(splicer, file, node)
            if listing is not None:
                yield from splicer.appended(listing, inner)

    def _means(self, file: Path, after: str, wanted: Json) -> bool:
        try:
            sources = gather_readable(self.config, {file: after.encode()})
        except (ConfigError, UnicodeEncodeError):
            return False
        return _same(_document(sources), wanted)


def value_of(text: str) -> Json:
    """A value as it is typed on a command line.

    What begins with a bracket or a quote is read as YAML; anything else is one scalar, a
    number, `true`, `false` or `null` where it looks like one, else the text as it stands.
    """
    if not text.startswith(("[", "{", '"', "'")):
        try:
            return typed(text) if text else ""
        except NotJson as error:
            raise UsageError(f"{text!r} is {error}, which JSON cannot carry; quote it") from None
    variables = Variables()
    concealed, problems = variables.conceal(text, "the value")
    node, wrong = compose(concealed, "the value")
    for problem in (*problems, *wrong):
        raise UsageError(f"the value is not YAML: {problem.message} (column {problem.column})")
    assert node is not None
    try:
        return _plain(node, variables)
    except ValueError as error:
        raise UsageError(f"the value cannot be used: {error}") from None


def _span(splicer: Splicer, file: Path, node: Node) -> Span | None:
    if splicer.root is None or node.place.file != str(file):
        return None
    return splicer.root.find(node)


def _document(sources: Sources) -> Json:
    return _plain(sources.tree, sources.variables, strict=False)


def _plain(node: Node, variables: Variables, *, strict: bool = True) -> Json:
    """What a node says, references as they were written.

    Numbers that JSON cannot carry are refused or, where not `strict`, left as text.
    """
    match node:
        case Table():
            return {
                variables.restore(key): _plain(entry.value, variables, strict=strict)
                for key, entry in node.items.items()
            }
        case Listing():
            return [_plain(item, variables, strict=strict) for item in node.items]
        case Scalar():
            text = variables.restore(node.text)
            try:
                return type_of(node, text)
            except ValueError:
                if strict:
                    raise
                return text


def _same(one: Json, other: Json) -> bool:
    """Equality that tells 1 from 1.0 and true; the order of keys does not count."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _read(file: Path) -> str:
    source = Source(file, file.read_bytes(), "")
    text = source.text()
    assert isinstance(text, str), "it was read before, and had no problem"
    return text


def _shown(data: Any, path: KeyPath) -> Json:
    """Expanded data as it may be shown."""
    if isinstance(data, dict):
        return {key: _shown(item, (*path, key)) for key, item in data.items()}
    if isinstance(data, list):
        return [_shown(item, (*path, index)) for index, item in enumerate(data)]
    if not isinstance(data, Found):
        return None
    if data.secret or is_secret(path):
        return REDACTED
    if isinstance(data.value, str):
        return hide_passwords(data.value)
    return data.text if isinstance(data.value, NotJson) else data.value


def _without_secrets(text: str) -> str:
    """`text` with every literal scalar that may be a secret hidden; references stay."""
    concealed, _ = Variables().conceal(text, "")
    root = spans(concealed)
    secrets = [
        span
        for span in (root.walk() if root else ())
        if span.kind is Scalar and span.start != span.end
        if _may_be_secret(_path(span, text), text[span.start : span.end])
    ]
    for span in reversed(secrets):
        text = f"{text[: span.start]}{REDACTED}{text[span.end :]}"
    return hide_passwords(text)


def _may_be_secret(path: KeyPath, source: str) -> bool:
    return "${" not in source and (is_secret(path) or is_no_url(path, source.strip("\"'")))


def _path(span: Span, text: str) -> KeyPath:
    """The keys on the way down to what is written there."""
    keys = []
    above: Span | None = span
    while above is not None:
        if above.key is not None:
            keys.append(text[above.key.start : above.key.end].strip("\"'"))
        above = above.parent
    return tuple(reversed(keys))


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """One `config set` after the other."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
