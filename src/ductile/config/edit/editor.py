"""`config get` and `config set`: read or change one value in the files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.config.edit.paths import MISSING, get_at, resolve_path, set_at
from ductile.config.edit.spans import TextSpan, parse_spans
from ductile.config.edit.splice import Splicer
from ductile.config.load import read_variables
from ductile.config.loader.expand import ReferenceValues, expand
from ductile.config.loader.files import Source, lock_directories, replace
from ductile.config.loader.include import Sources, gather_readable
from ductile.config.loader.interpolate import RESERVED, Variables, names_in
from ductile.config.loader.nodes import (
    Location,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    is_null,
    to_json,
)
from ductile.config.loader.secret_sources import SecretSources
from ductile.config.loader.secrets import (
    KnownSecrets,
    hide_url_secrets,
    is_other_dsn,
    is_secret,
)
from ductile.config.loader.yaml import NotJson, compose, type_of
from ductile.config.loader.yaml import resolve as typed
from ductile.config.models.fields import RawScalar
from ductile.config.versions.journal import finish_interrupted
from ductile.core.values.redact import REDACTED
from ductile.errors import ConfigError, Problem, Refused, UsageError, dotted, errors_of
from ductile.errors import Path as KeyPath
from ductile.model import Json

UNMARKED = KnownSecrets()


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value of the files, with variables expanded and secrets redacted."""

    path: KeyPath
    value: Json
    location: Location


@dataclass(frozen=True, slots=True)
class FileEdit:
    """The bytes of a file before and after a change that is not written yet."""

    path: KeyPath
    file: Path
    before: bytes
    after: bytes
    references: tuple[str, ...] = ()
    """The variables in the new value."""

    @property
    def is_change(self) -> bool:
        return self.before != self.after

    def redacted(self, known: KnownSecrets = UNMARKED) -> tuple[str, str]:
        """Both texts with literal secrets redacted, for display."""
        return _redact(self.before.decode(), known), _redact(self.after.decode(), known)

    def write(self) -> None:
        """Replace the file atomically and durably; mode and owner stay.

        Raises `Refused` if the file has changed since it was read.
        """
        try:
            real = self.file.resolve(strict=True)
            with lock_directories([real.parent]):
                if real.read_bytes() != self.before:
                    raise Refused(
                        f"{self.file} has changed since it was read; nothing was written; try again"
                    )
                replace(real, self.after, like=real.stat())
        except OSError as error:
            raise Refused(f"cannot write {self.file}: {error.strerror}") from error


class ConfigEditor:
    """Reads and edits the files of a configuration; `ConfigError` if they are not YAML."""

    def __init__(self, config: Path) -> None:
        """`config` is the path of config.yaml."""
        self.config = config
        finish_interrupted(config.parent)
        self._sources = gather_readable(config)
        self.document = _read_document(self._sources)
        """The merged files as plain values; variable references are kept as text."""

    def get(
        self, text: str, environ: Mapping[str, str], known: KnownSecrets = UNMARKED
    ) -> ConfigValue | None:
        """The value at a path; None if the files do not set it."""
        path = resolve_path(text, self.document)
        if get_at(self.document, path) is MISSING:
            return None
        problems: list[Problem] = []
        variables = read_variables(self._sources, environ, problems)
        values = ReferenceValues(
            variables, SecretSources(self.config.parent, environ), read_secrets=False
        )
        expanded = expand(self._sources.tree, self._sources.variables, values)
        wrong = [p for p in (*expanded.problems, *expanded.unset) if p.path[: len(path)] == path]
        if errors := errors_of((*problems, *wrong)):
            raise ConfigError(errors)
        value = _redact_data(get_at(expanded.data, path), path, known)
        return ConfigValue(path, value, expanded.locations[path])

    def set(self, text: str, value: Json, *, over_references: bool = False) -> FileEdit:
        """The edit that sets the value at a path and changes nothing else.

        Raises `Refused` if the current value has variables, unless `over_references` is set, and
        if the text cannot be changed without changing another value.
        """
        if RESERVED.search(json.dumps(value, ensure_ascii=False)):
            raise UsageError("characters from U+100000 on are reserved; remove them from the value")
        path = resolve_path(text, self.document)
        target, rest = self._find_nearest(path)
        references = names_in(json.dumps(value))
        used = [] if rest or references or over_references else self._list_references(target)
        if used:
            where = target.location
            raise Refused(
                f"{dotted(path)} is the variable {used[0]} in {where.file}:{where.line}; "
                "change the variable, or overwrite it with --replace-variable",
                path=dotted(path),
            )
        wanted = set_at(self.document, path, value)
        location = self._locate_edit(target, rest, whole=path == rest)
        file = Path(location.file)
        before = _read(file)
        for after in self._list_candidates(before, file, path, value):
            if self._has_meaning(file, after, wanted):
                return FileEdit(path, file, before.encode(), after.encode(), references)
        raise Refused(
            f"{dotted(path)} cannot be set without changing other values; "
            f"edit {file}:{location.line} in a text editor",
            run=f"${{EDITOR:-vi}} +{location.line} {quote(str(file))}",
            path=dotted(path),
        )

    def _find_nearest(self, path: KeyPath) -> tuple[Node, KeyPath]:
        """The node at `path`, or its nearest existing parent and the rest of the path."""
        node: Node = self._sources.tree
        for index, part in enumerate(path):
            inner = self._get_child(node, part)
            if inner is None:
                return node, path[index:]
            node = inner
        return node, ()

    def _locate_edit(self, node: Node, rest: KeyPath, *, whole: bool) -> Location:
        """The location to edit: config.yaml for a new section, the file of the last item for a
        new item, otherwise that of the node."""
        if whole:
            return Location(str(self.config), 1, 1)
        if rest and isinstance(node, SequenceNode) and node.items:
            return node.items[-1].location
        return node.location

    def _get_child(self, node: Node, part: str | int) -> Node | None:
        if isinstance(node, MappingNode):
            restore = self._sources.variables.restore
            items = node.items.items()
            return next((e.value for key, e in items if restore(key) == part), None)
        if isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            return node.items[part]
        return None

    def _list_references(self, node: Node) -> list[str]:
        """The scalars of `node` with variable references, as written."""
        if isinstance(node, ScalarNode):
            variables = self._sources.variables
            return [variables.restore(node.text)] if variables.conceals(node.text) else []
        inner = (
            node.items if isinstance(node, SequenceNode) else [e.value for e in node.items.values()]
        )
        return [text for child in inner for text in self._list_references(child)]

    def _list_candidates(self, text: str, file: Path, path: KeyPath, value: Json) -> Iterator[str]:
        concealed, _ = Variables().conceal(text, str(file))
        splicer = Splicer(text, concealed)
        node, rest = self._find_nearest(path)
        while rest:
            if isinstance(node, ScalarNode) and is_null(node):
                value, rest = set_at(MISSING, rest, value), ()
                break
            yield from self._add_candidates(
                splicer, file, node, rest, value, root=len(rest) == len(path)
            )
            if len(rest) == len(path):
                return
            # The container cannot be extended, so a new one is added to its parent.
            done = len(path) - len(rest) - 1
            node, _ = self._find_nearest(path[:done])
            rest = path[done:]
        span = _find_span(splicer, file, node)
        if span is not None:
            yield from splicer.replace_value(span, value)

    def _add_candidates(
        self, splicer: Splicer, file: Path, node: Node, rest: KeyPath, value: Json, *, root: bool
    ) -> Iterator[str]:
        inner = set_at(MISSING, rest[1:], value)
        if isinstance(node, MappingNode):
            table = splicer.root if root else _find_span(splicer, file, node)
            if root or table is not None:
                yield from splicer.add_key(table, str(rest[0]), inner)
        elif isinstance(node, SequenceNode):
            last = _find_span(splicer, file, node.items[-1]) if node.items else None
            listing = last.parent if last else _find_span(splicer, file, node)
            if listing is not None:
                yield from splicer.append_item(listing, inner)

    def _has_meaning(self, file: Path, after: str, wanted: Json) -> bool:
        try:
            sources = gather_readable(self.config, {file: after.encode()})
        except (ConfigError, UnicodeEncodeError):
            return False
        return _are_equal(_read_document(sources), wanted)


def parse_value(text: str) -> Json:
    """A value from the command line.

    Text that starts with a bracket or a quote is parsed as YAML. Other text is one scalar: a
    number, `true`, `false` or `null` if it looks like one, otherwise the text itself.
    """
    if not text.startswith(("[", "{", '"', "'")):
        try:
            return typed(text) if text else ""
        except NotJson as error:
            raise UsageError(f"{text!r} {error}, which JSON cannot represent; quote it") from None
    variables = Variables()
    concealed, problems = variables.conceal(text, "the value")
    node, wrong = compose(concealed, "the value")
    for problem in (*problems, *wrong):
        raise UsageError(f"the value is invalid: {problem.message} (column {problem.column})")
    assert node is not None
    try:
        return _plain(node, variables)
    except ValueError as error:
        raise UsageError(f"the value {error}, which JSON cannot represent; quote it") from None


def _find_span(splicer: Splicer, file: Path, node: Node) -> TextSpan | None:
    if splicer.root is None or node.location.file != str(file):
        return None
    return splicer.root.find(node)


def _read_document(sources: Sources) -> Json:
    return _plain(sources.tree, sources.variables, strict=False)


def _plain(node: Node, variables: Variables, *, strict: bool = True) -> Json:
    """The values of a node, with variable references as they were written.

    Numbers that JSON cannot represent raise `NotJson` or, if not `strict`, become text.
    """

    def read_scalar(scalar: ScalarNode) -> Json:
        text = variables.restore(scalar.text)
        try:
            return type_of(scalar, text)
        except ValueError:
            if strict:
                raise
            return text

    return to_json(node, read_scalar, variables.restore)


def _are_equal(one: Json, other: Json) -> bool:
    """Whether two values are equal, with 1, 1.0 and true different; key order is ignored."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _read(file: Path) -> str:
    source = Source(file, file.read_bytes(), "")
    text = source.text()
    assert isinstance(text, str), "the file was read before without a problem"
    return text


def _redact_data(data: Any, path: KeyPath, known: KnownSecrets) -> Json:
    """Expanded data with secrets redacted."""
    if isinstance(data, dict):
        return {key: _redact_data(item, (*path, key), known) for key, item in data.items()}
    if isinstance(data, list):
        return [_redact_data(item, (*path, index), known) for index, item in enumerate(data)]
    if not isinstance(data, RawScalar):
        return None
    mark = known.mark(path)
    if (data.secret or is_secret(path)) if mark is None else mark:
        return REDACTED
    if isinstance(data.value, str):
        return hide_url_secrets(data.value)
    return data.text if isinstance(data.value, NotJson) else data.value


def _redact(text: str, known: KnownSecrets) -> str:
    """`text` with every literal scalar that may be a secret replaced; references stay."""
    concealed, _ = Variables().conceal(text, "")
    root = parse_spans(concealed)
    secrets = [
        span
        for span in (root.walk() if root else ())
        if span.kind is ScalarNode and span.start != span.end
        if _may_be_secret(_key_path(span, text), text[span.start : span.end], known)
    ]
    for span in reversed(secrets):
        text = f"{text[: span.start]}{REDACTED}{text[span.end :]}"
    return hide_url_secrets(text)


def _may_be_secret(path: KeyPath, source: str, known: KnownSecrets) -> bool:
    if "${" in source:
        return False
    return known.is_secret(path) or is_other_dsn(path, source.strip("\"'"))


def _key_path(span: TextSpan, text: str) -> KeyPath:
    """The keys that lead to a span."""
    keys = []
    above: TextSpan | None = span
    while above is not None:
        if above.key is not None:
            keys.append(text[above.key.start : above.key.end].strip("\"'"))
        above = above.parent
    return tuple(reversed(keys))
