"""The rules of a configuration: what each watches, how it groups, and where it reports."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2b

from ductile._fast_dataclass import dataclass
from ductile.core.alerts.causes import Cause
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.disk_limit import DiskLimit
from ductile.core.alerts.node_subjects import list_names
from ductile.core.alerts.state_machine import AlertPolicy
from ductile.core.jobs.limits import size

EVERYTHING = "all"
"""The group of a rule that groups nothing."""
OF_PIPELINE = "pipeline:"
"""How the name of a schedule begins that starts a pipeline."""
LONGEST_GROUP = 1024
"""Bytes: a group is part of keys in the ledger."""


class Grouping(StrEnum):
    """What shares one alert of a rule."""

    SUBJECT = "subject"
    PLUGIN = "plugin"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class AlertRule:
    name: str
    on: frozenset[Condition]
    target: str
    """A plugin, or a pipeline if `is_pipeline`."""
    policy: AlertPolicy
    is_pipeline: bool = False
    grouping: Grouping = Grouping.SUBJECT
    only: tuple[str, ...] = ()
    """Patterns of the names that it watches; empty for all."""
    queue_age: float = 600.0
    """Seconds."""
    disk_free: DiskLimit = DiskLimit(share=0.05)

    def watches(self, condition: Condition, subject: str) -> bool:
        return condition in self.on and self.has_name(subject)

    def has_name(self, subject: str) -> bool:
        """Whether `only` allows the subject: by its name, or by the plugin of a schedule."""
        return not self.only or any(matches(self.only, name) for name in list_names(subject))

    def group_of(self, cause: Cause) -> str:
        """The group of a failing subject."""
        if self.grouping is Grouping.NONE:
            return EVERYTHING
        kind, _, name = cause.subject.partition(":")
        if self.grouping is Grouping.PLUGIN and kind == "schedule":
            owner = name.partition("/")[0]
            return owner if owner.startswith(OF_PIPELINE) else f"plugin:{owner}"
        return shorten_group(cause.subject)


def shorten_group(name: str) -> str:
    """The name, or if it is too long its beginning and a hash of it."""
    if size(name) <= LONGEST_GROUP:
        return name
    digest = blake2b(name.encode(), digest_size=16).hexdigest()
    return f"{name.encode()[: LONGEST_GROUP - 40].decode(errors='ignore')}…{digest}"


def matches(patterns: Collection[str], name: str) -> bool:
    """Whether a pattern matches the name, or the plugin or pipeline of a schedule."""
    plain = name.removeprefix(OF_PIPELINE)
    known = {name, plain, plain.partition("/")[0]}
    return any(fnmatchcase(one, pattern) for one in known for pattern in patterns)
