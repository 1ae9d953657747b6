"""Pause and resume a plugin, a pipeline or the whole gateway."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ductile.clock import to_text
from ductile.core.flow.pauses import Pause, PauseKind
from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import NotFound, UsageError
from ductile.operations.pipelines import find_pipeline
from ductile.store.engines.api import Tx
from ductile.store.flow import pauses


class PauseChange:
    """The transaction that pauses or resumes; with `dry` it only reads."""

    def __init__(
        self, services: Services, kind: PauseKind, name: str, by: str, *, dry: bool = False
    ) -> None:
        self._kind, self._name, self._by, self._dry = kind, name, by, dry
        self._services, self._now = services, services.clock.now()

    def check_exists(self) -> None:
        """Raise `NotFound` unless the configuration has the plugin or pipeline."""
        compiled = self._services.compiled
        if self._kind is PauseKind.PIPELINE:
            find_pipeline(compiled.tx_config.router, self._name)
        elif self._kind is PauseKind.PLUGIN and not compiled.expects(self._name):
            close = did_you_mean(self._name, compiled.plans)
            raise NotFound(f"there is no plugin {self._name!r}{close}")

    def build_pause(
        self, reason: str | None, seconds: float | None, until: datetime | None
    ) -> Pause:
        """The pause to store; raises `UsageError` for an end that is not in the future."""
        if seconds is not None and until is not None:
            raise UsageError("duration and until cannot be combined")
        if seconds is not None:
            until = self._now + timedelta(seconds=seconds)
        if until is not None and until <= self._now:
            raise UsageError(f"the end of the pause is not in the future: {to_text(until)}")
        end = None if until is None else to_text(until)
        return Pause(self._kind, self._name, to_text(self._now), self._by, reason, until, end)

    def pause(self, tx: Tx, pause: Pause) -> dict[str, Any]:
        if not self._dry:
            pauses.store_pause(tx, pause, self._now)
        return show_pause(pause)

    def resume(self, tx: Tx) -> dict[str, Any]:
        if self._dry:
            loaded = pauses.list_pauses(tx)
            was = next((p for p in loaded if (p.kind, p.name) == (self._kind, self._name)), None)
        else:
            was = pauses.end_pause(tx, self._kind, self._name, self._by, self._now)
        return {"kind": self._kind.value, "name": self._name or None, "resumed": was is not None}


def list_pauses(services: Services) -> list[dict[str, Any]]:
    """The pauses in force."""
    now = services.clock.now()
    found: Sequence[Pause] = services.ledger.read(pauses.list_pauses)
    return [show_pause(pause) for pause in found if not pause.has_ended(now)]


def show_pause(pause: Pause) -> dict[str, Any]:
    return {
        "kind": pause.kind.value,
        "name": pause.name or None,
        "paused_at": pause.paused_at,
        "paused_by": pause.paused_by,
        "reason": pause.reason,
        "until": pause.until_text,
    }
