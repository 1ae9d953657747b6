"""Where a command works: the configuration it means, and whoever answers for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from ductile.cli.client import Client, Door, Workplace
from ductile.config import Loaded, find_state, load
from ductile.errors import ConfigError, Locked

SOCKET = "ductile.sock"
LOCK_PATIENCE = 10.0
"""How long a start, or another command that holds the lock, is waited for."""
LOCK_PAUSE = 0.05
T = TypeVar("T")


class Target:
    def __init__(
        self,
        config: Path | None,
        *,
        note: Callable[[str], None],
        remote: Client | None = None,
    ) -> None:
        """`remote` answers in the place of whatever runs here."""
        self._config = config
        self._note = note
        self._remote = remote

    @cached_property
    def loaded(self) -> Loaded:
        """The configuration, verified; `ConfigError` with all its problems."""
        loaded = load(self._config, environ=os.environ)
        self._note(f"config: {loaded.settings.config_dir}")
        return loaded

    @cached_property
    def state_dir(self) -> Path:
        """Of the configuration; `ConfigError` with all its problems, unless a gateway runs there.

        What keeps a gateway from starting (a file that is not sealed, a variable that only its
        service has, a slip in some section) keeps no operator from looking at the one that runs.
        """
        try:
            return self.loaded.settings.state_dir
        except ConfigError:
            state = find_state(self._config, environ=os.environ)
            if state is None or not Client.answers(state.dir / SOCKET):
                raise
            self._note("the configuration on disk has problems; run: ductile config check")
            return state.dir

    def client(self) -> Client | None:
        """The running gateway, if there is one."""
        if self._remote is not None:
            self._note(f"using the gateway at {self._remote.path}")
            return self._remote
        path = self.state_dir / SOCKET
        if not Client.answers(path):
            return None
        self._note(f"using the gateway at {path}")
        return Client(path)

    @contextmanager
    def reading(self) -> Iterator[Door]:
        """The running gateway, else the ledger's file: the same answers by either way."""
        client = self.client()
        if client is not None:
            yield client
            return
        from ductile.cli.in_process import onlooker

        self._note(f"no gateway is running; reading the ledger in {self.state_dir}")
        with onlooker(self.loaded) as door:
            yield door

    @contextmanager
    def working(self, *, verbose: bool) -> Iterator[Workplace]:
        """The running gateway, else this process, holding the lock of the state directory."""
        with ExitStack() as stack:
            yield self.client_or(lambda: self._workshop(stack, verbose))

    def _workshop(self, stack: ExitStack, verbose: bool) -> Workplace:
        from ductile.cli.in_process import workshop

        place = stack.enter_context(workshop(self.loaded, verbose=verbose))
        self._note(f"no gateway is running; running jobs in this process, in {self.state_dir}")
        return place

    def client_or(self, work: Callable[[], T]) -> Client | T:
        """The running gateway, else what `work`, which takes the lock, comes to.

        A gateway that holds the lock and does not answer will, or will end.
        """
        give_up = time.monotonic() + LOCK_PATIENCE
        while True:
            client = self.client()
            if client is not None:
                return client
            try:
                return work()
            except Locked:
                if time.monotonic() > give_up:
                    raise
                time.sleep(LOCK_PAUSE)
