"""`ductile config`: write, check, show and seal a configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, Noun, blueprint_of
from ductile.cli.options import SETTING
from ductile.core.values.suggest import did_you_mean
from ductile.errors import ConfigError, NotFound, Problem, Severity, UsageError, dotted

if TYPE_CHECKING:
    from ductile.config import Loaded
    from ductile.engine.config.compiled import CompiledConfig
    from ductile.plugins.registry import Plugin

config = Noun("config", "Create, check, edit and seal the configuration.")


@config.write("init")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def init(call: CommandContext, directory: Path | None) -> None:
    """Create a first configuration.

    DIR defaults to the directory where Ductile looks for it. Existing files are not overwritten.
    """
    from ductile.config.init_template import init as write_files

    where = (directory or call.config or _usual_place()).absolute()
    written = write_files(where, dry=call.dry_run)
    document = {"config": str(where / "config.yaml"), "written": [str(path) for path in written]}
    call.show({**document, "dry_run": call.dry_run}, _show_init)


def _usual_place() -> Path:
    named = os.environ.get("DUCTILE_CONFIG_DIR")
    return Path(named) if named else Path.home() / ".config" / "ductile"


def _show_init(document: dict[str, Any]) -> None:
    for path in document["written"]:
        output.line(f"{'would write' if document['dry_run'] else 'wrote'} {path}")
    if not document["dry_run"]:
        output.line(f"next: ductile config check --config {Path(document['config']).parent}")


@config.read("check")
@click.option("--strict", is_flag=True, help="Exit 78 on warnings too.")
def check(call: CommandContext, strict: bool) -> int:
    """Check the configuration and report every problem.

    Each problem has its file, line and column. Exit 78 if the configuration cannot run. A section
    that depends on a section with errors is checked once those are fixed, and warnings are
    reported once there are no errors.
    """
    from ductile.clock import SystemClock
    from ductile.engine.config import compile_schedules

    loaded = _whole(call)
    compiled = blueprint_of(loaded)
    past = compile_schedules.past(loaded, SystemClock().now())
    warnings = [*compiled.warnings, *past, *_refusals(compiled)]
    accepted = not (strict and warnings)
    document = {
        "ok": accepted,
        "config": str(loaded.settings.config_dir),
        "files": [str(path) for path in loaded.files],
        "plugins": sorted(compiled.registry.plugins),
        "warnings": [warning.document() for warning in warnings],
    }
    call.show(document, lambda shown: _show_check(shown, warnings))
    return 0 if accepted else ConfigError.exit_code


def _whole(call: CommandContext) -> Loaded:
    """The configuration; where it has errors, with those of its routes and pipelines too."""
    from ductile.config import InvalidConfig

    try:
        return call.site.loaded
    except InvalidConfig as flawed:
        problems = list(flawed.problems)
        if flawed.rest is not None:
            try:
                blueprint_of(flawed.rest)
            except ConfigError as more:
                problems += more.problems
        raise ConfigError(problems) from None


def _refusals(compiled: CompiledConfig) -> Iterator[Problem]:
    loaded = compiled.loaded
    for refusal in compiled.registry.refused:
        path = ("plugins", refusal.name)
        file, line, column = (
            loaded.locate(path)
            if refusal.name in loaded.settings.plugins
            else (str(refusal.path), None, None)
        )
        message = f"plugin {refusal.name} is refused: {refusal.reason}"
        yield Problem(message, (), file, line, column, severity=Severity.WARNING)


def _show_check(document: dict[str, Any], warnings: Sequence[Problem]) -> None:
    for warning in warnings:
        output.line(f"warning: {warning}", fg="yellow")
    files = output.count(len(document["files"]), "file")
    plugins = output.count(len(document["plugins"]), "plugin")
    warned = f", {output.count(len(warnings), 'warning')}" if warnings else ""
    verdict = "is valid" if document["ok"] else "fails --strict"
    output.line(f"{document['config']} {verdict}: {files}, {plugins}{warned}")


@config.read("show")
@click.argument("entity", type=SETTING, required=False)
def show(call: CommandContext, entity: str | None) -> None:
    """Show the effective configuration, secrets redacted.

    ENTITY selects a part of it: plugin:echo, pipeline:nightly, route:echo, webhook:github,
    plugin:* for all of a kind, or a path such as service or plugins.echo.retry.
    """
    from ductile.config import redact_settings as redacted

    document: Any = redacted(call.site.loaded.settings)
    if entity is not None:
        document = _part(call, document, entity)
    call.show(document, show_value)


def _part(call: CommandContext, document: dict[str, Any], entity: str) -> Any:
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
        # A plugin that is found without being configured runs by the defaults.
        plugins = blueprint_of(call.site.loaded).registry.plugins
        if path[1] in plugins:
            found = get_at(PluginSettings().to_document(), path[2:])
    if found is MISSING:
        above = get_at(document, path[:-1])
        hint = did_you_mean(str(path[-1]), above) if isinstance(above, dict) else ""
        raise NotFound(f"there is no setting {dotted(path)}{hint}")
    return found


def show_value(found: Any) -> None:
    """A value of the configuration: scalars as they are, the rest as YAML."""
    if not isinstance(found, dict | list):
        output.line(output.value(found))
        return
    import yaml

    class Dumper(yaml.SafeDumper):
        """Several lines of text as they are, after a `|`."""

        def represent_str(self, data: str) -> yaml.ScalarNode:
            style = "|" if "\n" in data else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    Dumper.add_representer(str, Dumper.represent_str)
    text = yaml.dump(found, Dumper=Dumper, sort_keys=False, allow_unicode=True)
    output.line(text.rstrip())


@config.read("schema")
@click.argument("kind", default="config")
def schema(call: CommandContext, kind: str) -> None:  # noqa: ARG001 - there is one form of it
    """Print the JSON Schema of a kind of file, for editors."""
    from ductile.config.schema import KINDS
    from ductile.plugins.manifest import manifest_schema

    kinds = {**KINDS, "manifest": manifest_schema}
    if kind not in kinds:
        hint, known = did_you_mean(kind, kinds), ", ".join(kinds)
        raise UsageError(
            f"unknown schema {kind!r}{hint or f'; known schemas: {known}'}", known=known
        )
    output.document(kinds[kind]())


@config.write("lock")
def lock(call: CommandContext) -> None:
    """Seal the configuration and plugins in .checksums."""
    from ductile.clock import SystemClock
    from ductile.config import checksums, create_seal, find

    path = find(call.config, os.environ)
    before, _ = checksums.read(path.parent)
    seal = create_seal(path, plugin_fingerprints=_fingerprints(path))
    files = {
        name: "same"
        if before.hashes.get(name) == digest
        else "changed"
        if name in before.hashes
        else "new"
        for name, digest in seal.hashes.items()
    }
    files.update(dict.fromkeys(before.hashes.keys() - seal.hashes.keys(), "gone"))
    if not call.dry_run:
        seal.write(SystemClock().now())
    plugins = [plugin["name"] for plugin in seal.plugin_fingerprints]
    document = {"seal": str(seal.path), "files": files, "plugins": plugins}
    call.show({**document, "dry_run": call.dry_run}, _show_lock)


def _fingerprints(path: Path) -> list[dict[str, Any]]:
    """The plugins as they are; none, with a warning, where the configuration is not valid."""
    from ductile.config import load

    try:
        loaded = load(path, environ=os.environ, seal=False)
        plugins = blueprint_of(loaded).registry.plugins.values()
    except ConfigError as error:
        found = output.count(len(error.problems), "problem")
        output.aside(
            f"warning: the configuration has {found} (run: ductile config check); "
            "its plugins are not sealed",
            fg="yellow",
        )
        return []
    return [_fingerprint(plugin, loaded) for plugin in plugins]


def _fingerprint(plugin: Plugin, loaded: Loaded) -> dict[str, Any]:
    from blake3 import blake3

    from ductile.plugins.manifest import MANIFEST_NAME
    from ductile.plugins.trust import hash_executable, read_file

    manifest = plugin.directory / MANIFEST_NAME
    own = loaded.settings.plugins.get(plugin.name)
    return {
        "name": plugin.name,
        "enabled": True,
        **({"uses": own.uses} if own and own.uses else {}),
        "manifest_path": str(manifest),
        "manifest_hash": blake3(read_file(manifest.resolve())).hexdigest(),
        "entrypoint_path": str(plugin.entrypoint),
        "entrypoint_hash": hash_executable(plugin.entrypoint).hex(),
        "fingerprint": plugin.fingerprint,
    }


def _show_lock(document: dict[str, Any]) -> None:
    for name, state in sorted(document["files"].items()):
        output.line(f"{state:<8} {name}")
    plugins = output.count(len(document["plugins"]), "plugin")
    verb = "would seal" if document["dry_run"] else "sealed"
    kept = sum(state != "gone" for state in document["files"].values())
    output.line(f"{verb} {output.count(kept, 'file')} and {plugins} in {document['seal']}")
