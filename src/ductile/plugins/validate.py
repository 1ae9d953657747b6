"""`plugin validate`: everything that is wrong with a plugin's files, with locations.

The registry refuses a plugin for the first problem it finds; its author needs all of them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from ductile.config.loader.nodes import Location
from ductile.core.values.suggest import count_edits, nearest
from ductile.errors import Path as KeyPath
from ductile.errors import Problem, Severity, errors_of
from ductile.model import Json
from ductile.plugins.environments.plugin_files import read_python_plugin
from ductile.plugins.environments.requirements import InvalidRequirements
from ductile.plugins.manifest import MANIFEST_NAME, Command, ConfigKey, Manifest
from ductile.plugins.read_manifest import (
    ManifestDocument,
    ManifestError,
    read_document,
    validate_manifest,
)
from ductile.plugins.trust import (
    Untrusted,
    hash_executable,
    locate,
    locate_root,
    read_file,
    refuse_world_writable,
)
from ductile.plugins.variables import DEFAULT_PATH
from ductile.runner import exec_errors

T = TypeVar("T")
INTERPRETERS = ("env", "sh", "bash", "python3", "node", "perl", "ruby", "php", "deno", "bun")
"""What the first line of a plugin usually names."""


class Inspection:
    """The validation of one plugin directory; `problems` is complete after construction."""

    def __init__(
        self,
        directory: Path,
        *,
        allow_symlinks: bool,
        config: Mapping[str, Json] | None = None,
        search_path: str | None = None,
        check_interpreter: bool = True,
    ) -> None:
        """`config` is the plugin's `config` section, if it has to be complete."""
        self.directory = Path(os.path.normpath(directory.absolute()))
        self.manifest: Manifest | None = None
        self.problems: list[Problem] = []
        self._allow_symlinks = allow_symlinks
        self._root = self.directory.parent
        self._search_path = search_path or DEFAULT_PATH
        self._checks_interpreter = check_interpreter
        self._inspect(config)

    @property
    def name(self) -> str:
        return self.manifest.name if self.manifest else self.directory.name

    @property
    def is_valid(self) -> bool:
        return not errors_of(self.problems)

    def _inspect(self, config: Mapping[str, Json] | None) -> None:
        path = self.directory / MANIFEST_NAME
        if not os.path.lexists(path):
            missing = "directory" if not self.directory.is_dir() else MANIFEST_NAME
            self._report(path, f"there is no {missing}; every plugin needs a {MANIFEST_NAME}")
            return
        located = self._attempt(self.directory, self._locate_directory)
        data = self._attempt(path, lambda: read_file(self._locate(path))) if located else None
        if data is None:
            return
        try:
            document = read_document(data, str(path))
        except ManifestError as error:
            self.problems += error.problems
            return
        self._check_manifest(document)
        self._check_unknown_keys(document)
        entrypoint = (
            self.manifest.entrypoint if self.manifest else document.values.get("entrypoint")
        )
        if isinstance(entrypoint, str) and entrypoint and ".." not in entrypoint:
            self._check_entrypoint(self.directory / entrypoint, document.locate(("entrypoint",)))
        if self.manifest and config is not None:
            self._check_config(self.manifest, config, document)

    def _locate_directory(self) -> bool:
        self._root, warning = locate_root(self._root, allow_symlinks=self._allow_symlinks)
        if warning:
            self._report(self._root, warning, Severity.WARNING)
        self.directory = self._locate(self._root / self.directory.name)
        refuse_world_writable(self.directory)
        return True

    def _locate(self, path: Path) -> Path:
        real, warning = locate(path, root=self._root, allow_symlinks=self._allow_symlinks)
        if warning:
            self._report(path, warning, Severity.WARNING)
        return real

    def _attempt(self, path: Path, check: Callable[[], T]) -> T | None:
        try:
            return check()
        except (Untrusted, OSError) as error:
            self._report(path, str(error))
            return None

    def _report(self, path: Path, message: str, severity: Severity = Severity.ERROR) -> None:
        self.problems.append(Problem(message, file=str(path), severity=severity))

    def _check_manifest(self, document: ManifestDocument) -> None:
        try:
            self.manifest, warnings = validate_manifest(document)
        except ManifestError as error:
            self.problems += error.problems
            return
        self.problems += warnings
        if self.manifest.name != self.directory.name:
            self.problems.append(
                document.locate(("name",)).problem(
                    f"differs from the directory's name {self.directory.name!r}; "
                    "the name in the manifest is used",
                    path=("name",),
                    found=repr(self.manifest.name),
                    severity=Severity.WARNING,
                )
            )

    def _check_unknown_keys(self, document: ManifestDocument) -> None:
        self._warn_of_unknown(document.values, (), Manifest, document)
        commands = document.values.get("commands")
        named: Iterable[tuple[str | int, Json]] = (
            commands.items()
            if isinstance(commands, dict)
            else enumerate(commands)
            if isinstance(commands, list)
            else ()
        )
        for key, body in named:
            if isinstance(body, dict):
                self._warn_of_unknown(body, ("commands", key), Command, document)
        config_keys = document.values.get("config_keys")
        for group, keys in config_keys.items() if isinstance(config_keys, dict) else ():
            for index, key in enumerate(keys if isinstance(keys, list) else ()):
                if isinstance(key, dict):
                    path = ("config_keys", group, index)
                    self._warn_of_unknown(key, path, ConfigKey, document)

    def _warn_of_unknown(
        self,
        table: Mapping[str, Json],
        path: KeyPath,
        model: type[BaseModel],
        document: ManifestDocument,
    ) -> None:
        known = [info.alias or name for name, info in model.model_fields.items()]
        for key in table:
            if key not in known:
                self.problems.append(
                    document.locate((*path, key), key=True).problem(
                        f"unknown key {key!r} is ignored",
                        path=path,
                        nearest=nearest(key, known),
                        severity=Severity.WARNING,
                    )
                )

    def _check_entrypoint(self, path: Path, named: Location) -> None:
        if not os.path.lexists(path):
            message = f"there is no file {path}; create it, or correct the name"
            self.problems.append(named.problem(message, path=("entrypoint",)))
            return
        if self._attempt(path, lambda: hash_executable(self._locate(path))) is None:
            return
        line = exec_errors.first_line(str(path)) or b""
        if not line.startswith(b"#!"):
            if not line.startswith(b"\x7fELF"):
                message = "is neither a binary nor a script with a #! line"
                self._report(path, f"{path} {message}; add a line such as #!/usr/bin/env python3")
            return
        if line.endswith(b"\r"):
            self._report(path, f"{path} has CRLF line endings; save it with LF line endings")
        if self._check_python(path) or not self._checks_interpreter:
            return
        missing = exec_errors.missing_interpreter(line, self._search_path)
        message = "the #! line does not name an interpreter"
        if missing is not None:
            close = find_similar_interpreter(missing, self._search_path)
            advice = f"did you mean {close}?" if close else "install it"
            message = f"`{missing}` is not installed: the #! line names it; {advice}"
        if missing is not None or not line[2:].strip():
            self.problems.append(Problem(message, (), str(path), 1, 1))

    def _check_python(self, path: Path) -> bool:
        """Whether the plugin declares what it needs of Python: its first line is not executed."""
        entrypoint = self._locate(path)
        try:
            plugin = read_python_plugin(self.name, self.directory, entrypoint, self._locate)
        except (InvalidRequirements, Untrusted, OSError) as error:
            self._report(path, str(error))
            return True
        return plugin is not None

    def _check_config(
        self, manifest: Manifest, config: Mapping[str, Json], document: ManifestDocument
    ) -> None:
        for index, key in enumerate(manifest.config_keys.required_names()):
            if config.get(key) is None:
                path = ("config_keys", "required", index)
                setting = f"plugins.{manifest.name}.config.{key}"
                message = f"the required setting {key!r} is missing; set {setting}"
                self.problems.append(document.locate(path).problem(message, path=path))


def plugin_directories(roots: Iterable[Path]) -> Iterator[Path]:
    """The directories below the roots that have a manifest."""
    for root in roots:
        for entry in sorted(root.iterdir()) if root.is_dir() else ():
            if not entry.name.startswith(".") and os.path.lexists(entry / MANIFEST_NAME):
                yield entry


def find_similar_interpreter(missing: str, search_path: str) -> str | None:
    """The installed interpreter with this name, or with a name that is one edit from it."""
    named = missing.rpartition("/")[2]
    for name in sorted(INTERPRETERS, key=lambda name: count_edits(named, name)):
        found = shutil.which(name, path=search_path)
        if found is not None and count_edits(named, name) <= 1:
            return found if "/" in missing else name
    return None
