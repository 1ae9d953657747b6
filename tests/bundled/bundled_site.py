"""A gateway with the bundled plugins, and a check that they emit only declared events."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ductile.clock import to_text
from ductile.plugins.manifest import Manifest
from tests.engine.site import Running, Site

PLUGINS = Path(__file__).parents[2] / "plugins"
NAMES = tuple(sorted(path.parent.name for path in PLUGINS.glob("*/manifest.yaml")))
ANY_EVENT = "*"
"""Declared by plugins whose configuration chooses the emitted events."""
ADDED_BY_THE_CORE = {"result"}
"""The gateway copies `result` of a response into payloads without one."""


def interpreter_path(path: str) -> str:
    """A PATH whose `python3` is the interpreter itself, not a shim or a virtual environment."""
    base = str(Path(getattr(sys, "_base_executable", sys.executable)).parent)
    return f"{base}:{path}"


@dataclass(frozen=True)
class DirectRun:
    """The result of a plugin that was run without a gateway."""

    code: int
    response: dict[str, Any]
    stderr: str


class BundledSite(Site):
    """A site with the bundled plugins; those that are not configured are disabled."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root = PLUGINS
        self.environ["PATH"] = interpreter_path(self.environ["PATH"])
        self.settings["plugins"] = {name: {"enabled": False} for name in NAMES}

    def use(self, name: str, config: dict[str, Any] | None = None, **settings: Any) -> None:
        """Enable a bundled plugin or, with `uses`, an alias; without retries by default."""
        given = {"config": config or {}, "retry": {"max_attempts": 1}, **settings}
        self.settings["plugins"][name] = given

    def mutate(self, file: str, old: str, new: str) -> None:
        """Change the code of a private copy of the plugins, which is used from then on.

        `file` is relative to `plugins/`; `old` must occur in it exactly once.
        """
        if self.root is PLUGINS:
            self.root = self.folder / "mutated"
            shutil.copytree(PLUGINS, self.root, ignore=shutil.ignore_patterns("__pycache__"))
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {file}"
        path.write_text(text.replace(old, new))

    def direct(
        self,
        name: str,
        command: str,
        *,
        state: Any = None,
        payload: Any = None,
        seconds: float = 60,
        context: dict[str, Any] | None = None,
        event: dict[str, Any] | None = None,
        job_id: str = "00000000-0000-7000-8000-000000000001",
    ) -> DirectRun:
        """Run a plugin as the gateway would, but without a gateway."""
        deadline = datetime.now(UTC) + timedelta(seconds=seconds)
        request = {
            "protocol": 2,
            "job_id": job_id,
            "command": command,
            "config": self.settings["plugins"].get(name, {}).get("config", {}),
            "state": state or {},
            "context": {"ductile_plugin": name, **(context or {})},
            "payload": {} if payload is None else payload,
            "deadline_at": to_text(deadline),
        }
        if command == "handle":
            described = {"type": "test", "event_id": "e1", **(event or {})}
            request["event"] = {**described, "payload": request["payload"]}
        done = subprocess.run(
            [self.root / name / "run.py"],
            input=json.dumps(request).encode(),
            capture_output=True,
            env=self.environ,
            timeout=seconds,
            check=False,
        )
        return DirectRun(done.returncode, json.loads(done.stdout), done.stderr.decode())

    def write(self) -> Path:
        self.settings["plugin_roots"] = [str(self.root), str(self.plugins)]
        return super().write()

    @contextmanager
    def running(self, **more: Any) -> Iterator[Running]:
        """A running gateway; at the end its events are compared with the manifests."""
        with super().running(**more) as running:
            yield running
            check_declared_events(running)


def job_logs(running: Running, plugin: str | None = None) -> list[dict[str, Any]]:
    """The attempts so far, oldest first."""

    def read(tx: Any) -> list[dict[str, Any]]:
        seqs = [str(row[0]) for row in tx.all("attempts", before=2**62, limit=10_000)]
        return list(tx.dicts("attempts_by_seq", ids=json.dumps(seqs), results=True))

    rows = reversed(running.gateway.ledger.read(read))
    return [row for row in rows if plugin in (None, row["plugin"])]


def list_events(running: Running, plugin: str) -> list[dict[str, Any]]:
    """The events of succeeded jobs, in order."""
    return [
        event
        for row in job_logs(running, plugin)
        if row["status"] == "succeeded" and row["result"]
        for event in json.loads(row["result"]).get("events", [])
    ]


def check_declared_events(running: Running) -> None:
    """Fail if a bundled plugin emitted an event or a field that it does not declare."""
    for row in job_logs(running):
        loaded = running.gateway.compiled.registry.plugins.get(row["plugin"])
        if loaded is None or loaded.manifest.name not in NAMES or not row["result"]:
            continue
        for event in json.loads(row["result"]).get("events", []):
            problem = find_undeclared(loaded.manifest, row["command"], event)
            assert problem is None, f"{row['plugin']}: {problem}"


def find_undeclared(manifest: Manifest, command: str, event: dict[str, Any]) -> str | None:
    """What the manifest does not declare of this event, or None."""
    declared = manifest.command(command)
    assert declared is not None
    fields = {emission.event: set(emission.values) for emission in declared.values.emit}
    if ANY_EVENT in fields:
        return None
    if event["type"] not in fields:
        return f"{command} emitted {event['type']}, which values.emit does not list"
    unknown = set(event["payload"]) - fields[event["type"]] - ADDED_BY_THE_CORE
    if unknown:
        return f"{command} emitted {event['type']} with undeclared fields {sorted(unknown)}"
    return None


def ledger_text(running: Running) -> str:
    """The visible text of the ledger: job logs, jobs and notices."""

    def read(tx: Any) -> list[Any]:
        return [*tx.dicts("notices_after", after=0, limit=10_000)]

    rows = [*job_logs(running), *running.gateway.ledger.read(read)]
    return json.dumps(rows) + "".join(
        json.dumps(running.job(row["id"].rpartition("-")[0]), default=str)
        for row in job_logs(running)
    )


def process_arguments(site: Site) -> list[str]:
    """The command lines of the running processes of this site."""
    lines = []
    for pid in site.alive():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        lines.append(os.fsdecode(raw.replace(b"\0", b" ")))
    return lines
