"""Which plugins may not run yet: those whose `init` has not succeeded as they are."""

from __future__ import annotations

from collections.abc import Mapping

from ductile.core.jobs.commands import INIT
from ductile.engine.config.compiled import INIT_PENDING, CompiledConfig
from ductile.model import JobStatus, NewJob, Settlement, SubmittedBy
from ductile.store.engines.api import Ledger

Unready = Mapping[str, str]
"""Plugin to the reason."""


def uninitialised(ledger: Ledger, compiled: CompiledConfig) -> dict[str, str]:
    """Plugins that the ledger has not seen initialised as they are."""
    wanted = {plugin.name: plugin.init_key for plugin in compiled.needs_init()}

    def done(name: str, key: str) -> bool:
        return ledger.read(lambda tx: tx.one("init_done", plugin=name, init_key=key)) is not None

    return {name: INIT_PENDING for name, key in wanted.items() if not done(name, key)}


def wanted_init(ledger: Ledger, plugin: str) -> NewJob | None:
    """The `init` to queue; None where one waits or runs already."""
    if ledger.read(lambda tx: tx.one("init_outstanding", plugin=plugin)) is not None:
        return None
    return NewJob(plugin, INIT, SubmittedBy.SCHEDULER)


def after_init(
    unready: Unready, compiled: CompiledConfig, settlement: Settlement
) -> Unready | None:
    """What is unready now that this `init` has ended; None where that says nothing.

    Of a configuration that was replaced meanwhile it leaves everything as it was: another
    `init` is wanted.
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
