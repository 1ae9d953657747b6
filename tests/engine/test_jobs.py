"""Jobs from enqueue to settlement, with real processes."""

from __future__ import annotations

import json
import os
import signal

import apsw
import pytest

from ductile.engine.scheduling import retries
from tests.engine.site import OK, PYTHON, Site
from tests.waiting import process_state, until

ERROR = """echo '{"status": "error", "error": "no luck"}'\n"""


def test_result_stderr_and_logs_are_recorded(site: Site) -> None:
    site.plugin(
        "echo",
        "echo careful >&2\n"
        """echo '{"status": "ok", "result": {"n": 1},'\n"""
        """echo '"logs": [{"level": "info", "message": "hi"}]}'""",
    )
    with site.running() as running:
        job = running.run("echo")
    assert (job["status"], job["result"]["result"]) == ("succeeded", {"n": 1})
    [attempt] = job["attempts"]
    assert attempt["id"] == f"{job['id']}-1"
    assert attempt["stderr"] == "careful\n"
    assert attempt["logs"] == [{"level": "info", "message": "hi"}]
    assert attempt["started_at"] <= attempt["completed_at"]
    assert attempt["duration_ms"] > 0


def test_plugin_receives_job_config_state_and_payload(site: Site) -> None:
    site.plugin(
        "echo",
        PYTHON + "r = json.load(sys.stdin)\n"
        "print(json.dumps({'status': 'ok', 'result': r, 'state_updates': {'seen': 7}}))",
        config={"url": "https://example.org"},
    )
    with site.running() as running:
        first = running.run("echo", payload={"n": 1})["result"]["result"]
        second = running.run("echo")["result"]["result"]
    assert (first["command"], first["payload"]) == ("poll", {"n": 1})
    assert first["config"] == {"url": "https://example.org"}
    assert (first["state"], second["state"]) == ({}, {"seen": 7})
    assert first["protocol"] == 2


def test_failed_attempt_waits_for_its_backoff_with_the_reason(site: Site) -> None:
    site.plugin("bad", ERROR)
    with site.running() as running:
        job = running.tried(running.put("bad"))
    assert (job["status"], job["attempt"], job["last_error"]) == ("queued", 2, "no luck")
    assert job["next_retry_at"] > job["created_at"]
    assert job["attempts"][0]["status"] == "failed"


def test_job_without_a_process_is_requeued_without_counting(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("good", OK)
    monkeypatch.setattr("ductile.core.jobs.judge.SHORTAGE_SECONDS", 0.05)
    with site.running() as running:
        pool = running.gateway.pool
        with monkeypatch.context() as patched:
            patched.setattr("ductile.__version__", "0.0.0")
            slots = [pool.slot(n).pid for n in range(2)]
            os.kill(pool.pid, signal.SIGKILL)
            until(lambda: all(process_state(pid) in ("", "Z") for pid in slots))
            id = running.put("good")
            waiting = running.tried(id)
        job = running.ended(id)
    assert waiting["status"] == "queued"
    assert "cannot be started again" in waiting["last_error"]
    assert job["status"] == "succeeded"
    assert job["max_attempts"] - job["attempt"] == 4 - 1


def test_job_is_dead_after_its_last_attempt(site: Site) -> None:
    site.plugin("bad", ERROR, retry={"max_attempts": 3, "backoff_base": "10ms"})
    with site.running() as running:
        job = running.run("bad")
    assert (job["status"], job["attempt"], len(job["attempts"])) == ("dead", 3, 3)
    assert [attempt["status"] for attempt in job["attempts"]] == ["failed", "failed", "dead"]


def test_later_attempt_may_succeed(site: Site) -> None:
    marker = site.folder / "tried"
    site.plugin(
        "flaky",
        f"if [ -e {marker} ]; then {OK.strip()}; else touch {marker}; exit 1; fi",
        retry={"backoff_base": "10ms"},
    )
    with site.running() as running:
        job = running.run("flaky")
    assert (job["status"], job["attempt"]) == ("succeeded", 2)
    assert "exit code 1" in job["attempts"][0]["last_error"]


@pytest.mark.parametrize(
    "script",
    ["exit 78", OK + "exit 78", """echo '{"status": "error", "retry": false, "error": "x"}'"""],
)
def test_non_retryable_job_fails_at_once(site: Site, script: str) -> None:
    site.plugin("bad", script)
    with site.running() as running:
        job = running.run("bad")
    assert (job["status"], job["attempt"], len(job["attempts"])) == ("failed", 1, 1)


def test_attempt_beyond_its_deadline_is_timed_out(site: Site) -> None:
    site.plugin("slow", "exec sleep 600", timeouts={"poll": "200ms"}, retry={"max_attempts": 2})
    with site.running() as running:
        id = running.put("slow")
        job = running.tried(id)
    assert job["last_error"].startswith("timed out after 0.2 s")
    edges = [(t["from_status"], t["to_status"]) for t in job["transitions"]]
    assert edges == [("queued", "running"), ("running", "timed_out"), ("timed_out", "queued")]


def test_timeout_of_the_last_attempt_is_dead(site: Site) -> None:
    site.plugin("slow", "exec sleep 600", timeouts={"poll": "100ms"}, retry={"max_attempts": 1})
    with site.running() as running:
        job = running.run("slow")
    assert job["status"] == "dead"
    assert ("timed_out", "dead") in [(t["from_status"], t["to_status"]) for t in job["transitions"]]


def test_missing_interpreter_is_named_in_the_error(site: Site) -> None:
    site.plugin("bad", "#!/nosuch/interpreter\n")
    with site.running() as running:
        job = running.run("bad")
    assert job["status"] == "failed"
    assert "/nosuch/interpreter" in job["last_error"]


def test_missing_entrypoint_is_named_in_the_error(site: Site) -> None:
    directory = site.plugin("gone", OK)
    with site.running() as running:
        (directory / "run").unlink()
        job = running.run("gone")
    assert (job["status"], "run" in job["last_error"]) == ("failed", True)


def test_job_row_with_an_unknown_command_fails(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        id = running.put("echo", "nosuch")
        job = running.ended(id)
    assert job["status"] == "failed"
    assert "nosuch" in job["last_error"]


# Order and parallelism


def count_overlaps(path) -> int:
    """The maximum number of concurrent runs, from lines of `+` and `-`."""
    most = now = 0
    for line in path.read_text().split():
        now += 1 if line == "+" else -1
        most = max(most, now)
    return most


def make_recorder(path, gate=None) -> str:
    wait = gate.script() if gate else ""
    return f"echo + >> {path}\n{wait}echo - >> {path}\n{OK}"


def test_jobs_run_in_the_order_of_enqueue(site: Site) -> None:
    site.settings["service"]["max_workers"] = 1
    path = site.folder / "order"
    site.plugin("echo", f"""sed 's/.*"n":\\([0-9]*\\).*/\\1/' >> {path}\n{OK}""")
    with site.opened() as running:
        ids = [running.put("echo", payload={"n": n}) for n in range(20)]
        running.gateway.start()
        for id in ids:
            running.ended(id)
    assert path.read_text().split() == [str(n) for n in range(20)]


def test_two_workers_run_two_jobs_concurrently(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        ids = [running.put("echo") for _ in range(2)]
        assert len({gate.arrived(), gate.arrived()}) == 2
        gate.open(2)
        assert {running.ended(id)["status"] for id in ids} == {"succeeded"}


@pytest.mark.parametrize(
    ("settings", "manifest"),
    [({"parallelism": 1}, ""), ({}, "concurrency_safe: false\n")],
    ids=["parallelism", "concurrency_safe"],
)
def test_jobs_of_a_serial_plugin_never_overlap(site: Site, settings, manifest) -> None:
    site.settings["service"]["max_workers"] = 4
    path = site.folder / "runs"
    site.plugin("solo", make_recorder(path), manifest=manifest, **settings)
    with site.running() as running:
        ids = [running.put("solo") for _ in range(30)]
        assert {running.ended(id)["status"] for id in ids} == {"succeeded"}
    assert count_overlaps(path) == 1


def test_parallelism_limits_one_plugin_only(site: Site) -> None:
    site.settings["service"]["max_workers"] = 4
    gate = site.gate()
    site.plugin("two", gate.script() + OK, parallelism=2)
    site.plugin("other", OK)
    with site.running() as running:
        ids = [running.put("two") for _ in range(4)]
        gate.arrived(), gate.arrived()
        assert running.run("other")["status"] == "succeeded"
        assert gate.is_empty()
        gate.open(4)
        gate.arrived(), gate.arrived()
        assert {running.ended(id)["status"] for id in ids} == {"succeeded"}


def test_configured_parallelism_overrides_the_manifest(site: Site) -> None:
    gate = site.gate()
    site.plugin("two", gate.script() + OK, manifest="concurrency_safe: false\n", parallelism=2)
    with site.running() as running:
        ids = [running.put("two") for _ in range(2)]
        gate.arrived(), gate.arrived()
        gate.open(2)
        assert {running.ended(id)["status"] for id in ids} == {"succeeded"}


def test_jobs_with_the_same_dedupe_key_never_overlap(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        first, second = (running.put("echo", dedupe_key="k") for _ in range(2))
        gate.arrived()
        behind = running.put("echo")
        gate.arrived()
        assert running.job(second)["status"] == "queued"
        gate.open(3)
        gate.arrived()
        assert {running.ended(id)["status"] for id in (first, second, behind)} == {"succeeded"}


# Waking up


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling is off unless a test ticks the loop."""
    monkeypatch.setattr(retries, "POLL_SECONDS", 36_000.0)


@pytest.mark.usefixtures("no_poll")
def test_idle_gateway_starts_a_job_at_once(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        for _ in range(3):
            id = running.put("echo")
            gate.arrived()
            gate.open()
            running.ended(id)


def test_ledger_is_polled_every_second() -> None:
    assert retries.POLL_SECONDS == 1.0


INSERT = (
    "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
    " submitted_by, created_at) VALUES (?, ?, 'poll', ?, 'queued', 1, 4, 'cli',"
    " '2026-02-08 10:00:00')"
)


class ForeignScript:
    """Another process that writes to the ledger, as docs/reference/database.md describes."""

    def __init__(self, site: Site) -> None:
        self._connection = apsw.Connection(str(site.state / "state.db"))
        self._connection.set_busy_timeout(5000)
        self._connection.pragma("wal_autocheckpoint", 0)

    def insert(self, id: str, plugin: str, payload: str | None = "{}") -> None:
        self._connection.execute(INSERT, (id, plugin, payload))

    def execute(self, sql: str) -> None:
        self._connection.execute(sql)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def script(site: Site):
    """Call this after the gateway has created its ledger."""
    made = []

    def make() -> ForeignScript:
        made.append(ForeignScript(site))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.usefixtures("no_poll")
def test_one_poll_finds_all_rows_of_another_process(site: Site, script) -> None:
    """Four workers are idle, so the four rows run at once."""
    site.settings["service"]["max_workers"] = 4
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as running:
        hand = script()
        for n in range(4):
            hand.insert(f"script-{n}", "echo")
        running.gateway.loops["retries"].wake()
        for _ in range(4):
            gate.arrived()
        gate.open(4)
        assert {running.ended(f"script-{n}")["status"] for n in range(4)} == {"succeeded"}


# Malformed rows


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("payload", "'not json'"),
        ("payload", '\'{"a": "\\ud800"}\''),
        ("created_at", "'yesterday'"),
        ("submitted_by", "'somebody'"),
        ("payload", "'5'"),
        ("payload", "NULL"),
        ("attempt", "99"),
    ],
)
def test_malformed_job_row_fails_only_itself(site: Site, script, column: str, value: str) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
        hand = script()
        hand.execute("BEGIN IMMEDIATE")
        hand.insert("odd", "echo")
        hand.execute(f"UPDATE job_queue SET {column} = {value} WHERE id = 'odd'")
        hand.execute("COMMIT")
        # More than there are workers: each must survive the row.
        for _ in range(4):
            id = running.put("echo")
            until(lambda id=id: running.job(id)["status"] == "succeeded")
        until(lambda: running.job("odd")["status"] not in ("queued", "running"))


def test_job_row_of_a_disabled_plugin_ends_with_the_reason(site: Site, script) -> None:
    site.plugin("echo", OK)
    site.plugin("off", OK, enabled=False)
    with site.running() as running:
        script().insert("script-1", "off")
        job = running.ended("script-1")
    assert (job["status"], job["last_error"]) == ("dead", "plugin disabled")


# State and facts


def test_facts_are_stored_and_mirrored_by_the_manifest(site: Site) -> None:
    site.plugin(
        "fact",
        PYTHON + "r = json.load(sys.stdin)\n"
        "u = {'n': r['payload']['n']}\n"
        "print(json.dumps({'status': 'ok', 'result': r['state'], 'state_updates': u}))",
        manifest="fact_outputs:\n- when: {command: poll}\n  from: state_updates\n"
        "  fact_type: fact.snapshot\n  compatibility_view: mirror_object\n",
    )
    with site.running() as running:
        for n in (1, 2, 3):
            running.run("fact", payload={"n": n})
        facts = running.gateway.ledger.read(
            lambda tx: tx.dicts("facts_of", plugin="fact", before=99, limit=9)
        )
    assert [(f["seq"], json.loads(f["fact_json"])) for f in facts] == [
        (3, {"n": 3}),
        (2, {"n": 2}),
        (1, {"n": 1}),
    ]
