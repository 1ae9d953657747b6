"""What a SQLite file or its disk refuses, as errors of the ledger's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from ductile.errors import LedgerBusy, LedgerError, LedgerFull

_DAMAGE = (apsw.CorruptError, apsw.NotADBError)
_FILE_TROUBLE = (*_DAMAGE, apsw.IOError, apsw.CantOpenError, apsw.NoMemError)
_MEND = "; put a backup in its place (ductile system restore), or move it away"


@contextmanager
def known_trouble() -> Iterator[None]:
    """Raises what `translated` says."""
    try:
        yield
    except apsw.Error as error:
        known = translated(error)
        if known is error:
            raise
        raise known from error


def translated(error: BaseException) -> BaseException:
    """What the file or the disk refuses is an error of the ledger's; a bug is not."""
    if isinstance(error, apsw.FullError):
        return LedgerFull("the disk is full; nothing was written")
    if isinstance(error, apsw.BusyError):
        return LedgerBusy("another process holds the ledger's write lock")
    if isinstance(error, _FILE_TROUBLE):
        mend = _MEND if isinstance(error, _DAMAGE) else ""
        return LedgerError(f"the ledger's file cannot be used: {error}{mend}")
    return error
