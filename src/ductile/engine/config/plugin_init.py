"""Which plugins may not run yet: those whose `init` has not succeeded as they are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ductile.core.jobs.commands import INIT
from ductile.core.jobs.state_machine import ENDED
from ductile.engine.config.compiled import INIT_PENDING, CompiledConfig
from ductile.engine.ingress import enqueue
from ductile.model import JobStatus, NewJob, Settlement, SubmittedBy
from ductile.store.engines.api import Ledger, Tx

Unready = Mapping[str, str]
"""Plugin to the reason."""


def uninitialised(ledger: Ledger, compiled: CompiledConfig) -> dict[str, str]:
    """Plugins whose current version and config have not been initialised."""
    wanted = {plugin.name: plugin.init_key for plugin in compiled.needs_init()}

    def done(name: str, key: str) -> bool:
        return ledger.read(lambda tx: tx.one("init_done", plugin=name, init_key=key)) is not None

    return {name: INIT_PENDING for name, key in wanted.items() if not done(name, key)}


def queue_init(tx: Tx, compiled: CompiledConfig, name: str, id: str, now: datetime) -> bool:
    """Queue the `init` of a plugin; False if it is queued or running, or not needed any more."""
    plugin = compiled.registry.plugins.get(name)
    if plugin is None or tx.one("init_outstanding", plugin=name) is not None:
        return False
    if tx.one("init_done", plugin=name, init_key=plugin.init_key) is not None:
        return False
    new = NewJob(name, INIT, SubmittedBy.SCHEDULER)
    enqueue.build_enqueue(compiled, new, id=id, now=now)(tx)
    return True


def find_end(ledger: Ledger, job_id: str) -> tuple[JobStatus, str] | None:
    """How this `init` ended, and its error; None if it has not, or if its row is deleted."""
    row = ledger.read(lambda tx: tx.one("init_end", id=job_id))
    if row is None or JobStatus(row[0]) not in ENDED:
        return None
    return JobStatus(row[0]), row[1] or row[0]


def after_init(
    unready: Unready, compiled: CompiledConfig, settlement: Settlement
) -> Unready | None:
    """The unready plugins after this `init` ended; None if it changes nothing.

    An `init` of a configuration that was replaced meanwhile returns `unready` unchanged: another
    `init` is needed.
    """
    name = settlement.plugin
    plugin = compiled.registry.plugins.get(name)
    if plugin is None or name not in unready:
        return None
    if settlement.init_key != plugin.init_key:
        return unready
    others = {other: reason for other, reason in unready.items() if other != name}
    if settlement.status is JobStatus.SUCCEEDED:
        return others
    return {**others, name: f"its init failed: {settlement.error}"}
