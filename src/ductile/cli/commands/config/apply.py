"""`ductile config apply` and `revert`: put a planned configuration in force, and watch it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayClient
from ductile.cli.command import CommandContext, write
from ductile.cli.commands.config.plan import format_setting, show_plan
from ductile.cli.progress import Report, show_progress
from ductile.errors import ConfigError, NotRunning, Refused, UsageError

POLL_SECONDS = 2.0
RESTART_SECONDS = 120.0
"""How long a watch waits for a gateway that does not respond."""
MAX_WATCH = 24 * 3600.0
YES = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
LOCK = click.option("--lock", is_flag=True, help="Renew the seal of sealed files that change.")
Document = Mapping[str, Any]


@write("apply")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@YES
@click.option("--watch", metavar="DURATION", help="Watch the error rates for this time: 10m.")
@click.option("--auto-revert", is_flag=True, help="Revert without asking if an error rate rises.")
@LOCK
def apply(
    context: CommandContext,
    directory: Path | None,
    yes: bool,
    watch: str | None,
    auto_revert: bool,
    lock: bool,
) -> int:
    """Show what the changed files would do, ask, and apply them.

    With DIR, its files replace those of the gateway first. With --watch, the error rates of what
    the plan has changed are compared with the same time before. If one rises, the command offers
    to revert to the previous configuration. Exit 1 if it reverted, or if it cannot ask because
    there is no terminal.
    """
    if auto_revert and watch is None:
        raise UsageError("--auto-revert needs --watch, such as --watch 10m")
    window = None if watch is None else _parse_watch(watch)
    client = _connect(context)
    if auto_revert:
        _check_restorable(client)
    body: dict[str, Any] = {}
    if directory is not None:
        body = {"directory": str(directory.absolute()), "lock": lock}
    planned = client.post("/config/apply", {**body, "dry_run": True})
    if context.dry_run or not _is_change(planned):
        context.show(planned, _show_planned)
        return 0
    _confirm(context, planned, "apply this plan?", yes=yes)
    applied = _post_plan(client, "/config/apply", body, planned)
    if not context.as_json:
        _show_applied(applied, planned)
    if window is None:
        if context.as_json:
            output.print_json(applied)
        return 0
    return _Watch(context, client, applied, window, auto_revert=auto_revert).run()


@write("revert")
@click.argument("snapshot", required=False)
@YES
@LOCK
def revert(context: CommandContext, snapshot: str | None, yes: bool, lock: bool) -> int:
    """Restore the files of an earlier configuration.

    SNAPSHOT is an id from `ductile config history`; the default is the previous configuration. The
    running gateway applies the restored files at once; without one, the next start does. Programs
    of plugins and values that are kept outside of the files are not restored.
    """
    client = _find_gateway(context)
    if client is None:
        return _revert_files(context, snapshot, yes=yes, lock=lock)
    body = {"lock": lock} if snapshot is None else {"snapshot": snapshot, "lock": lock}
    planned = client.post("/config/revert", {**body, "dry_run": True})
    # The same one, if another configuration is applied meanwhile.
    body["snapshot"] = planned["returns_to"]
    if context.dry_run or not _is_change(planned):
        context.show(planned, _show_planned)
        return 0
    _confirm(context, planned, f"return to {planned['returns_to']}?", yes=yes)
    done = _post_plan(client, "/config/revert", body, planned)
    context.show(done, lambda done: _show_applied(done, planned))
    return 0


def _find_gateway(context: CommandContext) -> GatewayClient | None:
    """The running gateway, or None if none runs or the files do not say where."""
    try:
        return context.target.client()
    except ConfigError:
        return None


def _revert_files(context: CommandContext, snapshot: str | None, *, yes: bool, lock: bool) -> int:
    """Restore the files while no gateway runs, also if none can start with those on disk."""
    from ductile.clock import SystemClock
    from ductile.config.load import find, find_state
    from ductile.config.versions.changeset import load_changed
    from ductile.operations.plan.apply import propose_files

    config = find(context.config, os.environ)
    state = find_state(context.config, environ=os.environ)
    # Without it, the problems of the files are reported.
    state_dir = context.target.state_dir if state is None else state.dir
    now = SystemClock().now()
    proposal = propose_files(config, state_dir, snapshot, now, lock=lock)
    changeset = proposal.changeset
    assert changeset is not None
    load_changed(config, os.environ, changeset)
    document = {
        "files": changeset.rows,
        "returns_to": proposal.snapshot_id,
        "dry_run": context.dry_run,
    }
    if not changeset.files:
        context.show(document, lambda _: output.print_line("all files are as they were then"))
        return 0
    if context.dry_run:
        context.show(document, _show_files)
        return 0
    if not context.as_json:
        _show_files(document)
    _ask(context, f"return to the files of {proposal.snapshot_id}?", yes=yes)
    changeset.write()
    context.show(document, lambda _: output.print_line("next: ductile system start"))
    return 0


def _post_plan(
    client: GatewayClient, path: str, body: Mapping[str, Any], planned: Document
) -> dict[str, Any]:
    """Apply the plan; without a response, report what is known."""
    try:
        return client.post(path, {**body, "plan": planned["plan"]["id"]})
    except NotRunning as error:
        raise NotRunning(
            f"{error.message}; whether the plan is in force is not known: all of its files are "
            "written, or none; once the gateway runs again: ductile config history"
        ) from error


def _connect(context: CommandContext) -> GatewayClient:
    return context.require_gateway(
        "no gateway is running in {state_dir}; it applies the files when it "
        "starts; to check them: ductile config check"
    )


def _check_restorable(client: GatewayClient) -> None:
    """Refuse to promise a return that cannot be performed."""
    rows = client.get("/config/history")["snapshots"]
    if not any(row["in_force"] and row["restorable"] for row in rows):
        raise Refused(
            "the gateway has no copy of the current configuration's files, so it could not revert "
            "to them; nothing was applied; apply without --auto-revert",
            run="ductile config apply",
        )


def _parse_watch(text: str) -> float:
    from ductile.config.models.units import parse_duration

    try:
        seconds = parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--watch {error}") from None
    if seconds > MAX_WATCH:
        raise UsageError("--watch must be at most 24h")
    return seconds


def _is_change(planned: Document) -> bool:
    return bool(planned["plan"]["changed"] or planned["files"])


def _confirm(context: CommandContext, planned: Document, question: str, *, yes: bool) -> None:
    """Show the plan and ask; refuses what a reload cannot change."""
    if not context.as_json:
        _show_planned(planned)
    if planned["plan"]["restart"]:
        names = ", ".join(row["setting"] for row in planned["plan"]["restart"])
        raise Refused(
            f"{names} cannot be changed while the gateway runs; nothing was applied; stop it and "
            "start it again, or undo the change",
            run="ductile system stop && ductile system start",
        )
    _ask(context, question, yes=yes)


def _ask(context: CommandContext, question: str, *, yes: bool) -> None:
    if yes:
        return
    if context.as_json or not sys.stdin.isatty():
        raise UsageError("this needs a confirmation; pass --yes to apply without asking")
    click.confirm(question, abort=True)


def _show_planned(planned: Document) -> None:
    _show_files(planned)
    show_plan(planned["plan"])


def _show_files(document: Document) -> None:
    for row in document["files"]:
        moved = f" to {row['moved_to']}" if row["moved_to"] else ""
        output.print_line(f"{row['change']:<10}  {row['file']}{moved}", fg="yellow")
    for row in document.get("differs", ()):
        text, colour = format_setting(row)
        output.print_line(f"not as it was then: {text}", fg=colour)


def _show_applied(applied: Document, planned: Document | None = None) -> None:
    _show_files(applied)
    shown = [] if planned is None else planned["plan"]["warnings"]
    for warning in applied["warnings"]:
        if warning not in shown:
            output.print_line(f"warning: {warning}", fg="yellow")
    for name, reason in applied["plugins_refused"].items():
        output.print_line(f"plugin {name} is refused: {reason}", fg="yellow")
    output.print_line(f"in force: snapshot {applied['snapshot_id']}", fg="green")
    before = applied["previous_snapshot_id"]
    if before is not None and before != applied["snapshot_id"]:
        output.print_line(f"to return: ductile config revert {before}")


class _Watch:
    """Follows the error rates after a plan was applied, until the time is over or one rises."""

    def __init__(
        self,
        context: CommandContext,
        client: GatewayClient,
        applied: Document,
        window: float,
        *,
        auto_revert: bool,
    ) -> None:
        self._context, self._client = context, client
        self._applied, self._window = applied, window
        self._auto_revert = auto_revert

    def run(self) -> int:
        """Return the exit code: 1 if an error rate has risen, or if the watch was cut short."""
        try:
            seen = self._follow()
        except KeyboardInterrupt:
            output.print_stderr("the watch has ended; the configuration stays in force")
            if self._context.as_json:
                self._print(None, None)
            return 0
        if not seen["in_force"]:
            output.print_stderr(
                "another configuration was applied meanwhile; the watch has ended", fg="yellow"
            )
        if not self._context.as_json:
            _show_rates(seen)
        if not (seen["risen"] and seen["in_force"]):
            self._print(seen, None)
            return 0 if seen["in_force"] else 1
        returned = self._return()
        self._print(seen, returned)
        return 1

    def _follow(self) -> Document:
        with show_progress() as report:
            while True:
                seen = self._ask(self._read_rates, report)
                if seen["risen"] or not seen["in_force"] or not seen["seconds_left"]:
                    return seen
                left = float(seen["seconds_left"])
                report(
                    f"watching for {output.format_whole_seconds(left)}: {_summarize(seen)}", 0, 0
                )
                time.sleep(min(POLL_SECONDS, left))

    def _read_rates(self) -> Document:
        plan, window = self._applied["plan_id"], f"{self._window:.3f}s"
        return self._client.get("/config/watch", plan=plan, window=window)

    def _ask(self, request: Callable[[], Document], report: Report) -> Document:
        """The answer to a request, which is repeated while the gateway starts again."""
        until = time.monotonic() + RESTART_SECONDS
        while True:
            try:
                return request()
            except NotRunning as error:
                if time.monotonic() >= until:
                    before = self._applied["previous_snapshot_id"]
                    raise NotRunning(
                        f"{error.message}, for {RESTART_SECONDS:.0f} s; the watch has ended; to "
                        f"return when the gateway runs again: ductile config revert {before}"
                    ) from error
                report("the gateway does not respond; waiting for its next start", 0, 0)
                time.sleep(POLL_SECONDS)

    def _return(self) -> Document | None:
        """Return to the configuration before, if that is wanted; None if not."""
        before = self._applied["previous_snapshot_id"]
        if before in (None, self._applied["snapshot_id"]):
            output.print_stderr(
                "only programs of plugins have changed: there are no files to return to",
                fg="yellow",
            )
            return None
        ask = not self._auto_revert
        if ask and (self._context.as_json or not sys.stdin.isatty()):
            output.print_stderr(f"to return: ductile config revert {before}", fg="yellow")
            return None
        if ask and not click.confirm("an error rate has risen; return to the one before?"):
            return None
        # The operator who has asked for the return accepts the files of before, also sealed ones.
        body = {"snapshot": before, "lock": self._context.api_url is None}

        def revert() -> Document:
            # If a crash has interrupted it, the files have returned or not: both can be planned.
            planned = self._client.post("/config/revert", {**body, "dry_run": True})
            plan = planned["plan"]["id"]
            return self._client.post("/config/revert", {**body, "plan": plan})

        with show_progress() as report:
            done = self._ask(revert, report)
        if not self._context.as_json:
            _show_applied(done)
        return done

    def _print(self, seen: Document | None, returned: Document | None) -> None:
        if self._context.as_json:
            output.print_json({**self._applied, "watch": seen, "returned": returned})


def _summarize(seen: Document) -> str:
    ended = sum(row["after"]["attempts"] for row in seen["subjects"])
    failed = sum(row["after"]["failed"] for row in seen["subjects"])
    return f"{output.format_count(ended, 'attempt')}, {failed} failed"


def _show_rates(seen: Document) -> None:
    for row in seen["subjects"]:
        name = f"{row['kind']} {row['name']}".strip()
        text = f"{name}: {_rate(row['before'])} failed before, {_rate(row['after'])} since"
        output.print_line(text, fg="red" if row["risen"] else None)
    if not seen["risen"]:
        output.print_line("no error rate has risen", fg="green")


def _rate(counted: Document) -> str:
    if counted["rate"] is None:
        return "none of 0"
    return f"{counted['failed']} of {counted['attempts']}"
