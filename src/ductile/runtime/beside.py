"""A ledger in the state directory that is not used, and knows more than the one that is.

Whoever changes where the ledger is begins with an empty one: nothing is lost, but nothing of
it is seen either.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from shlex import quote

import apsw

from ductile.clock import to_text
from ductile.config import Settings
from ductile.record import dataclass
from ductile.runtime import predecessor
from ductile.runtime.backup import REPLACED, SIBLINGS
from ductile.store import foreign
from ductile.store.ledger import Ledger, Tx
from ductile.store.sqlite import SqliteTx

YOUNG = timedelta(days=7)
"""So long a ledger counts as new: its schedules fire before anybody looks."""
MOST_FILES = 1000
MOST_JOBS = 1000
MOST_BOOTS = 1000
SMALLEST = 512
"""Bytes of the smallest file that can be a ledger. Nothing smaller is opened: closing the lock
file would give the lock away where the file system keeps it by process.
"""


@dataclass(frozen=True, slots=True)
class Unused:
    what: str
    why: str
    line: str
    """The command that moves all of it, after the word `ductile`."""


@dataclass(frozen=True, slots=True)
class _Contents:
    jobs: int
    """At most `MOST_JOBS`."""
    states: int
    boots: frozenset[str]
    """The newest."""

    @property
    def nothing(self) -> bool:
        return not self.jobs and not self.states

    def __str__(self) -> str:
        many = f"{MOST_JOBS} jobs or more" if self.jobs >= MOST_JOBS else f"jobs: {self.jobs}"
        return f"{many}, plugins with a state: {self.states}"


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    is_foreign: bool
    contents: _Contents

    @property
    def last_boot(self) -> str:
        """Ids of boots sort by time."""
        return max(self.contents.boots, default="")


_NOTHING = _Contents(0, 0, frozenset())


def unused(settings: Settings, ledger: Ledger | None, now: datetime) -> Unused | None:
    """What the ledger of a configuration, if it is new, or yet to be made, leaves unseen."""
    own = _NOTHING if ledger is None else ledger.read(partial(_own, now=now))
    if own is None:
        return None
    files = [file for file in _files(settings) if _is_more(file, own)]
    file = max(files, key=lambda file: file.last_boot, default=None)
    elsewhere = predecessor.last(settings.state_dir)
    # A ledger that was put back has older boots than the one before it.
    if elsewhere is not None and all(boot > elsewhere for boot in own.boots):
        return _told(file) if file and file.last_boot > elsewhere else _ELSEWHERE
    return None if file is None else _told(file)


def _own(tx: Tx, now: datetime) -> _Contents | None:
    """What the ledger in use holds; None where it is not new."""
    [(jobs, states)] = tx.all("contents", most=MOST_JOBS)
    if jobs or states:
        [(boot, entry, first_job)] = tx.all("beginnings")
        since = to_text(now - YOUNG)
        old = any(moment is not None and moment < since for moment in (boot, entry))
        if old or first_job != 1:
            return None
    return _Contents(jobs, states, _boots(tx))


def _boots(tx: Tx) -> frozenset[str]:
    return frozenset(row[0] for row in tx.all("newest_boots", limit=MOST_BOOTS))


def _is_more(file: _File, own: _Contents) -> bool:
    if file.contents.nothing or file.contents.boots & own.boots:
        return False
    # What could be taken over of another program's may be here already.
    return own.nothing or not file.is_foreign


def _files(settings: Settings) -> Iterator[_File]:
    own = settings.state.path
    try:
        mine = None if own is None else own.stat()
    except OSError:
        mine = None
    try:
        entries = os.scandir(settings.state_dir)
    except OSError:
        return
    with entries:
        for entry in islice(entries, MOST_FILES):
            try:
                seen = entry.stat()
                if _may_be_ledger(entry, seen) and not (mine and os.path.samestat(mine, seen)):
                    yield _looked_into(Path(entry.path))
            except (OSError, apsw.Error):
                # No ledger, or none that can be read: this is no place to complain of it.
                continue


def _may_be_ledger(entry: os.DirEntry[str], seen: os.stat_result) -> bool:
    aside = entry.name.startswith(".") or REPLACED in entry.name
    return (
        entry.is_file()
        and seen.st_size >= SMALLEST
        and not (aside or entry.name.endswith(SIBLINGS))
    )


def _looked_into(path: Path) -> _File:
    is_foreign = foreign.is_foreign(path)
    connection = foreign.glimpsed(path)
    try:
        tx = SqliteTx(connection)
        [(jobs, states)] = tx.all("contents", most=MOST_JOBS)
        boots = frozenset[str]() if is_foreign else _boots(tx)
    finally:
        connection.close()
    return _File(path, is_foreign, _Contents(jobs, states, boots))


def _told(file: _File) -> Unused:
    path = quote(str(file.path))
    if file.is_foreign:
        return Unused(
            f"{file.path} is the ledger of another program, and is not used ({file.contents})",
            "the one that the configuration names is new and empty; stop the gateway, and take "
            "over what plugins remember",
            f"system import {path}",
        )
    return Unused(
        f"{file.path} is a ledger that is not used ({file.contents})",
        "the one that the configuration names is new, and knows nothing of this; stop the "
        "gateway, and move all of it: what the new one holds is kept aside",
        f"system restore {path}",
    )


_ELSEWHERE = Unused(
    "the gateway that had this state directory before kept its ledger in another database",
    "the one that the configuration names is new, and knows nothing of that; with the state.url "
    "of before make a copy (ductile system backup), stop the gateway, and move all of it",
    "system restore PATH_OF_THE_COPY",
)
