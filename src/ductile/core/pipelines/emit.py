"""Routes the events of a succeeded job and adds the intents to its settlement."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import orjson

from ductile.clock import Ids
from ductile.core.jobs.plugin_protocol import Response
from ductile.core.jobs.prepare import Entered
from ductile.core.pipelines.intents import MatchWaits, Routing, SendRelay
from ductile.core.pipelines.lineage import Done
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import Switched, outgoing, switch_event, too_much_copied
from ductile.core.values.json_values import Failure
from ductile.model import Event, Job, Json, Settlement

OWN_EVENTS = "ductile."
"""Prefix of the types of the core's own events."""


def emit(
    settlement: Settlement,
    job: Job,
    response: Response,
    entered: Entered,
    router: Router,
    now: datetime,
    ids: Ids,
) -> Settlement | Failure:
    """The settlement with the intents of the response's events, and the step's own context.

    A failure if the response exceeds the limits on events.
    """
    if not response.events and not job.pipeline:
        return settlement
    events = outgoing(
        response.events,
        source=job.plugin,
        in_pipeline=bool(job.pipeline),
        entered=entered.payload,
        result=response.result,
        now=now,
        event_ids=[ids.next() for _ in range(max(1, len(response.events)))],
    )
    routed = _routed(settlement, job, entered, events, router)
    if len(response.events) > 1:
        taken = _taken(Routing(routed.intents))
        pairs = zip(response.events, events, strict=True)
        copied_into = [given.payload for given, event in pairs if event.event_id in taken]
        return too_much_copied(copied_into, response.result) or routed
    return routed


def emit_switch(
    settlement: Settlement,
    job: Job,
    switched: Switched,
    entered: Entered,
    router: Router,
    now: datetime,
    ids: Ids,
) -> Settlement:
    """The same for an evaluated `if`, which has no process and no response."""
    event = switch_event(switched, entered.payload, now, ids.next())
    return _routed(settlement, job, entered, (event,), router)


def emit_relay(
    settlement: Settlement,
    job: Job,
    sent: SendRelay,
    entered: Entered,
    router: Router,
    now: datetime,
    ids: Ids,
    result: Json,
) -> Settlement:
    """The same for a relay: its input continues here, its message goes to the outbox."""
    events = outgoing(
        (),
        source=job.plugin,
        in_pipeline=True,
        entered=entered.payload,
        result=result,
        now=now,
        event_ids=[ids.next()],
    )
    routed = _routed(settlement, job, entered, events, router)
    return replace(routed, intents=(sent, *routed.intents))


def _routed(
    settlement: Settlement, job: Job, entered: Entered, events: tuple[Event, ...], router: Router
) -> Settlement:
    context = entered.accumulated if entered.accumulated is not None else entered.inherited
    done = Done(
        job_id=job.id,
        plugin=job.plugin,
        submitted_by=job.submitted_by,
        hops=job.hops,
        context=context or {},
        pipeline=job.pipeline,
        step_path=job.step_path,
        branch=job.branch,
    )
    routing = router.route(done, events)
    taken = _taken(routing)
    # An event of the core itself may be the end of its chain.
    untaken = (event.type for event in events if event.event_id not in taken)
    return replace(
        settlement,
        context=_context(entered),
        intents=routing.intents,
        unrouted=routing.unrouted,
        untaken=tuple(type for type in untaken if not type.startswith(OWN_EVENTS)),
    )


def _taken(routing: Routing) -> set[str]:
    """The ids of the events that created a job or that a wait may take."""
    offered = (item.event.event_id for item in routing.intents if isinstance(item, MatchWaits))
    return {*offered, *(spawned.event.event_id for spawned in routing.jobs())}


def _context(entered: Entered) -> str | None:
    """The step's own context row, if it belongs to a pipeline.

    A step that entered without a context, because a hook started its pipeline, has a row only if
    it claims baggage.
    """
    own = entered.accumulated
    if own is None or (not entered.inherited and own.keys() <= {"ductile"}):
        return None
    return orjson.dumps(own).decode()
