"""Generate the command reference in Markdown from the commands themselves.

`python -m ductile.cli.reference` prints it; `make docs` writes it to docs/.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from ductile.cli.main import NOUNS, SHORT, root

SHARED_OPTIONS = frozenset({"config", "verbose", "as_json", "dry_run", "api_url", "api_key"})
_INTRODUCTION = """\
# Commands

For users of the command line: every command and option, generated from the same source as `--help`.

Commands have the form `ductile NOUN ACTION`.

Every command accepts these options:

- `--config PATH`: path to `config.yaml` or its directory. Default: `$DUCTILE_CONFIG_DIR`,
  `~/.config/ductile` or `/etc/ductile`.
- `-v`: print details to stderr.
- `--json`: print JSON, including errors: `{"error": ..., "code": ...}`.
- `--api-url URL`, `--api-key TOKEN`: use the gateway at this URL instead of the local one.
- `--dry-run`, with commands marked *writes*: show what would change, without changing it.

Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 78 invalid configuration,
130 interrupted.
"""


def markdown() -> str:
    """Return the whole page."""
    return "\n".join([_INTRODUCTION, *_short_forms(), *_nouns()])


def _short_forms() -> Iterator[str]:
    yield "## Short forms\n"
    yield "| short form | command |\n| --- | --- |"
    for name, (_, meaning) in SHORT.items():
        yield f"| `ductile {name}` | `ductile {meaning}` |"
    yield ""


def _nouns() -> Iterator[str]:
    top = click.Context(root, info_name="ductile")
    for name, (_, line) in NOUNS.items():
        command = root.get_command(top, name)
        assert command is not None
        yield f"## `{name}`\n\n{line}\n"
        yield from _describe(command, click.Context(command, info_name=name, parent=top))


def _describe(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        yield _command(command, context)
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None
        yield from _describe(inner, click.Context(inner, info_name=name, parent=context))


def _command(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *_arguments(command)])
    writes = " *writes*" if any(p.name == "dry_run" for p in command.params) else ""
    lines = [f"### `{usage}`{writes}", "", _paragraphs(command.help or "")]
    options = [_option(p) for p in command.params if isinstance(p, click.Option)]
    shown = [option for option in options if option]
    if shown:
        lines += ["", *shown]
    return "\n".join([*lines, ""])


def _arguments(command: click.Command) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Argument):
            name = param.metavar or (param.name or "").upper()
            yield name if param.required or name.startswith("[") else f"[{name}]"


def _option(option: click.Option) -> str | None:
    if option.name in SHARED_OPTIONS or option.hidden:
        return None
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    if isinstance(option.type, click.Choice):
        value = f" {'|'.join(map(str, option.type.choices))}"
    return f"- {names}{value}: {option.help}"


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n")).strip()


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
