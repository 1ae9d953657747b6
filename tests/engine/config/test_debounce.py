"""`debounce` in a configuration: what is compiled, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.engine.config.compiled import build
from ductile.errors import ConfigError, Problem
from tests.engine.site import OK, Site

QUIET = {"wait": "10s"}


def prepare(site: Site, **pipeline: Any) -> None:
    site.plugin("sync", OK)
    base = {"name": "p", "on": "x", "steps": [{"uses": "sync"}]}
    site.settings["pipelines"] = [{**base, **pipeline}]


def endpoint(**settings: Any) -> dict[str, Any]:
    one = {"path": "/hook", "secret": "a-secret-0123456789", "debounce": QUIET, **settings}
    return {"endpoints": [one]}


def refusals(site: Site) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        build(site.load(), boot_marker="m:b", environ=site.environ)
    return list(caught.value.problems)


def test_pipelines_routes_and_endpoints_are_debounced(site: Site) -> None:
    prepare(site, debounce={"wait": "10s", "max_wait": "1m", "key": "{payload.a}"})
    route = {"from": "sync", "event_type": "y", "to": "sync", "debounce": QUIET}
    site.settings["routes"] = [route]
    site.settings["webhooks"] = endpoint(plugin="sync")
    compiled = build(site.load(), boot_marker="m:b", environ=site.environ)
    found = [*compiled.tx_config.router.debounces.values()]
    assert [(one.target.split("\x1f")[0], one.wait, one.max_wait) for one in found] == [
        ("pipeline:p", 10, 60),
        ("route:sync", 10, 100),
        ("webhook:/hook", 10, 100),
    ]


@pytest.mark.parametrize(
    ("debounce", "message"),
    [
        ({"wait": "10s", "max_wait": "9s"}, "max_wait must not be less than wait"),
        ({"wait": "10s", "key": "{context.a}"}, "context.a is not known when a job is enqueued"),
        ({"wait": "10s", "key": "{payloda.a}"}, "payloda"),
        ({"wait": "0s"}, "too small"),
        ({"wait": "31d"}, "wait must be at most 30d"),
        ({"max_wait": "1m"}, "wait"),
    ],
)
def test_impossible_debounce_is_refused(site: Site, debounce: dict[str, Any], message: str) -> None:
    prepare(site, debounce=debounce)
    (problem,) = refusals(site)
    assert message in f"{problem}"
    assert problem.path[:3] == ("pipelines", 0, "debounce")


def test_pipeline_that_starts_with_a_split_is_refused(site: Site) -> None:
    split = [{"split": [{"uses": "sync"}, {"uses": "sync"}]}]
    prepare(site, debounce=QUIET, steps=split)
    site.settings["webhooks"] = endpoint(pipeline="p")
    found = refusals(site)
    assert [problem.path for problem in found] == [
        ("pipelines", 0, "debounce"),
        ("webhooks", "endpoints", 0, "debounce"),
    ]
    assert {problem.message for problem in found} == {
        "pipeline p starts with a split, which cannot be debounced"
    }


def test_pipeline_that_no_event_starts_is_refused(site: Site) -> None:
    prepare(site, debounce=QUIET, on=None, schedules=[{"every": "1h"}])
    del site.settings["pipelines"][0]["on"]
    (problem,) = refusals(site)
    assert "no event starts this pipeline" in problem.message
