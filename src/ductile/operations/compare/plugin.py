"""`plugin compare`: a changed plugin on the recorded requests of past jobs.

Each job is repeated with what the ledger has of its request, in the sandbox of comparisons. The
ledger is only read, workspaces are copies, and nothing that follows from a job is routed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.prepare import PluginPlan
from ductile.core.values.differences import IgnoredPaths
from ductile.core.values.redact import Redactor
from ductile.core.values.suggest import did_you_mean
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused, UsageError
from ductile.model import CORE_PREFIX, MIB, Job
from ductile.operations.compare.confinement import MAX_JOB_SECONDS, confine, describe_sandbox
from ductile.operations.compare.recorded import (
    Candidate,
    NotRecorded,
    RecordedAttempt,
    StateHistory,
    list_candidates,
    load_attempt,
    read_state_history,
)
from ductile.operations.compare.temporary_slot import (
    TemporarySlot,
    describe_attempt,
    describe_settled,
)
from ductile.operations.compare.verdict import Verdict, judge_attempt, summarize
from ductile.operations.dry_run.plugin import with_plugin
from ductile.operations.dry_run.sandbox import measure_tree, sandbox

Document = dict[str, Any]
PAGE_JOBS, PAGE_SECONDS = 20, 3.0
"""Maximum number of jobs per call, and the time after which it begins no further one."""
MAX_WORKSPACE = 256 * MIB


@dataclass(frozen=True, slots=True)
class PluginComparison:
    """What to compare."""

    plugin: str
    directory: Path | None = None
    """Of the changed plugin; None: that of the plugin roots, as its files are now."""
    limit: int = 50
    since: datetime | None = None
    before: int | None = None
    """The cursor of the previous page."""
    ignored: IgnoredPaths = IgnoredPaths()
    allow_network: bool = False


def build_changed(services: Services, name: str, directory: Path | None) -> CompiledConfig:
    """The configuration in force with the plugin's files as they are now, or those elsewhere.

    The seal in force holds for the plugin roots; another directory is not sealed.
    """
    if name.startswith(CORE_PREFIX):
        raise UsageError(f"{name} is part of the gateway; it cannot be compared")
    loaded = services.compiled.loaded
    if directory is not None:
        directory = directory.parent.resolve() / directory.name
        loaded = with_plugin(loaded, name, None, directory.parent)
        # First, because the first root that has a plugin is the one that counts.
        roots = (
            directory.parent,
            *(r for r in loaded.settings.plugin_roots if r != directory.parent),
        )
        settings = loaded.settings.model_copy(update={"plugin_roots": roots})
        loaded = replace(loaded, settings=settings)
    fresh = build(loaded, boot_marker="", environ=services.environ)
    plugin = fresh.registry.plugins.get(name)
    if directory is not None and (plugin is None or plugin.directory != directory):
        raise Refused(_why_not_there(fresh, name, directory))
    if plugin is None:
        refusal = fresh.registry.refusal(name)
        if refusal is not None:
            raise Refused(f"plugin {name} is refused: {refusal.reason}")
        hint = did_you_mean(name, fresh.registry.plugins)
        raise NotFound(f"there is no plugin {name!r}{hint}", plugin=name)
    return fresh


def _why_not_there(compiled: CompiledConfig, name: str, directory: Path) -> str:
    for refusal in compiled.registry.refused:
        if refusal.path in (directory, directory.parent):
            return f"the plugin in {directory} is refused: {refusal.reason}"
    for shadowed in compiled.registry.shadowed:
        if shadowed.path == directory:
            return (
                f"{shadowed.by} has a plugin with the same name; move {directory} into a "
                "directory without other versions of it"
            )
    return f"{directory} has no plugin that {name} uses; its manifest must name that plugin"


def compare_plugin(
    services: Services,
    wanted: PluginComparison,
    slot: TemporarySlot,
    begin: Callable[[CompiledConfig, Sequence[str]], None] = lambda _compiled, _commands: None,
) -> Document:
    """A page of jobs, newest first, each with its verdict; `cursor` leads to the next page.

    `begin` is called before the first process starts. It raises unless the caller may run these
    commands as the changed plugin declares them.
    """
    changed = build_changed(services, wanted.plugin, wanted.directory)
    directory = services.state_dir / "sandbox" / services.entropy.uuid()
    plan = confine(
        changed,
        wanted.plugin,
        allow_network=wanted.allow_network,
        reads_everything=True,
        temporary=directory,
    )
    count = min(wanted.limit, PAGE_JOBS)
    found, next_before = services.ledger.read(
        lambda tx: list_candidates(tx, wanted.plugin, wanted.since, wanted.before, count)
    )
    if not found and wanted.before is None and next_before is None:
        raise NotFound(f"plugin {wanted.plugin} has no job that has ended to compare with")
    comparing = _Comparing(services, changed, plan, wanted, slot)
    rows = []
    if found:
        begin(changed, sorted({each.command for each in found} & plan.commands))
        with slot.open(directory):
            rows = [comparing.compare(each.job_id) for each in comparing.in_time(found)]
    if len(rows) < len(found):
        next_before = found[len(rows) - 1].seq
    plugin, running = changed.registry.plugins[wanted.plugin], services.compiled.registry.plugins
    loaded = running.get(wanted.plugin)
    page = {
        "plugin": wanted.plugin,
        "directory": str(plugin.directory),
        "version": plugin.manifest.version,
        "fingerprint": plugin.fingerprint,
        "is_loaded": loaded is not None and loaded.fingerprint == plugin.fingerprint,
        "sandbox": describe_sandbox(plan),
        "jobs": rows,
        "summary": summarize(rows),
        "cursor": None if len(rows) >= wanted.limit else next_before,
    }
    shown: Document = comparing.redactor.document(page)
    return shown


class _Comparing:
    """One page of a comparison."""

    def __init__(
        self,
        services: Services,
        changed: CompiledConfig,
        plan: PluginPlan,
        wanted: PluginComparison,
        slot: TemporarySlot,
    ) -> None:
        self._services, self._changed, self._plan = services, changed, plan
        self._wanted, self._slot = wanted, slot
        running = services.compiled
        # What the changed manifest no longer marks as a secret stays one.
        self.redactor = Redactor(running.loaded.secrets | changed.loaded.secrets)
        self._history: StateHistory | None = None

    def in_time(self, candidates: Sequence[Candidate]) -> Iterator[Candidate]:
        monotonic = self._services.clock.monotonic
        until = monotonic() + PAGE_SECONDS
        for each in candidates:
            self._slot.check()
            yield each
            if monotonic() >= until:
                return

    def compare(self, job_id: str) -> Document:
        row: Document = {"job_id": job_id}
        try:
            attempt = self._services.ledger.read(lambda tx: load_attempt(tx, job_id))
            row |= {
                "command": attempt.job.command,
                "recorded_duration_ms": attempt.duration_ms,
            }
            return {**row, **self._repeat(attempt)}
        except NotRecorded as error:
            return {**row, "verdict": Verdict.NOT_COMPARED.value, "reason": str(error)}

    def _repeat(self, attempt: RecordedAttempt) -> Document:
        services, job = self._services, attempt.job
        router = self._changed.tx_config.router
        lost = job.pipeline and router.lost(job.pipeline, job.step_path, job.plugin, job.command)
        if lost:
            raise NotRecorded(lost)
        if (attempt.duration_ms or 0) > MAX_JOB_SECONDS * 1000:
            raise NotRecorded(
                f"it took {(attempt.duration_ms or 0) / 1000:.0f} s; "
                f"a comparison ends a job after {MAX_JOB_SECONDS:.0f} s"
            )
        if self._history is None:
            self._history = read_state_history(services.ledger, services.compiled, job.plugin)
        before = self._history.before(attempt.started_at)
        notes = [*attempt.notes, *(f"state: {note}" for note in before.notes)]
        with ExitStack() as stack:
            workspace = None
            if services.compiled.workspaces.wants(job):
                self._check_workspace(job)
                workspace, _ = stack.enter_context(sandbox(services, job))
                missing = services.compiled.workspaces.describe_missing_files(job)
                notes += [] if missing is None else [missing]
            settlement = self._slot.repeat(
                self._changed,
                self._plan,
                job,
                router.node(job.pipeline, job.step_path),
                state=before.state,
                context=attempt.context,
                workspace=workspace,
                now=services.clock.now(),
                entropy=services.entropy,
            )
        recorded = describe_attempt(attempt.status, attempt.error, attempt.response, self.redactor)
        repeated = describe_settled(settlement, self.redactor)
        verdict, differences = judge_attempt(recorded, repeated, self._wanted.ignored)
        return {
            "verdict": verdict.value,
            "duration_ms": round(settlement.duration * 1000, 1),
            **differences,
            "notes": notes,
        }

    def _check_workspace(self, job: Job) -> None:
        source = self._services.compiled.workspaces.find_source(job)
        if source is not None and measure_tree(source, MAX_WORKSPACE) > MAX_WORKSPACE:
            raise NotRecorded(f"its workspace has more than {MAX_WORKSPACE // MIB} MiB")
