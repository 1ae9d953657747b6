"""Failed logins: how many an address may have, and which of them are recorded."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock
from ductile.config.validate import SHORTEST_SECRET
from ductile.errors import DuctileError

WINDOW = 60.0
"""Seconds after which the failed logins of an address are forgotten."""
MAX_FAILURES = 20
"""Failed logins per address and window; further ones get 429."""
MAX_RECORDED = 5
"""Recorded failed logins per address and window."""
MAX_RECORDED_BY_ALL = 60
"""Recorded failed logins per window: an attacker may have many addresses."""
MAX_ADDRESSES = 4096


class TooManyFailedLogins(DuctileError):
    code = "too_many_failed_logins"
    http_status = 429


@dataclass(slots=True)
class _Failures:
    since: float
    count: int = 0
    unrecorded: int = 0


class LoginLimiter:
    """Counts the failed logins of each address. Used in the event loop only."""

    def __init__(self, clock: Clock, record: Callable[[str, int], None]) -> None:
        """`record` is called with an address and the number of its unrecorded failures."""
        self._clock, self._record = clock, record
        self._addresses: OrderedDict[str, _Failures] = OrderedDict()
        self._all = _Failures(clock.monotonic())

    def judge(self, address: str, token: str, *, valid: bool) -> None:
        """Count a failed login; raises `TooManyFailedLogins`.

        A valid token always passes unless it is short enough to be guessed: many clients may share
        the address of a proxy with one whose token is wrong.
        """
        if valid and (not self._addresses or len(token) >= SHORTEST_SECRET):
            return
        now = self._clock.monotonic()
        failures = self._failures_of(_network_of(address), now)
        if failures.count >= MAX_FAILURES:
            failures.unrecorded += not valid
            retry_after = max(round(failures.since + WINDOW - now), 1)
            message = "too many failed logins from this address; try again later"
            raise TooManyFailedLogins(message, retry_after=retry_after)
        if not valid:
            failures.count += 1
            self._record_or_count(address, failures, now)

    def _failures_of(self, network: str, now: float) -> _Failures:
        failures = self._addresses.pop(network, None)
        if failures is None:
            failures = _Failures(now)
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        _start_window(failures, now)
        self._addresses[network] = failures
        return failures

    def _record_or_count(self, address: str, failures: _Failures, now: float) -> None:
        _start_window(self._all, now)
        if failures.count > MAX_RECORDED or self._all.count >= MAX_RECORDED_BY_ALL:
            failures.unrecorded += 1
            return
        self._all.count += 1
        unrecorded, failures.unrecorded = failures.unrecorded, 0
        self._record(address, unrecorded)


def _start_window(failures: _Failures, now: float) -> None:
    if now - failures.since >= WINDOW:
        failures.since, failures.count = now, 0


def _network_of(address: str) -> str:
    """The address, or the network of an IPv6 address, of which one client has a whole one."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or int(found) >> 64)
