"""Plugin discovery: which plugins are loaded, and why others are refused."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from ductile.plugins.discover import discover
from ductile.plugins.registry import InstanceSpec
from tests.plugins.discovery import MakePlugin, find, get_loaded, get_reason


class TestDiscovery:
    def test_unconfigured_plugin_is_loaded(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        plugin = get_loaded(find(root))
        assert (plugin.name, plugin.root, plugin.directory) == ("echo", root, directory)
        assert plugin.entrypoint == directory / "run.py"
        assert plugin.config == {}

    def test_entrypoint_may_be_in_a_subdirectory(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin(entrypoint=None)
        (directory / "bin").mkdir(mode=0o755)
        (directory / "bin" / "run").touch(mode=0o755)
        text = (directory / "manifest.yaml").read_text()
        (directory / "manifest.yaml").write_text(text.replace("run.py", "./bin/run"))
        assert get_loaded(find(root)).entrypoint == directory / "bin" / "run"

    def test_entries_without_a_manifest_are_ignored(self, root: Path) -> None:
        (root / "lib").mkdir()
        (root / "README.md").touch()
        (root / "nowhere").symlink_to(root / "gone")
        registry = find(root)
        assert (registry.plugins, registry.refused, registry.warnings) == ({}, (), ())

    def test_hidden_directory_is_ignored(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin().rename(root / ".echo")
        assert find(root).plugins == {}

    def test_relative_root_is_made_absolute(
        self, root: Path, make_plugin: MakePlugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_plugin()
        monkeypatch.chdir(root.parent)
        assert get_loaded(find(Path("plugins"))).entrypoint.is_absolute()

    def test_missing_root_causes_a_warning(self, root: Path) -> None:
        registry = find(root / "none", root)
        assert registry.refused == ()
        assert registry.warnings == (
            f"the plugin root {root}/none does not exist; create it, or correct plugin_roots",
        )

    def test_root_listed_twice_is_scanned_once(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        assert find(root, root).shadowed == ()

    def test_first_plugin_of_a_name_shadows_later_ones(
        self, root: Path, tmp_path: Path, make_plugin: MakePlugin
    ) -> None:
        other = tmp_path / "other"
        first, second = make_plugin(), make_plugin(within=other)
        registry = find(root, other)
        assert get_loaded(registry).directory == first
        [shadowed] = registry.shadowed
        assert (shadowed.name, shadowed.path, shadowed.by) == ("echo", second, first)

    def test_refused_plugin_does_not_shadow_a_valid_one(
        self, root: Path, tmp_path: Path, make_plugin: MakePlugin
    ) -> None:
        other = tmp_path / "other"
        make_plugin(entrypoint=None)
        second = make_plugin(within=other)
        registry = find(root, other)
        assert registry.plugins["echo"].directory == second
        assert len(registry.refused) == 1
        assert registry.refusal("echo") is None

    def test_name_comes_from_the_manifest_not_the_directory(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin().rename(root / "other")
        registry = find(root)
        assert list(registry.plugins) == ["echo"]
        assert "contains a plugin with a different name, echo" in registry.warnings[0]

    def test_warnings_of_a_manifest_are_reported(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        text = (directory / "manifest.yaml").read_text().splitlines()[:-1]
        (directory / "manifest.yaml").write_text("\n".join([*text, "commands: [poll, poll]"]))
        [warning] = find(root).warnings
        assert warning.startswith(f"{directory}/manifest.yaml:7:18: commands[1]: ")

    def test_unprintable_name_is_ignored_with_a_warning(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        os.rename(make_plugin(), os.fsencode(root) + b"/\xff")
        registry = find(root)
        assert registry.plugins == {}
        orjson.dumps([*registry.warnings])

    def test_command_and_fact_rule_are_found_by_name(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        rule = "{when: {command: poll}, from: state_updates, fact_type: seen}"
        make_plugin(extra=f"fact_outputs: [{rule}]\n")
        plugin = get_loaded(find(root))
        assert plugin.command("poll") is plugin.manifest.commands[0]
        assert plugin.command("none") is None
        assert plugin.fact_output("poll") is plugin.manifest.fact_outputs[0]


class TestInstances:
    def test_instance_has_its_config(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        plugin = get_loaded(find(root, echo=InstanceSpec(config={"b": 1, "a": {"c": None}})))
        assert plugin.config == {"b": 1, "a": {"c": None}}
        assert orjson.loads(plugin.config_json) == plugin.config

    def test_frozen_config_is_encoded(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        config = MappingProxyType({"a": MappingProxyType({"b": 1})})
        plugin = get_loaded(find(root, echo=InstanceSpec(config=config)))
        assert orjson.loads(plugin.config_json) == {"a": {"b": 1}}

    def test_config_that_json_cannot_encode_is_refused(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        registry = find(root, echo=InstanceSpec(config={"a": 2**70}))
        assert "cannot be encoded as JSON" in get_reason(registry)

    @pytest.mark.parametrize("config", [{}, {"client_id": None}])
    def test_missing_required_settings_are_named(
        self, root: Path, make_plugin: MakePlugin, config: dict[str, Any]
    ) -> None:
        make_plugin(extra="config_keys: {required: [client_id, client_secret]}\n")
        registry = find(root, echo=InstanceSpec(config=config | {"client_secret": "x"}))
        assert get_reason(registry) == (
            "required settings are missing: client_id; set them in plugins.echo.config"
        )

    def test_each_instance_needs_its_own_settings(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(extra="config_keys: {required: [key]}\n")
        registry = find(
            root,
            echo=InstanceSpec(config={"key": "x"}),
            second=InstanceSpec(uses="echo"),
        )
        assert list(registry.plugins) == ["echo"]
        assert [refused.name for refused in registry.refused] == ["second"]

    def test_marks_of_the_manifest_apply_to_every_configured_name(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(extra="config_keys: {required: [{name: pin, secret: true}, key]}\n")
        registry = find(
            root,
            echo=InstanceSpec(enabled=False),
            second=InstanceSpec(uses="echo"),
            other=InstanceSpec(uses="unknown"),
        )
        assert registry.plugins == {}
        assert registry.secret_marks == {"echo": {"pin": True}, "second": {"pin": True}}

    def test_disabled_plugin_is_not_loaded(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = find(root, echo=InstanceSpec(enabled=False))
        assert (registry.plugins, registry.refused) == ({}, ())
        assert registry.disabled == {"echo"}

    def test_disabled_plugin_needs_no_settings(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin(extra="config_keys: {required: [key]}\n")
        assert find(root, echo=InstanceSpec(enabled=False)).refused == ()

    def test_plugin_that_no_root_has_is_refused(self, root: Path) -> None:
        registry = find(root, absent=InstanceSpec())
        assert get_reason(registry, "absent") == "no plugin root has a plugin named absent"

    def test_bundled_plugin_that_no_root_has_names_the_lines_to_add(self, root: Path) -> None:
        assert get_reason(find(root, echo=InstanceSpec())) == (
            "no plugin root has a plugin named echo; "
            'to load the bundled plugin, add "bundled:" to plugin_roots'
        )

    def test_configured_invalid_plugin_is_refused_once(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(entrypoint=None)
        assert "does not exist" in get_reason(find(root, echo=InstanceSpec()))

    @pytest.mark.parametrize("name", ["core.switch", "a/b", "..", ""])
    def test_invalid_name_is_refused(self, root: Path, make_plugin: MakePlugin, name: str) -> None:
        make_plugin()
        registry = discover([root], {name: InstanceSpec(uses="echo")}, allow_symlinks=False)
        assert "the name must match" in get_reason(registry, name)

    def test_refused_plugin_is_found_by_name(self, root: Path) -> None:
        refusal = find(root, echo=InstanceSpec()).refusal("echo")
        assert refusal is not None
        assert find(root).refusal("echo") is None

    def test_repr_does_not_show_secrets(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        spec = InstanceSpec(config={"key": "hunter22"})
        assert "hunter22" not in repr((spec, find(root, echo=spec)))


class TestAliases:
    def test_alias_is_a_second_instance(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = find(root, second=InstanceSpec(uses="echo", config={"a": 1}))
        first, second = registry.plugins["echo"], registry.plugins["second"]
        assert second.manifest is first.manifest
        assert (first.config, second.config) == ({}, {"a": 1})

    def test_alias_of_an_alias_is_resolved(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = find(root, b=InstanceSpec(uses="echo"), c=InstanceSpec(uses="b"))
        assert registry.plugins["c"].manifest.name == "echo"

    def test_alias_of_a_disabled_instance_is_loaded(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        registry = find(root, echo=InstanceSpec(enabled=False), b=InstanceSpec(uses="echo"))
        assert list(registry.plugins) == ["b"]

    def test_circular_aliases_are_refused(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = find(
            root,
            a=InstanceSpec(uses="b"),
            b=InstanceSpec(uses="c"),
            c=InstanceSpec(uses="b"),
        )
        assert list(registry.plugins) == ["echo"]
        assert [refused.name for refused in registry.refused] == ["a", "b", "c"]
        assert all("circular" in refused.reason for refused in registry.refused)

    def test_alias_of_a_missing_plugin_is_refused(self, root: Path) -> None:
        registry = find(root, second=InstanceSpec(uses="absent"))
        assert get_reason(registry, "second") == "no plugin root has a plugin named absent"

    def test_alias_of_a_refused_plugin_reports_its_reason(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(entrypoint=None)
        registry = find(root, second=InstanceSpec(uses="echo"))
        refusal = registry.refusal("second")
        assert refusal is not None
        assert refusal.reason.startswith("it uses echo, which is refused: ")

    def test_alias_shadows_a_plugin_of_its_name_with_a_warning(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin("echo"), make_plugin("other")
        registry = find(root, echo=InstanceSpec(uses="other"))
        assert registry.plugins["echo"].manifest.name == "other"
        assert "is not loaded" in registry.warnings[0]


class TestHashes:
    @staticmethod
    def edit(directory: Path, file: str, old: str, new: str) -> None:
        path = directory / file
        path.write_text(path.read_text().replace(old, new))

    def test_fingerprint_is_stable(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        assert get_loaded(find(root)).fingerprint == get_loaded(find(root)).fingerprint

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [("run.py", "#!/bin/sh", "#!/bin/bash"), ("manifest.yaml", "type: read", "type: write")],
    )
    def test_fingerprint_changes_with_the_files(
        self, root: Path, make_plugin: MakePlugin, file: str, old: str, new: str
    ) -> None:
        directory = make_plugin()
        before = get_loaded(find(root)).fingerprint
        self.edit(directory, file, old, new)
        assert get_loaded(find(root)).fingerprint != before

    def test_init_key_changes_with_the_version(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        before = get_loaded(find(root)).init_key
        self.edit(directory, "manifest.yaml", "1.0.0", "1.0.1")
        assert get_loaded(find(root)).init_key != before

    def test_init_key_changes_with_the_config(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        keys = {
            get_loaded(find(root, echo=InstanceSpec(config=config))).init_key
            for config in ({}, {"a": 1}, {"a": "1"}, {"a": 2})
        }
        assert len(keys) == 4

    def test_init_key_ignores_the_order_of_keys(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        one, two = (
            get_loaded(find(root, echo=InstanceSpec(config=config))).init_key
            for config in ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
        )
        assert one == two

    def test_init_key_ignores_the_entrypoint(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        before = get_loaded(find(root)).init_key
        self.edit(directory, "run.py", "sh", "bash")
        assert get_loaded(find(root)).init_key == before
