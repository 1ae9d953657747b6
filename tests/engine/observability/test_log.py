"""Log lines: their format, and that a broken log does not stop the work."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ductile import log
from ductile.core.values.redact import Redactor
from ductile.engine.workspaces import Workspaces
from ductile.log import configure, logger
from ductile.store.jobs.read import JobFilter, list_jobs
from tests.engine.site import OK, Site
from tests.waiting import WAIT_LIMIT, until


class BrokenStream:
    """A standard output that raises on every write."""

    def __init__(self, error: OSError) -> None:
        self.buffer = self
        self._error = error

    def write(self, data: bytes) -> int:
        raise self._error

    def flush(self) -> None:
        raise self._error

    def isatty(self) -> bool:
        return False


class Output:
    def __init__(self, capture: pytest.CaptureFixture[bytes]) -> None:
        self._capture = capture

    def bytes(self) -> bytes:
        return self._capture.readouterr().out

    def lines(self) -> list[str]:
        return self.bytes().decode().split("\n")[:-1]


@pytest.fixture
def out(capsysbinary: pytest.CaptureFixture[bytes]) -> Iterator[Output]:
    configure("debug", "json", Redactor())
    yield Output(capsysbinary)
    configure("info", "json", Redactor())


def test_line_is_one_json_object_with_ordered_fields(out: Output) -> None:
    logger("worker").info("job succeeded", attempt=1, job_id="j", plugin="echo", none=None)
    [line] = out.lines()
    document = json.loads(line)
    assert list(document) == [
        "timestamp",
        "level",
        "component",
        "plugin",
        "job_id",
        "message",
        "attempt",
    ]
    assert (document["level"], document["component"]) == ("info", "worker")
    assert document["timestamp"].endswith("Z")


@pytest.mark.parametrize(
    ("level", "shown"),
    [("debug", 4), ("info", 3), ("warn", 2), ("warning", 2), ("error", 1), ("nonsense", 3)],
)
def test_lines_below_the_level_are_omitted(out: Output, level: str, shown: int) -> None:
    configure(level, "json")
    x = logger("x")
    x.debug("a"), x.info("b"), x.warning("c"), x.error("d")
    assert len(out.lines()) == shown


def test_line_breaks_in_a_message_are_escaped(out: Output) -> None:
    logger("x").info("two\nlines", more="a\r\nb\u2028c")
    assert out.bytes().count(b"\n") == 1


HOSTILE = "x\n12:00:00.000 error gateway   forged\r\x1b[2J\x9b2J\u202e\u2028"


@pytest.mark.parametrize("form", ["json", "text"])
def test_control_characters_of_plugins_are_escaped(out: Output, form: str) -> None:
    configure("debug", form)
    logger("worker").info(HOSTILE, plugin=HOSTILE, stderr=HOSTILE, more={HOSTILE: [HOSTILE]})
    [line] = out.lines()
    assert line.isprintable()
    assert "\\n12:00:00.000 error gateway   forged\\r\\" in line


def test_lines_of_a_trace_cannot_look_like_log_lines(out: Output) -> None:
    configure("debug", "text")
    logger("worker").crash("a request failed", ValueError(HOSTILE))
    first, *trace = out.lines()
    assert "a request failed" in first
    assert any("forged" in line for line in trace)
    assert all(line.startswith("  ") and line.isprintable() for line in trace)


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_with_control_characters_are_redacted(out: Output, form: str) -> None:
    configure("debug", form, Redactor(["secret\x01\nvalue\u0085"]))
    logger("x").info("a secret\x01\nvalue\u0085", stderr="b secret\x01\nvalue\u0085")
    assert out.bytes().count(b"[REDACTED]") == 2


def test_text_format(out: Output) -> None:
    configure("info", "text")
    logger("worker").warning("stderr", plugin="echo", stderr="oops")
    [line] = out.lines()
    assert "warn" in line
    assert "plugin=echo stderr=oops" in line


def test_crash_is_logged_with_its_trace(out: Output) -> None:
    try:
        raise ValueError("here")
    except ValueError as error:
        logger("x").crash("a request failed", error)
    assert "ValueError: here" in json.loads(out.lines()[0])["trace"]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_are_redacted_in_fields_message_and_trace(out: Output, form: str) -> None:
    configure("debug", form, Redactor(['secret"quoted1']))
    x = logger("x")
    x.info('said secret"quoted1', stderr='secret"quoted1')
    x.crash("bug", ValueError('secret"quoted1'))
    assert b"quoted1" not in out.bytes()


@pytest.mark.parametrize(
    "value",
    ["\ud800", b"bytes", sys, {"a": {1, 2}}, float("nan"), 2**80, {1: 2}, ["\udcff"]],
    ids=["surrogate", "bytes", "module", "set", "nan", "large", "number-key", "file-name"],
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_any_value_can_be_logged(out: Output, value: object, form: str) -> None:
    """A file name that is not UTF-8 contains a lone surrogate."""
    configure("debug", form)
    logger("x").info("odd", value=value)
    assert len(out.lines()) == 1


def test_batched_lines_are_written_at_the_end(out: Output) -> None:
    with log.batch_lines():
        logger("worker").info("one")
        logger("worker").info("two")
        assert out.bytes() == b""
    assert [json.loads(line)["message"] for line in out.lines()] == ["one", "two"]


def test_batched_lines_are_written_after_an_exception(out: Output) -> None:
    def broken() -> None:
        with log.batch_lines():
            logger("worker").info("one")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        broken()
    assert len(out.lines()) == 1
    logger("worker").info("two")
    assert len(out.lines()) == 1


def test_batch_does_not_delay_other_threads(out: Output) -> None:
    with log.batch_lines():
        logger("worker").info("ours")
        other = threading.Thread(target=logger("http").info, args=("theirs",))
        other.start()
        other.join()
        assert [json.loads(line)["message"] for line in out.lines()] == ["theirs"]


def test_dropped_lines_of_a_batch_are_counted_individually(
    out: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", BrokenStream(OSError(errno.ENOSPC, "full")))
        with log.batch_lines():
            for number in range(40):
                logger("worker").info("x" * 500, number=number)
    logger("worker").info("again")
    messages = [json.loads(line)["message"] for line in out.lines()]
    assert messages == ["40 log lines could not be written", "again"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        BrokenPipeError(errno.EPIPE, "Broken pipe"),
        OSError(errno.EIO, "I/O error"),
    ],
    ids=["full", "closed", "io"],
)
def test_unwritable_log_does_not_stop_the_work(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """The reader is gone or the disk is full; jobs run anyway."""
    site.settings["service"]["log_level"] = "debug"
    site.plugin("echo", OK)
    with site.running() as running:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", BrokenStream(error))
            # More than there are workers.
            for _ in range(5):
                id = running.put("echo")
                until(lambda id=id: running.job(id)["status"] == "succeeded")
        assert running.run("echo")["status"] == "succeeded"


def test_closed_stdout_does_not_stop_the_work(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.TextIOWrapper(io.BytesIO())
    closed.close()
    site.settings["service"]["log_level"] = "debug"
    site.plugin("echo", OK)
    with site.running() as running, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", closed)
        for _ in range(5):
            id = running.put("echo")
            until(lambda id=id: running.job(id)["status"] == "succeeded")


class PipeReader:
    """The reader of a pipe that receives the log lines inside of `with`."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        os.set_blocking(self._read, False)
        self._stdout = os.fdopen(write, "w")

    def __enter__(self) -> None:
        self._before, sys.stdout = sys.stdout, self._stdout

    def __exit__(self, *_: object) -> None:
        sys.stdout = self._before

    def all(self) -> bytes:
        found = b""
        while chunk := self._chunk():
            found += chunk
        return found

    def _chunk(self) -> bytes:
        try:
            return os.read(self._read, 1 << 20)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self._stdout.close()
        os.close(self._read)


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[PipeReader]:
    # Dropped lines of other tests must not be counted here, nor the other way round.
    monkeypatch.setattr(log, "_sink", log._Sink())
    monkeypatch.setattr(log, "MAX_BLOCKED", 0.01)
    reader = PipeReader()
    yield reader
    reader.close()


def find_lines(out: Output, message: str) -> list[dict[str, Any]]:
    """The lines with this message."""
    lines = (json.loads(line) for line in out.lines())
    return [line for line in lines if line["message"] == message]


def test_plugin_stderr_is_logged_as_a_warning(site: Site, out: Output) -> None:
    site.settings["service"]["log_level"] = "warn"
    site.plugin("echo", "echo careful >&2\n" + OK)
    with site.running() as running:
        id = running.run("echo")["id"]
    [line] = find_lines(out, "stderr")
    assert (line["level"], line["plugin"], line["job_id"]) == ("warn", "echo", id)
    assert line["stderr"] == "careful\n"


def test_job_that_cannot_run_now_is_logged_as_a_warning(
    site: Site, out: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "it is full")

    site.settings["service"] |= {"log_level": "warn", "workspaces": True}
    site.plugin("echo", OK)
    monkeypatch.setattr(Workspaces, "provide", full)
    with site.running() as running:
        id = running.put("echo")
        running.notice("job.retrying", id)
    # After the stop everything that was settled is logged.
    [line] = find_lines(out, "job cannot run here now; requeued")
    assert (line["level"], line["job_id"]) == ("warn", id)
    assert line["error"] == "no workspace: it is full"


@pytest.fixture
def library() -> Iterator[logging.Logger]:
    """The logger of a library that the gateway adopts."""
    name = f"library-{id(object())}"
    log.adopt(name, "ledger")
    yield logging.getLogger(f"{name}.part")
    logging.getLogger(name).handlers.clear()


def test_line_with_a_number_that_equals_a_secret_is_valid_json(out: Output) -> None:
    configure("debug", "json", Redactor(["123456789"]))
    log.logger("http").info("sent", chat_id=123456789)
    [line] = out.lines()
    assert json.loads(line)["chat_id"] == "[REDACTED]"


def test_library_warnings_are_logged(out: Output, library: logging.Logger) -> None:
    configure("debug", "json", Redactor(["quite-a-secret"]))
    library.info("all is well")
    library.warning("error connecting in %r: %s", "pool-1", "refused\nquite-a-secret")
    library.error("gone")
    first, second = (json.loads(line) for line in out.lines())
    assert (first["level"], first["component"]) == ("warn", "ledger")
    assert first["message"] == "error connecting in 'pool-1': refused\n[REDACTED]"
    assert (second["level"], second["message"]) == ("error", "gone")


def test_repeated_library_message_is_rate_limited(
    out: Output, library: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("ductile.log.time.monotonic", lambda: now)
    for number in range(50):
        library.warning("error connecting: %s", number)
    library.warning("something else")
    now += log.BETWEEN_REPEATS
    library.warning("error connecting: %s", "last")
    messages = [json.loads(line)["message"] for line in out.lines()]
    assert messages == ["error connecting: 0", "something else", "error connecting: last"]


def test_library_messages_are_not_written_to_a_commands_stdout(
    out: Output, library: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "_sink", log._Sink())
    library.warning("error connecting")
    assert out.lines() == []


def test_library_logger_adopted_twice_logs_once(out: Output, library: logging.Logger) -> None:
    assert library.parent is not None
    log.adopt(library.parent.name, "ledger")
    library.warning("gone")
    assert len(out.lines()) == 1


def make_emitter(*events: dict[str, Any]) -> str:
    return f"echo '{json.dumps({'status': 'ok', 'result': 'done', 'events': events})}'\n"


def test_event_without_consumer_is_logged_at_debug(site: Site, out: Output) -> None:
    """docs/specification.md, "Routes". The event of a pipeline's last step does not count."""
    site.settings["service"]["log_level"] = "debug"
    site.settings["routes"] = [{"from": "source", "event_type": "taken", "to": "sink"}]
    never = {"path": "payload.never", "op": "exists"}
    site.settings["pipelines"] = [
        {"name": "picky", "on": "refused", "if": never, "steps": [{"uses": "sink"}]}
    ]
    site.plugin("source", make_emitter({"type": "taken"}, {"type": "lost"}, {"type": "refused"}))
    site.plugin("sink", OK)
    with site.running() as running:
        id = running.run("source")["id"]
    lines = find_lines(out, "event has no consumer")
    assert [line["event_type"] for line in lines] == ["lost", "refused"]
    assert {(line["level"], line["plugin"], line["job_id"]) for line in lines} == {
        ("debug", "source", id)
    }


@pytest.mark.parametrize("to", ["route", "pipeline"])
def test_deduplicated_event_is_logged_at_info(site: Site, out: Output, to: str) -> None:
    site.settings["service"]["log_level"] = "info"
    if to == "route":
        site.settings["routes"] = [{"from": "source", "event_type": "e", "to": "sink"}]
    else:
        site.settings["pipelines"] = [{"name": "p", "on": "e", "steps": [{"uses": "sink"}]}]
    site.plugin("source", make_emitter({"type": "e", "dedupe_key": "k"}))
    site.plugin("sink", OK)
    with site.running() as running:
        running.run("source")
        wanted = JobFilter(plugin="sink")
        [sink] = running.gateway.ledger.read(lambda tx: list_jobs(tx, wanted, limit=10))
        running.ended(sink["id"])
        running.run("source")
    [line] = find_lines(out, "deduplicated")
    assert (line["level"], line["plugin"], line["job_id"]) == ("info", "sink", sink["id"])
    assert (line["dedupe_key"], line["submitted_by"]) == ("k", "route")


def test_slow_reader_gets_the_number_of_dropped_lines(reader: PipeReader) -> None:
    with reader:
        for number in range(2000):
            logger("x").info("a line", number=number)
        lines = [json.loads(line) for line in reader.all().splitlines()]
        logger("x").info("again")
    kept = len(lines)
    assert 0 < kept < 2000
    assert [line["number"] for line in lines] == list(range(kept))
    reported, again = [json.loads(line) for line in reader.all().splitlines()]
    assert reported["message"] == f"{2000 - kept} log lines could not be written"
    assert (reported["level"], again["message"]) == ("warn", "again")


def test_truncated_line_does_not_damage_others(reader: PipeReader) -> None:
    with reader:
        logger("x").info("large", text="x" * 1_000_000)
        assert not reader.all().endswith(b"\n")
        logger("x").info("again")
    assert reader.all().startswith(b'\n{"timestamp"')


def test_large_line_arrives_complete(reader: PipeReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "MAX_BLOCKED", 10.0)
    found = [b""]

    def read() -> None:
        while not found[-1].endswith(b"\n"):
            found.append(reader.all())

    thread = threading.Thread(target=read)
    thread.start()
    with reader:
        logger("x").info("large", text="x" * 1_000_000)
    thread.join(WAIT_LIMIT)
    assert json.loads(b"".join(found))["text"] == "x" * 1_000_000


def test_unread_log_blocks_neither_work_nor_stop(site: Site, reader: PipeReader) -> None:
    site.plugin("echo", OK, manifest="concurrency_safe: true\n")
    with reader:
        logger("x").info("large", text="x" * 1_000_000)
        with site.running() as running:
            for id in [running.put("echo") for _ in range(5)]:
                until(lambda id=id: running.job(id)["status"] == "succeeded")


def test_success_without_a_result_is_logged(site: Site, out: Output) -> None:
    site.settings["service"]["log_level"] = "warn"
    site.plugin("silent", """echo '{"status": "ok"}'\n""")
    site.plugin("echo", OK)
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
        job = running.run("silent")
    assert job["status"] == "succeeded"
    [line] = [json.loads(line) for line in out.lines()]
    assert (line["level"], line["plugin"], line["job_id"]) == ("warn", "silent", job["id"])
    assert "result" in line["message"]
