"""Waiting for the end of a job: an end during a read of the ledger is not missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import cast

from ductile.engine.services import Services
from ductile.http.middleware.wait import JobWaiter

SECONDS = 20.0


class FakeServices:
    """The services that `JobWaiter` uses."""

    is_only_writer = True

    def __init__(self) -> None:
        self.notice_bus = self
        self.end_job: Callable[[], None] = lambda: None

    def add_on_end(self, id: str, callback: Callable[[], None]) -> None:
        self.end_job = callback

    def remove_on_end(self, id: str, callback: Callable[[], None]) -> None:
        """Called when the waiter is closed."""


def wait(reads: list[str], ends_during: int) -> str:
    """Return what a wait finds if the job ends during the read with this number."""

    async def run() -> str:
        services, count = FakeServices(), 0

        async def read() -> str:
            nonlocal count
            found = reads[min(count, len(reads) - 1)]
            if count == ends_during:
                services.end_job()
                await asyncio.sleep(0)
            count += 1
            return found

        with closing(JobWaiter(cast(Services, services), "job")) as waiter:
            return await waiter.wait(
                read, lambda found: () if found == "ended" else ("job",), SECONDS
            )

    return asyncio.run(asyncio.wait_for(run(), 5))


def test_end_during_a_read_is_read_again() -> None:
    assert wait(["running", "ended"], ends_during=0) == "ended"


def test_finished_job_is_returned_at_once() -> None:
    assert wait(["ended"], ends_during=99) == "ended"


def test_wait_continues_until_nothing_is_awaited() -> None:
    """Each read names the next job to wait for, as the tree of a run does."""
    jobs = ["one", "two", "three"]

    async def run() -> list[str]:
        services, reads = FakeServices(), []

        async def read() -> str | None:
            reads.append(jobs[0] if jobs else "none")
            return jobs[0] if jobs else None

        def end_first() -> None:
            del jobs[0]
            services.end_job()
            if jobs:
                asyncio.get_running_loop().call_later(0.01, end_first)

        with closing(JobWaiter(cast(Services, services), jobs[0])) as waiter:
            asyncio.get_running_loop().call_later(0.01, end_first)
            await waiter.wait(read, lambda job: () if job is None else (job,), SECONDS)
        return reads

    reads = asyncio.run(asyncio.wait_for(run(), 5))
    # A job that is new to the waiter is read again after the subscription.
    assert reads == ["one", "two", "two", "three", "three", "none"]
