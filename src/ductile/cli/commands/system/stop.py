"""`ductile system stop`: stop the running gateway."""

from __future__ import annotations

import click

from ductile.cli import output
from ductile.cli.client import GatewayClient, Json
from ductile.cli.command import CommandContext, write
from ductile.cli.progress import show_progress
from ductile.engine.socket_path import SOCKET
from ductile.errors import UsageError

MARGIN = 30.0
"""Seconds that a stop may take beyond the grace of running jobs."""
DEFAULT_GRACE = 60.0
"""Assumed if the configuration cannot be loaded."""


@write("stop")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Maximum time to wait. Default: the shutdown grace and 30 s.",
)
def stop(context: CommandContext, timeout: float | None) -> None:
    """Stop the running gateway, and wait until it has ended.

    Running jobs get service.shutdown_grace to finish, then return to the queue.
    """
    from ductile.operations.stop import find_gateway, stop_gateway

    if context.api_url is not None:
        raise UsageError("stop works only on the gateway's own machine; omit --api-url")
    directory = context.target.state_dir
    pid = find_gateway(directory, answers=GatewayClient.is_listening(directory / SOCKET))
    done: Json = {"pid": pid, "state_dir": str(directory)}
    if context.dry_run:
        context.show({**done, "dry_run": True}, _show)
        return
    limit = _choose_timeout(context) if timeout is None else timeout
    with show_progress() as report:
        seconds = stop_gateway(
            directory,
            pid,
            timeout=limit,
            watch=lambda passed: report(f"stopping, {passed:.0f} s", 0, 0),
        )
    context.show({**done, "seconds": round(seconds, 3)}, _show)


def _choose_timeout(context: CommandContext) -> float:
    from ductile.errors import ConfigError

    try:
        grace = context.target.loaded.settings.service.shutdown_grace
    except ConfigError:
        grace = DEFAULT_GRACE
    return grace + MARGIN


def _show(done: Json) -> None:
    gateway = f"the gateway (pid {done['pid']}) in {done['state_dir']}"
    if done.get("dry_run"):
        output.print_line(f"would stop {gateway}")
    else:
        output.print_line(f"stopped {gateway} in {output.format_duration(done['seconds'])}")
