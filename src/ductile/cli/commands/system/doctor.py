"""`ductile system doctor`: what is wrong, why, and what to run."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext
from ductile.cli.commands.system.gateway import system
from ductile.errors import DuctileError, UsageError

if TYPE_CHECKING:
    from ductile.cli.client import Client
    from ductile.operations.doctor import DoctorContext


@system.read("doctor")
def doctor(call: CommandContext) -> int:
    """Find problems, their causes and the commands to run.

    Checks the configuration, the ledger and the gateway, running or not. Changes nothing. Exit 1
    if there is an error; a warning is not one.
    """
    from ductile.clock import SystemClock
    from ductile.operations.doctor import DoctorContext, Severity, examine

    if call.api_url is not None:
        raise UsageError("doctor examines its own machine; omit --api-url")
    patient = DoctorContext(call.config, dict(os.environ), SystemClock().now())
    client = _client(patient)
    if client is not None:
        patient.ask = client.get
    try:
        findings, facts = examine(patient), _facts(patient)
    finally:
        patient.close()
    ok = all(finding.severity is not Severity.ERROR for finding in findings)
    page = {"ok": ok, "facts": facts, "findings": [asdict(finding) for finding in findings]}
    call.show(page, _show)
    return 0 if ok else 1


def _client(patient: DoctorContext) -> Client | None:
    from ductile.cli.client import Client
    from ductile.cli.target import SOCKET

    if patient.state_dir is None or not Client.answers(patient.state_dir / SOCKET):
        return None
    return Client(patient.state_dir / SOCKET)


def _facts(patient: DoctorContext) -> dict[str, Any]:
    import ductile
    from ductile.config import find
    from ductile.operations.backup import last_backup, room_at
    from ductile.operations.doctor.ledger import wal_size

    facts: dict[str, Any] = {"version": ductile.__version__}
    state, directory = patient.state, patient.state_dir
    if state is None or directory is None:
        return facts
    size = None
    if state.path is not None and state.path.exists():
        size = state.path.stat().st_size
    up = None
    if patient.ask is not None:
        try:
            up = patient.health()["uptime_seconds"]
        except DuctileError:
            up = None
    return facts | {
        "config": str(find(patient.config, patient.environ).parent),
        "state_dir": str(directory),
        "engine": "sqlite" if state.url is None else "postgres",
        "pid": patient.pid,
        "uptime_seconds": up,
        "ledger_bytes": size,
        "wal_bytes": wal_size(patient),
        "free_bytes": room_at(directory),
        "last_backup": last_backup(directory),
    }


def _show(page: dict[str, Any]) -> None:
    _show_facts(page["facts"])
    for finding in page["findings"]:
        output.line()
        word = finding["severity"]
        head = click.style(output.safe(word), bold=True, fg=output.colour_of(word))
        click.echo(f"{head}  {output.safe(finding['topic'])}: {output.safe(finding['what'])}")
        output.line(f"  why  {finding['why']}")
        if finding["run"]:
            output.line(f"  run  {finding['run']}")
    output.line()
    counts = {
        word: sum(finding["severity"] == word for finding in page["findings"])
        for word in ("error", "warning")
    }
    said = [output.count(number, word) for word, number in counts.items() if number]
    output.line(", ".join(said) or "no problems found", fg=None if said else "green")


def _show_facts(facts: dict[str, Any]) -> None:
    if "config" not in facts:
        output.line(f"ductile {facts['version']}")
        return
    output.line(f"ductile {facts['version']}, config {facts['config']}, state {facts['state_dir']}")
    if facts["uptime_seconds"] is not None:
        output.line(f"gateway: pid {facts['pid']}, up {output.span(facts['uptime_seconds'])}")
    size = "" if facts["ledger_bytes"] is None else f" {output.size(facts['ledger_bytes'])},"
    wal = f" WAL {output.size(facts['wal_bytes'])}," if facts["wal_bytes"] else ""
    free = output.size(facts["free_bytes"])
    output.line(f"ledger: {facts['engine']},{size}{wal} {free} free on its disk")
    if facts["last_backup"]:
        output.line(f"last backup: {facts['last_backup']['made_at']}")
