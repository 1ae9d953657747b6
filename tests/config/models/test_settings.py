"""Defaults, both shapes of a thing, and values as the rest of the gateway gets them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from ductile.config import Settings
from ductile.core.values.redact import REDACTED
from ductile.errors import Severity
from tests.config.conftest import Home, only


def test_an_empty_configuration_has_every_default(home: Home) -> None:
    settings = home.load("").settings
    service = settings.service
    day = 86_400.0
    assert (service.name, service.log_level, service.log_format) == ("ductile", "info", "json")
    assert (service.tick_interval, service.dedupe_ttl, service.shutdown_grace) == (60, day, 10)
    assert (service.job_log_retention, service.job_queue_retention) == (30 * day, 30 * day)
    assert (service.job_transitions_retention, service.job_attempts_retention) == (
        30 * day,
        30 * day,
    )
    assert (service.breaker_transitions_retention, service.plugin_facts_retention) == (
        90 * day,
        None,
    )
    assert service.max_workers == max(1, len(os.sched_getaffinity(0)) - 1)
    assert (service.strict_mode, service.allow_symlinks, service.workspaces) == (
        False,
        False,
        False,
    )
    assert (service.workspace_retention, service.workspace_clone) == (day, "copy")
    assert (service.max_hops, service.plugin_env_passthrough) == (20, ())
    assert (settings.api.enabled, settings.api.listen) == (False, "127.0.0.1:8080")
    assert (settings.api.max_concurrent_sync, settings.api.max_sync_timeout) == (10, 300)
    assert settings.webhooks.listen == "127.0.0.1:8081"
    assert settings.gateway.open is False
    assert settings.remote_ingress.peers == ()


def test_a_plugin_has_every_default(home: Home) -> None:
    plugin = home.load("plugins:\n  echo:\n").settings.plugins["echo"]
    assert plugin.enabled is True
    assert (plugin.retry.max_attempts, plugin.retry.backoff_base) == (4, 30)
    assert (plugin.circuit_breaker.threshold, plugin.circuit_breaker.reset_after) == (3, 1800)
    assert (plugin.max_outstanding_polls, plugin.parallelism) == (1, None)
    assert (plugin.notify_on_complete, plugin.uses, plugin.config) == (False, None, {})
    assert plugin.timeouts == {}


def test_empty_sections_are_absent_sections(home: Home) -> None:
    text = "service:\nstate:\nplugins:\nroutes:\npipelines:\napi:\nwebhooks:\ntokens:\ninclude:\n"
    assert home.load(text).settings == home.load("").settings


def test_settings_are_frozen(home: Home) -> None:
    with pytest.raises(ValidationError):
        home.load("").settings.service.name = "x"  # type: ignore[misc]


def test_settings_can_be_built_by_hand() -> None:
    settings = Settings.model_validate({"plugins": {"p": {"timeouts": {"poll": 5.0}}}})
    assert settings.plugins["p"].timeouts == {"poll": 5}


class TestPaths:
    def test_relative_ones_start_at_the_configuration(self, home: Home) -> None:
        settings = home.load("state: {path: var/x.db}\nplugin_roots: [p, ../q]").settings
        assert settings.state.path == home.path / "var/x.db"
        assert settings.plugin_roots == (home.path / "p", home.path.parent / "q")
        assert settings.config_dir == home.path

    def test_home_is_understood(self, home: Home) -> None:
        settings = home.load('state: {path: "~/x.db"}', HOME="/home/me").settings
        assert settings.state.path == Path("/home/me/x.db")

    def test_absolute_ones_stay(self, home: Home) -> None:
        assert home.load("plugins_dir: /opt/p").settings.plugin_roots == (Path("/opt/p"),)

    def test_a_path_in_an_included_file_starts_at_the_configuration_too(self, home: Home) -> None:
        files = {"config.yaml": "include: [sub/a.yaml]", "sub/a.yaml": "plugin_roots: [p]"}
        assert home.load(files).settings.plugin_roots == (home.path / "p",)

    def test_a_root_named_twice_is_one_root(self, home: Home) -> None:
        assert len(home.load("plugin_roots: [p, ./p, p/../p]").settings.plugin_roots) == 1


class TestState:
    def test_by_default_it_is_a_file(self, home: Home) -> None:
        settings = home.load("").settings
        assert settings.state.path == home.path / "data/state.db"
        assert settings.state.url is None
        assert settings.state_dir == home.path / "data"

    def test_the_directory_is_that_of_the_path(self, home: Home) -> None:
        assert home.load("state: {path: /var/x/l.db}").settings.state_dir == Path("/var/x")

    def test_with_a_url_there_is_no_path(self, home: Home) -> None:
        settings = home.load("state: {url: postgresql://db/d}").settings
        assert (settings.state.path, settings.state_dir) == (None, home.path / "data")

    def test_with_a_url_the_directory_can_be_named(self, home: Home) -> None:
        settings = home.load("state: {url: postgresql://db/d, dir: /var/d}").settings
        assert settings.state_dir == Path("/var/d")

    def test_path_and_url_exclude_each_other(self, home: Home) -> None:
        problem = only(home.refused("state: {url: postgresql://db/d, path: x.db}"))
        assert "exclude each other" in problem.message

    def test_another_database_is_refused(self, home: Home) -> None:
        assert "PostgreSQL" in only(home.refused("state: {url: mysql://db/d}")).message

    @pytest.mark.parametrize("key", ["state: {url: '%s'}", "database: {url: '%s'}", "state: '%s'"])
    @pytest.mark.parametrize("text", ["host=/x password=hunter22", "mysql://db/d?pwd=hunter22"])
    def test_what_is_no_url_of_ours_is_not_quoted(self, home: Home, key: str, text: str) -> None:
        problem = only(home.refused(key % text))
        assert problem.found == REDACTED
        assert "hunter22" not in str(problem)


class TestBothShapes:
    def test_plugins_dir(self, home: Home) -> None:
        one = home.load("plugins_dir: x").settings
        assert one == home.load("plugin_roots: [x]").settings

    def test_plugins_dir_comes_before_more_roots(self, home: Home) -> None:
        settings = home.load("plugin_roots: [b]\nplugins_dir: a").settings
        assert [root.name for root in settings.plugin_roots] == ["a", "b"]

    def test_schedule(self, home: Home) -> None:
        one = home.load("plugins: {p: {schedule: {every: 5m}}}").settings
        assert one == home.load("plugins: {p: {schedules: [{every: 5m}]}}").settings

    def test_a_schedule_beside_schedules_leaves_their_numbers_alone(self, home: Home) -> None:
        text = "plugins: {p: {schedule: {id: b, every: 5m}, schedules: [{id: a, every: 1h}]}}"
        loaded = home.load(text)
        assert [entry.id for entry in loaded.settings.plugins["p"].schedules] == ["a", "b"]
        warning = only(list(loaded.warnings))
        assert warning.severity is Severity.WARNING
        assert "schedule and schedules are both set" in warning.message
        assert (warning.path, warning.column) == (("plugins", "p", "schedule"), 15)

    def test_what_is_wrong_beside_a_schedule_has_its_own_number(self, home: Home) -> None:
        text = "plugins: {p: {schedule: {id: b, every: 5m}, schedules: [{id: a, every: x}]}}"
        assert only(home.refused(text)).path == ("plugins", "p", "schedules", 0, "every")

    def test_preferred_window(self, home: Home) -> None:
        text = "plugins: {p: {schedule: {every: 5m, %s}}}"
        one = home.load(text % "preferred_window: {start: '06:00', end: 22:00}").settings
        other = home.load(text % "only_between: 06:00-22:00").settings
        assert one == other
        assert one.plugins["p"].schedules[0].window == "06:00-22:00"

    def test_both_windows_are_one_too_many(self, home: Home) -> None:
        window = "only_between: 06:00-22:00, preferred_window: {start: 06:00, end: 23:00}"
        text = f"plugins: {{p: {{schedule: {{every: 5m, {window}}}}}}}"
        assert "mean the same" in only(home.refused(text)).message

    def test_webhooks(self, home: Home) -> None:
        endpoint = "{path: /h, plugin: p, secret: x}"
        files = {"config.yaml": "include: [w.yaml]", "w.yaml": f"webhooks: [{endpoint}]"}
        one = home.load(files).settings
        assert one == home.load(f"webhooks: {{endpoints: [{endpoint}]}}").settings

    def test_webhooks_of_both_shapes_meet(self, home: Home) -> None:
        files = {
            "config.yaml": "include: [w.yaml]\nwebhooks: {listen: 127.0.0.1:9}",
            "w.yaml": "webhooks: [{path: /h, plugin: p, secret: x}]",
        }
        webhooks = home.load(files).settings.webhooks
        assert (webhooks.listen, len(webhooks.endpoints)) == ("127.0.0.1:9", 1)

    def test_database(self, home: Home) -> None:
        one = home.load("database: {path: x.db}").settings
        assert one == home.load("state: {path: x.db}").settings

    def test_state_wins_over_database(self, home: Home) -> None:
        loaded = home.load("database: {path: a.db}\nstate: {path: b.db}")
        assert loaded.settings.state.path == home.path / "b.db"
        warning = only(list(loaded.warnings))
        assert warning.severity is Severity.WARNING
        assert (warning.path, warning.line, warning.column) == (("database", "path"), 1, 12)
        assert "state.path" in warning.message

    def test_what_only_database_says_holds_without_a_word(self, home: Home) -> None:
        loaded = home.load("database: {url: postgresql://db/d}\nstate: {dir: /var/d, url: }")
        assert loaded.settings.state.url == "postgresql://db/d"
        assert (loaded.settings.state_dir, loaded.warnings) == (Path("/var/d"), ())

    def test_a_state_left_empty_does_not_take_databases_place(self, home: Home) -> None:
        assert home.load("state:\ndatabase: {path: a.db}").settings.state.path == (
            home.path / "a.db"
        )

    def test_a_database_of_a_wrong_form_is_dropped_with_a_warning(self, home: Home) -> None:
        loaded = home.load("database: a.db\nstate: {path: b.db}")
        assert only(list(loaded.warnings)).path == ("database",)

    def test_log_level_at_the_root(self, home: Home) -> None:
        assert home.load("log_level: debug").settings.service.log_level == "debug"

    def test_service_log_level_wins(self, home: Home) -> None:
        loaded = home.load("log_level: debug\nservice: {log_level: warn}")
        assert loaded.settings.service.log_level == "warn"
        assert only(list(loaded.warnings)).path == ("log_level",)

    def test_a_service_log_level_left_empty_does_not(self, home: Home) -> None:
        loaded = home.load("log_level: debug\nservice: {log_level: }")
        assert (loaded.settings.service.log_level, loaded.warnings) == ("debug", ())


@pytest.mark.parametrize(
    "text", ["plugins_dir:", "database:", "log_level:", "plugins: {p: {schedule: }}"]
)
def test_a_synonym_left_empty_is_absent(home: Home, text: str) -> None:
    settings = home.load(text).settings
    assert settings.plugin_roots == (home.path / "plugins",)
    assert settings.service.log_level == "info"


def test_a_synonym_does_not_hide_a_wrong_section(home: Home) -> None:
    assert only(home.refused("log_level: debug\nservice: 5")).path == ("service",)
    assert only(home.refused("plugins_dir: a\nplugin_roots: b")).path == ("plugin_roots",)


def test_what_is_known_for_compatibility_is_taken(home: Home) -> None:
    text = """
tcc_paths: [/Users/me/Documents]
service: {job_attempts_retention: 7d}
api: {allowed_origins: ["https://ui.example"]}
webhooks: [{name: gh, path: /h, plugin: p, secret: x}]
tokens: [{name: t, key: k, created_at: 2026-02-08, description: for tests}]
"""
    settings = home.load(text).settings
    assert settings.api.allowed_origins == ("https://ui.example",)
    assert settings.webhooks.endpoints[0].event_name == "gh"


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:8080", ("::1", 8080)),
        (":9", ("0.0.0.0", 9)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_addresses(home: Home, listen: str, address: tuple[str, int]) -> None:
    assert home.load(f'webhooks: {{listen: "{listen}"}}').settings.webhooks.address == address


@pytest.mark.parametrize("listen", ["8080", "localhost", "a b:1", "h:70000", "http://h:1"])
def test_what_is_no_address(home: Home, listen: str) -> None:
    assert "must be an address" in only(home.refused(f'api: {{listen: "{listen}"}}')).message


def test_the_webhook_listener_is_wanted_where_its_section_is(home: Home) -> None:
    assert home.load("").settings.webhooks_enabled is False
    assert home.load("webhooks: {listen: 127.0.0.1:1}").settings.webhooks_enabled is True


def test_networks_that_deliveries_may_reach(home: Home) -> None:
    settings = home.load("gateway: {open: true, allowed_networks: [10.0.0.0/8, '::1']}").settings
    assert settings.gateway.allowed_networks == ("10.0.0.0/8", "::1/128")


def test_a_network_must_be_one(home: Home) -> None:
    problem = only(home.refused("gateway: {allowed_networks: [10.0.0.1/8]}"))
    assert problem.path == ("gateway", "allowed_networks", 0)


def test_the_hash_changes_when_only_a_secret_does(home: Home) -> None:
    text = "plugins: {p: {config: {token: ${T}}}}"
    assert home.load(text, T="a").config_hash != home.load(text, T="b").config_hash
    assert home.load(text, T="a").config_hash == home.load(text, T="a").config_hash
