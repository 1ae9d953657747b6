"""`ductile system backup`, `restore` and `verify`: copies and checks of the ledger."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import Client, Json, Said
from ductile.cli.command import CommandContext
from ductile.cli.commands.system.gateway import system
from ductile.errors import Locked, UsageError

if TYPE_CHECKING:
    from ductile.store.engines.api import Ledger

ANSWER_EVERY = 1
"""Seconds of one question for how far a backup is."""
CONFIG_ENDING = ".config.tar"
LEDGER_ALONE = "db"
SCOPES, OTHER_SCOPES = (LEDGER_ALONE, "config"), ("plugins", "all")
"""What the Go program's `--scope` may be; of the others a part is not ours to copy."""


@system.write("backup")
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
@click.option("--replace", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--with-config",
    is_flag=True,
    help="Also archive the configuration, including secrets.",
)
@click.option("--to", type=click.Path(path_type=Path), hidden=True, help="Same as PATH.")
@click.option(
    "--scope",
    type=click.Choice([*SCOPES, *OTHER_SCOPES]),
    hidden=True,
    help="With --to: what to back up.",
)
def backup(
    call: CommandContext,
    path: Path | None,
    replace: bool,
    with_config: bool,
    to: Path | None,
    scope: str | None,
) -> None:
    """Copy the ledger to a file, and verify the copy.

    The gateway may be running. PATH is a file or a directory; default: backups/ in the state
    directory. No file is left if the copy fails. The copy contains everything in the ledger,
    including payloads and webhook secrets; only its owner can read it.
    """
    if to is not None or scope is not None:
        path, with_config = _as_there(path, to, scope)
    if call.api_url is not None and (path is not None or with_config):
        raise UsageError("a remote gateway stores its own backups; omit PATH and --with-config")
    wanted = None if path is None else path.absolute()
    made = call.site.client_or(lambda: _by_ourselves(call, wanted, replace))
    if isinstance(made, Client):
        made = _by_the_gateway(call, made, wanted, replace)
    if with_config:
        made |= _with_config(call, Path(made["path"]))
    call.show(made, _show_backup)
    if to is not None and to.name.endswith((".tar.gz", ".tgz")) and not call.dry_run:
        output.aside(f"note: {to} is one SQLite file for system restore, not an archive")


def _as_there(path: Path | None, to: Path | None, scope: str | None) -> tuple[Path, bool]:
    """What `--to` and `--scope` mean: in the Go program the configuration goes with the ledger
    unless told otherwise, and into one archive with it."""
    if to is None or path is not None:
        raise UsageError("--scope requires --to, and --to replaces PATH")
    if scope in OTHER_SCOPES:
        raise UsageError("plugins are not backed up; copy their directories instead")
    return to, scope != LEDGER_ALONE


def _by_the_gateway(call: CommandContext, client: Client, path: Path | None, replace: bool) -> Json:
    body = {"replace": replace, **({} if path is None else {"path": str(path)})}
    if call.dry_run:
        return client.post("/system/backup", {**body, "dry_run": True})
    state = client.post("/system/backup", body)
    with _progress() as tell:
        while state["state"] in ("copying", "checking"):
            tell(state["state"], state["done"], state["total"])
            state = client.get("/system/backup", wait=ANSWER_EVERY)
    if state["state"] != "done":
        raise Said({"error": state["error"], "code": state["code"], **(state["details"] or {})})
    made: Json = state["made"]
    return made


def _by_ourselves(call: CommandContext, path: Path | None, replace: bool) -> Json:
    from dataclasses import asdict

    from ductile.clock import SystemClock
    from ductile.engine.instance_lock import InstanceLock
    from ductile.operations import backup

    settings, clock = call.site.loaded.settings, SystemClock()
    target = backup.target_for(path, settings.state_dir, settings.state.path, clock.now())
    if call.dry_run:
        with _ledger(call):
            backup.check_target(target, replace=replace)
        free = backup.room_at(target.parent)
        return {"dry_run": True, "path": str(target), "free": free}
    lock = InstanceLock(settings.state_dir)
    lock.acquire()
    try:
        with _ledger(call) as ledger, _progress() as tell:
            made = backup.back_up(
                ledger,
                target,
                state_dir=settings.state_dir,
                clock=clock,
                replace=replace,
                watch=lambda done, total: tell("copying", done, total),
                tell=lambda _table, _rows: tell("checking", 0, 0),
            )
    finally:
        lock.release()
    return asdict(made)


@contextmanager
def _ledger(call: CommandContext) -> Iterator[Ledger]:
    """The ledger as it lies there, read-only: neither recovered nor migrated."""
    from ductile.store.engines.open import open_ledger

    state = call.site.loaded.settings.state
    ledger = open_ledger(path=state.path, url=state.url, read_only=True)
    try:
        yield ledger
    finally:
        ledger.close()


def _with_config(call: CommandContext, target: Path) -> Json:
    from ductile.operations.backup import config_archive

    archive = target.with_name(target.name + CONFIG_ENDING)
    if call.dry_run:
        return {"config": str(archive)}
    return {"config": str(archive), "config_files": config_archive(call.site.loaded, archive)}


def _show_backup(made: Json) -> None:
    if made.get("dry_run"):
        output.line(f"would copy the ledger to {made['path']} ({output.size(made['free'])} free)")
    else:
        rows = output.count(made["rows"].get("job_queue", 0), "job")
        took = f"{output.size(made['bytes'])} in {output.span(made['seconds'])}"
        output.line(f"backed up to {made['path']}: {rows}, {took}, verified")
        for note in made["notes"]:
            output.line(f"note: {note}", fg="yellow")
    if "config" in made:
        verb = "would archive" if made.get("dry_run") else "archived"
        output.line(f"{verb} the configuration, including secrets, to {made['config']}")


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """A line on the terminal that is written over, and gone at the end; nowhere else."""
    shown = sys.stderr.isatty()

    def tell(what: str, done: int, total: int) -> None:
        if shown:
            share = f" {100 * done // total}%" if total else ""
            click.echo(f"\r\x1b[K{what}{share}", err=True, nl=False)

    try:
        yield tell
    finally:
        if shown:
            click.echo("\r\x1b[K", err=True, nl=False)


@system.write("restore")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--allow-violations",
    is_flag=True,
    help="Accept violated invariants; a damaged file is always refused.",
)
def restore(call: CommandContext, path: Path, allow_violations: bool) -> None:
    """Replace the ledger with a backup.

    The previous ledger is kept in a separate file. The gateway must not be running.
    """
    from dataclasses import asdict

    from ductile.clock import SystemClock
    from ductile.operations.restore import restore as put_back

    if call.api_url is not None:
        raise UsageError("restore works only on the gateway's own machine; omit --api-url")
    try:
        with _progress() as tell:
            done = put_back(
                call.site.loaded.settings,
                path.absolute(),
                now=SystemClock().now(),
                allow_violations=allow_violations,
                dry=call.dry_run,
                watch=lambda done, total: tell("copying", done, total),
            )
    except Locked as error:
        raise Locked(f"{error.message}; stop it before restoring", **error.details) from error
    call.show({**asdict(done), "dry_run": call.dry_run}, _show_restored)


def _show_restored(done: Json) -> None:
    jobs = output.count(done["rows"].get("job_queue", 0), "job")
    verb = "would restore" if done["dry_run"] else "restored"
    output.line(f"{verb} {done['path']}: {jobs}, verified")
    if done["migrated"]:
        output.line(f"applied {output.count(len(done['migrated']), 'migration')}")
    for note in done["notes"]:
        output.line(f"note: {note}", fg="yellow")
    if done["kept"]:
        output.line(f"the previous ledger is kept in {done['kept']}")


@system.read("verify")
@click.option("--quick", is_flag=True, help="Check the newest rows, and pages for a few seconds.")
def verify(call: CommandContext, quick: bool) -> int:
    """Verify the ledger's invariants (read-only).

    The gateway may be running. Exit 1 if an invariant is violated.
    """
    from ductile.operations.verify import verify_ledger as check

    if call.api_url is not None:
        raise UsageError(
            "verify reads the ledger itself; run it on the gateway's machine, without --api-url"
        )
    with _ledger(call) as ledger, _progress() as tell:
        report = check(
            ledger,
            call.site.state_dir,
            quick=quick,
            tell=lambda table, rows: tell(f"{table} {rows}", 0, 0),
        )
    call.show(report.to_json(), _show_report)
    return 0 if report.ok else 1


def _show_report(report: dict[str, Any]) -> None:
    for breach in report["breaches"]:
        output.line(f"{breach['promise']}: {breach['subject']} {breach['detail']}", fg="red")
    if report["more"]:
        output.line(f"and {report['more']} more", fg="red")
    for note in report["notes"]:
        output.line(f"note: {note}", fg="yellow")
    rows = output.count(sum(report["rows"].values()), "row")
    found = len(report["breaches"]) + report["more"]
    verdict = "ok" if report["ok"] else output.count(found, "violation")
    output.line(f"{verdict}: {rows} checked on {report['engine']}", fg=None if found else "green")
