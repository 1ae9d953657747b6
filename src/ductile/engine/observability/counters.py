"""What passes by, counted where it passes: a few additions each, and labels that stay few."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from ductile.engine.config.compiled import CompiledConfig
from ductile.model import CORE_PREFIX, JobStatus, Settlement

WAITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600, 3600)
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
ANSWERS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30)
OTHER = "other"
MOST_SERIES = 1000
"""Of plugins and commands; a configuration that is reloaded again and again may name more."""


class Histogram:
    """How many values were not above each bound. Whoever shares one holds a lock."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        twin = Histogram(self.bounds)
        twin.counts, twin.sum = self.counts.copy(), self.sum
        return twin


Command = tuple[str, str]


class Counters:
    """Counts of one node since its start. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: Counter[tuple[str, str, str]] = Counter()
        self._durations: dict[Command, Histogram] = {}
        self._waits: dict[str, Histogram] = {}
        self._runner: Counter[str] = Counter()

    def settled(self, settlement: Settlement, compiled: CompiledConfig) -> None:
        """An attempt's end is durable."""
        job, outcome = settlement.job, _outcome(settlement)
        plugin, command = self._labels(compiled, job.plugin, job.command)
        waited = None
        if job.attempt == 1 and job.started_at is not None:
            waited = max((job.started_at - job.created_at).total_seconds(), 0.0)
        with self._lock:
            self._attempts[plugin, command, outcome] += 1
            durations = self._durations.get((plugin, command))
            if durations is None:
                durations = self._durations[plugin, command] = Histogram(DURATIONS)
            durations.add(settlement.duration)
            if waited is not None:
                waits = self._waits.get(plugin)
                if waits is None:
                    waits = self._waits[plugin] = Histogram(WAITS)
                waits.add(waited)

    def _labels(self, compiled: CompiledConfig, plugin: str, command: str) -> Command:
        """Rows may name anything; what is told of them is what the configuration names."""
        name = plugin_label(compiled, plugin)
        plan = compiled.plans.get(plugin)
        labels = name, command if plan is not None and command in plan.commands else OTHER
        if labels not in self._durations and len(self._durations) >= MOST_SERIES:
            return OTHER, OTHER
        return labels

    def runner_event(self, name: str) -> None:
        with self._lock:
            self._runner[name] += 1

    def attempts(self) -> dict[tuple[str, str, str], int]:
        """By plugin, command and outcome."""
        with self._lock:
            return dict(self._attempts)

    def durations(self) -> dict[Command, Histogram]:
        with self._lock:
            return {key: histogram.copy() for key, histogram in self._durations.items()}

    def waits(self) -> dict[str, Histogram]:
        """From enqueue to start of first attempts, by plugin."""
        with self._lock:
            return {key: histogram.copy() for key, histogram in self._waits.items()}

    def runner_events(self) -> dict[str, int]:
        with self._lock:
            return dict(self._runner)


def plugin_label(compiled: CompiledConfig, plugin: str) -> str:
    """The plugins that are loaded are few; rows may name any number of others."""
    if plugin in compiled.plans:
        return plugin
    return "core" if plugin.startswith(CORE_PREFIX) else OTHER


def _outcome(settlement: Settlement) -> str:
    if settlement.cancelled:
        return "cancelled"
    if settlement.path[0] is JobStatus.QUEUED:
        return "released"
    return settlement.path[0].value
