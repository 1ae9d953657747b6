"""`ductile system demo`: a gateway on a small config of its own, that works and says so."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ductile import files as directory
from ductile.cli import output

if TYPE_CHECKING:
    from ductile.engine.gateway import Gateway

EXECUTABLES = (".sh", ".py")
SHOWN = {"heartbeat": "sh", "weather": "Python"}
FIRST_RUN_WITHIN = 15.0

WELCOME = """
The gateway is ready, and has run two plugins:

{ran}

Their schedules run them again every few seconds. When the weather changes, a route turns that
event into a job of `umbrella`. Each log line describes a job. The state of the plugins is in a
ledger, so it survives a restart. In another terminal, try:

{commands}

The plugins are in {plugins}: edit one, and run it again. Stop the gateway with Ctrl-C.
"""


def missing(where: Path) -> list[Path]:
    """The files of the demo that `where` does not have; none where it has a configuration."""
    if (where / "config.yaml").exists():
        return []
    return [path for path, _ in _targets(where) if not os.path.lexists(path)]


def run(where: Path) -> int:
    """Put the demo into `where`, and run a gateway on it until it is stopped."""
    from ductile.config import load
    from ductile.http.server.run import serve

    wanted = set(missing(where))
    for path, source in _targets(where):
        if path in wanted:
            _write(path, source.read_bytes())
    loaded = load(where, environ=os.environ)
    return serve(loaded, environ=os.environ, ready=lambda gateway: _show_off(gateway, where))


def _targets(where: Path) -> Iterator[tuple[Path, Traversable]]:
    folder = files("ductile.demo")
    yield where / "config.yaml", folder / "config.yaml"
    for plugin in sorted((folder / "plugins").iterdir(), key=lambda entry: entry.name):
        for file in plugin.iterdir():
            if file.is_file():
                yield where / "plugins" / plugin.name / file.name, file


def _write(path: Path, content: bytes) -> None:
    directory.create(path.parent)
    # A wheel need not keep the mode, and a plugin must be executable.
    directory.write_new(path, content, executable=path.suffix in EXECUTABLES)


def _show_off(gateway: Gateway, where: Path) -> None:
    results = _first_runs(gateway)
    ran = "\n".join(f"  {name:<10} {SHOWN[name]:<8} {results[name]}" for name in SHOWN)
    commands = "\n".join(f"  {line}" for line in _suggestions(where))
    plugins = _short(where / "plugins")
    output.line(WELCOME.format(ran=ran, commands=commands, plugins=plugins))


def _first_runs(gateway: Gateway) -> dict[str, str]:
    """What each plugin says at once, before its schedule is due."""
    from ductile.core.jobs.commands import POLL
    from ductile.model import NewJob, SubmittedBy
    from ductile.store.jobs import read

    results = {}
    for name in SHOWN:
        job_id = gateway.enqueue(NewJob(name, POLL, SubmittedBy.CLI)).job_id
        _wait(gateway, job_id)
        job = gateway.ledger.read(partial(read.describe_job, job_id=job_id))
        response: Any = job and job["result"]
        results[name] = str(response.get("result")) if isinstance(response, dict) else "no response"
    return results


def _wait(gateway: Gateway, job_id: str) -> None:
    from ductile.store.jobs import read

    ended = threading.Event()
    gateway.notice_bus.add_on_end(job_id, ended.set)
    # It may have ended before anybody listened.
    job = gateway.ledger.read(partial(read.describe_job, job_id=job_id))
    if job and job["completed_at"] is None:
        ended.wait(FIRST_RUN_WITHIN)
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
    """How the user called us, so that the suggestions work as they stand."""
    program = Path(sys.argv[0]).absolute()
    if program.name.startswith("__main__") or not program.is_file():
        return f"{shlex.quote(sys.executable)} -m ductile"
    known = shutil.which(program.name)
    if known and Path(known).absolute() == program:
        return program.name
    return shlex.quote(_short(program))


def _short(path: Path) -> str:
    """Relative to where the user is, if it is below."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
