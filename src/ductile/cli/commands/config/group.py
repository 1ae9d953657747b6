"""Create, check, show and seal a configuration."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, Noun, compile_config
from ductile.cli.commands.config.apply import apply, revert
from ductile.cli.commands.config.edit import get, set_
from ductile.cli.commands.config.history import diff, history
from ductile.cli.commands.config.plan import plan
from ductile.cli.commands.config.restore import restore
from ductile.cli.display import print_config_value
from ductile.cli.options import SETTING
from ductile.core.values.suggest import did_you_mean
from ductile.errors import ConfigError, NotFound, Problem, UsageError, dotted
from ductile.operations.config.fixes import find_correction, find_fix

if TYPE_CHECKING:
    from ductile.operations.config.seal import NewSeal

config = Noun("config", "Create, check, plan, edit and seal the configuration.")
config.add_command(get)
config.add_command(set_)
config.add_command(plan)
config.add_command(apply)
config.add_command(revert)
config.add_command(restore)
config.add_command(history)
config.add_command(diff)


@config.write("init")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace existing files; they are kept as *.bak-TIME.")
def init(context: CommandContext, directory: Path | None, force: bool) -> None:
    """Create a first configuration.

    DIR defaults to the directory where Ductile looks for it. Existing files are not overwritten.
    """
    from ductile.clock import SystemClock
    from ductile.config.init_template import init as write_files

    where = (directory or context.config or _default_directory()).absolute()
    suffix = f".bak-{SystemClock().now():%Y%m%dT%H%M%S%f}" if force else None
    written = write_files(where, dry=context.dry_run, backup_suffix=suffix)
    document = {"config": str(where / "config.yaml"), "written": [str(path) for path in written]}
    context.show({**document, "dry_run": context.dry_run}, _show_init)


def _default_directory() -> Path:
    configured = os.environ.get("DUCTILE_CONFIG_DIR")
    return Path(configured) if configured else Path.home() / ".config" / "ductile"


def _show_init(document: dict[str, Any]) -> None:
    for path in document["written"]:
        output.print_line(f"{'would write' if document['dry_run'] else 'wrote'} {path}")
    if not document["dry_run"]:
        directory = Path(document["config"]).parent
        output.print_line(f"next: ductile config check --config {directory}")


@config.read("check")
@click.option("--strict", is_flag=True, help="Exit 78 on warnings too.")
def check(context: CommandContext, strict: bool) -> int:
    """Check the configuration and report every problem.

    Each problem has its file, line and column. Exit 78 if the configuration cannot run. An entry
    with errors does not hide the problems of others; what depends on it is checked once they are
    fixed. Warnings are reported once there are no errors.
    """
    from ductile.clock import SystemClock
    from ductile.operations.config.check import check as check_config

    now = SystemClock().now()
    try:
        checked = check_config(lambda: context.target.runnable, environ=os.environ, now=now)
    except ConfigError as error:
        # As in the Go program, for scripts that read the verdict from the JSON.
        error.details |= {"valid": False, "errors": error.details["problems"], "warnings": []}
        raise
    accepted = not (strict and checked.warnings)
    document = {
        "ok": accepted,
        "valid": accepted,
        "errors": [],
        "config": str(checked.loaded.settings.config_dir),
        "files": [str(path) for path in checked.loaded.files],
        "plugins": sorted(checked.compiled.registry.plugins),
        "warnings": [_describe_warning(context, warning) for warning in checked.warnings],
    }
    context.show(document, lambda document: _show_check(document, checked.warnings))
    return 0 if accepted else ConfigError.exit_code


def _describe_warning(context: CommandContext, warning: Problem) -> dict[str, Any]:
    fix = find_fix(warning)
    run = context.repeat_options(f"ductile {fix}") if fix else find_correction(warning)
    return {**warning.document(), **({"run": run} if run else {})}


def _show_check(document: dict[str, Any], warnings: Sequence[Problem]) -> None:
    for warning, described in zip(warnings, document["warnings"], strict=True):
        output.print_line(f"warning: {warning}", fg="yellow")
        if "run" in described:
            output.print_line(f"  run: {described['run']}")
    counts = [
        output.format_count(len(document["files"]), "file"),
        output.format_count(len(document["plugins"]), "plugin"),
    ]
    if warnings:
        counts.append(output.format_count(len(warnings), "warning"))
    verdict = "is valid" if document["ok"] else "fails --strict"
    output.print_line(f"{document['config']} {verdict}: {', '.join(counts)}")


@config.read("show")
@click.argument("entity", type=SETTING, required=False)
def show(context: CommandContext, entity: str | None) -> None:
    """Show the effective configuration, secrets redacted.

    ENTITY selects a part of it: plugin:echo, pipeline:nightly, route:echo, webhook:github,
    plugin:* for all of a kind, or a path such as service or plugins.echo.retry.
    """
    from ductile.config import redact_settings as redact
    from ductile.engine.config.compiled import discover_plugins

    loaded, _ = discover_plugins(context.target.loaded)
    document: Any = redact(loaded.settings)
    if entity is not None:
        document = _select(context, document, entity)
    context.warn_of_unloaded_files()
    context.show(document, print_config_value)


def _select(context: CommandContext, document: dict[str, Any], entity: str) -> Any:
    from ductile.config.edit.paths import ENTITIES, MISSING, get_at, resolve_path
    from ductile.config.models.plugin import PluginSettings

    kind, divided, name = entity.partition(":")
    if divided and kind not in ENTITIES:
        hint, known = did_you_mean(kind, ENTITIES), ", ".join(ENTITIES)
        raise UsageError(f"unknown kind of entity {kind!r}{hint or f'; known kinds: {known}'}")
    if divided and name == "*":
        return get_at(document, ENTITIES[kind])
    path = resolve_path(entity, document)
    found = get_at(document, path)
    if found is MISSING and path[0] == "plugins" and len(path) > 1:
        # A plugin in a plugin root that is not configured has the default settings.
        plugins = compile_config(context.target.loaded).registry.plugins
        if path[1] in plugins:
            found = get_at(PluginSettings().to_document(), path[2:])
    if found is MISSING:
        above = get_at(document, path[:-1])
        hint = did_you_mean(str(path[-1]), above) if isinstance(above, dict) else ""
        raise NotFound(f"there is no setting {dotted(path)}{hint}")
    return found


@config.read("schema")
@click.argument("kind", default="config")
def schema(context: CommandContext, kind: str) -> None:  # noqa: ARG001 - JSON is its only format
    """Print the JSON Schema of a kind of file, for editors."""
    from ductile.config.schema import KINDS
    from ductile.plugins.manifest import manifest_schema

    kinds = {**KINDS, "manifest": manifest_schema}
    if kind not in kinds:
        hint, known = did_you_mean(kind, kinds), ", ".join(kinds)
        message = f"unknown schema {kind!r}{hint or f'; known schemas: {known}'}"
        raise UsageError(message, known=known)
    output.print_json(kinds[kind]())


@config.write("lock")
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--plugin", metavar="NAME", help="Accept only this plugin as it is now.")
def lock(context: CommandContext, files: tuple[Path, ...], plugin: str | None) -> None:
    """Seal the configuration and plugins in .checksums.

    With FILE, only these files are accepted as they are now; other changed files stay refused. What
    has changed since the seal is shown by file and line; with --dry-run, nothing is sealed.
    """
    from ductile.clock import SystemClock
    from ductile.config import find
    from ductile.operations.config import seal
    from ductile.operations.config.seal_changes import describe_changes

    is_named = context.config is not None or "DUCTILE_CONFIG_DIR" in os.environ
    path = find(context.config if is_named else _config_of(files), os.environ)
    if plugin is not None:
        if files:
            raise UsageError("name either files or a plugin")
        measured = seal.accept_plugin(path, plugin, os.environ)
    elif files:
        measured = seal.accept_files(path, files, os.environ)
    else:
        measured = seal.measure_files(path, os.environ)
    if measured.problems:
        problems = output.format_count(len(measured.problems), "problem")
        output.print_stderr(
            f"warning: the configuration has {problems} (run: ductile config check); "
            "its plugins are not sealed",
            fg="yellow",
        )
    changes = describe_changes(path, os.environ)
    if not context.dry_run:
        now = SystemClock().now()
        if failure := seal.write_seal(measured.seal, path, environ=os.environ, now=now):
            message = f"warning: later changes will be shown without their lines: {failure}"
            output.print_stderr(message, fg="yellow")
    plugins = [fingerprint["name"] for fingerprint in measured.seal.plugin_fingerprints]
    document = {
        "seal": str(measured.seal.path),
        "files": measured.files,
        "changes": _choose_changes(changes, measured),
        "plugins": plugins,
        "plugin_states": measured.plugins,
    }
    context.show({**document, "dry_run": context.dry_run}, _show_lock)


def _choose_changes(changes: dict[str, str], measured: NewSeal) -> dict[str, str]:
    """The changes that this seal accepts."""
    programs = {
        path
        for plugin in measured.seal.plugin_fingerprints
        if plugin["name"] in measured.plugins
        for path in (plugin["manifest_path"], plugin["entrypoint_path"])
    }
    return {name: text for name, text in changes.items() if name in programs | set(measured.files)}


def _config_of(files: Sequence[Path]) -> Path | None:
    """The configuration that contains the first file, as refusals name files without it."""
    folders = files[0].absolute().parents if files else ()
    return next((folder for folder in folders if (folder / "config.yaml").is_file()), None)


def _show_lock(document: dict[str, Any]) -> None:
    for name, state in sorted(document["files"].items()):
        output.print_line(f"{state:<8} {name}")
    for name, state in sorted(document["plugin_states"].items()):
        output.print_line(f"{state:<8} plugin {name}")
    for change in document["changes"].values():
        output.print_diff(change)
    kept = sum(state != "gone" for state in document["files"].values())
    files = output.format_count(kept, "file")
    plugins = output.format_count(len(document["plugins"]), "plugin")
    verb = "would seal" if document["dry_run"] else "sealed"
    output.print_line(f"{verb} {files} and {plugins} in {document['seal']}")
