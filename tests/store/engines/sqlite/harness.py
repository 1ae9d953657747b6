"""A failing disk, and submitted transactions, for tests of the SQLite engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from ductile.store.engines.sqlite import SqliteLedger
from tests.waiting import WAIT_LIMIT


class Disk(apsw.VFS):
    """The default VFS, which fails on request."""

    def __init__(self, name: str) -> None:
        self.name, self.failing = name, ""
        super().__init__(name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.failing == "sync":
            raise apsw.IOError("no sync")
        super().xSync(flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._disk.failing == "full":
            raise apsw.FullError("no space")
        super().xWrite(data, offset)


def put(name: str, size: int = 0) -> Callable[[Any], int]:
    text = name + "x" * size
    return lambda tx: tx.run("ensure_state", plugin=text, now="t")


def exists(ledger: SqliteLedger, name: str, size: int = 0) -> bool:
    text = name + "x" * size
    return ledger.read(lambda tx: tx.one("state_of", plugin=text)) is not None


class Gate:
    """A transaction that keeps the writer busy, so that others queue up."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=ledger.write, args=(self._wait,))
        self._thread.start()
        assert self._entered.wait(WAIT_LIMIT)

    def _wait(self, _tx: Any) -> None:
        self._entered.set()
        assert self._open.wait(WAIT_LIMIT)

    def open(self) -> None:
        self._open.set()
        self._thread.join(WAIT_LIMIT)


class Answers:
    """The results of submitted transactions, in the order of their callbacks."""

    def __init__(self, ledger: SqliteLedger) -> None:
        self._ledger = ledger
        self._reported = threading.Semaphore(0)
        self.errors: dict[str, BaseException | None] = {}
        self.order: list[str] = []

    def submit(self, name: str, work: Callable[[Any], Any]) -> None:
        def done(_result: Any, error: BaseException | None) -> None:
            self.errors[name] = error
            self.order.append(name)
            self._reported.release()

        self._ledger.submit(work, done)

    def all(self, count: int) -> dict[str, BaseException | None]:
        for _ in range(count):
            assert self._reported.acquire(timeout=WAIT_LIMIT)
        return self.errors


def write_within_limit(ledger: SqliteLedger, name: str) -> None:
    """A write with a time limit, because a dead writer would never answer."""
    answers = Answers(ledger)
    answers.submit(name, put(name))
    assert answers.all(1) == {name: None}


def damage_table(path: Path, table: str) -> None:
    """Overwrite the root page of a table of a closed ledger."""
    connection = apsw.Connection(str(path))
    size = int(str(connection.pragma("page_size")))
    page = int(
        str(connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).get)
    )
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
