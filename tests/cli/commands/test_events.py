"""`ductile events follow`: over the local socket, resumed, filtered."""

from __future__ import annotations

import json
import threading

import pytest

from ductile.cli import main
from tests.cli.running import House
from tests.http.harness import running_api
from tests.waiting import WAIT_LIMIT


def test_events_are_followed(house: House, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_without_a_gateway_there_is_nothing_to_follow(house: House) -> None:
    answer = house("events", "follow", "--json")
    assert (answer.code, answer.json["code"]) == (1, "not_running")
