"""The configuration: whether it loads, whom it lets in, what it wants of the environment."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from zoneinfo import ZoneInfo

from ductile.errors import Problem
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning

SEALED = "config lock"


def loads(context: DoctorContext) -> Iterator[Finding]:
    """Every problem of the configuration, and every warning."""
    compiled = context.compiled
    for problem in context.problems:
        mend = SEALED if context.unsealed and _is_of_seal(problem) else "config check"
        why = "a gateway does not start, or reload, with it"
        yield error("config", str(problem), why, context.command(mend))
    if compiled is None:
        return
    for problem in compiled.warnings:
        mend = SEALED if _is_of_seal(problem) else "config check"
        yield warning("config", str(problem), "said at every start", context.command(mend))


def _is_of_seal(problem: Problem) -> bool:
    return "config lock" in problem.message


def listeners(context: DoctorContext) -> Iterator[Finding]:
    """Doors that other machines can reach: what comes through them is not encrypted."""
    settings = context.settings
    if settings is None:
        return
    doors = []
    if settings.api.enabled:
        doors.append(("api.listen", settings.api.listen, settings.api.address[0], "tokens travel"))
    if settings.webhooks_enabled:
        hooks = settings.webhooks
        doors.append(("webhooks.listen", hooks.listen, hooks.address[0], "payloads travel"))
    for key, shown, host, what in doors:
        if not _is_near(host):
            yield warning(
                "api",
                f"{key} is {shown}, which other machines can reach, and speaks no TLS",
                f"{what} in the clear; put a proxy that speaks TLS before it",
                context.command(f"config set {key}=127.0.0.1:{shown.rpartition(':')[2]}"),
            )
    if settings.gateway.open and settings.api.enabled and not _is_near(settings.api.address[0]):
        yield warning(
            "api",
            "gateway.open lets anybody send heartbeats and messages",
            "the API can be reached from other machines",
            context.command("config set gateway.open=false"),
        )


def _is_near(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def environment(context: DoctorContext) -> Iterator[Finding]:
    """Variables that plugins are promised and nobody has set; the time zone."""
    settings = context.settings
    if settings is None:
        return
    names = _gateways_own(context.pid) or set(context.environ)
    for name in settings.service.plugin_env_passthrough:
        if name not in names:
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
    if zone and local and not _is_zone(zone):
        yield warning(
            "environment",
            f"TZ is {zone!r}, which is no time zone",
            f"schedules without a timezone ({', '.join(sorted(set(local)))}) take another",
            "export TZ=Europe/Berlin",
        )


def _gateways_own(pid: int | None) -> set[str]:
    """The names, and only those, that the running gateway was started with."""
    if pid is None:
        return set()
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return set()
    return {
        entry.partition(b"=")[0].decode(errors="replace") for entry in raw.split(b"\0") if entry
    }


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return False
    return True
