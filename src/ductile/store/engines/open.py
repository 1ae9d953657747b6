"""Opening the ledger that a configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ductile.errors import LedgerError, NotFound
from ductile.store.engines.api import Ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_file import refuse_lost_database

PROGRAM = "ductile"


def name_application(boot: str, node: str = "") -> str:
    """The `application_name` of a node's sessions, which shows the node to people and its boot to
    nodes that end them.

    The end of the id: the beginning is a time, which boots of the same minute share.
    """
    return f"{PROGRAM} {boot[-12:]} {node}"


def open_ledger(
    *,
    path: Path | None,
    url: str | None,
    read_only: bool = False,
    connections: int = 8,
    application: str = PROGRAM,
) -> Ledger:
    """Start and migrate the ledger; with `read_only` it is neither created nor migrated.

    `application` names the sessions of a database server.
    """
    if url is not None:
        ledger: Ledger = _postgres_ledger(
            url, read_only=read_only, connections=connections, application=application
        )
    elif path is None:
        raise LedgerError(
            "the configuration names no ledger; set state.path or state.url",
            run="ductile config set state.path ./data/state.db",
        )
    elif read_only and not path.exists():
        refuse_lost_database(path)
        raise NotFound(f"there is no ledger at {path} yet; start the gateway once")
    else:
        ledger = SqliteLedger(path, read_only=read_only)
    try:
        ledger.start()
    except BaseException:
        ledger.close()
        raise
    return ledger


def _postgres_ledger(url: str, **options: Any) -> Ledger:
    try:
        from ductile.store.engines.postgres import PostgresLedger
    except ImportError as error:
        raise LedgerError(
            "state.url needs the PostgreSQL driver: pip install 'psycopg[binary,pool]'"
        ) from error
    return PostgresLedger(url, **options)
