"""Judging: the outcome of an attempt becomes its settlement, which waits for a commit."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from ductile.engine.dispatch.attempt import Attempt
from ductile.log import logger
from ductile.model import Outcome, Settlement
from ductile.runner.event_loop import EventLoop

LARGE_ANSWER = 256 * 1024
"""Bytes of stdout from which an answer is judged in a thread of its own."""


class AttemptJudge:
    """Moves attempts from JUDGING to SETTLING. For the dispatcher's thread."""

    def __init__(self, events: EventLoop, forget: Callable[[Attempt], None]) -> None:
        """`forget` ends an attempt that cannot be settled."""
        self._events, self._forget = events, forget
        self._log = logger("worker")
        self._settling: list[Attempt] = []
        self.large_answers = 0
        """How many large answers are being judged."""
        self._judge_large = threading.Lock()
        """For one large answer at a time: parsed, it takes many times its size in memory."""

    @property
    def has_settling(self) -> bool:
        return bool(self._settling)

    def judge(self, attempt: Attempt, outcome: Outcome) -> None:
        if len(outcome.stdout) <= LARGE_ANSWER:
            self.settle(attempt, partial(attempt.judge, outcome))
            return
        self.large_answers += 1

        def judge_large() -> Settlement:
            with self._judge_large:
                return attempt.judge(outcome)

        def settle_large(judged: Future[Settlement]) -> None:
            self.large_answers -= 1
            self.settle(attempt, judged.result)

        self._events.run_in_thread(judge_large, settle_large)

    def settle(self, attempt: Attempt, decide: Callable[[], Settlement]) -> None:
        """Be SETTLING with what is decided, or as failed: no job stays `running` for a bug."""
        try:
            try:
                settlement = decide()
            except Exception as error:  # noqa: BLE001 - the attempt's failure
                settlement = attempt.judge_bug(error)
            attempt.settle_as(settlement)
        except Exception as error:  # noqa: BLE001 - the orphan sweep ends the job
            self._log.crash("attempt cannot be settled", error, job_id=attempt.job.id)
            self._forget(attempt)
        else:
            self._settling.append(attempt)

    def take_settling(self) -> list[Attempt]:
        """The attempts that became SETTLING since the last call."""
        settling, self._settling = self._settling, []
        return settling
