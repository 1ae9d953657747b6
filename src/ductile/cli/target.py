"""What a command works on: a configuration, and the gateway that belongs to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ductile.cli.output import print_stderr
from ductile.config import Loaded, find_state, load
from ductile.engine.socket_path import SOCKET
from ductile.errors import ConfigError, Locked

if TYPE_CHECKING:
    from ductile.cli.client import GatewayApi, GatewayClient, JobRunner

LOCK_TIMEOUT = 10.0
"""Seconds to wait for a starting gateway, or for another command that holds the lock."""
LOCK_RETRY_INTERVAL = 0.05
T = TypeVar("T")


class CommandTarget:
    def __init__(
        self,
        config: Path | None,
        *,
        note: Callable[[str], None],
        remote: GatewayClient | None = None,
    ) -> None:
        """`remote` is used instead of the local gateway; `note` reports what is used."""
        self._config = config
        self._note = note
        self._remote = remote

    @cached_property
    def loaded(self) -> Loaded:
        """The configuration, verified, with references to secrets that are kept elsewhere.

        Raises `ConfigError` with all its problems.
        """
        return self._load(secrets=False)

    @cached_property
    def runnable(self) -> Loaded:
        """As `loaded`, with all secrets, to run plugins and listeners with."""
        return self._load(secrets=True)

    @cached_property
    def redacting(self) -> Loaded:
        """The configuration with all secrets that can be read, so that output is redacted.

        For commands that read the ledger by themselves. A running gateway redacts what it sends.
        """
        if not self.loaded.has_unread_secrets:
            return self.loaded
        try:
            return self.runnable
        except ConfigError as error:
            print_stderr(
                "some secrets cannot be read, so they are not hidden in what follows: "
                f"{error.problems[0]}"
            )
            return self.loaded

    def _load(self, *, secrets: bool) -> Loaded:
        loaded = load(self._config, environ=os.environ, secrets=secrets)
        self._note(f"config: {loaded.settings.config_dir}")
        return loaded

    @cached_property
    def state_dir(self) -> Path:
        """The configured state directory.

        Raises `ConfigError` for an invalid configuration only if no gateway is running there: an
        operator must be able to inspect a running gateway whose configuration on disk is broken.
        """
        try:
            return self.loaded.settings.state_dir
        except ConfigError:
            from ductile.cli.client import GatewayClient

            state = find_state(self._config, environ=os.environ)
            if state is None or not GatewayClient.is_listening(state.dir / SOCKET):
                raise
            self._note("the configuration on disk has problems; run: ductile config check")
            return state.dir

    def client(self) -> GatewayClient | None:
        """Return a client of the running gateway, or None."""
        if self._remote is not None:
            self._note(f"using the gateway at {self._remote.path}")
            return self._remote
        # Only here: the start of a gateway needs no HTTP client.
        from ductile.cli.client import GatewayClient

        path = self.state_dir / SOCKET
        if not GatewayClient.is_listening(path):
            return None
        self._note(f"using the gateway at {path}")
        return GatewayClient(path)

    @contextmanager
    def open_reader(self, *, secrets: bool = False) -> Iterator[GatewayApi]:
        """Yield the running gateway or, without one, the same API over the ledger's file.

        With `secrets`, this process must be able to read all of them, as a gateway is.
        """
        client = self.client()
        if client is not None:
            yield client
            return
        from ductile.cli.in_process import open_reader

        self._note(f"no gateway is running; reading the ledger in {self.state_dir}")
        with open_reader(self.runnable if secrets else self.redacting) as api:
            yield api

    @contextmanager
    def open_runner(self, *, verbose: bool) -> Iterator[JobRunner]:
        """Yield the running gateway or, without one, this process with the instance lock."""
        with ExitStack() as stack:
            yield self.client_or(lambda: self._open_in_process(stack, verbose))

    def _open_in_process(self, stack: ExitStack, verbose: bool) -> JobRunner:
        from ductile.cli.in_process import open_runner

        runner = stack.enter_context(open_runner(self.runnable, verbose=verbose))
        self._note(f"no gateway is running; running jobs in this process, in {self.state_dir}")
        return runner

    def client_or(self, run_locked: Callable[[], T]) -> GatewayClient | T:
        """Return a client of the running gateway or, without one, the result of `run_locked`.

        `run_locked` takes the instance lock. A process that holds it without responding is a
        gateway that starts or stops, or another command: both are retried until `LOCK_TIMEOUT`.
        """
        deadline = time.monotonic() + LOCK_TIMEOUT
        while True:
            client = self.client()
            if client is not None:
                return client
            try:
                return run_locked()
            except Locked:
                if time.monotonic() > deadline:
                    raise
                time.sleep(LOCK_RETRY_INTERVAL)
