"""Alert rules: targets that cannot get messages are refused, with their place."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.rules import LONGEST_GROUP, Grouping, shorten_group
from ductile.core.alerts.state_machine import AlertPolicy
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.errors import ConfigError
from tests.engine.site import OK, Site


def compile_site(site: Site, *rules: dict[str, Any]) -> CompiledConfig:
    site.settings["alerts"] = [{"name": f"r{n}", **rule} for n, rule in enumerate(rules)]
    return build(site.load(), boot_marker="x", environ=site.environ)


@pytest.fixture
def named(site: Site) -> Site:
    site.plugin("work", OK)
    site.plugin("page", OK)
    site.plugin("deaf", OK, commands=("poll",))
    site.plugin("off", OK, enabled=False)
    site.settings["webhooks"] = {
        "endpoints": [{"path": "/hook/github", "plugin": "work", "secret": "s" * 32}]
    }
    steps = [{"id": "one", "uses": "page"}]
    site.settings["pipelines"] = [{"name": "escalate", "on": "x", "steps": steps}]
    return site


def test_rule_is_compiled_with_its_defaults(named: Site) -> None:
    first, second = compile_site(
        named,
        {"on": "job.dead", "to": "page"},
        {"on": ["schedule.silent"], "to": "escalate", "for": "2h", "group": "none", "after": 3},
    ).alert_rules
    assert first.on == {Condition.JOB_DEAD}
    assert first.policy == AlertPolicy(after=1, lasts=0.0, wait=30.0, repeat=86_400.0)
    assert (first.is_pipeline, first.grouping) == (False, Grouping.SUBJECT)
    assert (second.is_pipeline, second.grouping) == (True, Grouping.NONE)
    assert (second.policy.after, second.policy.lasts) == (3, 7200.0)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"on": "job.dead", "to": "pagee"}, "an unknown plugin or pipeline"),
        ({"on": "job.dead", "to": "deaf"}, "deaf has no command `handle`"),
        ({"on": "job.dead", "to": "off"}, "this plugin is disabled"),
        ({"on": "job.dead", "to": "page", "only": ["page"]}, "can only report its own target"),
        (
            {"on": ["job.dead", "breaker.open"], "to": "escalate", "only": ["pa*"]},
            "can only report its own target",
        ),
        ({"on": "run.failed", "to": "escalate"}, "can only report its own target"),
        ({"on": "schedule.silent", "for": "1h", "to": "page", "only": "wrok"}, "reports nothing"),
        ({"on": "job.dead", "to": "page", "only": ["w[12]*", "x/y"]}, "reports nothing"),
        (
            {"on": "webhook.silent", "for": "1h", "to": "page", "only": "/hook/gihtub"},
            "reports nothing; found \"/hook/gihtub\"; did you mean '/hook/github'?",
        ),
        ({"on": "health", "to": "page", "only": "leger"}, "did you mean 'ledger'?"),
        ({"on": "disk.free", "to": "page", "only": "/var"}, "reports nothing"),
    ],
)
def test_target_that_cannot_work_is_refused(
    named: Site, rule: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_site(named, {"on": "job.dead", "to": "page"}, rule)
    [problem] = caught.value.problems
    assert message in str(problem)
    assert problem.path[:2] == ("alerts", 1)
    assert problem.line


def test_pattern_that_matches_nothing_among_others_is_a_warning(named: Site) -> None:
    named.plugin("work", OK, schedules=[{"id": "nightly", "every": "1h"}])
    rules = [
        {"on": "schedule.missed", "to": "page", "only": ["work/night*", "wrok", "escalate"]},
        {"on": ["job.dead", "agent.silent"], "for": "1h", "to": "page", "only": "agent-7"},
        {"on": "webhook.silent", "for": "1h", "to": "page", "only": ["bank/paid", "hook/github"]},
        {"on": "webhook.silent", "for": "1h", "to": "page", "only": ["bank", "/hook/gitlab"]},
        {"on": ["disk.free", "health"], "to": "page", "only": ["disk", "scheduler", "led*"]},
        {"on": "delivery.dead", "to": "page", "only": ["bank/paid"]},
    ]
    warnings = [one for one in compile_site(named, *rules).warnings if "alerts" in one.path]
    assert [(one.found, one.nearest) for one in warnings] == [
        ('"wrok"', "work"),
        ('"hook/github"', "/hook/github"),
        ('"/hook/gitlab"', "/hook/github"),
    ]


def test_target_that_is_one_of_several_subjects_is_accepted(named: Site) -> None:
    compile_site(
        named,
        {"on": "job.dead", "to": "page"},
        {"on": ["run.failed", "job.dead"], "to": "escalate"},
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"on": "job.deat", "to": "page"}, "is not an allowed value; found 'job.deat'"),
        ({"on": [], "to": "page"}, ""),
        ({"on": "agent.silent", "to": "page"}, "agent.silent needs `for`"),
        ({"on": "disk.free", "to": "page", "over": {"disk.free": "200%"}}, "a share of the disk"),
        ({"on": "job.dead", "to": "page", "after": 0}, "too small"),
    ],
)
def test_invalid_rule_is_refused(named: Site, rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_site(named, rule)
    assert any(message in str(problem) for problem in caught.value.problems)


def test_long_group_keeps_its_identity() -> None:
    first, second = (shorten_group(f"webhook:{'ü' * 2000}{end}") for end in "ab")
    assert first != second
    assert len(first.encode()) <= LONGEST_GROUP
    assert shorten_group("plugin:x") == "plugin:x"


@pytest.mark.parametrize(
    ("url", "networks", "message"),
    [
        ("https://monitor.example/secret", [], None),
        ("http://monitor.example/secret", [], "without TLS"),
        ("http://monitor.example/secret", ["10.0.0.0/8"], None),
        ("https://10.0.0.7/secret", [], "a forbidden address"),
        ("https://10.0.0.7/secret", ["10.0.0.0/8"], None),
        ("https://monitor.local/secret", [], "its local network"),
    ],
)
def test_monitor_that_no_request_may_be_sent_to_is_refused(
    named: Site, url: str, networks: list[str], message: str | None
) -> None:
    named.settings["dead_man"] = {"url": url}
    named.settings["gateway"] = {"allowed_networks": networks}
    if message is None:
        assert compile_site(named).settings.dead_man is not None
        return
    with pytest.raises(ConfigError) as caught:
        compile_site(named)
    [problem] = caught.value.problems
    assert message in problem.message
    assert problem.path == ("dead_man", "url")
    assert "secret" not in str(problem)
