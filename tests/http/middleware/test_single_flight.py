"""One piece of work for many callers."""

from __future__ import annotations

import asyncio

from ductile.http.middleware.single_flight import RecentResult


def test_callers_share_the_work_until_its_result_is_old() -> None:
    async def call() -> tuple[list[int], int]:
        runs = 0

        async def work() -> int:
            nonlocal runs
            runs += 1
            await asyncio.sleep(0)
            return runs

        recent, renewed = RecentResult(work, 3600.0), RecentResult(work, 0.0)
        shared = [*await asyncio.gather(*(recent() for _ in range(3))), await recent()]
        await renewed()
        return shared, await renewed()

    assert asyncio.run(call()) == ([1, 1, 1, 1], 3)
