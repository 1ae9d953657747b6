"""SIGKILL at every failpoint: no accepted job is lost, runs too often or leaves a process."""

from __future__ import annotations

import contextlib
import random
import re
import signal
import threading
import time
from functools import cache
from pathlib import Path

import apsw
import pytest

import ductile
from ductile.store.jobs.requeue import UNSTARTED
from tests.crash.gateway_process import Producer, record_run
from tests.engine.site import OK, PYTHON, Site
from tests.waiting import until

ELSEWHERE = (
    *("alert.", "relay.", "delivery.", "reminder.", "replace.", "restore."),
    *("wait_ended", "waits_ended"),
)
"""Not in the life of a job; tested in other files."""


@cache
def failpoints() -> list[str]:
    """The name of every failpoint in the sources."""
    sources = Path(ductile.__file__).parent.rglob("*.py")
    texts = [path.read_text(encoding="utf-8") for path in sources]
    names = {name for text in texts for name in re.findall(r'\bfailpoint\(\s*"([^"]+)"', text)}
    return sorted(name for name in names if not name.startswith(ELSEWHERE))


AT_START = {"locked", "recovered"}
"""Reached once per start, before the gateway serves requests."""
SELDOM = {"claimed"}
"""Reached only by an idle worker: a busy one claims as it settles."""


def runs(site: Site, id: str) -> int:
    path = site.folder / "ran" / id
    return path.read_text().count("x") if path.exists() else 0


def put_before_start(site: Site, count: int, plugin: str = "work") -> list[str]:
    """Jobs that are queued when the gateway starts."""
    with site.opened() as running:
        return [running.put(plugin) for _ in range(count)]


def assert_all_end(site: Site, ids: list[str]) -> None:
    """A gateway without a failpoint runs each job to its end, within its attempts."""
    with site.running() as running:
        for id in ids:
            job = running.ended(id)
            assert job["status"] == "succeeded", job
            assert 1 <= runs(site, id) <= job["attempt"] <= 4, (runs(site, id), job)
            assert len({attempt["id"] for attempt in job["attempts"]}) == len(job["attempts"])
        # Also the jobs that were committed, but whose callers got no answer.
        ledger = running.gateway.ledger
        until(lambda: ledger.read(lambda tx: tx.all("pending_jobs", limit=1)) == [])


def assert_no_process_left(site: Site) -> None:
    until(lambda: site.alive() == [])


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def run_until_killed(start_gateway, site: Site, failpoint: str) -> list[str]:
    """Run a gateway until its failpoint kills it; returns the jobs that it accepted."""
    gateway = start_gateway(failpoint)
    producer = Producer(gateway)
    assert gateway.wait() == -9
    accepted = producer.stop()
    assert_no_process_left(site)
    return accepted


def test_the_failpoints_of_a_job_are_found() -> None:
    assert set(failpoints()) >= {"commit.before", "commit.after", "claimed", "ran", "settled"}


@pytest.mark.parametrize("name", failpoints())
def test_kill_at_each_failpoint_loses_no_job(site: Site, start_gateway, name: str) -> None:
    ids = put_before_start(site, 10)
    if name in AT_START:
        # With orphans to recover, so that the start has something to break.
        first = start_gateway().ready()
        ids += [first.put() for _ in range(5)]
        first.kill()
        run_until_killed(start_gateway, site, f"{name}:1")
    else:
        ids += run_until_killed(start_gateway, site, f"{name}:{1 if name in SELDOM else 6}")
    assert_all_end(site, ids)


def test_repeated_kills_leave_no_job_unfinished(site: Site, start_gateway) -> None:
    ids = put_before_start(site, 10)
    for failpoint in (
        "claimed:2",
        "recovered:1",
        "commit.after:12",
        "settled:3",
        "locked:1",
        "ran:2",
    ):
        ids += run_until_killed(start_gateway, site, failpoint)
    site.settings["plugins"]["work"]["retry"]["max_attempts"] = 10
    with site.running() as running:
        for id in ids:
            job = running.ended(id)
            assert job["status"] in ("succeeded", "dead")
            assert runs(site, id) <= 4


def test_a_job_that_always_kills_its_gateway_becomes_dead(site: Site, start_gateway) -> None:
    """It runs `max_attempts` times and no more."""
    site.plugin(
        "killer",
        f"echo x >> {site.folder}/ran/killer\n"
        # The parent of its slot's parent is the gateway.
        "slot=$PPID\nrunner=$(cut -d' ' -f4 /proc/$slot/stat)\n"
        "kill -9 $(cut -d' ' -f4 /proc/$runner/stat)\nsleep 60",
        retry={"max_attempts": 3, "backoff_base": "10ms"},
    )
    [id] = put_before_start(site, 1, "killer")
    for _ in range(3):
        assert start_gateway().wait() == -9
        assert_no_process_left(site)
    with site.running() as running:
        job = running.ended(id)
    assert (job["status"], job["attempt"]) == ("dead", 3)
    assert runs(site, "killer") == 3


@pytest.mark.parametrize("moment", [0.05, 0.3])
def test_kill_under_load_loses_no_job(site: Site, start_gateway, moment: float) -> None:
    ids = put_before_start(site, 30)
    gateway = start_gateway().ready()
    producer = Producer(gateway)
    timer = threading.Timer(moment, gateway.process.kill)
    timer.start()
    assert gateway.wait() == -9
    ids += producer.stop()
    timer.join()
    assert_no_process_left(site)
    assert_all_end(site, ids)


def test_a_claim_that_no_slot_received_goes_back_uncounted(site: Site, start_gateway) -> None:
    [id] = put_before_start(site, 1)
    assert start_gateway("claimed:1").wait() == -9
    assert_no_process_left(site)
    with site.running() as running:
        job = running.ended(id)
    assert (job["status"], job["attempt"], runs(site, id)) == ("succeeded", 1, 1)
    assert [one["reason"] for one in job["transitions"]] == [
        None,
        "claimed, but never started",
        None,
        None,
    ]


def test_a_second_crash_before_the_start_counts_the_attempt(site: Site, start_gateway) -> None:
    """It may be the cause of the crashes, which would never end if no attempt counted."""
    [id] = put_before_start(site, 1)
    for _ in range(2):
        assert start_gateway("claimed:1").wait() == -9
        assert_no_process_left(site)
    with site.running() as running:
        job = running.ended(id)
    assert (job["status"], job["attempt"], runs(site, id)) == ("succeeded", 2, 1)


def running_jobs(site: Site) -> int:
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(connection):
        return connection.execute(
            "SELECT count(*) FROM job_queue WHERE status = 'running'"
        ).fetchone()[0]


def test_buffered_jobs_of_a_killed_gateway_are_not_counted(site: Site, start_gateway) -> None:
    gate, workers, max_attempts = site.gate(), 8, 4
    site.settings["service"]["max_workers"] = workers
    site.plugin(
        "work",
        record_run(site) + gate.script() + OK,
        retry={"max_attempts": max_attempts, "backoff_base": "20ms"},
    )
    ids = put_before_start(site, 100)
    gateway = start_gateway().ready()

    def all_busy() -> list[str]:
        return [gate.arrived() for _ in range(workers)]

    busy = all_busy()
    while running_jobs(site) <= workers:
        # The gateway prefetches once it finds that some jobs have ended together.
        gateway.signal(signal.SIGSTOP)
        gate.open(workers)
        until(lambda pids=busy: not any(Path("/proc", pid).exists() for pid in pids))
        gateway.signal(signal.SIGCONT)
        busy = all_busy()
    gateway.kill()
    assert_no_process_left(site)
    gate.open(len(ids))
    with site.running() as running:
        jobs = [running.ended(id) for id in ids]
    assert {job["status"] for job in jobs} == {"succeeded"}
    # An attempt that a busy gateway gives back unstarted raises the limit too.
    counted = [job["attempt"] - (job["max_attempts"] - max_attempts) for job in jobs]
    assert counted == [runs(site, id) for id in ids]
    reasons = {one["reason"] for job in jobs for one in job["transitions"]}
    assert UNSTARTED in reasons


@pytest.mark.parametrize("start", ["cold", "warm"])
def test_no_process_of_a_killed_gateway_survives(site: Site, start_gateway, start: str) -> None:
    gate = site.gate()
    script = (
        "trap '' TERM HUP INT\nsetsid sh -c 'trap \"\" TERM HUP; sleep 600' &\n" + gate.script()
    )
    if start == "warm":
        script = PYTHON + f"os.execv('/bin/sh', ['sh', '-c', {script!r}])\n"
    site.plugin("stubborn", script, manifest=f"runtime: {{python: {start}}}")
    gateway = start_gateway().ready()
    gateway.put("stubborn")
    gate.arrived()
    if start == "warm":
        # The first job is started cold; the zygote is there for the next.
        until(lambda: any(b"program.py" in command_line(pid) for pid in site.alive()))
        gateway.put("stubborn")
        gate.arrived()
    assert site.alive()
    gateway.kill()
    assert_no_process_left(site)


def test_a_new_gateway_starts_as_soon_as_the_old_one_is_dead(site: Site, start_gateway) -> None:
    gate = site.gate()
    site.plugin("stubborn", "trap '' TERM\n" + gate.script())
    gateway = start_gateway().ready()
    id = gateway.put("stubborn")
    gate.arrived()
    gateway.kill()
    with site.opened() as running:
        job = running.job(id)
        assert (job["status"], job["attempt"]) == ("queued", 2)
        assert site.alive() == []


def test_kill_does_not_fire_an_occurrence_twice(site: Site, start_gateway) -> None:
    site.plugin("tick", OK, schedules=[{"every": "20ms", "if_running": "queue"}])
    for failpoint in ("commit.before:12", "commit.after:12", "commit.after:15"):
        gateway = start_gateway(failpoint)
        assert gateway.wait() == -9
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    fired = connection.execute(
        "SELECT slot, count(*) FROM job_queue WHERE schedule_id IS NOT NULL GROUP BY slot"
    ).fetchall()
    slots = dict(
        connection.execute("SELECT slot, job_id FROM schedule_slots WHERE job_id IS NOT NULL")
    )
    jobs = dict(connection.execute("SELECT slot, id FROM job_queue WHERE schedule_id IS NOT NULL"))
    connection.close()
    assert fired
    assert {count for _, count in fired} == {1}
    assert jobs == slots


@pytest.mark.torture
@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 21, 34])
@pytest.mark.parametrize("name", [n for n in failpoints() if n not in AT_START | SELDOM])
def test_torture_at_every_failpoint_and_count(
    site: Site, start_gateway, name: str, count: int
) -> None:
    ids = put_before_start(site, 20)
    ids += run_until_killed(start_gateway, site, f"{name}:{count}")
    assert_all_end(site, ids)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(25))
def test_torture_at_random_moments(site: Site, start_gateway, seed: int) -> None:
    chance = random.Random(seed)
    site.settings["plugins"]["work"]["retry"]["max_attempts"] = 50
    ids = put_before_start(site, 50)
    for _ in range(5):
        gateway = start_gateway().ready()
        producer = Producer(gateway, limit=100)
        time.sleep(chance.uniform(0.0, 0.5))
        gateway.kill()
        ids += producer.stop()
        assert_no_process_left(site)
    with site.running() as running:
        for id in ids:
            job = running.ended(id)
            assert job["status"] == "succeeded"
            assert 1 <= runs(site, id) <= job["attempt"]
