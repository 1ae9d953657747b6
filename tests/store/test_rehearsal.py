"""The rehearsal of a job's life leaves nothing behind, on both engines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ductile.store.engines.api import Ledger
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.rehearsal import Rehearsal, RolledBack, Stage, commit_nothing
from ductile.store.tx_config import TxConfig
from tests.store.conftest import execute

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def rehearse(ledger: Ledger) -> Stage:
    rehearsal = Rehearsal("a-job", ClaimPolicy("a-boot"), TxConfig(1.0), NOW)
    with pytest.raises(RolledBack):
        ledger.write(rehearsal)
    return rehearsal.stage


def test_rehearsal_reaches_the_settlement_and_is_rolled_back(ledger: Ledger) -> None:
    effects: list[Any] = []
    ledger.listen(effects.append)
    assert rehearse(ledger) is Stage.SETTLE
    # With the same id: nothing of the first one is left.
    assert rehearse(ledger) is Stage.SETTLE
    ledger.write(lambda tx: commit_nothing(tx, "a-boot", "2026"))
    assert ledger.read(lambda tx: tx.all("open_boots")) == []
    assert effects == []


@pytest.mark.parametrize(("table", "stage"), [("job_queue", "accept"), ("job_log", "settle")])
def test_stage_names_what_fails(ledger: Ledger, table: str, stage: str) -> None:
    execute(ledger, f"ALTER TABLE {table} RENAME TO gone")
    rehearsal = Rehearsal("a-job", ClaimPolicy("a-boot"), TxConfig(1.0), NOW)
    with pytest.raises(Exception, match=table):
        ledger.write(rehearsal)
    assert rehearsal.stage == stage
