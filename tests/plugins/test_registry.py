"""Which plugins are loaded, and the reason for each that is not."""

from __future__ import annotations

import os
from pathlib import Path
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from ductile.plugins.registry import InstanceSpec, discover
from tests.plugins.finding import MakePlugin, found, loaded, reason


class TestDiscovery:
    def test_a_plugin_is_loaded_without_being_configured(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        directory = make_plugin()
        plugin = loaded(found(root))
        assert (plugin.name, plugin.root, plugin.directory) == ("echo", root, directory)
        assert plugin.entrypoint == directory / "run.py"
        assert plugin.config == {}

    def test_an_entrypoint_in_a_directory_below(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin(entrypoint=None)
        (directory / "bin").mkdir(mode=0o755)
        (directory / "bin" / "run").touch(mode=0o755)
        text = (directory / "manifest.yaml").read_text()
        (directory / "manifest.yaml").write_text(text.replace("run.py", "./bin/run"))
        assert loaded(found(root)).entrypoint == directory / "bin" / "run"

    def test_what_has_no_manifest_is_no_plugin_and_no_problem(self, root: Path) -> None:
        (root / "lib").mkdir()
        (root / "README.md").touch()
        (root / "nowhere").symlink_to(root / "gone")
        registry = found(root)
        assert (registry.plugins, registry.refused, registry.warnings) == ({}, (), ())

    def test_a_hidden_directory_is_passed_over(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin().rename(root / ".echo")
        assert found(root).plugins == {}

    def test_a_relative_root_is_made_absolute(
        self, root: Path, make_plugin: MakePlugin, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_plugin()
        monkeypatch.chdir(root.parent)
        assert loaded(found(Path("plugins"))).entrypoint.is_absolute()

    def test_a_missing_root_is_a_warning(self, root: Path) -> None:
        registry = found(root / "none", root)
        assert registry.refused == ()
        assert registry.warnings == (f"the plugin root {root}/none does not exist",)

    def test_a_root_named_twice_is_scanned_once(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        assert found(root, root).shadowed == ()

    def test_the_first_of_a_name_wins_and_the_other_is_listed(
        self, root: Path, tmp_path: Path, make_plugin: MakePlugin
    ) -> None:
        other = tmp_path / "other"
        first, second = make_plugin(), make_plugin(within=other)
        registry = found(root, other)
        assert loaded(registry).directory == first
        [shadowed] = registry.shadowed
        assert (shadowed.name, shadowed.path, shadowed.by) == ("echo", second, first)

    def test_a_refused_one_leaves_its_name_to_the_next_root(
        self, root: Path, tmp_path: Path, make_plugin: MakePlugin
    ) -> None:
        other = tmp_path / "other"
        make_plugin(entrypoint=None)
        second = make_plugin(within=other)
        registry = found(root, other)
        assert registry.plugins["echo"].directory == second
        assert len(registry.refused) == 1
        assert registry.refusal("echo") is None

    def test_the_manifest_names_the_plugin_not_the_directory(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin().rename(root / "other")
        registry = found(root)
        assert list(registry.plugins) == ["echo"]
        assert "holds a plugin of another name, echo" in registry.warnings[0]

    def test_a_manifests_warnings_are_passed_on(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        text = (directory / "manifest.yaml").read_text().splitlines()[:-1]
        (directory / "manifest.yaml").write_text("\n".join([*text, "commands: [poll, poll]"]))
        assert found(root).warnings == (
            f"{directory}: the command poll is declared twice, the first counts",
        )

    def test_a_name_that_cannot_be_shown_is_passed_over_with_a_warning(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        os.rename(make_plugin(), os.fsencode(root) + b"/\xff")
        registry = found(root)
        assert registry.plugins == {}
        orjson.dumps([*registry.warnings])

    def test_a_command_and_a_fact_rule_are_found_by_name(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        rule = "{when: {command: poll}, from: state_updates, fact_type: seen}"
        make_plugin(extra=f"fact_outputs: [{rule}]\n")
        plugin = loaded(found(root))
        assert plugin.command("poll") is plugin.manifest.commands[0]
        assert plugin.command("none") is None
        assert plugin.fact_output("poll") is plugin.manifest.fact_outputs[0]


class TestInstances:
    def test_an_instance_has_its_config(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        plugin = loaded(found(root, echo=InstanceSpec(config={"b": 1, "a": {"c": None}})))
        assert plugin.config == {"b": 1, "a": {"c": None}}
        assert orjson.loads(plugin.config_json) == plugin.config

    def test_a_frozen_config_is_encoded_too(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        config = MappingProxyType({"a": MappingProxyType({"b": 1})})
        plugin = loaded(found(root, echo=InstanceSpec(config=config)))
        assert orjson.loads(plugin.config_json) == {"a": {"b": 1}}

    def test_a_config_that_is_no_json_is_refused(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = found(root, echo=InstanceSpec(config={"a": 2**70}))
        assert "cannot be sent as JSON" in reason(registry)

    @pytest.mark.parametrize("config", [{}, {"client_id": None}])
    def test_missing_required_keys_are_named(
        self, root: Path, make_plugin: MakePlugin, config: dict[str, Any]
    ) -> None:
        make_plugin(extra="config_keys: {required: [client_id, client_secret]}\n")
        registry = found(root, echo=InstanceSpec(config=config | {"client_secret": "x"}))
        assert reason(registry) == (
            "required config is missing: client_id; set it under plugins.echo.config"
        )

    def test_a_plugin_with_required_keys_is_not_loaded_unconfigured(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(extra="config_keys: {required: [client_id]}\n")
        assert "required config is missing: client_id" in reason(found(root))

    def test_each_instance_is_refused_for_its_own_missing_keys(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(extra="config_keys: {required: [key]}\n")
        registry = found(
            root,
            echo=InstanceSpec(config={"key": "x"}),
            second=InstanceSpec(uses="echo"),
        )
        assert list(registry.plugins) == ["echo"]
        assert [refusal.name for refusal in registry.refused] == ["second"]

    def test_a_disabled_one_is_not_loaded(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = found(root, echo=InstanceSpec(enabled=False))
        assert (registry.plugins, registry.refused) == ({}, ())
        assert registry.disabled == {"echo"}

    def test_a_disabled_one_needs_no_config(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin(extra="config_keys: {required: [key]}\n")
        assert found(root, echo=InstanceSpec(enabled=False)).refused == ()

    def test_one_that_no_root_has_is_refused(self, root: Path) -> None:
        registry = found(root, echo=InstanceSpec())
        assert reason(registry) == "no plugin root has a plugin named echo"

    def test_one_whose_plugin_is_refused_is_refused_once(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(entrypoint=None)
        assert "does not exist" in reason(found(root, echo=InstanceSpec()))

    @pytest.mark.parametrize("name", ["core.switch", "a/b", "..", ""])
    def test_a_name_that_no_plugin_may_have_is_refused(
        self, root: Path, make_plugin: MakePlugin, name: str
    ) -> None:
        make_plugin()
        registry = discover([root], {name: InstanceSpec(uses="echo")}, allow_symlinks=False)
        assert "the name must match" in reason(registry, name)

    def test_a_refusal_is_found_by_name(self, root: Path) -> None:
        refusal = found(root, echo=InstanceSpec()).refusal("echo")
        assert refusal is not None
        assert found(root).refusal("echo") is None

    def test_secrets_do_not_show_in_a_repr(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        spec = InstanceSpec(config={"key": "hunter22"})
        assert "hunter22" not in repr((spec, found(root, echo=spec)))


class TestAliases:
    def test_an_alias_is_a_second_instance(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = found(root, second=InstanceSpec(uses="echo", config={"a": 1}))
        first, second = registry.plugins["echo"], registry.plugins["second"]
        assert second.manifest is first.manifest
        assert (first.config, second.config) == ({}, {"a": 1})

    def test_an_alias_of_an_alias_is_resolved(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        registry = found(root, b=InstanceSpec(uses="echo"), c=InstanceSpec(uses="b"))
        assert registry.plugins["c"].manifest.name == "echo"

    def test_an_alias_of_a_disabled_instance_is_loaded(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        registry = found(root, echo=InstanceSpec(enabled=False), b=InstanceSpec(uses="echo"))
        assert list(registry.plugins) == ["b"]

    def test_a_circle_is_refused_wherever_it_is_entered(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        registry = found(
            root,
            a=InstanceSpec(uses="b"),
            b=InstanceSpec(uses="c"),
            c=InstanceSpec(uses="b"),
        )
        assert list(registry.plugins) == ["echo"]
        assert [refusal.name for refusal in registry.refused] == ["a", "b", "c"]
        assert all("circle" in refusal.reason for refusal in registry.refused)

    def test_an_alias_of_itself_is_refused(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        assert "circle" in reason(found(root, echo=InstanceSpec(uses="echo")))

    def test_an_alias_of_nothing_is_refused(self, root: Path) -> None:
        registry = found(root, second=InstanceSpec(uses="echo"))
        assert reason(registry, "second") == "no plugin root has a plugin named echo"

    def test_an_alias_of_a_refused_plugin_says_why(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin(entrypoint=None)
        registry = found(root, second=InstanceSpec(uses="echo"))
        refusal = registry.refusal("second")
        assert refusal is not None
        assert refusal.reason.startswith("it uses echo, which was refused: ")

    def test_an_alias_hides_a_plugin_of_its_name_with_a_warning(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin("echo"), make_plugin("other")
        registry = found(root, echo=InstanceSpec(uses="other"))
        assert registry.plugins["echo"].manifest.name == "other"
        assert "is not reached" in registry.warnings[0]


class TestHashes:
    @staticmethod
    def edited(directory: Path, file: str, old: str, new: str) -> None:
        path = directory / file
        path.write_text(path.read_text().replace(old, new))

    def test_nothing_changed_is_the_same_fingerprint(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        assert loaded(found(root)).fingerprint == loaded(found(root)).fingerprint

    @pytest.mark.parametrize(
        ("file", "old", "new"),
        [("run.py", "#!/bin/sh", "#!/bin/bash"), ("manifest.yaml", "type: read", "type: write")],
    )
    def test_the_fingerprint_follows_the_files(
        self, root: Path, make_plugin: MakePlugin, file: str, old: str, new: str
    ) -> None:
        directory = make_plugin()
        before = loaded(found(root)).fingerprint
        self.edited(directory, file, old, new)
        assert loaded(found(root)).fingerprint != before

    def test_the_init_key_follows_the_version(self, root: Path, make_plugin: MakePlugin) -> None:
        directory = make_plugin()
        before = loaded(found(root)).init_key
        self.edited(directory, "manifest.yaml", "1.0.0", "1.0.1")
        assert loaded(found(root)).init_key != before

    def test_the_init_key_follows_the_config(self, root: Path, make_plugin: MakePlugin) -> None:
        make_plugin()
        keys = {
            loaded(found(root, echo=InstanceSpec(config=config))).init_key
            for config in ({}, {"a": 1}, {"a": "1"}, {"a": 2})
        }
        assert len(keys) == 4

    def test_the_init_key_does_not_follow_the_order_of_keys(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        make_plugin()
        one, two = (
            loaded(found(root, echo=InstanceSpec(config=config))).init_key
            for config in ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1})
        )
        assert one == two

    def test_the_init_key_does_not_follow_the_entrypoint(
        self, root: Path, make_plugin: MakePlugin
    ) -> None:
        directory = make_plugin()
        before = loaded(found(root)).init_key
        self.edited(directory, "run.py", "sh", "bash")
        assert loaded(found(root)).init_key == before
