"""`logs` and `job logs`: names that nobody knows are no empty answer."""

from __future__ import annotations

import apsw
import pytest

from ductile.cli.commands import events
from ductile.store.jobs import attempts
from tests.cli.running import House

LINES = (("logs",), ("job", "logs", "--plugin"), ("job", "list", "--plugin"))


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_unknown_plugin_is_refused_with_the_nearest(house: House, line: tuple[str, ...]) -> None:
    refused = house(*line, "helo")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == "error: unknown plugin 'helo'; did you mean 'hello'?\n"


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_plugin_that_has_not_run_has_said_nothing(house: House, line: tuple[str, ...]) -> None:
    done = house(*line, "hello")
    assert done.code == 0
    assert done.out.startswith("no ")


def test_a_plugin_that_is_gone_is_known_by_its_log(house: House) -> None:
    house("run", "hello")
    (house.root / "plugins" / "hello" / "manifest.yaml").unlink()
    house.write("config.yaml", "plugin_roots: [./plugins]\nstate: {path: ./data/state.db}\n")
    assert "hello poll" in house("logs", "hello").out
    assert house("logs", "hello", "--status", "dead").out == "no attempts\n"


@pytest.mark.parametrize("typed", ["123", "01a1e070"])
def test_an_unknown_job_has_no_logs_to_show(house: House, typed: str) -> None:
    refused = house("job", "logs", typed)
    assert (refused.code, refused.err) == (1, f"error: there is no job {typed}\n")


def test_the_log_is_filtered_as_the_go_program_filters_it(house: House) -> None:
    house("run", "hello")
    [entry] = house("job", "logs", "--json").json["logs"]
    ended = entry["completed_at"]
    assert entry["result"] is None
    for line in (
        ("--from", ended, "--to", ended, "--limit", "200"),
        ("--status", "ok", "--command", "poll", "--submitted-by", "cli"),
        ("--query", '"STATUS":', "--plugin", "hello"),
    ):
        assert house("job", "logs", *line, "--json").json["logs"] == [entry]
    for line in (("--from", "2090-01-01T00:00:00Z"), ("--query", "nothing"), ("--status", "error")):
        assert house("job", "logs", *line).out == "no attempts\n"


def test_responses_are_shown_where_they_are_asked_for(house: House) -> None:
    house("run", "hello")
    [entry] = house("job", "logs", "--include-result", "--json").json["logs"]
    assert entry["result"]["status"] == "ok"
    assert "response" in house("job", "logs", "--include-result").out
    assert "response" not in house("job", "logs").out


def test_pages_that_end_early_are_put_together(house: House) -> None:
    for _ in range(3):
        house("run", "hello")
    whole = house("job", "logs", "--json").json
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "PAGE_BYTES", 1)
        assert house("job", "logs", "--json").json == whole
        assert len(house("job", "logs", "--limit", "2", "--json").json["logs"]) == 2


def test_a_notice_whose_payload_is_no_object_is_shown(house: House) -> None:
    house("run", "hello")
    beside = apsw.Connection(str(house.state / "state.db"))
    beside.execute(
        "INSERT INTO notices (topic, type, payload, created_at) VALUES "
        "('agent:a:mailbox', 'reminder', '[1, 2]', '2099-01-01T00:00:00.000000Z')"
    )
    beside.close()
    shown = house("logs")
    assert (shown.code, shown.err) == (0, "")
    assert "[1, 2]" in shown.out
    assert "reminder" not in house("logs", "hello").out


@pytest.mark.parametrize("data", [[1, 2], "text", None, 5])
def test_an_event_whose_payload_is_no_object_is_shown(
    data: object, capsys: pytest.CaptureFixture[str]
) -> None:
    events._show({"at": "2026-02-08T10:00:00.000000Z", "type": "reminder", "data": data})
    assert "reminder" in capsys.readouterr().out
