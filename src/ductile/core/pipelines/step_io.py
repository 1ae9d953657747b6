"""The input and output of a step: payloads, contexts, switches, relays, events.

It is computed in the step's own job, from the payload and the context that entered it, so that
an error in `with` or `baggage` fails that job and never its parent. `context`
is always the `accumulated_json` of the row that the job entered with: the row of the step
before it, or the instance's root row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.jobs.commands import HANDLE
from ductile.core.jobs.plugin_protocol import (
    EmittedEvent,
    add_context,
    envelope_of,
    request_context,
)
from ductile.core.pipelines.baggage import claimed, deeper, step_context
from ductile.core.pipelines.conditions import evaluate, explain
from ductile.core.pipelines.graph import SWITCH_PLUGIN, Node
from ductile.core.pipelines.templates import as_text, render
from ductile.core.values.json_values import Failure, StepValues, size_of
from ductile.model import MIB, STDOUT_CAP, Event, Json

STEP_SUCCEEDED = "ductile.step.succeeded"
SWITCH_TRUE = "ductile.switch.true"
SWITCH_FALSE = "ductile.switch.false"
MAX_COPIED = STDOUT_CAP
"""Maximum total size of the copies of one response's `result`: that of a response."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step that can run."""

    payload: Json
    """The request's payload (for `handle` its event's): `with` applied."""
    context: dict[str, Json]
    """The request's context."""
    accumulated: dict[str, Json]
    """`accumulated_json` of the step's own row."""
    with_values: Json = None
    """What `with` has set; None without it."""


@dataclass(frozen=True, slots=True)
class Switched:
    """An evaluated `if`."""

    matched: bool
    accumulated: dict[str, Json]
    because: str = ""
    """The values that decided it."""

    @property
    def event_type(self) -> str:
        return SWITCH_TRUE if self.matched else SWITCH_FALSE

    @property
    def result(self) -> dict[str, Json]:
        """The response's `result`, as the job log shows it."""
        return {"matched": self.matched, "event": self.event_type, "because": self.because}


@dataclass(frozen=True, slots=True)
class RelayMessage:
    """What a relay step sends."""

    to: str
    event_type: str
    payload: Json
    dedupe_key: str | None
    baggage: dict[str, Json]
    accumulated: dict[str, Json]


def payload_column(command: str, event: Event) -> Json:
    """What a job's `payload` column holds: for `handle` the envelope, else the payload."""
    if command != HANDLE:
        return event.payload
    return {
        "type": event.type,
        "payload": event.payload,
        "dedupe_key": event.dedupe_key,
        "source": event.source,
        "timestamp": to_text(event.timestamp),
        "event_id": event.event_id,
    }


def entered_payload(command: str, column: Json) -> Json:
    """The payload that entered a job, from its column; the meaning of `payload.*` everywhere."""
    payload = envelope_of(column).get("payload") if command == HANDLE else column
    return {} if payload is None else payload


def entered_dedupe_key(column: Json) -> str | None:
    """The dedupe key of the event that entered a `handle` job, from its column."""
    key = envelope_of(column).get("dedupe_key")
    return key if isinstance(key, str) else None


def prepare_step(
    node: Node, payload: Json, context: Mapping[str, Json], config: Mapping[str, Json], *, hops: int
) -> Prepared | Failure:
    """Claim the baggage and fill in `with`; `with` sees what the step itself claimed.

    Context keys that the payload lacks are added first, if there is an event. `with` adds to the
    keys of the payload or replaces them; it replaces a payload that is not an object.
    """
    accumulated = step_context(context, node.baggage, payload, hops=hops)
    if isinstance(accumulated, Failure):
        return accumulated
    seen = _request_context(node, accumulated)
    if node.command == HANDLE:
        payload = add_context(payload, seen)
    if node.with_ is None:
        return Prepared(payload, seen, accumulated)
    added = render(node.with_, StepValues(payload, seen, dict(config)))
    if isinstance(added, Failure):
        return Failure(f"with: {added.reason}")
    payload = {**payload, **added} if isinstance(payload, dict) else added
    return Prepared(payload, seen, accumulated, added)


def judge_switch(
    node: Node, payload: Json, context: Mapping[str, Json], config: Mapping[str, Json], *, hops: int
) -> Switched | Failure:
    """Evaluate the `if` of a switch node; `config` is that of the plugin it guards."""
    if node.condition is None:
        return Failure(f"step {node.path} no longer has an `if`")
    accumulated = deeper(context, hops)
    seen = _request_context(node, accumulated)
    values = StepValues(payload, seen, dict(config))
    matched = evaluate(node.condition, values)
    if isinstance(matched, Failure):
        return Failure(f"if: {matched.reason}")
    return Switched(matched, accumulated, explain(node.condition, values))


def prepare_relay(
    node: Node, payload: Json, dedupe_key: str | None, context: Mapping[str, Json], *, hops: int
) -> RelayMessage | Failure:
    """What a relay node sends; `dedupe_key` is that of the event that entered it."""
    relay = node.relay
    if relay is None:
        return Failure(f"step {node.path} is no longer a relay")
    accumulated = deeper(context, hops)
    scope = StepValues(payload, _request_context(node, accumulated))
    sent = payload if relay.with_ is None else render(relay.with_, scope)
    key = dedupe_key if relay.dedupe_key is None else render(relay.dedupe_key, scope)
    baggage = {} if relay.baggage is None else claimed(relay.baggage, scope)
    for part, name in ((sent, "with"), (key, "dedupe_key"), (baggage, "baggage")):
        if isinstance(part, Failure):
            return Failure(f"relay.{name}: {part.reason}")
    return RelayMessage(
        to=relay.to,
        event_type=relay.event,
        payload=sent,
        dedupe_key=None if key is None else as_text(key),
        baggage=dict(baggage) if isinstance(baggage, dict) else {},
        accumulated=accumulated,
    )


def outgoing(
    emitted: Sequence[EmittedEvent],
    *,
    source: str,
    in_pipeline: bool,
    entered: Json,
    result: Json,
    now: datetime,
    event_ids: Sequence[str],
) -> tuple[Event, ...]:
    """The events that a succeeded job emits; needs one id per event, and at least one.

    The response's `result` is copied into payloads without one. A step that emitted nothing emits
    its own input; a job outside pipelines emits nothing.
    """
    if not emitted and in_pipeline:
        emitted = (EmittedEvent(STEP_SUCCEEDED, _after(entered, result), None),)
    return tuple(
        Event(event.type, _with_result(event.payload, result), event.dedupe_key, source, now, id_)
        for event, id_ in zip(emitted, event_ids, strict=False)
    )


def too_much_copied(payloads: Sequence[Json], result: Json) -> Failure | None:
    """Why the `result` cannot be copied into these payloads; None if it can."""
    copies = sum(map(_lacks_result, payloads))
    if result is None or copies < 2:
        return None
    size = size_of(result)
    if copies * size <= MAX_COPIED:
        return None
    return Failure(
        f"a result of {size} bytes would be copied into {copies} events, more than "
        f"{MAX_COPIED // MIB} MiB in total; make it smaller, or add a result to each event"
    )


def switch_event(switched: Switched, entered: Json, now: datetime, event_id: str) -> Event:
    """The event of a switch: its input, with a type that names the verdict."""
    return Event(switched.event_type, entered, None, SWITCH_PLUGIN, now, event_id)


def _request_context(node: Node, accumulated: Mapping[str, Json]) -> dict[str, Json]:
    return request_context(accumulated, plugin=node.plugin, pipeline=node.pipeline, step_id=node.id)


def _after(entered: Json, result: Json) -> Json:
    payload = dict(entered) if isinstance(entered, dict) else {"payload": entered}
    return payload if result is None else {**payload, "result": result}


def _with_result(payload: Json, result: Json) -> Json:
    if result is None or not _lacks_result(payload):
        return {} if payload is None else payload
    return {**(payload or {}), "result": result}


def _lacks_result(payload: Json) -> bool:
    return payload is None or (isinstance(payload, dict) and "result" not in payload)
