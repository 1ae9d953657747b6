"""What is worked out from one configuration, and what is worth saying about it."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.config import Loaded, load, measure
from ductile.runtime.blueprint import Blueprint, build
from tests.conftest import FakeClock
from tests.runtime.site import OK, Site


def built(site: Site, loaded: Loaded | None = None) -> Blueprint:
    return build(loaded or site.load(), boot_marker="", environ=site.environ)


def told(blueprint: Blueprint) -> list[str]:
    return [str(warning) for warning in blueprint.warnings]


def unsafe(site: Site, **settings: Any) -> None:
    site.plugin("echo", OK, manifest="concurrency_safe: false\n", **settings)


@pytest.mark.parametrize(
    ("path", "source"), [("/hook/github", "github"), ("/hook/github/", "github"), ("/", "root")]
)
def test_what_a_webhook_brings_can_be_named_as_a_source(site: Site, path: str, source: str) -> None:
    site.plugin("echo", OK)
    site.settings["webhooks"] = {"endpoints": [{"path": path, "plugin": "echo", "secret": "s"}]}
    pipeline = {"on": f"webhook.{source}", "from_plugin": source, "steps": [{"uses": "echo"}]}
    site.settings["pipelines"] = [{"name": "taken", **pipeline}]
    site.settings["routes"] = [{"from": source, "event_type": "x", "to": "echo"}]
    assert "taken" in built(site).chart.router.pipelines


def test_what_discovery_warns_of_is_among_the_warnings(site: Site) -> None:
    site.plugin("echo", OK).rename(site.plugins / "other")
    assert f"{site.plugins}/other holds a plugin of another name, echo" in told(built(site))


def test_more_at_once_than_the_manifest_calls_safe_is_warned_of(site: Site) -> None:
    unsafe(site, parallelism=3)
    blueprint = built(site)
    assert blueprint.caps["echo"] == 3
    [warning] = blueprint.warnings
    assert warning.path == ("plugins", "echo", "parallelism")
    assert "concurrency_safe: false" in warning.message
    lines = site.write().read_text().splitlines()
    assert "parallelism" in lines[(warning.line or 0) - 1]


def test_what_the_manifest_does_not_object_to_is_not_warned_of(site: Site) -> None:
    unsafe(site, parallelism=1)
    site.plugin("other", OK, parallelism=3)
    assert told(built(site)) == []


class TestSeal:
    """`config lock` seals plugins too; they are judged as files of no high security are."""

    def seal(self, site: Site, **service: object) -> None:
        site.settings["service"].update(service)
        prints = [
            {"name": name, "fingerprint": plugin.fingerprint}
            for name, plugin in built(site).registry.plugins.items()
        ]
        measure(site.write(), plugin_fingerprints=prints).write(FakeClock().now())

    def test_a_plugin_as_it_was_sealed_is_loaded_without_a_word(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site, strict_mode=True)
        blueprint = built(site)
        assert (told(blueprint), list(blueprint.registry.plugins)) == ([], ["echo"])

    def test_one_that_has_changed_is_warned_of(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site)
        site.plugin("echo", "true\n")
        [warning] = told(built(site))
        assert warning.startswith("plugin echo: it has changed since it was sealed")
        assert warning.endswith("run: ductile config lock")

    def test_one_that_was_not_there_is_warned_of(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site)
        site.plugin("late", OK)
        site.settings["plugins"].pop("late")
        [warning] = told(built(site))
        assert warning.startswith("plugin late: it is not sealed")

    def test_in_strict_mode_it_is_refused(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site, strict_mode=True)
        site.plugin("echo", "true\n")
        registry = built(site).registry
        refusal = registry.refusal("echo")
        assert refusal is not None
        assert "it has changed since it was sealed" in refusal.reason
        assert "echo" not in registry.plugins

    def test_a_seal_without_fingerprints_says_nothing_of_plugins(self, site: Site) -> None:
        site.plugin("echo", OK)
        site.settings["service"]["strict_mode"] = True
        theirs = [{"name": "echo", "enabled": True, "entrypoint_hash": "0" * 64}]
        measure(site.write(), plugin_fingerprints=theirs).write(FakeClock().now())
        blueprint = built(site)
        assert (told(blueprint), list(blueprint.registry.plugins)) == ([], ["echo"])

    def test_what_was_loaded_without_its_seal_is_held_against_none(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site)
        site.plugin("echo", "true\n")
        unsealed = load(site.write(), environ=site.environ, seal=False)
        assert told(built(site, unsealed)) == []
