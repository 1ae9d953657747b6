"""`concurrency` of a pipeline in a configuration: what is compiled, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.core.flow.limits import OnFull
from ductile.engine.config.compiled import build
from ductile.errors import ConfigError, Problem
from tests.engine.site import OK, Site


def prepare(site: Site, concurrency: dict[str, Any], **pipeline: Any) -> None:
    site.plugin("sync", OK)
    base = {"name": "p", "on": "x", "steps": [{"uses": "sync"}]}
    site.settings["pipelines"] = [{**base, **pipeline, "concurrency": concurrency}]


def refusals(site: Site) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        build(site.load(), boot_marker="m:b", environ=site.environ)
    return list(caught.value.problems)


def test_limit_of_a_pipeline_is_compiled(site: Site) -> None:
    prepare(site, {"key": "{payload.account}", "limit": 2, "on_full": "skip"})
    limits = build(site.load(), boot_marker="m:b", environ=site.environ).tx_config.run_limits
    own = limits["p"]
    assert own.key is not None
    assert (own.key.text, own.limit, own.on_full) == ("{payload.account}", 2, OnFull.SKIP)


@pytest.mark.parametrize(
    ("concurrency", "message"),
    [
        ({"key": "{context.a}"}, "context.a is not known when a job is enqueued"),
        ({"key": "{payloda.a}"}, "payloda"),
        ({"limit": 0}, "1"),
        ({"on_full": "wait"}, "queue"),
    ],
)
def test_impossible_limit_is_refused(site: Site, concurrency: dict[str, Any], message: str) -> None:
    prepare(site, concurrency)
    (problem,) = refusals(site)
    assert problem.path[:3] == ("pipelines", 0, "concurrency")
    assert message in str(problem)
    assert "REDACTED" not in str(problem)


@pytest.mark.parametrize(("on_full", "consequence"), [("skip", "skipped"), ("cancel", "cancels")])
def test_pipeline_that_starts_itself_in_its_only_place_is_refused(
    site: Site, on_full: str, consequence: str
) -> None:
    prepare(site, {"on_full": on_full}, on="again")
    manifest = site.plugins / "sync" / "manifest.yaml"
    text = manifest.read_text()
    assert text.count("handle: {type: write}") == 1
    emits = "handle: {type: write, values: {emit: [{event: again}]}}"
    manifest.write_text(text.replace("handle: {type: write}", emits))
    (problem,) = refusals(site)
    assert problem.path == ("pipelines", 0, "concurrency")
    assert consequence in problem.message
    # With a key the inner start may have another one, and a queued start waits for the end.
    site.settings["pipelines"][0]["concurrency"] = {"key": "{payload.a}", "on_full": on_full}
    build(site.load(), boot_marker="m:b", environ=site.environ)
    site.settings["pipelines"][0]["concurrency"] = {"on_full": "queue"}
    build(site.load(), boot_marker="m:b", environ=site.environ)


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        ({"parallelism": 2, "concurrency": {"limit": 3, "on_full": "skip"}}, "parallelism"),
        ({"concurrency": {"limit": 4, "on_full": "cancel"}}, "there are 4"),
        ({"parallelism": 1, "concurrency": {"limit": 1, "on_full": "cancel"}}, None),
        ({"parallelism": 2, "concurrency": {"limit": 3, "on_full": "queue"}}, None),
    ],
)
def test_on_full_that_never_takes_effect_is_a_warning(
    site: Site, own: dict[str, Any], reason: str | None
) -> None:
    site.plugin("sync", OK, **own)
    site.settings["service"]["max_workers"] = 4
    warnings = build(site.load(), boot_marker="m:b", environ=site.environ).warnings
    found = [str(one) for one in warnings if "never takes effect" in one.message]
    assert [reason in text for text in found] == ([] if reason is None else [True])
