"""From a claimed job to what a slot can run. Pure; the request is all that a plugin sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson

from ductile.clock import to_text
from ductile.core.protocol import encode_request, event_of, request_context
from ductile.model import Job, Launch

DEFAULT_TIMEOUTS = {"poll": 60.0, "handle": 120.0, "health": 10.0, "init": 30.0}
OTHER_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class PluginPlan:
    """What it takes to launch a plugin, worked out once when the config is loaded."""

    name: str
    protocol: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    commands: frozenset[str]
    config: bytes
    """The plugin's config, encoded."""
    timeouts: Mapping[str, float]

    def timeout(self, command: str) -> float:
        default = DEFAULT_TIMEOUTS.get(command, OTHER_TIMEOUT)
        return self.timeouts.get(command, default)


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """Why a job cannot be launched at all."""

    reason: str


def prepare(job: Job, state: str, plan: PluginPlan, now: datetime) -> Launch | Unrunnable:
    """The launch of one attempt, its request encoded and its deadline set."""
    if job.command not in plan.commands:
        known = ", ".join(sorted(plan.commands))
        return Unrunnable(f"plugin {plan.name} has no command {job.command!r}; it has: {known}")
    timeout = plan.timeout(job.command)
    event = None
    if job.command == "handle":
        event = event_of(
            job.payload,
            type=f"{job.submitted_by}.trigger",
            source=job.submitted_by,
            timestamp=to_text(job.created_at),
            event_id=job.source_event_id or job.id,
            dedupe_key=job.dedupe_key,
        )
    request = encode_request(
        protocol=plan.protocol,
        job_id=job.id,
        command=job.command,
        config=orjson.Fragment(plan.config),
        state=orjson.Fragment(state),
        context=request_context({}, plugin=plan.name),
        deadline_at=to_text(now + timedelta(seconds=timeout)),
        payload=job.payload,
        event=event,
    )
    return Launch(argv=plan.argv, env=plan.env, request=request, timeout=timeout)
