"""What the applications of one gateway share, whichever listener a request arrives at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from ductile._fast_dataclass import dataclass
from ductile.engine.ingress.authenticator import Authenticator, LoginCodes, Principal, Session
from ductile.engine.ingress.login_limiter import LoginLimiter
from ductile.engine.ingress.recent_refusals import RecentRefusals
from ductile.engine.ingress.rejection_limiter import RejectionLimiter
from ductile.engine.observability.metrics import Metrics
from ductile.engine.services import Services
from ductile.errors import DuctileError, LedgerError
from ductile.http.middleware.caller_limit import CallerLimit
from ductile.http.middleware.heartbeat_batch import HeartbeatBatcher
from ductile.http.middleware.single_flight import RecentResult, SingleFlight
from ductile.http.middleware.subscribers import MAX_SUBSCRIBERS, Subscribers
from ductile.log import logger
from ductile.operations import plugin_health
from ductile.operations.backup import Backups
from ductile.operations.plugin_health import HealthCheck
from ductile.operations.reports.analytics import HourlyOutcomes
from ductile.operations.reports.job_list import read_all_progress
from ductile.store import agents
from ductile.store.access import audit, ui_sessions
from ductile.store.access.audit import AuditEntry

MAX_WAITS = 256
"""Half of a listener's connections, so that the others stay free for requests that end soon."""
BLOCKING_THREADS = 4
"""Threads for long blocking calls; the other threads read the ledger."""
MAX_PLUGIN_TESTS = 2
"""They have threads of their own, so that slow plugins do not delay a cancel or a reload."""
TOKEN_READ_TIMEOUT = 5.0
PROGRESS_INTERVAL = 1.0
"""Seconds between two looks at the output of running processes."""
CONTACT_INTERVAL = 5.0
"""Seconds between two looks for contacts of agents with other nodes."""

P = ParamSpec("P")
T = TypeVar("T")


class TooManySynchronousCalls(DuctileError):
    code = "too_many_synchronous_calls"
    http_status = 503


class TooManyWaits(DuctileError):
    code = "too_many_waits"
    http_status = 503


class TooManyPluginTests(DuctileError):
    code = "too_many_plugin_tests"
    http_status = 503


@dataclass(frozen=True, slots=True)
class LastHealth:
    """The results of the newest health checks; empty until the first."""

    checks: dict[str, HealthCheck]
    checked_at: datetime | None


class AppContext:
    def __init__(self, services: Services) -> None:
        self.services = services
        self.authenticator = Authenticator(
            lambda: services.compiled, services.ledger, services.clock
        )
        self.synchronous_calls = 0
        """Callers that wait for the result of a synchronous pipeline."""
        self.plugin_tests = 0
        """Tests of plugins that run now."""
        self.subscribers = Subscribers(services.notice_bus)
        self.waits = CallerLimit(MAX_WAITS, "waiting requests", TooManyWaits)
        """Requests with `?wait`."""
        self.metrics = Metrics(services)
        self.rejections = RejectionLimiter()
        self.refused_webhooks = RecentRefusals(services.clock)
        self.logins = LoginLimiter(services.clock, self._record_failed_login)
        self.heartbeats = HeartbeatBatcher(services)
        self.health_checks: SingleFlight[dict[str, HealthCheck]] = SingleFlight(self._check_plugins)
        """Runs the `health` of every plugin that declares it."""
        self.last_health = LastHealth({}, None)
        self.hourly_outcomes = HourlyOutcomes(services.ledger)
        self.running_progress: RecentResult[dict[str, dict[str, Any]]] = RecentResult(
            self._read_progress, PROGRESS_INTERVAL
        )
        """What running jobs report, for all subscribers of it."""
        self.newest_contact: RecentResult[str | None] = RecentResult(
            self._read_newest_contact, CONTACT_INTERVAL
        )
        """The last contact of an agent with any node, for all subscribers of changes."""
        self.login_codes = LoginCodes(services.clock)
        self._token_read = SingleFlight(self._read_tokens)
        self.backups = Backups(lambda: services.ledger, services.state_dir, services.clock)
        services.on_stop += [self.backups.stop, self.rejections.summarize]
        self._blocking = asyncio.Semaphore(BLOCKING_THREADS)

    async def _read_progress(self) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(read_all_progress, self.services)

    async def _read_newest_contact(self) -> str | None:
        return await asyncio.to_thread(self.services.ledger.read, agents.find_newest_contact)

    async def principal_of(self, token: str | None) -> Principal | None:
        """Return the owner of a token; `LedgerError` if the ledger's tokens cannot be read."""
        if token is None:
            return None
        if self.authenticator.is_stale(token):
            await self._refresh_tokens()
        return self.authenticator.identify(token)

    async def session_of(self, cookie: str) -> Session | None:
        """Return the session of a cookie; `LedgerError` if the ledger cannot be read."""
        if self.authenticator.has_expired_copy():
            await self._refresh_tokens()
        session = self.authenticator.identify_session(cookie)
        if session is not None and session.needs_touch:
            hash, now = session.stored.hash, self.services.clock.now()
            self.services.ledger.submit(
                lambda tx: ui_sessions.touch_session(tx, hash, now), _log_failed_touch
            )
        return session

    def _record_failed_login(self, address: str, unrecorded: int) -> None:
        details = {"unrecorded": unrecorded} if unrecorded else None
        entry = AuditEntry("anonymous", address, "login.fail", None, details)
        logger("audit").warning("login failed", source=address, unrecorded=unrecorded or None)
        now = self.services.clock.now()
        self.services.ledger.submit(lambda tx: audit.append(tx, entry, now), _log_lost_entry)

    def record_rejection(self, key: int | str, record: Callable[[int], None]) -> None:
        """Record a rejection at a limited rate. Called on the event loop."""
        later = asyncio.get_running_loop().call_later
        self.rejections.record(key, self.services.clock.now(), record, later)

    def tokens_changed(self) -> None:
        """Have the next request read the ledger's tokens again, and streams check theirs."""
        self.authenticator.invalidate()
        self._token_read.renew()
        self.subscribers.wake()

    async def _refresh_tokens(self) -> None:
        try:
            async with asyncio.timeout(TOKEN_READ_TIMEOUT):
                await self._token_read()
        except TimeoutError:
            raise LedgerError("the ledger does not answer") from None

    async def _read_tokens(self) -> None:
        await asyncio.to_thread(self.authenticator.refresh)

    async def run_blocking(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """Run a call that may block for long in a thread; only a few run at once."""
        async with self._blocking:
            return await asyncio.to_thread(work, *args, **named)

    async def _check_plugins(self) -> dict[str, HealthCheck]:
        services = self.services
        checks = await self.run_blocking(
            plugin_health.check_plugins,
            services.compiled,
            services.ledger,
            services.clock,
            services.entropy,
        )
        self.last_health = LastHealth(checks, services.clock.now())
        return checks

    @contextmanager
    def synchronous_call(self) -> Iterator[None]:
        """Count a synchronous caller; raise if the configuration allows no more of them."""
        if self.synchronous_calls >= self.services.compiled.settings.api.max_concurrent_sync:
            raise TooManySynchronousCalls(
                "too many synchronous calls; try again later, or use ?async=true"
            )
        self.synchronous_calls += 1
        try:
            yield
        finally:
            self.synchronous_calls -= 1

    @contextmanager
    def plugin_test(self) -> Iterator[None]:
        """Count a test of a plugin; raise `TooManyPluginTests` instead of waiting."""
        if self.plugin_tests >= MAX_PLUGIN_TESTS:
            raise TooManyPluginTests(
                f"{MAX_PLUGIN_TESTS} tests of plugins are running; try again later", retry_after=5
            )
        self.plugin_tests += 1
        try:
            yield
        finally:
            self.plugin_tests -= 1

    def limit_open_requests(self, connections: int) -> None:
        """Lower the limits on requests that stay open to what a listener's connections allow."""
        self.waits.places = min(MAX_WAITS, connections // 2)
        self.subscribers.limit.places = min(MAX_SUBSCRIBERS, connections // 4)

    def close(self) -> None:
        """End the responses that would stay open. Called in the event loop."""
        self.subscribers.close()


def _log_lost_entry(_: None, error: BaseException | None) -> None:
    if error is not None:
        logger("audit").error("audit entry could not be stored", error=str(error))


def _log_failed_touch(_: None, error: BaseException | None) -> None:
    if error is not None:
        logger("http").warning("session use not recorded", error=str(error))


def app_context_of(request: Request) -> AppContext:
    app_context: AppContext = request.app.state.app_context
    return app_context
