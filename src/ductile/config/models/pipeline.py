"""`pipelines` and `routes`: the shape of what follows from an event.

Conditions, templates and claims are carried as they stand; the compiler judges them.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ductile.config.models.fields import (
    Flag,
    Name,
    Opaque,
    OpaqueTable,
    Section,
    Span,
    Text,
    Whole,
    Word,
    span,
)

KINDS = ("uses", "call", "steps", "split", "relay")


class RouteSettings(Section):
    """An event of one plugin becomes a job of another."""

    from_: Name = Field(alias="from", description="The plugin that emits the event.")
    event_type: Name = Field(description="The event's type, exactly.")
    to: Name = Field(description="The plugin that handles it.")


class RelaySettings(Section):
    """What a relay step sends to another gateway."""

    to: Name = Field(description="The name of the instance.", examples=["lab"])
    event: Name = Field(description="The type of the event there.", examples=["backup.ready"])
    dedupe_key: Text | None = Field(
        default=None, description="A path or template.", examples=["payload.archive_id"]
    )
    with_: OpaqueTable | None = Field(
        default=None,
        alias="with",
        description="The event's payload; unset, the one that entered the step.",
    )
    baggage: OpaqueTable | None = Field(default=None, description="Baggage that travels along.")


class StepSettings(Section):
    """One step; exactly one of uses, call, steps, split, relay."""

    id: Name | None = Field(default=None, description="The step's name; unset, step_N.")
    uses: Name | None = Field(
        default=None,
        description="`plugin` or `plugin.command`; the command is `handle` unless named.",
    )
    call: Name | None = Field(default=None, description="A pipeline whose steps run here.")
    steps: tuple["StepSettings", ...] | None = Field(default=None, description="A nested sequence.")
    split: tuple["StepSettings", ...] | None = Field(
        default=None,
        description="Branches side by side; the next step runs once, when all have ended.",
    )
    relay: RelaySettings | None = Field(default=None, description="Deliver to another gateway.")
    if_: Opaque = Field(
        default=None,
        alias="if",
        description="A condition; where it is false the step is passed over.",
        examples=[{"path": "payload.status", "op": "eq", "value": "error"}],
    )
    with_: OpaqueTable | None = Field(
        default=None,
        alias="with",
        description="Payload keys set just before the step runs.",
        examples=[{"message": "Build: {payload.status}"}],
    )
    baggage: OpaqueTable | None = Field(
        default=None,
        description="Values that stay with the chain from here on.",
        examples=[{"web.url": "payload.url"}],
    )
    on_events: Mapping[str, tuple[Name, ...]] = Field(
        default_factory=dict,
        description="Event type to the steps, pipelines or plugins that take it instead.",
        examples=[{"validation_failed": ["error-notifier"]}],
    )
    join: Annotated[Literal["always"], Word] | None = Field(
        default=None, description="On a split: go on even when a branch has failed."
    )

    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterator[str]:
        named = [kind for kind in KINDS if kind in data]
        if len(named) != 1:
            found = f" ({' and '.join(named)} are set)" if named else ""
            yield f"a step needs exactly one of {', '.join(KINDS)}{found}"
        if "join" in data and "split" not in data:
            yield "join belongs to a split"
        for kind in ("steps", "split"):
            if data.get(kind) in ([], ()):
                yield f"{kind} must not be empty"


class PipelineSettings(Section):
    """Steps that run when an event arrives; exactly one of on, on-hook."""

    name: Name = Field(description="The pipeline's name, unique.")
    on: Name | None = Field(default=None, description="The event type that starts it, exactly.")
    on_hook: Annotated[Literal["job.completed", "job.failed", "job.timed_out"], Word] | None = (
        Field(default=None, alias="on-hook", description="The end of a job that starts it.")
    )
    from_plugin: Name | None = Field(
        default=None, description="Only events of this plugin start it."
    )
    if_: Opaque = Field(
        default=None,
        alias="if",
        description="A condition; where it is false nothing is dispatched.",
    )
    max_depth: Annotated[Whole, Field(ge=0)] | None = Field(
        default=None, description="The longest chain; 0 is none, unset it is computed."
    )
    execution_mode: Annotated[Literal["async", "synchronous"], Word] = Field(
        default="async", description="Whether an API caller waits for the end."
    )
    timeout: Span = span("30s", "How long a synchronous caller waits.")
    workspace: Flag | None = Field(
        default=None,
        description="Whether its jobs get a workspace; unset, as service.workspaces says.",
    )
    steps: tuple[StepSettings, ...] = Field(description="What runs, in order.")

    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterator[str]:
        if ("on" in data) + ("on-hook" in data) + ("on_hook" in data) != 1:
            yield "a pipeline needs exactly one of on, on-hook"
        if data.get("steps") in ([], ()):
            yield "steps must not be empty"
