"""The named queries of `store/sql/*.sql`, in the dialect of an engine.

A file is named after the noun whose rows its queries read and write, or after the module that
runs them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.resources import files

from ductile.model import ENDED_ON_PURPOSE, RUN_SUPERSEDED, Job

_OUR_TIME = "9999-99-99T99:99:99.999999Z".replace("9", "[0-9]")

JOB = tuple(field.name for field in fields(Job) if field.name != "flaw")
"""The columns of `job_queue` that are fields of a `Job`, in the order of its constructor."""

NEVER = "9999-12-31T23:59:59.999999Z"
"""The retry time of a job that waits for a decision, an event or a time of its own."""

SHARED: Mapping[str, str] = {
    "job": ", ".join(JOB),
    # The name of the node that ran an attempt `l`.
    "node_of_attempt": "(SELECT boots.node FROM boots WHERE boots.id = l.boot)",
    # The open ones of the scopes around a job `j`, from the inside out.
    "open_around_j": """
    WITH RECURSIVE around(id, parent_id, parent_job_id, status) AS (
      SELECT s.id, s.parent_id, s.parent_job_id, s.status FROM scopes s WHERE s.id = j.scope_id
      UNION ALL
      SELECT s.id, s.parent_id, s.parent_job_id, s.status
      FROM scopes s JOIN around ON s.id = around.parent_id)
    SELECT 1 FROM around WHERE around.status = 'open'""",
    "never": f"'{NEVER}'",
    # The value of `set_aside` of a job that no claim has set aside.
    "in_order": "CASE WHEN place IS NULL THEN 0 ELSE 2 END",
    # A filter that is NULL is not applied.
    "job_filter": """
    (CAST(:status AS TEXT) IS NULL OR status = :status)
    AND (CAST(:plugin AS TEXT) IS NULL OR plugin = :plugin)
    AND (CAST(:pipeline AS TEXT) IS NULL OR pipeline = :pipeline)
    AND (CAST(:command AS TEXT) IS NULL OR command = :command)
    AND (CAST(:submitted_by AS TEXT) IS NULL OR submitted_by = :submitted_by)
    AND (CAST(:acknowledged AS INTEGER) IS NULL OR CASE WHEN acknowledged_at IS NOT NULL
      OR @cancelled@ = 1 THEN 1 ELSE 0 END = :acknowledged)""",
    # The filters that a `kind` of jobs decides.
    "kind_filter": """
    (CAST(:plugin AS TEXT) IS NULL OR kind.plugin = :plugin)
    AND (CAST(:command AS TEXT) IS NULL OR kind.command = :command)
    AND (CAST(:submitted_by AS TEXT) IS NULL OR kind.submitted_by = :submitted_by)""",
    # Of a dead job: 1 if an operator, or a newer job or run, has ended it.
    "cancelled": (
        "CASE WHEN status = 'dead' AND ("
        + "".join(f"last_error = '{error}' OR " for error in sorted(ENDED_ON_PURPOSE))
        + f"substr(last_error, 1, {len(RUN_SUPERSEDED)}) = '{RUN_SUPERSEDED}')"
        + " THEN 1 ELSE 0 END"
    ),
    # Failed and dead jobs that may need an operator: the condition of their index.
    "unresolved": """
    @without_success@ AND status <> 'skipped' AND acknowledged_at IS NULL AND @cancelled@ = 0""",
    # From `since` to before (`at`, `before`), which is the end of the period or a cursor.
    "job_page": """
    created_at >= :since AND (created_at, seq) < (:at, :before) AND @job_filter@
    ORDER BY created_at DESC, seq DESC LIMIT :limit""",
    # The condition of the indexes on jobs that ended otherwise, which are few.
    "without_success": "status <> 'queued' AND status <> 'running' AND status <> 'succeeded'",
    # The conditions on a ready job `j`, apart from its place in the queue and its limit key.
    "may_run": """
AND (j.command = 'init' OR 0 = :init_only)
  AND (j.dedupe_key IS NULL OR NOT EXISTS (
    SELECT 1 FROM job_queue r WHERE r.status = 'running' AND r.plugin = j.plugin
      AND r.command = j.command AND r.dedupe_key = j.dedupe_key))
  AND (j.schedule_id IS NULL OR j.schedule_id NOT IN (SELECT given.id FROM @given@)
    OR NOT EXISTS (
      SELECT 1 FROM job_queue r WHERE r.plugin = j.plugin AND r.schedule_id = j.schedule_id
        AND r.status IN ('queued', 'running') AND (r.status = 'running' OR r.seq < j.seq)))
  AND (j.pipeline = '' OR j.pipeline NOT IN (@paused@))""",
}
"""Fragments that are the same on both engines."""

DIALECTS: Mapping[str, Mapping[str, str]] = {
    "sqlite": {
        "sequence": "INTEGER PRIMARY KEY",
        # Never reuses the id of a deleted row.
        "identity": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "key": "TEXT",
        "real": "REAL",
        "big": "INTEGER",
        # Between a table and an index: without statistics SQLite may take another index.
        "by_index": "INDEXED BY",
        # There is one writer, so that no lock is needed.
        "skip_locked": "",
        "for_update": "",
        "waits": "id = :id AND status = 'queued'",
        "lock_scope": "",
        "collate": "",
        # The position of one text in another, from 1.
        "place": "instr",
        # The connection knows the last id; returning it costs half of the insert again.
        "returning_id": "",
        # After a column: a time that another program wrote in another format.
        "not_our_time": f"NOT GLOB '{_OUR_TIME}'",
        # NULL for a day that does not exist: SQLite takes the 30th of February for one in March.
        "seconds_since_completed": (
            "CASE WHEN strftime('%Y-%m-%dT%H:%M:%S', completed_at) = substr(completed_at, 1, 19)"
            " THEN (julianday(:now) - julianday(completed_at)) * 86400 END"
        ),
        # By the database's clock, in the format of our times.
        "a_year_ago": "strftime('%Y-%m-%dT%H:%M:%S', 'now', '-365 days')",
        "a_week_ago": "strftime('%Y-%m-%dT%H:%M:%S', 'now', '-7 days')",
        "database_time": "strftime('%Y-%m-%dT%H:%M:%f000Z', 'now')",
        "seconds_since_seen": "(julianday('now') - julianday(seen_at)) * 86400",
        # The texts of a JSON array, as a table.
        "given": "(SELECT value AS id FROM json_each(:ids)) AS given",
        # After a column: whether it is one of them.
        "is_given": "IN (SELECT value FROM json_each(:ids))",
        "separator": "char(31)",
        "rate_part": "CASE WHEN instr(j.limit_key, char(31)) > 0"
        " THEN substr(j.limit_key, instr(j.limit_key, char(31)) + 1) END",
        "paused": "SELECT value FROM json_each(:paused)",
        # Around a subquery that depends on the tables before it: a table of its column `seq`, as
        # `value`. SQLite has no LATERAL.
        "each_seq_of": "json_each((SELECT json_group_array(seq) FROM",
        "end_of_each": "))",
        # There is one node.
        "config_hashes": "NULL, NULL",
    },
    "postgres": {
        "sequence": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        "identity": "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        # Byte order in every locale, because text order must be time order.
        "key": 'TEXT COLLATE "C"',
        "real": "DOUBLE PRECISION",
        "big": "BIGINT",
        # PostgreSQL chooses by its statistics: here the name of the index is only an alias.
        "by_index": "AS",
        "skip_locked": "FOR UPDATE SKIP LOCKED",
        "for_update": "FOR UPDATE",
        "waits": (
            "id = (SELECT waiting.id FROM job_queue waiting WHERE waiting.id = :id"
            " AND waiting.status = 'queued' FOR UPDATE SKIP LOCKED)"
        ),
        "lock_scope": "FOR NO KEY UPDATE",
        "collate": 'COLLATE "C"',
        "place": "strpos",
        "returning_id": "RETURNING id",
        # Checks the shape only: a regular expression costs ten times as much per row.
        "not_our_time": "NOT LIKE '____-__-__T__:__:__.______Z'",
        # NULL for a day that does not exist: a JSON path returns nothing where a cast would raise.
        "seconds_since_completed": (
            "extract(epoch FROM CAST(:now AS timestamp) - CAST(jsonb_path_query_first("
            "to_jsonb(left(completed_at, 26)),"
            """ '$.datetime("YYYY-MM-DD\\"T\\"HH24:MI:SS.FF6")', '{}', true)"""
            " #>> '{}' AS timestamp))"
        ),
        "a_year_ago": (
            "to_char(now() AT TIME ZONE 'UTC' - interval '365 days', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
        ),
        "a_week_ago": (
            "to_char(now() AT TIME ZONE 'UTC' - interval '7 days', 'YYYY-MM-DD\"T\"HH24:MI:SS')"
        ),
        "database_time": (
            "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        ),
        "seconds_since_seen": (
            "extract(epoch FROM clock_timestamp() - CAST(seen_at AS timestamptz))"
        ),
        "given": "jsonb_array_elements_text(CAST(:ids AS jsonb)) AS given(id)",
        # An array: without statistics PostgreSQL compares every row with every id of a subquery.
        "is_given": "= ANY(ARRAY(SELECT jsonb_array_elements_text(CAST(:ids AS jsonb))))",
        "separator": "chr(31)",
        "rate_part": "CASE WHEN strpos(j.limit_key, chr(31)) > 0"
        " THEN substr(j.limit_key, strpos(j.limit_key, chr(31)) + 1) END",
        "paused": "SELECT jsonb_array_elements_text(CAST(:paused AS jsonb))",
        "each_seq_of": "LATERAL (SELECT seq AS value FROM",
        "end_of_each": ")",
        "config_hashes": (
            "(SELECT min(config_hash) FROM nodes), (SELECT max(config_hash) FROM nodes)"
        ),
    },
}

_INSERT = re.compile(
    r"INSERT INTO (?P<table>\w+) \((?P<columns>[^)]+)\)\s+VALUES \((?P<values>.+)\)"
    r"(?P<returning>\s+RETURNING id)?",
    re.DOTALL,
)
_NAME = re.compile(r"^-- name: (\w+)(?: \[(\w+)\])?\n", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_FRAGMENT = re.compile(r"@(\w+)@")
_PLACEHOLDER = re.compile(r"(?<!:):([a-z][a-z_]*)")


def translate_dialect(text: str, engine: str) -> str:
    """`text` with each `@fragment@` replaced by the engine's."""
    return _replace_fragments(text, {**SHARED, **DIALECTS[engine]})


def _replace_fragments(text: str, fragments: Mapping[str, str]) -> str:
    return _FRAGMENT.sub(lambda match: _replace_fragments(fragments[match[1]], fragments), text)


@cache
def load_queries(engine: str) -> Mapping[str, str]:
    """Name to SQL. A query marked `[engine]` overrides the unmarked one of its name; a query can
    also be used as a fragment of others.
    """
    queries: dict[str, str] = {}
    overridden: set[str] = set()
    for source in sorted(files("ductile.store").joinpath("sql").iterdir(), key=lambda f: f.name):
        parts = _NAME.split(source.read_text(encoding="utf-8"))
        for name, only, body in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
            if (only and only != engine) or (not only and name in overridden):
                continue
            if name in queries and not only and name not in overridden:
                raise ValueError(f"query {name} is defined twice")
            if only:
                overridden.add(name)
            queries[name] = _COMMENT.sub("", body).strip().rstrip(";")
    fragments = {**queries, **SHARED, **DIALECTS[engine]}
    return {
        name: _set_placeholders(_replace_fragments(sql, fragments), engine)
        for name, sql in queries.items()
    }


def _set_placeholders(sql: str, engine: str) -> str:
    sql = sql.strip()
    if engine == "postgres":
        sql = _PLACEHOLDER.sub(r"%(\1)s", sql.replace("%", "%%"))
    return sql


@cache
def parse_insert(engine: str, query: str) -> re.Match[str]:
    """The parts of a query that inserts one row of parameters and literals."""
    match = _INSERT.fullmatch(load_queries(engine)[query])
    if match is None:
        raise ValueError(f"the query {query} does not insert one row")
    return match


@cache
def uses_rows_of(engine: str, query: str, insert: str) -> bool:
    """Whether a query uses the table of one that `parse_insert` knows."""
    table = parse_insert(engine, insert)["table"]
    return re.search(rf"\b{table}\b", load_queries(engine)[query]) is not None


@cache
def insert_rows(query: str, count: int) -> tuple[str, tuple[str, ...]]:
    """The form of an INSERT that writes `count` rows on SQLite, and the parameters of each row."""
    match = parse_insert("sqlite", query)
    row = f"({_PLACEHOLDER.sub('?', match['values'])})"
    # Without OR FAIL, SQLite would copy each page before the statement changes it.
    into = f"INSERT OR FAIL INTO {match['table']} ({match['columns']})"
    return f"{into} VALUES {', '.join([row] * count)}", tuple(_PLACEHOLDER.findall(match["values"]))
