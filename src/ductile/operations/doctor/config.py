"""Checks of the configuration: whether it loads, who can reach it, and its environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from zoneinfo import ZoneInfo

from ductile.errors import Problem, Severity
from ductile.operations.config.fixes import find_command
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.plugins.registry import find_command as find_named_command

LOCK_COMMAND = "config lock"


def loads(context: DoctorContext) -> Iterator[Finding]:
    """Every problem of the configuration, and every warning."""
    compiled = context.compiled
    for problem in context.problems:
        why = "a gateway neither starts nor reloads with it"
        yield error("config", str(problem), why, _command_for(problem, context))
    if compiled is None:
        return
    for problem in compiled.warnings:
        why = "it is logged at every start"
        yield warning("config", str(problem), why, _command_for(problem, context))


def _command_for(problem: Problem, context: DoctorContext) -> str:
    is_error = problem.severity is Severity.ERROR
    if _is_about_checksums(problem) and (context.unsealed or not is_error):
        return context.command(_lock_command(problem))
    if (named := find_named_command(problem.message)) is not None:
        return context.add_options(named)
    alone = not is_error or len(context.problems) == 1
    found = find_command(problem, context.add_options, alone=alone)
    return found or context.command("config check")


def _lock_command(problem: Problem) -> str:
    """Accepts this file or plugin alone: others may have unapproved changes."""
    _, marked, command = problem.message.rpartition("run: ductile ")
    if marked and not problem.file:
        return command
    return f"{LOCK_COMMAND} {quote(problem.file)}" if problem.file else LOCK_COMMAND


def _is_about_checksums(problem: Problem) -> bool:
    return "config lock" in problem.message


def listeners(context: DoctorContext) -> Iterator[Finding]:
    """Listeners that other machines can reach: their traffic is not encrypted."""
    settings = context.settings
    if settings is None:
        return
    exposed = []
    if settings.api.enabled:
        exposed.append(
            ("api.listen", settings.api.listen, settings.api.address[0], "tokens are sent")
        )
    if settings.webhooks_enabled:
        hooks = settings.webhooks
        exposed.append(("webhooks.listen", hooks.listen, hooks.address[0], "payloads are sent"))
    for key, shown, host, what in exposed:
        if not _is_loopback(host):
            yield warning(
                "api",
                f"{key} is {shown}: other machines can reach it, without TLS",
                f"{what} unencrypted; put a TLS proxy in front of it",
                context.command(f"config set {key}=127.0.0.1:{shown.rpartition(':')[2]}"),
            )
    if settings.gateway.open and settings.api.enabled and not _is_loopback(settings.api.address[0]):
        yield warning(
            "api",
            "gateway.open accepts heartbeats and messages without a token",
            "the API can be reached from other machines",
            context.command("config set gateway.open=false"),
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def environment(context: DoctorContext) -> Iterator[Finding]:
    """Variables that plugins should inherit and that are not set; the time zone."""
    settings = context.settings
    if settings is None:
        return
    names = set(context.environ) if context.pid is None else _variables_of(context.pid)
    for name in settings.service.plugin_env_passthrough:
        if names is not None and name not in names:
            yield warning(
                "environment",
                f"the variable {name}, which plugins should inherit, is not set",
                "service.plugin_env_passthrough names it",
                f"export {name}=...",
            )
    zone = context.environ.get("TZ", "").lstrip(":")
    local = [
        plugin
        for plugin, entry in settings.plugins.items()
        for s in entry.schedules
        if not s.timezone
    ]
    local += [p.name for p in settings.pipelines for s in p.schedules if not s.timezone]
    if zone and local and not _is_zone(zone):
        yield warning(
            "environment",
            f"TZ is {zone!r}, which is not a valid time zone",
            f"schedules without a timezone ({', '.join(sorted(set(local)))}) use another zone",
            "export TZ=Europe/Berlin",
        )


def _variables_of(pid: int) -> set[str] | None:
    """The names of the variables that the running gateway was started with.

    None if they cannot be read: a gateway hides them from other processes of its user.
    """
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return None
    return {
        entry.partition(b"=")[0].decode(errors="replace") for entry in raw.split(b"\0") if entry
    }


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
