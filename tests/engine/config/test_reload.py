"""A reload: the new configuration whole, or refused with all its problems and nothing changed."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from ductile import log
from ductile.config import load
from ductile.engine.config import plugin_init
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.control import ControlRequest
from ductile.engine.gateway import Gateway
from ductile.engine.instance_lock import find_holder
from ductile.engine.recovery import removed_plugins
from ductile.errors import ConfigError, LedgerFull
from ductile.model import JobStatus, Settlement
from ductile.operations import jobs as operate
from ductile.plugins.registry import Plugin
from ductile.store.engines.api import Ledger, Work
from tests.engine.site import OK, PYTHON, Running, Site
from tests.waiting import WAIT_LIMIT, process_state, until

ANSWER_CONFIG = (
    PYTHON + "r = json.load(sys.stdin)\n"
    "print(json.dumps({'status': 'ok', 'result': r['config']['v']}))\n"
)


def reloaded(site: Site, site_run: Running) -> None:
    site.write()
    site_run.gateway.reload()


def refused(site: Site, site_run: Running) -> list[str]:
    site.write()
    with pytest.raises(ConfigError) as caught:
        site_run.gateway.reload()
    return [str(problem) for problem in caught.value.problems]


def test_a_changed_config_reaches_the_next_job(site: Site) -> None:
    site.plugin("echo", ANSWER_CONFIG, config={"v": 1})
    with site.running() as site_run:
        assert site_run.run("echo")["result"]["result"] == 1
        site.settings["plugins"]["echo"]["config"] = {"v": 2}
        reloaded(site, site_run)
        assert site_run.run("echo")["result"]["result"] == 2


def test_rotated_secret_reaches_the_next_job_after_a_reload(site: Site) -> None:
    secret = site.folder / "token"
    secret.write_text("first-secret-value\n")
    read = (
        PYTHON + "r = json.load(sys.stdin)\n"
        "seen = [os.environ['TOKEN'], r['config']['v']]\n"
        "print(json.dumps({'status': 'ok', 'result': [len(s) for s in seen]}))\n"
    )
    source = f"${{file:{secret}}}"
    site.plugin("echo", read, config={"v": source})
    site.settings["plugins"]["echo"]["env"] = {"TOKEN": f"x{source}"}
    with site.running() as site_run:
        assert site_run.run("echo")["result"]["result"] == [19, 18]
        secret.write_text("second\n")
        assert site_run.run("echo")["result"]["result"] == [19, 18]
        reloaded(site, site_run)
        assert site_run.run("echo")["result"]["result"] == [7, 6]


def test_reload_without_a_secret_changes_nothing(site: Site) -> None:
    secret = site.folder / "token"
    secret.write_text("first-secret-value\n")
    site.plugin("echo", ANSWER_CONFIG, config={"v": f"${{file:{secret}}}"})
    with site.running() as site_run:
        secret.unlink()
        assert "there is no file" in refused(site, site_run)[0]
        assert site_run.run("echo")["status"] == "succeeded"


def test_a_job_that_runs_keeps_what_it_was_started_with(site: Site) -> None:
    gate = site.gate()
    script = (
        PYTHON + "r = json.load(sys.stdin)\n"
        f"open({str(gate.reported)!r}, 'w').write('x\\n'); open({str(gate.path)!r}).readline()\n"
        "print(json.dumps({'status': 'ok', 'result': r['config']['v']}))\n"
    )
    site.plugin("echo", script, config={"v": 1})
    with site.running() as site_run:
        id = site_run.put("echo")
        gate.arrived()
        site.settings["plugins"]["echo"]["config"] = {"v": 2}
        reloaded(site, site_run)
        gate.open()
        job = site_run.ended(id)
        assert job["result"]["result"] == 1
        assert job["started_snapshot_id"] == job["enqueued_snapshot_id"]
        again = site_run.put("echo")
        gate.arrived()
        gate.open()
        assert site_run.ended(again)["started_snapshot_id"] != job["started_snapshot_id"]


def test_a_running_job_of_a_plugin_that_is_removed_is_finished(site: Site) -> None:
    gate = site.gate()
    directory = site.plugin("echo", gate.script() + OK)
    with site.running() as site_run:
        id = site_run.put("echo")
        gate.arrived()
        directory.rename(site.folder / "away")
        del site.settings["plugins"]["echo"]
        reloaded(site, site_run)
        gate.open()
        assert site_run.ended(id)["status"] == "succeeded"


def test_queued_jobs_of_a_plugin_that_is_removed_are_dead(
    site: Site, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    gate = site.gate()
    site.settings["service"] |= {"max_workers": 1, "log_level": "warn"}
    site.plugin("busy", gate.script() + OK)
    directory = site.plugin("echo", OK)
    with site.running() as site_run:
        blocker = site_run.put("busy")
        gate.arrived()
        id = site_run.put("echo")
        directory.rename(site.folder / "away")
        del site.settings["plugins"]["echo"]
        reloaded(site, site_run)
        job = site_run.ended(id)
        assert (job["status"], job["last_error"]) == ("dead", "plugin removed")
        logged = [orjson.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
        ended = [line["job_id"] for line in logged if line["message"] == "ended a queued job"]
        assert ended == [id]
        gate.open()
        site_run.ended(blocker)


def test_queued_jobs_of_a_plugin_that_is_disabled_are_dead(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("busy", gate.script() + OK)
    site.plugin("echo", OK)
    with site.running() as site_run:
        blocker = site_run.put("busy")
        gate.arrived()
        id = site_run.put("echo")
        site.settings["plugins"]["echo"]["enabled"] = False
        reloaded(site, site_run)
        assert site_run.ended(id)["last_error"] == "plugin disabled"
        gate.open()
        site_run.ended(blocker)


EMIT = """echo '{"status": "ok", "result": "x", "events": [{"type": "seen", "payload": {}}]}'"""


@pytest.mark.parametrize(
    "way",
    [
        {"routes": [{"from": "source", "event_type": "seen", "to": "echo"}]},
        {"pipelines": [{"name": "p", "on": "seen", "steps": [{"uses": "echo"}]}]},
    ],
    ids=["route", "step"],
)
def test_jobs_that_come_to_a_disabled_plugin_are_dead_with_a_reason(
    site: Site, way: dict[str, Any]
) -> None:
    site.plugin("source", EMIT)
    site.plugin("echo", OK)
    site.settings |= way
    with site.running() as site_run:
        site.settings["plugins"]["echo"]["enabled"] = False
        reloaded(site, site_run)
        source = site_run.put("source")
        ended = site_run.notice("job.dead")
        job = site_run.job(ended.job_id or "")
        assert (job["plugin"], job["status"], job["last_error"]) == (
            "echo",
            "dead",
            "plugin disabled",
        )
        assert site_run.ended(source)["status"] == "succeeded"


def test_dead_job_runs_once_its_plugin_is_enabled_and_it_is_retried(site: Site) -> None:
    site.plugin("echo", OK, enabled=False)
    with site.running() as site_run:
        id = site_run.put("echo")
        assert site_run.ended(id)["last_error"] == "plugin disabled"
        site.settings["plugins"]["echo"]["enabled"] = True
        reloaded(site, site_run)
        gateway = site_run.gateway
        gateway.ledger.write(operate.JobRetry(gateway, id))
        assert site_run.ended(id)["status"] == "succeeded"


def test_queued_jobs_of_a_plugin_that_is_merely_refused_wait(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("busy", gate.script() + OK)
    directory = site.plugin("echo", OK)
    with site.running() as site_run:
        blocker = site_run.put("busy")
        gate.arrived()
        id = site_run.put("echo")
        (directory / "run").chmod(0o644)
        reloaded(site, site_run)
        gate.open()
        site_run.ended(blocker)
        assert site_run.job(id)["status"] == "queued"
        (directory / "run").chmod(0o755)
        reloaded(site, site_run)
        assert site_run.ended(id)["status"] == "succeeded"


def test_invalid_config_is_refused_with_all_problems(site: Site) -> None:
    site.plugin("echo", ANSWER_CONFIG, config={"v": 1})
    with site.running() as site_run:
        before = site_run.gateway.compiled
        site.settings["service"]["tick_interval"] = "soon"
        site.settings["plugins"]["echo"] |= {"config": {"v": 2}, "paralelism": 3}
        site.settings["nonsense"] = 1
        problems = refused(site, site_run)
        assert len(problems) >= 3
        for word in ("tick_interval", "paralelism", "nonsense"):
            assert any(word in problem for problem in problems)
        assert site_run.gateway.compiled is before
        assert site_run.run("echo")["result"]["result"] == 1


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("state", "path", "./elsewhere/state.db"),
        ("service", "node", "another"),
    ],
)
def test_setting_that_needs_a_restart_is_refused_with_advice(
    site: Site, section: str, key: str, value: object
) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.settings.setdefault(section, {})[key] = value
        problems = refused(site, site_run)
        assert any(f"{section}.{key}" in problem and "start" in problem for problem in problems)
        assert site_run.run("echo")["status"] == "succeeded"


def test_change_that_needs_a_restart_is_reported_with_its_place(site: Site) -> None:
    site.plugin("echo", OK)
    site.settings["service"]["node"] = "here"
    with site.running() as site_run:
        site.settings["service"]["node"] = "there"
        path = site.write()
        with pytest.raises(ConfigError) as caught:
            site_run.gateway.reload()
        (problem,) = caught.value.problems
        lines = path.read_text().splitlines()
        assert problem.line is not None
        assert "there" in lines[problem.line - 1]
        assert (problem.file, problem.path) == (str(path), ("service", "node"))
        assert (problem.found, problem.allowed) == ("there", "here")


def test_restart_is_not_advised_alone_if_the_gateway_would_not_start(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        endpoint = {"path": "/hook", "secret": "abcdefghijklmnop", "pipeline": "missing"}
        site.settings["webhooks"] = {"listen": "127.0.0.1:9003", "endpoints": [endpoint]}
        site.settings["service"]["node"] = "another"
        problems = refused(site, site_run)
    assert len(problems) == 2, problems
    assert "an unknown pipeline" in problems[0]
    assert "stop the gateway and start it again" in problems[1]


def set_workers(site: Site, site_run: Running, count: int) -> None:
    site.settings["service"]["max_workers"] = count
    reloaded(site, site_run)
    assert site_run.gateway.workers == count


def test_more_workers_start_queued_jobs(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("busy", gate.script() + OK)
    with site.running() as site_run:
        ids = [site_run.put("busy") for _ in range(4)]
        gate.arrived()
        set_workers(site, site_run, 3)
        gate.arrived()
        gate.arrived()
        assert gate.is_empty()
        assert site_run.gateway.busy == 3
        gate.open(4)
        assert {site_run.ended(id)["status"] for id in ids} == {"succeeded"}


def test_fewer_workers_end_no_running_job(site: Site) -> None:
    # Of their own, so that no later job passes in the place of a first one.
    first, later = site.gate("first"), site.gate("later")
    is_resized = site.folder / "resized"
    gate = f"if [ -e '{is_resized}' ]; then\n{later.script()}else\n{first.script()}fi\n"
    site.settings["service"]["max_workers"] = 3
    site.plugin("busy", gate + OK)
    with site.running() as site_run:
        ids = [site_run.put("busy") for _ in range(6)]
        for _ in range(3):
            first.arrived()
        set_workers(site, site_run, 1)
        is_resized.touch()
        pool = site_run.gateway.pool
        first.open(3)
        # Of the three slots one is left, which runs the other jobs one after another.
        until(lambda: [bool(pool.slot(n).pid) for n in range(3)] == [True, False, False])
        for _ in range(3):
            later.arrived()
            assert later.is_empty()
            assert site_run.gateway.busy == 1
            later.open()
        jobs = [site_run.ended(id) for id in ids]
        assert {(job["status"], job["attempt"]) for job in jobs} == {("succeeded", 1)}


def test_workers_are_changed_while_many_jobs_run(site: Site) -> None:
    """Jobs are prefetched and buffered behind workers that leave."""
    site.plugin("echo", OK)
    with site.running() as site_run:
        ids = []
        for count in (1, 6, 2, 8, 1, 3):
            ids += [site_run.put("echo") for _ in range(60)]
            set_workers(site, site_run, count)
        jobs = [site_run.ended(id) for id in ids]
        assert {job["status"] for job in jobs} == {"succeeded"}
        assert {len(job["attempts"]) for job in jobs} == {1}
        slots = [site_run.gateway.pool.slot(n) for n in range(8)]
        until(lambda: sum(bool(slot.pid) for slot in slots) == 3)


def test_slots_that_were_added_survive_the_loss_of_the_runner(site: Site) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("busy", gate.script() + OK, retry={"backoff_base": "10ms"})
    with site.running() as site_run:
        set_workers(site, site_run, 2)
        pool = site_run.gateway.pool
        slots = [pool.slot(number).pid for number in range(2)]
        os.kill(pool.pid, signal.SIGKILL)
        # A slot that still ends would take a job along, and its permission at the gate.
        until(lambda: all(process_state(pid) in ("", "Z") for pid in slots))
        ids = [site_run.put("busy") for _ in range(2)]
        gate.arrived()
        gate.arrived()
        gate.open(2)
        assert {site_run.ended(id)["status"] for id in ids} == {"succeeded"}


def test_another_database_takes_a_restart_and_is_not_quoted(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.settings["state"] = {"url": "postgresql://me:hunter2@db/x", "dir": str(site.state)}
        site.write()
        with pytest.raises(ConfigError) as caught:
            site_run.gateway.reload()
        problem = next(p for p in caught.value.problems if p.path == ("state", "url"))
        assert (problem.found, problem.line is not None) == ("another database", True)
        assert not any("hunter2" in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("key", "state"),
    [
        ("path", {"path": "./elsewhere/state.db"}),
        ("url", {"url": "postgresql://me:pw@db/x", "dir": "./data"}),
    ],
)
def test_changed_ledger_location_warns_and_explains_the_move(
    site: Site, key: str, state: dict[str, str]
) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.settings["state"] = state
        site.write()
        with pytest.raises(ConfigError) as caught:
            site_run.gateway.reload()
        problem = next(p.message for p in caught.value.problems if p.path == ("state", key))
        for words in ("start it again", "is not moved", "ductile system backup COPY", "restore"):
            assert words in problem


def test_setting_that_names_no_ledger_is_refused_without_a_word_of_it(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.settings["service"]["node"] = "another"
        [problem] = refused(site, site_run)
        assert "ledger" not in problem


@pytest.mark.parametrize("damage", ["missing", "directory", "binary", "empty-map", "unterminated"])
def test_a_config_file_that_cannot_be_read_is_refused(site: Site, damage: str) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        path = site.write()
        path.unlink()
        if damage == "directory":
            path.mkdir()
        elif damage == "binary":
            path.write_bytes(b"\xff\xfe\x00")
        elif damage == "empty-map":
            path.write_text("[]")
        elif damage == "unterminated":
            path.write_text("{")
        with pytest.raises(ConfigError):
            site_run.gateway.reload()
        assert site_run.run("echo")["status"] == "succeeded"


def test_a_gateway_that_was_started_on_a_file_reloads_that_file(site: Site) -> None:
    """`--config PATH` takes a file of any name."""
    site.plugin("echo", ANSWER_CONFIG, config={"v": 1})

    def written() -> object:
        return site.write().rename(site.folder / "gateway.yaml")

    path = written()
    gateway = Gateway(load(path, environ=site.environ), environ=site.environ)  # type: ignore[arg-type]
    site_run = Running(gateway)
    try:
        gateway.open()
        gateway.start()
        site.settings["plugins"]["echo"]["config"] = {"v": 2}
        written()
        gateway.reload()
        assert site_run.run("echo")["result"]["result"] == 2
    finally:
        site_run.end()


def test_a_plugin_that_a_reload_brings_can_be_run(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.plugin("fresh", OK)
        reloaded(site, site_run)
        assert site_run.run("fresh")["status"] == "succeeded"


def test_a_new_parallelism_holds_from_then_on(site: Site) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    with site.running() as site_run:
        site.settings["plugins"]["echo"]["parallelism"] = 1
        reloaded(site, site_run)
        ids = [site_run.put("echo") for _ in range(2)]
        gate.arrived()
        assert [site_run.job(id)["status"] for id in ids] == ["running", "queued"]
        gate.open(2)
        gate.arrived()
        for id in ids:
            site_run.ended(id)


def test_ten_reloads_under_load_lose_nothing(site: Site) -> None:
    counts = site.folder / "counts"
    site.plugin("echo", f"echo x >> {counts}\n{OK}", config={"v": 0})
    with site.running() as site_run:
        ids: list[str] = []
        done = threading.Event()

        def produce() -> None:
            while not done.is_set() and len(ids) < 400:
                ids.append(site_run.put("echo"))

        producer = threading.Thread(target=produce)
        producer.start()
        for n in range(10):
            site.settings["plugins"]["echo"]["config"] = {"v": n}
            reloaded(site, site_run)
        done.set()
        producer.join(WAIT_LIMIT)
        jobs = [site_run.ended(id) for id in ids]
    assert ids
    assert {job["status"] for job in jobs} == {"succeeded"}
    assert {job["attempt"] for job in jobs} == {1}
    assert counts.read_text().count("x") == len(ids)


def test_two_reloads_at_once_are_one_after_the_other(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.write()
        errors: list[BaseException] = []

        def reload() -> None:
            try:
                site_run.gateway.reload()
            except BaseException as error:  # noqa: BLE001 - asserted below
                errors.append(error)

        threads = [threading.Thread(target=reload) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_LIMIT)
        assert errors == []
        assert site_run.run("echo")["status"] == "succeeded"


class Refusing:
    """The ledger, which takes no writes while it is full."""

    def __init__(self, ledger: Ledger) -> None:
        self._write, self._full = ledger.write, False
        ledger.write = self.write  # type: ignore[method-assign]

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        self._full = True
        try:
            yield
        finally:
            self._full = False

    def write(self, work: Work[Any]) -> Any:
        if self._full:
            raise LedgerFull("the disk is full; nothing was written")
        return self._write(work)


def test_reload_that_the_ledger_refuses_changes_nothing_and_ends_nothing(site: Site) -> None:
    """SIGHUP on a full disk: the gateway keeps its configuration."""
    site.plugin("echo", ANSWER_CONFIG, config={"v": 1})
    with site.running() as site_run:
        gateway = site_run.gateway
        before = gateway.compiled
        refusing = Refusing(gateway.ledger)
        site.settings["plugins"]["echo"]["config"] = {"v": 2}
        site.write()
        with refusing.full():
            gateway.requests.put(ControlRequest.RELOAD)
            gateway.requests.put(ControlRequest.STOP)
            gateway.run()
        assert gateway.compiled is before
        assert log._sink.redactor is before.redactor
        gateway.reload()
        assert site_run.run("echo")["result"]["result"] == 2


def test_writes_that_fail_after_a_reload_are_repeated(
    site: Site,
) -> None:
    """Otherwise jobs of a new plugin would wait for an `init` that was never queued."""
    site.plugin("echo", OK)
    with site.running() as site_run:
        site.plugin("fresh", OK, commands=("poll", "init"), schedule={"every": "1h"})
        site.write()

        def refused(*_: object) -> int:
            patch.undo()
            raise LedgerFull("the disk is full; nothing was written")

        patch = pytest.MonkeyPatch()
        patch.setattr(removed_plugins, "end_jobs_of_removed_plugins", refused)
        site_run.gateway.reload()
        until(lambda: "job.succeeded" in {kind for kind, _ in site_run.list_notices()})
        assert site_run.run("fresh")["status"] == "succeeded"
        assert ("fresh", "default") in site_run.gateway.scheduler._entries


def test_init_that_ends_during_a_reload_counts_for_what_is_adopted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("echo", OK, commands=("poll", "init"))
    with site.opened() as site_run:
        gateway = site_run.gateway
        [plugin] = gateway.compiled.needs_init()
        ended = threading.Thread(target=gateway.config.init_ended, args=(init_of(plugin),))
        uninitialised = plugin_init.uninitialised

        def meanwhile(ledger: Ledger, compiled: CompiledConfig) -> dict[str, str]:
            found = uninitialised(ledger, compiled)
            ended.start()
            # It must not be through before this has its effect.
            ended.join(0.1)
            return found

        monkeypatch.setattr(plugin_init, "uninitialised", meanwhile)
        gateway.reload()
        ended.join()
        assert gateway.unready == {}
        assert gateway.claim_policy().init_only == frozenset()


def init_of(plugin: Plugin) -> Settlement:
    """The end of its `init`, as well as can be."""
    return SimpleNamespace(  # type: ignore[return-value]
        plugin=plugin.name, init_key=plugin.init_key, status=JobStatus.SUCCEEDED, error=None
    )


def test_recomputed_due_times_do_not_undo_a_reload(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("echo", OK, schedule={"every": "1h"})
    with site.opened() as site_run:
        scheduler, clock = site_run.gateway.scheduler, site_run.gateway.clock
        before = site_run.gateway.compiled
        site.plugin("other", OK, schedule={"every": "1h"})
        del site.settings["plugins"]["echo"]["schedule"]
        site.write()
        reloading = threading.Thread(target=site_run.gateway.reload)
        ensure = scheduler._ensure

        def meanwhile(*about: Any) -> None:
            monkeypatch.setattr(scheduler, "_ensure", ensure)
            reloading.start()
            until(lambda: site_run.gateway.compiled is not before)
            ensure(*about)

        monkeypatch.setattr(scheduler, "_ensure", meanwhile)
        scheduler.refresh()
        scheduler.tick(clock.now())
        reloading.join()
        assert {plugin for plugin, _ in scheduler._entries} == {"other"}


def test_close_that_cannot_write_still_gives_the_directory_back(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        site_run.run("echo")
        refusing = Refusing(site_run.gateway.ledger)
        with refusing.full(), contextlib.suppress(LedgerFull):
            site_run.end()
        given_back = find_holder(site.state) is None
        site_run.abandon()
        assert given_back
    with site.running() as site_run:
        assert site_run.run("echo")["status"] == "succeeded"
