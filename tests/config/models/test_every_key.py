"""Every key is accepted, and every unexpected value is reported."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ductile.config.problems import known_keys
from ductile.errors import ConfigError, Problem
from tests.config.conftest import ConfigDir

EVERY_KEY: dict[str, Any] = {
    "include": [],
    "environment_vars": {"include": []},
    "plugins_dir": "a",
    "database": {"dir": "x"},
    "log_level": "info",
    "tcc_paths": ["/x"],
    "service": {
        "name": "x",
        "node": "a",
        "labels": {"gpu": "true"},
        "tick_interval": "60s",
        "log_level": "info",
        "log_format": "json",
        "max_workers": 1,
        "strict_mode": False,
        "plugin_env_passthrough": ["A"],
        "shutdown_grace": "1s",
        "max_hops": 3,
        "workspace_clone": "copy",
        "plugin_facts_retention": "1d",
        "dedupe_ttl": "1h",
        "job_log_retention": "1d",
        "job_queue_retention": "1d",
        "job_transitions_retention": "1d",
        "job_attempts_retention": "1d",
        "breaker_transitions_retention": "1d",
        "workspace_retention": "1d",
        "workspaces": True,
        "allow_symlinks": True,
        "sandbox": "enforce",
    },
    "state": {"dir": "x", "workspaces": "w"},
    "plugin_roots": ["p"],
    "plugins": {
        "p": {
            "enabled": True,
            "uses": "q",
            "config": {"a": 1},
            "env": {"A": "b"},
            "secrets": ["A"],
            "schedule": {"every": "5m", "preferred_window": {"start": "06:00", "end": "07:00"}},
            "schedules": [
                {
                    "id": "b",
                    "cron": "* * * * *",
                    "payload": {},
                    "jitter": "1s",
                    "only_between": "06:00-07:00",
                    "timezone": "UTC",
                    "not_on": [1],
                    "catch_up": "skip",
                    "if_running": "skip",
                    "priority": "10m",
                    "command": "poll",
                },
                {"id": "c", "at": "2026-01-01T00:00:00Z"},
                {"id": "d", "after": "1s"},
            ],
            "retry": {"max_attempts": 1, "backoff_base": "1s"},
            "timeouts": {"poll": "1s"},
            "nodes": {"gpu": "true"},
            "circuit_breaker": {"threshold": 1, "reset_after": "1s"},
            "max_outstanding_polls": 1,
            "parallelism": 1,
            "concurrency": {"key": "{payload.a}", "limit": 1, "on_full": "skip"},
            "priority": "10m",
            "runtime": {"python": "warm", "preload": ["json"]},
            "sandbox": {
                "level": "enforce",
                "read": ["/srv"],
                "write": ["/srv/out"],
                "network": [443],
                "memory": "512MB",
                "processes": 64,
                "cpu_time": "1m",
                "file_size": "1MB",
            },
            "rate": {"limit": 1, "per": "1m", "burst": 2, "key": "{payload.a}"},
            "public_config": ["a"],
            "notify_on_complete": True,
        }
    },
    "routes": [
        {
            "from": "a",
            "event_type": "b",
            "to": "c",
            "priority": "10m",
            "debounce": {"key": "{payload.a}", "wait": "1s", "max_wait": "2s"},
        }
    ],
    "pipelines": [
        {
            "name": "a",
            "on": "x",
            "from_plugin": "p",
            "if": {"path": "a"},
            "max_depth": 1,
            "concurrency": {"key": "{payload.a}", "limit": 1, "on_full": "queue"},
            "priority": "10m",
            "debounce": {"key": "{payload.a}", "wait": "1s", "max_wait": "2s"},
            "execution_mode": "async",
            "timeout": "1s",
            "workspace": True,
            "schedules": [{"id": "a", "cron": "0 7 * * *", "payload": {}}],
            "steps": [
                {
                    "id": "a",
                    "uses": "b",
                    "with": {"a": 1},
                    "baggage": {"a": "b"},
                    "on_events": {"x": ["y"]},
                    "if": {"a": 1},
                },
                {"call": "x"},
                {"join": "always", "split": [{"steps": [{"uses": "a"}]}]},
                {"relay": {"to": "a", "event": "b", "dedupe_key": "c", "with": {}, "baggage": {}}},
                {
                    "wait": {
                        "approval": {"title": "a", "description": "b"},
                        "timeout": "1h",
                        "on_timeout": "skip",
                    }
                },
                {"wait": {"event": "a", "if": {"path": "payload.x", "op": "exists"}}},
                {"wait": {"until": "{payload.at}"}},
                {"wait": {"for": "1m"}},
            ],
            "on_failure": [{"uses": "a"}],
            "on_success": [{"uses": "a"}],
            "always": [{"uses": "a"}],
        }
    ],
    "api": {
        "enabled": True,
        "listen": "a:1",
        "auth": {"tokens": [{"token": "a-token-0123456789", "scopes": ["*"], "name": "x"}]},
        "max_concurrent_sync": 1,
        "max_sync_timeout": "1s",
        "allowed_origins": ["a"],
        "allowed_hosts": ["a"],
        "public_url": "https://a.example",
        "metrics": "public",
        "ui": False,
        "mcp": True,
    },
    "webhooks": {
        "listen": "a:2",
        "endpoints": [
            {
                "path": "/a",
                "plugin": "p",
                "name": "n",
                "secret": "a-secret-0123456789",
                "secret_ref": "t",
                "signature_header": "X",
                "max_body_size": "1MB",
                "provider": "github",
                "debounce": {"key": "{payload.a}", "wait": "1s", "max_wait": "2s"},
            }
        ],
        "allowed_hosts": ["x"],
    },
    "tokens": [
        {
            "name": "t",
            "key": "a-key-0123456789abc",
            "scopes": ["*"],
            "created_at": "x",
            "description": "y",
        }
    ],
    "instances": [
        {
            "name": "i",
            "enabled": True,
            "base_url": "http://x",
            "ingress_path": "/i",
            "secret_ref": "t",
            "secret": "a-secret-0123456789",
            "key_id": "k",
            "timeout": "1s",
            "allow": ["a"],
        }
    ],
    "remote_ingress": {
        "listen_path": "/i",
        "max_body_size": 1,
        "allowed_clock_skew": "1s",
        "require_key_id": True,
        "peers": [
            {
                "name": "p",
                "enabled": True,
                "secret_ref": "t",
                "secret": "a-secret-0123456789",
                "key_id": "k",
                "accept": ["a"],
                "baggage": {"allow": ["a"]},
            }
        ],
    },
    "gateway": {"open": True, "allowed_networks": ["10.0.0.0/8"]},
    "alerts": [
        {
            "name": "a",
            "on": ["queue.age", "disk.free", "plugin.silent"],
            "to": "p",
            "only": ["p*"],
            "after": 2,
            "for": "2h",
            "group": "plugin",
            "wait": "30s",
            "repeat": "24h",
            "over": {"queue.age": "10m", "disk.free": "5%"},
        }
    ],
    "dead_man": {"url": "https://monitor.example/x", "every": "5m"},
}
UNEXPECTED: list[Any] = [None, [], {"a": 1}, [None], "", "x", -1, "${NOPE}", 10**30]
PYDANTIC_TEXTS = ("nput should", "alue should")


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*path, key))


def test_every_key_is_accepted(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(json.dumps(EVERY_KEY))
    assert [warning.path for warning in loaded.warnings] == [
        ("database", "dir"),
        ("log_level",),
        ("plugins", "p", "schedule"),
    ]


def test_document_of_settings_loads_to_equal_settings(config_dir: ConfigDir) -> None:
    settings = config_dir.load(json.dumps(EVERY_KEY)).settings
    document = settings.to_document()
    del document["state"]["dir"]  # derived from the path
    assert config_dir.load(json.dumps(document)).settings.to_document() == settings.to_document()


@pytest.mark.parametrize("section", sorted(EVERY_KEY))
def test_unexpected_values_are_reported_in_our_words(config_dir: ConfigDir, section: str) -> None:
    untranslated: list[Problem] = []
    for path in paths({section: EVERY_KEY[section]}):
        for value in UNEXPECTED:
            document = {section: copy.deepcopy(EVERY_KEY[section])}
            target: Any = document
            for part in path[:-1]:
                target = target[part]
            target[path[-1]] = value
            try:
                config_dir.load(json.dumps(document))
            except ConfigError as error:
                untranslated += [
                    problem
                    for problem in error.problems
                    if not problem.line or any(words in problem.message for words in PYDANTIC_TEXTS)
                ]
    assert untranslated == []


@pytest.mark.parametrize(
    "path",
    [
        (),
        ("service",),
        ("plugins", "p"),
        ("plugins", "p", "retry"),
        ("plugins", "p", "circuit_breaker"),
        ("routes", 0),
        ("pipelines", 0),
        ("api",),
        ("webhooks",),
        ("webhooks", "endpoints", 0),
        ("webhooks", "endpoints", 0, "debounce"),
        ("instances", 0),
        ("remote_ingress",),
        ("remote_ingress", "peers", 0),
        ("gateway",),
        ("alerts", 0),
        ("alerts", 0, "over"),
        ("dead_man",),
    ],
)
def test_list_of_keys_is_complete(path: tuple[Any, ...]) -> None:
    node: Any = EVERY_KEY
    for part in path:
        node = node[part]
    missing = known_keys(path) - set(node)
    assert missing <= {"on-hook", "path", "pipeline", "url", "scopes_file", "scopes_hash"}
