"""`ductile system doctor`: find problems, their causes and the commands to run."""

from __future__ import annotations

import os
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, write
from ductile.errors import UsageError

if TYPE_CHECKING:
    from ductile.cli.client import GatewayClient
    from ductile.operations.doctor import DoctorContext, Finding
    from ductile.operations.doctor.context import Ask


@write("doctor")
@click.option("--fix", is_flag=True, help="Apply the commands that are safe, and name them.")
def doctor(context: CommandContext, fix: bool) -> int:
    """Find problems, their causes and the commands to run.

    Checks the configuration, the ledger and the gateway, running or not. Exit 1 if there is an
    error, but not for warnings. Without --fix it changes nothing. --fix removes other users' access
    to files of the state directory's owner, and reloads a changed configuration that is valid; it
    runs no other command. With --dry-run it only lists what it would apply.
    """
    from ductile.clock import SystemClock
    from ductile.operations.doctor import DoctorContext, Severity, examine
    from ductile.operations.doctor.facts import collect_facts

    if context.api_url is not None:
        raise UsageError("doctor examines its own machine; omit --api-url")
    examined = DoctorContext(context.config, dict(os.environ), SystemClock().now())
    examined.ask_at = _ask_at
    client = _find_gateway(examined)
    if client is not None:
        examined.ask = client.get
    try:
        findings, facts = examine(examined), collect_facts(examined)
    finally:
        examined.close()
    fixed = _apply_fixes(examined, findings, client, dry=context.dry_run) if fix else []
    ok = all(finding.severity is not Severity.ERROR for finding in findings)
    page = {"ok": ok, "facts": facts, "findings": [asdict(finding) for finding in findings]}
    if fix:
        page |= {"fixed": fixed, "dry_run": context.dry_run}
    context.show(page, _show)
    return 0 if ok else 1


def _apply_fixes(
    examined: DoctorContext, findings: list[Finding], client: GatewayClient | None, *, dry: bool
) -> list[dict[str, str | None]]:
    """Apply the safe commands; each with why it failed, or null."""
    from ductile.operations.doctor.fix import apply_fix, is_safe

    reload = None if client is None else partial(client.post, "/system/reload", {})
    state_dir = examined.state_dir
    return [
        {"run": finding.run, "error": None if dry else apply_fix(finding, reload, state_dir)}
        for finding in findings
        if is_safe(finding.run)
    ]


def _show_fixes(page: dict[str, Any]) -> None:
    output.print_line()
    for item in page["fixed"]:
        verb = "would apply" if page["dry_run"] else "failed" if item["error"] else "applied"
        cause = f": {item['error']}" if item["error"] else ""
        output.print_line(f"{verb}  {item['run']}{cause}", fg="red" if cause else "green")
    if not page["fixed"]:
        output.print_line("no finding has a command that is safe to apply")


def _find_gateway(examined: DoctorContext) -> GatewayClient | None:
    from ductile.cli.client import GatewayClient
    from ductile.engine.socket_path import SOCKET

    if examined.state_dir is None or not GatewayClient.is_listening(examined.state_dir / SOCKET):
        return None
    return GatewayClient(examined.state_dir / SOCKET)


def _ask_at(state_dir: Path) -> Ask:
    from ductile.cli.client import GatewayClient
    from ductile.engine.socket_path import SOCKET

    return GatewayClient(state_dir / SOCKET).get


def _show(page: dict[str, Any]) -> None:
    _show_facts(page["facts"])
    for finding in page["findings"]:
        output.print_line()
        word = finding["severity"]
        head = click.style(output.escape(word), bold=True, fg=output.colour_of(word))
        click.echo(f"{head}  {output.escape(finding['topic'])}: {output.escape(finding['what'])}")
        output.print_line(f"  why  {finding['why']}")
        if finding["run"]:
            output.print_line(f"  run  {finding['run']}")
    output.print_line()
    counts = {
        word: sum(finding["severity"] == word for finding in page["findings"])
        for word in ("error", "warning")
    }
    parts = [output.format_count(number, word) for word, number in counts.items() if number]
    if "fixed" in page:
        _show_fixes(page)
    output.print_line(", ".join(parts) or "no problems found", fg=None if parts else "green")


def _show_facts(facts: dict[str, Any]) -> None:
    if "config" not in facts:
        output.print_line(f"ductile {facts['version']}")
        return
    output.print_line(
        f"ductile {facts['version']}, config {facts['config']}, state {facts['state_dir']}"
    )
    if facts["uptime_seconds"] is not None:
        output.print_line(
            f"gateway: pid {facts['pid']}, up {output.format_duration(facts['uptime_seconds'])}"
        )
    size = "" if facts["ledger_bytes"] is None else f" {output.format_size(facts['ledger_bytes'])},"
    wal = f" WAL {output.format_size(facts['wal_bytes'])}," if facts["wal_bytes"] else ""
    free = facts["free_bytes"]
    space = "free space unknown" if free is None else f"{output.format_size(free)} free on its disk"
    output.print_line(f"ledger: {facts['engine']},{size}{wal} {space}")
    if facts["last_backup"]:
        output.print_line(f"last backup: {facts['last_backup']['made_at']}")
