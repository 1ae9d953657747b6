"""The one command that repairs what `job why` explains, if there is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from shlex import quote
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.prepare import PluginPlan
from ductile.core.pipelines.graph import SWITCH_PLUGIN, WAIT_PLUGIN
from ductile.core.values.suggest import nearest
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.enqueue import enable_command
from ductile.errors import Path, dotted
from ductile.operations.config.fixes import open_in_editor
from ductile.plugins.validate import find_similar_interpreter
from ductile.runner.exec_errors import first_line, has_crlf_shebang, missing_interpreter
from ductile.store.engines.api import Tx
from ductile.store.flow.pauses import load_pauses

REPEATABLE = frozenset({"failed", "timed_out", "dead"})


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
        return _correct_program(plugin, compiled) + f"ductile job retry {id}"
    for kind, _, place in find_unrouted(job, compiled):
        if place is not None:
            path, value = quote(dotted(place)), quote(kind)
            return f"ductile config set {path} {value} && ductile system reload"
    if job["status"] == "succeeded" and (found := _find_false_condition(tx, id, compiled)):
        return open_in_editor(*found)
    if job["status"] == "succeeded" and plugin == SWITCH_PLUGIN and job.get("pipeline"):
        step = f"{job['pipeline']}/{job['step_path']}"
        return f"ductile pipeline dry-run {quote(step)} --job {id}"
    if job["status"] != "queued" or waits_for is None:
        return None
    return _release(tx, job, compiled, served=served, now=now)


def find_unrouted(
    job: Mapping[str, Any], compiled: CompiledConfig
) -> Iterator[tuple[str, str | None, Path | None]]:
    """The types of its events that nothing names, each with the nearest one and its setting."""
    if job["status"] != "succeeded" or not isinstance(job["result"], dict):
        return
    router, plugin = compiled.tx_config.router, job["plugin"]
    place = (job.get("pipeline") or "", job.get("step_path") or "")
    events = [each for each in job["result"].get("events") or () if isinstance(each, dict)]
    for kind in dict.fromkeys(str(event.get("type")) for event in events):
        if not router.has_target(plugin, *place, kind):
            close = nearest(kind, named_types(compiled, plugin))
            yield kind, close, None if close is None else _find_trigger(compiled, plugin, close)


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


def _correct_program(plugin: str, compiled: CompiledConfig) -> str:
    """What has to be done before a retry can succeed; empty if nothing is known."""
    if plugin in compiled.registry.disabled:
        return f"{enable_command(plugin)} && "
    plan = compiled.plans.get(plugin)
    flaw = None if plan is None else find_entrypoint_flaw(plan)
    return "" if flaw is None or not flaw.corrects else f"{flaw.run} && "


@dataclass(frozen=True, slots=True)
class EntrypointFlaw:
    """Why the kernel does not start an entrypoint."""

    what: str
    why: str
    run: str
    corrects: bool = True


def find_entrypoint_flaw(plan: PluginPlan) -> EntrypointFlaw | None:
    """What the first line of an entrypoint names that is not there."""
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
    search_path = plan.env.get("PATH", "")
    missing = missing_interpreter(first_line(entrypoint) or b"", search_path)
    if missing is None:
        return None
    close = find_similar_interpreter(missing, search_path)
    run = f"sed -i {quote(f'1s|{missing}|{close}|')} {file}" if close else f"command -v {missing}"
    what, why = f"{missing} is missing", f"the first line of {entrypoint} names it"
    return EntrypointFlaw(what, why, run, corrects=close is not None)


def _release(
    tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig, *, served: bool, now: datetime
) -> str | None:
    """The command that lets a queued job run."""
    plugin = job["plugin"]
    if plugin == WAIT_PLUGIN:
        return "ductile approval list"
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
    return None if served else "ductile system start"
