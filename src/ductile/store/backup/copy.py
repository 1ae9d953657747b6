"""Copies of a ledger, and what can be said of one as a file.

A copy is a SQLite ledger in one file, whichever engine it was made from, so that every copy
is checked, kept and restored in the same way.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import apsw

PAGES_A_STEP = 256
PAUSE = 0.001
"""Between steps, so that the disk serves the writer first."""
MOST_FINDINGS = 100
LOOK_EVERY = 20_000
"""Instructions of SQLite's between two looks at the time."""

Watch = Callable[[int, int], None]
"""Told what is done and what there is to do; ends the copy by raising."""


def copy(source: apsw.Connection, target: Path, watch: Watch) -> None:
    """Copy the snapshot that `source` sees now into the empty file `target`.

    `source` is nobody else's. It keeps one read transaction from the first step to the last:
    whatever is committed meanwhile neither gets into the copy nor makes it start again, and
    the writer waits for nothing. Until the end the WAL grows by what is written.
    """
    source.execute("BEGIN")
    try:
        # A transaction has no snapshot before its first read.
        source.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchall()
        draft = apsw.Connection(str(target))
        try:
            # Nobody relies on it before it is whole and synced.
            draft.pragma("journal_mode", "off")
            draft.pragma("synchronous", "off")
            with draft.backup("main", source, "main") as pages:
                while not pages.step(PAGES_A_STEP):
                    watch(pages.page_count - pages.remaining, pages.page_count)
                    time.sleep(PAUSE)
                watch(pages.page_count, pages.page_count)
        finally:
            draft.close()
    finally:
        source.execute("ROLLBACK")
    single_file(target)


def single_file(path: Path) -> None:
    """Fold the WAL of a ledger that nobody has open into it: one file that is all of it."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.pragma("journal_mode", "delete")
    finally:
        connection.close()


def integrity(
    connection: apsw.Connection, seconds: float | None, beat: Callable[[], None]
) -> tuple[list[tuple[str, str, str]], bool]:
    """What is wrong with pages and references, and whether all was looked at.

    With `seconds` the quicker of SQLite's two checks, for as long.
    """
    whole = True
    deadline = None if seconds is None else time.monotonic() + seconds

    def look() -> bool:
        beat()
        return deadline is not None and time.monotonic() > deadline

    connection.set_progress_handler(look, LOOK_EVERY)
    check = "integrity_check" if seconds is None else "quick_check"
    found: list[tuple[str, str, str]] = []
    try:
        for (text,) in connection.execute(f"PRAGMA {check}({MOST_FINDINGS})").fetchall():
            if text != "ok":
                found.append(("pages", "the file", f"is damaged: {text}"))
        for table, rowid, parent, _ in connection.execute("PRAGMA foreign_key_check").fetchall():
            lost = f"names a row of {parent} that does not exist"
            found.append(("references", f"row {rowid} of {table}", lost))
    except apsw.InterruptError:
        whole = False
    except apsw.Error as error:
        # Pages so broken that they cannot even be checked.
        found.append(("pages", "the file", f"is damaged: {error}"))
    finally:
        with contextlib.suppress(apsw.Error):
            connection.set_progress_handler(None)
    return found, whole
