"""Limits of a plugin: how many of its jobs run per key, and how often they start."""

from __future__ import annotations

from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.core.flow.keys import SEPARATOR, FlowKey
from ductile.core.flow.rates import Rate
from ductile.model import Json


class OnFull(StrEnum):
    """What happens to a job whose turn comes while its key is full."""

    QUEUE = "queue"
    SKIP = "skip"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Concurrency:
    limit: int = 1
    key: FlowKey | None = None
    on_full: OnFull = OnFull.QUEUE


@dataclass(frozen=True, slots=True)
class LimitKeys:
    """The values of a job's keys; jobs with the same ones are held and released together."""

    concurrency_key: str = ""
    rate_key: str = ""

    def __str__(self) -> str:
        return (
            f"{self.concurrency_key}{SEPARATOR}{self.rate_key}"
            if self.rate_key
            else (self.concurrency_key)
        )


def parse_limit_key(text: str) -> LimitKeys:
    concurrency_key, _, rate_key = text.partition(SEPARATOR)
    return LimitKeys(concurrency_key, rate_key)


@dataclass(frozen=True, slots=True)
class PluginLimits:
    concurrency: Concurrency | None = None
    rate: Rate | None = None

    def limit_keys(self, payload: Json) -> LimitKeys:
        """The values of the keys for a job with this payload."""
        concurrency, rate = self.concurrency, self.rate
        return LimitKeys(
            concurrency.key.render(payload) if concurrency and concurrency.key else "",
            rate.key.render(payload) if rate and rate.key else "",
        )


NO_LIMITS = PluginLimits()
