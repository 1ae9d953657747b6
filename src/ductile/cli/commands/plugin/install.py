"""`ductile plugin install` and `plugin update`: copy plugins from directories and git."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from shlex import quote
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext, write
from ductile.cli.commands.plugin.authoring import first_root, refuse_loaded
from ductile.cli.display import RELOAD
from ductile.cli.options import PLUGIN
from ductile.core.values.suggest import did_you_mean
from ductile.errors import ConfigError, NotFound, Refused, UsageError

if TYPE_CHECKING:
    from ductile.operations.plugins.install import InstalledSource, StagedPlugin

YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


@write("install")
@click.argument("source", metavar="PATH|GIT_URL[@REV]")
@click.option("--path", "subdirectory", metavar="DIR", default="", help="Directory in the source.")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    help="Parent directory. Default: the first of plugin_roots.",
)
@YES
def install(
    context: CommandContext, source: str, subdirectory: str, root: Path | None, yes: bool
) -> None:
    """Copy a plugin into a plugin root, and seal it.

    Shows the manifest and asks first. Nothing of the plugin is executed. REV is a tag, a branch
    or a commit.
    """
    from ductile.operations.plugins.fetch import parse_source
    from ductile.operations.plugins.install import place_plugin, stage_plugin

    where = (first_root(context) if root is None else root).resolve()
    with stage_plugin(_staging(context, where), parse_source(source), subdirectory) as staged:
        name = staged.manifest.name
        _refuse_existing(context, where, name, configured=root is None)
        document = _describe(staged, where / name)
        if not context.dry_run:
            _confirm(context, document, f"install {name}?", yes=yes)
            place_plugin(staged, where / name)
    if not context.dry_run:
        document["sealed"] = _seal(context, name) if root is None else False
    document["dry_run"] = context.dry_run
    context.show(document, lambda document: _show_result(context, document, "installed"))


@write("update")
@click.argument("name", metavar="NAME", type=PLUGIN)
@click.option("--rev", metavar="REV", help="Tag, branch or commit. Default: as installed.")
@click.option("--force", is_flag=True, help="Overwrite files that were changed locally.")
@YES
def update(context: CommandContext, name: str, rev: str | None, force: bool, yes: bool) -> None:
    """Fetch an installed plugin from its source again.

    Shows what changes and asks first. The replacement is atomic.
    """
    from dataclasses import replace

    from ductile.operations.plugins.fetch import check_revision
    from ductile.operations.plugins.install import (
        compare_files,
        find_local_changes,
        place_plugin,
        stage_plugin,
    )

    target, record = _find_installed(context, name)
    changes = find_local_changes(target, record)
    if changes and not force:
        names = ", ".join(changes)
        raise Refused(f"{name} was changed after it was installed: {names}; overwrite with --force")
    source = record.source
    if rev is not None:
        if not source.is_git:
            raise UsageError(f"{name} was installed from a directory, which has no revisions")
        source = replace(source, revision=check_revision(rev))
    staging = _staging(context, target.parent)
    with stage_plugin(staging, source, record.subdirectory) as staged:
        if staged.manifest.name != target.name:
            raise Refused(f"{source} now contains another plugin, {staged.manifest.name}")
        document = _describe(staged, target)
        document["changes"] = compare_files(record.files, staged.origin.files)
        document["updated"] = bool(document["changes"]) or bool(changes)
        if document["updated"] and not context.dry_run:
            _confirm(context, document, f"update {name}?", yes=yes)
            place_plugin(staged, target)
    if not context.dry_run:
        document["sealed"] = document["updated"] and _seal(context, name)
    document["dry_run"] = context.dry_run
    context.show(document, lambda document: _show_result(context, document, "updated"))


def _staging(context: CommandContext, root: Path) -> Path:
    """Return where the plugin is staged: in its root, because of the rename, or outside of it."""
    return Path(gettempdir()) if context.dry_run else root


def _refuse_existing(context: CommandContext, root: Path, name: str, *, configured: bool) -> None:
    target = root / name
    if os.path.lexists(target):
        raise Refused(f"{target} already exists; to replace it, run: ductile plugin update {name}")
    if configured:
        refuse_loaded(context, name)


def _find_installed(context: CommandContext, name: str) -> tuple[Path, InstalledSource]:
    """Return the directory of an installed plugin, loaded or refused, and its source."""
    from ductile.operations.plugins.install import read_record
    from ductile.plugins.validate import plugin_directories

    roots = context.target.loaded.settings.plugin_roots
    found = {path.name: path for path in reversed(list(plugin_directories(roots)))}
    if name not in found:
        raise NotFound(f"there is no plugin {name!r}{did_you_mean(name, found)}", plugin=name)
    record = read_record(found[name])
    if record is None:
        raise Refused(
            f"{found[name]} was not installed by `ductile plugin install`; its source is not known",
            plugin=name,
        )
    return found[name], record


def _describe(staged: StagedPlugin, target: Path) -> dict[str, Any]:
    manifest, origin = staged.manifest, staged.origin
    return {
        "plugin": manifest.name,
        "version": manifest.version,
        "description": manifest.description,
        "directory": str(target),
        "source": str(origin.source),
        "commit": origin.commit,
        "entrypoint": manifest.entrypoint,
        "commands": {c.name: c.type.value for c in manifest.commands},
        "required_config": list(manifest.config_keys.required_names()),
        "files": len(origin.files),
    }


def _confirm(context: CommandContext, document: Json, question: str, *, yes: bool) -> None:
    """Show the plugin and ask. Raise `UsageError` without a terminal."""
    if yes:
        return
    if context.as_json or not sys.stdin.isatty():
        raise UsageError("this needs a confirmation; pass --yes to install without asking")
    _show_plugin(document)
    click.confirm(question, abort=True)


def _seal(context: CommandContext, name: str) -> bool:
    """Seal the plugin if the configuration seals plugins; return whether it did."""
    from ductile.clock import SystemClock
    from ductile.config import find
    from ductile.operations.config.seal import seal_plugin

    try:
        seal = seal_plugin(find(context.config, os.environ), name, os.environ)
    except ConfigError as error:
        run = context.repeat_options(f"ductile config lock --plugin {quote(name)}")
        output.print_stderr(f"not sealed: {error.message}; then run: {run}")
        return False
    if seal is None:
        return False
    seal.write(SystemClock().now())
    return True


def _show_plugin(document: Json) -> None:
    title = f"{document['plugin']} {document['version']}".rstrip()
    output.print_line(title, bold=True)
    if document["description"]:
        output.print_line(f"  {document['description']}")
    commit = f", commit {document['commit']}" if document["commit"] else ""
    output.print_line(f"  source: {document['source']}{commit}")
    output.print_line(f"  to: {document['directory']}")
    count = output.format_count(document["files"], "file")
    output.print_line(f"  program: {document['entrypoint']}, {count}")
    for name, kind in document["commands"].items():
        output.print_line(f"  command: {name} ({kind})")
    if document["required_config"]:
        output.print_line(f"  required settings: {', '.join(document['required_config'])}")
    for name, kind in document.get("changes", {}).items():
        output.print_line(f"  {kind}: {name}")


def _show_result(context: CommandContext, document: Json, done: str) -> None:
    name = document["plugin"]
    if not document.get("updated", True):
        output.print_line(f"{name} is up to date")
        return
    if context.dry_run:
        _show_plugin(document)
        output.print_line(f"{name} would be {done}")
        return
    sealed = " and sealed" if document["sealed"] else ""
    output.print_line(f"{done} {name} in {document['directory']}{sealed}")
    output.print_stderr(f"if it has dependencies, run: ductile plugin sync {name}; then: {RELOAD}")
