"""Correcting one key of the state that a plugin keeps between jobs."""

from __future__ import annotations

from typing import Any

from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused
from ductile.model import Json
from ductile.store.engines.api import Tx
from ductile.store.jobs import plugin_state
from ductile.store.jobs.plugin_state import REMOVED, StateBusy


class StateChange:
    """The transaction that sets a key of a plugin's state, or removes it.

    It is refused while a job of the plugin runs: the job would not know of the change, and its own
    update would be stored later.
    """

    def __init__(
        self, services: Services, plugin: str, key: str, value: Json, *, removes: bool, dry: bool
    ) -> None:
        self._services, self._plugin, self._key = services, plugin, key
        self._value: Any = REMOVED if removes else value
        self._dry, self._now = dry, services.clock.now()

    def __call__(self, tx: Tx) -> dict[str, Any]:
        plugin, key = self._plugin, self._key
        is_known = self._services.compiled.expects(plugin) or plugin_state.load_state(tx, plugin)
        if not is_known:
            close = did_you_mean(plugin, self._services.compiled.plans)
            raise NotFound(f"there is no plugin {plugin!r}{close}")
        if self._dry:
            before = plugin_state.load_state(tx, plugin)
        else:
            try:
                before = plugin_state.change_key(tx, plugin, key, self._value, self._now)
            except StateBusy as busy:
                raise Refused(
                    f"job {busy.job_id} of plugin {plugin} is running, and may write its state; "
                    f"wait for its end, or run first: ductile plugin pause {plugin}"
                ) from None
        if self._value is REMOVED and key not in before:
            raise NotFound(f"the state of plugin {plugin} has no key {key!r}")
        return {"plugin": plugin, "key": key, "existed": key in before}
