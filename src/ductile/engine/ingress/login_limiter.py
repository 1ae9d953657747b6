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
RECORDING_WINDOW = 600.0
MAX_RECORDED = 5
"""Recorded failed logins per address and recording window."""
MAX_RECORDED_BY_ALL = 30
"""Recorded failed logins per recording window: an attacker may have many addresses."""
MAX_ADDRESSES = 4096


class TooManyFailedLogins(DuctileError):
    code = "too_many_failed_logins"
    http_status = 429


@dataclass(slots=True)
class _Counter:
    """Counts within a window of time."""

    seconds: float
    since: float
    count: int = 0

    def advance(self, now: float) -> None:
        if now - self.since >= self.seconds:
            self.since, self.count = now, 0


class _Address:
    def __init__(self, now: float) -> None:
        self.failures, self.recorded = _Counter(WINDOW, now), _Counter(RECORDING_WINDOW, now)
        self.unrecorded = 0


class LoginLimiter:
    """Counts the failed logins of each address. Used in the event loop only."""

    def __init__(self, clock: Clock, record: Callable[[str, int], None]) -> None:
        """`record` is called with an address and the number of its unrecorded failures."""
        self._clock, self._record = clock, record
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._recorded = _Counter(RECORDING_WINDOW, clock.monotonic())

    def judge(self, address: str, token: str, *, valid: bool) -> None:
        """Count a failed login; raises `TooManyFailedLogins`.

        A valid token always passes unless it is short enough to be guessed: many clients may share
        the address of a proxy with one whose token is wrong.
        """
        if valid and (not self._addresses or len(token) >= SHORTEST_SECRET):
            return
        now = self._clock.monotonic()
        found = self._find(_network_of(address), now)
        if not valid:
            found.unrecorded += 1
        if found.failures.count >= MAX_FAILURES:
            retry_after = max(round(found.failures.since + WINDOW - now), 1)
            message = "too many failed logins from this address; try again later"
            raise TooManyFailedLogins(message, retry_after=retry_after)
        if not valid:
            found.failures.count += 1
            self._record_if_due(address, found, now)

    def _find(self, network: str, now: float) -> _Address:
        found = self._addresses.pop(network, None)
        if found is None:
            found = _Address(now)
            if len(self._addresses) >= MAX_ADDRESSES:
                self._addresses.popitem(last=False)
        found.failures.advance(now)
        self._addresses[network] = found
        return found

    def _record_if_due(self, address: str, found: _Address, now: float) -> None:
        found.recorded.advance(now)
        self._recorded.advance(now)
        if found.recorded.count < MAX_RECORDED and self._recorded.count < MAX_RECORDED_BY_ALL:
            found.recorded.count += 1
            self._recorded.count += 1
            before, found.unrecorded = found.unrecorded - 1, 0
            self._record(address, before)


def _network_of(address: str) -> str:
    """The address, or the network of an IPv6 address, of which one client has a whole one."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    if not isinstance(found, IPv6Address):
        return address
    return str(found.ipv4_mapped or int(found) >> 64)
