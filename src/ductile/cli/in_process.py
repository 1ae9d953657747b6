"""The gateway's API inside this process, for commands without a running gateway.

The requests are handled by the same application as over the socket, so that the output of a
command does not depend on whether a gateway is running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import unquote

from ductile.cli.client import HEADERS, Json, path_to, read_response, wait_for_job, with_query
from ductile.cli.errors import sigterm_as_interrupt
from ductile.config import Loaded
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.engine.dispatch.workers import CANCEL_GRACE
from ductile.engine.gateway import Gateway
from ductile.engine.services import Services
from ductile.errors import LedgerError, NotFound
from ductile.http.app import local_app
from ductile.model import Cancellation
from ductile.runner.isolation import allow_inspection, forbid_inspection
from ductile.store.engines.api import Ledger
from ductile.store.engines.migrate import compare_history
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import claim
from ductile.store.verify import applied_migrations

CANCEL_INTERVAL = 0.2
NO_TABLES = frozenset({"SQLError", "UndefinedTable"})
"""Names of the exceptions that the engines raise for a missing table."""

Message = MutableMapping[str, Any]


class InProcessClient:
    """The API of a gateway in this process."""

    running = False

    def __init__(self, gateway: Services) -> None:
        self._app = local_app(gateway)

    def get(self, path: str, **query: object) -> Json:
        return self._request_json("GET", with_query(path, query), b"")

    def post(self, path: str, body: Mapping[str, Any]) -> Json:
        return self._request_json("POST", path, json.dumps(body).encode())

    def delete(self, path: str, **query: object) -> Json:
        return self._request_json("DELETE", with_query(path, query), b"")

    def _request_json(self, method: str, target: str, body: bytes) -> Json:
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
        requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        response: list[Message] = []

        async def receive() -> Message:
            # Nothing follows the body: this client does not disconnect before the response.
            return requests.pop() if requests else await asyncio.Future()

        async def send(message: Message) -> None:
            response.append(message)

        asyncio.run(self._app(scope, receive, send))
        return read_response(response[0]["status"], b"".join(m.get("body", b"") for m in response))


@contextmanager
def open_services(loaded: Loaded) -> Iterator[Services]:
    """Yield the services of a gateway over the ledger's file, read-only."""
    with _redirect_logs(None), _ledger(loaded) as ledger:
        services = Services(loaded, environ=os.environ)
        services.open_read_only(ledger)
        yield services


@contextmanager
def open_reader(loaded: Loaded) -> Iterator[InProcessClient]:
    """Yield the API over the ledger's file, read-only."""
    with open_services(loaded) as services:
        yield InProcessClient(services)


@contextmanager
def _ledger(loaded: Loaded) -> Iterator[Ledger]:
    """Yield the ledger, read-only; an empty temporary one if there is none."""
    with contextlib.ExitStack() as cleanup:
        ledger = _open_existing(loaded)
        if ledger is None:
            directory = cleanup.enter_context(tempfile.TemporaryDirectory())
            ledger = SqliteLedger(Path(directory) / "empty.db")
            ledger.start()
        cleanup.callback(ledger.close)
        yield ledger


def _open_existing(loaded: Loaded) -> Ledger | None:
    """Return the ledger, or None if no gateway has created one."""
    state = loaded.settings.state
    try:
        ledger = open_ledger(path=state.path, url=state.url, read_only=True)
    except NotFound:
        return None
    try:
        # Other queries may need columns that a ledger of an older version does not have.
        ledger.read(lambda tx: tx.all("applied_migrations"))
    except Exception as error:
        ledger.close()
        if type(error).__name__ in NO_TABLES:
            return None
        raise LedgerError(f"cannot read the ledger: {error}") from error
    try:
        _check_version(ledger)
    except LedgerError:
        ledger.close()
        raise
    return ledger


def _check_version(ledger: Ledger) -> None:
    """Raise `LedgerError` if another version has written the ledger: queries would fail on it."""
    history = compare_history(ledger.read(applied_migrations), ledger.engine)
    history.check()
    if history.pending:
        raise LedgerError(
            "an older version of ductile has written the ledger; start the gateway once, which "
            "migrates it"
        )


class InProcessGateway(InProcessClient):
    """A gateway that runs one given job at a time; other jobs stay queued."""

    def __init__(self, gateway: Gateway) -> None:
        super().__init__(gateway)
        self._gateway = gateway
        self._dispatcher = Dispatcher(gateway, [gateway.pool.slot(0)], claims=False)

    def finish_job(
        self, job_id: str, timeout: float | None, on_wait: Callable[[str], None]
    ) -> Json:
        """Run the job. After the timeout or an interrupt, it is queued again."""
        job = self.get(path_to("job", job_id))
        ran = False
        with ThreadPoolExecutor(1) as thread:
            try:
                # An interrupt may come in here, when the job runs already.
                work = thread.submit(self._run, job["plugin"], job_id)
                wait([work], timeout)
                ran = work.done()
            finally:
                if not ran:
                    self._release(thread)
        work.result()
        if ran and job["plugin"] not in self._gateway.unready:
            # Another node of the same database may have claimed it first.
            return wait_for_job(self, job_id, timeout, on_wait)
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

    def _release(self, thread: ThreadPoolExecutor) -> None:
        """Cancel the attempt that the thread runs, which then does not count."""
        grace = CANCEL_GRACE
        self._gateway.stopping.set()
        # The thread does one thing after the other.
        free = thread.submit(_do_nothing)
        while not free.done():
            try:
                self._dispatcher.cancel(Cancellation.STOP, grace)
                wait([free], CANCEL_INTERVAL)
            except KeyboardInterrupt:
                grace = 0.0


def _do_nothing() -> None:
    """What a thread does when it is free."""


@contextmanager
def open_runner(loaded: Loaded, *, verbose: bool) -> Iterator[InProcessGateway]:
    """Lock the state directory, recover from a crash, and yield a gateway; may raise `Locked`."""
    gateway = Gateway(loaded, environ=os.environ, owns_children=True)
    forbid_inspection()
    with _redirect_logs(sys.stderr if verbose else None), sigterm_as_interrupt():
        try:
            gateway.open(slots=1)
            with contextlib.closing(InProcessGateway(gateway)) as runner:
                yield runner
        finally:
            gateway.close()
            allow_inspection()


@contextmanager
def _redirect_logs(stream: TextIO | None) -> Iterator[None]:
    """Write the logs to this stream instead of stdout, which is for the result; None discards."""
    with contextlib.ExitStack() as stack:
        target = stream or stack.enter_context(Path(os.devnull).open("w"))
        stack.enter_context(contextlib.redirect_stdout(target))
        yield
