"""A gateway over the bundled plugins, and a check that they emit what they declare."""

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
"""Declared by plugins whose config names what they emit."""
ADDED_BY_THE_CORE = {"result"}
"""The gateway copies an answer's `result` into the payloads that lack one."""


def interpreter_path(path: str) -> str:
    """A PATH on which `python3` is the bare interpreter, with no shim and no environment."""
    base = str(Path(getattr(sys, "_base_executable", sys.executable)).parent)
    return f"{base}:{path}"


@dataclass(frozen=True)
class Direct:
    """How a plugin that was run by hand ended."""

    code: int
    answer: dict[str, Any]
    stderr: str


class BundledSite(Site):
    """A site whose plugins are the repository's own; those not configured are disabled."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.root = PLUGINS
        self.environ["PATH"] = interpreter_path(self.environ["PATH"])
        self.settings["plugins"] = {name: {"enabled": False} for name in NAMES}

    def use(self, name: str, config: dict[str, Any] | None = None, **settings: Any) -> None:
        """Enable a bundled plugin (or an alias, with `uses`); it is tried once, not retried."""
        given = {"config": config or {}, "retry": {"max_attempts": 1}, **settings}
        self.settings["plugins"][name] = given

    def mutate(self, file: str, old: str, new: str) -> None:
        """Break one place of a private copy of the plugins, which then is what runs.

        `file` is relative to `plugins/`; `old` must stand there exactly once.
        """
        if self.root is PLUGINS:
            self.root = self.folder / "mutated"
            shutil.copytree(PLUGINS, self.root, ignore=shutil.ignore_patterns("__pycache__"))
        path = self.root / file
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
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
    ) -> Direct:
        """Run a plugin by hand, as the gateway would, but without one."""
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
            told = {"type": "test", "event_id": "e1", **(event or {})}
            request["event"] = {**told, "payload": request["payload"]}
        done = subprocess.run(
            [self.root / name / "run.py"],
            input=json.dumps(request).encode(),
            capture_output=True,
            env=self.environ,
            timeout=seconds,
            check=False,
        )
        return Direct(done.returncode, json.loads(done.stdout), done.stderr.decode())

    def write(self) -> Path:
        self.settings["plugin_roots"] = [str(self.root), str(self.plugins)]
        return super().write()

    @contextmanager
    def running(self, **more: Any) -> Iterator[Running]:
        """A gateway at work; what it emitted is compared with the manifests at the end."""
        with super().running(**more) as house:
            yield house
            refuse_undeclared(house)


def job_logs(house: Running, plugin: str | None = None) -> list[dict[str, Any]]:
    """The attempts so far, the oldest first."""

    def read(tx: Any) -> list[dict[str, Any]]:
        seqs = [str(row[0]) for row in tx.all("attempts", before=2**62, limit=10_000)]
        return list(tx.dicts("attempts_by_seq", ids=json.dumps(seqs), results=True))

    rows = reversed(house.gateway.ledger.read(read))
    return [row for row in rows if plugin in (None, row["plugin"])]


def emitted(house: Running, plugin: str) -> list[dict[str, Any]]:
    """Every event that took effect, in order."""
    return [
        event
        for row in job_logs(house, plugin)
        if row["status"] == "succeeded" and row["result"]
        for event in json.loads(row["result"]).get("events", [])
    ]


def refuse_undeclared(house: Running) -> None:
    """Fail where a bundled plugin emitted an event, or a field of one, without declaring it."""
    for row in job_logs(house):
        loaded = house.gateway.compiled.registry.plugins.get(row["plugin"])
        if loaded is None or loaded.manifest.name not in NAMES or not row["result"]:
            continue
        for event in json.loads(row["result"]).get("events", []):
            problem = undeclared(loaded.manifest, row["command"], event)
            assert problem is None, f"{row['plugin']}: {problem}"


def undeclared(manifest: Manifest, command: str, event: dict[str, Any]) -> str | None:
    """What of this event the manifest does not tell, if anything."""
    declared = manifest.command(command)
    assert declared is not None
    fields = {emission.event: set(emission.values) for emission in declared.values.emit}
    if ANY_EVENT in fields:
        return None
    if event["type"] not in fields:
        return f"{command} emitted {event['type']}, which its values.emit does not name"
    unknown = set(event["payload"]) - fields[event["type"]] - ADDED_BY_THE_CORE
    if unknown:
        return f"{command} emitted {event['type']} with undeclared fields {sorted(unknown)}"
    return None


def ledger_text(house: Running) -> str:
    """Everything that people are shown of the ledger: job logs, jobs and notices."""

    def read(tx: Any) -> list[Any]:
        return [*tx.dicts("notices_after", after=0, limit=10_000)]

    rows = [*job_logs(house), *house.gateway.ledger.read(read)]
    return json.dumps(rows) + "".join(
        json.dumps(house.job(row["id"].rpartition("-")[0]), default=str) for row in job_logs(house)
    )


def process_arguments(site: Site) -> list[str]:
    """The command lines of every process of this site that is alive now."""
    lines = []
    for pid in site.alive():
        try:
            raw = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        lines.append(os.fsdecode(raw.replace(b"\0", b" ")))
    return lines
