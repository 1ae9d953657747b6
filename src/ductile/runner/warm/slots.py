"""The warm slots of the gateway: which zygote has a slot for a launch, and when zygotes end.

The thread that starts and ends zygotes exists only while there are some.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from ductile.model import WarmStart
from ductile.runner.client import SlotClient
from ductile.runner.pool import RunnerPool
from ductile.runner.warm.preload import ColdOnly
from ductile.runner.warm.zygote_pool import ZygotePool

MAX_ZYGOTES = 8
MAX_MEMORY = 512 * 1024
"""KiB of all zygotes together."""
SLOT_IDLE_SECONDS = 60.0
ZYGOTE_IDLE_SECONDS = 600.0
RETRY_SECONDS = 600.0
"""How long a plugin that cannot be started warm is started cold before the next try."""
LOST_RETRY_SECONDS = 10.0
"""The same after the death of a zygote, or if it refuses its first job."""
IN_USE_SECONDS = 30.0
"""A zygote whose last job has ended this recently is not ended for another one."""
_TICK = 2.0
_FULL = f"the other zygotes are in use ({MAX_ZYGOTES} at most, {MAX_MEMORY // 1024} MiB in all)"

OnEvent = Callable[[str, dict[str, object]], None]


class WarmReport(NamedTuple):
    """How a plugin is started now."""

    is_warm: bool
    reason: str
    """Why it is started cold; empty if it is warm."""
    is_idle: bool = False
    """Whether there is no zygote only because no job needs one, or it is being started."""
    memory_kib: int = 0
    slots: int = 0
    pid: int = 0


class _Entry:
    """One key: its zygote, or why it has none."""

    def __init__(self, warm: WarmStart, now: float) -> None:
        self.warm = warm
        self.zygote: ZygotePool | None = None
        self.reason = "its zygote is being started"
        self.retry_at = float("inf")
        self.last_used = now
        self.idle: list[tuple[SlotClient, float]] = []
        """Slots that run nothing, and since when."""
        self.busy: set[SlotClient] = set()
        self.has_run = False
        """Whether a slot of the zygote has run a job."""


class WarmSlots:
    """For any thread. `take` and `give_back` do not block."""

    def __init__(
        self,
        runner: RunnerPool,
        on_event: OnEvent | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner, self._on_event, self._clock = runner, on_event, clock
        self._lock = threading.Lock()
        self._wakeup = threading.Condition(self._lock)
        self._entries: dict[str, _Entry] = {}
        self._retired: list[_Entry] = []
        """Entries whose zygote ends when no slot of it is busy."""
        self._by_slot: dict[SlotClient, _Entry] = {}
        self._thread: threading.Thread | None = None
        self._starting: ZygotePool | None = None
        self._stopped = False

    # For the dispatcher

    def is_ready(self, warm: WarmStart) -> bool:
        """Whether launches of this key are started warm now. Otherwise a zygote is requested."""
        with self._lock:
            entry = self._entries.get(warm.key)
            if entry is None:
                if not self._stopped:
                    self._entries[warm.key] = _Entry(warm, self._clock())
                    self._ensure_thread()
                return False
            return entry.zygote is not None

    def take(self, warm: WarmStart) -> SlotClient | None:
        """A slot that runs nothing, until it is given back; None if there is none."""
        with self._lock:
            entry = self._entries.get(warm.key)
            while entry is not None and entry.idle:
                slot, _ = entry.idle.pop()
                if slot.connection is not None:
                    return self._lend(entry, slot)
            return None

    def fork(self, warm: WarmStart) -> SlotClient | None:
        """A new slot, until it is given back; None if the zygote provides none. May block."""
        with self._lock:
            entry = self._entries.get(warm.key)
            zygote = entry.zygote if entry is not None else None
        if entry is None or zygote is None:
            return None
        slot = zygote.fork_slot()
        with self._lock:
            if slot is None:
                if zygote.refusal or zygote.is_broken:
                    self._replace(entry, zygote)
            elif self._entries.get(warm.key) is entry and not self._stopped:
                return self._lend(entry, slot)
        if slot is not None:
            slot.set_connection(None)
        return None

    def _lend(self, entry: _Entry, slot: SlotClient) -> SlotClient:
        entry.last_used = self._clock()
        entry.busy.add(slot)
        self._by_slot[slot] = entry
        return slot

    def give_back(self, slot: SlotClient) -> None:
        """The slot runs nothing any more."""
        with self._lock:
            entry = self._by_slot.pop(slot)
            entry.busy.discard(slot)
            zygote = entry.zygote
            entry.last_used = now = self._clock()
            is_current = self._entries.get(entry.warm.key) is entry
            if zygote is not None and is_current and (zygote.refusal or zygote.is_broken):
                self._replace(entry, zygote)
                is_current = False
            if is_current and slot.connection is not None:
                entry.has_run = True
                entry.idle.append((slot, now))
                return
            slot.set_connection(None)
            self._wakeup.notify()

    # Retiring

    def _replace(self, entry: _Entry, zygote: ZygotePool) -> None:
        """Start another zygote soon: files have changed, or the present one is lost."""
        if zygote.refusal and not entry.has_run:
            # The next one might be refused as well, and each takes the time of a start.
            self._retire(entry, zygote.refusal, LOST_RETRY_SECONDS)
            self._report("warm.refused", plugin=entry.warm.plugin, reason=zygote.refusal)
        elif zygote.refusal:
            self._retire(entry, "", 0.0)
            self._report("zygote.replaced", plugin=entry.warm.plugin, reason=zygote.refusal)
        else:
            self._retire(entry, "its zygote was lost", LOST_RETRY_SECONDS)

    def _retire(self, entry: _Entry, reason: str, retry: float) -> None:
        """Have the zygote of an entry end when its slots have finished what they run.

        With a `reason`, the key is started cold for `retry` seconds.
        """
        if self._entries.get(entry.warm.key) is not entry:
            return
        del self._entries[entry.warm.key]
        if reason:
            cold = self._entries[entry.warm.key] = _Entry(entry.warm, self._clock())
            cold.reason, cold.retry_at = reason, self._clock() + retry
        for slot, _ in entry.idle:
            slot.set_connection(None)
        entry.idle.clear()
        self._retired.append(entry)
        self._wakeup.notify()

    def _report(self, name: str, **details: object) -> None:
        if self._on_event is not None:
            self._on_event(name, details)

    # For operators

    def report(self, warm: WarmStart) -> WarmReport:
        with self._lock:
            entry = self._entries.get(warm.key)
            if entry is None:
                reason = "no job has run lately; the next one starts a zygote"
                return WarmReport(False, reason, is_idle=True)
            zygote = entry.zygote
            if zygote is None:
                return WarmReport(False, entry.reason, is_idle=self._is_to_start(entry))
            slots = len(entry.idle) + len(entry.busy)
            return WarmReport(True, "", False, zygote.memory, slots, zygote.pid)

    def processes(self) -> set[int]:
        """The pids of all zygotes and warm slots."""
        with self._lock:
            entries = [*self._entries.values(), *self._retired]
            zygotes = [entry.zygote for entry in entries if entry.zygote is not None]
        return {pid for zygote in zygotes for pid in zygote.processes() if pid}

    # The thread

    def _ensure_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="zygotes", daemon=True)
            self._thread.start()
        self._wakeup.notify()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._entries and not self._retired:
                    self._thread = None
                    return
                starting = [e for e in self._entries.values() if self._is_to_start(e)]
                if not starting:
                    self._wakeup.wait(_TICK)
            for entry in starting:
                self._start(entry)
            self.tick()

    def _is_to_start(self, entry: _Entry) -> bool:
        return entry.zygote is None and entry.retry_at == float("inf")

    def _start(self, entry: _Entry) -> None:
        zygote = ZygotePool(self._runner, entry.warm)
        with self._lock:
            reason = "" if self._make_room(entry, 0) else _FULL
            self._starting = zygote
        try:
            if not reason:
                zygote.start()
        except ColdOnly as error:
            reason = str(error)
        except OSError as error:
            reason = f"its interpreter cannot be started: {error}"
        if not reason and zygote.memory > MAX_MEMORY:
            reason = f"its zygote takes {zygote.memory // 1024} MiB, more than all may take"
        with self._lock:
            self._starting = None
            if not reason and not self._make_room(entry, zygote.memory):
                reason = _FULL
            if not reason and not self._stopped:
                entry.zygote, entry.last_used = zygote, self._clock()
                return
            retry = IN_USE_SECONDS if reason == _FULL else RETRY_SECONDS
            entry.reason, entry.retry_at = reason, self._clock() + retry
        zygote.stop()
        if reason and not self._stopped:
            self._report("warm.refused", plugin=entry.warm.plugin, reason=reason)

    def _make_room(self, new: _Entry, memory: int) -> bool:
        """Retire the least recently used zygotes, so that one more is within the limits; False
        where those that are in use leave no room."""
        found = [e for e in self._entries.values() if e.zygote is not None and e is not new]
        found.sort(key=lambda entry: entry.last_used)
        used = sum(entry.zygote.memory for entry in found if entry.zygote is not None)
        while len(found) >= MAX_ZYGOTES or used + memory > MAX_MEMORY:
            oldest = next((entry for entry in found if self._is_unused(entry)), None)
            if oldest is None:
                return False
            found.remove(oldest)
            assert oldest.zygote is not None
            used -= oldest.zygote.memory
            self._retire(oldest, "", 0.0)
        return True

    def _is_unused(self, entry: _Entry) -> bool:
        return not entry.busy and self._clock() - entry.last_used >= IN_USE_SECONDS

    def tick(self) -> None:
        """End what was idle for too long, is dead, or has been retired and finished its jobs."""
        with self._lock:
            now = self._clock()
            for entry in list(self._entries.values()):
                self._expire(entry, now)
            ended = [entry for entry in self._retired if not entry.busy]
            self._retired = [entry for entry in self._retired if entry.busy]
        for entry in ended:
            if entry.zygote is not None:
                entry.zygote.stop()

    def _expire(self, entry: _Entry, now: float) -> None:
        zygote = entry.zygote
        if zygote is None:
            if entry.retry_at <= now:
                del self._entries[entry.warm.key]
            return
        expired = [one for one in entry.idle if now - one[1] >= SLOT_IDLE_SECONDS]
        entry.idle = [one for one in entry.idle if one not in expired]
        for slot, _ in expired:
            slot.set_connection(None)
        if not zygote.is_alive:
            self._report("zygote.lost", plugin=entry.warm.plugin, pid=zygote.pid, reason="died")
            zygote.is_broken = True
            self._replace(entry, zygote)
        elif not entry.busy and now - entry.last_used >= ZYGOTE_IDLE_SECONDS:
            self._retire(entry, "", 0.0)

    def stop(self) -> None:
        """End all zygotes, with what their slots run."""
        with self._lock:
            self._stopped = True
            entries = [*self._entries.values(), *self._retired]
            self._entries, self._retired = {}, []
            thread = self._thread
            if self._starting is not None:
                # Its imports may take seconds.
                self._starting.abort()
            self._wakeup.notify()
        if thread is not None:
            thread.join()
        for entry in entries:
            if entry.zygote is not None:
                entry.zygote.stop()
