"""`plugin validate`: all that is wrong with a plugin's files, at once and with places.

The registry refuses a plugin for the first thing it finds; whoever mends one wants them all.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ductile.config.loader.nodes import Listing, Node, Place, Table
from ductile.config.loader.yaml import compose
from ductile.core.values.suggest import nearest
from ductile.errors import Path as KeyPath
from ductile.errors import Problem, Severity, errors_of
from ductile.model import Json
from ductile.plugins.document import DocumentError, read_document
from ductile.plugins.environment import DEFAULT_PATH
from ductile.plugins.manifest import (
    MANIFEST_NAME,
    Command,
    Manifest,
    ManifestError,
    read_manifest,
)
from ductile.plugins.trust import (
    Untrusted,
    hash_executable,
    locate,
    locate_root,
    read_file,
    refuse_world_writable,
)
from ductile.runner import exec_errors

T = TypeVar("T")
_MARK = re.compile(r"line (\d+), column (\d+)")
_ENV = ("/usr/bin/env", "/bin/env")


class Inspection:
    """One plugin's directory under inspection; `problems` are complete once it is made."""

    def __init__(
        self,
        directory: Path,
        *,
        allow_symlinks: bool,
        config: Mapping[str, Json] | None = None,
        search_path: str | None = None,
    ) -> None:
        """`config` is what the configuration gives it, where there is one."""
        self.directory = Path(os.path.normpath(directory.absolute()))
        self.manifest: Manifest | None = None
        self.problems: list[Problem] = []
        self._allow_symlinks = allow_symlinks
        self._root = self.directory.parent
        self._search_path = search_path or DEFAULT_PATH
        self._inspect(config)

    @property
    def name(self) -> str:
        return self.manifest.name if self.manifest else self.directory.name

    @property
    def sound(self) -> bool:
        return not errors_of(self.problems)

    def _inspect(self, config: Mapping[str, Json] | None) -> None:
        path = self.directory / MANIFEST_NAME
        if not os.path.lexists(path):
            here = "there is no such directory" if not self.directory.is_dir() else "there is none"
            self._say(path, f"{here}; a plugin has a {MANIFEST_NAME}")
            return
        located = self._try(self.directory, self._locate_directory)
        data = self._try(path, lambda: read_file(self._located(path))) if located else None
        if data is None:
            return
        document = self._document(path, data)
        if document is None:
            return
        places = _Places(data, path)
        self._manifest(data, places)
        self._unknown_keys(document, places)
        entrypoint = self.manifest.entrypoint if self.manifest else document.get("entrypoint")
        if isinstance(entrypoint, str) and entrypoint and ".." not in entrypoint:
            self._entrypoint(self.directory / entrypoint, places.at(("entrypoint",)))
        if self.manifest and config is not None:
            self._config(self.manifest, config, places)

    def _locate_directory(self) -> bool:
        self._root, warning = locate_root(self._root, allow_symlinks=self._allow_symlinks)
        if warning:
            self._say(self._root, warning, Severity.WARNING)
        self.directory = self._located(self._root / self.directory.name)
        refuse_world_writable(self.directory)
        return True

    def _located(self, path: Path) -> Path:
        real, warning = locate(path, root=self._root, allow_symlinks=self._allow_symlinks)
        if warning:
            self._say(path, warning, Severity.WARNING)
        return real

    def _try(self, path: Path, check: Callable[[], T]) -> T | None:
        try:
            return check()
        except (Untrusted, OSError) as error:
            self._say(path, str(error))
            return None

    def _say(self, path: Path, message: str, severity: Severity = Severity.ERROR) -> None:
        self.problems.append(Problem(message, file=str(path), severity=severity))

    def _document(self, path: Path, data: bytes) -> dict[str, Json] | None:
        try:
            return read_document(data).root
        except DocumentError as error:
            mark = _MARK.findall(str(error))
            line, column = map(int, mark[-1]) if mark else (None, None)
            self.problems.append(Problem(str(error), (), str(path), line, column))
            return None

    def _manifest(self, data: bytes, places: _Places) -> None:
        try:
            self.manifest, warnings = read_manifest(data)
        except ManifestError as error:
            self.problems += [places.at(key).problem(text) for key, text in error.problems]
            return
        whole = places.at(())
        self.problems += [whole.problem(text, severity=Severity.WARNING) for text in warnings]
        if self.manifest.name != self.directory.name:
            self.problems.append(
                places.at(("name",)).problem(
                    f"the directory is called {self.directory.name}, the plugin "
                    f"{self.manifest.name}; the plugin's name counts",
                    severity=Severity.WARNING,
                )
            )

    def _unknown_keys(self, document: Mapping[str, Json], places: _Places) -> None:
        self._unknown(document, (), Manifest, places)
        commands = document.get("commands")
        named: Iterable[tuple[str | int, Json]] = (
            commands.items()
            if isinstance(commands, dict)
            else enumerate(commands)
            if isinstance(commands, list)
            else ()
        )
        for key, body in named:
            if isinstance(body, dict):
                self._unknown(body, ("commands", key), Command, places)

    def _unknown(
        self, table: Mapping[str, Json], path: KeyPath, model: type[BaseModel], places: _Places
    ) -> None:
        known = [info.alias or name for name, info in model.model_fields.items()]
        for key in table:
            if key not in known:
                self.problems.append(
                    places.key((*path, key)).problem(
                        f"the key {key!r} is not known, and ignored",
                        nearest=nearest(key, known),
                        severity=Severity.WARNING,
                    )
                )

    def _entrypoint(self, path: Path, named: Place) -> None:
        if not os.path.lexists(path):
            self.problems.append(named.problem(f"there is no {path}"))
            return
        if self._try(path, lambda: hash_executable(self._located(path))) is None:
            return
        line = exec_errors.first_line(str(path)) or b""
        if not line.startswith(b"#!"):
            if not line.startswith(b"\x7fELF"):
                why = "has no shebang line such as #!/usr/bin/env python3, and is no program"
                self._say(path, f"{path} {why}")
            return
        if line.endswith(b"\r"):
            self._say(path, f"{path} has CRLF line ends; save it with LF line ends")
        for message in self._of_interpreter(os.fsdecode(line[2:].strip())):
            self.problems.append(Problem(message, (), str(path), 1, 1))

    def _of_interpreter(self, shebang: str) -> Iterator[str]:
        words = shebang.split()
        if not words:
            yield "its shebang line names no interpreter"
        elif words[0] in _ENV and len(words) > 1:
            wanted = next((word for word in words[1:] if not word.startswith("-")), "")
            if wanted and shutil.which(wanted, path=self._search_path) is None:
                yield f"the interpreter {wanted!r} is not on the gateway's PATH"
        elif not os.access(words[0], os.X_OK):
            yield f"the interpreter {words[0]!r} does not exist, or cannot be executed"

    def _config(self, manifest: Manifest, config: Mapping[str, Json], places: _Places) -> None:
        for index, key in enumerate(manifest.config_keys.required):
            if config.get(key) is None:
                place = places.at(("config_keys", "required", index))
                where = f"plugins.{manifest.name}.config.{key}"
                self.problems.append(place.problem(f"required config is missing: set {where}"))


class _Places:
    """Where the keys of a manifest stand."""

    def __init__(self, data: bytes, path: Path) -> None:
        self._path = path
        self._root, _ = compose(data.decode("utf-8-sig"), str(path))

    def at(self, path: KeyPath) -> Place:
        """Of what stands at `path`, or of the nearest above it."""
        return self._walked(path, to_key=False)

    def key(self, path: KeyPath) -> Place:
        return self._walked(path, to_key=True)

    def _walked(self, path: KeyPath, *, to_key: bool) -> Place:
        node: Node | None = self._root
        place = Place(str(self._path), 1, 1)
        for part in path:
            entry = node.items.get(str(part)) if isinstance(node, Table) else None
            if entry is not None:
                node, place = entry.value, entry.key if to_key else entry.place
            elif isinstance(node, Listing) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                place = node.place
            else:
                break
        return place


def plugin_directories(roots: Iterable[Path]) -> Iterator[Path]:
    """Every directory in the roots that has a manifest."""
    for root in roots:
        for entry in sorted(root.iterdir()) if root.is_dir() else ():
            if not entry.name.startswith(".") and os.path.lexists(entry / MANIFEST_NAME):
                yield entry
