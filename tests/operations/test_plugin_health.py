"""`health` of every plugin that declares it, side by side."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from ductile.core.jobs.judge import LONGEST_ERROR
from ductile.operations import plugin_health, status
from tests.engine.site import OK, PYTHON, Running, Site
from tests.waiting import WAIT_LIMIT

COMMANDS = ("health", "poll")


def checked(site_run: Running) -> dict[str, plugin_health.HealthCheck]:
    gateway = site_run.gateway
    return plugin_health.check_plugins(
        gateway.compiled, gateway.ledger, gateway.clock, gateway.entropy
    )


def test_a_plugin_that_responds_ok_is_healthy(site: Site) -> None:
    site.plugin("echo", OK, commands=COMMANDS)
    with site.opened() as site_run:
        found = checked(site_run)
    assert (found["echo"].healthy, found["echo"].detail) == (True, "done")


def test_a_plugin_that_declares_no_health_is_not_asked(site: Site) -> None:
    site.plugin("echo", OK, commands=("poll",))
    with site.opened() as site_run:
        assert checked(site_run) == {}


def test_problem_is_reported(site: Site) -> None:
    site.plugin("error", """echo '{"status": "error", "error": "no disk"}'""", commands=COMMANDS)
    site.plugin("exits", OK + "exit 3", commands=COMMANDS)
    site.plugin("junk", "echo junk", commands=COMMANDS)
    site.plugin("slow", "exec sleep 60", commands=COMMANDS, timeouts={"health": "100ms"})
    site.plugin("gone", "#!/nosuch/interpreter", commands=COMMANDS)
    with site.opened() as site_run:
        found = checked(site_run)
    assert not any(checkup.healthy for checkup in found.values())
    assert found["error"].detail == "no disk"
    assert "3" in found["exits"].detail
    assert "JSON" in found["junk"].detail
    assert "timed" in found["slow"].detail
    assert "/nosuch/interpreter" in found["gone"].detail


def test_error_and_a_line_of_stderr_are_reported(site: Site) -> None:
    site.plugin("config", "echo 'no url' >&2\necho more >&2\nexit 78", commands=COMMANDS)
    site.plugin("killed", "kill -9 $$", commands=COMMANDS)
    site.plugin(
        "slow",
        "echo 'still dialling' >&2\nexec sleep 60",
        commands=COMMANDS,
        timeouts={"health": "1s"},
    )
    with site.opened() as site_run:
        found = checked(site_run)
    empty = "stdout is empty; it must be one JSON object"
    assert found["config"].detail == f"exit code 78; {empty}; stderr: more"
    assert found["killed"].detail == f"killed by signal 9; {empty}"
    assert re.fullmatch(r"timed out after 1 s.*; stderr: still dialling", found["slow"].detail)


FLOOD = "head -c 1000000 /dev/zero | tr '\\0' x"


@pytest.mark.parametrize(
    "body",
    [
        f"""printf '{{"status": "ok", "result": "'; {FLOOD}; echo '"}}'""",
        f"""printf '{{"status": "error", "error": "'; {FLOOD}; echo '"}}'""",
        f"{FLOOD} >&2\nexit 1",
    ],
    ids=["result", "error", "stderr"],
)
def test_no_more_of_an_answer_is_kept_than_of_a_jobs_error(site: Site, body: str) -> None:
    site.plugin("loud", body, commands=COMMANDS)
    with site.opened() as site_run:
        detail = checked(site_run)["loud"].detail
    assert len(detail) < LONGEST_ERROR + 20
    assert detail.endswith("… (shortened)")


@pytest.mark.parametrize(
    ("size", "healthy"),
    [(plugin_health.STDOUT_CAP // 2, True), (plugin_health.STDOUT_CAP + 1, False)],
    ids=["fits", "beyond"],
)
def test_an_answer_has_a_size(site: Site, size: int, healthy: bool) -> None:
    """Many are kept at once."""
    body = f"sys.stdin.read()\nprint(json.dumps({{'status': 'ok', 'result': 'x' * {size}}}))"
    site.plugin("talker", PYTHON + body, commands=COMMANDS)
    with site.opened() as site_run:
        checkup = checked(site_run)["talker"]
    assert checkup.healthy is healthy
    assert healthy or checkup.detail == "the response is larger than 1 MiB"


def test_health_commands_run_in_parallel(site: Site) -> None:
    """Each waits until all have come: one after the other, none would ever answer."""
    gate = site.gate()
    for n in range(4):
        site.plugin(f"p{n}", gate.script(f"p{n}") + OK, commands=COMMANDS)
    with site.opened() as site_run:
        found: dict[str, Any] = {}
        thread = threading.Thread(target=lambda: found.update(checked(site_run)))
        thread.start()
        assert {gate.arrived() for _ in range(4)} == {"p0", "p1", "p2", "p3"}
        gate.open(4)
        thread.join(WAIT_LIMIT)
    assert all(checkup.healthy for checkup in found.values())
    assert len(found) == 4


def test_more_plugins_than_slots_are_all_asked(site: Site) -> None:
    for n in range(plugin_health.PARALLEL_CHECKS * 2 + 1):
        site.plugin(f"p{n}", OK, commands=COMMANDS)
    with site.opened() as site_run:
        assert len(checked(site_run)) == plugin_health.PARALLEL_CHECKS * 2 + 1


def test_nothing_of_a_checkup_is_recorded(site: Site) -> None:
    body = """echo '{"status": "ok", "result": "x", "state_updates": {"n": 1}}'"""
    site.plugin("echo", body, commands=COMMANDS)
    with site.opened() as site_run:
        checked(site_run)
        ledger = site_run.gateway.ledger
        assert ledger.read(lambda tx: tx.one("state_of", plugin="echo")) is None
        assert ledger.read(lambda tx: tx.all("pending_jobs", limit=10)) == []


def test_a_checkup_during_running_jobs_disturbs_neither(site: Site) -> None:
    gate = site.gate()
    site.plugin("busy", gate.script() + OK, commands=("poll",))
    site.plugin("echo", OK, commands=COMMANDS)
    with site.running() as site_run:
        id = site_run.put("busy")
        gate.arrived()
        assert checked(site_run)["echo"].healthy
        gate.open()
        assert site_run.ended(id)["status"] == "succeeded"


def test_secrets_do_not_appear_in_a_checkup(site: Site) -> None:
    site.environ["SECRET"] = "hunter2hunter2"
    body = """echo '{"status": "error", "error": "bad token hunter2hunter2"}'"""
    site.plugin("echo", body, commands=COMMANDS, config={"token": "${SECRET}"})
    with site.opened() as site_run:
        assert "hunter2" not in checked(site_run)["echo"].detail


def test_secrets_do_not_appear_in_how_stderr_begins(site: Site) -> None:
    site.environ["SECRET"] = "hunter2hunter2"
    body = "echo 'bad token hunter2hunter2' >&2\nexit 1"
    site.plugin("echo", body, commands=COMMANDS, config={"token": "${SECRET}"})
    with site.opened() as site_run:
        assert checked(site_run)["echo"].detail.endswith("stderr: bad token [REDACTED]")


def test_the_status_page_shows_states_queue_and_last_runs(site: Site) -> None:
    site.plugin("echo", OK, commands=COMMANDS)
    site.plugin("off", OK, enabled=False)
    site.plugin("bad", OK, manifest="config_keys: {required: [url]}\n")
    with site.running() as site_run:
        site_run.run("echo")
        gateway = site_run.gateway
        checks, now = checked(site_run), gateway.clock.now()
        page = status.status(gateway.compiled, gateway.unready, gateway.ledger, checks, now)
    rows = {row["name"]: row for row in page["plugins"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "echo": "ready",
        "off": "disabled",
        "bad": "refused",
    }
    assert "url" in rows["bad"]["reason"]
    assert rows["echo"]["health"]["healthy"] is True
    assert rows["echo"]["last_run"]["status"] == "succeeded"
    assert (page["queue_depth"], page["running"]) == (0, 0)
