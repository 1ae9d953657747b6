"""`ductile system relays` and `system resend`."""

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
    page: list[dict[str, object]] = house("system", "relays", "--json", *more).json["relays"]
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
        assert "lab" in relaying("system", "relays").out
        assert "nothing was relayed" in relaying("system", "relays", "--status", "dead").out


class TestResend:
    def test_one_or_all_must_be_said(self, relaying: House) -> None:
        assert relaying("system", "resend").code == 2
        assert relaying("system", "resend", "x", "--all-dead").code == 2

    def test_an_unknown_one(self, relaying: House) -> None:
        assert relaying("system", "resend", "nope").code == 1

    def test_all_dead_with_none_dead(self, relaying: House) -> None:
        done = relaying("system", "resend", "--all-dead", "--dry-run", "--json")
        assert (done.json["count"], done.json["dry_run"]) == (0, True)
        assert relaying("system", "resend", "--all-dead").out == "sending 0 relays again\n"

    def test_one_that_failed_does_not_wait_for_its_time(self, relaying: House) -> None:
        [row] = relays(relaying)
        id = str(row["id"])
        would = relaying("system", "resend", id, "--dry-run")
        assert would.out == f"would send {id} again\n"
        assert relays(relaying) == [row]
        assert relaying("system", "resend", id).out == f"sending {id} again\n"
        [row] = relays(relaying)
        assert (row["status"], row["attempt_count"]) == ("pending", 0)

    def test_one_that_waits_anyway_is_refused(self, relaying: House) -> None:
        id = str(relays(relaying)[0]["id"])
        relaying("system", "resend", id)
        refused = relaying("system", "resend", id, "--json")
        assert (refused.code, refused.json["code"]) == (1, "refused")
