"""The started log: which claimed attempts had certainly not started when the gateway died.

Each attempt that the gateway owns has an entry in a file: its job and number, written before a slot
gets the launch, and a flag that the slot sets before it spawns. An attempt whose entry has no flag
has not started. Nothing is known about an attempt without an entry. The file outlives every process
but, since no write waits for the disk, not a crash of the machine: after a boot of the kernel it is
not used. `docs/adr/0015-started-log.md` has the reasons.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ductile.files import open_new
from ductile.log import logger
from ductile.runner.started_flags import DEADLINE, DEADLINE_AT, NO_ENTRY, STARTED

ENTRY_BYTES = 64
HEAD_BYTES = 128

_LARGEST_FILE = 16 * 1024 * 1024
_KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")


class StartedLog:
    """The entries of one boot of the gateway. For any thread."""

    def __init__(self, state_dir: Path, boot: str, entries: int) -> None:
        """Creates a file next to that of the last boot, which `activate` replaces."""
        self._path = state_dir / "started_log"
        self._new_path = state_dir / "started_log.new"
        self.fd = open_new(self._new_path)
        head = f"{boot} {_kernel_boot()}".encode().ljust(HEAD_BYTES, b"\0")
        # The whole file now, so that the disk has room for every entry.
        text = head + bytes(ENTRY_BYTES * entries)
        if os.pwrite(self.fd, text, 0) < len(text):
            self.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._new_path))
        self._free = [HEAD_BYTES + ENTRY_BYTES * entry for entry in range(entries)]
        self._trusted = True

    def activate(self) -> None:
        """Replace the last boot's file: after its jobs are recovered, before the first claim."""
        if self._trusted:
            self._new_path.rename(self._path)

    def add(self, job_id: str, attempt: int) -> int:
        """Write an entry for an attempt that has not started; `NO_ENTRY` if that fails."""
        label = f"{job_id} {attempt}".encode(errors="replace")
        if len(label) >= ENTRY_BYTES or not self._trusted:
            return NO_ENTRY
        try:
            entry = self._free.pop()
        except IndexError:
            return NO_ENTRY
        if self._write(b"\0" + label.ljust(ENTRY_BYTES - 1, b"\0"), entry):
            return entry
        self.release(entry)
        return NO_ENTRY

    def release(self, entry: int) -> None:
        """Reuse the entry: the ledger has the end of this attempt."""
        if entry != NO_ENTRY:
            self._free.append(entry)

    def revoke(self, *entries: int) -> None:
        """Make entries say nothing: their claims were rolled back, and the same attempts may start
        with other entries."""
        for entry in entries:
            if entry != NO_ENTRY:
                self._write(bytes([STARTED]), entry)
                self.release(entry)

    def _write(self, text: bytes, entry: int) -> bool:
        """Where a write fails, most likely for a full disk, remove the file: it cannot be kept
        true any more."""
        try:
            if os.pwrite(self.fd, text, entry) == len(text):
                return True
        except OSError as error:
            why = error.strerror
        else:
            why = os.strerror(errno.ENOSPC)
        if self._trusted:
            self._trusted = False
            for path in (self._path, self._new_path):
                path.unlink(missing_ok=True)
            logger("started_log").warning(
                "started log disabled: a crash counts unstarted attempts, too", error=why
            )
        return False

    def set_deadline(self, monotonic: float) -> None:
        """End all jobs at that time, unless it is moved before."""
        self._write(DEADLINE.pack(monotonic), DEADLINE_AT)

    def close(self) -> None:
        os.close(self.fd)


AttemptKey = tuple[str | None, str, int]
"""The boot that claimed it, the id of the job, and the number of the attempt."""
UnstartedAttempts = frozenset[AttemptKey]


def read_unstarted(state_dir: Path) -> UnstartedAttempts:
    """The attempts of this state directory's last boot that had certainly not started."""
    text = _read(state_dir / "started_log")
    boot, _, kernel = text[:DEADLINE_AT].rstrip(b"\0").decode(errors="replace").partition(" ")
    if not kernel or kernel != _kernel_boot() or len(text) > _LARGEST_FILE:
        return frozenset()
    started: set[AttemptKey] = set()
    unstarted: set[AttemptKey] = set()
    for entry in range(HEAD_BYTES, len(text) - ENTRY_BYTES + 1, ENTRY_BYTES):
        label = text[entry + 1 : entry + ENTRY_BYTES].rstrip(b"\0").decode(errors="replace")
        job_id, _, attempt = label.rpartition(" ")
        if attempt.isdecimal():
            found = started if text[entry] == STARTED else unstarted
            found.add((boot, job_id, int(attempt)))
    # A released entry keeps its text, and the same attempt may have another entry by now.
    return frozenset(unstarted - started)


def _read(path: Path) -> bytes:
    """The content of a file; empty where it is missing or not a regular file."""
    try:
        # O_NONBLOCK: opening a pipe must not wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return file.read(_LARGEST_FILE + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return b""


def _kernel_boot() -> str:
    try:
        return _KERNEL_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
