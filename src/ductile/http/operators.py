"""For operators: the configuration, what the queue does, many jobs at once, metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ductile.clock import from_text, to_text
from ductile.config import Settings
from ductile.config.quantities import duration
from ductile.config.redact import show
from ductile.core.pipeline import Pipeline
from ductile.errors import DuctileError, UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of, reading, writing
from ductile.http.jobs import text_of
from ductile.http.once import once
from ductile.model import JobStatus, SubmittedBy
from ductile.record import dataclass
from ductile.runtime import operate
from ductile.runtime.gateway import Gateway
from ductile.runtime.metrics import TYPE
from ductile.store.ledger import Tx

FILTERS = ("plugin", "command", "status", "submitted_by")
WORDS = {"status": tuple(JobStatus), "submitted_by": tuple(SubmittedBy)}
MOST_AT_ONCE = 1000
IN_ONE_COMMIT = 100
"""So many are ended together: others who write wait that long and no longer."""


async def config_view(request: Request) -> Response:
    """`GET /config/view`: the configuration in force, redacted, and what it compiles to."""
    blueprint = gateway_of(request).blueprint
    router = blueprint.chart.router
    return JsonResponse(
        {
            "config": show(blueprint.settings),
            "config_hash": blueprint.loaded.config_hash,
            "snapshot_id": blueprint.snapshot_id,
            "compiled_routes": {name: _compiled(p) for name, p in sorted(router.pipelines.items())},
            "routes": [
                {"source": {"source_plugin": source, "event_type": kind}, "to": list(plugins)}
                for (source, kind), plugins in sorted(router.routes.items())
            ],
            "warnings": [str(warning) for warning in blueprint.warnings],
        }
    )


def _compiled(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "source": {
            "event_type": pipeline.on,
            "hook": pipeline.hook,
            "source_plugin": pipeline.from_plugin,
        },
        "if": str(pipeline.condition) if pipeline.condition else None,
        "entry": pipeline.entry,
        "steps": [
            {
                "step": node.path,
                "kind": node.kind.value,
                "plugin": node.plugin or None,
                "command": node.command if node.plugin else None,
                "if": str(node.condition) if node.condition else None,
                "next": node.next,
                "otherwise": node.otherwise,
            }
            for node in pipeline.nodes.values()
        ],
    }


async def analytics_summary(request: Request) -> Response:
    """`GET /analytics/summary`: attempts that ended within `?window=24h`, by plugin and status."""
    gateway, window = gateway_of(request), request.query_params.get("window", "24h")
    try:
        since = to_text(gateway.clock.now() - timedelta(seconds=duration(window)))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"window: {error}") from None
    rows = await reading(gateway, lambda tx: tx.dicts("ends_by_plugin", since=since))
    total: dict[str, int] = {}
    for row in rows:
        total[row["status"]] = total.get(row["status"], 0) + row["attempts"]
        row["mean_ms"] = None if row["mean_ms"] is None else round(float(row["mean_ms"]), 1)
    return JsonResponse({"since": since, "window": window, "total": total, "plugins": rows})


async def analytics_queue(request: Request) -> Response:
    """`GET /analytics/queue`: what waits and runs by plugin, and how long the first waits."""
    gateway = gateway_of(request)
    rows, now = await reading(gateway, lambda tx: tx.dicts("queue_by_plugin")), gateway.clock.now()
    depth = {"queued": 0, "running": 0}
    for row in rows:
        depth[row["status"]] += row["jobs"]
        row["oldest_seconds"] = round(max((now - from_text(row["oldest"])).total_seconds(), 0), 3)
    return JsonResponse({**depth, "plugins": rows})


@dataclass(frozen=True, slots=True)
class Many:
    """What became of the jobs that a filter found."""

    jobs: list[str]
    refused: list[dict[str, str]]
    more: bool
    """Whether there may be more of them than the limit allowed."""


class _Selection:
    """The jobs that the body of a request selects, for an action."""

    def __init__(self, body: dict[str, Any], action: str) -> None:
        wanted = body.get("filter")
        if not isinstance(wanted, dict) or not wanted:
            raise UsageError(f"filter must name at least one of {', '.join(FILTERS)}, before")
        unknown = sorted(wanted.keys() - {*FILTERS, "before"})
        if unknown:
            raise UsageError(f"filter does not know {', '.join(unknown)}")
        self.limit = body.get("limit", 100)
        if type(self.limit) is not int or not 1 <= self.limit <= MOST_AT_ONCE:
            raise UsageError(f"limit must be a whole number from 1 to {MOST_AT_ONCE}")
        self.dry = bool(body.get("dry_run"))
        if any("\0" in text for text in wanted.values() if isinstance(text, str)):
            raise UsageError("no filter holds U+0000")
        self._values = {name: text_of(wanted, name) for name in FILTERS}
        for name, words in WORDS.items():
            if self._values[name] not in (None, *words):
                raise UsageError(f"{name} must be one of {', '.join(words)}")
        self._values |= {"before": _moment(text_of(wanted, "before")), "action": action}

    @property
    def status(self) -> JobStatus | None:
        """The one that a job must be in."""
        wanted = self._values["status"]
        return None if wanted is None else JobStatus(wanted)

    @property
    def ends_queued(self) -> bool:
        return not self.dry and self.status in (None, JobStatus.QUEUED)

    def read(self, tx: Tx) -> list[str]:
        return [row[0] for row in tx.all("jobs_to_act_on", limit=self.limit, **self._values)]

    def each(self, found: list[str], act: Callable[[str], object]) -> Many:
        done, refused = [], []
        for job_id in found:
            try:
                act(job_id)
                done.append(job_id)
            except DuctileError as error:
                refused.append({"job_id": job_id, "error": error.message, "code": error.code})
        return Many(done, refused, len(found) == self.limit)

    def answer(self, many: Many) -> Response:
        told = {**asdict(many), "count": len(many.jobs)}
        return JsonResponse(told | ({"dry_run": True} if self.dry else {}))


async def cancel_many(request: Request) -> Response:
    """`POST /jobs/cancel`: every queued and running job that the filter finds, up to the limit."""
    gateway, selection = gateway_of(request), _Selection(await object_of(request), "cancel")

    def work() -> Many:
        found = gateway.ledger.read(selection.read)
        ended = _end_queued(gateway, found) if selection.ends_queued else frozenset()

        cancelling = operate.Cancelling(gateway, dry=selection.dry, only=selection.status)
        cancelling.ask([job_id for job_id in found if job_id not in ended])

        def cancel(job_id: str) -> None:
            if job_id not in ended:
                cancelling(job_id)

        return selection.each(found, cancel)

    return selection.answer(await asyncio.to_thread(work))


def _end_queued(gateway: Gateway, found: list[str]) -> frozenset[str]:
    """Those of them that wait: before what runs is killed, which would have them begin."""
    starts = range(0, len(found), IN_ONE_COMMIT)
    together = (found[start : start + IN_ONE_COMMIT] for start in starts)
    return frozenset().union(*(operate.end_queued(gateway, ids) for ids in together))


async def retry_many(request: Request) -> Response:
    """`POST /jobs/retry`: failed and dead jobs by the same filter; an empty one is refused."""
    gateway, selection = gateway_of(request), _Selection(await object_of(request), "retry")

    def work(tx: Tx) -> Many:
        def retry(job_id: str) -> None:
            operate.Retrying(gateway, job_id, dry=selection.dry)(tx)

        return selection.each(selection.read(tx), retry)

    if selection.dry:
        return selection.answer(await reading(gateway, work))
    return selection.answer(await writing(gateway, once(request, work, Many)))


def _moment(text: str | None) -> str | None:
    try:
        return None if text is None else to_text(from_text(text))
    except (ValueError, OverflowError):
        raise UsageError("before must be a time (ISO 8601)") from None


def metrics_are_public(settings: Settings) -> bool:
    return settings.api.metrics == "public"


async def metrics(request: Request) -> Response:
    """`GET /metrics`: for Prometheus; open to all with `api.metrics: public`."""
    lobby = request.app.state.lobby
    text = await asyncio.to_thread(lobby.metrics.text, lobby.stream.followers)
    return PlainTextResponse(text, media_type=TYPE)
