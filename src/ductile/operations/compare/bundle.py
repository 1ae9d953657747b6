"""`job bundle`: everything about one job in one document, without secrets.

Made to be attached to a report, and to be repeated elsewhere (`job rerun`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

import ductile
from ductile.clock import to_text
from ductile.config.redact import redact_settings
from ductile.core.jobs.prepare import Unrunnable, prepare
from ductile.core.values.redact import REDACTED
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.services import Services
from ductile.errors import Refused
from ductile.model import MIB
from ductile.operations.compare.bundle_files import MAX_LEFT_OUT, collect_files
from ductile.operations.compare.recorded import (
    NotRecorded,
    RecordedAttempt,
    load_attempt,
    read_state_history,
)
from ductile.operations.compare.removal import SecretRemover
from ductile.operations.jobs import load_job
from ductile.store.engines.api import Tx

Document = dict[str, Any]
FORMAT, VERSION = "ductile.job-bundle", 1
MAX_BUNDLE = 32 * MIB
_ATTEMPT = (
    *("attempt", "status", "started_at", "completed_at", "duration_ms", "last_error"),
    *("stdout", "stderr", "logs", "result"),
)


def make_bundle(services: Services, job_id: str) -> Document:
    """The bundle of a job that has ended; `Refused` for others."""
    compiled = services.compiled

    def read(tx: Tx) -> tuple[RecordedAttempt, bool]:
        load_job(tx, job_id)
        attempt = load_attempt(tx, job_id)
        in_force = compiled.loaded.config_hash
        return attempt, tx.one("started_under", id=job_id, config_hash=in_force) is not None

    try:
        attempt, is_exact = services.ledger.read(read)
    except NotRecorded as error:
        raise Refused(f"job {job_id} cannot be bundled: {error}") from None
    plugin = attempt.job.plugin
    plan = compiled.plans.get(plugin)
    environment = {} if plan is None else plan.env
    remover = SecretRemover(compiled.loaded.secrets, environment)
    request, notes = _describe_request(services, attempt, remover)
    if not is_exact:
        notes.append("the job started under another configuration than the one of this bundle")
    document: Document = {
        "format": FORMAT,
        "version": VERSION,
        "made_at": to_text(services.clock.now()),
        "ductile": ductile.__version__,
        "job": _describe_job(attempt, remover),
        "request": request,
        "outcome": _describe_outcome(attempt, remover),
        "attempts": [
            remover.document({key: row.get(key) for key in _ATTEMPT}) for row in attempt.log
        ],
        "plugin": _describe_plugin(compiled, plugin),
        "environment": sorted(map(remover.text, environment)),
        "configuration": {
            "in_force": compiled.snapshot_id,
            "is_that_of_the_job": is_exact,
        },
        "workspace": _describe_workspace(services, attempt, remover),
        "notes": notes,
    }
    text = orjson.dumps(document)
    if len(text) > MAX_BUNDLE:
        raise Refused(f"the bundle of job {job_id} would exceed {MAX_BUNDLE // MIB} MiB")
    return {**document, "removed": text.count(REDACTED.encode())}


def _describe_job(attempt: RecordedAttempt, remover: SecretRemover) -> Document:
    job = attempt.job
    described: Document = remover.document(
        {
            "id": job.id,
            "plugin": job.plugin,
            "command": job.command,
            "attempt": job.attempt,
            "max_attempts": job.max_attempts,
            "submitted_by": job.submitted_by,
            "created_at": to_text(job.created_at),
            "pipeline": job.pipeline or None,
            "step": job.step_path or None,
        }
    )
    # Its name must not make it one of those keys that are removed.
    return {**described, "dedupe": job.dedupe_key is not None}


def _describe_request(
    services: Services, attempt: RecordedAttempt, remover: SecretRemover
) -> tuple[Document, list[str]]:
    """The request with the configuration of the plugin, and what differs from the original."""
    compiled, plugin = services.compiled, attempt.job.plugin
    before = read_state_history(services.ledger, compiled, plugin).before(attempt.started_at)
    request, why_not = _build_request(services, attempt, before.state)
    shown: Document = remover.document(request)
    shown["config"] = remover.document(_redacted_config(compiled, plugin))
    return shown, [*attempt.notes, *(f"state: {note}" for note in before.notes), *why_not]


def _describe_outcome(attempt: RecordedAttempt, remover: SecretRemover) -> Document:
    return {
        "status": attempt.status,
        "error": None if attempt.error is None else remover.text(attempt.error),
        "response": remover.document(attempt.response),
        "duration_ms": attempt.duration_ms,
    }


def _build_request(
    services: Services, attempt: RecordedAttempt, state: Mapping[str, Any]
) -> tuple[Document, list[str]]:
    """The request as the plugin received it, or what the ledger has of it, and what is missing."""
    compiled, job = services.compiled, attempt.job
    plan, router = compiled.plans.get(job.plugin), compiled.tx_config.router
    raw = {
        "job_id": job.id,
        "command": job.command,
        "payload": job.payload,
        "context": dict(attempt.context),
        "state": dict(state),
    }
    if plan is None:
        return raw, [f"plugin {job.plugin} is not loaded; the request is as it was enqueued"]
    lost = job.pipeline and router.lost(job.pipeline, job.step_path, job.plugin, job.command)
    if lost:
        return raw, [f"{lost}; the request is as it was enqueued"]
    node = router.node(job.pipeline, job.step_path)
    text = orjson.dumps(dict(state)).decode()
    ready = prepare(job, text, attempt.context, plan, node, services.clock.now())
    if isinstance(ready, Unrunnable):
        return raw, [f"{ready.reason}; the request is as it was enqueued"]
    request: Document = orjson.loads(ready.launch.request)
    request.pop("deadline_at", None)
    return request, []


def _redacted_config(compiled: CompiledConfig, plugin: str) -> Document:
    plugins = redact_settings(compiled.settings).get("plugins")
    own = plugins.get(plugin) if isinstance(plugins, dict) else None
    config = own.get("config") if isinstance(own, dict) else None
    return config if isinstance(config, dict) else {}


def _describe_plugin(compiled: CompiledConfig, name: str) -> Document:
    """The loaded plugin: what it was when the job ran is not recorded."""
    plugin = compiled.registry.plugins.get(name)
    if plugin is None:
        return {"name": name, "loaded": False}
    sandbox = compiled.plans[name].sandbox
    return {
        "name": name,
        "loaded": True,
        "manifest_name": plugin.manifest.name,
        "version": plugin.manifest.version,
        "protocol": plugin.manifest.protocol,
        "fingerprint": plugin.fingerprint,
        "sandbox": None if sandbox is None else sandbox.spec.level,
    }


def _describe_workspace(
    services: Services, attempt: RecordedAttempt, remover: SecretRemover
) -> Document:
    """The files that the job began with."""
    workspaces, job = services.compiled.workspaces, attempt.job
    if not workspaces.wants(job):
        return {"used": False, "files": [], "left_out": [], "more_left_out": 0}
    source = workspaces.find_source(job)
    found, left_out = ([], []) if source is None else collect_files(source, remover)
    return {
        "used": True,
        "files": found,
        "left_out": left_out[:MAX_LEFT_OUT],
        "more_left_out": max(len(left_out) - MAX_LEFT_OUT, 0),
    }
