"""`init`: once for a version and config, and until it succeeds nothing else runs."""

from __future__ import annotations

import pytest

from ductile.engine.config.plugin_init import queue_init
from ductile.model import SubmittedBy
from ductile.operations.jobs import JobReplay, JobRetry
from ductile.operations.reports import waits_for
from tests.engine.site import OK, PYTHON, Running, Site
from tests.waiting import until

COMMANDS = ("init", "poll")


def counting(site: Site, rest: str = OK) -> str:
    """sh: append the command to a file, then `rest`."""
    pick = """grep -o '"command":"[a-z]*"' | cut -d'"' -f4"""
    return f"command=$({pick})\necho $command >> {site.folder}/ran\n{rest}"


def ran(site: Site) -> list[str]:
    path = site.folder / "ran"
    return path.read_text().split() if path.exists() else []


FAILING = (
    """if [ $command = init ]; then echo '{"status": "error", "error": "no luck"}'; exit; fi\n"""
)


def why(site_run: Running, id: str) -> str | None:
    gateway = site_run.gateway
    return waits_for.waits_for(site_run.job(id), gateway.compiled, gateway.unready)


def test_init_runs_before_anything_else(site: Site) -> None:
    site.plugin("echo", counting(site), commands=COMMANDS)
    with site.opened() as site_run:
        id = site_run.put("echo")
        site_run.gateway.start()
        assert site_run.ended(id)["status"] == "succeeded"
        assert site_run.gateway.unready == {}
    assert ran(site) == ["init", "poll"]


def test_init_runs_once_for_a_version_and_config(site: Site) -> None:
    site.plugin("echo", counting(site), commands=COMMANDS)
    for _ in range(3):
        with site.running() as site_run:
            site_run.run("echo")
    assert ran(site) == ["init", "poll", "poll", "poll"]


@pytest.mark.parametrize("change", [{"version": "1.0.1"}, {"config": {"url": "new"}}])
def test_another_version_or_config_is_initialised_again(site: Site, change) -> None:
    site.plugin("echo", counting(site), commands=COMMANDS, config={"url": "old"})
    with site.running() as site_run:
        site_run.run("echo")
    site.plugin("echo", counting(site), commands=COMMANDS, **change)
    with site.running() as site_run:
        site_run.run("echo")
    assert ran(site) == ["init", "poll", "init", "poll"]


def test_going_back_to_a_config_that_was_initialised_needs_no_init(site: Site) -> None:
    for url in ("a", "b", "a"):
        site.plugin("echo", counting(site), commands=COMMANDS, config={"url": url})
        with site.running() as site_run:
            site_run.run("echo")
    assert ran(site).count("init") == 2


def test_failed_init_is_not_retried_and_the_plugins_jobs_wait_saying_why(site: Site) -> None:
    site.plugin("echo", counting(site, FAILING + OK), commands=COMMANDS)
    site.plugin("other", OK)
    with site.running() as site_run:
        ended = site_run.notice("job.dead")
        id = site_run.put("echo")
        assert site_run.run("other")["status"] == "succeeded"
        assert site_run.job(id)["status"] == "queued"
        until(lambda: why(site_run, id) == "plugin echo is unhealthy: its init failed: no luck")
        init = site_run.job(str(ended.job_id))
        assert (init["command"], init["attempt"], init["status"]) == ("init", 1, "dead")
    assert ran(site) == ["init"]


def test_init_run_by_an_operator_has_one_attempt(site: Site) -> None:
    """Asked for, retried by an operator, replayed."""
    site.plugin("echo", counting(site, FAILING + OK), commands=COMMANDS)
    with site.running() as site_run:
        gateway, by = site_run.gateway, SubmittedBy.API
        site_run.notice("job.dead")
        job = site_run.run("echo", "init")
        assert (job["status"], job["max_attempts"]) == ("dead", 1)
        again = gateway.ledger.write(JobRetry(gateway, job["id"]))
        assert (again.attempt, again.max_attempts) == (2, 2)
        job = site_run.ended(job["id"])
        assert (job["status"], job["attempt"]) == ("dead", 2)
        replayed = gateway.ledger.write(JobReplay(gateway, job["id"], by, "user:ada")).job_id
        assert site_run.ended(str(replayed))["status"] == "dead"
    assert ran(site) == ["init"] * 4


def test_a_failed_init_is_run_again_at_the_next_start(site: Site) -> None:
    site.plugin("echo", counting(site, FAILING + OK), commands=COMMANDS)
    with site.running() as site_run:
        site_run.notice("job.dead")
        id = site_run.put("echo")
    site.plugin("echo", counting(site), commands=COMMANDS)
    with site.running() as site_run:
        assert site_run.ended(id)["status"] == "succeeded"
    assert ran(site) == ["init", "init", "poll"]


def test_a_failed_init_is_run_again_at_the_next_reload(site: Site) -> None:
    site.plugin("echo", counting(site, FAILING + OK), commands=COMMANDS)
    with site.running() as site_run:
        site_run.notice("job.dead")
        id = site_run.put("echo")
        site.plugin("echo", counting(site), commands=COMMANDS)
        site_run.gateway.reload()
        assert site_run.ended(id)["status"] == "succeeded"
    assert ran(site) == ["init", "init", "poll"]


def test_init_that_never_ends_leaves_the_plugin_unhealthy(site: Site) -> None:
    site.plugin("echo", "exec sleep 600", commands=COMMANDS, timeouts={"init": "100ms"})
    with site.running() as site_run:
        site_run.notice("job.dead")
        id = site_run.put("echo")
        until(lambda: "timed out" in str(why(site_run, id)))


def test_while_init_runs_the_plugins_jobs_wait_and_others_do_not(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK, commands=COMMANDS)
    site.plugin("other", OK)
    with site.running() as site_run:
        gate.arrived()
        id = site_run.put("echo")
        assert site_run.run("other")["status"] == "succeeded"
        assert site_run.job(id)["status"] == "queued"
        assert why(site_run, id) == "plugin echo is unhealthy: its init has not run yet"
        gate.open()
        gate.arrived()
        gate.open()
        assert site_run.ended(id)["status"] == "succeeded"


def test_the_first_run_of_a_schedule_follows_the_init(site: Site) -> None:
    entry = {"id": "daily", "every": "24h"}
    site.plugin("echo", counting(site), commands=COMMANDS, schedules=[entry])
    with site.running():
        until(lambda: ran(site) == ["init", "poll"])


def test_a_reload_during_init_still_initialises_the_new_config(site: Site) -> None:
    """What succeeds then is the old config's init: it says nothing of the new one."""
    gate = site.gate()
    calls = site.folder / "calls"
    script = (
        PYTHON + "r = json.load(sys.stdin)\n"
        f"open({str(calls)!r}, 'a').write(r['command'] + '-' + r['config']['url'] + '\\n')\n"
        "if r['command'] == 'init' and r['config']['url'] == 'old':\n"
        f"    open({str(gate.reported)!r}, 'w').write('x\\n')\n"
        f"    open({str(gate.path)!r}).readline()\n"
        'print(\'{"status": "ok", "result": 1}\')\n'
    )
    site.plugin("echo", script, commands=COMMANDS, config={"url": "old"})
    with site.running() as site_run:
        gate.arrived()
        site.plugin("echo", script, commands=COMMANDS, config={"url": "new"})
        site.write()
        site_run.gateway.reload()
        id = site_run.put("echo")
        gate.open()
        assert site_run.ended(id)["status"] == "succeeded"
    assert calls.read_text().split() == ["init-old", "init-new", "poll-new"]


def test_succeeded_init_is_not_queued_by_an_earlier_decision(site: Site) -> None:
    site.plugin("echo", counting(site), commands=COMMANDS)
    with site.running() as site_run:
        site_run.run("echo")
        gateway = site_run.gateway
        id, now = gateway.entropy.uuid(), gateway.clock.now()
        compiled = gateway.compiled
        assert not gateway.ledger.write(lambda tx: queue_init(tx, compiled, "echo", id, now))


def test_a_plugin_that_a_reload_brings_is_initialised(site: Site) -> None:
    site.plugin("other", OK)
    with site.running() as site_run:
        site.plugin("echo", counting(site), commands=COMMANDS)
        site.write()
        site_run.gateway.reload()
        assert site_run.run("echo")["status"] == "succeeded"
    assert ran(site) == ["init", "poll"]


def test_a_plugin_without_init_is_ready_at_once(site: Site) -> None:
    site.plugin("echo", OK, commands=("poll",))
    with site.opened() as site_run:
        assert site_run.gateway.unready == {}
