"""`ductile api` and `--api-url`: the running gateway, here and elsewhere."""

from __future__ import annotations

import pytest

from ductile.cli import main
from tests.cli.running import House
from tests.http.harness import ADMIN, running_api


def test_any_route_of_the_gateway_that_runs_here(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    with running_api() as own:

        def api(*line: str) -> tuple[int, str]:
            code = main(["api", *line, "--config", str(own.root)])
            return code, capsys.readouterr().out

        capsys.readouterr()
        assert '"status": "ok"' in api("/healthz")[1]
        assert api("healthz")[0] == 0
        code, out = api("/plugin/echo/poll", "-f", 'payload={"a": 1}', "-f", "dedupe_key=x")
        assert code == 0
        assert '"job_id"' in out
        assert '"jobs": []' in api("/jobs", "-X", "get", "-f", "plugin=nobody")[1]
        code, out = api("/job/x")
        assert (code, '"code": "not_found"' in out) == (1, True)
        assert api("/jobs", "--dry-run")[0] == 0
        assert api("/x", "-f", "novalue")[0] == 2
        assert api("/x", "-d", "{")[0] == 2


def test_a_gateway_elsewhere(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    with running_api() as own:
        url = "http://{}:{}".format(*own.address("api"))
        remote = ("--api-url", url, "--api-key", ADMIN)
        assert house("job", "list", *remote).code == 0
        assert house("token", "create", "far", "--scope", "jobs:ro", *remote).code == 0
        assert house("token", "list", "--json", *remote).json["tokens"][0]["name"] == "far"
        wrong = house("job", "list", "--json", "--api-url", url, "--api-key", "wrong")
        assert (wrong.code, wrong.json["code"]) == (1, "unauthorized")


@pytest.mark.parametrize("url", ["localhost:1", "ftp://x", "http://", "http://x:port"])
def test_what_is_no_address(house: House, url: str) -> None:
    assert house("job", "list", "--api-url", url).code == 2


def test_without_a_gateway(house: House) -> None:
    answer = house("api", "/healthz", "--json")
    assert (answer.code, answer.json["code"]) == (1, "not_running")
