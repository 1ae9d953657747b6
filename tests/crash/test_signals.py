"""The signals of a gateway process."""

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
def test_stop_signal_exits_with_0_and_leaves_no_process(
    site: Site, start_gateway, number: signal.Signals
) -> None:
    gateway = start_gateway().ready()
    gateway.put()
    gateway.signal(number)
    assert gateway.wait() == 0
    assert gateway.wait_for_log("stopped")
    assert not (site.state / "ductile.sock").exists()
    assert site.alive() == []


def test_stop_waits_for_a_running_job(site: Site, start_gateway) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK)
    gateway = start_gateway().ready()
    id = gateway.put("slow")
    gate.arrived()
    gateway.signal(signal.SIGTERM)
    gateway.wait_for_log("stopping")
    gate.open()
    assert gateway.wait() == 0
    assert row(site, id)[0] == "succeeded"


def test_job_that_exceeds_the_shutdown_grace_goes_back_uncounted(site: Site, start_gateway) -> None:
    gate = site.gate()
    site.settings["service"]["shutdown_grace"] = "200ms"
    site.plugin("slow", "trap '' TERM\n" + gate.script() + OK, retry={"max_attempts": 1})
    gateway = start_gateway().ready()
    id = gateway.put("slow")
    gate.arrived()
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0
    assert row(site, id) == ("queued", 2, 2, None)
    assert site.alive() == []


def test_repeated_stop_signals_are_ignored(site: Site, start_gateway) -> None:
    gateway = start_gateway().ready()
    for _ in range(5):
        gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0


def test_a_stop_signal_during_the_start_ends_the_gateway(site: Site, start_gateway) -> None:
    gateway = start_gateway()
    until(lambda: (site.state / "ductile.lock").exists())
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() in (0, -signal.SIGTERM)
    until(lambda: site.alive() == [])


def test_sighup_reloads(site: Site, start_gateway) -> None:
    gateway = start_gateway().ready()
    site.plugin("fresh", OK)
    site.write()
    gateway.signal(signal.SIGHUP)
    gateway.wait_for_log("reloaded")
    gateway.put("fresh")


def test_sighup_with_an_invalid_config_changes_nothing(site: Site, start_gateway) -> None:
    gateway = start_gateway().ready()
    (site.folder / "config.yaml").write_text("nonsense: [")
    gateway.signal(signal.SIGHUP)
    gateway.wait_for_log("reload refused")
    gateway.put()
    (site.folder / "config.yaml").unlink()
    gateway.signal(signal.SIGHUP)
    until(lambda: [line["message"] for line in gateway.lines].count("reload refused") >= 2)
    gateway.put()


def test_a_second_gateway_is_refused(site: Site, start_gateway) -> None:
    first = start_gateway().ready()
    assert start_gateway().wait() != 0
    first.put()


def test_only_the_owner_may_use_the_socket(site: Site, start_gateway) -> None:
    start_gateway().ready()
    assert stat.S_IMODE((site.state / "ductile.sock").stat().st_mode) == 0o600


def test_every_log_line_is_one_json_object(site: Site, start_gateway) -> None:
    gateway = start_gateway().ready()
    id = gateway.put()
    until(lambda: row(site, id)[0] == "succeeded")
    gateway.signal(signal.SIGTERM)
    gateway.wait()
    assert all(
        {"timestamp", "level", "component", "message"} <= line.keys() for line in gateway.lines
    )
