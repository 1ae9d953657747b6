"""`ductile ui`: open the dashboard without typing a token."""

from __future__ import annotations

import os
import sys

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, write

DESKTOPS = ("DISPLAY", "WAYLAND_DISPLAY")


@write("ui")
@click.option("--no-browser", is_flag=True, help="Print the address; start no browser.")
@click.option("--end-sessions", is_flag=True, help="End the sessions of all users; open nothing.")
def ui(context: CommandContext, no_browser: bool, end_sessions: bool) -> None:
    """Open the dashboard in a browser, and print its address.

    The address contains a code that logs in once, within a minute. A session ends with its token,
    12 hours after its last use, after 7 days, or by --end-sessions.
    """
    client = context.require_gateway(
        "no gateway is running, so there is no dashboard; run: ductile start"
    )
    if context.dry_run:
        would = "end all sessions" if end_sessions else "create a login code and open the dashboard"
        plan = {"dry_run": True, "would": would}
        context.show(plan, lambda plan: output.print_line(f"would {plan['would']}"))
        return
    if end_sessions:
        context.show(
            client.delete("/ui/sessions"),
            lambda done: output.print_line(f"sessions ended: {done['closed']}"),
        )
        return
    made = client.post("/ui/code", {})
    context.show(made, lambda made: output.print_line(made["url"]))
    if not (no_browser or context.as_json) and _has_desktop():
        import webbrowser

        webbrowser.open(made["url"])


def _has_desktop() -> bool:
    return sys.platform == "darwin" or any(os.environ.get(name) for name in DESKTOPS)
