"""`pipelines` and `routes`: jobs that an event starts.

Conditions, templates and baggage are not validated here but by the compiler of pipelines.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ductile.config.models.debounce import DEBOUNCE, DebounceSettings
from ductile.config.models.fields import (
    PRIORITY,
    Flag,
    Name,
    Opaque,
    OpaqueTable,
    Priority,
    Section,
    Span,
    Text,
    Whole,
    Word,
    span,
)
from ductile.config.models.limits import LimitKey
from ductile.config.models.schedule import PipelineScheduleSettings

KINDS = ("uses", "call", "steps", "split", "relay", "wait")
WAITS = ("approval", "event", "until", "for")


class RouteSettings(Section):
    """An event of one plugin starts a job of another."""

    from_: Name = Field(alias="from", description="Plugin that emits the event.")
    event_type: Name = Field(description="Exact type of the event.")
    to: Name = Field(description="Plugin that handles the event.")
    priority: Priority = span("0s", PRIORITY)
    debounce: DebounceSettings | None = Field(default=None, description=DEBOUNCE)


class RelaySettings(Section):
    """The event that a relay step sends to another gateway."""

    to: Name = Field(description="Name of the instance.", examples=["lab"])
    event: Name = Field(
        description="Type of the event on the other gateway.", examples=["backup.ready"]
    )
    dedupe_key: Text | None = Field(
        default=None,
        description="Path or template of the dedupe key.",
        examples=["payload.archive_id"],
    )
    with_: OpaqueTable | None = Field(
        default=None,
        alias="with",
        description="Payload of the event; default: the payload of the step.",
    )
    baggage: OpaqueTable | None = Field(default=None, description="Baggage to send with the event.")


def _titled(value: Any) -> Any:
    return value if isinstance(value, dict) else {"title": value}


def _timed(value: Any) -> Any:
    return value if isinstance(value, dict) else {"for": value}


class ApprovalSettings(Section):
    """What a person has to approve; text alone is its title."""

    title: Name = Field(
        description="Question in one line; a template.", examples=["Pay {payload.amount} EUR?"]
    )
    description: Text | None = Field(default=None, description="Further text; a template.")


class WaitSettings(Section):
    """A wait; exactly one of `approval`, `event`, `until` and `for` is required.

    A duration alone, as in `wait: 10m`, means `for`.
    """

    approval: Annotated[ApprovalSettings, BeforeValidator(_titled)] | None = Field(
        default=None, description="Wait until a person approves or rejects."
    )
    event: Name | None = Field(default=None, description="Wait for an event of this type.")
    if_: Opaque = Field(
        default=None,
        alias="if",
        description="Condition on the event; its values may be templates of the waiting step.",
        examples=[{"path": "payload.invoice", "op": "eq", "value": "{payload.invoice}"}],
    )
    until: Text | None = Field(
        default=None,
        description="Wait until this time; a template.",
        examples=["{payload.publish_at}"],
    )
    for_: Span | None = Field(default=None, alias="for", description="Wait for this time.")
    timeout: Span | None = Field(
        default=None, description="Maximum time to wait for an approval or event; default: none."
    )
    on_timeout: Annotated[Literal["fail", "continue", "skip"], Word] | None = Field(
        default=None,
        description="After the timeout: fail (default), continue with the next step, or skip the "
        "rest of the chain.",
    )

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        named = [kind for kind in WAITS if kind in data]
        if len(named) != 1:
            found = f"; {' and '.join(named)} are set" if named else "; none is set"
            yield f"a wait needs exactly one of {', '.join(WAITS)}{found}"


class StepSettings(Section):
    """A step; exactly one of `uses`, `call`, `steps`, `split`, `relay` and `wait` is required."""

    id: Name | None = Field(default=None, description="Name of the step; default: step_N.")
    uses: Name | None = Field(
        default=None,
        description="Run a plugin: `plugin` (its command `handle`) or `plugin.command`.",
    )
    call: Name | None = Field(default=None, description="Run the steps of another pipeline.")
    steps: tuple["StepSettings", ...] | None = Field(
        default=None, description="Run nested steps in sequence."
    )
    split: tuple["StepSettings", ...] | None = Field(
        default=None,
        description="Run branches in parallel; the next step runs once, after all of them.",
    )
    relay: RelaySettings | None = Field(
        default=None, description="Send an event to another gateway."
    )
    wait: Annotated[WaitSettings, BeforeValidator(_timed)] | None = Field(
        default=None,
        description="Wait for an approval, an event or a time, without a process.",
        examples=["10m", {"approval": "Pay {payload.amount} EUR?", "timeout": "2d"}],
    )
    if_: Opaque = Field(
        default=None,
        alias="if",
        description="Condition; if it is false, the step is skipped.",
        examples=[{"path": "payload.status", "op": "eq", "value": "error"}],
    )
    with_: OpaqueTable | None = Field(
        default=None,
        alias="with",
        description="Payload keys to set before the step runs.",
        examples=[{"message": "Build: {payload.status}"}],
    )
    baggage: OpaqueTable | None = Field(
        default=None,
        description="Values to keep for all later steps.",
        examples=[{"web.url": "payload.url"}],
    )
    on_events: Mapping[str, tuple[Name, ...]] = Field(
        default_factory=dict,
        description="Event types, with the steps, pipelines or plugins that handle them instead.",
        examples=[{"validation_failed": ["error-notifier"]}],
    )
    join: Annotated[Literal["always"], Word] | None = Field(
        default=None, description="On a split: continue even if a branch fails."
    )

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        named = [kind for kind in KINDS if kind in data]
        if len(named) != 1:
            found = f"; {' and '.join(named)} are set" if named else "; none is set"
            yield f"a step needs exactly one of {', '.join(KINDS)}{found}"
        if "join" in data and "split" not in data:
            yield "join is only valid with split"
        for kind in ("steps", "split"):
            if data.get(kind) in ([], ()):
                yield f"{kind} must not be empty"


class RunLimitSettings(Section):
    """How many runs of a pipeline with the same key are open at once, on all nodes."""

    key: LimitKey | None = Field(
        default=None,
        description="Runs with the same key count together; default: all runs of the pipeline. "
        "A value that the payload does not have is empty.",
        examples=["{payload.account}"],
    )
    limit: Annotated[Whole, Field(ge=1)] = Field(
        default=1, description="Maximum number of open runs per key."
    )
    on_full: Annotated[Literal["queue", "skip", "cancel"], Word] = Field(
        default="queue",
        description="What happens to a start while its key is full: it waits for the end of an "
        "earlier run; it is skipped; or it waits and the oldest run with its key is cancelled.",
    )


class PipelineSettings(Section):
    """Steps that an event or a schedule starts; `on`, `on-hook` or `schedules` is required."""

    name: Name = Field(description="Unique name of the pipeline.")
    on: Name | None = Field(default=None, description="Exact event type that starts it.")
    on_hook: Annotated[Literal["job.completed", "job.failed", "job.timed_out"], Word] | None = (
        Field(default=None, alias="on-hook", description="Lifecycle event of a job that starts it.")
    )
    from_plugin: Name | None = Field(
        default=None, description="Start only for events of this plugin."
    )
    if_: Opaque = Field(
        default=None,
        alias="if",
        description="Condition; if it is false, the pipeline does not start.",
    )
    max_depth: Annotated[Whole, Field(ge=0)] | None = Field(
        default=None, description="Maximum number of successive hops; 0: none; default: computed."
    )
    execution_mode: Annotated[Literal["async", "synchronous"], Word] = Field(
        default="async", description="`synchronous`: an API caller waits for the result."
    )
    timeout: Span = span("30s", "Maximum time that a synchronous caller waits.")
    priority: Priority = span("0s", PRIORITY)
    debounce: DebounceSettings | None = Field(default=None, description=DEBOUNCE)
    concurrency: RunLimitSettings | None = Field(
        default=None, description="Maximum number of its runs that are open at once per key."
    )
    workspace: Flag | None = Field(
        default=None,
        description="Give its jobs a workspace; default: `service.workspaces`.",
    )
    schedules: tuple[PipelineScheduleSettings, ...] = Field(
        default=(), description="When it starts by itself."
    )
    steps: tuple[StepSettings, ...] = Field(description="Steps, in order.")
    on_failure: tuple[StepSettings, ...] | None = Field(
        default=None, description="Steps that run once when a run has failed."
    )
    on_success: tuple[StepSettings, ...] | None = Field(
        default=None, description="Steps that run once when a run has succeeded."
    )
    always: tuple[StepSettings, ...] | None = Field(
        default=None, description="Steps that run once when a run has failed or succeeded."
    )

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        triggers = ("on" in data) + ("on-hook" in data) + ("on_hook" in data)
        if triggers > 1 or (triggers == 0 and not data.get("schedules")):
            yield "a pipeline needs exactly one of on and on-hook, or schedules"
        for key in ("steps", "on_failure", "on_success", "always"):
            if data.get(key) in ([], ()):
                yield f"{key} must not be empty"
