"""`ductile config restore`: the files of an archive in place of those of the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, write
from ductile.cli.commands.config.apply import LOCK


@write("restore")
@click.argument("archive", type=click.Path(path_type=Path))
@LOCK
def restore(context: CommandContext, archive: Path, lock: bool) -> None:
    """Replace the configuration's files by those of an archive.

    ARCHIVE is the FILE.config.tar of `system backup --with-config`. The resulting configuration
    is checked first; if it has errors, nothing is written. Replaced files are kept next to the
    new ones. The ledger stays as it is: see `system restore`.
    """
    from ductile.clock import SystemClock
    from ductile.config import find
    from ductile.config.versions.changeset import compare_files, load_changed
    from ductile.operations.config.edit import Sealed
    from ductile.operations.config.restore import read_archive

    config = find(context.config, os.environ)
    wanted, left_out = read_archive(archive, config)
    changes = compare_files(config, wanted, {}, SystemClock().now())
    if changes.changes_seal and not lock:
        names = ", ".join(str(file.path) for file in changes.files)
        raise Sealed(f"sealed files would change ({names}); to renew the seal, add --lock")
    load_changed(config, os.environ, changes)
    if not context.dry_run:
        changes.write()
    document = {
        "files": changes.rows,
        "left_out": left_out,
        "dry_run": context.dry_run,
        "next": [_next_command(context)] if changes.files and not context.dry_run else [],
    }
    context.show(document, _show)


def _next_command(context: CommandContext) -> str:
    verb = "start" if context.target.client() is None else "reload"
    return context.repeat_options(f"ductile system {verb}")


def _show(document: Mapping[str, Any]) -> None:
    verb = "would be " if document["dry_run"] else ""
    for row in document["files"]:
        moved = f" to {row['moved_to']}" if row["moved_to"] else ""
        output.print_line(f"{row['file']}: {verb}{row['change']}{moved}")
    if not document["files"]:
        output.print_line("all files are as they are in the archive")
    for name in document["left_out"]:
        output.print_line(f"not restored: {name}", fg="yellow")
    for command in document["next"]:
        output.print_line(f"next: {command}")
