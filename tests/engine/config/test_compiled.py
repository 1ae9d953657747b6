"""What is worked out from one configuration, and what is worth saying about it."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.config import Loaded, create_seal, load
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.operations.reports.config_view import show_config
from tests.conftest import FakeClock
from tests.engine.site import OK, Site


def built(site: Site, loaded: Loaded | None = None) -> CompiledConfig:
    return build(loaded or site.load(), boot_marker="", environ=site.environ)


def warnings_of(compiled: CompiledConfig) -> list[str]:
    return [str(warning) for warning in compiled.warnings]


def unsafe(site: Site, **settings: Any) -> None:
    site.plugin("echo", OK, manifest="concurrency_safe: false\n", **settings)


@pytest.mark.parametrize(
    ("path", "source"), [("/hook/github", "github"), ("/hook/github/", "github"), ("/", "root")]
)
def test_webhook_can_be_named_as_a_source(site: Site, path: str, source: str) -> None:
    site.plugin("echo", OK)
    site.settings["webhooks"] = {
        "endpoints": [{"path": path, "plugin": "echo", "secret": "a-secret-0123456789"}]
    }
    pipeline = {"on": f"webhook.{source}", "from_plugin": source, "steps": [{"uses": "echo"}]}
    site.settings["pipelines"] = [{"name": "taken", **pipeline}]
    site.settings["routes"] = [{"from": source, "event_type": "x", "to": "echo"}]
    assert "taken" in built(site).tx_config.router.pipelines


def test_warnings_include_those_of_discovery(site: Site) -> None:
    site.plugin("echo", OK).rename(site.plugins / "other")
    found = f"{site.plugins}/other contains a plugin with a different name, echo"
    assert any(text.startswith(found) for text in warnings_of(built(site)))


def test_more_at_once_than_the_manifest_calls_safe_is_warned_of(site: Site) -> None:
    unsafe(site, parallelism=3)
    compiled = built(site)
    assert compiled.caps["echo"] == 3
    [warning] = compiled.warnings
    assert warning.path == ("plugins", "echo", "parallelism")
    assert "concurrency_safe: false" in warning.message
    lines = site.write().read_text().splitlines()
    assert "parallelism" in lines[(warning.line or 0) - 1]


def test_parallelism_that_the_manifest_allows_causes_no_warning(site: Site) -> None:
    unsafe(site, parallelism=1)
    site.plugin("other", OK, parallelism=3)
    assert warnings_of(built(site)) == []


class TestSeal:
    """`config lock` seals plugins too; they are judged as files of no high security are."""

    def seal(self, site: Site, **service: object) -> None:
        site.settings["service"].update(service)
        prints = [
            {"name": name, "fingerprint": plugin.fingerprint}
            for name, plugin in built(site).registry.plugins.items()
        ]
        create_seal(site.write(), plugin_fingerprints=prints).write(FakeClock().now())

    def test_a_plugin_as_it_was_sealed_is_loaded_without_a_word(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site, strict_mode=True)
        compiled = built(site)
        assert (warnings_of(compiled), list(compiled.registry.plugins)) == ([], ["echo"])

    def test_one_that_has_changed_is_warned_of(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site)
        site.plugin("echo", "true\n")
        [warning] = warnings_of(built(site))
        assert warning.startswith("plugin echo: it has changed since it was sealed")
        assert warning.endswith("run: ductile config lock --plugin echo")

    def test_one_that_was_not_there_is_warned_of(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site)
        site.plugin("late", OK)
        site.settings["plugins"].pop("late")
        [warning] = warnings_of(built(site))
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

    @pytest.mark.parametrize("strict", [True, False])
    def test_the_entrypoint_must_stay_the_hashed_file_in_strict_mode(
        self, site: Site, strict: bool
    ) -> None:
        entrypoint = site.plugin("echo", OK, retry={"max_attempts": 1}) / "run"
        site.settings["service"]["strict_mode"] = strict
        with site.running() as running:
            assert running.run("echo")["status"] == "succeeded"
            entrypoint.write_text(entrypoint.read_text() + "\n")
            job = running.run("echo")
        assert job["status"] == ("failed" if strict else "succeeded")
        assert ("has changed since it was loaded" in (job["last_error"] or "")) is strict

    def test_a_seal_without_fingerprints_does_not_cover_plugins(self, site: Site) -> None:
        site.plugin("echo", OK)
        site.settings["service"]["strict_mode"] = True
        theirs = [{"name": "echo", "enabled": True, "entrypoint_hash": "0" * 64}]
        create_seal(site.write(), plugin_fingerprints=theirs).write(FakeClock().now())
        compiled = built(site)
        assert (warnings_of(compiled), list(compiled.registry.plugins)) == ([], ["echo"])

    def test_configuration_loaded_without_checksums_is_not_compared(self, site: Site) -> None:
        site.plugin("echo", OK)
        self.seal(site)
        site.plugin("echo", "true\n")
        unsealed = load(site.write(), environ=site.environ, seal=False)
        assert warnings_of(built(site, unsealed)) == []


class TestHooksThatNeverFire:
    """They are for root jobs; a step that follows another is none."""

    FOLLOWS = ("plugins", "echo", "notify_on_complete")

    def warned(self, site: Site, *steps: dict[str, Any], **pipeline: Any) -> list[Any]:
        site.plugin("first", OK)
        site.plugin("echo", OK, notify_on_complete=True, **pipeline.pop("echo", {}))
        given = {"name": "p", "on": "go", **pipeline, "steps": list(steps)}
        site.settings["pipelines"] = [{k: v for k, v in given.items() if v is not None}]
        return [warning.path for warning in built(site).warnings]

    def test_a_plugin_that_only_follows(self, site: Site) -> None:
        assert self.warned(site, {"uses": "first"}, {"uses": "echo"}) == [self.FOLLOWS]
        [warning] = built(site).warnings
        lines = site.write().read_text().splitlines()
        assert "notify_on_complete" in lines[(warning.line or 0) - 1]

    def test_job_of_a_condition_is_the_root_before_the_first_step(self, site: Site) -> None:
        condition = {"path": "payload.x", "op": "exists"}
        assert self.warned(site, {"uses": "echo", "if": condition}) == [self.FOLLOWS]

    def test_a_hook_fires_no_hook(self, site: Site) -> None:
        hook = {"on": None, "on-hook": "job.failed"}
        assert self.warned(site, {"uses": "echo"}, **hook) == [self.FOLLOWS]

    def test_target_of_a_route_counts_as_a_following_job(self, site: Site) -> None:
        site.settings["routes"] = [{"from": "first", "event_type": "x", "to": "echo"}]
        assert self.warned(site, {"uses": "first"}) == [self.FOLLOWS]

    def test_a_first_step_may_be_a_root(self, site: Site) -> None:
        assert self.warned(site, {"uses": "echo"}, {"uses": "first"}) == []
        wide = {"split": [{"uses": "first"}, {"uses": "echo"}]}
        assert self.warned(site, wide, {"uses": "first"}) == []

    def test_so_is_what_a_schedule_or_a_webhook_starts(self, site: Site) -> None:
        steps = ({"uses": "first"}, {"uses": "echo"})
        scheduled = {"schedules": [{"id": "s", "every": "1h"}]}
        assert self.warned(site, *steps, echo=scheduled) == []
        endpoint = {"path": "/hook/github", "plugin": "echo", "secret": "a-secret-0123456789"}
        site.settings["webhooks"] = {"endpoints": [endpoint]}
        assert self.warned(site, *steps) == []

    def test_and_what_a_route_brings_from_outside(self, site: Site) -> None:
        endpoint = {"path": "/hook/github", "plugin": "first", "secret": "a-secret-0123456789"}
        site.settings["webhooks"] = {"endpoints": [endpoint]}
        site.settings["routes"] = [{"from": "github", "event_type": "x", "to": "echo"}]
        assert self.warned(site, {"uses": "first"}, {"uses": "echo"}) == []

    def test_plugin_that_only_operators_run_causes_no_warning(self, site: Site) -> None:
        assert self.warned(site, {"uses": "first"}) == []


def test_secret_keys_of_a_manifest_are_redacted(site: Site) -> None:
    keys = "config_keys: {optional: [{name: device, secret: true}, {name: city, secret: false}]}\n"
    config = {"device": "literal-value", "city": "${CITY}", "other": "${OTHER}"}
    site.plugin("echo", OK, manifest=keys, config=config)
    site.environ |= {"CITY": "Klagenfurt", "OTHER": "other-value"}
    compiled = built(site)
    shown = compiled.redactor.text("literal-value Klagenfurt other-value")
    assert shown == "[REDACTED] Klagenfurt [REDACTED]"
    assert show_config(compiled)["config"]["plugins"]["echo"]["config"] == {
        "device": "[REDACTED]",
        "city": "Klagenfurt",
        "other": "[REDACTED]",
    }
