"""How often what a plan has changed fails, compared with the same time before it was applied."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.config.loader.files import replace
from ductile.core.jobs.error_rate import Outcomes, has_risen
from ductile.engine.config.compile_schedules import PIPELINE_PREFIX
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused
from ductile.store import outcomes
from ductile.store.engines.api import Tx
from ductile.store.outcomes import OutcomeCount

Document = dict[str, Any]
MAX_WINDOW = timedelta(hours=24)


KEPT = "applied-plan.json"
"""In the state directory, so that a watch continues after a restart."""


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """The last plan that this gateway has put in force."""

    id: str
    at: datetime
    snapshot_id: str | None
    previous_snapshot_id: str | None
    subjects: Mapping[str, Any]
    """See `list_subjects`."""


def list_subjects(plan: Mapping[str, Any], changes: Mapping[str, Any]) -> Document:
    """What a plan changes: `plugins`, `pipelines`, `schedules`, or `everything`."""
    graph = plan["graph"]
    # The targets of the edges that appear or differ: a plugin, or a step of a pipeline.
    targets = [edge.rpartition("--> ")[2] for edge in graph["edges_added"]]
    plugins = {row["plugin"] for row in plan["plugins"]}
    plugins |= {name for kind in ("added", "changed") for name in changes["plugins"][kind]}
    targets += [row["name"].rpartition("--> ")[2] for row in graph["routes"]]
    plugins |= {target for target in targets if "/" not in target}
    pipelines = {row["name"] for row in graph["pipelines"]}
    pipelines |= {row["name"].partition("/")[0] for row in graph["steps"]}
    pipelines |= {target.partition("/")[0] for target in targets if "/" in target}
    pipelines |= {name for kind in ("added", "changed") for name in changes["pipelines"][kind]}
    schedules = {row["schedule"] for row in plan["schedules"]}
    # The jobs of a run do not name the schedule that has started it.
    owners = {name.rpartition("/")[0] for name in schedules}
    mark = PIPELINE_PREFIX
    pipelines |= {owner.removeprefix(mark) for owner in owners if owner.startswith(mark)}
    named = ("routes", "alerts")
    settings = [row for row in plan["settings"] if row["setting"].split(".")[0] not in named]
    return {
        "plugins": sorted(plugins),
        "pipelines": sorted(pipelines),
        "schedules": sorted(name for name in schedules if not name.startswith(PIPELINE_PREFIX)),
        "everything": bool(settings or plan["secrets"] or plan["webhooks"]),
    }


def compare_outcomes(services: Services, applied: AppliedPlan, window: timedelta) -> Document:
    """The error rates of what a plan has changed, since it was applied and before.

    An attempt that started under the configuration before counts for neither.
    """
    now = services.clock.now()
    until = min(now, applied.at + window)
    is_over = now >= applied.at + window
    before, after = services.ledger.read(
        lambda tx: (
            _count(tx, applied.at - window, applied.at, None),
            _count(tx, applied.at, until, applied.at),
        )
    )
    rows = [
        _compare(kind, name, before, after, is_over=is_over)
        for kind, name in _list_wanted(applied.subjects)
    ]
    return {
        "plan": applied.id,
        "applied_at": to_text(applied.at),
        "until": to_text(applied.at + window),
        "seconds_left": max(0.0, (applied.at + window - now).total_seconds()),
        "in_force": services.compiled.snapshot_id == applied.snapshot_id,
        "previous_snapshot_id": applied.previous_snapshot_id,
        "subjects": rows,
        "risen": any(row["risen"] for row in rows),
    }


def keep_applied(state_dir: Path, applied: AppliedPlan) -> None:
    document = {
        "id": applied.id,
        "at": to_text(applied.at),
        "snapshot_id": applied.snapshot_id,
        "previous_snapshot_id": applied.previous_snapshot_id,
        "subjects": applied.subjects,
    }
    replace(state_dir / KEPT, json.dumps(document).encode())


def find_applied(state_dir: Path, id: str) -> AppliedPlan:
    """The last plan that was applied; `NotFound` if it is another one."""
    path = state_dir / KEPT
    try:
        kept = json.loads(path.read_bytes())
        applied = AppliedPlan(**{**kept, "at": from_text(kept["at"])})
    except FileNotFoundError:
        applied = None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"cannot read {path}: {error}") from error
    if applied is None or applied.id != id:
        raise NotFound(f"plan {id} is not the last one that this gateway has applied")
    return applied


Key = tuple[str, str]
"""A kind and a name."""


def _list_wanted(subjects: Mapping[str, Any]) -> list[Key]:
    kinds = {"plugin": "plugins", "pipeline": "pipelines", "schedule": "schedules"}
    found = [(kind, name) for kind, key in kinds.items() for name in subjects[key]]
    return [*found, ("everything", "")] if subjects["everything"] else found


def _count(
    tx: Tx, since: datetime, until: datetime, started: datetime | None
) -> dict[Key, Outcomes]:
    found: dict[Key, Outcomes] = {}
    for row in outcomes.count_by_subject(tx, since, until, started):
        for key in _keys_of(row):
            seen = found.get(key, Outcomes())
            found[key] = Outcomes(seen.attempts + row.attempts, seen.failed + row.failed)
    return found


def _keys_of(row: OutcomeCount) -> list[Key]:
    keys = [(row.kind, row.name)]
    return [*keys, ("everything", "")] if row.kind == "plugin" else keys


def _compare(
    kind: str,
    name: str,
    before: Mapping[Key, Outcomes],
    after: Mapping[Key, Outcomes],
    *,
    is_over: bool,
) -> Document:
    was, is_now = before.get((kind, name), Outcomes()), after.get((kind, name), Outcomes())
    return {
        "kind": kind,
        "name": name,
        "before": _describe(was),
        "after": _describe(is_now),
        "risen": has_risen(was, is_now, is_over=is_over),
    }


def _describe(seen: Outcomes) -> Document:
    rate = None if seen.rate is None else round(seen.rate, 4)
    return {"attempts": seen.attempts, "failed": seen.failed, "rate": rate}
