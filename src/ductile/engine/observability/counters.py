"""Counters of attempts and of the runner, with a bounded number of label values."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from ductile.engine.config.compiled import CompiledConfig
from ductile.model import CORE_PREFIX, JobStatus, Settlement

WAIT_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600)
DURATION_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
RESPONSE_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30)
OTHER = "other"
MAX_SERIES = 1000
"""Pairs of plugin and command; repeated reloads may introduce more."""


class Histogram:
    """Number of values per bucket. Not thread-safe."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        copied = Histogram(self.bounds)
        copied.counts, copied.sum = self.counts.copy(), self.sum
        return copied


Command = tuple[str, str]


class Counters:
    """Counts of one node since its start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: Counter[tuple[str, str, str]] = Counter()
        self._durations: dict[Command, Histogram] = {}
        self._waits: dict[str, Histogram] = {}
        self._runner: Counter[str] = Counter()
        self._dead_man: Counter[str] = Counter()
        self.dead_man_error: str | None = None
        """Why the last request to the outside monitor failed."""

    def count_settlement(self, settlement: Settlement, compiled: CompiledConfig) -> None:
        """Count an attempt whose settlement is durable."""
        job, outcome = settlement.job, _name_outcome(settlement)
        plugin, command = self._choose_labels(compiled, job.plugin, job.command)
        waited = None
        if job.attempt == 1 and job.started_at is not None:
            waited = max((job.started_at - job.created_at).total_seconds(), 0.0)
        with self._lock:
            self._attempts[plugin, command, outcome] += 1
            durations = self._durations.get((plugin, command))
            if durations is None:
                durations = self._durations[plugin, command] = Histogram(DURATION_SECONDS)
            durations.add(settlement.duration)
            if waited is not None:
                waits = self._waits.get(plugin)
                if waits is None:
                    waits = self._waits[plugin] = Histogram(WAIT_SECONDS)
                waits.add(waited)

    def _choose_labels(self, compiled: CompiledConfig, plugin: str, command: str) -> Command:
        """Labels from the configuration: rows may contain any name."""
        name = choose_plugin_label(compiled, plugin)
        plan = compiled.plans.get(plugin)
        labels = name, command if plan is not None and command in plan.commands else OTHER
        if labels not in self._durations and len(self._durations) >= MAX_SERIES:
            return OTHER, OTHER
        return labels

    def count_runner_event(self, name: str) -> None:
        with self._lock:
            self._runner[name] += 1

    def count_dead_man(self, error: str | None) -> None:
        """Count a request to the outside monitor, and keep why it failed."""
        with self._lock:
            self._dead_man["ok" if error is None else "failed"] += 1
            self.dead_man_error = error

    def read_dead_man(self) -> dict[str, int]:
        """Requests to the outside monitor by outcome."""
        with self._lock:
            return dict(self._dead_man)

    def read_attempts(self) -> dict[tuple[str, str, str], int]:
        """By plugin, command and outcome."""
        with self._lock:
            return dict(self._attempts)

    def read_durations(self) -> dict[Command, Histogram]:
        with self._lock:
            return {key: histogram.copy() for key, histogram in self._durations.items()}

    def read_waits(self) -> dict[str, Histogram]:
        """Seconds from enqueue to the start of the first attempt, by plugin."""
        with self._lock:
            return {key: histogram.copy() for key, histogram in self._waits.items()}

    def read_runner_events(self) -> dict[str, int]:
        with self._lock:
            return dict(self._runner)


def choose_plugin_label(compiled: CompiledConfig, plugin: str) -> str:
    """A loaded plugin, `core` or `other`: rows may contain any number of names."""
    if plugin in compiled.plans:
        return plugin
    return "core" if plugin.startswith(CORE_PREFIX) else OTHER


def _name_outcome(settlement: Settlement) -> str:
    if settlement.cancelled:
        return "cancelled"
    if settlement.path[0] is JobStatus.QUEUED:
        return "released"
    return settlement.path[0].value
