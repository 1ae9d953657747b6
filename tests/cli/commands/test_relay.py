"""`ductile relay list` and `relay retry`."""

from __future__ import annotations

import pytest

from tests.cli.running import House
from tests.waiting import until

CONFIG = """\
service: {shutdown_grace: 0s, max_workers: 1}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
instances:
  - {name: lab, base_url: "http://127.0.0.1:9", ingress_path: /x, secret: a-shared-secret}
pipelines:
  - {name: p, on: go, steps: [{relay: {to: lab, event: made}}]}
"""


@pytest.fixture
def relaying(house: House) -> House:
    """Has tried once to relay to a gateway that is not there."""
    house.write("config.yaml", CONFIG)
    with house.gateway():
        done = house("pipeline", "run", "p", "--json")
        assert done.json["status"] == "succeeded", done
        until(lambda: relays(house)[0]["status"] == "failed")
    return house


def relays(house: House, *more: str) -> list[dict[str, object]]:
    page: list[dict[str, object]] = house("relay", "list", "--json", *more).json["relays"]
    return page


class TestListing:
    def test_what_was_relayed(self, relaying: House) -> None:
        [row] = relays(relaying)
        assert (row["instance"], row["event_type"]) == ("lab", "made")
        assert "body" not in row

    def test_by_status_and_instance(self, relaying: House) -> None:
        assert relays(relaying, "--status", "dead") == []
        assert relays(relaying, "--instance", "elsewhere") == []
        assert len(relays(relaying, "--instance", "lab")) == 1

    def test_for_people(self, relaying: House) -> None:
        assert "lab" in relaying("relay", "list").out
        assert "no relays" in relaying("relay", "list", "--status", "dead").out


class TestRetry:
    def test_one_or_all_must_be_said(self, relaying: House) -> None:
        assert relaying("relay", "retry").code == 2
        assert relaying("relay", "retry", "x", "--all-dead").code == 2

    def test_an_unknown_one(self, relaying: House) -> None:
        assert relaying("relay", "retry", "nope").code == 1

    def test_all_dead_with_none_dead(self, relaying: House) -> None:
        done = relaying("relay", "retry", "--all-dead", "--dry-run", "--json")
        assert (done.json["count"], done.json["dry_run"]) == (0, True)
        assert relaying("relay", "retry", "--all-dead").out == "retrying 0 relays\n"

    def test_one_that_failed_does_not_wait_for_its_time(self, relaying: House) -> None:
        [row] = relays(relaying)
        id = str(row["id"])
        would = relaying("relay", "retry", id, "--dry-run")
        assert would.out == f"would retry relay {id}\n"
        assert relays(relaying) == [row]
        assert relaying("relay", "retry", id).out == f"retrying relay {id}\n"
        [row] = relays(relaying)
        assert (row["status"], row["attempt_count"]) == ("pending", 0)

    def test_one_that_waits_anyway_is_refused(self, relaying: House) -> None:
        id = str(relays(relaying)[0]["id"])
        relaying("relay", "retry", id)
        refused = relaying("relay", "retry", id, "--json")
        assert (refused.code, refused.json["code"]) == (1, "refused")
