"""The job table of a ledger that no gateway uses."""

from __future__ import annotations

import apsw

from tests.engine.site import Site

ROW = (
    "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
    " submitted_by, created_at, started_at, owner) VALUES"
    " (?, ?, 'poll', ?, ?, ?, 4, 'cli', '2026-02-08T10:00:00.000000Z', ?, ?)"
)
STARTED = "2026-02-08T10:00:01.000000Z"


class JobTable:
    """The job table of a ledger that no gateway uses."""

    def __init__(self, site: Site) -> None:
        with site.opened():
            pass
        self.path = str(site.state / "state.db")

    def insert(
        self,
        id: str,
        plugin: str = "echo",
        *,
        status: str = "running",
        attempt: int = 1,
        started: str | None = STARTED,
        owner: str | None = "dead-boot",
        payload: str = "{}",
    ) -> None:
        connection = apsw.Connection(self.path)
        connection.execute(ROW, (id, plugin, payload, status, attempt, started, owner))
        connection.close()

    def claim_again(self, id: str) -> None:
        connection = apsw.Connection(self.path)
        connection.execute(
            "UPDATE job_queue SET status = 'running', owner = 'next-boot' WHERE id = ?", (id,)
        )
        connection.close()

    def insert_many(self, count: int, running: int) -> None:
        """Insert rows: the first ones running, the others queued."""
        connection = apsw.Connection(self.path)
        with connection:
            connection.executemany(
                ROW,
                [
                    (f"job-{n}", "echo", "{}", "running", 1, STARTED, "dead-boot")
                    if n < running
                    else (f"job-{n}", "echo", "{}", "queued", 1, None, None)
                    for n in range(count)
                ],
            )
        connection.close()
