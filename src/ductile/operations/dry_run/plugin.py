"""`plugin test`: runs one plugin as a gateway would; nothing is committed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Entropy
from ductile.config import Loaded, Settings
from ductile.config.loader.nodes import Location, Locations
from ductile.config.models.plugin import PluginSettings
from ductile.core.jobs.judge import judge
from ductile.core.jobs.plugin_protocol import ProtocolError, Response, read_response
from ductile.core.jobs.prepare import PluginPlan, Ready, Unrunnable, prepare
from ductile.core.jobs.response_advice import Advice, Expected, advise
from ductile.core.values.redact import hide_secret_keys
from ductile.core.values.suggest import nearest
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Refused, Severity
from ductile.model import Ending, JobStatus, Json, Outcome, Settlement, make_unstored_job
from ductile.operations.dry_run.pipeline import describe_settlement, run_once
from ductile.plugins.manifest import Command
from ductile.store.jobs import plugin_state as states

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PluginTest:
    """What to run. `payload` is the job's: for `handle` the event's envelope, or its payload.

    `context` is what the job enters with, as the baggage of a pipeline.
    """

    plugin: str
    command: str
    payload: Json
    state: Mapping[str, Json]
    context: Mapping[str, Json] | None = None


def author_state_dir(environ: Mapping[str, str]) -> Path:
    """The directory for the environments of plugins that are run without a configuration."""
    cache = environ.get("XDG_CACHE_HOME") or ""
    return (Path(cache) if cache.startswith("/") else Path.home() / ".cache") / "ductile"


def unconfigured(directory: Path, name: str, config: Mapping[str, Json]) -> Loaded:
    """A configuration for one plugin directory, with defaults for everything else."""
    root = directory.parent
    settings = Settings.model_validate(
        {
            "plugin_roots": [root],
            "plugins": {name: {"config": dict(config)}},
            "state": {"dir": str(author_state_dir(os.environ))},
        },
        context={"config_dir": root},
    )
    nowhere = Locations({(): Location(str(directory), 1, 1)}, {})
    return Loaded(directory, settings, (), {}, frozenset(), None, "", nowhere)


def with_plugin(
    loaded: Loaded, name: str, config: Mapping[str, Json] | None, root: Path | None = None
) -> Loaded:
    """The configuration with another config for a plugin and, optionally, a first plugin root.

    Its checksums are not verified: a plugin under test is not locked yet.
    """
    settings = loaded.settings
    changes: Document = {}
    if root is not None and root not in settings.plugin_roots:
        changes["plugin_roots"] = (root, *settings.plugin_roots)
    if config is not None:
        own = settings.plugins.get(name) or PluginSettings()
        changed = own.model_copy(update={"config": dict(config)})
        changes["plugins"] = {**settings.plugins, name: changed}
    return replace(loaded, settings=settings.model_copy(update=changes), seal=None)


@dataclass(frozen=True, slots=True)
class Attempted:
    """One attempt that was run and judged, and not recorded."""

    ready: Ready
    outcome: Outcome
    settlement: Settlement


def attempt(
    compiled: CompiledConfig,
    test: PluginTest,
    plan: PluginPlan,
    now: datetime,
    entropy: Entropy,
    start: Callable[[Ready], Outcome] = run_once,
) -> Attempted:
    """Prepare, run and judge one attempt. Raises `Refused` if it cannot be prepared."""
    job = make_unstored_job(
        entropy.uuid(),
        test.plugin,
        test.command,
        test.payload,
        now,
        max_attempts=compiled.retry_policy(test.plugin).max_attempts,
    )
    ready = prepare(
        job, orjson.dumps(dict(test.state)).decode(), test.context or {}, plan, None, now
    )
    if isinstance(ready, Unrunnable):
        close = None if test.command in plan.commands else nearest(test.command, plan.commands)
        raise Refused(ready.reason, **({"nearest": close} if close else {}))
    outcome = start(ready)
    rules = compiled.rules(test.plugin, test.command)
    chance, base_id = entropy.uniform(), entropy.uuid()
    settlement = judge(job, outcome, rules, now, chance, None, ready.entered, base_id)
    return Attempted(ready, outcome, settlement)


def find_plan(compiled: CompiledConfig, name: str) -> PluginPlan:
    """Raises `Refused` if the plugin is not loaded."""
    plan = compiled.plans.get(name)
    if plan is None:
        raise Refused(f"plugin {name} is not loaded")
    return plan


def run(compiled: CompiledConfig, test: PluginTest, now: datetime, entropy: Entropy) -> Document:
    """Prepare, run and judge one attempt; the redacted result.

    Raises `Refused` if the plugin is not loaded or does not have this command.
    """
    plan = find_plan(compiled, test.plugin)
    done = attempt(compiled, test, plan, now, entropy)
    outcome, settlement = done.outcome, done.settlement
    known = orjson.dumps(dict(test.state)).decode()
    after = states.merge_state(test.state, settlement) if settlement.state_updates else known
    advice = [*_advice(compiled, test, plan.timeout(test.command), outcome)]
    if after is None:
        assert settlement.otherwise is not None
        settlement, after = settlement.otherwise, known
        advice.insert(0, Advice(settlement.error or "", "keep the state small; store data outside"))
    return _describe(compiled, test, done.ready, outcome, settlement, after, advice)


def _response(outcome: Outcome) -> Response | ProtocolError | None:
    if outcome.ending not in (Ending.EXITED, Ending.LINGERED):
        return None
    return read_response(outcome.stdout, overflowed=outcome.stdout_overflowed)


def _advice(
    compiled: CompiledConfig, test: PluginTest, timeout: float, outcome: Outcome
) -> Iterator[Advice]:
    manifest = compiled.registry.plugins[test.plugin].manifest
    command = manifest.command(test.command)
    emits = _declared(command) if command else None
    expected = Expected(test.plugin, test.command, manifest.protocol, timeout, emits)
    yield from advise(outcome, _response(outcome), expected)


def _declared(command: Command) -> Mapping[str, tuple[str, ...]] | None:
    """The events that a command declares; None if it declares nothing."""
    if "values" not in command.model_fields_set:
        return None
    return {emission.event: emission.values for emission in command.values.emit}


def _describe(
    compiled: CompiledConfig,
    test: PluginTest,
    ready: Ready,
    outcome: Outcome,
    settlement: Settlement,
    after: str,
    advice: list[Advice],
) -> Document:
    shown = compiled.redactor.document
    return {
        **describe_settlement(compiled, settlement),
        "protocol": compiled.plans[test.plugin].protocol,
        "exit_code": outcome.exit_code,
        "retry": _retry(settlement),
        "advice": [
            shown({"severity": a.severity.value, "what": a.what, "hint": a.hint}) for a in advice
        ],
        "request": shown(hide_secret_keys(orjson.loads(ready.launch.request))),
        "environment": sorted(ready.launch.env),
        "timeout": ready.launch.timeout,
        "logs": orjson.loads(settlement.logs) if settlement.logs else [],
        "state": _state(shown, test, settlement, after),
        "fact": settlement.fact_type if settlement.state_updates else None,
        "warnings": sum(a.severity is Severity.WARNING for a in advice),
    }


def _retry(settlement: Settlement) -> Document:
    if settlement.status is JobStatus.SUCCEEDED:
        return {"would_retry": False, "why": None}
    if settlement.status is not JobStatus.QUEUED:
        attempts = settlement.job.max_attempts
        spent = settlement.status is JobStatus.DEAD
        why = (
            f"all {attempts} attempts are used up"
            if spent
            else "the plugin reported that a retry does not help"
        )
        return {"would_retry": False, "why": why}
    wait = settlement.retry_at - settlement.at if settlement.retry_at else None
    return {
        "would_retry": True,
        "why": None,
        "after_seconds": round(wait.total_seconds(), 1) if wait else 0.0,
        "attempt": settlement.attempt + 1,
        "max_attempts": settlement.job.max_attempts,
    }


def _state(shown: Any, test: PluginTest, settlement: Settlement, after: str) -> Document:
    return {
        "before": shown(hide_secret_keys(dict(test.state))),
        "updates": shown(hide_secret_keys(dict(settlement.state_updates or {}))),
        "after": shown(hide_secret_keys(orjson.loads(after))),
        "bytes": len(after.encode()),
        "largest": states.MAX_STATE,
    }
