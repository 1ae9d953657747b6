"""`ductile system demo`: start a gateway with a configuration and example plugins."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile import files as file_access
from ductile.cli import output
from ductile.cli.command import CommandContext, write

if TYPE_CHECKING:
    from ductile.engine.gateway import Gateway

EXECUTABLES = (".sh", ".py")
SHOWN = {"heartbeat": "sh", "weather": "Python"}
FIRST_RUN_TIMEOUT = 15.0
CONFIG = "config.yaml"
SECRETS, PORTS = ("replaced-in-each-copy", "secret-of-each-copy"), (8080, 8081)
"""What is replaced in a copy of the demo's configuration."""

WELCOME = """
The gateway is ready, and has run two plugins:

{ran}

The dashboard; this address logs in once, within a minute, and `ductile ui` makes another:

  {dashboard}

Their schedules run them again every few seconds. When the weather changes, a route turns that
event into a job of `umbrella`. Twice a minute an archive is made, and the pipeline `publish` copies
it to two places, one of which fails now and then. The plugin `outside` plays a shop, whose signed
webhooks start the pipeline `order`, and an agent that sends heartbeats. The pipeline `restock`
waits for your approval. Each log line describes a job. The state of the plugins is in a ledger, so
it survives a restart. In another terminal, try:

{commands}

The plugins are in {plugins}: edit one, and run it again. Stop the gateway with Ctrl-C.
"""


@write("demo")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default="demo",
    show_default=True,
    help="Directory of the demo; existing files are kept.",
)
def demo(context: CommandContext, directory: Path) -> int:
    """Start a demo gateway with example plugins."""
    where = directory.absolute()
    if not context.dry_run:
        return _run(where)
    paths = [str(path) for path in _missing_files(where)]
    context.show(
        {"dry_run": True, "directory": str(where), "would_write": paths},
        lambda _: output.print_line(
            f"would write {len(paths)} files to {where} and start a gateway there"
        ),
    )
    return 0


def _missing_files(where: Path) -> list[Path]:
    """Return the files to copy: none if `where` has a configuration."""
    if (where / CONFIG).exists():
        return []
    return [path for path, _ in _targets(where) if not os.path.lexists(path)]


def _run(where: Path) -> int:
    """Copy the demo to `where`, and run a gateway there until it is stopped."""
    from ductile.config import load
    from ductile.http.server.run import serve

    missing = set(_missing_files(where))
    for path, source in _targets(where):
        if path in missing:
            _write(path, _content(source))
    loaded = load(where, environ=os.environ)
    return serve(loaded, environ=os.environ, ready=lambda gateway: _print_welcome(gateway, where))


def _targets(where: Path) -> Iterator[tuple[Path, Traversable]]:
    folder = files("ductile.demo")
    yield where / CONFIG, folder / CONFIG
    for plugin in sorted((folder / "plugins").iterdir(), key=lambda entry: entry.name):
        for file in plugin.iterdir():
            if file.is_file():
                yield where / "plugins" / plugin.name / file.name, file


def _content(source: Traversable) -> bytes:
    """Return a file of the demo; the configuration gets secrets and ports of its own."""
    content = source.read_bytes()
    if source.name != CONFIG:
        return content
    text = content.decode()
    for old in SECRETS:
        text = text.replace(old, secrets.token_urlsafe(24))
    for port in PORTS:
        text = text.replace(f":{port}", f":{_find_port(port)}")
    return text.encode()


def _find_port(usual: int) -> int:
    """Return the usual port, or a free one if another program has it."""
    for port in (usual, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise RuntimeError("this machine has no free port")


def _write(path: Path, content: bytes) -> None:
    file_access.create(path.parent)
    # An installed package may have lost the mode, and a plugin must be executable.
    file_access.write_new(path, content, executable=path.suffix in EXECUTABLES)


def _print_welcome(gateway: Gateway, where: Path) -> None:
    results = _first_runs(gateway)
    ran = "\n".join(f"  {name:<10} {SHOWN[name]:<8} {results[name]}" for name in SHOWN)
    commands = "\n".join(f"  {line}" for line in _suggestions(where))
    plugins = _short(where / "plugins")
    dashboard = _dashboard_address(where)
    output.print_text(
        WELCOME.format(ran=ran, dashboard=dashboard, commands=commands, plugins=plugins)
    )


def _dashboard_address(where: Path) -> str:
    from ductile.cli.client import GatewayClient
    from ductile.config import load
    from ductile.engine.socket_path import SOCKET

    state_dir = load(where, environ=os.environ).settings.state_dir
    return str(GatewayClient(state_dir / SOCKET).post("/ui/code", {})["url"])


def _first_runs(gateway: Gateway) -> dict[str, str]:
    """Run each plugin once, before its schedule is due, and return the results."""
    from ductile.core.jobs.commands import POLL
    from ductile.model import NewJob, SubmittedBy
    from ductile.store.jobs import read

    results = {}
    for name in SHOWN:
        job_id = gateway.enqueue(NewJob(name, POLL, SubmittedBy.CLI)).job_id
        _wait_for_end(gateway, job_id)
        job = gateway.ledger.read(partial(read.describe_job, job_id=job_id))
        response: Any = job and job["result"]
        results[name] = str(response.get("result")) if isinstance(response, dict) else "no response"
    return results


def _wait_for_end(gateway: Gateway, job_id: str) -> None:
    from ductile.store.jobs import read

    ended = threading.Event()
    gateway.notice_bus.add_on_end(job_id, ended.set)
    # The job may have ended before the event was registered.
    job = gateway.ledger.read(partial(read.describe_job, job_id=job_id))
    if job and job["completed_at"] is None:
        ended.wait(FIRST_RUN_TIMEOUT)
    gateway.notice_bus.remove_on_end(job_id, ended.set)


def _suggestions(where: Path) -> list[str]:
    config = f"--config {shlex.quote(_short(where))}"
    program = _program()
    return [
        f"{program} system status {config}",
        f"{program} plugin list {config}",
        f"{program} plugin run heartbeat {config}",
        f'{program} plugin run weather --command handle --payload \'{{"city": "Oslo"}}\' {config}',
        f"{program} job list --plugin heartbeat --limit 5 {config}",
        f"{program} job logs --since 1m {config}",
    ]


def _program() -> str:
    """Return the program as the user typed it, so that the suggested commands work."""
    program = Path(sys.argv[0]).absolute()
    if program.name.startswith("__main__") or not program.is_file():
        return f"{shlex.quote(sys.executable)} -m ductile"
    known = shutil.which(program.name)
    if known and Path(known).absolute() == program:
        return program.name
    return shlex.quote(_short(program))


def _short(path: Path) -> str:
    """Return the path relative to the current directory, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
