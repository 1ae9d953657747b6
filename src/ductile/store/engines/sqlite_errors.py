"""Failures of a SQLite file or its disk, as errors of the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ductile.errors import LedgerBusy, LedgerError, LedgerFull

_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_FILE_ERRORS = (*_DAMAGE, apsw.IOError, apsw.CantOpenError, apsw.NoMemError)
_MISSING_INDEX = re.compile(r"no such index: (\w+)")
_ADVICE = "; replace it by a backup (ductile system restore), or move it away"


@contextmanager
def translating_errors() -> Iterator[None]:
    """Raise the `translate_error` of any error inside."""
    try:
        yield
    except apsw.Error as error:
        known = translate_error(error)
        if known is error:
            raise
        raise known from error


def translate_error(error: BaseException) -> BaseException:
    """The ledger's error for a failure of the file or the disk; a bug stays as it is."""
    if isinstance(error, apsw.FullError):
        return LedgerFull("the disk is full; nothing was written")
    if isinstance(error, apsw.BusyError):
        return LedgerBusy("another process holds the ledger's write lock")
    if isinstance(error, _FILE_ERRORS):
        advice = _ADVICE if isinstance(error, _DAMAGE) else ""
        return LedgerError(f"the ledger's file cannot be used: {error}{advice}")
    if isinstance(error, apsw.SQLError) and (missing := _MISSING_INDEX.search(str(error))):
        return LedgerError(
            f"the ledger's index {missing[1]} is missing; restore a backup, or create the index as"
            " its migration does (ductile system verify lists what is missing)"
        )
    return error


def is_damage(error: BaseException) -> bool:
    """Whether SQLite has found a damaged page."""
    return isinstance(error, _DAMAGE)


def is_damage_text(message: str) -> bool:
    """Whether the message of a `LedgerError` reports a damaged file."""
    return _ADVICE in message or "malformed" in message or "is damaged" in message
