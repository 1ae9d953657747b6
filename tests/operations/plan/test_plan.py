"""A plan names everything that the files would change, and changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ductile.engine.config import plugin_init
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.gateway import Gateway
from ductile.errors import ConfigError
from ductile.model import SubmittedBy
from ductile.operations.pipelines import PipelineStart
from ductile.operations.plan.jobs import decide_effect
from ductile.operations.plan.plan import list_queued_groups, make_plan, read_job_rules
from ductile.store.jobs import claim, requeue
from tests.conftest import FakeClock
from tests.engine.site import OK, Running, Site
from tests.operations.compare.scenario import dump_ledger
from tests.operations.ledger_copies import on_postgres

SECRETS = ("first-secret-value-1", "second-secret-value-2")


def plan(running: Running, directory: Path | None = None) -> dict[str, Any]:
    return make_plan(running.gateway, directory)


def changed(site: Site, running: Running) -> dict[str, Any]:
    site.write()
    return plan(running)


@pytest.fixture
def opened(site: Site, request: pytest.FixtureRequest) -> Iterator[Running]:
    if getattr(request, "param", "sqlite") == "postgres":
        on_postgres(site, request.getfixturevalue("postgres"))
    site.plugin("echo", OK)
    site.plugin("store", OK)
    site.settings["routes"] = [{"from": "echo", "event_type": "new", "to": "store"}]
    site.settings["pipelines"] = [
        {
            "name": "main",
            "on": "go",
            "if": {"path": "payload.kind", "op": "regex", "value": "^a"},
            "steps": [
                {"id": "first", "uses": "echo", "with": {"a": "{payload.b}"}},
                {"id": "second", "uses": "store"},
            ],
        }
    ]
    site.settings["webhooks"] = {
        "listen": "127.0.0.1:0",
        "endpoints": [{"path": "/hook/a", "plugin": "echo", "secret_ref": "shared"}],
    }
    site.settings["tokens"] = [
        {"name": "shared", "key": SECRETS[0]},
        {"name": "reader", "key": "reader-token-0123456789", "scopes": ["jobs:ro"]},
    ]
    with site.opened(clock=FakeClock()) as running:
        yield running


def test_unchanged_files_change_nothing(opened: Running) -> None:
    found = plan(opened)
    assert found["changed"] is False
    assert found["graph"] == {
        "edges_added": [],
        "edges_removed": [],
        "routes": [],
        "pipelines": [],
        "steps": [],
    }


def test_copy_of_the_files_in_another_directory_changes_nothing(
    site: Site, opened: Running, tmp_path: Path
) -> None:
    shutil.copytree(site.plugins, tmp_path / "plugins")
    shutil.copy(site.folder / "config.yaml", tmp_path)
    found = plan(opened, tmp_path)
    assert (found["changed"], found["config"]) == (False, str(tmp_path / "config.yaml"))


def test_routes_and_pipelines_are_compared_as_a_graph(site: Site, opened: Running) -> None:
    site.settings["routes"] = [{"from": "echo", "event_type": "newer", "to": "store"}]
    [main] = site.settings["pipelines"]
    main["steps"].insert(1, {"id": "between", "uses": "echo"})
    main["steps"][0]["with"] = {"a": "{payload.c}"}
    main["if"]["value"] = "^b"
    graph = changed(site, opened)["graph"]
    assert graph["edges_added"] == [
        "echo --newer--> store",
        "main/between ----> main/second",
        "main/first ----> main/between",
    ]
    assert graph["edges_removed"] == ["echo --new--> store", "main/first ----> main/second"]
    assert graph["pipelines"] == [{"name": "main", "change": "changed", "fields": ["if"]}]
    assert graph["steps"] == [
        {"name": "main/between", "change": "added", "fields": []},
        {"name": "main/first", "change": "changed", "fields": ["with"]},
    ]


def test_changed_limits_and_delays_of_routes_and_pipelines_are_listed(
    site: Site, opened: Running
) -> None:
    [route], [main] = site.settings["routes"], site.settings["pipelines"]
    route["debounce"] = {"wait": "10s"}
    main |= {"priority": "5m", "concurrency": {"limit": 1}, "debounce": {"wait": "1s"}}
    found = changed(site, opened)
    assert found["graph"]["routes"] == [
        {"name": "echo --new--> store", "change": "changed", "fields": ["debounce"]}
    ]
    assert found["graph"]["pipelines"] == [
        {"name": "main", "change": "changed", "fields": ["priority", "debounce", "concurrency"]}
    ]
    assert (found["watched"]["plugins"], found["watched"]["pipelines"]) == (["store"], ["main"])


def test_plugins_differ_in_program_manifest_limits_and_secrets(site: Site, opened: Running) -> None:
    site.plugin("echo", "true\n" + OK, config={"api_key": SECRETS[1]})
    site.plugin("store", OK, manifest="description: Changed.\n", parallelism=2)
    site.plugin("fresh", OK)
    found = changed(site, opened)
    rows = {row["plugin"]: row for row in found["plugins"]}
    assert rows["echo"]["differs"] == ["program", "config", "secret values"]
    assert "manifest" in rows["store"]["differs"]
    assert "parallelism" in rows["store"]["differs"]
    assert (rows["fresh"]["before"], rows["fresh"]["after"]) == ("absent", "loaded")
    assert found["secrets"] == ["plugins.echo.config.api_key"]
    assert not any(secret in json.dumps(found) for secret in SECRETS)


def test_value_that_is_no_longer_a_secret_is_not_shown(site: Site, opened: Running) -> None:
    # The key of a token was rotated, and then used as a name.
    site.settings["tokens"][0]["key"] = "another-key-0123456789"
    site.settings["service"]["name"] = SECRETS[0]
    found = changed(site, opened)
    [row] = [row for row in found["settings"] if row["setting"] == "service.name"]
    assert row["after"] == "[REDACTED]"
    assert SECRETS[0] not in json.dumps(found)


def test_webhooks_and_tokens_that_open_and_close(site: Site, opened: Running) -> None:
    site.settings["tokens"][0]["key"] = SECRETS[1]
    site.settings["tokens"][1]["scopes"] = ["*"]
    site.settings["tokens"].insert(0, {"name": "new", "key": "new-token-0123456789", "scopes": []})
    site.settings["webhooks"]["endpoints"].append(
        {"path": "/hook/b", "pipeline": "main", "secret_ref": "shared"}
    )
    found = changed(site, opened)
    assert [(row["path"], row["change"], row["fields"]) for row in found["webhooks"]] == [
        ("/hook/a", "changed", ["secret"]),
        ("/hook/b", "opens", []),
    ]
    assert [(row["token"], row["change"], row["fields"]) for row in found["tokens"]] == [
        ("new", "opens", []),
        ("reader", "changed", ["scopes"]),
        ("shared", "changed", ["key"]),
    ]
    assert found["tokens"][1]["scopes_after"] == ["*"]
    assert found["secrets"] == []
    assert not any(secret in json.dumps(found) for secret in SECRETS)


def test_setting_that_needs_a_restart_is_listed_with_the_rest(site: Site, opened: Running) -> None:
    site.settings["service"] |= {"node": "another", "max_workers": 3}
    found = changed(site, opened)
    assert {row["setting"] for row in found["restart"]} == {"service.node"}
    assert {"setting": "service.max_workers", "before": 2, "after": 3} in found["settings"]


def test_invalid_files_are_reported_as_problems(site: Site, opened: Running) -> None:
    site.settings["service"]["max_workers"] = "many"
    site.write()
    with pytest.raises(ConfigError):
        plan(opened)


def test_jobs_of_a_pipeline_that_is_changed_are_listed(site: Site, opened: Running) -> None:
    pipeline_job(opened)
    [main] = site.settings["pipelines"]
    main["steps"][1]["uses"] = "echo"
    [row] = changed(site, opened)["jobs"]
    assert (row["effect"], row["step"], row["jobs"]) == ("routed differently", "first", 1)
    assert "main/second" in row["reason"]
    site.settings["pipelines"] = []
    [row] = changed(site, opened)["jobs"]
    assert (row["effect"], row["reason"]) == (
        "fails",
        "step first no longer exists in pipeline main",
    )


def test_more_queued_jobs_than_are_compared_are_reported(
    site: Site, opened: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("echo", "store"):
        opened.put(name)
        site.settings["plugins"][name] = {"enabled": False}
    found = changed(site, opened)
    assert ([row["plugin"] for row in found["jobs"]], found["jobs_left_out"]) == (
        ["echo", "store"],
        False,
    )
    monkeypatch.setattr("ductile.operations.plan.plan.MAX_GROUPS", 1)
    found = changed(site, opened)
    assert ([row["plugin"] for row in found["jobs"]], found["jobs_left_out"]) == (["echo"], True)


def pipeline_job(running: Running) -> None:
    start = PipelineStart(running.gateway, "main", {"b": 1}, SubmittedBy.API)
    running.gateway.ledger.write(start)


@pytest.mark.parametrize("opened", ["sqlite", "postgres"], indirect=True)
def test_nothing_is_written(site: Site, opened: Running) -> None:
    pipeline_job(opened)
    opened.put("echo")
    site.plugin("store", OK, schedules=[{"every": "5m"}], config={"password": SECRETS[0]})
    shutil.rmtree(site.plugins / "echo")
    site.settings["plugins"]["echo"] = {"enabled": False}
    site.settings["pipelines"] = []
    site.settings["routes"] = []
    site.settings["webhooks"]["endpoints"] = []
    site.write()
    before = list_files(site.folder), dump_ledger(opened.gateway)
    written = opened.gateway.ledger.health()["transactions"]
    assert {row["effect"] for row in plan(opened)["jobs"]} == {"ended"}
    assert (list_files(site.folder), dump_ledger(opened.gateway)) == before
    assert opened.gateway.ledger.health()["transactions"] == written
    assert opened.gateway.compiled.registry.plugins.keys() >= {"echo", "store"}


def list_files(folder: Path) -> dict[str, bytes]:
    """Every file but those of the database, which `dump_ledger` reads, and the started log.

    There a node that shares its ledger renews the deadline of its jobs.
    """
    return {
        str(path): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "state.db" not in path.name and path.name != "started_log"
    }


NAMES = ("a", "b", "c", "d")


def change_plugin(site: Site, name: str, kind: str) -> None:
    """Put a plugin and its settings in one of the states that a change can leave them in."""
    site.plugin(name, OK)
    site.settings["plugins"][name] = {}
    if kind == "disabled":
        site.settings["plugins"][name] = {"enabled": False}
    elif kind == "refused":
        (site.plugins / name / "manifest.yaml").write_text("name: [broken\n")
    elif kind == "unconfigured":
        del site.settings["plugins"][name]
    elif kind == "removed":
        del site.settings["plugins"][name]
        shutil.rmtree(site.plugins / name)
    elif kind == "vanished":
        shutil.rmtree(site.plugins / name)


def fates(running: Running, compiled: CompiledConfig) -> dict[tuple[str, str | None], str]:
    gateway = running.gateway
    unready = plugin_init.uninitialised(gateway.ledger, compiled)
    rules = read_job_rules(gateway, compiled, unready)
    groups = gateway.ledger.read(list_queued_groups)
    return {
        (group.plugin, group.snapshot_id): decide_effect(group, rules).effect for group in groups
    }


def claimable(gateway: Gateway) -> set[str]:
    """The jobs that are claimed now; they are queued again."""
    claimed = []
    now, policy = gateway.clock.now(), gateway.claim_policy()
    while taken := gateway.ledger.write(lambda tx: claim.claim(tx, policy, now)):
        claimed += [one.job for one in taken]
    for job in claimed:
        gateway.ledger.write(lambda tx, job=job: requeue.undo_claim(tx, job, now))  # type: ignore[misc]
    return {job.id for job in claimed}


@pytest.mark.parametrize(("seed", "engine"), [(0, "sqlite"), (1, "sqlite"), (1, "postgres")])
def test_predicted_holds_and_ends_happen_after_random_changes(
    site: Site, seed: int, engine: str, request: pytest.FixtureRequest
) -> None:
    if engine == "postgres":
        on_postgres(site, request.getfixturevalue("postgres"))
    random = Random(seed)
    kinds = ("kept", "disabled", "refused", "unconfigured", "removed", "vanished")
    for name in NAMES:
        change_plugin(site, name, "kept")
    with site.opened(clock=FakeClock()) as running:
        gateway = running.gateway
        for _ in range(6):
            jobs = {
                running.put(name): name for name in NAMES if name in gateway.compiled.plans
            } | queued(gateway)
            for name in NAMES:
                change_plugin(site, name, random.choice(kinds))
            built = build(site.load(), boot_marker="", environ=site.environ)
            predicted = fates(running, built)
            expected = {
                id: predicted[plugin, running.job(id)["enqueued_snapshot_id"]]
                for id, plugin in jobs.items()
            }
            gateway.reload()
            running_now = claimable(gateway)
            actual = {
                id: "runs"
                if id in running_now
                else "ended"
                if running.job(id)["status"] == "dead"
                else "held"
                for id in jobs
            }
            assert actual == expected


def queued(gateway: Gateway) -> dict[str, str]:
    rows = gateway.ledger.read(
        lambda tx: tx.dicts("queued_groups", limit=100),
    )
    return {row["example"]: row["plugin"] for row in rows}
