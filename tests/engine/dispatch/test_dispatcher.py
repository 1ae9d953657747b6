"""Claims, runs and settlements of a dispatcher, and what goes wrong with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from ductile.engine.dispatch import commit_batch, dispatcher
from ductile.engine.dispatch.attempt import Attempt
from ductile.engine.dispatch.attempt_judge import LARGE_ANSWER
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.errors import LedgerBusy
from ductile.model import Cancellation, Ending, Launch, Outcome, Settlement
from ductile.runner.connection import SlotLost
from ductile.store.engines.api import Tx
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs.settle import settle_many
from ductile.store.tx_config import TxConfig
from tests.engine.dispatch.fakes import DispatcherUnderTest, FakeSlot, dispatching
from tests.engine.site import OK, Site
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture
def single(site: Site) -> Iterator[DispatcherUnderTest]:
    """One slot."""
    with dispatching(site, FakeSlot()) as under_test:
        yield under_test


@pytest.fixture
def pair(site: Site) -> Iterator[DispatcherUnderTest]:
    """Two slots."""
    with dispatching(site, FakeSlot(), FakeSlot()) as under_test:
        yield under_test


def run_another(single: DispatcherUnderTest) -> None:
    """The dispatcher still works."""
    id = single.running.put("echo")
    single.wait_for_start()
    single.slot.finish()
    assert single.running.ended(id)["status"] == "succeeded"


# Batches


@pytest.mark.parametrize(
    ("settling", "claims", "prefetch", "batches"),
    [
        (0, 0, 0, []),
        (3, 2, 4, [(3, 2, 4)]),
        (0, 2, 0, [(0, 2, 0)]),
        (8, 8, 0, [(8, 8, 0)]),
        (9, 1, 4, [(8, 1, 0), (1, 0, 0)]),
        (1, 10, 0, [(1, 8, 0), (0, 2, 0)]),
        (2, 4, 5, [(2, 4, 0)]),
    ],
)
def test_batch_has_no_more_than_the_ledger_takes(
    settling: int, claims: int, prefetch: int, batches: list[tuple[int, int, int]]
) -> None:
    attempts = [SimpleNamespace(commit_alone=False) for _ in range(settling)]
    found = list(commit_batch.split_batches(attempts, claims, prefetch, limit=8))  # type: ignore[arg-type]
    assert [(len(one.attempts), one.claims, one.prefetch) for one in found] == batches
    assert [attempt for one in found for attempt in one.attempts] == attempts


def test_settlement_that_is_committed_alone_has_a_batch_without_claims() -> None:
    attempts = [SimpleNamespace(commit_alone=alone) for alone in (False, True, False)]
    found = list(commit_batch.split_batches(attempts, 2, 1, limit=8))  # type: ignore[arg-type]
    assert [(one.attempts, one.claims, one.prefetch) for one in found] == [
        ([attempts[1]], 0, 0),
        ([attempts[0], attempts[2]], 2, 1),
    ]


# Claims


def test_more_idle_workers_than_one_transaction_claims_for_are_all_used(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteLedger, "batch_size", 2)
    site.settings["service"]["max_workers"] = 6
    site.plugin("echo", OK)
    with site.opened() as running:
        for _ in range(6):
            running.put("echo")
        under_test = DispatcherUnderTest(running, [FakeSlot() for _ in range(6)])
        assert all(slot.started.acquire(timeout=WAIT_LIMIT) for slot in under_test.slots)
        under_test.stop()


# Cancellation


def test_a_cancellation_never_hits_the_following_job(single: DispatcherUnderTest) -> None:
    """The first job ends by itself just as it is cancelled, and the next could start."""
    first, second = single.running.put("echo"), single.running.put("echo")
    single.wait_for_start()
    overtaken: list[bool] = []

    def on_cancel() -> None:
        single.slot.finish()
        overtaken.append(single.slot.started.acquire(timeout=0.5))

    single.slot.on_cancel = on_cancel
    single.dispatcher.cancel(Cancellation.OPERATOR, job_id=first)
    assert overtaken == [False]
    single.wait_for_start()
    single.slot.finish()
    assert single.running.ended(second)["status"] == "succeeded"


def test_a_cancellation_of_an_unknown_job_does_nothing(single: DispatcherUnderTest) -> None:
    single.slot.on_cancel = lambda: pytest.fail("it was cancelled")
    single.running.put("echo")
    single.wait_for_start()
    assert single.dispatcher.cancel(Cancellation.OPERATOR, job_id="another") is False
    single.slot.finish()


# Bugs


def test_a_bug_in_a_slot_client_fails_the_attempt_only(single: DispatcherUnderTest) -> None:
    single.slot.error = RuntimeError("a bug")
    id = single.running.put("echo")
    single.wait_for_start()
    single.slot.finish()
    assert "a bug" in single.running.tried(id)["last_error"]
    single.slot.error = None
    run_another(single)


def test_a_bug_after_a_settlement_does_not_end_the_dispatcher(
    single: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(settlement: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(single.running.gateway, "settled", fail)
    for _ in range(3):
        run_another(single)


def test_a_bug_in_the_preparation_fails_the_attempt(
    single: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object, job: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(type(single.running.gateway.compiled.workspaces), "provide", fail)
        id = single.running.put("echo")
        assert "a bug" in single.running.tried(id)["last_error"]
    run_another(single)


def test_attempt_that_cannot_be_settled_leaves_its_worker_idle(
    single: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its job stays `running` and is owned by no dispatcher: the orphan sweep ends it."""

    def fail(self: object, plugin: str, command: str) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(type(single.running.gateway.compiled), "rules", fail)
        id = single.running.put("echo")
        single.running.notice("job.started", id)
        until(lambda: single.dispatcher._workers.idle)
    again = single.running.put("echo")
    single.wait_for_start()
    assert single.dispatcher.owned_jobs() == {again}
    single.slot.finish()
    assert single.running.ended(again)["status"] == "succeeded"
    assert single.running.job(id)["status"] == "running"


def test_bug_in_one_settlement_does_not_fail_those_of_its_transaction(
    pair: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, sound = pair.running.put("echo"), pair.running.put("echo")
    for slot in pair.slots:
        assert slot.started.acquire(timeout=WAIT_LIMIT)
    busy: list[int] = []

    def settle_or_fail(
        tx: Tx, settlements: list[tuple[Settlement, str]], tx_config: TxConfig
    ) -> list[Settlement | None]:
        busy.append(pair.dispatcher.busy)
        if any(settlement.job_id == failing for settlement, _ in settlements):
            raise RuntimeError("a bug")
        return settle_many(tx, settlements, tx_config)

    monkeypatch.setattr(commit_batch, "settle_many", settle_or_fail)
    pair.finish(*pair.slots)
    assert pair.running.ended(sound)["status"] == "succeeded"
    assert busy[0] == 0, "they did not end together"
    assert pair.running.job(failing)["status"] == "running"
    until(lambda: not pair.dispatcher.owned_jobs())


def test_settlement_that_the_ledger_does_not_answer_stops_no_other(
    pair: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, sound = pair.running.put("echo"), pair.running.put("echo")
    for slot in pair.slots:
        assert slot.started.acquire(timeout=WAIT_LIMIT)
    together: list[int] = []

    def settle_or_wait(
        tx: Tx, settlements: list[tuple[Settlement, str]], tx_config: TxConfig
    ) -> list[Settlement | None]:
        together.append(len(settlements))
        if any(settlement.job_id == locked for settlement, _ in settlements):
            raise LedgerBusy("the database does not answer")
        return settle_many(tx, settlements, tx_config)

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher, "LEDGER_PAUSE", 0.01)
        patch.setattr(commit_batch, "settle_many", settle_or_wait)
        pair.finish(*pair.slots)
        assert pair.running.ended(sound)["status"] == "succeeded"
        assert together[0] == 2, "they did not end together"
        assert pair.running.job(locked)["status"] == "running"
    assert pair.running.ended(locked)["status"] == "succeeded"


# Lost slots


def lose_first_slot(
    pair: DispatcherUnderTest, *, launch_taken: bool
) -> tuple[FakeSlot, FakeSlot, str]:
    """The slot that was lost with the first job, the other slot, and that job."""
    for slot in pair.slots:
        slot.lost = SlotLost("it died", launch_taken=launch_taken)
    id = pair.running.put("echo")
    found: list[FakeSlot] = []

    def has_started() -> bool:
        found.extend(slot for slot in pair.slots if slot.started.acquire(blocking=False))
        return bool(found)

    until(has_started)
    for slot in pair.slots:
        slot.lost = None
    [sound] = [slot for slot in pair.slots if slot is not found[0]]
    return found[0], sound, id


def test_other_jobs_run_while_a_slot_is_replaced(pair: DispatcherUnderTest) -> None:
    lost, sound, first = lose_first_slot(pair, launch_taken=True)
    second = pair.running.put("echo")
    assert sound.started.acquire(timeout=WAIT_LIMIT)
    sound.finish()
    assert pair.running.ended(second)["status"] == "succeeded"
    assert pair.running.job(first)["status"] == "running"
    lost.may_be_replaced.set()
    assert pair.running.tried(first)["last_error"] == "it died"


def test_job_that_is_cancelled_while_its_slot_is_replaced_is_cancelled(
    pair: DispatcherUnderTest,
) -> None:
    lost, _, id = lose_first_slot(pair, launch_taken=False)
    cancelled = threading.Event()
    lost.on_cancel = cancelled.set
    assert pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=id)
    assert cancelled.is_set()
    lost.outcome = Outcome(Ending.CANCELLED)
    lost.may_be_replaced.set()
    lost.finish()
    assert pair.running.ended(id)["last_error"] == "cancelled"


def test_a_launch_that_a_new_slot_took_continues_there(pair: DispatcherUnderTest) -> None:
    lost, _, id = lose_first_slot(pair, launch_taken=False)
    lost.may_be_replaced.set()
    lost.finish()
    job = pair.running.ended(id)
    assert (job["status"], job["attempt"]) == ("succeeded", 1)


def test_a_slot_that_dies_while_idle_is_watched_no_more(single: DispatcherUnderTest) -> None:
    """Its closed socket would wake the dispatcher without end."""
    run_another(single)
    until(lambda: not single.dispatcher.owned_jobs())
    assert single.dispatcher._events._by_slot
    single.slot.die()
    until(lambda: not single.dispatcher._events._by_slot)


# Large answers


def test_a_large_answer_is_settled_like_any_other(single: DispatcherUnderTest) -> None:
    result = "x" * 2 * LARGE_ANSWER
    stdout = orjson.dumps({"status": "ok", "result": result})
    single.slot.outcome = Outcome(Ending.EXITED, exit_code=0, stdout=stdout)
    id = single.running.put("echo")
    single.wait_for_start()
    single.slot.finish()
    job = single.running.ended(id)
    assert (job["status"], job["result"]["result"]) == ("succeeded", result)


def test_large_answer_is_settled_where_no_thread_can_be_started(
    single: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stdout = orjson.dumps({"status": "ok", "result": "x" * 2 * LARGE_ANSWER})
    single.slot.outcome = Outcome(Ending.EXITED, exit_code=0, stdout=stdout)
    id = single.running.put("echo")
    single.wait_for_start()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    single.slot.finish()
    assert single.running.ended(id)["status"] == "succeeded"
    monkeypatch.undo()


@pytest.mark.parametrize("claiming", [0, 1, 3])
def test_demand_is_never_negative(claiming: int) -> None:
    """After a resize to fewer workers, more jobs may be claimed than workers are idle."""
    dispatcher: Any = object.__new__(Dispatcher)
    dispatcher._claiming = claiming
    dispatcher._workers = SimpleNamespace(idle=1, take_round=lambda: (2, 2))
    work_signal = SimpleNamespace(take=lambda most: most)
    dispatcher._host = SimpleNamespace(
        work_signal=work_signal, ledger=SimpleNamespace(batch_size=16)
    )
    claims, prefetch = dispatcher._demand()
    assert claims >= 0
    assert prefetch >= 0


def test_job_whose_preparation_outlasts_the_lease_does_not_start(
    single: DispatcherUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare, gateway = Attempt.prepare, single.running.gateway
    with monkeypatch.context() as lost:

        def lose_lease_and_prepare(attempt: Attempt) -> Launch | Settlement:
            lost.setattr(gateway, "lease_term", lambda: None)
            return prepare(attempt)

        lost.setattr(Attempt, "prepare", lose_lease_and_prepare)
        id = single.running.put("echo")
        until(lambda: gateway.lease_term() is None)
        until(lambda: single.running.job(id)["status"] == "queued")
        assert not single.slot.started.acquire(blocking=False)
    gateway.claim_again()
    single.wait_for_start()
    single.slot.finish()
    assert single.running.ended(id)["attempt"] == 2
