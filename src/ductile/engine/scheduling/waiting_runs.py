"""Starts runs that wait for the limit of their pipeline, where no ending run has started them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from ductile.clock import Entropy, Ids
from ductile.engine.config.compiled import CompiledConfig
from ductile.log import logger
from ductile.store import nodes
from ductile.store.engines.api import Ledger
from ductile.store.flow import run_limits
from ductile.store.jobs import close
from ductile.store.tx_config import TxConfig

BATCH = 100
LONGEST_SLEEP = 60.0
"""Seconds; a reload wakes the loop, one of another node is noticed after this time at most."""
DISPLACED_SLEEP = 1.0
"""Seconds; how often a run is looked at that is being cancelled for a newer one."""


class WaitingRuns:
    """A loop calls `tick`: after a start, after a reload, and from time to time.

    The end of a run starts the next one in its own transaction. Here are the other causes: a limit
    that was raised or removed, an event that is not debounced any longer, and what is left of a run
    that is being cancelled, because its job was retried or recovered meanwhile.
    """

    def __init__(
        self, ledger: Ledger, boot: str, compiled: Callable[[], CompiledConfig], entropy: Entropy
    ) -> None:
        self._ledger, self._boot = ledger, boot
        self._compiled, self._entropy = compiled, entropy
        self._log = logger("flow")

    def tick(self, now: datetime) -> float:
        """Start what may start; returns the seconds until the next call."""
        has_more = sum(self._open_keys(name) for name in self._list_pipelines()) > 0
        has_displaced = self._cancel_displaced(now)
        if has_more:
            return 0.0
        return DISPLACED_SLEEP if has_displaced else LONGEST_SLEEP

    def take_due(self, now: datetime) -> bool:
        """Start the runs whose event is not debounced any longer.

        Returns whether other nodes may have to do the same for pipelines that only they know.
        """
        foreign = self._list_foreign()
        while due := self._ledger.read(
            partial(run_limits.list_due, now=now, limit=BATCH, foreign=foreign)
        ):
            self._take_turns(due, now)
            if len(due) < BATCH:
                break
        return bool(foreign)

    @property
    def _tx_config(self) -> TxConfig:
        return self._compiled().tx_config

    def _take_turns(self, run_ids: list[str], now: datetime) -> None:
        base_id, config = self._entropy.uuid(), self._tx_config
        self._ledger.write(lambda tx: close.take_turns(tx, run_ids, config, Ids(base_id), now))

    def _list_pipelines(self) -> list[str]:
        """The pipelines with held runs, without those that only other nodes know."""
        found = self._ledger.read(run_limits.list_pipelines)
        foreign = self._list_foreign() if found else frozenset[str]()
        return [name for name in found if name not in foreign]

    def _list_foreign(self) -> frozenset[str]:
        """The pipelines that only other nodes know."""
        others = self._ledger.read(partial(nodes.list_pipelines_of_others, boot=self._boot))
        return frozenset(others.difference(self._tx_config.router.pipelines))

    def _open_keys(self, pipeline: str) -> bool:
        """Admit the runs of keys that are not full; whether there may be more."""
        limit = self._tx_config.run_limits.get(pipeline)
        keys = self._ledger.read(lambda tx: run_limits.list_open_keys(tx, pipeline, limit, BATCH))
        # One transaction each: two nodes would take the locks of several keys in any order.
        count = sum(
            self._ledger.write(
                partial(run_limits.open_key, pipeline=pipeline, limit_key=key, limit=limit)
            )
            for key in keys
        )
        if count:
            self._log.info("started runs that waited for a limit", pipeline=pipeline, count=count)
        return count > 0

    def _cancel_displaced(self, now: datetime) -> bool:
        """End what is left of runs for which newer runs wait; whether there are any."""
        found: list[str] = []
        foreign = self._list_foreign()
        while page := self._ledger.read(
            partial(
                run_limits.list_displaced,
                after=found[-1] if found else "",
                limit=BATCH,
                foreign=foreign,
            )
        ):
            found += page
        for run_id in found:
            self._cancel_run(run_id, now)
        return bool(found)

    def _cancel_run(self, run_id: str, now: datetime) -> None:
        base_id, config = self._entropy.uuid(), self._tx_config
        self._ledger.write(
            lambda tx: close.cancel_displaced(tx, [run_id], config, Ids(base_id), now)
        )
