"""The one command that repairs what `job why` explains, if there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from shlex import quote
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.commands import INIT
from ductile.core.jobs.prepare import PluginPlan
from ductile.core.pipelines.graph import SWITCH_PLUGIN, WAIT_PLUGIN
from ductile.core.values.suggest import nearest
from ductile.core.waits.parse import WaitKind
from ductile.engine.config.check_plugins import declares_only_others, list_declared_events
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.enqueue import enable_command
from ductile.errors import Path, dotted
from ductile.operations.config.fixes import open_in_editor
from ductile.operations.reports.failed_attempts import RELOAD, REPEATABLE, find_cause
from ductile.operations.reports.waits_for import find_setting
from ductile.operations.waits.describe import find_open_wait
from ductile.plugins.validate import find_similar_interpreter
from ductile.runner.exec_errors import first_line, has_crlf_shebang, missing_interpreter
from ductile.store.engines.api import Tx
from ductile.store.flow.pauses import load_pauses
from ductile.store.jobs.read import JobFilter, describe_job, list_jobs

MOST_TYPES = 20
"""Unrouted event types of one job that are explained."""


def find_repair(
    tx: Tx,
    job: Mapping[str, Any],
    compiled: CompiledConfig,
    waits_for: str | None,
    *,
    served: bool,
    now: datetime,
) -> str | None:
    """A command line without `--config`; None where nothing is to be repaired."""
    id, plugin = job["id"], job["plugin"]
    if job["status"] in REPEATABLE:
        return _retry(tx, job, compiled)
    for event in find_unrouted(job, compiled):
        if event.at is not None and event.value:
            path, value = quote(dotted(event.at)), quote(event.value)
            return f"ductile config set {path} {value} && {RELOAD}"
    if job["status"] == "succeeded" and (found := _find_false_condition(tx, id, compiled)):
        return open_in_editor(*found)
    if job["status"] == "succeeded" and plugin == SWITCH_PLUGIN and job.get("pipeline"):
        step = f"{job['pipeline']}/{job['step_path']}"
        return f"ductile pipeline dry-run {quote(step)} --job {id}"
    if job["status"] != "queued" or waits_for is None:
        return None
    return _release(tx, job, compiled, waits_for, served=served, now=now)


@dataclass(frozen=True, slots=True)
class UnroutedEvent:
    """An event type that led nowhere, and the setting that was probably meant to name it."""

    kind: str
    close: str | None = None
    """The nearest type that a pipeline or route names."""
    at: Path | None = None
    value: str = ""
    """What the setting has to be; empty if that is not known."""


def _list_emitted(job: Mapping[str, Any]) -> list[str]:
    """The types of its events."""
    if job["status"] != "succeeded" or not isinstance(job["result"], dict):
        return []
    events = [each for each in job["result"].get("events") or () if isinstance(each, dict)]
    return [*dict.fromkeys(str(event.get("type")) for event in events)]


def list_unrouted(job: Mapping[str, Any], compiled: CompiledConfig) -> list[str]:
    """Those that nothing names."""
    place = (job["plugin"], job.get("pipeline") or "", job.get("step_path") or "")
    has_target = compiled.tx_config.router.has_target
    return [kind for kind in _list_emitted(job) if not has_target(*place, kind)]


def find_unrouted(job: Mapping[str, Any], compiled: CompiledConfig) -> Iterator[UnroutedEvent]:
    """The first of these types, each with the nearest one that is named, and its setting."""
    plugin, kinds = job["plugin"], list_unrouted(job, compiled)[:MOST_TYPES]
    named, declared = named_types(compiled, plugin), list_declared_events(compiled.registry)
    emitted = {*_list_emitted(job)}
    for kind in kinds:
        close = nearest(kind, named)
        if close == kind:
            source = _find_source(compiled, kind)
            at, other = (None, "") if source is None else source
            # Else the setting may leave out the events of this plugin on purpose.
            is_wrong = declares_only_others(compiled.registry, other, kind)
            yield UnroutedEvent(kind, close, at, plugin if is_wrong else "")
        else:
            # A setting that means another event is left alone.
            at = None
            if close and close not in emitted and nearest(close, {*kinds, *declared}) == kind:
                at = _find_trigger(compiled, plugin, close)
            yield UnroutedEvent(kind, close, at, kind)


def _find_source(compiled: CompiledConfig, kind: str) -> tuple[Path, str] | None:
    """The `from_plugin` of a pipeline that starts on this type, and the plugin that it names."""
    for pipeline in compiled.tx_config.router.pipelines.values():
        if pipeline.on == kind and pipeline.from_plugin is not None:
            return (*pipeline.at, "from_plugin"), pipeline.from_plugin
    return None


def named_types(compiled: CompiledConfig, plugin: str) -> set[str]:
    """The event types that pipelines name, and the routes from this plugin."""
    router = compiled.tx_config.router
    routed = {kind for source, kind in router.routes if source == plugin}
    return routed | {kind for kind, _ in router.triggers}


def _find_trigger(compiled: CompiledConfig, plugin: str, kind: str) -> Path | None:
    """The setting of a pipeline or route that names this event type."""
    for pipeline in compiled.tx_config.router.pipelines.values():
        if pipeline.on == kind and pipeline.from_plugin in (None, plugin):
            return (*pipeline.at, "on")
    for index, route in enumerate(compiled.settings.routes):
        if (route.from_, route.event_type) == (plugin, kind):
            return ("routes", index, "event_type")
    return None


def _find_false_condition(
    tx: Tx, job_id: str, compiled: CompiledConfig
) -> tuple[str, int | None] | None:
    """The place of the `if` for which an event of this job did not start a pipeline."""
    for notice in tx.dicts("notices_of_job", id=job_id):
        if notice["type"] == "event.unrouted":
            name = orjson.loads(notice["payload"])["pipeline"]
            pipeline = compiled.tx_config.router.pipelines.get(name)
            if pipeline is not None and pipeline.condition is not None:
                file, line, _ = compiled.loaded.locate((*pipeline.at, "if"))
                return None if file is None else (file, line)
    return None


def _retry(tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig) -> str:
    """The retry of a failed job, after what has to be done before it can succeed."""
    plugin, again = job["plugin"], f"ductile job retry {job['id']}"
    if plugin in compiled.registry.disabled:
        return f"{enable_command(plugin)} && {again}"
    plan = compiled.plans.get(plugin)
    flaw = None if plan is None else find_entrypoint_flaw(plan)
    if flaw is not None and flaw.corrects:
        return f"{flaw.run} && {again}"
    cause = find_cause(tx, job, compiled)
    if cause is None:
        return again
    return " && ".join((*cause.run, again) if cause.has_retry else cause.run)


@dataclass(frozen=True, slots=True)
class EntrypointFlaw:
    """Why the kernel does not start an entrypoint."""

    what: str
    why: str
    run: str
    corrects: bool = True


def find_entrypoint_flaw(plan: PluginPlan) -> EntrypointFlaw | None:
    """What its first line names that is not there, or that a text file has none."""
    entrypoint = plan.argv[-1]
    if len(plan.argv) > 1:
        return None  # It is not started by its first line.
    file = quote(entrypoint)
    if has_crlf_shebang(entrypoint):
        return EntrypointFlaw(
            f"{entrypoint} has CRLF line endings",
            "the kernel takes the carriage return as part of the interpreter's name",
            f"sed -i 's/\\r$//' {file}",
        )
    line, search_path = first_line(entrypoint), plan.env.get("PATH", "")
    # Programs in a format of their own begin with other bytes.
    is_text = line is not None and line.replace(b"\t", b"").decode("latin-1").isprintable()
    if is_text and not (line or b"").startswith(b"#!"):
        return EntrypointFlaw(
            f"{entrypoint} has no `#!` line",
            "a program in a script language names its interpreter in its first line",
            open_in_editor(entrypoint, 1),
            corrects=False,
        )
    missing = missing_interpreter(line or b"", search_path)
    if missing is None:
        return None
    close = find_similar_interpreter(missing, search_path)
    # Another text might mean something to sed.
    is_plain = re.fullmatch(r"[\w./+-]+", missing) is not None
    edit = quote(f"1s|{missing}|{close}|") if close and is_plain else None
    run = f"sed -i {edit} {file}" if edit else f"command -v {quote(missing)}"
    what, why = f"{missing} is missing", f"the first line of {entrypoint} names it"
    return EntrypointFlaw(what, why, run, corrects=edit is not None)


def _release(
    tx: Tx,
    job: Mapping[str, Any],
    compiled: CompiledConfig,
    waits_for: str,
    *,
    served: bool,
    now: datetime,
) -> str | None:
    """The command that lets a queued job run."""
    plugin = job["plugin"]
    if plugin == WAIT_PLUGIN and (wait := find_open_wait(tx, job["id"])):
        return "ductile approval list" if wait.kind == WaitKind.APPROVAL else None
    if job.get("next_retry_at"):
        return f"ductile job retry {job['id']}"
    if plugin in compiled.held() or not compiled.expects(plugin):
        return f"ductile plugin validate {quote(plugin)}" if plugin in compiled.held() else None
    pauses = load_pauses(tx, now)
    if pauses.system is not None:
        return "ductile system resume"
    if plugin in pauses.plugins:
        return f"ductile plugin resume {quote(plugin)}"
    if (pipeline := job.get("pipeline")) and pipeline in pauses.pipelines:
        return f"ductile pipeline resume {quote(pipeline)}"
    if not served:
        return "ductile system start"
    if "its init failed" in waits_for and (init := find_failed_init(tx, plugin)):
        return _retry(tx, init, compiled)
    at = find_setting(tx, job, compiled, waits_for)
    if at is None:
        return None
    file, line, _ = compiled.loaded.locate(at)
    return f"{open_in_editor(file, line)} && {RELOAD}"


def find_failed_init(tx: Tx, plugin: str) -> dict[str, Any] | None:
    """The last `init` of a plugin, if it has failed."""
    rows = list_jobs(tx, JobFilter(plugin=plugin, command=INIT), limit=1)
    found = describe_job(tx, rows[0]["id"]) if rows else None
    return found if found is not None and found["status"] in REPEATABLE else None
