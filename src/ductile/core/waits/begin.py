"""The begin of a wait: its texts and its condition rendered, its end computed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.jobs.plugin_protocol import request_context
from ductile.core.pipelines.baggage import deeper
from ductile.core.pipelines.conditions import Condition, compile_condition, evaluate
from ductile.core.pipelines.graph import Node
from ductile.core.pipelines.templates import Template, as_text, render
from ductile.core.values.json_values import Failure, StepValues
from ductile.core.waits.parse import WaitKind, WaitStep
from ductile.model import Json

MAX_TITLE = 200
MAX_DESCRIPTION = 4000
"""Characters that are kept of the texts that a person reads."""
LONGEST_KEPT = 1000
"""Characters of a condition whose compiled form is kept in memory."""


@dataclass(frozen=True, slots=True)
class NewWait:
    """A wait that begins."""

    id: str
    kind: WaitKind
    due_at: datetime | None
    on_timeout: str
    title: str = ""
    description: str = ""
    event_type: str | None = None
    condition: str | None = None
    """The `if` of an event as JSON text, with its values rendered."""
    token_hash: str | None = None
    """Identifies the link that decides an approval."""

    def __str__(self) -> str:
        return describe_wait(self.kind, self.title, self.event_type, self.due_at)


def describe_wait(
    kind: str, title: str | None, event_type: str | None, due_at: datetime | None
) -> str:
    """What a wait waits for, and until when."""
    until = f" until {to_text(due_at)}" if due_at is not None else ""
    match kind:
        case WaitKind.APPROVAL:
            return f"waits for approval{until}: {title}"
        case WaitKind.EVENT:
            return f"waits for event {event_type}{until}"
        case _:
            return f"waits{until}"


def begin_wait(
    node: Node,
    payload: Json,
    context: Mapping[str, Json],
    now: datetime,
    *,
    hops: int,
    wait_id: str,
    token_hash: str | None = None,
) -> NewWait | Failure:
    """The wait of a node whose job was claimed; `context` is what the job entered with."""
    wait = node.wait
    if wait is None:
        return Failure(f"step {node.path} is no longer a wait")
    seen = request_context(
        deeper(context, hops), plugin=node.plugin, pipeline=node.pipeline, step_id=node.id
    )
    values = StepValues(payload, seen)
    due_at = _end_of(wait, values, now)
    if isinstance(due_at, Failure):
        return due_at
    title = _text(wait.title, values, "approval.title", MAX_TITLE)
    description = _text(wait.description, values, "approval.description", MAX_DESCRIPTION)
    condition = _rendered_condition(wait, values)
    for part in (title, description, condition):
        if isinstance(part, Failure):
            return part
    return NewWait(
        id=wait_id,
        kind=wait.kind,
        due_at=due_at,
        on_timeout=wait.on_timeout.value,
        title=str(title),
        description=str(description),
        event_type=wait.event or None,
        condition=None if condition is None else str(condition),
        token_hash=token_hash if wait.kind is WaitKind.APPROVAL else None,
    )


def is_matched(condition: str | None, payload: Json, context: Mapping[str, Json]) -> bool:
    """Whether an event with this payload ends a wait; `context` is that of the waiting run."""
    if condition is None:
        return True
    is_short = len(condition) <= LONGEST_KEPT
    compiled = _kept_condition(condition) if is_short else _stored_condition(condition)
    # Rendered values may have another type than the operator compares; then nothing matches.
    if compiled is None:
        return False
    return evaluate(compiled, StepValues(payload, dict(context))) is True


def _stored_condition(text: str) -> Condition | None:
    """The compiled condition of a wait; None if it is not one."""
    compiled = compile_condition(orjson.loads(text), ())
    return None if isinstance(compiled, list) else compiled


_kept_condition = lru_cache(maxsize=4096)(_stored_condition)
"""Runs of one pipeline often have the same condition, and each event is compared with all."""


def _end_of(wait: WaitStep, values: StepValues, now: datetime) -> datetime | Failure | None:
    if wait.kind is WaitKind.UNTIL:
        text = render(wait.until, values)
        if isinstance(text, Failure):
            return Failure(f"wait.until: {text.reason}")
        moment = moment_of(text)
        return moment or Failure(f"wait.until: {as_text(text)[:100]} is not a time")
    seconds = wait.seconds if wait.kind is WaitKind.FOR else wait.timeout
    return None if seconds is None else now + timedelta(seconds=seconds)


def _text(template: Template, values: StepValues, name: str, limit: int) -> str | Failure:
    found = render(template, values)
    if isinstance(found, Failure):
        return Failure(f"wait.{name}: {found.reason}")
    text = as_text(found).replace("\0", "\ufffd")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _rendered_condition(wait: WaitStep, values: StepValues) -> str | Failure | None:
    if wait.condition is None:
        return None
    rendered = render(wait.condition, values)
    if isinstance(rendered, Failure):
        return Failure(f"wait.if: {rendered.reason}")
    return orjson.dumps(rendered).decode()
