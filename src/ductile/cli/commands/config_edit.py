"""`ductile config get` and `set`: one value of the files, read and changed in its place."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, blueprint_of
from ductile.cli.commands.config import config, show_value
from ductile.cli.options import SETTING
from ductile.core.values.suggest import did_you_mean
from ductile.errors import ConfigError, NotFound, Problem, Refused, UsageError, dotted

if TYPE_CHECKING:
    from ductile.config.checksums import Seal
    from ductile.config.edit.editor import ConfigEditor, FileEdit

CONTEXT_LINES = 2


@config.read("get")
@click.argument("path", type=SETTING)
def get(call: CommandContext, path: str) -> None:
    """Show one setting or its default, secrets redacted.

    PATH is like service.log_level, plugins.echo.schedules[0].every, pipelines.nightly.timeout
    or plugin:echo.enabled. With -v, the file and line that define it are shown as well.
    """
    draft = _draft(call)
    found = draft.get(path, os.environ)
    if found is None:
        document = _default(call, draft, path)
    else:
        document = {
            "path": dotted(found.path),
            "value": found.value,
            "default": False,
            **found.location._asdict(),
        }
    where = "default" if document["default"] else f"{document['file']}:{document['line']}"
    call.note(f"{document['path']}: {where}")
    call.show(document, lambda shown: show_value(shown["value"]))


def _draft(call: CommandContext) -> ConfigEditor:
    from ductile.config import find
    from ductile.config.edit.editor import ConfigEditor

    return ConfigEditor(find(call.config, os.environ))


def _default(call: CommandContext, draft: ConfigEditor, text: str) -> dict[str, Any]:
    from ductile.config import load, redact_settings
    from ductile.config.edit.paths import MISSING, get_at, resolve_path
    from ductile.config.problems import default_text, known_keys

    path = resolve_path(text, draft.document)
    effective = redact_settings(load(call.config, environ=os.environ, seal=False).settings)
    value = get_at(effective, path)
    if value is MISSING:
        hint = did_you_mean(str(path[-1]), known_keys(path[:-1]))
        raise NotFound(f"{dotted(path)} is not set, and has no default{hint}")
    return {"path": dotted(path), "value": default_text(path) or value, "default": True}


@config.write("set")
@click.argument("path", type=SETTING)
@click.argument("value", required=False)
@click.option(
    "--replace-variable", is_flag=True, help="Overwrite a value that is a ${VAR} reference."
)
@click.option("--lock", is_flag=True, help="Seal the changed file, if its seal was valid before.")
@click.option("--apply", is_flag=True, hidden=True, help="Ignored; accepted for compatibility.")
def set_(
    call: CommandContext,
    path: str,
    value: str | None,
    replace_variable: bool,
    lock: bool,
    apply: bool,  # noqa: ARG001
) -> None:
    """Change one setting in the file that defines it.

    VALUE is a number, true, false, null or text; a value that starts with a bracket or a quote
    is parsed as YAML; - reads stdin. PATH=VALUE works too. The resulting configuration is
    checked first; if it has errors, nothing is written. The rest of the file stays as it is.
    """
    path, text = _assignment(path, value)
    draft = _draft(call)
    edit = _planned(draft, path, text, replace_variable)
    warnings = _judged(call, edit)
    seal = _seal_after(draft.config.parent, edit, lock)
    if edit.is_change and not call.dry_run:
        edit.write()
        if seal is not None and lock:
            from ductile.clock import SystemClock

            seal.write(SystemClock().now())
    document = {
        "path": dotted(edit.path),
        "file": str(edit.file),
        "changed": edit.is_change,
        "dry_run": call.dry_run,
        "diff": _diff(edit),
        "variables": list(edit.references),
        "warnings": [str(warning) for warning in warnings],
        "next": _next(call, seal, lock) if edit.is_change else [],
    }
    call.show(document, _show_set)


def _assignment(path: str, value: str | None) -> tuple[str, str]:
    if value is None:
        path, divided, value = path.partition("=")
        if not divided:
            raise UsageError("missing value; use: ductile config set PATH VALUE")
    return path, sys.stdin.read().removesuffix("\n") if value == "-" else value


def _planned(draft: ConfigEditor, path: str, text: str, over_references: bool) -> FileEdit:
    from ductile.config.edit.editor import parse_value

    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the value is not UTF-8 text") from None
    return draft.set(path, parse_value(text), over_references=over_references)


def _judged(call: CommandContext, edit: FileEdit) -> list[Problem]:
    """Load the result as a start would; `ConfigError` with every problem it has."""
    from ductile.clock import SystemClock
    from ductile.config import load
    from ductile.config.loader.expand import is_secret
    from ductile.engine.config import compile_schedules

    drafts = {edit.file: edit.after}
    try:
        loaded = load(call.config, environ=os.environ, seal=False, drafts=drafts)
        built = blueprint_of(loaded)
    except ConfigError:
        if not call.as_json:
            output.aside("nothing was written; the resulting configuration has errors:")
        raise
    problem = Problem(
        "the file contains a secret; keep it in the environment and write ${NAME}",
        edit.path,
        str(edit.file),
    )
    literal = is_secret(edit.path) and not edit.references and edit.is_change
    past = compile_schedules.past(loaded, SystemClock().now())
    return [*built.warnings, *past, *([problem] if literal else [])]


def _seal_after(root: Path, edit: FileEdit, lock: bool) -> Seal | None:
    """The seal in `root` with the changed file in it; None where the file is not sealed."""
    from dataclasses import replace

    from blake3 import blake3

    from ductile.config import checksums

    seal, _ = checksums.read(root)
    sealed = seal.hashes.get(str(edit.file))
    if sealed is None:
        return None
    if lock and sealed != blake3(edit.before).hexdigest():
        raise Refused(
            f"{edit.file} was changed after it was sealed; review it, then run: ductile config lock"
        )
    return replace(seal, hashes={**seal.hashes, str(edit.file): blake3(edit.after).hexdigest()})


def _diff(edit: FileEdit) -> str:
    from difflib import unified_diff

    old, new = (text.splitlines() for text in edit.redacted())
    name = str(edit.file)
    return "\n".join(unified_diff(old, new, name, name, n=CONTEXT_LINES, lineterm=""))


def _next(call: CommandContext, seal: Seal | None, lock: bool) -> list[str]:
    own = f" --config {quote(str(call.config))}" if call.config else ""
    steps = [f"ductile config lock{own}"] if seal is not None and not lock else []
    return [*steps, f"ductile system reload{own}"]


def _show_set(document: dict[str, Any]) -> None:
    for warning in document["warnings"]:
        output.aside(f"warning: {warning}", fg="yellow")
    if not document["changed"]:
        output.line(f"{document['path']} already has this value")
        return
    output.difference(document["diff"] or "(only a secret changes, and is not shown)")
    done = "would set" if document["dry_run"] else "set"
    output.line(f"{done} {document['path']} in {document['file']}")
    for name in document["variables"]:
        output.line(f"the value is read from the variable {name}")
    if not document["dry_run"]:
        for step in document["next"]:
            output.line(f"next: {step}")
