"""`ductile plugin sync`: lock the dependencies of Python plugins and build their environments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayClient, Json
from ductile.cli.command import CommandContext, compile_config, write
from ductile.cli.commands.plugin.authoring import is_directory, resolve_path
from ductile.cli.display import RELOAD
from ductile.cli.options import PLUGIN
from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, Refused

if TYPE_CHECKING:
    from ductile.engine.config.compiled import CompiledConfig
    from ductile.plugins.environments.plugin_files import PythonPlugin
    from ductile.plugins.registry import Plugin


@write("sync")
@click.argument("target", metavar="[NAME|DIR]", type=PLUGIN, required=False)
@click.option(
    "--wheelhouse",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    metavar="DIR",
    help="Install from this directory, without network.",
)
@click.option("--upgrade", is_flag=True, help="Lock the newest allowed versions again.")
@click.option("--prune", is_flag=True, help="Then remove environments that no plugin uses.")
def sync(
    context: CommandContext,
    target: str | None,
    wheelhouse: Path | None,
    upgrade: bool,
    prune: bool,
) -> int:
    """Install the dependencies of Python plugins.

    Locks what a plugin's `# /// script` block or requirements.txt names, and builds its
    environment in the state directory. Without a name, every plugin is synchronized. Uses uv
    where it is installed, otherwise pip. Exit 1 if a plugin fails.
    """
    from ductile.plugins.environments.locate import DIRECTORY

    compiled, plugins = _find_plugins(context, target)
    environments = compiled.settings.state_dir / DIRECTORY
    results, failed = _sync_all(context, plugins, environments, wheelhouse, upgrade)
    document: dict[str, Any] = {"plugins": results, "failed": failed, "dry_run": context.dry_run}
    if prune and not failed:
        document["pruned"] = _prune(context, compiled, environments)
    context.show(document, _show)
    if not context.dry_run:
        _print_hints(compiled, results)
    return 1 if failed else 0


def _find_plugins(
    context: CommandContext, target: str | None
) -> tuple[CompiledConfig, list[PythonPlugin]]:
    """Return the configuration, and the Python plugins to synchronize."""
    if target is not None and is_directory(context, target):
        compiled = _compile_directory(context, resolve_path(target))
        directory = resolve_path(target)
        found = compiled.registry.python_plugins.values()
        return compiled, [plugin for plugin in found if directory in plugin.entrypoint.parents]
    compiled = compile_config(context.target.loaded)
    registry = compiled.registry
    if target is None:
        return compiled, [registry.python_plugins[name] for name in sorted(registry.python_plugins)]
    name = _resolve_alias(compiled, target)
    if name in registry.python_plugins:
        return compiled, [registry.python_plugins[name]]
    if target in registry.plugins:
        _refuse_unusable_file(registry.plugins[target])
        return compiled, []
    refusal = registry.refusal(target)
    if refusal is not None:
        raise Refused(f"plugin {target} is refused: {refusal.reason}", plugin=target)
    hint = did_you_mean(target, registry.plugins)
    raise NotFound(f"there is no plugin {target!r}{hint}", plugin=target)


def _refuse_unusable_file(plugin: Plugin) -> None:
    """Raise `Refused` if the plugin has a `requirements.txt` that cannot be locked."""
    from ductile.plugins.environments.plugin_files import (
        UnusableRequirementsFile,
        read_python_plugin,
    )

    try:
        read_python_plugin(plugin.name, plugin.directory, plugin.entrypoint, lambda path: path)
    except UnusableRequirementsFile as error:
        raise Refused(f"plugin {plugin.name}: {error}", plugin=plugin.name) from None


def _compile_directory(context: CommandContext, directory: Path) -> CompiledConfig:
    from ductile.operations.dry_run import plugin as trial

    if context.config is None:
        return compile_config(trial.unconfigured(directory, directory.name, {}))
    loaded = context.target.loaded
    return compile_config(trial.with_plugin(loaded, directory.name, None, directory.parent))


def _resolve_alias(compiled: CompiledConfig, name: str) -> str:
    seen: set[str] = set()
    while (uses := compiled.plugin_settings(name).uses) is not None and name not in seen:
        seen.add(name)
        name = uses
    return name


def _sync_all(
    context: CommandContext,
    plugins: list[PythonPlugin],
    environments: Path,
    wheelhouse: Path | None,
    upgrade: bool,
) -> tuple[list[Json], list[Json]]:
    """Synchronize each plugin, also after one that fails."""
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.operations.plugins.installers import choose_installer
    from ductile.operations.plugins.sync import plan_sync, sync_plugin

    report = output.print_stderr
    installer = choose_installer(wheelhouse, report)
    results, failed = [], []
    for plugin in plugins:
        try:
            if context.dry_run:
                done = plan_sync(plugin, environments, upgrade=upgrade)
            else:
                with sigterm_as_interrupt():
                    done = sync_plugin(plugin, environments, installer, report, upgrade=upgrade)
            results.append(asdict(done))
        except Refused as error:
            failed.append({"plugin": plugin.name, "error": error.message})
    return results, failed


def _prune(context: CommandContext, compiled: CompiledConfig, environments: Path) -> Json:
    from ductile.operations.plugins.prune import find_needed, prune_environments

    # Again, because the locks may be new.
    plugins = compile_config(compiled.loaded).registry.python_plugins.values()
    needed = find_needed(plugins, environments) | _find_in_force(compiled)
    done = prune_environments(environments, needed, output.print_stderr, dry_run=context.dry_run)
    return asdict(done)


def _find_in_force(compiled: CompiledConfig) -> set[Path]:
    """Return the environments of the running gateway's configuration: its jobs start in them."""
    client = _find_gateway(compiled)
    rows = [] if client is None else client.get("/plugins")["plugins"]
    return {Path(row["environment"]) for row in rows if row.get("environment")}


def _find_gateway(compiled: CompiledConfig) -> GatewayClient | None:
    """Return the gateway that runs on the state directory, if there is one."""
    from ductile.engine.socket_path import SOCKET

    path = compiled.settings.state_dir / SOCKET
    return GatewayClient(path) if GatewayClient.is_listening(path) else None


def _show(document: Json) -> None:
    for row in document["plugins"]:
        output.print_line(f"{row['plugin']}: {_describe(row, document['dry_run'])}")
    for row in document["failed"]:
        output.print_error(f"{row['plugin']}: {row['error']}")
    if not document["plugins"] and not document["failed"]:
        output.print_line("no plugin has dependencies to install")
    pruned: Mapping[str, Any] = document.get("pruned", {})
    word = "would remove" if document["dry_run"] else "removed"
    for path in pruned.get("removed", ()):
        output.print_line(f"{word} {path}")
    for path in pruned.get("in_use", ()):
        output.print_line(f"kept {path}: a process uses it")


def _describe(row: Json, dry_run: bool) -> str:
    if row["lock"] is None:
        return "needs no environment"
    steps = " and ".join(word for word in ("locked", "built") if row[word])
    done = f"would be {steps}" if steps and dry_run else steps or "up to date"
    count = "" if dry_run and row["locked"] else output.format_count(row["packages"], "package")
    place = ", ".join(filter(None, (count, row["environment"])))
    return f"{done} ({place})" if place else done


def _print_hints(compiled: CompiledConfig, results: list[Json]) -> None:
    """Name the commands after which the gateway uses the new files."""
    from ductile.operations.dry_run.plugin import author_state_dir

    seal = compiled.loaded.seal
    if seal is not None and seal.plugin_fingerprints and any(row["locked"] for row in results):
        output.print_stderr("the locks have changed; review them, then run: ductile config lock")
    if any(row["built"] or row["locked"] for row in results) and _find_gateway(compiled):
        output.print_stderr(f"to use the new environments, run: {RELOAD}")
    if compiled.settings.state_dir == author_state_dir(os.environ) and any(
        row["built"] for row in results
    ):
        output.print_stderr(
            "a gateway does not use this environment; for one, run: ductile plugin sync NAME"
        )
