"""`ductile system backup`, `restore` and `verify`: copies and checks of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import ApiError, GatewayClient, Json
from ductile.cli.command import CommandContext, read, write
from ductile.cli.progress import interruptible, show_progress
from ductile.errors import Locked, UsageError

if TYPE_CHECKING:
    from ductile.store.engines.api import Ledger

POLL_SECONDS = 1
"""Duration of one long poll for the progress of a backup."""
CONFIG_SUFFIX = ".config.tar"
LEDGER_ONLY = "db"
SCOPES, UNSUPPORTED_SCOPES = (LEDGER_ONLY, "config"), ("plugins", "all")
"""Values of the Go program's `--scope`; the unsupported ones include plugins."""


@write("backup")
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
    type=click.Choice([*SCOPES, *UNSUPPORTED_SCOPES]),
    hidden=True,
    help="With --to: what to back up.",
)
def backup(
    context: CommandContext,
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
        path, with_config = _translate_go_options(path, to, scope)
    if context.api_url is not None and (path is not None or with_config):
        raise UsageError("a remote gateway stores its own backups; omit PATH and --with-config")
    target = None if path is None else path.absolute()
    done = context.target.client_or(lambda: _back_up_here(context, target, replace))
    if isinstance(done, GatewayClient):
        done = _back_up_in_gateway(context, done, target, replace)
    if with_config:
        done |= _archive_config(context, Path(done["path"]))
    context.show(done, _show_backup)
    if to is not None and to.name.endswith((".tar.gz", ".tgz")) and not context.dry_run:
        output.print_stderr(f"note: {to} is one SQLite file for system restore, not an archive")


def _translate_go_options(
    path: Path | None, to: Path | None, scope: str | None
) -> tuple[Path, bool]:
    """Return the path, and whether to archive the configuration: the default in the Go program."""
    if to is None or path is not None:
        raise UsageError("--scope requires --to, and --to replaces PATH")
    if scope in UNSUPPORTED_SCOPES:
        raise UsageError("plugins are not backed up; copy their directories instead")
    return to, scope != LEDGER_ONLY


def _back_up_in_gateway(
    context: CommandContext, client: GatewayClient, path: Path | None, replace: bool
) -> Json:
    body = {"replace": replace, **({} if path is None else {"path": str(path)})}
    if context.dry_run:
        return client.post("/system/backup", {**body, "dry_run": True})
    state = client.post("/system/backup", body)
    note = "the gateway continues the backup: ductile api /system/backup"
    with interruptible(note), show_progress() as report:
        while state["state"] in ("copying", "checking"):
            report(state["state"], state["done"], state["total"])
            state = client.get("/system/backup", wait=POLL_SECONDS)
    if state["state"] != "done":
        raise ApiError({"error": state["error"], "code": state["code"], **(state["details"] or {})})
    done: Json = state["made"]
    return done


def _back_up_here(context: CommandContext, path: Path | None, replace: bool) -> Json:
    from dataclasses import asdict

    from ductile.clock import SystemClock
    from ductile.engine.instance_lock import InstanceLock
    from ductile.operations import backup

    settings, clock = context.target.loaded.settings, SystemClock()
    target = backup.target_for(path, settings.state_dir, settings.state.path, clock.now())
    if context.dry_run:
        with _open_ledger(context):
            backup.check_target(target, replace=replace)
        free = backup.room_at(target.parent)
        return {"dry_run": True, "path": str(target), "free": free}
    lock = InstanceLock(settings.state_dir)
    lock.acquire()
    try:
        with (
            interruptible("nothing was written"),
            _open_ledger(context) as ledger,
            show_progress() as report,
        ):
            done = backup.back_up(
                ledger,
                target,
                state_dir=settings.state_dir,
                clock=clock,
                replace=replace,
                watch=lambda done, total: report("copying", done, total),
                on_check=lambda table, rows: report(_describe_check(table, rows), 0, 0),
            )
    finally:
        lock.release()
    return asdict(done)


@contextmanager
def _open_ledger(context: CommandContext) -> Iterator[Ledger]:
    """Yield the ledger read-only, neither recovered nor migrated."""
    from ductile.store.engines.open import open_ledger

    state = context.target.loaded.settings.state
    ledger = open_ledger(path=state.path, url=state.url, read_only=True)
    try:
        yield ledger
    finally:
        ledger.close()


def _archive_config(context: CommandContext, target: Path) -> Json:
    from ductile.operations.backup import config_archive

    archive = target.with_name(target.name + CONFIG_SUFFIX)
    if context.dry_run:
        return {"config": str(archive)}
    return {"config": str(archive), "config_files": config_archive(context.target.loaded, archive)}


def _show_backup(done: Json) -> None:
    if done.get("dry_run"):
        output.print_line(
            f"would copy the ledger to {done['path']} ({output.format_size(done['free'])} free)"
        )
    else:
        rows = output.format_count(done["rows"].get("job_queue", 0), "job")
        took = f"{output.format_size(done['bytes'])} in {output.format_duration(done['seconds'])}"
        output.print_line(f"backed up to {done['path']}: {rows}, {took}, verified")
        for note in done["notes"]:
            output.print_line(f"note: {note}", fg="yellow")
    if "config" in done:
        verb = "would archive" if done.get("dry_run") else "archived"
        output.print_line(f"{verb} the configuration, including secrets, to {done['config']}")


def _describe_check(table: str, rows: int) -> str:
    return f"checking {table} {rows}" if rows else f"checking {table}"


@write("restore")
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--allow-violations",
    is_flag=True,
    help="Accept violated invariants, but never a damaged file.",
)
def restore(context: CommandContext, path: Path, allow_violations: bool) -> None:
    """Replace the ledger with a backup.

    The previous ledger is kept in a separate file. The gateway must not be running.
    """
    from dataclasses import asdict

    from ductile.clock import SystemClock
    from ductile.operations.restore import restore as restore_ledger

    if context.api_url is not None:
        raise UsageError("restore works only on the gateway's own machine; omit --api-url")
    try:
        with interruptible("nothing was changed"), show_progress() as report:
            done = restore_ledger(
                context.target.loaded.settings,
                path.absolute(),
                now=SystemClock().now(),
                allow_violations=allow_violations,
                dry=context.dry_run,
                watch=lambda done, total: report("copying", done, total),
                on_check=lambda table, rows: report(_describe_check(table, rows), 0, 0),
            )
    except Locked as error:
        raise Locked(
            f"{error.message}; stop it before restoring", **error.details, run="ductile system stop"
        ) from error
    context.show({**asdict(done), "dry_run": context.dry_run}, _show_restored)


def _show_restored(done: Json) -> None:
    jobs = output.format_count(done["rows"].get("job_queue", 0), "job")
    verb = "would restore" if done["dry_run"] else "restored"
    output.print_line(f"{verb} {done['path']}: {jobs}, verified")
    if done["migrated"]:
        output.print_line(f"applied {output.format_count(len(done['migrated']), 'migration')}")
    for note in done["notes"]:
        output.print_line(f"note: {note}", fg="yellow")
    if done["kept"]:
        output.print_line(f"the previous ledger is kept in {done['kept']}")


@read("verify")
@click.option("--quick", is_flag=True, help="Check the newest rows, and pages for a few seconds.")
def verify(context: CommandContext, quick: bool) -> int:
    """Verify the ledger's invariants (read-only).

    The gateway may be running. Exit 1 if an invariant is violated.
    """
    from ductile.operations.verify import verify_ledger as check

    if context.api_url is not None:
        raise UsageError(
            "verify reads the ledger itself; run it on the gateway's machine, without --api-url"
        )
    with (
        interruptible("the ledger was not verified completely"),
        _open_ledger(context) as ledger,
        show_progress() as report,
    ):
        verified = check(
            ledger,
            context.target.state_dir,
            quick=quick,
            on_check=lambda table, rows: report(_describe_check(table, rows), 0, 0),
        )
    context.show(verified.to_json(), _show_report)
    return 0 if verified.ok else 1


def _show_report(report: dict[str, Any]) -> None:
    for breach in report["breaches"]:
        output.print_line(f"{breach['promise']}: {breach['subject']} {breach['detail']}", fg="red")
    if report["more"]:
        output.print_line(f"and {report['more']} more", fg="red")
    for note in report["notes"]:
        output.print_line(f"note: {note}", fg="yellow")
    rows = output.format_count(sum(report["rows"].values()), "row")
    found = len(report["breaches"]) + report["more"]
    verdict = "ok" if report["ok"] else output.format_count(found, "violation")
    output.print_line(
        f"{verdict}: {rows} checked on {report['engine']}", fg=None if found else "green"
    )
