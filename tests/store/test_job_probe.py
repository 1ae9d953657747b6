"""The probe of a job's life leaves nothing behind, on both engines."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from ductile.clock import SystemEntropy
from ductile.store.engines.api import Ledger
from ductile.store.job_probe import JobProbe, RolledBack, Stage, commit_nothing
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.tx_config import TxConfig
from tests.store.conftest import execute

NOW = datetime(2026, 1, 1, tzinfo=UTC)
JOB = SystemEntropy().uuid()


def probe(ledger: Ledger) -> Stage:
    probe = JobProbe(JOB, ClaimPolicy("a-boot"), TxConfig(1.0), NOW)
    with pytest.raises(RolledBack):
        ledger.write(probe)
    return probe.stage


def test_probe_reaches_the_settlement_and_is_rolled_back(ledger: Ledger) -> None:
    effects: list[Any] = []
    ledger.listen(effects.append)
    assert probe(ledger) is Stage.SETTLE
    # With the same id: nothing of the first one is left.
    assert probe(ledger) is Stage.SETTLE
    ledger.write(lambda tx: commit_nothing(tx, "a-boot", "2026"))
    assert ledger.read(lambda tx: tx.all("open_boots")) == []
    assert effects == []


@pytest.mark.parametrize(("table", "stage"), [("job_queue", "accept"), ("job_log", "settle")])
def test_stage_names_what_fails(ledger: Ledger, table: str, stage: str) -> None:
    execute(ledger, f"ALTER TABLE {table} RENAME TO gone")
    probe = JobProbe(JOB, ClaimPolicy("a-boot"), TxConfig(1.0), NOW)
    with pytest.raises(Exception, match=table):
        ledger.write(probe)
    assert probe.stage == stage
