"""`ductile plugin trace`: propose a plugin's sandbox from one observed run."""

from __future__ import annotations

import sys
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext, read
from ductile.cli.commands.plugin.authoring import TARGET, prepare_plugin
from ductile.cli.options import PLUGIN, choose_command, read_json
from ductile.cli.progress import show_waiting
from ductile.errors import UsageError

EFFECTS = (
    "{name} runs without its sandbox{twice}. Nothing is recorded, but what it sends, writes and "
    "deletes outside of the gateway is real."
)


@read("trace")
@click.argument("target", metavar=TARGET, type=PLUGIN)
@click.argument("command", required=False)
@click.option("--payload", metavar="JSON|@FILE|-", help="Payload of the job; - reads stdin.")
@click.option("--no-verify", is_flag=True, help="Do not run it again in the proposed sandbox.")
@click.option("--yes", is_flag=True, help="Run it without asking.")
def trace(
    context: CommandContext,
    target: str,
    command: str | None,
    payload: str | None,
    no_verify: bool,
    yes: bool,
) -> int:
    """Run a plugin under observation and propose its sandbox.

    The plugin runs once without a sandbox, and once more in the proposed one, to verify it.
    One run shows only what that run needs. Exit 1 if the second run ends differently.
    """
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.clock import SystemClock, SystemEntropy
    from ductile.operations.dry_run import plugin as trial
    from ductile.operations.dry_run import trace as operation

    compiled, name = prepare_plugin(context, target, None)
    commands = compiled.registry.plugins[name].manifest.commands
    chosen = choose_command(name, {c.name: c.type.value for c in commands}, command)
    given = read_json(payload)
    _confirm(context, name, yes=yes, verifies=not no_verify)
    test = trial.PluginTest(name, chosen, {} if given is None else given, {})
    request = operation.TraceRequest(test, verifies=not no_verify)
    with sigterm_as_interrupt(), show_waiting(f"tracing {name} {chosen}"):
        done = operation.trace(compiled, request, SystemClock().now(), SystemEntropy())
    context.show(done, _show)
    verified = done["verified"]
    return 1 if verified is not None and verified["passed"] is False else 0


def _confirm(context: CommandContext, name: str, *, yes: bool, verifies: bool) -> None:
    if yes:
        return
    twice = ", and once more in the proposed one" if verifies else ""
    warning = EFFECTS.format(name=name, twice=twice)
    if context.as_json or not sys.stdin.isatty():
        raise UsageError(f"{warning} Pass --yes to run it")
    output.print_stderr(warning)
    click.confirm(f"run {name}?", abort=True)


def _show(done: Json) -> None:
    observed = done["observed"]
    took = output.format_duration(observed["duration_ms"] / 1000)
    name = click.style(output.escape(f"{done['plugin']} {done['command']}"), bold=True)
    click.echo(f"{name} {output.format_status(observed['status'])} in {took}  (under observation)")
    if observed["error"]:
        output.print_section("error", observed["error"])
    used = done["measured"]
    output.print_line(
        f"used: {used['memory'] / 2**20:.0f} MiB of memory, {used['processes']} processes and "
        f"threads, {used['cpu_time']:.2f} s of processor time, files up to {used['file_size']} B"
    )
    for note in done["notes"]:
        output.print_line(f"note: {note}", fg="yellow")
    output.print_line("sandbox:")
    for key, value in done["sandbox"].items():
        output.print_line(f"  {key}: {_to_yaml(value)}")
    _show_verification(done["verified"])


def _to_yaml(value: Any) -> str:
    """Lists, and texts in them, as JSON, which YAML reads as well."""
    import orjson

    return orjson.dumps(value).decode() if isinstance(value, list) else str(value)


def _show_verification(verified: Json | None) -> None:
    if verified is None:
        output.print_line("not verified")
    elif verified["passed"] is None:
        output.print_line(f"not verified: {verified['reason']}", fg="yellow")
    elif verified["passed"]:
        output.print_line("verified: it ended in the same way in this sandbox", fg="green")
    else:
        output.print_line(f"verified: it {verified['status']} in this sandbox", fg="red")
        for heading in ("error", "stderr"):
            if verified[heading]:
                output.print_section(heading, output.format_value(verified[heading]))
