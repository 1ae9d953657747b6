"""Manifests: their forms, and how invalid ones are rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.errors import Problem, Severity
from ductile.plugins.manifest import CommandType, Manifest, manifest_schema
from ductile.plugins.read_manifest import ManifestError, read_manifest

WITHINGS_1 = """\
name: withings
version: 1.0.0
protocol: 1
entrypoint: run.py
description: "Fetch health data from Withings API"
commands: [poll, handle, health]
config_keys:
  required: [client_id, client_secret]
  optional: [access_token]
"""

WITHINGS_2 = """\
manifest_spec: ductile.plugin
manifest_version: 1
name: withings
version: 1.0.0
protocol: 2
entrypoint: run.py
commands:
  poll:
    type: read
    description: "Fetch latest measurements from Withings API"
  sync:
    type: write
  oauth_callback:
config_keys:
  required: [client_id, client_secret]
  optional:
"""


def manifest(**changes: Any) -> Manifest:
    return read(changes)[0]


def read(changes: dict[str, Any]) -> tuple[Manifest, tuple[Problem, ...]]:
    values: dict[str, Any] = {
        "name": "echo",
        "protocol": 1,
        "entrypoint": "run.py",
        "commands": ["poll"],
    }
    values |= changes
    kept = {key: value for key, value in values.items() if value is not ...}
    return read_manifest(yaml.safe_dump(kept, sort_keys=False).encode())


def errors_in(text: str | bytes) -> list[str]:
    with pytest.raises(ManifestError) as error:
        read_manifest(text if isinstance(text, bytes) else text.encode())
    return [str(problem) for problem in error.value.problems]


def errors_with(**changes: Any) -> str:
    """The problems, one per line, of a manifest with these changes; without their locations."""
    with pytest.raises(ManifestError) as error:
        read(changes)
    return "\n".join(
        str(replace(p, file=None, line=None, column=None)) for p in error.value.problems
    )


class TestText:
    """What text can be a manifest at all."""

    @pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "text"])
    def test_text_that_is_not_a_mapping_is_rejected(self, text: str) -> None:
        message = "the manifest must be a mapping of keys to values"
        assert errors_in(text) == [f"manifest.yaml:1:1: {message}"]

    def test_text_that_is_not_utf_8_is_rejected(self) -> None:
        [error] = errors_in(b"a: \xff")
        assert error.startswith("manifest.yaml:1:4: the file is not UTF-8 text")

    def test_byte_order_mark_is_accepted(self) -> None:
        assert read_manifest(b"\xef\xbb\xbf" + WITHINGS_1.encode())[0].name == "withings"

    @pytest.mark.parametrize(
        ("text", "place"),
        [
            ("a: [", "2:1"),
            ("a: b: c", "1:5"),
            ("a: \x01", "1:4"),
            ("a: 1\n---\nb: 2\n", "2:1"),
            ("a: *b", "1:4"),
            ("? [a]\n: b", "1:3"),
            ("a: !!python/object:os.system {}", "1:4"),
            ("a: !!binary aGk=", "1:4"),
            ("a: 1e999", "1:4"),
            ("a: !!int x", "1:4"),
            ("entrypoint: run.py\nentrypoint: other\n", "2:1"),
        ],
    )
    def test_invalid_yaml_is_rejected_with_its_location(self, text: str, place: str) -> None:
        assert errors_in(text)[0].startswith(f"manifest.yaml:{place}: ")

    def test_file_over_one_mebibyte_is_rejected(self) -> None:
        assert "at most 1024 KiB" in errors_in(b"a: " + b"x" * 1024**2)[0]

    @pytest.mark.parametrize(
        "text",
        [
            "a: " + "[" * 100_000,
            "a: " + "{a: " * 100_000,
            "a: &a [*a]",
            "a: &a [x, x, x, x, x, x, x, x, x]\n"
            + "\n".join(
                f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]"
                for last, this in zip("abcdefgh", "bcdefghi", strict=True)
            ),
        ],
        ids=["brackets", "braces", "recursive-alias", "alias-bomb"],
    )
    def test_depth_and_aliases_are_limited(self, text: str) -> None:
        assert len(errors_in(text)) == 1

    @settings(deadline=None)
    @given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
    def test_any_other_bytes_raise_only_a_manifest_error(self, data: bytes) -> None:
        with pytest.raises(ManifestError):
            read_manifest(data)


class TestForms:
    def test_protocol_1_example_is_read(self) -> None:
        found, warnings = read_manifest(WITHINGS_1.encode())
        assert [command.name for command in found.commands] == ["poll", "handle", "health"]
        assert found.config_keys.required_names() == ("client_id", "client_secret")
        assert warnings == ()

    def test_config_keys_may_be_marked_as_secret_or_public(self) -> None:
        keys = [{"name": "pin", "secret": True}, "plain", {"name": "base_url", "secret": False}]
        found = manifest(config_keys={"required": keys, "optional": [{"name": "other"}]})
        assert found.config_keys.required_names() == ("pin", "plain", "base_url")
        assert [key.name for key in found.config_keys.optional] == ["other"]
        assert found.config_keys.secret_marks() == {"pin": True, "base_url": False}

    def test_protocol_2_example_is_read(self) -> None:
        found, _ = read_manifest(WITHINGS_2.encode())
        types = {command.name: command.type.value for command in found.commands}
        assert types == {"poll": "read", "sync": "write", "oauth_callback": "write"}

    @pytest.mark.parametrize(
        "commands",
        [
            ["poll", "handle"],
            {"poll": None, "handle": {}},
            [{"name": "poll", "type": "write"}, {"name": "handle"}],
            ["poll", {"name": "handle"}],
        ],
    )
    def test_every_form_of_commands_means_the_same(self, commands: Any) -> None:
        assert (
            manifest(commands=commands).commands == manifest(commands=["poll", "handle"]).commands
        )

    def test_command_type_is_write_by_default(self) -> None:
        assert manifest(commands=["poll"]).commands[0].type is CommandType.WRITE

    def test_command_may_be_named_on(self) -> None:
        found, _ = read_manifest(WITHINGS_1.replace("[poll,", "[on, off, yes,").encode())
        assert [command.name for command in found.commands][:3] == ["on", "off", "yes"]

    def test_version_is_kept_as_written(self) -> None:
        found, _ = read_manifest(WITHINGS_1.replace("1.0.0", "1.10").encode())
        assert found.version == "1.10"

    def test_unknown_keys_are_ignored(self) -> None:
        found = manifest(stopwatch={"max_subs": 3}, commands=[{"name": "poll", "colour": "red"}])
        assert found.command("poll") is not None

    def test_plugin_is_concurrency_safe_by_default(self) -> None:
        assert manifest().concurrency_safe
        assert not manifest(concurrency_safe=False).concurrency_safe

    def test_key_without_a_value_counts_as_absent(self) -> None:
        found = manifest(config_keys={"required": None}, fact_outputs=None, description=None)
        assert found.config_keys.required_names() == ()

    def test_anchors_are_expanded(self) -> None:
        text = WITHINGS_1 + "a: &schema {type: object}\nb: *schema\n"
        assert read_manifest(text.encode())[0].name == "withings"


class TestCommands:
    def test_every_key_of_a_command_is_read(self) -> None:
        command = manifest(
            commands=[
                {
                    "name": "handle",
                    "type": "write",
                    "description": "Fetch",
                    "idempotent": True,
                    "retry_safe": False,
                    "input_schema": {"type": "object"},
                    "output_schema": {"$ref": "#/x"},
                    "values": {
                        "consume": ["payload.url"],
                        "emit": [{"event": "fetched", "values": ["payload.body"]}],
                    },
                }
            ]
        ).commands[0]
        assert (command.description, command.idempotent, command.retry_safe) == (
            "Fetch",
            True,
            False,
        )
        assert command.input_schema == {"type": "object"}
        assert command.output_schema == {"$ref": "#/x"}
        assert command.values.consume == ("payload.url",)
        assert command.values.emit[0].event == "fetched"

    def test_short_form_of_a_schema_is_expanded(self) -> None:
        short = {"url": "string", "tags": {"type": "array"}}
        command = manifest(commands=[{"name": "poll", "input_schema": short}]).commands[0]
        assert command.input_schema == {
            "type": "object",
            "properties": {"url": {"type": "string"}, "tags": {"type": "array"}},
        }

    @pytest.mark.parametrize(
        "text",
        [
            "commands: [poll, health, poll]",
            "commands: {poll: {type: read}, health: , poll: {type: write}}",
            "commands: [{name: poll, type: read}, {name: health}, {name: poll}]",
        ],
    )
    def test_repeated_command_is_dropped_with_a_warning(self, text: str) -> None:
        found, warnings = read_manifest(
            WITHINGS_1.replace("commands: [poll, handle, health]", text).encode()
        )
        assert [command.name for command in found.commands] == ["poll", "health"]
        assert [(p.severity, p.line) for p in warnings] == [(Severity.WARNING, 6)]
        assert "the first one is used" in warnings[0].message

    def test_first_declaration_of_a_command_is_used(self) -> None:
        commands = [{"name": "poll", "type": "read"}, {"name": "poll", "type": "write"}]
        assert manifest(commands=commands).commands[0].type is CommandType.READ

    def test_undeclared_command_is_none(self) -> None:
        assert manifest().command("handle") is None

    def test_unknown_command_type_is_rejected(self) -> None:
        error = errors_with(commands={"poll": {"type": "execute"}})
        assert error == (
            "commands.poll.type: is not an allowed value; found 'execute'; "
            "allowed: 'read' or 'write'"
        )

    @pytest.mark.parametrize("commands", [[], {}])
    def test_manifest_without_commands_is_rejected(self, commands: Any) -> None:
        assert "at least one command" in errors_with(commands=commands)

    @pytest.mark.parametrize("commands", [5, "poll", [5], [["poll"]], {"poll": "read"}, [{}]])
    def test_other_forms_of_commands_are_rejected(self, commands: Any) -> None:
        assert "commands" in errors_with(commands=commands)

    @pytest.mark.parametrize("name", ["", "a b", "a/b", "1st", "a.b", "x" * 129, "a\n"])
    def test_invalid_command_name_is_rejected(self, name: str) -> None:
        assert "commands[0].name: is not a valid name" in errors_with(commands=[name])


class TestFacts:
    RULE = {"when": {"command": "poll"}, "from": "state_updates", "fact_type": "seen"}

    def test_rule_is_found_by_its_command(self) -> None:
        found = manifest(fact_outputs=[{**self.RULE, "compatibility_view": "mirror_object"}])
        rule = found.fact_output("poll")
        assert rule is not None
        assert (rule.fact_type, rule.compatibility_view) == ("seen", "mirror_object")
        assert found.fact_output("handle") is None

    def test_compatibility_view_defaults_to_mirror_object(self) -> None:
        rule = manifest(fact_outputs=[self.RULE]).fact_output("poll")
        assert rule is not None
        assert rule.compatibility_view == "mirror_object"

    def test_first_rule_for_a_command_is_used(self) -> None:
        found, warnings = read({"fact_outputs": [self.RULE, {**self.RULE, "fact_type": "b"}]})
        rule = found.fact_output("poll")
        assert rule is not None
        assert rule.fact_type == "seen"
        assert [(p.path, p.severity) for p in warnings] == [(("fact_outputs", 1), Severity.WARNING)]

    @pytest.mark.parametrize(
        ("change", "key"),
        [
            ({"from": "result"}, "from"),
            ({"compatibility_view": "other"}, "compatibility_view"),
            ({"fact_type": ""}, "fact_type"),
            ({"when": {"command": "sync"}}, "when.command"),
        ],
    )
    def test_invalid_rule_is_rejected(self, change: Any, key: str) -> None:
        assert f"fact_outputs[0].{key}: " in errors_with(fact_outputs=[self.RULE | change])

    def test_rule_without_a_command_is_rejected(self) -> None:
        error = errors_with(fact_outputs=[self.RULE | {"when": {}}])
        assert "fact_outputs[0].when: missing key 'command'" in error


class TestVersions:
    @pytest.mark.parametrize("protocol", [0, 3, "2", True, 1.0, [1]])
    def test_unknown_protocol_is_rejected(self, protocol: Any) -> None:
        assert "protocol: " in errors_with(protocol=protocol)

    def test_missing_protocol_is_rejected(self) -> None:
        assert "missing key 'protocol'" in errors_with(protocol=...)

    def test_manifest_spec_is_optional_with_protocol_1(self) -> None:
        assert manifest(protocol=1).manifest_spec is None

    def test_protocol_2_requires_manifest_spec_and_version(self) -> None:
        assert "missing key 'manifest_spec'" in errors_with(protocol=2, manifest_version=1)
        error = errors_with(protocol=2, manifest_spec="ductile.plugin")
        assert error == (
            "missing key 'manifest_version', which protocol 2 requires; "
            "allowed: manifest_version: 1"
        )

    @pytest.mark.parametrize("protocol", [1, 2])
    def test_unknown_manifest_spec_is_rejected(self, protocol: int) -> None:
        error = errors_with(protocol=protocol, manifest_spec="other", manifest_version=1)
        assert "manifest_spec: is not an allowed value; found 'other'" in error
        assert "allowed: 'ductile.plugin'" in error

    @pytest.mark.parametrize("version", [0, 2, "1", True])
    def test_unknown_manifest_version_is_rejected(self, version: Any) -> None:
        error = errors_with(protocol=2, manifest_spec="ductile.plugin", manifest_version=version)
        assert "manifest_version: " in error


class TestEntrypoint:
    @pytest.mark.parametrize("entrypoint", ["run.py", "./run.py", "bin/run", "run..py", "a b"])
    def test_file_inside_the_directory_is_accepted(self, entrypoint: str) -> None:
        assert manifest(entrypoint=entrypoint).entrypoint == entrypoint

    @pytest.mark.parametrize("entrypoint", ["..", "../run.py", "bin/../../run.py", "bin/.."])
    def test_two_dots_are_rejected(self, entrypoint: str) -> None:
        assert "must not contain '..'" in errors_with(entrypoint=entrypoint)

    def test_absolute_path_is_rejected(self) -> None:
        assert "path relative to the plugin's directory" in errors_with(entrypoint="/bin/sh")

    @pytest.mark.parametrize("entrypoint", ["", ".", "./", "a\0b", "a\nb"])
    def test_path_without_a_file_name_is_rejected(self, entrypoint: str) -> None:
        assert "must be the name of a file" in errors_with(entrypoint=entrypoint)

    def test_missing_entrypoint_is_rejected(self) -> None:
        assert "missing key 'entrypoint'" in errors_with(entrypoint=...)


class TestName:
    @pytest.mark.parametrize("name", ["echo", "py-greet", "_template", "a.b", "7zip"])
    def test_single_path_component_is_accepted(self, name: str) -> None:
        assert manifest(name=name).name == name

    @pytest.mark.parametrize(
        "name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "é", "a\n", "x" * 129]
    )
    def test_other_names_are_rejected(self, name: str) -> None:
        assert errors_with(name=name).startswith("name: is not a valid name")

    def test_reserved_name_is_rejected(self) -> None:
        assert "are reserved" in errors_with(name="core.switch")

    def test_missing_name_is_rejected(self) -> None:
        assert "missing key 'name'" in errors_with(name=...)


class TestErrors:
    def test_every_problem_is_reported_with_its_location(self) -> None:
        text = "name: a/b\nprotocol: 3\nentrypoint: ..\ncommands:\n  poll: {type: reed}\n"
        places = [error.split(": ")[:2] for error in errors_in(text)]
        assert places == [
            ["manifest.yaml:1:7", "name"],
            ["manifest.yaml:2:11", "protocol"],
            ["manifest.yaml:3:13", "entrypoint"],
            ["manifest.yaml:5:16", "commands.poll.type"],
        ]

    def test_message_has_the_first_problem_and_the_number_of_others(self) -> None:
        with pytest.raises(ManifestError) as error:
            read({"commands": [{"name": "poll", "type": "x" * 999}] * 999})
        assert str(error.value).startswith("manifest.yaml:7:9: commands[0].type: ")
        assert str(error.value).endswith("(and 998 more; `ductile plugin validate` lists them)")
        assert len(str(error.value)) < 300


KEYS = st.sampled_from(
    [
        *("name", "type", "commands", "values", "emit", "event", "when", "command", "from"),
        *("required", "optional", "input_schema", "fact_outputs", "config_keys", "protocol"),
    ]
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(st.dictionaries(KEYS, ANYTHING))
def test_any_values_are_read_or_rejected(changes: dict[str, Any]) -> None:
    try:
        found, _ = read(changes)
    except ManifestError:
        return
    assert found.commands


class TestSchema:
    def test_runtime_has_modules_by_name(self) -> None:
        assert manifest().runtime.python == "cold"
        runtime = manifest(runtime={"python": "warm", "preload": ["json", "os.path"]}).runtime
        assert (runtime.python, runtime.preload) == ("warm", ("json", "os.path"))
        for wrong in ({"python": "hot"}, {"preload": ["os; x"]}, {"preload": ["-m"]}):
            with pytest.raises(ManifestError):
                manifest(runtime=wrong)

    def test_schema_has_every_key(self) -> None:
        schema = manifest_schema()
        assert set(schema["properties"]) == {
            "manifest_spec",
            "manifest_version",
            "name",
            "version",
            "protocol",
            "entrypoint",
            "description",
            "concurrency_safe",
            "commands",
            "fact_outputs",
            "config_keys",
            "runtime",
            "sandbox",
        }
        assert "from" in schema["$defs"]["FactOutput"]["properties"]

    def test_schema_has_the_required_keys(self) -> None:
        schema = manifest_schema()
        assert schema["required"] == ["name", "protocol", "entrypoint", "commands"]
        assert schema["then"]["required"] == ["manifest_spec", "manifest_version"]

    def test_schema_has_the_forms_of_commands(self) -> None:
        shapes = manifest_schema()["properties"]["commands"]["anyOf"]
        assert [shape["type"] for shape in shapes] == ["array", "object"]
