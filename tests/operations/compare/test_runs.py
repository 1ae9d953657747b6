"""Recorded runs are replayed through changed files, and no plugin runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ductile.errors import NotFound
from ductile.model import SubmittedBy
from ductile.operations.compare.runs import RunComparison, compare_runs
from ductile.operations.pipelines import PipelineStart
from ductile.store.jobs.runs import find_run
from tests.engine.site import OK, Running, Site
from tests.operations.compare.scenario import SECRET, dump_ledger, text_of
from tests.waiting import until


def compare(running: Running, pipeline: str = "main", **more: Any) -> dict[str, Any]:
    return compare_runs(running.gateway, RunComparison(pipeline, **more))


def only_run(running: Running, pipeline: str = "main", **more: Any) -> dict[str, Any]:
    [run] = compare(running, pipeline, **more)["runs"]
    return dict(run)


def test_changed_files_show_steps_inputs_and_children(
    worked: Running, site: Site, tmp_path: Path
) -> None:
    before = dump_ledger(worked.gateway)
    same = only_run(worked)
    assert (same["verdict"], same["steps"], same["notes"]) == ("identical", [], [])
    [main] = site.settings["pipelines"]
    main["steps"][0]["with"] = {"size": "{payload.size}", "key": "{config.api_key}"}
    main["steps"][1]["if"]["value"] = 9
    main["steps"].append({"id": "third", "uses": "worker"})
    site.settings["pipelines"].append(
        {"name": "after", "on": "worked", "steps": [{"id": "one", "uses": "worker"}]}
    )
    site.settings["routes"] = [{"from": "worker", "event_type": "worked", "to": "worker"}]
    site.write()
    page = compare(worked)
    [run] = page["runs"]
    assert run["verdict"] == "different"
    assert [(row["step"], row["change"], row["differences"]) for row in run["steps"]] == [
        ("first", "changed", [{"path": "input.key", "after": "[REDACTED]"}]),
        ("second", "changed", [{"path": "if", "before": True, "after": False}]),
        ("third", "would run", []),
        ("second", "would not run", []),
    ]
    assert run["children_added"] == [
        "first --> pipeline after",
        "first --worked--> worker",
    ]
    assert "nothing is recorded of third" in run["notes"][0]
    assert SECRET not in text_of(page)
    # The files are not in force, so another directory is compared with the same configuration.
    site.settings["pipelines"] = [{**main, "name": "other"}]
    (tmp_path / "config.yaml").write_text(site.write().read_text())
    gone = only_run(worked, directory=tmp_path)
    assert gone["refusal"] == "pipeline main no longer exists"
    with pytest.raises(NotFound):
        compare(worked, "missing")
    assert dump_ledger(worked.gateway) == before


SPLIT: dict[str, Any] = {
    "name": "wide",
    "on": "go",
    "steps": [
        {"id": "begin", "uses": "echo"},
        {
            "id": "both",
            "split": [
                {"id": "left", "uses": "echo", "if": {"path": "payload.n", "op": "gt", "value": 1}},
                {"id": "right", "uses": "echo"},
            ],
        },
        {"id": "end", "uses": "echo", "with": {"failed": "{payload.failed}"}},
    ],
}


def test_splits_conditions_and_joins_are_followed(site: Site) -> None:
    site.plugin("echo", OK)
    site.settings["pipelines"] = [SPLIT]
    with site.running() as running:
        gateway = running.gateway
        for n in (1, 3):
            start = PipelineStart(gateway, "wide", {"n": n}, SubmittedBy.ROUTE)
            started = gateway.ledger.write(start)

            def has_ended(run_id: str = started.instance_id) -> bool:
                run = gateway.ledger.read(lambda tx: find_run(tx, run_id))
                return run is not None and run["status"] == "ended"

            until(has_ended)
        unchanged = compare(running, "wide")
        assert [run["verdict"] for run in unchanged["runs"]] == ["identical"] * 2
        first = compare(running, "wide", limit=1)
        assert (len(first["runs"]), first["cursor"] is None) == (1, False)
        site.settings["pipelines"] = [
            {
                **SPLIT,
                "if": {"path": "payload.n", "op": "gt", "value": 2},
                "steps": [
                    *SPLIT["steps"][:2],
                    {"id": "end", "uses": "echo", "with": {"failed": "none"}},
                ],
            }
        ]
        site.write()
        newest, oldest = compare(running, "wide")["runs"]
        assert [row["step"] for row in newest["steps"]] == ["end"]
        assert newest["steps"][0]["differences"] == [
            {"path": "input.failed", "before": 0, "after": "none"}
        ]
        assert "its `if` payload.n gt 2 is false" in oldest["refusal"]
        assert {row["change"] for row in oldest["steps"]} == {"would not run"}
