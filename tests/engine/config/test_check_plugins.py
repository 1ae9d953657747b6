"""Names in a configuration without a plugin are reported when it is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.engine.config.compiled import build
from ductile.errors import ConfigError, Problem, Severity
from tests.engine.site import OK, Site


def problems(site: Site) -> list[Problem]:
    """Warnings, or what makes the configuration refused."""
    try:
        return list(build(site.load(), boot_marker="m:b", environ=site.environ).warnings)
    except ConfigError as error:
        return list(error.problems)


def door(site: Site, plugin: str) -> None:
    endpoint = {"path": "/hook", "plugin": plugin, "secret": "a-secret-0123456789"}
    site.settings["webhooks"] = {"endpoints": [endpoint]}


class TestWebhooks:
    def test_an_endpoint_to_an_unknown_plugin_is_refused(self, site: Site) -> None:
        site.plugin("watcher", OK)
        door(site, "watchr")
        [problem] = problems(site)
        assert problem.severity is Severity.ERROR
        assert (problem.message, problem.found) == ("an unknown plugin", '"watchr"')
        assert problem.path == ("webhooks", "endpoints", 0, "plugin")
        assert problem.nearest == "watcher"
        assert problem.line is not None

    def test_an_endpoint_to_an_unknown_pipeline_is_refused(self, site: Site) -> None:
        site.plugin("watcher", OK)
        steps = [{"uses": "watcher"}]
        site.settings["pipelines"] = [{"name": "deploy", "on": "x", "steps": steps}]
        endpoint = {"path": "/hook", "pipeline": "deplyo", "secret": "a-secret-0123456789"}
        site.settings["webhooks"] = {"endpoints": [endpoint]}
        [problem] = problems(site)
        assert problem.severity is Severity.ERROR
        assert (problem.message, problem.found) == ("an unknown pipeline", '"deplyo"')
        assert problem.path == ("webhooks", "endpoints", 0, "pipeline")
        assert (problem.nearest, problem.line is not None) == ("deploy", True)

    @pytest.mark.parametrize("named", [{}, {"plugin": "watcher", "pipeline": "deploy"}])
    def test_an_endpoint_has_either_a_plugin_or_a_pipeline(
        self, site: Site, named: dict[str, str]
    ) -> None:
        endpoint = {"path": "/hook", "secret": "a-secret-0123456789", **named}
        site.settings["webhooks"] = {"endpoints": [endpoint]}
        [problem] = problems(site)
        assert "needs either plugin or pipeline" in problem.message
        assert problem.line is not None

    def test_an_endpoint_to_a_bundled_plugin_explains_how_to_load_it(self, site: Site) -> None:
        site.settings["plugin_roots"] = ["bundled:"]
        door(site, "notify")
        [problem] = problems(site)
        assert "`notify: {}` under plugins" in (problem.allowed or "")

    def test_one_to_a_plugin_without_handle_is_accepted_with_a_warning(self, site: Site) -> None:
        site.plugin("watcher", OK, commands=("poll",))
        door(site, "watcher")
        [problem] = problems(site)
        assert problem.severity is Severity.WARNING
        assert problem.message == "watcher has no command `handle`: its jobs will fail"
        assert problem.path == ("webhooks", "endpoints", 0, "plugin")
        assert problem.line is not None

    def test_one_to_a_refused_plugin_is_accepted(self, site: Site) -> None:
        (site.plugin("watcher", OK) / "run").chmod(0o644)
        door(site, "watcher")
        assert problems(site) == []

    def test_one_to_a_disabled_plugin_is_accepted_with_a_warning(self, site: Site) -> None:
        site.plugin("watcher", OK, enabled=False)
        door(site, "watcher")
        [problem] = problems(site)
        assert problem.severity is Severity.WARNING
        assert problem.path == ("webhooks", "endpoints", 0, "plugin")
        assert problem.message.startswith("plugin watcher is disabled: jobs made for it end")
        assert problem.line is not None


class TestScopes:
    @pytest.mark.parametrize(
        ("scope", "expected"),
        [
            ("job:ro", "there is no plugin 'job'; did you mean 'jobs'?"),
            ("*:ro", "there is no plugin '*'"),
            ("wathcer:rw", "did you mean 'watcher'?"),
        ],
    )
    def test_scope_that_allows_nothing_is_warned_about(
        self, site: Site, scope: str, expected: str
    ) -> None:
        site.plugin("watcher", OK)
        inline = {"token": "a-token-0123456789", "scopes": ["watcher:ro", scope]}
        site.settings["api"] = {"auth": {"tokens": [inline]}}
        [problem] = problems(site)
        assert problem.severity is Severity.WARNING
        assert problem.message.startswith(f"{scope} grants nothing: ")
        assert expected in problem.message
        assert problem.path == ("api", "auth", "tokens", 0, "scopes")
        assert problem.line is not None

    def test_one_of_a_plugin_that_cannot_run_now_is_fine(self, site: Site) -> None:
        site.plugin("off", OK, enabled=False)
        (site.plugin("bad", OK) / "run").chmod(0o644)
        granted = ["off:rw", "bad:ro", "*", "read:jobs", "agents:rw"]
        inline = {"token": "a-token-0123456789", "scopes": granted}
        site.settings["api"] = {"auth": {"tokens": [inline]}}
        assert problems(site) == []


class TestDisabledPlugins:
    def test_routes_and_steps_that_use_them_are_reported_with_their_place(self, site: Site) -> None:
        site.plugin("watcher", OK)
        site.plugin("off", OK, enabled=False)
        site.settings["routes"] = [
            {"from": "watcher", "event_type": "seen", "to": "off"},
            {"from": "off", "event_type": "seen", "to": "watcher"},
        ]
        site.settings["pipelines"] = [
            {"name": "p", "on": "seen", "steps": [{"uses": "watcher"}, {"uses": "off"}]},
            {"name": "q", "on": "heard", "steps": [{"call": "p"}, {"uses": "watcher"}]},
        ]
        found = problems(site)
        assert {problem.path for problem in found} == {
            ("routes", 0, "to"),
            ("pipelines", 0, "steps", 1, "uses"),
        }
        assert len(found) == 2
        assert all("plugin off is disabled" in problem.message for problem in found)
        assert all(problem.severity is Severity.WARNING and problem.line for problem in found)

    def test_one_that_nothing_names_is_not_reported(self, site: Site) -> None:
        site.plugin("watcher", OK)
        site.plugin("off", OK, enabled=False, schedules=[{"every": "1h"}])
        assert problems(site) == []


class TestCommands:
    @pytest.mark.parametrize(
        ("settings", "path"),
        [
            ({"schedules": [{"every": "1h", "command": "pol"}]}, ("schedules", 0, "command")),
            ({"timeouts": {"pol": "3s"}}, ("timeouts", "pol")),
        ],
    )
    def test_one_that_the_plugin_does_not_have_is_warned_of(
        self, site: Site, settings: dict[str, Any], path: tuple[str | int, ...]
    ) -> None:
        site.plugin("watcher", OK, **settings)
        [problem] = problems(site)
        assert problem.severity is Severity.WARNING
        assert "watcher has no command `pol`" in problem.message
        assert problem.path == ("plugins", "watcher", *path)
        assert problem.nearest == "poll"
        lines = site.write().read_text().splitlines()
        assert '"pol"' in lines[(problem.line or 0) - 1]

    def test_a_schedule_without_a_command_means_poll(self, site: Site) -> None:
        site.plugin("watcher", OK, commands=("handle",), schedules=[{"every": "1h"}])
        [problem] = problems(site)
        assert "no command `poll`" in problem.message
        assert problem.allowed == "handle"

    def test_those_that_it_has_are_not_warned_of(self, site: Site) -> None:
        schedules = [{"every": "1h", "command": "sync"}]
        site.plugin("watcher", OK, schedules=schedules, timeouts={"sync": "3s"})
        assert problems(site) == []

    def test_a_timeout_may_be_set_for_any_standard_command(self, site: Site) -> None:
        site.plugin("watcher", OK, commands=("handle",), timeouts={"poll": "3s", "init": "3s"})
        assert problems(site) == []

    def test_commands_of_a_refused_plugin_are_not_checked(self, site: Site) -> None:
        schedules = [{"every": "1h", "command": "pol"}]
        (site.plugin("watcher", OK, schedules=schedules) / "run").chmod(0o644)
        assert problems(site) == []

    def test_a_disabled_plugin_is_left_alone(self, site: Site) -> None:
        site.plugin("watcher", OK, enabled=False, timeouts={"pol": "3s"})
        assert problems(site) == []


class TestPlugins:
    def test_one_that_is_disabled_and_nowhere_but_like_another_is_warned_of(
        self, site: Site
    ) -> None:
        site.plugin("watcher", OK)
        site.settings["plugins"]["watchr"] = {"enabled": False}
        [problem] = problems(site)
        assert problem.severity is Severity.WARNING
        assert problem.message == "no plugin root has a plugin named watchr"
        assert (problem.path, problem.nearest) == (("plugins", "watchr"), "watcher")
        assert problem.line is not None

    def test_one_that_is_disabled_and_there_is_not(self, site: Site) -> None:
        site.plugin("watcher", OK, enabled=False)
        site.settings["plugins"]["other"] = {"enabled": False, "uses": "watcher"}
        assert problems(site) == []

    def test_one_that_is_disabled_and_like_no_other_may_be_gone(self, site: Site) -> None:
        site.plugin("watcher", OK)
        site.settings["plugins"]["retired"] = {"enabled": False}
        assert problems(site) == []

    def test_of_a_disabled_alias_the_plugin_is_named_that_it_means(self, site: Site) -> None:
        site.plugin("watcher", OK)
        site.settings["plugins"]["kitchen"] = {"enabled": False, "uses": "watchr"}
        [problem] = problems(site)
        assert (problem.path, problem.nearest) == (("plugins", "kitchen"), "watcher")
        assert problem.message.endswith("named watchr")

    def test_one_that_is_disabled_and_would_be_refused_is_there(self, site: Site) -> None:
        (site.plugin("watcher", OK, enabled=False) / "run").chmod(0o644)
        assert problems(site) == []

    def test_a_refusal_for_it_names_which_was_meant(self, site: Site) -> None:
        site.plugin("watcher", OK)
        site.settings["plugins"]["watchr"] = {}
        compiled = build(site.load(), boot_marker="m:b", environ=site.environ)
        [refusal] = compiled.registry.refused
        assert refusal.reason.endswith("named watchr; did you mean 'watcher'?")


class TestEventTypes:
    def plugin(self, site: Site, name: str, *events: str) -> None:
        emit = ", ".join(f"{{event: {event}}}" for event in events)
        body = f"{{handle: {{}}, poll: {{values: {{emit: [{emit}]}}}}}}"
        directory = site.plugin(name, OK)
        manifest = directory / "manifest.yaml"
        lines = [x for x in manifest.read_text().splitlines() if not x.startswith("commands:")]
        manifest.write_text("\n".join((*lines, f"commands: {body}", "")))

    def found(self, site: Site, on: str, **more: Any) -> list[Problem]:
        pipeline = {"name": "p", "on": on, "steps": [{"uses": "scale"}], **more}
        site.settings["pipelines"] = [pipeline]
        return problems(site)

    def test_a_type_that_no_source_declares_is_reported(self, site: Site) -> None:
        self.plugin(site, "scale", "scale.weight")
        assert self.found(site, "scale.weight") == []
        [problem] = self.found(site, "other.thing")
        assert problem.severity is Severity.WARNING
        assert problem.path == ("pipelines", 0, "on")
        assert problem.message.startswith("no plugin, webhook or peer declares this event type")
        assert (problem.found, problem.nearest) == ('"other.thing"', None)
        [problem] = self.found(site, "scale.wieght")
        assert problem.nearest == "scale.weight"

    def test_where_a_plugin_declares_nothing_only_typing_errors_are_reported(
        self, site: Site
    ) -> None:
        self.plugin(site, "scale", "scale.weight")
        site.plugin("other", OK)
        assert self.found(site, "other.thing") == []
        [problem] = self.found(site, "scale.wieght")
        assert problem.nearest == "scale.weight"

    def test_the_declarations_of_from_plugin_decide(self, site: Site) -> None:
        self.plugin(site, "scale", "scale.weight")
        site.plugin("other", OK)
        assert self.found(site, "other.thing", from_plugin="other") == []
        [problem] = self.found(site, "other.thing", from_plugin="scale")
        assert problem.message.startswith("plugin scale does not declare this event type")

    def test_the_declarations_of_the_source_of_a_route_decide(self, site: Site) -> None:
        self.plugin(site, "scale", "scale.weight")
        site.plugin("other", OK)
        site.settings["routes"] = [
            {"from": "scale", "event_type": "scale.wieght", "to": "other"},
            {"from": "scale", "event_type": "scale.weight", "to": "other"},
            {"from": "other", "event_type": "any.thing", "to": "scale"},
        ]
        [problem] = self.found(site, "scale.weight")
        assert problem.path == ("routes", 0, "event_type")
        assert problem.nearest == "scale.weight"

    @pytest.mark.parametrize("on", ["webhook.hook", "lab.event", "any.thing"])
    def test_types_of_webhooks_peers_and_wildcards_are_known(self, site: Site, on: str) -> None:
        self.plugin(site, "scale", "scale.weight", *(["any.*"] if on == "any.thing" else []))
        door(site, "scale")
        peer = {"name": "lab", "secret": "a-secret-0123456789", "accept": ["lab.event"]}
        site.settings["remote_ingress"] = {"peers": [peer]}
        site.settings["api"] = {
            "enabled": True,
            "auth": {"tokens": [{"token": "a-token-0123456789", "scopes": ["*"]}]},
        }
        assert self.found(site, on) == []


def test_bundled_plugin_outside_the_roots_names_the_lines_to_add(site: Site) -> None:
    site.settings["pipelines"] = [{"name": "p", "on": "x", "steps": [{"uses": "notify"}]}]
    [problem] = problems(site)
    assert problem.allowed == (
        '"bundled:" in plugin_roots and `notify: {}` under plugins, which load the bundled plugin'
    )
