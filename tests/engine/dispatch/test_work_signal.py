"""Waking the dispatcher for as many jobs as are ready, and never for one too few."""

from __future__ import annotations

import threading

from ductile.engine.dispatch.work_signal import WorkSignal


def attached(workers: int) -> tuple[WorkSignal, threading.Semaphore]:
    """A signal, and how often it has woken the dispatcher."""
    signal, woken = WorkSignal(workers), threading.Semaphore(0)
    signal.attach(woken.release)
    return signal, woken


def test_a_notification_before_the_dispatcher_waits_is_kept() -> None:
    signal = WorkSignal(4)
    signal.notify()
    assert signal.arm() is False
    assert (signal.take(4), signal.take(4)) == (1, 0)
    assert signal.arm() is True


def test_no_more_notifications_are_kept_than_there_are_workers() -> None:
    signal = WorkSignal(2)
    signal.notify(100)
    assert (signal.take(10), signal.take(10)) == (2, 0)


def test_notify_all_is_one_notification_per_worker() -> None:
    signal = WorkSignal(3)
    signal.notify_all()
    assert signal.take(10) == 3


def test_a_waiting_dispatcher_is_woken_once() -> None:
    signal, woken = attached(4)
    assert signal.arm()
    signal.notify()
    signal.notify()
    assert [woken.acquire(blocking=False) for _ in range(2)] == [True, False]


def test_notification_does_not_wake_a_dispatcher_without_idle_workers() -> None:
    signal, woken = attached(4)
    signal.notify()
    assert not woken.acquire(blocking=False)
    signal.take(1)
    assert signal.arm()
    signal.disarm()
    signal.notify()
    assert not woken.acquire(blocking=False)


def test_wake_always_wakes_the_dispatcher() -> None:
    signal, woken = attached(4)
    signal.wake()
    assert woken.acquire(blocking=False)


def test_a_dispatcher_that_is_closed_is_not_woken() -> None:
    signal, woken = attached(4)
    signal.attach(None)
    assert signal.arm()
    signal.notify()
    signal.wake()
    assert not woken.acquire(blocking=False)
