"""A real gateway and its signals."""

from __future__ import annotations

import signal
import stat

import apsw
import pytest

from tests.engine.site import OK, Site
from tests.waiting import until


def row(site: Site, id: str) -> tuple:
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    [found] = connection.execute(
        "SELECT status, attempt, max_attempts, next_retry_at FROM job_queue WHERE id = ?", (id,)
    ).fetchall()
    connection.close()
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_well_and_leaves_nothing(site: Site, live, number: signal.Signals) -> None:
    life = live().ready()
    life.put()
    life.signal(number)
    assert life.wait() == 0
    assert life.said("stopped")
    assert not (site.state / "ductile.sock").exists()
    assert site.alive() == []


def test_a_running_job_gets_its_grace(site: Site, live) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK)
    life = live().ready()
    id = life.put("slow")
    gate.arrived()
    life.signal(signal.SIGTERM)
    life.said("stopping")
    gate.open()
    assert life.wait() == 0
    assert row(site, id)[0] == "succeeded"


def test_beyond_its_grace_a_job_goes_back_uncounted(site: Site, live) -> None:
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "200ms"
    site.plugin("slow", "trap '' TERM\n" + gate.script() + OK, retry={"max_attempts": 1})
    life = live().ready()
    id = life.put("slow")
    gate.arrived()
    life.signal(signal.SIGTERM)
    assert life.wait() == 0
    assert row(site, id) == ("queued", 2, 2, None)
    assert site.alive() == []


def test_a_second_signal_does_no_harm(site: Site, live) -> None:
    life = live().ready()
    for _ in range(5):
        life.signal(signal.SIGTERM)
    assert life.wait() == 0


def test_a_stop_while_it_starts_is_heard(site: Site, live) -> None:
    life = live()
    until(lambda: (site.state / "ductile.lock").exists())
    life.signal(signal.SIGTERM)
    assert life.wait() in (0, -signal.SIGTERM)
    until(lambda: site.alive() == [])


def test_hangup_reloads(site: Site, live) -> None:
    life = live().ready()
    site.plugin("fresh", OK)
    site.write()
    life.signal(signal.SIGHUP)
    life.said("reloaded")
    life.put("fresh")


def test_hangup_with_a_broken_config_is_logged_and_changes_nothing(site: Site, live) -> None:
    life = live().ready()
    (site.folder / "config.yaml").write_text("nonsense: [")
    life.signal(signal.SIGHUP)
    life.said("reload refused")
    life.put()
    (site.folder / "config.yaml").unlink()
    life.signal(signal.SIGHUP)
    until(lambda: [line["message"] for line in life.lines].count("reload refused") >= 2)
    life.put()


def test_a_second_gateway_is_refused(site: Site, live) -> None:
    first = live().ready()
    assert live().wait() != 0
    first.put()


def test_the_socket_of_a_real_gateway_is_its_owners_alone(site: Site, live) -> None:
    live().ready()
    assert stat.S_IMODE((site.state / "ductile.sock").stat().st_mode) == 0o600


def test_every_log_line_is_one_json_object(site: Site, live) -> None:
    life = live().ready()
    id = life.put()
    until(lambda: row(site, id)[0] == "succeeded")
    life.signal(signal.SIGTERM)
    life.wait()
    assert all({"timestamp", "level", "component", "message"} <= line.keys() for line in life.lines)
