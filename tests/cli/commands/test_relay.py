"""`ductile relay list` and `relay retry`."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner
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
def relaying(cli: CliRunner) -> CliRunner:
    """A configuration with one failed relay, to a gateway that is not running."""
    cli.write("config.yaml", CONFIG)
    with cli.gateway():
        done = cli("pipeline", "run", "p", "--json")
        assert done.json["status"] == "succeeded", done
        until(lambda: relays(cli)[0]["status"] == "failed")
    return cli


def relays(cli: CliRunner, *more: str) -> list[dict[str, object]]:
    page: list[dict[str, object]] = cli("relay", "list", "--json", *more).json["relays"]
    return page


def test_relays_are_listed_without_bodies(relaying: CliRunner) -> None:
    [row] = relays(relaying)
    assert (row["instance"], row["event_type"]) == ("lab", "made")
    assert "body" not in row
    assert relays(relaying, "--status", "dead") == []
    assert relays(relaying, "--instance", "elsewhere") == []
    assert len(relays(relaying, "--instance", "lab")) == 1
    assert "lab" in relaying("relay", "list").out
    assert relaying("relay", "list", "--status", "dead").out == "no relays\n"


def test_retry_needs_an_id_or_all_dead(cli: CliRunner) -> None:
    assert cli("relay", "retry").code == 2
    assert cli("relay", "retry", "x", "--all-dead").code == 2
    assert cli("relay", "retry", "unknown").code == 1


def test_retry_sends_a_failed_relay_now_and_refuses_a_pending_one(relaying: CliRunner) -> None:
    none_dead = relaying("relay", "retry", "--all-dead", "--dry-run", "--json")
    assert (none_dead.json["count"], none_dead.json["dry_run"]) == (0, True)
    assert relaying("relay", "retry", "--all-dead").out == "retrying 0 relays\n"
    [row] = relays(relaying)
    id = str(row["id"])
    assert relaying("relay", "retry", id, "--dry-run").out == f"would retry relay {id}\n"
    assert relays(relaying) == [row]
    assert relaying("relay", "retry", id).out == f"retrying relay {id}\n"
    [row] = relays(relaying)
    assert (row["status"], row["attempt_count"]) == ("pending", 0)
    refused = relaying("relay", "retry", id, "--json")
    assert (refused.code, refused.json["code"]) == (1, "refused")


def test_event_is_sent_without_a_pipeline(cli: CliRunner) -> None:
    cli.write("config.yaml", CONFIG.replace("a-shared-secret", "a-shared-secret, allow: [made]"))
    line = ("relay", "send", "lab", "--event", "made", "--payload", '{"n": 1}', "--dedupe-key", "k")
    assert cli(*line, "--dry-run").out == "would send made to lab\n"
    assert relays(cli) == []
    sent = cli(*line, "--json").json
    [row] = relays(cli)
    assert (row["id"], row["event_type"], row["job_id"]) == (sent["id"], "made", None)
    unknown = cli("relay", "send", "lb", "--event", "made", "--json")
    assert (unknown.code, unknown.json["code"]) == (1, "not_found")
    assert "did you mean 'lab'?" in unknown.json["error"]
    refused = cli("relay", "send", "lab", "--event", "other", "--json")
    assert (refused.code, refused.json["code"]) == (1, "refused")
    assert cli("relay", "send", "lab", "--event", "made", "--baggage", "[]").code == 2
    assert len(relays(cli)) == 1
