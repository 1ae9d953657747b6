"""`ductile logs` and `ductile job logs`: filters, pages, unknown names."""

from __future__ import annotations

import json
import os

import apsw
import pytest

from ductile.cli.commands import events
from ductile.store.jobs import attempts
from tests.cli.runner import CliRunner, read_until, stop
from tests.waiting import WAIT_LIMIT, until

LINES = (("logs",), ("job", "logs", "--plugin"), ("job", "list", "--plugin"))


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_an_unknown_plugin_gives_a_suggestion(cli: CliRunner, line: tuple[str, ...]) -> None:
    refused = cli(*line, "helo")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("error: unknown plugin 'helo'; did you mean 'hello'?\n  run: ")


@pytest.mark.parametrize("line", LINES, ids=" ".join)
def test_a_plugin_without_attempts_has_empty_logs(cli: CliRunner, line: tuple[str, ...]) -> None:
    done = cli(*line, "hello")
    assert done.code == 0
    assert done.out.startswith("no ")


def test_a_removed_plugin_is_known_by_its_log(cli: CliRunner) -> None:
    cli("run", "hello")
    (cli.root / "plugins" / "hello" / "manifest.yaml").unlink()
    cli.write("config.yaml", "plugin_roots: [./plugins]\nstate: {path: ./data/state.db}\n")
    assert "hello poll" in cli("logs", "hello").out
    assert cli("logs", "hello", "--status", "dead").out == "no attempts\n"


@pytest.mark.parametrize("typed", ["123", "01a1e070"])
def test_logs_of_an_unknown_job_are_not_found(cli: CliRunner, typed: str) -> None:
    refused = cli("job", "logs", typed)
    assert refused.code == 1
    assert refused.err.startswith(f"error: there is no job {typed}\n  run: ductile job list")


def test_logs_accept_the_filters_of_the_go_program(cli: CliRunner) -> None:
    cli("run", "hello")
    [entry] = cli("job", "logs", "--json").json["logs"]
    ended = entry["completed_at"]
    assert entry["result"] is None
    for line in (
        ("--from", ended, "--to", ended, "--limit", "200"),
        ("--status", "ok", "--command", "poll", "--submitted-by", "cli"),
        ("--query", '"STATUS":', "--plugin", "hello"),
    ):
        assert cli("job", "logs", *line, "--json").json["logs"] == [entry]
    for line in (("--from", "2090-01-01T00:00:00Z"), ("--query", "nothing"), ("--status", "error")):
        assert cli("job", "logs", *line).out == "no attempts\n"


def test_responses_are_shown_on_request(cli: CliRunner) -> None:
    cli("run", "hello")
    [entry] = cli("job", "logs", "--include-result", "--json").json["logs"]
    assert entry["result"]["status"] == "ok"
    assert "response" in cli("job", "logs", "--include-result").out
    assert "response" not in cli("job", "logs").out


def test_short_pages_are_joined(cli: CliRunner) -> None:
    for _ in range(3):
        cli("run", "hello")
    whole = cli("job", "logs", "--json").json
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempts, "PAGE_BYTES", 1)
        assert cli("job", "logs", "--json").json == whole
        assert len(cli("job", "logs", "--limit", "2", "--json").json["logs"]) == 2


def test_a_notice_whose_payload_is_not_an_object_is_shown(cli: CliRunner) -> None:
    cli("run", "hello")
    other = apsw.Connection(str(cli.state / "state.db"))
    other.execute(
        "INSERT INTO notices (topic, type, payload, created_at) VALUES "
        "('agent:a:mailbox', 'reminder', '[1, 2]', '2099-01-01T00:00:00.000000Z')"
    )
    other.close()
    shown = cli("logs")
    assert (shown.code, shown.err) == (0, "")
    assert "[1, 2]" in shown.out
    assert "reminder" not in cli("logs", "hello").out


@pytest.mark.parametrize("data", [[1, 2], "text", None, 5])
def test_an_event_whose_data_is_not_an_object_is_shown(
    data: object, capsys: pytest.CaptureFixture[str]
) -> None:
    events._show({"at": "2026-02-08T10:00:00.000000Z", "type": "reminder", "data": data})
    assert "reminder" in capsys.readouterr().out


class TestFollow:
    SLOW = """\
#!/bin/sh
cat > /dev/null
printf 'first\\n\\033[31mred\\n' >&2
read go < '@gate@'
echo second >&2
echo '{"status":"ok","logs":[{"level":"info","message":"done"}]}'
"""

    @pytest.mark.parametrize("options", [("-f",), ()])
    def test_log_is_printed_as_it_is_written(
        self, cli: CliRunner, options: tuple[str, ...]
    ) -> None:
        gate = cli.root / "gate"
        os.mkfifo(gate)
        opened = os.open(gate, os.O_RDWR)
        cli.plugin("slow", self.SLOW.replace("@gate@", str(gate)))
        with cli.gateway():
            job_id = cli("run", "slow", "--async", "--json").json["job_id"]
            until(lambda: cli("job", "list", "--status", "running", "--json").json["jobs"])
            follower = cli.start("job", "logs", *options, job_id)
            assert read_until(follower, "red") == "first\n\\x1b[31mred\n"
            assert cli("job", "logs", job_id, "--json").json["logs"] == []
            assert cli("job", "logs", job_id, "--limit", "1", "--status", "failed").code == 0
            os.write(opened, b"go\n")
            assert follower.wait(WAIT_LIMIT) == 0
            stop(follower)
        os.close(opened)

    def test_ended_job_is_printed_whole(self, cli: CliRunner) -> None:
        with cli.gateway():
            job_id = cli("run", "hello", "--json").json["job_id"]
            answer = cli("job", "logs", "-f", job_id)
            assert (answer.code, answer.err) == (0, "attempt 1 succeeded\njob succeeded\n")
            lines = cli("job", "logs", "-f", job_id, "--json").out.splitlines()
            assert [json.loads(line)["event"] for line in lines][-1] == "end"

    def test_job_id_and_gateway_are_required(self, cli: CliRunner) -> None:
        assert cli("job", "logs", "-f").code == 2
        refused = cli("job", "logs", "-f", "123", "--json")
        assert (refused.code, refused.json["code"]) == (1, "not_running")
