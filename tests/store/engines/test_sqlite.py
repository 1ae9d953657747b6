"""SQLite only: group commits, full and failing disks, readers and files."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.errors import LedgerBroken, LedgerBusy, LedgerError, LedgerFull
from ductile.store.engines import write_queue
from ductile.store.engines.api import Effects
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import WAL_BYTES_KEPT, SqliteLedger
from ductile.store.engines.write_queue import PendingWrite
from tests.waiting import WAIT_LIMIT


class Disk(apsw.VFS):
    """The default VFS, which fails on request."""

    def __init__(self, name: str) -> None:
        self.name, self.failing = name, ""
        super().__init__(name, "unix")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)


class _File(apsw.VFSFile):
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


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk(f"disk-{id(object())}")
    apsw.set_default_vfs(disk.name)
    yield disk
    apsw.set_default_vfs("unix")
    disk.unregister()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@pytest.fixture
def connections() -> Iterator[list[apsw.Connection]]:
    """The connections that are opened from now on; a ledger's first one is the writer's."""
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    yield opened
    apsw.connection_hooks.remove(opened.append)


@pytest.fixture
def ledger(path: Path, connections: list[apsw.Connection]) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(path)
    ledger.start()
    yield ledger
    ledger.close()


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


# Group commit


def test_queued_transactions_are_committed_together(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(100):
        answers.submit(str(n), put(f"p{n}"))
    before = ledger.health()["commits"]
    gate.open()
    assert set(answers.all(100).values()) == {None}
    commits = int(str(ledger.health()["commits"])) - int(str(before))
    assert commits <= 3
    assert all(exists(ledger, f"p{n}") for n in range(100))


def test_many_threads_share_commits(ledger: SqliteLedger) -> None:
    before = int(str(ledger.health()["commits"]))

    def work(thread: int) -> None:
        for n in range(50):
            ledger.write(put(f"{thread}-{n}-"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert all(exists(ledger, f"{t}-{n}-") for t in range(16) for n in range(50))
    assert int(str(ledger.health()["commits"])) - before < 800
    assert ledger.health()["transactions"]


def test_transactions_are_reported_in_order(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(50):
        answers.submit(str(n), put(f"p{n}"))
    gate.open()
    answers.all(50)
    assert answers.order == [str(n) for n in range(50)]


def test_transaction_sees_earlier_ones_of_its_batch(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    seen: list[Any] = []
    answers.submit("writes", put("p"))
    answers.submit("reads", lambda tx: seen.append(tx.one("state_of", plugin="p")))
    gate.open()
    answers.all(2)
    assert seen == [("{}",)]


def test_failed_transaction_does_not_affect_its_batch(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)

    def fails(tx: Any) -> None:
        put("half")(tx)
        raise ValueError("mine")

    answers.submit("a", put("a"))
    answers.submit("bad", fails)
    answers.submit("c", put("c"))
    gate.open()
    errors = answers.all(3)
    assert isinstance(errors["bad"], ValueError)
    assert (errors["a"], errors["c"]) == (None, None)
    assert (exists(ledger, "a"), exists(ledger, "half"), exists(ledger, "c")) == (True, False, True)


def test_transactions_run_once_without_a_failure(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    runs: list[int] = []
    for n in range(5):
        answers.submit(str(n), lambda tx, n=n: (runs.append(n), put(f"p{n}")(tx)))
    gate.open()
    answers.all(5)
    assert runs == [0, 1, 2, 3, 4]


def test_write_batch_commits_once_in_the_calling_thread(
    ledger: SqliteLedger,
) -> None:
    reported: list[tuple[int, BaseException | None]] = []

    def done(_result: Any, error: BaseException | None) -> None:
        reported.append((threading.get_ident(), error))

    before = int(str(ledger.health()["commits"]))
    ledger.write_batch([(put("a"), done), (put("b"), done)])
    assert reported == [(threading.get_ident(), None)] * 2
    assert int(str(ledger.health()["commits"])) - before == 1
    assert (exists(ledger, "a"), exists(ledger, "b")) == (True, True)


def test_write_batch_also_commits_queued_transactions(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    answers.submit("waits", put("waits"))
    committer = threading.Thread(
        target=ledger.write_batch, args=([(put("batch"), lambda _result, _error: None)],)
    )
    committer.start()
    gate.open()
    committer.join(WAIT_LIMIT)
    assert answers.all(1) == {"waits": None}
    assert (exists(ledger, "batch"), exists(ledger, "waits")) == (True, True)


def test_violated_constraint_does_not_affect_its_batch(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    bad = {"id": "b", "pid": 1, "version": "v", "now": "t"}
    answers.submit("a", put("a"))
    answers.submit("first", lambda tx: tx.run("insert_boot", **bad))
    answers.submit("again", lambda tx: tx.run("insert_boot", **bad))
    answers.submit("c", put("c"))
    gate.open()
    errors = answers.all(4)
    assert isinstance(errors["again"], apsw.ConstraintError)
    assert [errors[name] for name in ("a", "first", "c")] == [None, None, None]


def test_failed_transaction_has_no_effects(ledger: SqliteLedger) -> None:
    heard: list[Effects] = []
    ledger.listen(heard.append)

    def work(tx: Any) -> None:
        tx.effects.ready += 1

    def fails(tx: Any) -> None:
        tx.effects.ready += 100
        raise ValueError

    ledger.write(work)
    with pytest.raises(ValueError):
        ledger.write(fails)
    assert [effects.ready for effects in heard] == [1]


def test_listeners_are_called_before_the_caller(ledger: SqliteLedger) -> None:
    order: list[str] = []
    ledger.listen(lambda effects: order.append("listener"))
    reported = threading.Event()

    def work(tx: Any) -> None:
        tx.effects.ready += 1

    def done(result: Any, error: BaseException | None) -> None:
        order.append("caller")
        reported.set()

    ledger.submit(work, done)
    assert reported.wait(WAIT_LIMIT)
    assert order == ["listener", "caller"]


# Errors of others do not end the writer


def write_within_limit(ledger: SqliteLedger, name: str) -> None:
    """A write with a time limit, because a dead writer would never answer."""
    answers = Answers(ledger)
    answers.submit(name, put(name))
    assert answers.all(1) == {name: None}


def test_failing_callback_does_not_end_the_writer(
    ledger: SqliteLedger,
) -> None:
    """A closed event loop refuses `call_soon_threadsafe`."""

    def done(result: Any, error: BaseException | None) -> None:
        raise RuntimeError("Event loop is closed")

    ledger.submit(put("a"), done)
    write_within_limit(ledger, "b")
    assert exists(ledger, "a")


def test_failing_listener_does_not_end_the_writer(ledger: SqliteLedger) -> None:
    def listener(effects: Effects) -> None:
        raise RuntimeError("a bug")

    def work(tx: Any) -> None:
        tx.effects.ready += 1

    ledger.listen(listener)
    answers = Answers(ledger)
    answers.submit("a", work)
    assert answers.all(1) == {"a": None}
    write_within_limit(ledger, "b")


def test_internal_error_is_reported_and_does_not_end_the_writer(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(batch: object) -> bool:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_begin", broken)
        answers = Answers(ledger)
        answers.submit("a", put("a"))
        assert isinstance(answers.all(1)["a"], RuntimeError)
    write_within_limit(ledger, "b")


# Full and failing disks


def limit(ledger: SqliteLedger, connections: list[apsw.Connection], spare: int) -> None:
    """Limit the growth of the file to this number of pages."""
    writer = connections[0]

    def work(_tx: Any) -> None:
        writer.pragma("max_page_count", int(str(writer.pragma("page_count"))) + spare)

    ledger.write(work)


def test_full_disk_writes_nothing(ledger: SqliteLedger, connections: list[apsw.Connection]) -> None:
    ledger.write(put("kept"))
    limit(ledger, connections, 0)
    with pytest.raises(LedgerFull):
        ledger.write(put("big", 20_000))
    assert (exists(ledger, "kept"), exists(ledger, "big", 20_000)) == (True, False)


def test_writes_succeed_again_after_a_full_disk(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    limit(ledger, connections, 0)
    with pytest.raises(LedgerFull):
        ledger.write(put("big", 20_000))
    limit(ledger, connections, 100)
    ledger.write(put("big", 20_000))
    assert exists(ledger, "big", 20_000)


def test_transactions_that_fit_are_committed_on_a_full_disk(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    """SQLite abandons the whole transaction, so that the others run again one by one."""
    gate, answers = Gate(ledger), Answers(ledger)
    writer = connections[0]
    runs: list[str] = []

    def first(tx: Any) -> None:
        runs.append("first")
        put("a")(tx)

    answers.submit(
        "limit",
        lambda tx: writer.pragma("max_page_count", int(str(writer.pragma("page_count"))) + 1),
    )
    answers.submit("a", first)
    answers.submit("big", put("big", 50_000))
    answers.submit("c", put("c"))
    gate.open()
    errors = answers.all(4)
    assert isinstance(errors["big"], LedgerFull)
    assert (errors["a"], errors["c"]) == (None, None)
    assert (exists(ledger, "a"), exists(ledger, "c")) == (True, True)
    assert runs == ["first", "first"]


def test_full_disk_at_the_commit_writes_nothing(
    path: Path, disk: Disk, connections: list[apsw.Connection]
) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.write(put("kept"))
    disk.failing = "full"
    with pytest.raises(LedgerFull):
        ledger.write(put("lost"))
    disk.failing = ""
    ledger.write(put("later"))
    assert [exists(ledger, name) for name in ("kept", "lost", "later")] == [True, False, True]
    ledger.close()


def test_io_error_at_the_commit_stops_the_ledger(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    disk.failing = "sync"
    with pytest.raises(LedgerBroken):
        ledger.write(put("who knows"))
    disk.failing = ""
    with pytest.raises(LedgerBroken):
        ledger.write(put("never"))
    assert ledger.health()["broken"] is True
    ledger.close()


def test_broken_ledger_refuses_write_batch(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    reported: list[BaseException | None] = []
    disk.failing = "sync"
    ledger.write_batch([(put("who knows"), lambda _result, error: reported.append(error))])
    disk.failing = ""
    assert [type(error) for error in reported] == [LedgerBroken]
    with pytest.raises(LedgerBroken):
        ledger.write_batch([(put("never"), lambda _result, _error: None)])
    ledger.close()


def test_broken_ledger_refuses_queued_transactions(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(5):
        answers.submit(str(n), put(f"p{n}"))
    disk.failing = "sync"
    gate_thread_errors: list[BaseException] = []
    hook, threading.excepthook = (
        threading.excepthook,
        lambda args: gate_thread_errors.append(args.exc_value or RuntimeError()),
    )
    try:
        gate.open()
        errors = answers.all(5)
    finally:
        threading.excepthook = hook
    assert all(isinstance(error, LedgerBroken) for error in errors.values())
    disk.failing = ""
    ledger.close()


def test_write_lock_of_another_process_is_reported_after_the_timeout(
    ledger: SqliteLedger, path: Path, connections: list[apsw.Connection]
) -> None:
    connections[0].set_busy_timeout(20)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy):
        ledger.write(put("a"))
    assert ledger.health()["busy"] == 1
    other.execute("ROLLBACK")
    ledger.write(put("a"))
    other.close()


# Readers


def test_reader_sees_only_committed_rows(ledger: SqliteLedger) -> None:
    seen: list[bool] = []

    def work(tx: Any) -> None:
        put("p")(tx)
        reader = threading.Thread(target=lambda: seen.append(exists(ledger, "p")))
        reader.start()
        reader.join(WAIT_LIMIT)

    ledger.write(work)
    assert seen == [False]
    assert exists(ledger, "p")


def test_read_uses_one_snapshot(ledger: SqliteLedger) -> None:
    def work(tx: Any) -> tuple[Any, Any]:
        before = tx.one("state_of", plugin="p")
        ledger.write(put("p"))
        return before, tx.one("state_of", plugin="p")

    assert ledger.read(work) == (None, None)
    assert exists(ledger, "p")


def test_read_cannot_write(ledger: SqliteLedger) -> None:
    with pytest.raises(apsw.ReadOnlyError):
        ledger.read(put("p"))
    assert not exists(ledger, "p")


def test_reader_is_usable_after_a_failed_read(ledger: SqliteLedger) -> None:
    def fails(tx: Any) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        ledger.read(fails)
    assert not exists(ledger, "p")


def test_unreadable_file_is_a_ledger_error(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.close()
    page = 4096
    path.write_bytes(path.read_bytes()[:page] + b"\xff" * (path.stat().st_size - page))
    ledger = SqliteLedger(path, read_only=True)
    with pytest.raises(LedgerError, match="cannot be used"):
        exists(ledger, "p")
    ledger.close()


def is_closed(connection: apsw.Connection) -> bool:
    try:
        connection.changes()
    except apsw.ConnectionClosedError:
        return True
    return False


def test_file_that_is_not_a_database_is_refused_and_closed(
    path: Path, connections: list[apsw.Connection]
) -> None:
    path.parent.mkdir()
    path.write_bytes(os.urandom(10_000))
    with pytest.raises(LedgerError, match=r"cannot be used: .*ductile system restore"):
        open_ledger(path=path, url=None)
    assert connections
    assert all(map(is_closed, connections))


def test_file_with_a_damaged_schema_is_refused_and_closed(
    path: Path, connections: list[apsw.Connection]
) -> None:
    open_ledger(path=path, url=None).close()
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = b"\xff" * 3996
    path.write_bytes(damaged)
    with pytest.raises(LedgerError, match=r"cannot be used: .*ductile system restore"):
        open_ledger(path=path, url=None)
    assert all(map(is_closed, connections))


def test_reader_is_closed_when_its_thread_ends(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()

    def opened() -> int:
        found = [os.path.realpath(fd.path) for fd in os.scandir("/proc/self/fd")]
        return sum(name.startswith(str(path)) for name in found)

    def read_by_another_thread() -> None:
        thread = threading.Thread(target=exists, args=(ledger, "p"))
        thread.start()
        thread.join(WAIT_LIMIT)

    # SQLite keeps the descriptor of the first reader for later ones.
    read_by_another_thread()
    before = opened()
    for _ in range(5):
        read_by_another_thread()
    assert opened() == before
    ledger.close()


def test_read_only_ledger_works_alongside_the_writer(ledger: SqliteLedger, path: Path) -> None:
    ledger.write(put("p"))
    reader = SqliteLedger(path, read_only=True)
    reader.start()
    assert exists(reader, "p")
    reader.close()
    ledger.write(put("q"))


# Files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_readable_by_their_owner_only(ledger: SqliteLedger, path: Path) -> None:
    ledger.write(put("p"))
    names = {file.name: mode(file) for file in path.parent.iterdir()}
    assert names == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert mode(path.parent) == 0o700


def test_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    assert mode(tmp_path) == 0o750


def test_writer_uses_wal_and_full_synchronous(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    writer = connections[0]
    found = ledger.write(
        lambda tx: {
            name: writer.pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    )
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_each_write_is_synced_before_it_returns(path: Path, disk: Disk) -> None:
    syncs: list[int] = []
    sync = _File.xSync
    _File.xSync = lambda self, flags: (syncs.append(1), sync(self, flags))[1]  # type: ignore[method-assign,func-returns-value]
    try:
        ledger = SqliteLedger(path)
        ledger.start()
        counts = []
        for n in range(3):
            before = len(syncs)
            ledger.write(put(str(n)))
            counts.append(len(syncs) - before)
        ledger.close()
    finally:
        _File.xSync = sync  # type: ignore[method-assign]
    assert all(count >= 1 for count in counts)


def test_wal_size_is_limited(ledger: SqliteLedger, path: Path) -> None:
    largest = 0
    for n in range(60):
        ledger.write(put(f"p{n}", 500_000))
        largest = max(largest, path.with_name("state.db-wal").stat().st_size)
    assert largest < 2 * WAL_BYTES_KEPT


def test_vacuum_returns_free_space(ledger: SqliteLedger, path: Path) -> None:
    def fill(tx: Any) -> None:
        for n in range(4000):
            tx.run(
                "adopt_snapshot",
                id=f"s{n}",
                config_hash=f"h{n}",
                config="x" * 4000,
                secret_fingerprints="",
                now=f"2020-{n:05}",
            )

    ledger.write(fill)
    pages = path.stat().st_size
    while ledger.write(lambda tx: tx.run("prune_snapshots", before="2021", limit=1000)):
        pass
    rounds = 0
    while ledger.vacuum():
        rounds += 1
        assert rounds < 1000
    ledger.close()
    assert path.stat().st_size < pages / 3


# Opening and closing


def test_close_commits_queued_writes(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(10):
        answers.submit(str(n), put(f"p{n}"))
    closer = threading.Thread(target=ledger.close)
    closer.start()
    gate.open()
    assert set(answers.all(10).values()) == {None}
    closer.join(WAIT_LIMIT)
    again = SqliteLedger(path)
    again.start()
    assert all(exists(again, f"p{n}") for n in range(10))
    again.close()


def test_write_during_close_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    answered: list[BaseException | None] = []
    monkeypatch.setattr(ledger, "_check", ledger.close)
    ledger.submit(put("p"), lambda result, error: answered.append(error))
    assert [type(error) for error in answered] == [LedgerError]


def test_closed_ledger_refuses_writes(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.write(put("p"))


def test_row_of_another_process_is_visible(ledger: SqliteLedger, path: Path) -> None:
    other = apsw.Connection(str(path))
    other.set_busy_timeout(5000)
    other.pragma("wal_autocheckpoint", 0)
    other.execute("INSERT INTO plugin_state (plugin_name, state) VALUES ('theirs', '{}')")
    other.close()
    assert exists(ledger, "theirs")
    ledger.write(put("ours"))


class TestCommitsByOtherThreads:
    """Submitted transactions wait a moment for a thread that commits, if there are many."""

    @pytest.fixture
    def shared_ledger(self, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch) -> SqliteLedger:
        """Another thread has just committed two queued transactions."""
        monkeypatch.setattr(write_queue, "COMMITS_STOPPED", 60.0)
        monkeypatch.setattr(write_queue, "CHECK_INTERVAL", 30.0)
        for _ in range(2):
            ledger._queue._waiting.append(PendingWrite(put("before"), lambda *_: None))
        ledger.write_batch([])
        assert ledger._queue._is_emptied_by_others()
        return ledger

    def test_write_batch_takes_queued_transactions_along(self, shared_ledger: SqliteLedger) -> None:
        before, done = int(str(shared_ledger.health()["commits"])), threading.Semaphore(0)

        def reported(_result: object, error: BaseException | None) -> None:
            assert error is None
            done.release()

        shared_ledger.submit(put("first"), reported)
        shared_ledger.submit(put("second"), reported)
        shared_ledger.write_batch([(put("batch"), reported)])
        assert all(done.acquire(timeout=WAIT_LIMIT) for _ in range(3))
        assert int(str(shared_ledger.health()["commits"])) - before == 1

    def test_close_commits_transactions_that_wait_for_others(
        self, shared_ledger: SqliteLedger
    ) -> None:
        reported: list[object] = []
        shared_ledger.submit(put("late"), lambda _result, error: reported.append(error))
        shared_ledger.close()
        assert reported == [None]
