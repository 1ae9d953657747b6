"""Results of other threads: all of them arrive, and a burst wakes the loop once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ductile.errors import LedgerError
from ductile.http.middleware.loop_queue import LoopQueue, resolve_future
from ductile.store.engines.sqlite import SqliteLedger
from tests.store.engines.sqlite.harness import Gate
from tests.waiting import WAIT_LIMIT


def test_results_of_all_threads_arrive() -> None:
    async def main() -> list[int]:
        box, loop = LoopQueue.current(), asyncio.get_running_loop()
        futures: list[asyncio.Future[int]] = [loop.create_future() for _ in range(4000)]

        def send(share: int) -> None:
            for number in range(share, len(futures), 4):
                box.put(resolve_future(futures[number]), number, None)

        threads = [threading.Thread(target=send, args=(share,)) for share in range(4)]
        for thread in threads:
            thread.start()
        found = await asyncio.wait_for(asyncio.gather(*futures), 20)
        for thread in threads:
            thread.join()
        return found

    assert asyncio.run(main()) == list(range(4000))


def test_burst_wakes_the_loop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> int:
        loop, wakes = asyncio.get_running_loop(), 0
        wake = loop.call_soon_threadsafe

        def counted(*args: Any) -> Any:
            nonlocal wakes
            wakes += 1
            return wake(*args)

        monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
        box = LoopQueue(loop)
        futures = [loop.create_future() for _ in range(100)]
        for future in futures:
            box.put(resolve_future(future), None, None)
        await asyncio.gather(*futures)
        return wakes

    assert asyncio.run(main()) == 1


def test_failing_receiver_does_not_affect_the_others() -> None:
    async def main() -> list[str]:
        box, loop, errors = LoopQueue.current(), asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, about: errors.append(str(about["exception"])))
        good: asyncio.Future[int] = loop.create_future()

        def bad(*_: object) -> None:
            raise ValueError("a bug")

        box.put(bad, 1, None)
        box.put(resolve_future(good), 2, None)
        assert await asyncio.wait_for(good, 10) == 2
        return errors

    assert asyncio.run(main()) == ["a bug"]


def test_errors_arrive_and_cancelled_futures_are_skipped() -> None:
    async def main() -> None:
        box, loop = LoopQueue.current(), asyncio.get_running_loop()
        left, bad, good = (loop.create_future() for _ in range(3))
        left.cancel()
        box.put(resolve_future(left), 1, None)
        box.put(resolve_future(bad), None, ValueError("no"))
        box.put(resolve_future(good), 2, None)
        assert await good == 2
        with pytest.raises(ValueError, match="no"):
            await bad

    asyncio.run(main())


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    yield ledger
    ledger.close()


def test_transactions_of_a_turn_are_submitted_at_its_end(ledger: SqliteLedger) -> None:
    gate = Gate(ledger)

    async def main() -> tuple[int, int, list[int]]:
        box, loop = LoopQueue.current(), asyncio.get_running_loop()
        futures = [loop.create_future() for _ in range(3)]
        for number, future in enumerate(futures):
            box.submit(ledger, lambda _, number=number: number, resolve_future(future))
        before = len(ledger._queue._waiting)
        await asyncio.sleep(0)
        after = len(ledger._queue._waiting)
        gate.open()
        return before, after, await asyncio.wait_for(asyncio.gather(*futures), WAIT_LIMIT)

    assert asyncio.run(main()) == (0, 3, [0, 1, 2])


def test_refused_submission_is_reported_to_its_receiver(ledger: SqliteLedger) -> None:
    ledger.close()

    async def main() -> None:
        future = asyncio.get_running_loop().create_future()
        LoopQueue.current().submit(ledger, lambda _: None, resolve_future(future))
        with pytest.raises(LedgerError):
            await asyncio.wait_for(future, WAIT_LIMIT)

    asyncio.run(main())
