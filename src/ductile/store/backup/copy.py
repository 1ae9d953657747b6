"""Copying a SQLite ledger, and checking the integrity of its file.

A copy is always a SQLite ledger in one file, whatever engine it was made from, so that every copy
is verified, kept and restored in the same way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import apsw

PAGES_PER_STEP = 256
PAUSE = 0.001
"""Seconds between steps, so that the disk serves the writer first."""
MAX_FINDINGS = 100
INSTRUCTIONS_PER_BEAT = 20_000
"""Instructions of SQLite between two checks of the time."""

Progress = Callable[[int, int], None]
"""Receives the amount that is done and the total; ends the copy by raising."""


def copy_ledger(source: apsw.Connection, target: Path, progress: Progress) -> None:
    """Copy the snapshot that `source` sees now into the empty file `target`.

    The connection `source` must not be shared. It keeps one read transaction for the whole copy:
    later commits neither get into the copy nor restart it, and the writer never waits. The WAL
    grows by what is written until the copy ends.
    """
    source.execute("BEGIN")
    try:
        # A transaction has its snapshot from its first read.
        source.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        draft = apsw.Connection(str(target))
        try:
            # The file is not used before it is complete and synced.
            draft.pragma("journal_mode", "off")
            draft.pragma("synchronous", "off")
            with draft.backup("main", source, "main") as pages:
                while not pages.step(PAGES_PER_STEP):
                    progress(pages.page_count - pages.remaining, pages.page_count)
                    time.sleep(PAUSE)
                progress(pages.page_count, pages.page_count)
        finally:
            draft.close()
    finally:
        source.execute("ROLLBACK")
    fold_wal(target)


def fold_wal(path: Path) -> None:
    """Merge the WAL into the file of a ledger that no process has open."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.pragma("journal_mode", "delete")
    finally:
        connection.close()


def check_integrity(
    connection: apsw.Connection, seconds: float | None, on_tick: Callable[[], None]
) -> tuple[list[tuple[str, str, str]], bool]:
    """Check pages and references; also returns whether everything was checked.

    With `seconds`, the faster of SQLite's two checks runs for at most that long.
    """
    complete = True
    deadline = None if seconds is None else time.monotonic() + seconds

    def is_out_of_time() -> bool:
        on_tick()
        return deadline is not None and time.monotonic() > deadline

    connection.set_progress_handler(is_out_of_time, INSTRUCTIONS_PER_BEAT)
    check = "integrity_check" if seconds is None else "quick_check"
    found: list[tuple[str, str, str]] = []
    try:
        for (text,) in connection.execute(f"PRAGMA {check}({MAX_FINDINGS})").fetchall():
            if text != "ok":
                found.append(("pages", "the file", f"is damaged: {text}"))
        for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchall():
            lost = f"names a row of {parent} that does not exist"
            found.append(("references", f"row {rowid} of {table}", lost))
    except apsw.InterruptError:
        complete = False
    except apsw.Error as error:
        # Pages that are too damaged to be checked.
        found.append(("pages", "the file", f"is damaged: {error}"))
    finally:
        with contextlib.suppress(apsw.Error):
            connection.set_progress_handler(None)
    return found, complete
