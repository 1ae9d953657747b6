"""kill -9 at every named place: nothing accepted is lost, nothing runs too often or on."""

from __future__ import annotations

import ast
import contextlib
import random
import signal
import threading
import time
from pathlib import Path

import apsw
import pytest

import ductile
from ductile.store.jobs.requeue import UNSTARTED
from tests.crash.life import Producer, trace
from tests.engine.site import OK, Site
from tests.waiting import until

ELSEWHERE = ("relay.", "delivery.", "reminder.", "restore.")
"""Not on a job's way: each kind has its own tests beside this file."""


def failpoints() -> list[str]:
    """Every name that the sources use."""
    names = set()
    for path in Path(ductile.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id == "failpoint"
                and node.args
                and isinstance(node.args[0], ast.Constant)
            ):
                names.add(str(node.args[0].value))
    return sorted(name for name in names if not name.startswith(ELSEWHERE))


AT_START = {"locked", "recovered"}
"""Reached once a life, before anything is served."""
SELDOM = {"claimed"}
"""Reached by an idle worker alone: a busy one claims as it settles."""


def runs(site: Site, id: str) -> int:
    path = site.folder / "ran" / id
    return path.read_text().count("x") if path.exists() else 0


def put_before(site: Site, count: int) -> list[str]:
    """Jobs that wait when the gateway starts."""
    with site.opened() as house:
        return [house.put("work") for _ in range(count)]


def all_end(site: Site, ids: list[str]) -> None:
    """A life without a failpoint brings each to its end, within its attempts."""
    with site.running() as house:
        for id in ids:
            job = house.ended(id)
            assert job["status"] == "succeeded", job
            assert 1 <= runs(site, id) <= job["attempt"] <= 4, (runs(site, id), job)
            assert len({attempt["id"] for attempt in job["attempts"]}) == len(job["attempts"])
        # Also those that were committed, but whose callers never heard of it.
        ledger = house.gateway.ledger
        until(lambda: ledger.read(lambda tx: tx.all("pending_jobs", limit=1)) == [])


def nothing_runs_on(site: Site) -> None:
    until(lambda: site.alive() == [])


def killed_at(live, site: Site, place: str) -> list[str]:
    """Live until the failpoint kills it; what was accepted meanwhile."""
    life = live(place)
    producer = Producer(life)
    assert life.wait() == -9
    accepted = producer.stop()
    nothing_runs_on(site)
    return accepted


def test_there_are_places_to_be_killed_at() -> None:
    assert set(failpoints()) >= {"commit.before", "commit.after", "claimed", "ran", "settled"}


@pytest.mark.parametrize("name", failpoints())
def test_a_gateway_killed_there_loses_nothing(site: Site, live, name: str) -> None:
    ids = put_before(site, 10)
    if name in AT_START:
        # With orphans to recover, so that the start has something to break.
        first = live().ready()
        ids += [first.put() for _ in range(5)]
        first.kill()
        killed_at(live, site, f"{name}:1")
    else:
        ids += killed_at(live, site, f"{name}:{1 if name in SELDOM else 6}")
    all_end(site, ids)


def test_killed_again_and_again_it_still_ends_every_job(site: Site, live) -> None:
    ids = put_before(site, 10)
    for place in ("claimed:2", "recovered:1", "commit.after:12", "settled:3", "locked:1", "ran:2"):
        ids += killed_at(live, site, place)
    site.settings["plugins"]["work"]["retry"]["max_attempts"] = 10
    with site.running() as house:
        for id in ids:
            job = house.ended(id)
            assert job["status"] in ("succeeded", "dead")
            assert runs(site, id) <= 4


def test_a_job_that_kills_its_gateway_every_time_is_dead_in_the_end(site: Site, live) -> None:
    """It runs `max_attempts` times and no more, whatever it does to us."""
    site.plugin(
        "killer",
        f"echo x >> {site.folder}/ran/killer\n"
        # Past its slot and the runner to the gateway itself.
        "slot=$PPID\nrunner=$(cut -d' ' -f4 /proc/$slot/stat)\n"
        "kill -9 $(cut -d' ' -f4 /proc/$runner/stat)\nsleep 60",
        retry={"max_attempts": 3, "backoff_base": "10ms"},
    )
    life = live().ready()
    id = life.put("killer")
    assert life.wait() == -9
    for _ in range(2):
        assert live().wait() == -9
        nothing_runs_on(site)
    with site.running() as house:
        job = house.ended(id)
    assert (job["status"], job["attempt"]) == ("dead", 3)
    assert runs(site, "killer") == 3


@pytest.mark.parametrize("moment", [0.05, 0.3])
def test_killed_at_any_moment_under_load_it_loses_nothing(site: Site, live, moment: float) -> None:
    ids = put_before(site, 30)
    life = live().ready()
    producer = Producer(life)
    timer = threading.Timer(moment, life.process.kill)
    timer.start()
    assert life.wait() == -9
    ids += producer.stop()
    timer.join()
    nothing_runs_on(site)
    all_end(site, ids)


def test_a_claim_that_no_slot_has_heard_of_goes_back_uncounted(site: Site, live) -> None:
    [id] = put_before(site, 1)
    assert live("claimed:1").wait() == -9
    nothing_runs_on(site)
    with site.running() as house:
        job = house.ended(id)
    assert (job["status"], job["attempt"], runs(site, id)) == ("succeeded", 1, 1)
    assert [one["reason"] for one in job["transitions"]] == [
        None,
        "claimed, but never started",
        None,
        None,
    ]


def test_one_before_which_the_gateway_dies_again_counts(site: Site, live) -> None:
    """It may be what the gateway dies of; for ever, if that never counted."""
    [id] = put_before(site, 1)
    for _ in range(2):
        assert live("claimed:1").wait() == -9
        nothing_runs_on(site)
    with site.running() as house:
        job = house.ended(id)
    assert (job["status"], job["attempt"], runs(site, id)) == ("succeeded", 2, 1)


def in_hand(site: Site) -> int:
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    with contextlib.closing(connection):
        return connection.execute(
            "SELECT count(*) FROM job_queue WHERE status = 'running'"
        ).fetchone()[0]


def test_what_was_lined_up_when_the_gateway_died_is_not_counted(site: Site, live) -> None:
    gate, workers = site.gate(), 8
    site.settings["service"]["max_workers"] = workers
    site.plugin(
        "work",
        trace(site) + gate.script() + OK,
        retry={"max_attempts": 4, "backoff_base": "20ms"},
    )
    ids = put_before(site, 100)
    life = live().ready()

    def all_busy() -> list[str]:
        return [gate.arrived() for _ in range(workers)]

    busy = all_busy()
    while in_hand(site) <= workers:
        # It claims ahead once it finds that some have ended together.
        life.signal(signal.SIGSTOP)
        gate.open(workers)
        until(lambda pids=busy: not any(Path("/proc", pid).exists() for pid in pids))
        life.signal(signal.SIGCONT)
        busy = all_busy()
    life.kill()
    nothing_runs_on(site)
    gate.open(len(ids))
    with site.running() as house:
        jobs = [house.ended(id) for id in ids]
    assert {job["status"] for job in jobs} == {"succeeded"}
    assert [job["attempt"] for job in jobs] == [runs(site, id) for id in ids]
    reasons = {one["reason"] for job in jobs for one in job["transitions"]}
    assert UNSTARTED in reasons


def test_processes_of_a_killed_gateway_do_not_run_on(site: Site, live) -> None:
    gate = site.gate()
    site.plugin(
        "stubborn",
        "trap '' TERM HUP INT\nsetsid sh -c 'trap \"\" TERM HUP; sleep 600' &\n" + gate.script(),
    )
    life = live().ready()
    life.put("stubborn")
    gate.arrived()
    assert site.alive()
    life.kill()
    nothing_runs_on(site)


def test_a_new_gateway_starts_as_soon_as_the_old_one_is_dead(site: Site, live) -> None:
    gate = site.gate()
    site.plugin("stubborn", "trap '' TERM\n" + gate.script())
    life = live().ready()
    id = life.put("stubborn")
    gate.arrived()
    life.kill()
    with site.opened() as house:
        job = house.job(id)
        assert (job["status"], job["attempt"]) == ("queued", 2)
        assert site.alive() == []


def test_a_slot_fires_once_though_the_gateway_is_killed_while_it_fires(site: Site, live) -> None:
    site.plugin("tick", OK, schedules=[{"every": "20ms", "if_running": "queue"}])
    for place in ("commit.before:12", "commit.after:12", "commit.after:15"):
        life = live(place)
        assert life.wait() == -9
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
def test_torture_at_every_place_and_count(site: Site, live, name: str, count: int) -> None:
    ids = put_before(site, 20)
    ids += killed_at(live, site, f"{name}:{count}")
    all_end(site, ids)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(25))
def test_torture_at_random_moments(site: Site, live, seed: int) -> None:
    chance = random.Random(seed)
    site.settings["plugins"]["work"]["retry"]["max_attempts"] = 50
    ids = put_before(site, 50)
    for _ in range(5):
        life = live().ready()
        producer = Producer(life, most=100)
        time.sleep(chance.uniform(0.0, 0.5))
        life.kill()
        ids += producer.stop()
        nothing_runs_on(site)
    with site.running() as house:
        for id in ids:
            job = house.ended(id)
            assert job["status"] == "succeeded"
            assert 1 <= runs(site, id) <= job["attempt"]
