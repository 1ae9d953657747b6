"""Without a running gateway: its routes inside this process, and one job at a time.

Reads and the one job of `plugin run` go through the same application as over the socket, so
that what a user sees does not depend on whether a gateway runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote

from ductile.cli.client import HEADERS, Json, path_to, read_answer, wait_for, with_query
from ductile.cli.errors import terminate
from ductile.config import Loaded
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.engine.dispatch.workers import CANCEL_GRACE
from ductile.engine.gateway import Gateway
from ductile.engine.services import Services
from ductile.errors import LedgerError, NotFound
from ductile.http.app import local_app
from ductile.model import Cancellation
from ductile.store.engines.api import Ledger
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import claim

CANCEL_AGAIN = 0.2
NO_TABLES = frozenset({"SQLError", "UndefinedTable"})
"""What the engines raise where a query's table was never made."""


class InProcessClient:
    """A gateway's routes, called in this process."""

    running = False

    def __init__(self, gateway: Services) -> None:
        self._app = local_app(gateway)

    def get(self, path: str, **query: object) -> Json:
        return self._ask("GET", with_query(path, query), b"")

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._ask("POST", path, json.dumps(body).encode())

    def delete(self, path: str, **query: object) -> Json:
        return self._ask("DELETE", with_query(path, query), b"")

    def _ask(self, method: str, target: str, body: bytes) -> Json:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()],
            "client": None,
            "server": None,
        }
        answer: list[MutableMapping[str, Any]] = []

        asked: list[MutableMapping[str, Any]] = [
            {"type": "http.request", "body": body, "more_body": False}
        ]

        async def receive() -> MutableMapping[str, Any]:
            # After the body comes nothing: this client stays until it has its answer.
            return asked.pop() if asked else await asyncio.Future()

        async def send(message: MutableMapping[str, Any]) -> None:
            answer.append(message)

        asyncio.run(self._app(scope, receive, send))
        return read_answer(answer[0]["status"], b"".join(m.get("body", b"") for m in answer))


@contextmanager
def onlooking(loaded: Loaded) -> Iterator[Services]:
    """A gateway to look through, over the ledger's file."""
    with _logs_to(None), _ledger(loaded) as ledger:
        services = Services(loaded, environ=os.environ)
        services.open_read_only(ledger)
        yield services


@contextmanager
def onlooker(loaded: Loaded) -> Iterator[InProcessClient]:
    """The routes that read."""
    with onlooking(loaded) as gateway:
        yield InProcessClient(gateway)


@contextmanager
def _ledger(loaded: Loaded) -> Iterator[Ledger]:
    """The ledger, read-only; an empty one in a temporary place while there is none."""
    with contextlib.ExitStack() as cleanup:
        ledger = _existing(loaded)
        if ledger is None:
            directory = cleanup.enter_context(tempfile.TemporaryDirectory())
            ledger = SqliteLedger(Path(directory) / "empty.db")
            ledger.start()
        cleanup.callback(ledger.close)
        yield ledger


def _existing(loaded: Loaded) -> Ledger | None:
    """The ledger, if a gateway has ever made one."""
    state = loaded.settings.state
    try:
        ledger = open_ledger(path=state.path, url=state.url, read_only=True)
    except NotFound:
        return None
    try:
        ledger.read(lambda tx: tx.one("queue_depth"))
    except Exception as error:
        ledger.close()
        if type(error).__name__ in NO_TABLES:
            return None
        raise LedgerError(f"cannot read the ledger: {error}") from error
    return ledger


class InProcessGateway(InProcessClient):
    """A gateway that runs the jobs it is told to, one at a time, and leaves the rest queued."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._gateway = gateway
        self._dispatcher = Dispatcher(gateway, [gateway.pool.slot(0)], claims=False)

    def finish(self, job_id: str, timeout: float | None, waiting: Callable[[str], None]) -> Json:
        """Run the job here. Interrupted or out of time, it goes back to the queue."""
        job = self.get(path_to("job", job_id))
        with ThreadPoolExecutor(1) as thread:
            work = thread.submit(self._run, job["plugin"], job_id)
            try:
                wait([work], timeout)
            finally:
                ran = work.done()
                self._release(work)
        work.result()
        if ran and job["plugin"] not in self._gateway.unready:
            # Another node of the same database may have been quicker.
            return wait_for(self, job_id, timeout, waiting)
        return self.get(path_to("job", job_id))

    def _run(self, plugin: str, job_id: str) -> None:
        gateway = self._gateway
        if plugin in gateway.unready:
            row = gateway.ledger.read(lambda tx: tx.one("init_outstanding", plugin=plugin))
            if row is not None:
                self._attempt(row[0])
        if plugin not in gateway.unready and not gateway.stopping.is_set():
            self._attempt(job_id)

    def _attempt(self, job_id: str) -> None:
        gateway = self._gateway
        policy, now = gateway.claim_policy(), gateway.clock.now()
        claimed = gateway.ledger.write(lambda tx: claim.start_job(tx, policy, job_id, now))
        if claimed is None:
            return
        self._dispatcher.run_claimed(claimed)

    def close(self) -> None:
        self._dispatcher.close()

    def _release(self, work: Future[None]) -> None:
        """End what runs, if it does; its attempt does not count."""
        grace = CANCEL_GRACE
        while not work.done():
            self._gateway.stopping.set()
            try:
                self._dispatcher.cancel(Cancellation.STOP, grace)
                wait([work], CANCEL_AGAIN)
            except KeyboardInterrupt:
                grace = 0.0


@contextmanager
def workshop(loaded: Loaded, *, verbose: bool) -> Iterator[InProcessGateway]:
    """Take the state directory and recover what a crash left; `Locked` where it is taken."""
    gateway = Gateway(loaded, environ=os.environ)
    with _logs_to(sys.stderr if verbose else None), terminable():
        try:
            gateway.open(slots=1)
            with contextlib.closing(InProcessGateway(gateway)) as shop:
                yield shop
        finally:
            gateway.close()


@contextmanager
def _logs_to(stream: TextIO | None) -> Iterator[None]:
    """Keep the logs off stdout, which is for the answer; None is nowhere."""
    with contextlib.ExitStack() as stack:
        target = stream or stack.enter_context(Path(os.devnull).open("w"))
        stack.enter_context(contextlib.redirect_stdout(target))
        yield


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises inside, as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
