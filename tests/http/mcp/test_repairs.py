"""Seven broken gateways, each diagnosed and repaired with MCP tools alone, in at most ten calls.

The agent is scripted, but knows only what the tools have returned. What is not broken must be the
same afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import apsw
import pytest

from tests.engine.receiver import receiving
from tests.http.harness import ECHO, ApiHarness, running_api
from tests.http.mcp.agent import MCP_CONFIG, Agent, ToolError, agent_of
from tests.waiting import WAIT_LIMIT, until

MOST_CALLS = 10
DEAD = "#!/bin/sh\nexit 78\n"
FLAKY = """\
#!/bin/sh
cat > /dev/null
[ -e "${0%/*}/../../repaired" ] || { echo 'no route' >&2; exit 1; }
echo '{"status":"ok","result":"done"}'
"""
BYSTANDER = """\
  bystander: {retry: {max_attempts: 1}, schedules: [{id: yearly, cron: "0 5 1 1 *"}]}
"""


@contextmanager
def broken(
    config: str, expected_actions: list[str], **plugins: str
) -> Iterator[tuple[ApiHarness, Agent]]:
    """A gateway with an unrelated dead job, which no repair may touch.

    Afterwards the audit log must have these actions of the agent, and no others.
    """
    given = {"echo": ECHO, "bystander": DEAD, **plugins}
    with running_api(MCP_CONFIG + config, plugins=given) as api:
        left = api.ask("POST", "/plugin/bystander/poll", {}).json["job_id"]
        assert api.ask("GET", f"/job/{left}?wait=60").json["status"] in ("dead", "failed")
        agent = agent_of(api)
        before = describe_bystander(api)
        yield api, agent
        assert describe_bystander(api) == before
        assert len(agent.calls) <= MOST_CALLS, agent.calls
        assert [row["action"] for row in audit_log(api)] == expected_actions


def audit_log(api: ApiHarness) -> list[dict[str, Any]]:
    return list(reversed(api.ask("GET", "/audit?limit=1000").json["entries"]))


def describe_bystander(api: ApiHarness) -> Any:
    jobs = api.ask("GET", "/jobs?plugin=bystander").json["jobs"]
    schedules = api.ask("GET", "/scheduler/jobs").json["schedules"]
    own = [(row["state"], row["rule"]) for row in schedules if row["plugin"] == "bystander"]
    attempts = len(api.ask("GET", "/job-logs?plugin=bystander").json["logs"])
    return jobs, own, attempts


def test_dead_job_after_an_upstream_changed() -> None:
    upstream = """\
#!/bin/sh
case $(cat) in
  *'"endpoint":"/v2"'*) echo '{"status":"ok","result":"fetched"}' ;;
  *) echo 'GET /v1: 410 Gone, moved to /v2' >&2
     echo '{"status":"error","error":"the upstream answered 410","retry":false}' ;;
esac
"""
    config = f"plugins:\n{BYSTANDER}  fetch: {{config: {{endpoint: /v1, other: kept}}}}\n"
    with broken(config, ["config.set", "config.reload", "job.retry"], fetch=upstream) as (
        api,
        agent,
    ):
        lost = api.ask("POST", "/plugin/fetch/poll", {"payload": {"day": 7}}).json["job_id"]
        api.ask("GET", f"/job/{lost}?wait=60")

        failures = agent.call("overview")["failures"]
        [failed] = [row for row in failures if row["plugin"] == "fetch"]
        job = agent.call("job", job_id=failed["job_id"])
        moved = re.search(r"moved to (\S+)", job["untrusted_log_tail"])
        assert moved is not None
        setting = {"path": "plugins.fetch.config.endpoint", "value": moved[1]}
        preview = agent.call("config", action="set", dry_run=True, **setting)
        assert [line for line in preview["diff"].splitlines() if line[0] in "+-"][2:] != []
        assert agent.call("config", action="set", **setting)["in_force"] is True
        agent.call("retry", job_id=failed["job_id"])
        ended = agent.call("job", job_id=failed["job_id"], wait_s=25)

        assert (failed["job_id"], ended["status"], ended["done"]) == (lost, "succeeded", True)
        assert ended["untrusted_payload"] == {"day": 7}
        assert "other: kept" in (api.root / "config.yaml").read_text()


def test_open_breaker() -> None:
    config = f"""\
plugins:
{BYSTANDER}  probe:
    retry: {{max_attempts: 1}}
    circuit_breaker: {{threshold: 1, reset_after: 24h}}
    schedules: [{{id: often, every: 1s}}]
"""
    with broken(config, ["plugin.test", "breaker.reset"], probe=FLAKY) as (api, agent):

        def breakers() -> list[dict[str, Any]]:
            return list(api.ask("GET", "/system/overview").json["breakers"])

        until(breakers)
        api.write("repaired", "")  # The network is back; the breaker would stay open for a day.

        [breaker] = agent.call("overview")["open_breakers"]
        plugin = breaker["plugin"]
        jobs = agent.call("jobs", plugin=plugin, limit=3)["jobs"]
        cause = agent.call("job", job_id=jobs[0]["job_id"])
        assert "no route" in cause["untrusted_log_tail"]
        trial = agent.call("plugin", action="test", name=plugin, command="poll")
        assert trial["status"] == "succeeded"
        reset = {"action": "reset_breaker", "kind": "plugin", "name": plugin}
        assert agent.call("pause", dry_run=True, **reset)["done"] is False
        assert breakers() != []
        assert agent.call("pause", **reset)["done"] is True
        assert "open_breakers" not in agent.call("overview")

        until(lambda: api.ask("GET", "/jobs?plugin=probe&status=succeeded").json["jobs"])


def test_pipeline_step_skipped_by_a_wrong_if() -> None:
    config = f"""\
plugins:
{BYSTANDER}  pay: {{}}
  read: {{}}
pipelines:
  - name: invoices
    on: invoice
    steps:
      - {{id: read, uses: read}}
      - {{id: pay, uses: pay, if: {{path: payload.amuont, op: gte, value: 1000}}}}
      - {{id: file, uses: echo}}
"""
    response = '{"status":"ok","result":"x","events":[{"type":"next","payload":{"amount":1250}}]}'
    emit = f"#!/bin/sh\ncat > /dev/null\necho '{response}'\n"
    with broken(config, ["config.set", "config.reload"], pay=emit, read=emit) as (api, agent):
        given = {"amount": 1250}
        api.ask("POST", "/pipeline/invoices?async=true", {"payload": given})

        def ended() -> bool:
            return bool(api.ask("GET", "/pipeline-runs").json["runs"][0]["ended_at"])

        until(ended)

        [run] = agent.call("runs", pipeline="invoices")["runs"]
        steps = agent.call("runs", run_id=run["instance_id"])["steps"]
        [skipped] = [step for step in steps if step["status"] == "not_run"]
        [decided] = [step for step in steps if step["plugin"] == "core.switch"]
        assert decided["untrusted_result"]["result"]["because"] == "payload.amuont does not exist"
        assert decided["untrusted_payload"]["payload"]["amount"] == 1250
        view = agent.call("config", action="view", path="pipelines.invoices.steps")
        at = [step["id"] for step in view["untrusted_value"]].index(skipped["step"])
        setting = {"path": f"pipelines.invoices.steps[{at}].if.path", "value": "payload.amount"}
        assert "amuont" in agent.call("config", action="set", dry_run=True, **setting)["diff"]
        assert agent.call("config", action="set", **setting)["in_force"] is True
        again = agent.call("run", pipeline="invoices", payload=given, wait_s=25)
        states = {step["step"]: step["status"] for step in again["steps"]}
        states.pop("pay__switch")

        assert (skipped["step"], again["status"]) == ("pay", "succeeded")
        assert states == dict.fromkeys(("read", "pay", "file"), "succeeded")


def test_schedule_that_never_fires() -> None:
    config = f"""\
plugins:
{BYSTANDER}  echo:
    schedules:
      - {{id: monthly, cron: "30 4 31 2 *"}}
      - {{id: hourly, every: 1h}}
"""
    with broken(config, ["config.set", "config.reload"]) as (api, agent):
        idle = agent.call("overview")["schedules_not_firing"]
        [broken_one] = [row for row in idle if row["state"] == "never"]
        name = f"{broken_one['plugin']}/{broken_one['schedule']}"
        explained = agent.call("schedules", name=name)
        assert explained["next_fires"] == []
        view = agent.call("config", action="view", path=f"plugins.{broken_one['plugin']}.schedules")
        rules = view["untrusted_value"]
        at = [rule["id"] for rule in rules].index(broken_one["schedule"])
        assert "31 2" in rules[at]["cron"]
        path = f"plugins.{broken_one['plugin']}.schedules[{at}].cron"
        setting = {"path": path, "value": "30 4 1 * *"}
        agent.call("config", action="set", dry_run=True, **setting)
        assert agent.call("config", action="set", **setting)["in_force"] is True
        assert agent.call("schedules", name=name)["next_fires"] != []

        rows = {row["schedule"]: row for row in api.ask("GET", "/scheduler/jobs").json["schedules"]}
        assert rows["monthly"]["next_run"]
        assert "1h" in rows["hourly"]["rule"]


def test_event_type_that_no_pipeline_names() -> None:
    made = '{"status":"ok","events":[{"type":"order.made","payload":{"n":1}}]}'
    emit = f"#!/bin/sh\ncat > /dev/null\necho '{made}'\n"
    config = f"plugins:\n{BYSTANDER}  shop: {{}}\n"
    config += "pipelines: [{name: orders, on: order.maed, steps: [{uses: echo}]}]\n"
    with broken(config, ["config.set", "config.reload", "job.replay"], shop=emit) as (api, agent):
        lost = api.ask("POST", "/plugin/shop/poll", {}).json["job_id"]
        api.ask("GET", f"/job/{lost}?wait=60")

        why = agent.call("job", job_id=lost)
        named = re.search(r"config set (\S+) (\S+) && ", why["untrusted_run"])
        assert named is not None
        setting = {"path": named[1].strip("'"), "value": named[2]}
        assert "order.maed" in agent.call("config", action="set", dry_run=True, **setting)["diff"]
        assert agent.call("config", action="set", **setting)["in_force"] is True
        again = agent.call("replay", job_id=lost)
        agent.call("job", job_id=again["job_id"], wait_s=25)

        assert agent.call("runs", pipeline="orders")["runs"]


def test_disabled_plugin_and_a_schedule_that_waits_for_its_window() -> None:
    config = f"""\
plugins:
{BYSTANDER}  shop: {{enabled: false}}
  echo: {{schedules: [{{id: early, cron: "0 3 * * *", only_between: "02:00-04:00"}}]}}
"""
    with broken(config, ["config.set", "config.reload"], shop=DEAD) as (_, agent):
        assert "schedules_not_firing" not in agent.call("overview")
        with pytest.raises(ToolError) as refused:
            agent.call("run", plugin="shop", command="poll")
        error = refused.value.error
        assert ("nearest" in error, error["run"] in error["fix"]) == (False, True)
        assert "config.yaml:" in error["message"]
        path = error["run"].split("'")[1]
        assert agent.call("config", action="set", path=path, value=True)["in_force"] is True
        assert agent.call("run", plugin="shop", command="poll", wait_s=25)["done"] is True


def test_dead_deliveries() -> None:
    config = f'plugins:\n{BYSTANDER}gateway: {{allowed_networks: ["127.0.0.0/8"]}}\n'
    with (
        receiving(410) as receiver,
        receiving(410) as other,
        broken(config, ["webhook.create", "delivery.retry", "delivery.retry_many"]) as (api, agent),
    ):
        ids = {
            name: api.ask(
                "POST",
                "/gateway/webhook-configs",
                {
                    "source_identifier": name,
                    "event_type": "e",
                    "target_session": "x",
                    "target_url": target.url,
                },
            ).json["id"]
            for name, target in (("mended", receiver),)
        }
        for n in range(3):
            body = {"webhook_id": ids["mended"], "payload": {"n": n}}
            assert api.ask("POST", "/gateway/deliveries", body).status == 202

        def dead() -> list[dict[str, Any]]:
            return list(api.ask("GET", "/gateway/deliveries?status=dead").json["deliveries"])

        def let_die() -> bool:
            """End the attempts that would take hours; one that is being sent has an owner."""
            with closing(apsw.Connection(str(api.root / "data/state.db"))) as db:
                db.set_busy_timeout(int(WAIT_LIMIT * 1000))
                db.execute(
                    "UPDATE webhook_deliveries SET status = 'dead', next_retry_at = NULL "
                    "WHERE status = 'failed' AND owner IS NULL"
                )
            return len(dead()) == 3

        until(let_die)
        receiver.answers = [200]  # The receiver is repaired.

        assert agent.call("overview")["dead_deliveries"]["newest"]
        rows = agent.call("deliveries", status="dead")["deliveries"]
        assert all("410" in row["untrusted_error_detail"] for row in rows)
        one = agent.call("retry", delivery_id=rows[0]["delivery_id"])
        assert one["done"] is False
        until(lambda: len(dead()) == 2)
        preview = agent.call("retry", deliveries="dead", dry_run=True)
        assert preview["count"] == 2
        agent.call("retry", deliveries="dead", expected=preview["count"])
        until(lambda: len(receiver.received) == 6)
        assert "dead_deliveries" not in agent.call("overview")
        assert other.received == []
