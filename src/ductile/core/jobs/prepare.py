"""From a claimed job to a launch that a slot can run. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.jobs.commands import HANDLE, default_timeout
from ductile.core.jobs.plugin_protocol import encode_request, event_of, request_context
from ductile.core.jobs.sandbox import SandboxPlan
from ductile.core.pipelines.graph import Node
from ductile.core.pipelines.step_io import entered_payload, prepare_step
from ductile.core.values.json_values import Failure
from ductile.model import Job, Json, Launch, WarmStart


@dataclass(frozen=True, slots=True)
class PluginPlan:
    """Everything needed to launch a plugin, computed once when the configuration is loaded."""

    name: str
    protocol: int
    argv: tuple[str, ...]
    env: Mapping[str, str]
    commands: frozenset[str]
    config: bytes
    """The plugin's config, encoded as JSON."""
    timeouts: Mapping[str, float]
    stat: bytes = b""
    """If it is set, the stat that the entrypoint must have."""
    warm: WarmStart | None = None
    """How it is started warm; None if it is not to be."""
    cold_reason: str = ""
    """Why a plugin that is to be started warm cannot be."""
    sandbox: SandboxPlan | None = None

    def timeout(self, command: str) -> float:
        return self.timeouts.get(command, default_timeout(command))


@dataclass(frozen=True, slots=True)
class Entered:
    """The input of a job: the event's payload, and the context of its step."""

    payload: Json
    accumulated: Mapping[str, Json] | None = None
    """The context of the step's own row; None outside pipelines."""
    inherited: Mapping[str, Json] | None = None
    """The context that the job entered with."""


@dataclass(frozen=True, slots=True)
class Ready:
    launch: Launch
    entered: Entered


@dataclass(frozen=True, slots=True)
class Unrunnable:
    """Why a job cannot be launched."""

    reason: str


def prepare(
    job: Job,
    state: str,
    context: Mapping[str, Json],
    plan: PluginPlan,
    node: Node | None,
    now: datetime,
    workspace_dir: str | None = None,
    *,
    traceparent: bytes = b"",
) -> Ready | Unrunnable:
    """The launch of one attempt, its request encoded and its deadline set.

    `context` is what the job entered with, `node` its step if it belongs to a pipeline.
    """
    if job.command not in plan.commands:
        known = ", ".join(sorted(plan.commands))
        return Unrunnable(f"plugin {plan.name} has no command {job.command!r}; it has: {known}")
    if plan.sandbox is not None and plan.sandbox.refusal:
        return Unrunnable(plan.sandbox.refusal)
    given = _give_input(job, context, plan, node)
    if isinstance(given, Unrunnable):
        return given
    timeout = plan.timeout(job.command)
    request = encode_request(
        protocol=plan.protocol,
        job_id=job.id,
        command=job.command,
        config=orjson.Fragment(plan.config),
        state=orjson.Fragment(state),
        context=given.context,
        deadline_at=to_text(now + timedelta(seconds=timeout)),
        payload=given.payload,
        event=given.event,
        workspace_dir=workspace_dir,
    )
    launch = Launch(
        argv=plan.argv,
        env=plan.env,
        request=request,
        timeout=timeout,
        stat=plan.stat,
        warm=plan.warm,
        sandbox=sandbox_of(plan, workspace_dir),
        traceparent=traceparent,
    )
    return Ready(launch, given.entered)


class _GivenInput(NamedTuple):
    """The part of a request that a step's `with` and `baggage` can change."""

    payload: Json
    event: dict[str, Json] | None
    context: Mapping[str, Json]
    entered: Entered


def _give_input(
    job: Job, context: Mapping[str, Json], plan: PluginPlan, node: Node | None
) -> _GivenInput | Unrunnable:
    event = _event(job) if job.command == HANDLE else None
    entered = Entered(entered_payload(job.command, job.payload), inherited=context)
    if node is None:
        seen = request_context(context, plugin=plan.name)
        return _GivenInput(job.payload, event, seen, entered)
    config = orjson.loads(plan.config)
    step = prepare_step(node, entered.payload, context, config, hops=job.hops)
    if isinstance(step, Failure):
        return Unrunnable(step.reason)
    if event is not None:
        event["payload"] = step.payload
    entered = Entered(entered.payload, step.accumulated, context)
    return _GivenInput(step.payload, event, step.context, entered)


def sandbox_of(plan: PluginPlan, workspace_dir: str | None) -> bytes:
    """The policy of the plugin, with the job's own directory."""
    if plan.sandbox is None:
        return b""
    own = f"\0\0{workspace_dir}" if workspace_dir else ""
    return plan.sandbox.policy + own.encode("utf-8", "surrogateescape")


def _event(job: Job) -> dict[str, Json]:
    return event_of(
        job.payload,
        type=f"{job.submitted_by}.trigger",
        source=job.submitted_by,
        timestamp=to_text(job.created_at),
        event_id=job.source_event_id or job.id,
        dedupe_key=job.dedupe_key,
    )
