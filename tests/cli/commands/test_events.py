"""`ductile events follow`: from a cursor, live, by topic."""

from __future__ import annotations

import json
import threading

import pytest

from ductile.cli import main
from tests.cli.runner import CliRunner
from tests.http.harness import running_api
from tests.waiting import WAIT_LIMIT


def test_events_are_printed_from_a_cursor_and_live(
    cli: CliRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_api(working=False) as own:
        job_id = own.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
        line = ["events", "follow", "--after", "0", "--topic", "jobs", "--config", str(own.root)]
        capsys.readouterr()
        assert main([*line, "--count", "1", "--json"]) == 0
        event = json.loads(capsys.readouterr().out)
        assert (event["type"], event["data"]["job_id"]) == ("job.queued", job_id)
        done: list[int] = []
        follower = threading.Thread(target=lambda: done.append(main([*line, "--count", "2"])))
        follower.start()
        own.ask("POST", "/plugin/echo/poll", "{}")
        follower.join(WAIT_LIMIT)
        assert done == [0]
        assert capsys.readouterr().out.count("job.queued") == 2


def test_follow_without_a_running_gateway(cli: CliRunner) -> None:
    answer = cli("events", "follow", "--json")
    assert (answer.code, answer.json["code"]) == (1, "not_running")
