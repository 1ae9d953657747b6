"""Read and change one setting of a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from difflib import unified_diff
from pathlib import Path
from typing import Any

from ductile.config import load, redact_settings
from ductile.config.edit.editor import ConfigEditor, FileEdit
from ductile.config.edit.paths import MISSING, get_at, resolve_path
from ductile.config.load import InvalidConfig
from ductile.config.loader.secrets import KnownSecrets
from ductile.config.problems import default_text, known_keys
from ductile.core.values.suggest import nearest
from ductile.engine.config import compile_schedules
from ductile.engine.config.compiled import build, discover_plugins
from ductile.errors import ConfigError, NotFound, Problem, Refused, Severity, dotted
from ductile.errors import Path as KeyPath
from ductile.operations.config.seal import seal_with_edit

CONTEXT_LINES = 2


def get_setting(
    config: Path | None, editor: ConfigEditor, text: str, environ: Mapping[str, str]
) -> dict[str, Any]:
    """Return the path and value of a setting, and its place in the files or that it is a default.

    Raises `NotFound` if it is not set and has no default.
    """
    found = editor.get(text, environ, find_known_secrets(config, environ))
    if found is not None:
        location = found.location._asdict()
        return {"path": dotted(found.path), "value": found.value, "default": False, **location}
    path = resolve_path(text, editor.document)
    loaded, _ = discover_plugins(load(config, environ=environ, seal=False, secrets=False))
    value = get_at(redact_settings(loaded.settings), path)
    if value is MISSING:
        raise NotFound(f"{dotted(path)} is not set, and has no default{_suggest_path(path)}")
    return {"path": dotted(path), "value": default_text(path) or value, "default": True}


def _suggest_path(path: KeyPath) -> str:
    """The path with its first unknown key corrected, if a known one is similar."""
    for place, part in enumerate(path):
        known = known_keys(path[:place])
        if known and part not in known:
            close = nearest(str(part), known)
            meant = dotted((*path[:place], close, *path[place + 1 :])) if close else None
            return f"; did you mean {meant!r}?" if meant else ""
    return ""


def find_known_secrets(config: Path | None, environ: Mapping[str, str]) -> KnownSecrets:
    """Return the secrets, with the marks of the manifests, of a configuration that may be invalid.

    Without a valid part there are no marks, and secrets are recognized by their names alone.
    """
    try:
        loaded = load(config, environ=environ, seal=False, secrets=False)
    except InvalidConfig as invalid:
        if invalid.rest is None:
            return KnownSecrets()
        loaded = invalid.rest
    except ConfigError:
        return KnownSecrets()
    return discover_plugins(loaded)[0].settings.known_secrets


def check_edit(
    config: Path | None, edit: FileEdit, *, environ: Mapping[str, str], now: datetime
) -> list[Problem]:
    """Return the warnings of the edited configuration; raise `ConfigError` with its errors."""
    loaded = load(
        config, environ=environ, seal=False, secrets=False, drafts={edit.file: edit.after}
    )
    compiled = build(loaded, boot_marker="", environ=environ)
    warnings = [*compiled.warnings, *compile_schedules.past(loaded, now)]
    refusal = compiled.registry.refusal(str(edit.path[1])) if edit.path[1:] else None
    if refusal is not None and edit.path[0] == "plugins":
        message = f"plugin {refusal.name} is refused: {refusal.reason}"
        warnings.append(Problem(message, edit.path, str(edit.file), severity=Severity.WARNING))
    if (
        compiled.settings.known_secrets.is_secret(edit.path)
        and not edit.references
        and edit.is_change
    ):
        message = "the file contains a secret; keep it in the environment and write ${NAME}"
        warnings.append(Problem(message, edit.path, str(edit.file)))
    return warnings


def diff_edit(config: Path | None, edit: FileEdit, environ: Mapping[str, str]) -> str:
    """Return the lines that an edit changes, without secrets."""
    known = find_known_secrets(config, environ)
    old, new = (text.splitlines() for text in edit.redacted(known))
    name = str(edit.file)
    return "\n".join(unified_diff(old, new, name, name, n=CONTEXT_LINES, lineterm=""))


class Sealed(Refused):
    code = "sealed"


def change_setting(
    config: Path, path: str, value: Any, *, environ: Mapping[str, str], now: datetime, dry: bool
) -> dict[str, Any]:
    """Change one setting in the file that defines it, for a caller that is not at the keyboard.

    Raises `ConfigError` if the result would have errors, and `Sealed` for a file whose seal only an
    operator may renew.
    """
    editor = ConfigEditor(config)
    edit = editor.set(path, value, over_references=False)
    warnings = check_edit(config, edit, environ=environ, now=now)
    if edit.is_change and seal_with_edit(config.parent, edit, must_match=False) is not None:
        raise Sealed(
            f"{edit.file} is sealed; an operator has to change it: "
            f"ductile config set {path} VALUE --lock"
        )
    diff = diff_edit(config, edit, environ)
    if edit.is_change and not dry:
        edit.write()
    return {
        "path": dotted(edit.path),
        "file": str(edit.file),
        "changed": edit.is_change,
        "diff": diff,
        "warnings": [str(warning) for warning in warnings],
    }
