"""Defaults, paths, and alternative forms of settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from ductile.config import Settings
from ductile.core.values.redact import REDACTED
from ductile.errors import Severity
from tests.config.conftest import ConfigDir, only


def test_defaults(config_dir: ConfigDir) -> None:
    settings = config_dir.load("").settings
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


def test_defaults_of_a_plugin(config_dir: ConfigDir) -> None:
    plugin = config_dir.load("plugins:\n  echo:\n").settings.plugins["echo"]
    assert plugin.enabled is True
    assert (plugin.retry.max_attempts, plugin.retry.backoff_base) == (4, 30)
    assert (plugin.circuit_breaker.threshold, plugin.circuit_breaker.reset_after) == (3, 1800)
    assert (plugin.max_outstanding_polls, plugin.parallelism) == (1, None)
    assert (plugin.notify_on_complete, plugin.uses, plugin.config) == (False, None, {})
    assert plugin.timeouts == {}


def test_empty_sections_count_as_absent(config_dir: ConfigDir) -> None:
    text = "service:\nstate:\nplugins:\nroutes:\npipelines:\napi:\nwebhooks:\ntokens:\ninclude:\n"
    assert config_dir.load(text).settings == config_dir.load("").settings


def test_settings_are_frozen(config_dir: ConfigDir) -> None:
    with pytest.raises(ValidationError):
        config_dir.load("").settings.service.name = "x"  # type: ignore[misc]


def test_settings_can_be_built_from_plain_values() -> None:
    settings = Settings.model_validate({"plugins": {"p": {"timeouts": {"poll": 5.0}}}})
    assert settings.plugins["p"].timeouts == {"poll": 5}


class TestPaths:
    def test_relative_paths_start_at_the_configuration_directory(
        self, config_dir: ConfigDir
    ) -> None:
        settings = config_dir.load("state: {path: var/x.db}\nplugin_roots: [p, ../q]").settings
        assert settings.state.path == config_dir.path / "var/x.db"
        assert settings.plugin_roots == (config_dir.path / "p", config_dir.path.parent / "q")
        assert settings.config_dir == config_dir.path

    def test_tilde_is_expanded(self, config_dir: ConfigDir) -> None:
        settings = config_dir.load('state: {path: "~/x.db"}', HOME="/home/me").settings
        assert settings.state.path == Path("/home/me/x.db")

    def test_absolute_paths_are_kept(self, config_dir: ConfigDir) -> None:
        assert config_dir.load("plugins_dir: /opt/p").settings.plugin_roots == (Path("/opt/p"),)

    def test_relative_path_starts_at_the_configuration_directory(
        self, config_dir: ConfigDir
    ) -> None:
        files = {"config.yaml": "include: [sub/a.yaml]", "sub/a.yaml": "plugin_roots: [p]"}
        assert config_dir.load(files).settings.plugin_roots == (config_dir.path / "p",)

    def test_repeated_roots_are_dropped(self, config_dir: ConfigDir) -> None:
        assert len(config_dir.load("plugin_roots: [p, ./p, p/../p]").settings.plugin_roots) == 1


class TestState:
    def test_default_state_is_a_file(self, config_dir: ConfigDir) -> None:
        settings = config_dir.load("").settings
        assert settings.state.path == config_dir.path / "data/state.db"
        assert settings.state.url is None
        assert settings.state_dir == config_dir.path / "data"

    def test_state_dir_is_the_directory_of_the_path(self, config_dir: ConfigDir) -> None:
        assert config_dir.load("state: {path: /var/x/l.db}").settings.state_dir == Path("/var/x")

    def test_url_has_no_path(self, config_dir: ConfigDir) -> None:
        settings = config_dir.load("state: {url: postgresql://db/d}").settings
        assert (settings.state.path, settings.state_dir) == (None, config_dir.path / "data")

    def test_url_with_a_directory(self, config_dir: ConfigDir) -> None:
        settings = config_dir.load("state: {url: postgresql://db/d, dir: /var/d}").settings
        assert settings.state_dir == Path("/var/d")

    def test_path_and_url_together_are_rejected(self, config_dir: ConfigDir) -> None:
        problem = only(config_dir.load_errors("state: {url: postgresql://db/d, path: x.db}"))
        assert "cannot both be set" in problem.message

    def test_other_databases_are_rejected(self, config_dir: ConfigDir) -> None:
        assert "PostgreSQL" in only(config_dir.load_errors("state: {url: mysql://db/d}")).message

    @pytest.mark.parametrize("key", ["state: {url: '%s'}", "database: {url: '%s'}", "state: '%s'"])
    @pytest.mark.parametrize("text", ["host=/x password=hunter22", "mysql://db/d?pwd=hunter22"])
    def test_invalid_database_url_is_not_quoted(
        self, config_dir: ConfigDir, key: str, text: str
    ) -> None:
        problem = only(config_dir.load_errors(key % text))
        assert problem.found == REDACTED
        assert "hunter22" not in str(problem)


class TestAlternativeForms:
    def test_plugins_dir(self, config_dir: ConfigDir) -> None:
        one = config_dir.load("plugins_dir: x").settings
        assert one == config_dir.load("plugin_roots: [x]").settings

    def test_plugins_dir_precedes_plugin_roots(self, config_dir: ConfigDir) -> None:
        settings = config_dir.load("plugin_roots: [b]\nplugins_dir: a").settings
        assert [root.name for root in settings.plugin_roots] == ["a", "b"]

    def test_schedule(self, config_dir: ConfigDir) -> None:
        one = config_dir.load("plugins: {p: {schedule: {every: 5m}}}").settings
        assert one == config_dir.load("plugins: {p: {schedules: [{every: 5m}]}}").settings

    def test_schedule_is_appended_to_schedules_with_a_warning(self, config_dir: ConfigDir) -> None:
        text = "plugins: {p: {schedule: {id: b, every: 5m}, schedules: [{id: a, every: 1h}]}}"
        loaded = config_dir.load(text)
        assert [entry.id for entry in loaded.settings.plugins["p"].schedules] == ["a", "b"]
        warning = only(list(loaded.warnings))
        assert warning.severity is Severity.WARNING
        assert "both schedule and schedules are set" in warning.message
        assert (warning.path, warning.column) == (("plugins", "p", "schedule"), 15)

    def test_indexes_of_schedules_are_not_shifted_by_schedule(self, config_dir: ConfigDir) -> None:
        text = "plugins: {p: {schedule: {id: b, every: 5m}, schedules: [{id: a, every: x}]}}"
        assert only(config_dir.load_errors(text)).path == ("plugins", "p", "schedules", 0, "every")

    def test_preferred_window(self, config_dir: ConfigDir) -> None:
        text = "plugins: {p: {schedule: {every: 5m, %s}}}"
        one = config_dir.load(text % "preferred_window: {start: '06:00', end: 22:00}").settings
        other = config_dir.load(text % "only_between: 06:00-22:00").settings
        assert one == other
        assert one.plugins["p"].schedules[0].window == "06:00-22:00"

    def test_both_forms_of_a_window_are_rejected(self, config_dir: ConfigDir) -> None:
        window = "only_between: 06:00-22:00, preferred_window: {start: 06:00, end: 23:00}"
        text = f"plugins: {{p: {{schedule: {{every: 5m, {window}}}}}}}"
        assert "is an alias of only_between" in only(config_dir.load_errors(text)).message

    def test_webhooks(self, config_dir: ConfigDir) -> None:
        endpoint = "{path: /h, plugin: p, secret: x}"
        files = {"config.yaml": "include: [w.yaml]", "w.yaml": f"webhooks: [{endpoint}]"}
        one = config_dir.load(files, seal=False).settings
        assert one == config_dir.load(f"webhooks: {{endpoints: [{endpoint}]}}").settings

    def test_both_forms_of_webhooks_are_merged(self, config_dir: ConfigDir) -> None:
        files = {
            "config.yaml": "include: [w.yaml]\nwebhooks: {listen: 127.0.0.1:9}",
            "w.yaml": "webhooks: [{path: /h, plugin: p, secret: x}]",
        }
        webhooks = config_dir.load(files, seal=False).settings.webhooks
        assert (webhooks.listen, len(webhooks.endpoints)) == ("127.0.0.1:9", 1)

    def test_database(self, config_dir: ConfigDir) -> None:
        one = config_dir.load("database: {path: x.db}").settings
        assert one == config_dir.load("state: {path: x.db}").settings

    def test_state_has_precedence_over_database(self, config_dir: ConfigDir) -> None:
        loaded = config_dir.load("database: {path: a.db}\nstate: {path: b.db}")
        assert loaded.settings.state.path == config_dir.path / "b.db"
        warning = only(list(loaded.warnings))
        assert warning.severity is Severity.WARNING
        assert (warning.path, warning.line, warning.column) == (("database", "path"), 1, 12)
        assert "state.path" in warning.message

    def test_database_fills_keys_that_state_leaves_out(self, config_dir: ConfigDir) -> None:
        loaded = config_dir.load("database: {url: postgresql://db/d}\nstate: {dir: /var/d, url: }")
        assert loaded.settings.state.url == "postgresql://db/d"
        assert (loaded.settings.state_dir, loaded.warnings) == (Path("/var/d"), ())

    def test_empty_state_does_not_hide_database(self, config_dir: ConfigDir) -> None:
        assert config_dir.load("state:\ndatabase: {path: a.db}").settings.state.path == (
            config_dir.path / "a.db"
        )

    def test_invalid_database_is_ignored_with_a_warning_if_state_is_set(
        self, config_dir: ConfigDir
    ) -> None:
        loaded = config_dir.load("database: a.db\nstate: {path: b.db}")
        assert only(list(loaded.warnings)).path == ("database",)

    def test_log_level_at_the_root(self, config_dir: ConfigDir) -> None:
        assert config_dir.load("log_level: debug").settings.service.log_level == "debug"

    def test_service_log_level_has_precedence(self, config_dir: ConfigDir) -> None:
        loaded = config_dir.load("log_level: debug\nservice: {log_level: warn}")
        assert loaded.settings.service.log_level == "warn"
        assert only(list(loaded.warnings)).path == ("log_level",)

    def test_empty_service_log_level_does_not_hide_log_level(self, config_dir: ConfigDir) -> None:
        loaded = config_dir.load("log_level: debug\nservice: {log_level: }")
        assert (loaded.settings.service.log_level, loaded.warnings) == ("debug", ())


@pytest.mark.parametrize(
    "text", ["plugins_dir:", "database:", "log_level:", "plugins: {p: {schedule: }}"]
)
def test_empty_alias_counts_as_absent(config_dir: ConfigDir, text: str) -> None:
    settings = config_dir.load(text).settings
    assert settings.plugin_roots == (config_dir.path / "plugins",)
    assert settings.service.log_level == "info"


def test_alias_does_not_hide_an_invalid_section(config_dir: ConfigDir) -> None:
    assert only(config_dir.load_errors("log_level: debug\nservice: 5")).path == ("service",)
    assert only(config_dir.load_errors("plugins_dir: a\nplugin_roots: b")).path == ("plugin_roots",)


def test_compatibility_keys_are_accepted(config_dir: ConfigDir) -> None:
    text = """
tcc_paths: [/Users/me/Documents]
service: {job_attempts_retention: 7d}
api: {allowed_origins: ["https://ui.example"]}
webhooks: [{name: gh, path: /h, plugin: p, secret: x}]
tokens: [{name: t, key: k, created_at: 2026-02-08, description: for tests}]
"""
    settings = config_dir.load(text).settings
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
def test_addresses(config_dir: ConfigDir, listen: str, address: tuple[str, int]) -> None:
    assert config_dir.load(f'webhooks: {{listen: "{listen}"}}').settings.webhooks.address == address


@pytest.mark.parametrize("listen", ["8080", "localhost", "a b:1", "h:70000", "http://h:1"])
def test_invalid_addresses_are_rejected(config_dir: ConfigDir, listen: str) -> None:
    assert (
        "must be an address" in only(config_dir.load_errors(f'api: {{listen: "{listen}"}}')).message
    )


def test_webhooks_are_enabled_by_their_section(config_dir: ConfigDir) -> None:
    assert config_dir.load("").settings.webhooks_enabled is False
    assert config_dir.load("webhooks: {listen: 127.0.0.1:1}").settings.webhooks_enabled is True


def test_allowed_networks_are_normalized(config_dir: ConfigDir) -> None:
    settings = config_dir.load(
        "gateway: {open: true, allowed_networks: [10.0.0.0/8, '::1']}"
    ).settings
    assert settings.gateway.allowed_networks == ("10.0.0.0/8", "::1/128")


def test_invalid_network_is_rejected(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("gateway: {allowed_networks: [10.0.0.1/8]}"))
    assert problem.path == ("gateway", "allowed_networks", 0)


def test_config_hash_covers_secrets(config_dir: ConfigDir) -> None:
    text = "plugins: {p: {config: {token: ${T}}}}"
    assert config_dir.load(text, T="a").config_hash != config_dir.load(text, T="b").config_hash
    assert config_dir.load(text, T="a").config_hash == config_dir.load(text, T="a").config_hash
