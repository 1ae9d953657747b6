"""Errors of the server as errors of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from ductile.errors import LedgerBusy, LedgerFull


@contextmanager
def translating_errors() -> Iterator[None]:
    """Turn failures of the server into errors of the ledger; bugs and lost races pass through."""
    try:
        yield
    except (errors.DeadlockDetected, errors.SerializationFailure, errors.ProgramLimitExceeded):
        raise
    except errors.DiskFull as error:
        raise LedgerFull("the disk is full; nothing was written") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise LedgerBusy(f"the database does not answer: {error}") from error
