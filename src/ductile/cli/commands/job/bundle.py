"""`ductile job bundle` and `job rerun`: one job in one file, and repeating it elsewhere."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, read, write
from ductile.cli.options import PLUGIN, read_json, resolve_job_id
from ductile.cli.progress import show_waiting
from ductile.errors import ConfigError, Refused, UsageError

if TYPE_CHECKING:
    from ductile.engine.config.compiled import CompiledConfig
    from ductile.operations.compare.rerun import Bundle


@write("bundle")
@click.argument("typed_id", metavar="ID")
@click.option(
    "-o",
    "--output",
    "target",
    metavar="FILE",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, with mode 0600.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def bundle(context: CommandContext, typed_id: str, target: Path, force: bool) -> None:
    """Write one job into a file to attach to a report.

    It has the request, context, state, workspace, plugin version, environment names, attempts and
    log, without the secrets that the configuration knows, values below keys that name a secret,
    passwords in URLs, and private keys. Read it before you give it to others.
    """
    if not force and os.path.lexists(target):
        raise Refused(f"{target} exists; overwrite it with --force")
    with context.target.open_reader(secrets=True) as api:
        document = api.get(path_to("job", resolve_job_id(api, typed_id), "bundle"))
    text = json.dumps(document, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass")
    if not context.dry_run:
        _write(target, text, force=force)
    summary = _summarize(document, target, len(text))
    context.show({**summary, "dry_run": context.dry_run}, _show_bundle)


def _write(target: Path, text: bytes, *, force: bool) -> None:
    """Write the file; one that is replaced is so only when the new one is complete."""
    import secrets

    from ductile import files

    path = target.with_name(f".{target.name}.{secrets.token_hex(8)}") if force else target
    try:
        files.write_new(path, text)
    except FileExistsError:
        raise Refused(f"{target} exists; overwrite it with --force") from None
    except OSError as error:
        raise Refused(f"{target} cannot be written: {error.strerror}") from None
    if force:
        path.rename(target)


def _summarize(document: Json, target: Path, size: int) -> Json:
    workspace = document["workspace"]
    return {
        "file": str(target),
        "bytes": size,
        "job_id": document["job"]["id"],
        "attempts": len(document["attempts"]),
        "files": len(workspace["files"]),
        "files_left_out": len(workspace["left_out"]) + workspace["more_left_out"],
        "removed": document["removed"],
        "notes": document["notes"],
    }


def _show_bundle(done: Json) -> None:
    parts = [
        output.format_count(done["attempts"], "attempt"),
        output.format_count(done["files"], "file"),
        f"{done['files_left_out']} files left out",
        f"{output.format_count(done['removed'], 'value')} removed",
    ]
    wrote = "would write" if done["dry_run"] else "wrote"
    output.print_line(f"{wrote} {done['file']} ({output.format_size(done['bytes'])})")
    output.print_line(f"  {', '.join(parts)}")
    for note in done["notes"]:
        output.print_line(f"  note: {note}", fg="yellow")
    output.print_line("read it before you give it to others: only known secrets are removed")


@read("rerun")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "--plugin",
    "target",
    metavar="NAME|PATH",
    type=PLUGIN,
    help="Plugin to run. Default: the configured one of its name.",
)
@click.option("--config-json", metavar="JSON|@FILE|-", help="Plugin config.")
@click.option("--ignore", metavar="PATH", multiple=True, help="Path that may differ.")
@click.option("--allow-network", is_flag=True, help="Give the plugin its network.")
@click.option("--allow-files", is_flag=True, help="Let the plugin read what its user can read.")
def rerun(
    context: CommandContext,
    file: Path,
    target: str | None,
    config_json: str | None,
    ignore: tuple[str, ...],
    allow_network: bool,
    allow_files: bool,
) -> int:
    """Repeat the job of a bundle, without a gateway.

    The plugin runs in a sandbox: without network, reading the system's files and its own, writing
    to a copy of the workspace. It gets its config from the configuration; with a directory and no
    configuration, from --config-json or the bundle. Exit 1 if the outcome differs.
    """
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.clock import SystemClock, SystemEntropy
    from ductile.core.values.differences import IgnoredPaths
    from ductile.operations.compare import rerun as operation

    if target is None:
        _require_config(context, file)
    loaded = operation.read_bundle(file)
    config: Any = read_json(config_json, "--config-json")
    if config is not None and not isinstance(config, dict):
        raise UsageError("--config-json must be a JSON object")
    compiled, name = _prepare(context, target, loaded, config)
    wanted = operation.Rerun(name, IgnoredPaths(ignore), allow_network, allow_files)
    with sigterm_as_interrupt(), show_waiting(f"running {name} {loaded.command}"):
        done = operation.rerun(compiled, loaded, wanted, SystemClock().now(), SystemEntropy())
    context.show(done, _show_rerun)
    return 0 if done["verdict"] in ("identical", "ignored") else 1


def _require_config(context: CommandContext, file: Path) -> None:
    """Its problems come first: without it there is no plugin to run."""
    from ductile.config import find

    try:
        find(context.config, os.environ)
    except ConfigError as error:
        run = f"ductile job rerun {quote(str(file))} --plugin DIRECTORY"
        [problem] = error.problems
        message = f"{problem.message}; or name the directory of the plugin: {run}"
        raise ConfigError([replace(problem, message=message)]) from None
    context.note(f"state: {context.target.runnable.settings.state_dir}")


def _prepare(
    context: CommandContext, target: str | None, bundle: Bundle, config: Json | None
) -> tuple[CompiledConfig, str]:
    """Return the configuration with the plugin that is meant, and its name there."""
    from ductile.cli.commands.plugin.authoring import is_directory, prepare_named, prepare_plugin

    if target is None:
        # A bundle may name a plugin of the configuration, but no directory.
        return prepare_named(context, bundle.plugin, config), bundle.plugin
    if config is None and context.config is None and is_directory(context, target):
        config = dict(bundle.request.get("config") or {})
    return prepare_plugin(context, target, config)


def _show_rerun(done: Json) -> None:
    from ductile.cli.commands.plugin.compare import show_outcome

    program = f"{done['directory']} (version {done['version']})"
    same = "the same program as in the bundle" if done["same_program"] else "another program"
    output.print_line(f"{done['plugin']} {done['command']}: {program}, {same}", bold=True)
    for part, reason in done["sandbox"]["not_held"].items():
        output.print_line(f"warning: the sandbox does not enforce {part}: {reason}", fg="yellow")
    show_outcome(done)
    recorded, repeated = done["recorded"], done["repeated"]
    output.print_line(f"  status: {recorded['status']} -> {repeated['status']}")
    for heading in ("stdout", "stderr"):
        if done[heading]:
            output.print_section(heading, done[heading])
    after = output.format_duration(done["duration_ms"] / 1000)
    before = done["recorded_duration_ms"]
    took = "unknown" if before is None else output.format_duration(before / 1000)
    output.print_line(f"  duration: {took} -> {after}")
