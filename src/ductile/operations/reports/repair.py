"""The one command that repairs what `job why` explains, if there is one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from shlex import quote
from typing import Any

from ductile.core.pipelines.graph import SWITCH_PLUGIN, WAIT_PLUGIN
from ductile.engine.config.compiled import CompiledConfig
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
        return f"ductile job retry {id}"
    if job["status"] == "succeeded" and plugin == SWITCH_PLUGIN and job.get("pipeline"):
        step = f"{job['pipeline']}/{job['step_path']}"
        return f"ductile pipeline dry-run {quote(step)} --job {id}"
    if job["status"] != "queued" or waits_for is None:
        return None
    return _release(tx, job, compiled, served=served, now=now)


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
