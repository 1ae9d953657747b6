"""Which of the jobs in hand have begun, for whoever comes after a crash.

Each attempt that the gateway has in hand has a cell of a file: who it is, written before a slot
hears of it, and a byte that the slot sets before it spawns. What stands there without that byte has
not begun; of what does not stand there nothing is known. What is written outlives every process,
but, since nobody waits for the disk, no machine: after a boot of the kernel it says nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ductile.log import logger
from ductile.runner.started_flags import BEGUN, NOWHERE

CELL = 64
HEAD = 128

_LARGEST = 16 * 1024 * 1024
_KERNEL_BOOT = Path("/proc/sys/kernel/random/boot_id")


class StartedLog:
    """The cells of one boot of the gateway; for any thread."""

    def __init__(self, state_dir: Path, boot: str, cells: int) -> None:
        """Beside the file of the boot before, until `stand` takes its place."""
        self._path = state_dir / "started_log"
        self._fresh = state_dir / "started_log.new"
        self._fresh.unlink(missing_ok=True)
        self.fd = os.open(self._fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        head = f"{boot} {_kernel_boot()}".encode().ljust(HEAD, b"\0")
        # All of it now, so that there is room on the disk when it is needed.
        text = head + bytes(CELL * cells)
        if os.pwrite(self.fd, text, 0) < len(text):
            self.close()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._fresh))
        self._free = [HEAD + CELL * cell for cell in range(cells)]
        self._trusted = True

    def stand(self) -> None:
        """To be called once what the last boot left is seen to, and before anything is claimed."""
        if self._trusted:
            self._fresh.rename(self._path)

    def enter(self, job_id: str, attempt: int) -> int:
        """The place of this attempt, which has not begun."""
        label = f"{job_id} {attempt}".encode(errors="replace")
        if len(label) >= CELL or not self._trusted:
            return NOWHERE
        try:
            place = self._free.pop()
        except IndexError:
            return NOWHERE
        if self._write(b"\0" + label.ljust(CELL - 1, b"\0"), place):
            return place
        self.leave(place)
        return NOWHERE

    def leave(self, place: int) -> None:
        """The end of this attempt is for the ledger to tell."""
        if place != NOWHERE:
            self._free.append(place)

    def revoke(self, *places: int) -> None:
        """Their claims did not come to be. The same attempts may begin from another place."""
        for place in places:
            if place != NOWHERE:
                self._write(bytes([BEGUN]), place)
                self.leave(place)

    def _write(self, text: bytes, place: int) -> bool:
        """Where that fails, as a rule for a full disk, the file is no evidence any more."""
        try:
            if os.pwrite(self.fd, text, place) == len(text):
                return True
        except OSError as error:
            why = error.strerror
        else:
            why = os.strerror(errno.ENOSPC)
        if self._trusted:
            self._trusted = False
            for path in (self._path, self._fresh):
                path.unlink(missing_ok=True)
            logger("started_log").warning("a crash would count what has not begun", error=why)
        return False

    def close(self) -> None:
        os.close(self.fd)


Attempt = tuple[str | None, str, int]
"""The boot that claimed it, the job's id, and which attempt of it."""
Unbegun = frozenset[Attempt]


def unbegun(state_dir: Path) -> Unbegun:
    """What the last boot of this state directory had in hand, and had certainly not begun."""
    text = _read(state_dir / "started_log")
    boot, _, kernel = text[:HEAD].rstrip(b"\0").decode(errors="replace").partition(" ")
    if not kernel or kernel != _kernel_boot() or len(text) > _LARGEST:
        return frozenset()
    begun: set[Attempt] = set()
    waiting: set[Attempt] = set()
    for at in range(HEAD, len(text) - CELL + 1, CELL):
        label = text[at + 1 : at + CELL].rstrip(b"\0").decode(errors="replace")
        job_id, _, attempt = label.rpartition(" ")
        if attempt.isdecimal():
            found = begun if text[at] == BEGUN else waiting
            found.add((boot, job_id, int(attempt)))
    # A cell that was left keeps its label; the same attempt may have another by now.
    return frozenset(waiting - begun)


def _read(path: Path) -> bytes:
    """What is in a file; nothing where it is none."""
    try:
        # Not to wait for a writer where it is a pipe.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            return file.read(_LARGEST + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    except OSError:
        return b""


def _kernel_boot() -> str:
    try:
        return _KERNEL_BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""
