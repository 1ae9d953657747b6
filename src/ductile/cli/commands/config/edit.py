"""`ductile config get` and `config set`: read and change one setting in its file."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayClient
from ductile.cli.command import CommandContext, read, write
from ductile.cli.display import print_config_value
from ductile.cli.options import SETTING
from ductile.errors import ConfigError, Problem, Refused, UsageError, dotted

_PLAIN = re.compile(r"[\w.:/+-]{1,64}")
"""A value that needs no quotes."""

if TYPE_CHECKING:
    from ductile.config.edit.editor import ConfigEditor, FileEdit


@read("get")
@click.argument("path", type=SETTING)
def get(context: CommandContext, path: str) -> None:
    """Show one setting or its default, secrets redacted.

    PATH is like service.log_level, plugins.echo.schedules[0].every, pipelines.nightly.timeout
    or plugin:echo.enabled. With -v, the file and line that define it are shown as well.
    """
    from ductile.operations.config.edit import get_setting

    document = get_setting(context.config, _open_editor(context), path, os.environ)
    place = "default" if document["default"] else f"{document['file']}:{document['line']}"
    context.note(f"{document['path']}: {place}")
    context.warn_of_unloaded_files()
    context.show(document, lambda document: print_config_value(document["value"]))


def _open_editor(context: CommandContext) -> ConfigEditor:
    from ductile.config import find
    from ductile.config.edit.editor import ConfigEditor

    return ConfigEditor(find(context.config, os.environ))


@write("set")
@click.argument("path", type=SETTING)
@click.argument("value", required=False)
@click.option(
    "--replace-variable", is_flag=True, help="Overwrite a value that is a ${VAR} reference."
)
@click.option("--lock", is_flag=True, help="Seal the changed file, if its seal was valid before.")
@click.option("--apply", is_flag=True, hidden=True, help="Ignored; accepted for compatibility.")
def set_(
    context: CommandContext,
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
    from ductile.clock import SystemClock
    from ductile.operations.config.edit import diff_edit
    from ductile.operations.config.seal import seal_with_edit, write_seal

    path, text, is_typed = _parse_assignment(path, value)
    editor = _open_editor(context)
    edit = _plan_edit(editor, path, text, replace_variable)
    warnings = _check(context, edit, text if is_typed else None)
    seal = seal_with_edit(editor.config.parent, edit, must_match=lock)
    if edit.is_change and not context.dry_run:
        _refuse_to_lose_gateway(context, edit)
        edit.write()
        if seal is not None and lock:
            write_seal(seal, editor.config, environ=os.environ, now=SystemClock().now())
    needs_lock = seal is not None and not lock
    document = {
        "path": dotted(edit.path),
        "file": str(edit.file),
        "changed": edit.is_change,
        "dry_run": context.dry_run,
        "diff": diff_edit(context.config, edit, os.environ),
        "variables": list(edit.references),
        "warnings": [str(warning) for warning in warnings],
        "next": _next_commands(context, edit, needs_lock) if edit.is_change else [],
    }
    context.show(document, _show_set)


def _refuse_to_lose_gateway(context: CommandContext, edit: FileEdit) -> None:
    """Raise `Refused` if a gateway runs that no command would find with the changed setting."""
    from ductile.config import find_state
    from ductile.engine.config.restart_required import LOCATIONS
    from ductile.engine.socket_path import SOCKET

    if not any(edit.path == key[: len(edit.path)] for key in LOCATIONS):
        return
    state = find_state(context.config, environ=os.environ)
    if state is not None and GatewayClient.is_listening(state.dir / SOCKET):
        option = f" --config {quote(str(context.config))}" if context.config else ""
        raise Refused(
            f"a gateway runs with {state.dir}, and {dotted(edit.path)} decides where commands look "
            f"for it; first stop it: ductile system stop{option}"
        )


def _parse_assignment(path: str, value: str | None) -> tuple[str, str, bool]:
    """The path, the value, and whether the value is part of the command line."""
    if value is None:
        path, divided, value = path.partition("=")
        if not divided:
            raise UsageError("missing value; use: ductile config set PATH VALUE")
    if value == "-":
        return path, sys.stdin.read().removesuffix("\n"), False
    return path, value, True


def _plan_edit(editor: ConfigEditor, path: str, text: str, over_references: bool) -> FileEdit:
    from ductile.config.edit.editor import parse_value

    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError("the value is not UTF-8 text") from None
    return editor.set(path, parse_value(text), over_references=over_references)


def _check(context: CommandContext, edit: FileEdit, typed: str | None) -> list[Problem]:
    from ductile.clock import SystemClock
    from ductile.operations.config.edit import check_edit

    try:
        return check_edit(context.config, edit, environ=os.environ, now=SystemClock().now())
    except ConfigError as error:
        if not context.as_json:
            message = "nothing was written; the resulting configuration has errors:"
            output.print_stderr(message)
        if run := _find_other_edit(edit, typed, error.problems):
            error.details["run"] = run
        raise


def _find_other_edit(edit: FileEdit, typed: str | None, problems: Sequence[Problem]) -> str | None:
    """The command to try instead, if only the edit is wrong: its place in the file is unchanged.

    A value is repeated only if it was typed and cannot be a secret.
    """
    from ductile.config.loader.secrets import is_secret
    from ductile.config.validate import NO_TOKEN

    if problems[0].message == NO_TOKEN:
        return None  # It lacks something else.
    own = (p.path[: len(edit.path)] == edit.path[: len(p.path)] for p in problems)
    if not all(own):
        return None
    from ductile.core.values.redact import names_a_secret

    path, only = dotted(edit.path), problems[0]
    length = len(only.path)
    is_key = 0 < length <= len(edit.path) and only.found is None and only.nearest is not None
    if only.path == edit.path and only.nearest and not is_key:
        return f"ductile config set {quote(path)} {quote(only.nearest)}"
    if not is_key:
        is_known = only.found is not None and only.path == edit.path
        return f"ductile config get {quote(path)}" if is_known else "ductile config show"
    right = (*only.path[:-1], str(only.nearest), *edit.path[length:])
    parts = (str(part) for part in (*edit.path, *right))
    is_public = not (is_secret(right) or any(map(names_a_secret, parts)))
    is_plain = typed is not None and _PLAIN.fullmatch(typed) is not None
    shown = quote(typed) if typed is not None and is_plain and is_public else "-"
    return f"ductile config set {quote(dotted(right))} {shown}"


def _next_commands(context: CommandContext, edit: FileEdit, needs_lock: bool) -> list[str]:
    from ductile.engine.config.restart_required import needs_restart

    option = f" --config {quote(str(context.config))}" if context.config else ""
    lock = [f"ductile config lock {quote(str(edit.file))}{option}"] if needs_lock else []
    if needs_restart(edit.path):
        # A reload would be refused.
        return [*lock, f"ductile system stop{option}", f"ductile system start{option}"]
    return [*lock, f"ductile system reload{option}"]


def _show_set(document: dict[str, Any]) -> None:
    for warning in document["warnings"]:
        output.print_stderr(f"warning: {warning}", fg="yellow")
    if not document["changed"]:
        output.print_line(f"{document['path']} already has this value")
        return
    output.print_diff(document["diff"] or "(only a secret changes, and is not shown)")
    done = "would set" if document["dry_run"] else "set"
    output.print_line(f"{done} {document['path']} in {document['file']}")
    for name in document["variables"]:
        output.print_line(f"the value is read from the variable {name}")
    if not document["dry_run"]:
        for command in document["next"]:
            output.print_line(f"next: {command}")
