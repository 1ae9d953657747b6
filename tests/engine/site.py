"""An installation for a test: config, plugins, state directory, and the gateway that runs there."""

from __future__ import annotations

import json
import os
import select
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ductile.config import Loaded, load
from ductile.engine.gateway import Gateway
from ductile.engine.instance_lock import compute_state_dir_id
from ductile.model import NewJob, SubmittedBy
from ductile.runner.process_scan import has_variable
from ductile.store.engines.api import Effects, StoredNotice
from ductile.store.jobs import read
from tests.new_ledger import create_ledger
from tests.waiting import WAIT_LIMIT, until

PYTHON = f"#!{sys.executable} -IS\nimport json, os, signal, sys, time\n"
SHELL = "#!/bin/sh\n"
OK = """echo '{"status": "ok", "result": "done"}'\n"""
EVERY_COMMAND = ("poll", "handle", "sync")


class Gate:
    """A place where plugins report that they wait, until the test lets them continue."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        self.reported, self.path = folder / f"{name}.said", folder / name
        os.mkfifo(self.reported)
        os.mkfifo(self.path)
        # Read-write, so that neither side waits for the other to open it.
        self._reported_fd = os.open(self.reported, os.O_RDWR | os.O_NONBLOCK)
        self._fd = os.open(self.path, os.O_RDWR)
        self._received = b""

    def script(self, word: str = "$$") -> str:
        """Shell code that reports `word` and then waits."""
        return f"echo {word} > '{self.reported}'\nread _ < '{self.path}'\n"

    def arrived(self) -> str:
        """Wait for the next plugin; returns its word."""
        while b"\n" not in self._received:
            assert select.select([self._reported_fd], [], [], WAIT_LIMIT)[0], "no plugin came"
            self._received += os.read(self._reported_fd, 4096)
        word, _, self._received = self._received.partition(b"\n")
        return word.decode()

    def is_empty(self) -> bool:
        """Whether no further plugin waits."""
        try:
            self._received += os.read(self._reported_fd, 4096)
        except BlockingIOError:
            pass
        return b"\n" not in self._received

    def open(self, count: int = 1) -> None:
        os.write(self._fd, b"\n" * count)

    def close(self) -> None:
        os.close(self._reported_fd)
        os.close(self._fd)


class Site:
    """A config directory, a plugin root and a state directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plugins = folder / "plugins"
        self.plugins.mkdir(mode=0o755)
        self.state = folder / "s"
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "TZ": "UTC"}
        self.settings: dict[str, Any] = {
            "service": {"max_workers": 2, "log_level": "error"},
            "state": {"path": str(self.state / "state.db")},
            "plugins": {},
        }
        self._gates: list[Gate] = []

    # Writing

    def plugin(
        self,
        name: str,
        script: str,
        *,
        commands: tuple[str, ...] = EVERY_COMMAND,
        manifest: str = "",
        version: str = "1.0.0",
        **settings: Any,
    ) -> Path:
        """Write a plugin and its settings."""
        directory = self.plugins / name
        directory.mkdir(mode=0o755, exist_ok=True)
        declared = ", ".join(f"{command}: {{type: write}}" for command in commands)
        (directory / "manifest.yaml").write_text(
            "manifest_spec: ductile.plugin\nmanifest_version: 1\n"
            f"name: {name}\nversion: {version}\nprotocol: 2\nentrypoint: run\n"
            f"commands: {{{declared}}}\n{manifest}"
        )
        # Written to a temporary file, because a running script cannot be overwritten.
        fresh = directory / "run.new"
        fresh.write_text(script if script.startswith("#!") else SHELL + script)
        fresh.chmod(0o755)
        fresh.rename(directory / "run")
        self.settings["plugins"].setdefault(name, {}).update(settings)
        return directory

    def gate(self, name: str = "gate") -> Gate:
        gate = Gate(self.folder, name)
        self._gates.append(gate)
        return gate

    def write(self) -> Path:
        path = self.folder / "config.yaml"
        path.write_text(json.dumps(self.settings, indent=1))
        path.chmod(0o600)
        return path

    def prepare_ledger(self) -> None:
        """Create what the first start of a gateway would, in less time."""
        is_default = self.settings["state"] == {"path": str(self.state / "state.db")}
        if is_default and not self.state.exists():
            create_ledger(self.state / "state.db")

    def load(self) -> Loaded:
        return load(self.write(), environ=self.environ)

    # Running

    @contextmanager
    def running(self, **more: Any) -> Iterator[Running]:
        """A running gateway; it is stopped and closed in any case."""
        with self.opened(**more) as running:
            running.gateway.start()
            yield running

    @contextmanager
    def opened(self, **more: Any) -> Iterator[Running]:
        """A gateway that is open but not started."""
        self.prepare_ledger()
        gateway = Gateway(self.load(), environ=self.environ, **more)
        running = Running(gateway)
        try:
            gateway.open()
            gateway.ledger.listen(running.record)
            yield running
        finally:
            running.end()

    # Looking

    def alive(self) -> list[int]:
        """The processes with the id of this state directory in their environment."""
        entry = f"DUCTILE_BOOT={compute_state_dir_id(self.state)}:".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if has_variable(pid, entry)]

    def close(self) -> None:
        for gate in self._gates:
            gate.close()


class Running:
    """A gateway, and the notices that it has committed."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self._received: list[StoredNotice] = []
        self._news = threading.Condition()
        self._ended = False

    def record(self, effects: Effects) -> None:
        with self._news:
            self._received += effects.notices
            self._news.notify_all()

    def notice(
        self, type: str, job_id: str | None = None, seconds: float = WAIT_LIMIT
    ) -> StoredNotice:
        """Wait for the first notice of this type (and job)."""

        def found() -> StoredNotice | None:
            for notice in self._received:
                if notice.type == type and job_id in (None, notice.job_id):
                    return notice
            return None

        with self._news:
            assert self._news.wait_for(found, WAIT_LIMIT), (
                f"no {type} of {job_id}: {self.list_notices()}"
            )
            notice = found()
        assert notice is not None
        return notice

    def prepare_warm(self, plugin: str) -> None:
        """Wait until jobs of this plugin are started warm."""
        warm, slots = self.gateway.compiled.plans[plugin].warm, self.gateway.warm_slots
        assert warm is not None
        assert slots is not None
        until(lambda: slots.is_ready(warm))

    def warm_processes(self) -> set[int]:
        """The zygotes and warm slots, which have the environment of their jobs."""
        slots = self.gateway.warm_slots
        return set() if slots is None else slots.processes()

    def list_notices(self) -> list[tuple[str, str | None]]:
        return [(notice.type, notice.job_id) for notice in self._received]

    def put(self, plugin: str, command: str = "poll", payload: Any = None, **more: Any) -> str:
        new = NewJob(plugin, command, SubmittedBy.API, payload=payload or {}, **more)
        return self.gateway.enqueue(new).job_id

    def job(self, job_id: str) -> dict[str, Any]:
        found = self.gateway.ledger.read(lambda tx: read.describe_job(tx, job_id))
        assert found is not None
        return found

    def ended(self, job_id: str) -> dict[str, Any]:
        """Wait for the end of the job."""
        ended = threading.Event()
        self.gateway.notice_bus.add_on_end(job_id, ended.set)
        try:
            job = self.job(job_id)
            if job["status"] in ("queued", "running"):
                assert ended.wait(WAIT_LIMIT), f"it has not ended: {job}"
        finally:
            self.gateway.notice_bus.remove_on_end(job_id, ended.set)
        return self.job(job_id)

    def run(self, plugin: str, command: str = "poll", payload: Any = None) -> dict[str, Any]:
        return self.ended(self.put(plugin, command, payload))

    def tried(self, job_id: str) -> dict[str, Any]:
        """Wait until an attempt of the job has failed and will be retried."""
        self.notice("job.retrying", job_id)
        return self.job(job_id)

    def abandon(self) -> None:
        """Clean up after a gateway that the test has ended itself."""
        self._ended = True
        self.gateway.ledger.close()
        self.gateway.pool.stop()
        self.gateway._lock.release()

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            if self.gateway.loops:
                self.gateway.stop()
            self.gateway.close()


def environment_of(pid: int) -> Mapping[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes()
    pairs = (entry.partition("=") for entry in raw.decode().split("\0") if entry)
    return {name: value for name, _, value in pairs}
