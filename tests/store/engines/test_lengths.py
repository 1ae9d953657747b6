"""What stands in an index is bounded where it enters, and no row is more than an index takes."""

from __future__ import annotations

import random
import re

import psycopg
import pytest

from ductile.core.agents import heartbeat
from ductile.core.jobs.limits import LONGEST_DEDUPE_KEY, LONGEST_NAME, LONGEST_STEP_PATH
from ductile.engine.ingress import webhook
from ductile.http.middleware import idempotency
from ductile.http.models import bodies
from ductile.model import NewJob, SubmittedBy
from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.jobs import enqueue
from ductile.store.tx_config import TxConfig
from tests.conftest import FakeClock
from tests.postgres import Server

INDEX_ROW = 2704
"""What PostgreSQL takes: a third of a page."""
WIDEST = 4
"""Bytes of a character."""
OURS = 64
"""Ids, times, hashes and words that we make ourselves."""
PLUGIN = COMMAND = 128
"""`manifest.NAME_PATTERN` and `COMMAND_PATTERN`; an alias has to match the first of them too."""
REQUEST_PATH = len("/pipeline/") + 3 * LONGEST_NAME
"""Of what can be enqueued: it names a plugin and a command, a pipeline, or a job."""

BOUNDS = {
    ("job_queue", "plugin"): PLUGIN,
    ("job_queue", "command"): LONGEST_NAME,
    ("job_queue", "dedupe_key"): LONGEST_DEDUPE_KEY,
    ("job_queue", "schedule_id"): LONGEST_NAME,
    ("job_queue", "pipeline"): LONGEST_NAME,
    ("job_queue", "step_path"): LONGEST_STEP_PATH,
    ("job_log", "plugin"): PLUGIN,
    ("plugin_state", "plugin_name"): LONGEST_NAME,
    ("plugin_facts", "plugin_name"): LONGEST_NAME,
    ("plugin_inits", "plugin"): PLUGIN,
    ("schedule_entries", "plugin"): PLUGIN,
    ("schedule_entries", "schedule_id"): LONGEST_NAME,
    ("schedule_slots", "plugin"): PLUGIN,
    ("schedule_slots", "schedule_id"): LONGEST_NAME,
    ("circuit_breakers", "plugin"): PLUGIN,
    ("circuit_breakers", "command"): LONGEST_NAME,
    ("api_tokens", "name"): bodies.MAX_TOKEN_NAME * WIDEST,
    ("idempotency_keys", "path"): REQUEST_PATH,
    ("idempotency_keys", "idem_key"): idempotency.MAX_KEY * WIDEST,
    ("webhook_receipts", "endpoint"): LONGEST_NAME,
    ("webhook_receipts", "delivery_id"): webhook.LONGEST_ID * WIDEST,
    ("gateway_heartbeats", "agent_id"): heartbeat.LONGEST_ID * WIDEST,
    ("webhook_configs", "source_identifier"): bodies.MAX_WEBHOOK_TEXT * WIDEST,
    ("webhook_configs", "event_type"): bodies.MAX_WEBHOOK_TEXT * WIDEST,
    ("relay_deliveries", "instance"): LONGEST_NAME,
    ("relay_receipts", "peer"): LONGEST_NAME,
    ("relay_receipts", "event_id"): LONGEST_NAME,
    ("relay_signatures", "peer"): LONGEST_NAME,
}
"""The most bytes of each text that somebody else chooses."""
MADE_HERE = re.compile(
    r"(id|.*_id|.*_at|slot|status|owner|join_of|hash|.*_hash|init_key|principal|method|signature)"
)

KEYS = """
SELECT t.relname, i.relname, pg_get_indexdef(i.oid, number, false)
FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_class t ON t.oid = x.indrelid AND t.relnamespace = 'public'::regnamespace
CROSS JOIN generate_series(1, x.indnkeyatts) AS number
"""
TEXTS = """
SELECT table_name, column_name FROM information_schema.columns
WHERE table_schema = 'public' AND data_type = 'text'
"""


@pytest.fixture
def indexes(postgres: Server) -> dict[tuple[str, str], set[str]]:
    """Table and index, and the texts that stand in it."""
    url = postgres.database()
    ledger = PostgresLedger(url)
    ledger.start()
    ledger.close()
    found: dict[tuple[str, str], set[str]] = {}
    with psycopg.connect(url) as connection:
        texts = set(connection.execute(TEXTS))
        for table, index, key in connection.execute(KEYS):
            named = {word for word in re.findall(r"\w+", key) if (table, word) in texts}
            found.setdefault((table, index), set()).update(named)
    return found


def test_every_text_in_an_index_is_bounded_and_so_is_their_sum(
    indexes: dict[tuple[str, str], set[str]],
) -> None:
    assert {"job_queue_dedupe", "job_queue_identity"} <= {index for _, index in indexes}
    for (table, index), columns in indexes.items():
        unknown = {c for c in columns if (table, c) not in BOUNDS and not MADE_HERE.fullmatch(c)}
        assert unknown == set(), f"{index}: how long may they be?"
        most = sum(BOUNDS.get((table, column), OURS) for column in columns)
        # A header of each text, and of the row.
        assert most + 4 * len(columns) + 16 <= INDEX_ROW, index


def test_the_longest_dedupe_key_is_taken(ledger: Ledger, clock: FakeClock) -> None:
    """Of signs that cannot be compressed."""
    chance = random.Random(1)
    signs = [chr(chance.randrange(0x10000, 0x10FFFF)) for _ in range(LONGEST_DEDUPE_KEY // WIDEST)]
    name = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=PLUGIN))
    new = NewJob(name, name, SubmittedBy.API, dedupe_key="".join(signs), dedupe_ttl=60.0)

    def put(id: str) -> enqueue.Enqueued:
        return ledger.write(
            lambda tx: enqueue.enqueue_job(tx, new, TxConfig(60.0), id=id, now=clock.now())
        )

    assert not put("a").deduplicated
    assert put("b").job_id == "a"


def test_what_an_index_refuses_is_a_bug_and_not_a_database_that_does_not_answer(
    postgres: Server,
) -> None:
    """Whoever waited for the database would wait for ever."""
    ledger = PostgresLedger(postgres.database())
    ledger.start()
    key = random.Random(2).randbytes(4000).hex()
    try:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            ledger.write(lambda tx: tx.run("ensure_state", plugin=key, now="x"))
    finally:
        ledger.close()
