"""`logs` and `job logs`: names that nobody knows are no empty answer."""

from __future__ import annotations

import pytest

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
