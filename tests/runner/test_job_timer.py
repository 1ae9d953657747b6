"""When a job is ended, on a clock that the test sets."""

from __future__ import annotations

import signal
from types import SimpleNamespace

import pytest

from ductile.runner import protocol, slot

TIMEOUT, GRACE = 60.0, 5.0


class FakeProcess:
    """Records the signals that it is sent, and when."""

    def __init__(self, clock):
        self.pid, self.stdout = 1, SimpleNamespace(closed=False)
        self._clock, self.sent = clock, []

    def raise_oom_score(self):
        pass

    def signal(self, number):
        self.sent.append((number, self._clock.now))

    def kill(self):
        self.signal(signal.SIGKILL)

    def drain(self):
        """There is nothing to read."""


class Job:
    """A timer whose time passes in the test."""

    def __init__(self):
        self.now = 1000.0
        self.process = FakeProcess(self)
        self.timer = None

    def monotonic(self):
        return self.now

    def pass_time(self, seconds):
        """As a slot does: wait as long as the timer says, tick, and wait again."""
        end = self.now + seconds
        while (turn := self.timer.seconds_to_wait()) <= end - self.now:
            self.now += turn
            self.timer.tick()
        self.now = end

    def close_stdout(self):
        self.process.stdout.closed = True
        self.timer.output_complete()

    @property
    def sent(self):
        return [(number, at - 1000.0) for number, at in self.process.sent]


@pytest.fixture
def job(monkeypatch):
    job = Job()
    monkeypatch.setattr(slot, "time", job)
    monkeypatch.setattr(slot.reaper, "reap_orphans", lambda _leader: None)
    job.timer = slot.JobTimer(job.process, SimpleNamespace(timeout=TIMEOUT, grace=GRACE))
    return job


def test_deadline_sends_sigterm_and_kills_after_the_grace(job):
    job.pass_time(600)
    assert job.timer.ending == protocol.TIMED_OUT
    assert job.sent == [(signal.SIGTERM, TIMEOUT), (signal.SIGKILL, TIMEOUT + GRACE)]


def test_lingering_process_is_killed_without_grace(job):
    job.pass_time(10)
    job.close_stdout()
    job.pass_time(600)
    assert job.timer.ending == protocol.LINGERED
    assert job.sent == [(signal.SIGKILL, 10 + slot.LINGER)]


def test_deadline_while_lingering_leaves_only_the_rest_of_the_linger(job):
    job.pass_time(TIMEOUT - 1)
    job.close_stdout()
    job.pass_time(600)
    assert job.timer.ending == protocol.LINGERED
    assert job.sent == [
        (signal.SIGTERM, TIMEOUT),
        (signal.SIGKILL, TIMEOUT - 1 + slot.LINGER),
    ]


def test_cancel_sends_sigterm_and_kills_after_its_own_grace(job):
    job.pass_time(1)
    job.timer.cancel(3.0)
    job.pass_time(600)
    assert job.timer.ending == protocol.CANCELLED
    assert job.sent == [(signal.SIGTERM, 1), (signal.SIGKILL, 4)]


def test_cancel_without_grace_only_kills(job):
    job.timer.cancel(0.0)
    assert job.sent == [(signal.SIGKILL, 0)]


def test_second_cancel_can_only_shorten_the_grace(job):
    job.timer.cancel(30.0)
    job.timer.cancel(50.0)
    job.pass_time(1)
    job.timer.cancel(2.0)
    job.pass_time(600)
    assert job.sent == [(signal.SIGTERM, 0), (signal.SIGKILL, 3)]


def test_grace_of_a_cancel_ends_with_that_of_the_deadline(job):
    job.pass_time(TIMEOUT - 1)
    job.timer.cancel(3600.0)
    job.pass_time(600)
    assert job.sent == [(signal.SIGTERM, TIMEOUT - 1), (signal.SIGKILL, TIMEOUT + GRACE)]
