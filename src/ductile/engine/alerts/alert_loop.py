"""The loop that evaluates the alert rules; woken by the notices that they watch."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.engine.services import Services
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.store.alerts import evaluate, rows
from ductile.store.alerts.evaluate import AlertInputs, AlertPlan, SentAlert
from ductile.store.alerts.events import TYPES
from ductile.store.alerts.levels import Watched
from ductile.store.engines.api import StoredNotice, Tx

LEVEL_SECONDS = 5.0
"""Between two checks of lasting conditions."""
SHORTEST_SECONDS = 0.2
"""Between two evaluations, however many notices wake the loop."""
IDLE_SECONDS = 60.0
"""Without rules; a reload wakes the loop."""
BUSY_SECONDS = 1.0
"""Until the next try while another node evaluates."""
LOOP = "alerts"


def are_watched(notices: Iterable[StoredNotice]) -> bool:
    """Whether one of these notices may concern a rule."""
    return any(notice.type in TYPES for notice in notices)


@dataclass(frozen=True, slots=True)
class UndeliveredAlert:
    """A message whose job is dead, or does not start."""

    rule: str
    target: str
    created_at: str
    job_id: str | None
    error: str

    def __str__(self) -> str:
        at = f"alert {self.rule} of {self.created_at} did not reach {self.target}"
        return f"{at}: {self.error}"


class AlertLoop:
    """A loop calls `tick`. All its state is in the ledger, so a restart continues."""

    def __init__(self, gateway: Services) -> None:
        self._gateway, self._log = gateway, logger(LOOP)
        self._evaluated_at = self._levels_at = float("-inf")
        self.undelivered: tuple[UndeliveredAlert, ...] = ()

    def tick(self, now: datetime) -> float:
        """Evaluate the rules; returns the seconds until the next call."""
        gateway = self._gateway
        monotonic = gateway.clock.monotonic()
        if monotonic - self._evaluated_at < SHORTEST_SECONDS:
            return SHORTEST_SECONDS - (monotonic - self._evaluated_at)
        self._evaluated_at = monotonic
        with_levels = monotonic - self._levels_at >= LEVEL_SECONDS
        if with_levels:
            self._levels_at = monotonic
            self.undelivered = gateway.ledger.read(lambda tx: read_undelivered(tx, now))
        inputs = self._gather(now, with_levels=with_levels)
        made = gateway.ledger.read(lambda tx: evaluate.plan(tx, inputs))
        if made:
            failpoint("alert.planned")
            base_id, tx_config = gateway.entropy.uuid(), gateway.compiled.tx_config
            done = gateway.ledger.write(
                lambda tx: evaluate.evaluate(tx, inputs, tx_config, base_id)
            )
            if done is None:
                return BUSY_SECONDS
            failpoint("alert.committed")
            made, sent = done
            self._report(sent)
        if gateway.health is not None:
            gateway.health.outages.forget(inputs.watched.outages)
        return self._seconds_until_next(made, inputs, monotonic, now)

    def _seconds_until_next(
        self, made: AlertPlan, inputs: AlertInputs, monotonic: float, now: datetime
    ) -> float:
        if made.has_more:
            return 0.0
        if not inputs.rules:
            return IDLE_SECONDS
        wait = self._levels_at + LEVEL_SECONDS - monotonic
        if made.next_look is not None:
            wait = min(wait, (made.next_look - now).total_seconds())
        return max(wait, SHORTEST_SECONDS)

    def _gather(self, now: datetime, *, with_levels: bool) -> AlertInputs:
        gateway = self._gateway
        compiled = gateway.compiled
        watched = Watched()
        if with_levels:
            endpoints = compiled.settings.webhooks.endpoints
            watched = Watched(
                schedules=compiled.schedules,
                plugins=frozenset(compiled.plans),
                endpoints=tuple(one.path for one in endpoints),
                disk=self._measure_disk(),
                outages=() if gateway.health is None else gateway.health.outages.read(),
                node="" if gateway.ledger.engine == "sqlite" else gateway.node,
            )
        settings = compiled.settings
        return AlertInputs(
            compiled.alert_rules,
            watched,
            settings.service.name,
            now,
            with_levels,
            dashboard=settings.api.dashboard,
        )

    def _measure_disk(self) -> tuple[int, int] | None:
        try:
            found = os.statvfs(self._gateway.state_dir)
        except OSError as error:
            self._log.warning("free disk space is unknown", error=error.strerror)
            return None
        return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize

    def _report(self, sent: Iterable[SentAlert]) -> None:
        for one in sent:
            log = self._log.info if one.news == "resolved" else self._log.warning
            log(f"alert {one.news}", rule=one.rule, group=one.group, job_id=one.job_id)


def read_undelivered(tx: Tx, now: datetime) -> tuple[UndeliveredAlert, ...]:
    """The messages of the last days that did not arrive, the newest first."""
    return tuple(
        UndeliveredAlert(
            row["rule"],
            row["target"],
            row["created_at"],
            row["job_id"],
            row["error"] or "its job is dead",
        )
        for row in rows.list_undelivered(tx, now)
    )
