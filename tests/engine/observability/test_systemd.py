"""What a gateway sends to the service manager, over a real socket."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ductile.engine.observability import liveness as module
from ductile.engine.observability.liveness import Liveness
from ductile.engine.observability.systemd import Notifier, Watchdog, report_ready
from ductile.plugins.variables import plugin_environment
from tests.engine.site import OK, Site, environment_of
from tests.fork_server import CLI, ForkedProcess
from tests.http.client import Client
from tests.waiting import WAIT_LIMIT, until

Message = dict[str, str]


class ServiceManager:
    """The service manager's end of the socket; records every message."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.heard: list[Message] = []

    def next(self, seconds: float = WAIT_LIMIT) -> Message:
        self._socket.settimeout(seconds)
        lines = self._socket.recv(65536).decode().split("\n")
        message = {name: value for name, _, value in (line.partition("=") for line in lines)}
        self.heard.append(message)
        return message

    def until(self, name: str) -> Message:
        """The next message with this name, without watchdog pings."""
        while name not in (message := self.next()):
            assert "WATCHDOG" in message, (name, self.heard)
        return message

    def is_silent(self, seconds: float) -> bool:
        try:
            self.next(seconds)
        except TimeoutError:
            return True
        return False

    def discard(self) -> None:
        """The messages so far."""
        while not self.is_silent(0.01):
            pass

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, site: Site) -> Iterator[ServiceManager]:
    name = str(site.folder / "notify")
    manager = ServiceManager(name if request.param == "path" else f"@{name}")
    yield manager
    manager.close()


@pytest.fixture
def listener(site: Site) -> Iterator[ServiceManager]:
    manager = ServiceManager(str(site.folder / "notify"))
    yield manager
    manager.close()


@contextmanager
def start_gateway(site: Site, manager: ServiceManager, **environ: str) -> Iterator[ForkedProcess]:
    """`ductile system start` as a unit of the service manager."""
    env = {**os.environ, **site.environ, "NOTIFY_SOCKET": manager.address, **environ}
    process = ForkedProcess(CLI, "system", "start", "--config", str(site.write()), env=env)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(WAIT_LIMIT)
        process.close()


def test_ready_reloading_and_stopping_are_reported(site: Site, manager: ServiceManager) -> None:
    site.plugin("echo", OK)
    with start_gateway(site, manager) as process:
        ready = manager.until("READY")
        assert ready == {"READY": "1", "STATUS": "0 running, 0 queued, 1 plugins"}
        assert Client(site.state / "ductile.sock").get("/healthz").status == 200
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        process.send_signal(signal.SIGHUP)
        reloading = manager.until("RELOADING")
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        assert before <= int(reloading["MONOTONIC_USEC"]) <= after
        assert manager.until("READY")["STATUS"] == "Reloaded"
        process.send_signal(signal.SIGTERM)
        stopping = manager.until("STOPPING")
        assert int(stopping["EXTEND_TIMEOUT_USEC"]) == 40_000_000
        assert process.wait(WAIT_LIMIT) == 0
    assert manager.is_silent(0.05)


def test_refused_reload_reports_ready_again(site: Site, manager: ServiceManager) -> None:
    with start_gateway(site, manager) as process:
        manager.until("READY")
        (site.folder / "config.yaml").write_text("nonsense: [")
        process.send_signal(signal.SIGHUP)
        manager.until("RELOADING")
        assert "refused" in manager.until("READY")["STATUS"]


def test_reload_through_the_api_is_reported(site: Site, manager: ServiceManager) -> None:
    with start_gateway(site, manager):
        manager.until("READY")
        assert Client(site.state / "ductile.sock").post("/system/reload", {}).status == 200
        manager.until("RELOADING")
        manager.until("READY")


def test_failed_start_never_reports_ready(site: Site, manager: ServiceManager) -> None:
    site.settings["service"]["nonsense"] = True
    with start_gateway(site, manager) as process:
        assert process.wait(WAIT_LIMIT) == 78
    assert manager.is_silent(0.05)


def test_watchdog_is_pinged_twice_per_timeout(site: Site, listener: ServiceManager) -> None:
    with start_gateway(site, listener, WATCHDOG_USEC="4000000"):
        listener.until("READY")
        assert listener.next()["WATCHDOG"] == "1"
        assert listener.is_silent(0.3)
        assert listener.next()["WATCHDOG"] == "1"


def test_plugins_and_runner_do_not_inherit_the_notify_socket(
    site: Site, manager: ServiceManager
) -> None:
    site.plugin("echo", f"env > {site.folder}/env\n{OK}")
    site.settings["service"]["plugin_env_passthrough"] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "MINE"]
    with start_gateway(site, manager, WATCHDOG_USEC="60000000", MINE="1") as process:
        manager.until("READY")
        assert Client(site.state / "ductile.sock").post("/plugin/echo/poll", {}).status == 202
        until(
            lambda: (site.folder / "env").exists() and "MINE" in (site.folder / "env").read_text()
        )
        environment = (site.folder / "env").read_text()
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        runner = environment_of(int(children[0]))
    assert "NOTIFY_SOCKET" not in environment
    assert "WATCHDOG_USEC" not in environment
    assert "NOTIFY_SOCKET" not in runner


def test_allowlist_never_passes_the_notify_variables() -> None:
    environ = {"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "A": "1"}
    assert plugin_environment(environ, [*environ], "boot").keys() == {"A", "PATH", "DUCTILE_BOOT"}


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "7"}, 3.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({}, None),
    ],
)
def test_watchdog_timeout_from_the_environment(
    environ: dict[str, str], seconds: float | None
) -> None:
    assert Notifier.from_environment({"NOTIFY_SOCKET": "/x", **environ}, 7).watchdog == seconds
    assert Notifier.from_environment(environ, 7).watchdog is None


def test_nothing_is_sent_without_a_service_manager(tmp_path: Path) -> None:
    Notifier.from_environment({}, 1).send_ready("x")
    Notifier(str(tmp_path / "nobody")).send_ready("x")
    Notifier("").send_ready("x")
    with Notifier(None).reloading():
        pass


def test_status_is_one_line(site: Site) -> None:
    manager = ServiceManager(str(site.folder / "notify"))
    Notifier(manager.address).send_ready("a\nSTOPPING=1\n b")
    assert manager.next() == {"READY": "1", "STATUS": "a STOPPING=1 b"}
    manager.close()


# The liveness check


def test_hanging_writer_stops_the_watchdog_pings(site: Site, listener: ServiceManager) -> None:
    with site.running() as running:
        notifier, liveness = Notifier(listener.address, watchdog=0.2), Liveness(running.gateway)
        with report_ready(notifier, liveness):
            listener.until("READY")
            assert listener.next()["WATCHDOG"] == "1"
            hangs, goes_on = threading.Event(), threading.Event()

            def hang(_tx: object) -> None:
                hangs.set()
                assert goes_on.wait(WAIT_LIMIT)

            running.gateway.ledger.submit(hang, lambda _result, _error: None)
            assert hangs.wait(WAIT_LIMIT)
            until(lambda: liveness._waiting)
            listener.discard()
            assert listener.is_silent(0.8)
            goes_on.set()
            assert listener.next()["WATCHDOG"] == "1"


def test_error_of_the_ledger_counts_as_alive(site: Site, listener: ServiceManager) -> None:
    with site.running() as running:
        ledger = running.gateway.ledger
        running.gateway.stop()
        ledger.close()
        assert (
            Liveness(running.gateway).check(threading.Event(), 1.0)
            != "the ledger's writer does not respond"
        )


def test_pending_ping_is_not_repeated(site: Site) -> None:
    asked: list[object] = []
    with site.running() as running:
        liveness = Liveness(running.gateway, [("a friend", asked.append)])
        for _ in range(3):
            assert liveness.check(threading.Event(), 0.0) == "a friend does not respond"
        assert len(asked) == 1
        asked[0]()  # type: ignore[operator]
        assert liveness.check(threading.Event(), 0.0) is None
        assert len(asked) == 1


def test_hanging_loop_is_detected(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_TICK", 0.05)
    with site.running() as running:
        liveness = Liveness(running.gateway)
        assert liveness.check(threading.Event(), WAIT_LIMIT) is None
        hangs, goes_on = threading.Event(), threading.Event()

        def tick(_now: object) -> float:
            hangs.set()
            assert goes_on.wait(WAIT_LIMIT)
            return 60.0

        for name, trouble in (("retention", None), ("scheduler", "the loop scheduler hangs")):
            hangs.clear()
            goes_on.clear()
            loop = running.gateway.loops[name]
            monkeypatch.setattr(loop, "_tick", tick)
            loop.wake()
            assert hangs.wait(WAIT_LIMIT)
            until(lambda loop=loop: loop.current_tick_seconds() > 0.05)  # type: ignore[misc]
            assert liveness.check(threading.Event(), WAIT_LIMIT) == trouble
            goes_on.set()


def test_hanging_dispatcher_is_detected(site: Site) -> None:
    goes_on = threading.Event()
    with site.running() as running:
        running.gateway.ask_dispatcher(lambda: goes_on.wait(WAIT_LIMIT) and None)
        liveness = Liveness(running.gateway)
        assert liveness.check(threading.Event(), 0.1) == "the dispatcher does not respond"
        goes_on.set()
        assert liveness.check(threading.Event(), WAIT_LIMIT) is None


def test_ended_dispatcher_is_detected(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with site.running() as running:
        gone = threading.Thread(target=lambda: None, name="dispatcher")
        gone.start()
        gone.join()
        with monkeypatch.context() as patch:
            patch.setattr(running.gateway, "_dispatching", gone)
            liveness = Liveness(running.gateway)
            assert liveness.check(threading.Event(), WAIT_LIMIT) == "the dispatcher has ended"


def test_watchdog_stops_at_once_during_a_check(site: Site, listener: ServiceManager) -> None:
    with site.running() as running:
        liveness = Liveness(running.gateway, [("a friend", lambda _answered: None)])
        # Longer than the time limit of this test: a stop that waits for the response would fail.
        watchdog = Watchdog(Notifier(listener.address, watchdog=36_000.0), liveness)
        watchdog.start()
        watchdog.stop()
    assert listener.is_silent(0.01)
