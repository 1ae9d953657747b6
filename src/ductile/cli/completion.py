"""`ductile completion`: shell completion of commands, and of names in the configuration."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from ductile.cli import output
from ductile.cli.command import CommandContext, read

if TYPE_CHECKING:
    from ductile.config import Settings

SHELLS = click.Choice(["bash", "zsh", "fish"])
WHERE = {
    "bash": '~/.bashrc:  eval "$({program} completion bash)"',
    "zsh": '~/.zshrc:  eval "$({program} completion zsh)"',
    "fish": "~/.config/fish/completions/{program}.fish:  {program} completion fish | source",
}


@read("completion")
@click.argument("shell", type=SHELLS)
@click.pass_context
def completion(ctx: click.Context, context: CommandContext, shell: str) -> None:
    """Print a shell completion script."""
    program = Path(ctx.find_root().info_name or "ductile").name
    found = get_completion_class(shell)
    assert found is not None
    variable = f"_{program}_COMPLETE".replace("-", "_").upper()
    # Bash's own `source` would start a bash to read its version.
    script = ShellComplete.source(found(ctx.find_root().command, {}, program, variable))
    context.note(f"add this to {WHERE[shell].format(program=program)}")
    context.show(
        {"shell": shell, "script": script}, lambda shown: output.print_text(shown["script"])
    )


def suggestions(kind: str, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
    """Return the matching names in the configuration; none if it cannot be read."""
    from ductile.errors import DuctileError

    config = ctx.params.get("config") or ctx.find_root().params.get("config")
    try:
        names = _settings(config, incomplete) if kind == "setting" else _named(kind, config)
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]
    except (DuctileError, OSError, ValueError):
        return []


def _named(kind: str, config: Path | None) -> Iterable[str]:
    from ductile.config import load

    settings = load(config, environ=os.environ, seal=False, secrets=False).settings
    if kind == "pipeline":
        return [pipeline.name for pipeline in settings.pipelines]
    if kind == "schedule":
        return [
            f"{name}/{entry.id}"
            for name, plugin in settings.plugins.items()
            for entry in plugin.schedules
        ] + [
            f"pipeline:{pipeline.name}/{timed.id}"
            for pipeline in settings.pipelines
            for timed in pipeline.schedules
        ]
    return sorted({*settings.plugins, *_list_root_plugins(settings)})


def _list_root_plugins(settings: Settings) -> Iterator[str]:
    """Yield the names of the plugins' directories: cheaper than reading the manifests."""
    from ductile.config import bundled

    for root in settings.plugin_roots:
        if root != bundled.directory() and root.is_dir():
            yield from (entry.parent.name for entry in root.glob("*/manifest.yaml"))


def _settings(config: Path | None, incomplete: str) -> Iterator[str]:
    """Yield the keys that can follow: those in the files, and those in the schema."""
    from ductile.config import find
    from ductile.config.edit.editor import ConfigEditor
    from ductile.config.edit.paths import ENTITIES, get_at, resolve_path
    from ductile.config.problems import known_keys

    document = ConfigEditor(find(config, os.environ)).document
    above, dot, _ = incomplete.rpartition(".")
    path = resolve_path(above, document) if above else ()
    written = get_at(document, path)
    keys = known_keys(path) | (set(written) if isinstance(written, dict) else set())
    for key in sorted(keys):
        yield f"{above}{dot}{key}"
    for kind in () if above else ENTITIES:
        yield f"{kind}:"
