"""Trees of many jobs: limited in size, and read with few queries; on both engines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.core.values.redact import Redactor
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.model import MIB
from ductile.operations import job_tree
from ductile.operations.job_tree import LARGEST_GRAPH
from ductile.operations.why import MOST_CHILDREN, explain_job
from ductile.store.engines.api import Ledger, Tx
from tests.engine.site import Site
from tests.store.conftest import execute

MANY = LARGEST_GRAPH + 500
LAST = f"c{MANY}"
COLUMNS = "id, plugin, command, status, submitted_by, created_at, parent_job_id, scope_id"
NOW = datetime(2026, 2, 8, 11, tzinfo=UTC)
AT = "'2026-02-08T10:00:00.000000Z'"


def job(ledger: Ledger, id: str, parent: str = "NULL", scope: str = "NULL") -> None:
    values = f"'{id}', 'echo', 'poll', 'succeeded', 'api', {AT}, {parent}, {scope}"
    execute(ledger, f"INSERT INTO job_queue ({COLUMNS}) VALUES ({values})")


def many(ledger: Ledger, parent: str = "NULL", scope: str = "NULL") -> None:
    """Insert jobs c1, c2, ..., each with a log row that has its response."""
    numbers = f"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY})"
    numbers += " SELECT i FROM n) AS numbers"
    execute(
        ledger,
        f"INSERT INTO job_queue ({COLUMNS}) SELECT 'c' || i, 'echo', 'poll', 'succeeded', "
        f"'api', {AT}, {parent}, {scope} FROM {numbers} ORDER BY i",
    )
    execute(
        ledger,
        "INSERT INTO job_log (id, job_id, plugin, command, status, result, attempt, submitted_by, "
        "created_at, completed_at) SELECT 'c' || i || '-1', 'c' || i, 'echo', 'poll', "
        "'succeeded', '{\"status\":\"ok\",\"result\":' || i || '}', 1, 'api', "
        f"{AT}, {AT} FROM {numbers}",
    )


def scope(ledger: Ledger, id: str, parent: str = "NULL", split: str = "") -> None:
    values = f"'{id}', {parent}, 'p', '{split}', '', 0, {AT}"
    columns = "id, parent_id, pipeline, split, branch, hops, created_at"
    execute(ledger, f"INSERT INTO scopes ({columns}) VALUES ({values})")


@pytest.fixture
def wide(ledger: Ledger) -> Ledger:
    """A root with more children than a tree may have; the last one has a child."""
    job(ledger, "root")
    many(ledger, parent="'root'")
    job(ledger, "grandchild", parent=f"'{LAST}'")
    return ledger


def family(ledger: Ledger, id: str) -> list[str]:
    return [row["id"] for row in ledger.read(lambda tx: job_tree.family(tx, id))]


def test_large_tree_contains_the_job_its_ancestors_and_children(wide: Ledger) -> None:
    found = family(wide, LAST)
    assert {"root", LAST, "grandchild"} <= set(found)
    assert len(found) <= LARGEST_GRAPH


def test_tree_of_a_late_job_of_a_large_graph(wide: Ledger) -> None:
    root = job_tree.tree(wide, LAST, Redactor())
    [late] = [child for child in root["children"] if child["job_id"] == LAST]
    assert [child["job_id"] for child in late["children"]] == ["grandchild"]


@pytest.fixture
def compiled(tmp_path: Path) -> CompiledConfig:
    """A configuration without plugins and pipelines."""
    folder = tmp_path / "site"
    folder.mkdir()
    site = Site(folder)
    return build(site.load(), boot_marker="m:b", environ=site.environ)


def test_why_lists_the_children_of_a_late_job_of_a_large_graph(
    wide: Ledger, compiled: CompiledConfig
) -> None:
    lines = explain_job(wide, LAST, compiled, {}, now=NOW)["why"]
    assert "It led to job grandchild of echo (succeeded)." in lines


def test_why_limits_the_listed_children(wide: Ledger, compiled: CompiledConfig) -> None:
    lines = explain_job(wide, "root", compiled, {}, now=NOW)["why"]
    assert sum("It led to job" in line for line in lines) == MOST_CHILDREN
    assert lines[-1] == "It led to further jobs."


def test_why_lists_the_first_and_last_of_many_transitions(
    ledger: Ledger, compiled: CompiledConfig
) -> None:
    job(ledger, "often")
    execute(
        ledger,
        "INSERT INTO job_transitions (job_id, from_status, to_status, attempt, reason, created_at)"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)"
        f" SELECT 'often', 'running', 'queued', i, 'try ' || i, {AT} FROM n ORDER BY i",
    )
    lines = explain_job(ledger, "often", compiled, {}, now=NOW)["why"][1:]
    assert [line.rpartition(" ")[2] for line in lines[:10]] == [str(n) for n in range(1, 11)]
    assert lines[10] == "... and 80 further changes of state, until"
    assert [line.rpartition(" ")[2] for line in lines[11:]] == [str(n) for n in range(91, 101)]


def test_why_reads_the_last_thousand_transitions(ledger: Ledger, compiled: CompiledConfig) -> None:
    job(ledger, "often")
    execute(
        ledger,
        "INSERT INTO job_transitions (job_id, from_status, to_status, attempt, reason, created_at)"
        " WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1500)"
        f" SELECT 'often', 'running', 'queued', i, 'try ' || i, {AT} FROM n ORDER BY i",
    )
    lines = explain_job(ledger, "often", compiled, {}, now=NOW)["why"][1:]
    assert lines[0] == "... 500 changes of state, until"
    assert lines[1].endswith("try 501")
    assert lines[11] == "... and 980 further changes of state, until"
    assert lines[-1].endswith("try 1500")


def test_jobs_that_began_an_instance_are_one_tree(ledger: Ledger) -> None:
    scope(ledger, "whole")
    scope(ledger, "inner", parent="'whole'", split="fan")
    job(ledger, "one", scope="'inner'")
    job(ledger, "two", scope="'inner'")
    job(ledger, "below", parent="'two'")
    job(ledger, "stranger")
    assert family(ledger, "one") == family(ledger, "below") == ["one", "two", "below"]


class Counting:
    """A transaction that counts its queries and the size of their results."""

    def __init__(self, tx: Tx) -> None:
        self._tx, self.asked = tx, 0

    def __getattr__(self, name: str) -> Any:
        self.asked += name in ("one", "all", "dicts")
        return getattr(self._tx, name)


def instance(ledger: Ledger) -> tuple[Mapping[str, Any], int]:
    def work(tx: Tx) -> tuple[Mapping[str, Any], int]:
        counting = Counting(tx)
        return job_tree.instance(cast(Tx, counting), "whole"), counting.asked

    return ledger.read(work)


def test_instance_takes_a_constant_number_of_queries(
    ledger: Ledger,
) -> None:
    scope(ledger, "whole")
    few = instance(ledger)[1]
    many(ledger, scope="'whole'")
    found, asked = instance(ledger)
    assert asked == few
    assert len(found["jobs"]) == LARGEST_GRAPH
    assert found["jobs_left_out"] is True
    assert found["result"] == {"status": "ok", "result": MANY}


def read_tree(ledger: Ledger, id: str) -> tuple[list[dict[str, Any]], int]:
    def work(tx: Tx) -> tuple[list[dict[str, Any]], int]:
        counting = Counting(tx)
        return job_tree._read_nodes(cast(Tx, counting), id, Redactor()), counting.asked

    return ledger.read(work)


def test_tree_takes_a_constant_number_of_queries(wide: Ledger) -> None:
    job(wide, "alone")
    nodes, asked = read_tree(wide, "root")
    assert asked == read_tree(wide, "alone")[1]
    assert len(nodes) == LARGEST_GRAPH
    answers = {node["job_id"]: node["result"] for node in nodes if node["result"]}
    assert answers["c7"] == {"status": "ok", "result": 7}
    assert len(answers) == LARGEST_GRAPH - 1


def test_each_job_of_a_tree_has_its_attempts_and_last_response(
    ledger: Ledger,
) -> None:
    job(ledger, "a")
    job(ledger, "a-1", parent="'a'")
    for id, attempt, result in (("a", 1, 1), ("a", 2, 2), ("a-1", 1, 3), ("a-1", 10, 4)):
        execute(
            ledger,
            "INSERT INTO job_log (id, plugin, command, status, result, attempt, submitted_by, "
            f"created_at, completed_at) VALUES ('{id}-{attempt}', 'echo', 'poll', 'failed', "
            f"'{{\"result\":{result}}}', {attempt}, 'api', {AT}, {AT})",
        )
    nodes, _ = read_tree(ledger, "a")
    found = {n["job_id"]: ([a["attempt"] for a in n["attempts"]], n["result"]) for n in nodes}
    assert found == {"a": ([1, 2], {"result": 2}), "a-1": ([1, 10], {"result": 4})}


def test_result_of_an_instance_is_not_that_of_a_switch(ledger: Ledger) -> None:
    scope(ledger, "whole")
    many(ledger, scope="'whole'")
    execute(ledger, f"UPDATE job_queue SET plugin = 'core.switch' WHERE id = '{LAST}'")
    assert instance(ledger)[0]["result"]["result"] == MANY - 1


def ended(ledger: Ledger, id: str, size: int, error: str = "", attempt: int = 1) -> None:
    """Insert an attempt with a response of about this size."""
    result = '{"status":"ok","result":"' + "x" * size + '"}'
    execute(
        ledger,
        "INSERT INTO job_log (id, plugin, command, status, result, attempt, submitted_by, "
        f"created_at, completed_at, last_error) VALUES ('{id}-{attempt}', 'echo', 'poll', "
        f"'succeeded', '{result}', {attempt}, 'api', {AT}, {AT}, '{error}')",
    )


def by_id(ledger: Ledger, id: str) -> dict[str, dict[str, Any]]:
    return {node["job_id"]: node for node in job_tree.graph(ledger, id, Redactor())}


def test_results_beyond_the_size_limit_of_a_tree_are_left_out(ledger: Ledger) -> None:
    job(ledger, "root")
    ended(ledger, "root", 10)
    for number in range(6):
        job(ledger, f"c{number}", parent="'root'")
        ended(ledger, f"c{number}", MIB)
    job(ledger, "small", parent="'root'")
    ended(ledger, "small", 10)
    nodes = by_id(ledger, "c5")
    lacking = [id for id, node in nodes.items() if node["result"] is None]
    assert lacking == ["c3", "c4"]
    assert all(nodes[id]["left_out"] == ["result"] for id in lacking)
    assert all("left_out" not in nodes[id] for id in nodes.keys() - lacking)
    assert len(orjson.dumps(list(nodes.values()))) <= PAGE_BYTES + 64 * 1024
    assert by_id(ledger, "c3")["c3"]["result"]["status"] == "ok"


def test_requested_job_is_complete_whatever_its_size(ledger: Ledger) -> None:
    job(ledger, "root")
    ended(ledger, "root", 10)
    job(ledger, "large", parent="'root'")
    ended(ledger, "large", 2 * PAGE_BYTES)
    nodes = by_id(ledger, "large")
    assert len(nodes["large"]["result"]["result"]) == 2 * PAGE_BYTES
    assert "left_out" not in nodes["root"]
    assert by_id(ledger, "root")["large"]["left_out"] == ["result"]


def test_errors_of_many_attempts_are_limited(ledger: Ledger) -> None:
    job(ledger, "root")
    ended(ledger, "root", 10)
    for number in range(3):
        job(ledger, f"c{number}", parent="'root'")
        for attempt in range(1, 21):
            ended(ledger, f"c{number}", 10, error="x" * 100_000, attempt=attempt)
    nodes = by_id(ledger, "root")
    assert [len(nodes[f"c{number}"]["attempts"]) for number in range(3)] == [20, 20, 0]
    assert nodes["c2"]["left_out"] == ["attempts"]


def test_baggage_beyond_the_size_limit_of_a_tree_is_left_out(ledger: Ledger) -> None:
    for number in range(8):
        id = f"c{number}"
        job(ledger, id, parent=f"'c{number - 1}'" if number else "NULL")
        text = f'{{"bag{number}":"{"x" * (MIB - 20)}"}}'
        execute(
            ledger,
            "INSERT INTO event_context (id, accumulated_json, created_at)"
            f" VALUES ('x{number}', '{text}', {AT});"
            f"UPDATE job_queue SET event_context_id = 'x{number}' WHERE id = '{id}'",
        )
    nodes = by_id(ledger, "c7")
    kept = [number for number in range(8) if nodes[f"c{number}"]["baggage_added"]]
    assert kept == [0, 1, 2, 3, 7]
    assert nodes["c5"]["left_out"] == ["baggage_added"]
    assert "left_out" not in nodes["c7"]


def test_truncated_tree_is_marked_at_its_first_job(wide: Ledger) -> None:
    job(wide, "alone")
    assert job_tree.graph(wide, LAST, Redactor())[0]["more"] is True
    assert job_tree.tree(wide, LAST, Redactor())["more"] is True
    assert "more" not in job_tree.tree(wide, "alone", Redactor())
