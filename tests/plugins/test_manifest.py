"""What a manifest may say, in each of its shapes, and how it is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.plugins.manifest import (
    CommandType,
    Manifest,
    ManifestError,
    manifest_schema,
    read_manifest,
)

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


def read(changes: dict[str, Any]) -> tuple[Manifest, tuple[str, ...]]:
    values: dict[str, Any] = {
        "name": "echo",
        "protocol": 1,
        "entrypoint": "run.py",
        "commands": ["poll"],
    }
    values |= changes
    kept = {key: value for key, value in values.items() if value is not ...}
    return read_manifest(yaml.safe_dump(kept, sort_keys=False).encode())


def refused(**changes: Any) -> str:
    with pytest.raises(ManifestError) as refusal:
        read(changes)
    return str(refusal.value)


class TestShapes:
    def test_the_first_specs_example_is_read(self) -> None:
        found, warnings = read_manifest(WITHINGS_1.encode())
        assert [command.name for command in found.commands] == ["poll", "handle", "health"]
        assert found.config_keys.required == ("client_id", "client_secret")
        assert warnings == ()

    def test_the_newest_specs_example_is_read(self) -> None:
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
    def test_every_shape_of_commands_means_the_same(self, commands: Any) -> None:
        assert (
            manifest(commands=commands).commands == manifest(commands=["poll", "handle"]).commands
        )

    def test_a_command_writes_unless_it_says_otherwise(self) -> None:
        assert manifest(commands=["poll"]).commands[0].type is CommandType.WRITE

    def test_a_command_may_be_called_on(self) -> None:
        found, _ = read_manifest(WITHINGS_1.replace("[poll,", "[on, off, yes,").encode())
        assert [command.name for command in found.commands][:3] == ["on", "off", "yes"]

    def test_a_version_is_kept_as_it_is_written(self) -> None:
        found, _ = read_manifest(WITHINGS_1.replace("1.0.0", "1.10").encode())
        assert found.version == "1.10"

    def test_unknown_keys_are_ignored(self) -> None:
        found = manifest(stopwatch={"max_subs": 3}, commands=[{"name": "poll", "colour": "red"}])
        assert found.command("poll") is not None

    def test_it_is_concurrency_safe_unless_it_says_otherwise(self) -> None:
        assert manifest().concurrency_safe
        assert not manifest(concurrency_safe=False).concurrency_safe

    def test_a_key_without_a_value_is_an_absent_key(self) -> None:
        found = manifest(config_keys={"required": None}, fact_outputs=None, description=None)
        assert found.config_keys.required == ()

    def test_anchors_may_be_used(self) -> None:
        text = WITHINGS_1 + "a: &schema {type: object}\nb: *schema\n"
        assert read_manifest(text.encode())[0].name == "withings"


class TestCommands:
    def test_everything_that_a_command_may_carry(self) -> None:
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

    def test_the_short_form_of_a_schema_is_written_out(self) -> None:
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
    def test_one_declared_twice_counts_once_with_a_warning(self, text: str) -> None:
        found, warnings = read_manifest(
            WITHINGS_1.replace("commands: [poll, handle, health]", text).encode()
        )
        assert [command.name for command in found.commands] == ["poll", "health"]
        assert warnings == ("the command poll is declared twice, the first counts",)

    def test_the_first_declaration_counts(self) -> None:
        commands = [{"name": "poll", "type": "read"}, {"name": "poll", "type": "write"}]
        assert manifest(commands=commands).commands[0].type is CommandType.READ

    def test_one_that_is_not_declared_is_none(self) -> None:
        assert manifest().command("handle") is None

    def test_another_type_than_read_or_write_is_refused(self) -> None:
        reason = refused(commands={"poll": {"type": "execute"}})
        assert "commands.poll.type is 'execute', it must be 'read' or 'write'" in reason

    @pytest.mark.parametrize("commands", [[], {}])
    def test_none_at_all_is_refused(self, commands: Any) -> None:
        assert "at least one command" in refused(commands=commands)

    @pytest.mark.parametrize("commands", [5, "poll", [5], [["poll"]], {"poll": "read"}, [{}]])
    def test_another_shape_is_refused(self, commands: Any) -> None:
        assert "commands" in refused(commands=commands)

    @pytest.mark.parametrize("name", ["", "a b", "a/b", "1st", "a.b", "x" * 129, "a\n"])
    def test_a_name_that_fits_no_path_is_refused(self, name: str) -> None:
        assert "it must be text that matches" in refused(commands=[name])


class TestFacts:
    RULE = {"when": {"command": "poll"}, "from": "state_updates", "fact_type": "seen"}

    def test_a_rule_belongs_to_its_command(self) -> None:
        found = manifest(fact_outputs=[{**self.RULE, "compatibility_view": "mirror_object"}])
        rule = found.fact_output("poll")
        assert rule is not None
        assert (rule.fact_type, rule.compatibility_view) == ("seen", "mirror_object")
        assert found.fact_output("handle") is None

    def test_without_a_view_the_state_mirrors_the_fact(self) -> None:
        rule = manifest(fact_outputs=[self.RULE]).fact_output("poll")
        assert rule is not None
        assert rule.compatibility_view == "mirror_object"

    def test_of_two_rules_for_a_command_the_first_counts(self) -> None:
        found, warnings = read({"fact_outputs": [self.RULE, {**self.RULE, "fact_type": "b"}]})
        rule = found.fact_output("poll")
        assert rule is not None
        assert rule.fact_type == "seen"
        assert warnings == ("the command poll has fact_outputs twice, the first counts",)

    @pytest.mark.parametrize(
        ("change", "key"),
        [
            ({"from": "result"}, "from"),
            ({"compatibility_view": "other"}, "compatibility_view"),
            ({"fact_type": ""}, "fact_type"),
            ({"when": {}}, "when.command"),
            ({"when": {"command": "sync"}}, "when.command"),
        ],
    )
    def test_a_rule_that_cannot_be_kept_is_refused(self, change: Any, key: str) -> None:
        assert f"fact_outputs[0].{key} is " in refused(fact_outputs=[self.RULE | change])


class TestVersions:
    @pytest.mark.parametrize("protocol", [0, 3, "2", True, 1.0, [1]])
    def test_another_protocol_is_refused(self, protocol: Any) -> None:
        assert "protocol is " in refused(protocol=protocol)

    def test_a_missing_protocol_is_refused(self) -> None:
        assert "protocol is missing" in refused(protocol=...)

    def test_protocol_1_needs_no_manifest_spec(self) -> None:
        assert manifest(protocol=1).manifest_spec is None

    def test_protocol_2_needs_a_manifest_spec(self) -> None:
        assert "manifest_spec is missing" in refused(protocol=2, manifest_version=1)

    def test_protocol_2_needs_a_manifest_version(self) -> None:
        reason = refused(protocol=2, manifest_spec="ductile.plugin")
        assert "manifest_version is missing" in reason

    @pytest.mark.parametrize("protocol", [1, 2])
    def test_another_spec_is_refused(self, protocol: int) -> None:
        reason = refused(protocol=protocol, manifest_spec="other", manifest_version=1)
        assert "manifest_spec is 'other', it must be 'ductile.plugin'" in reason

    @pytest.mark.parametrize("version", [0, 2, "1", True])
    def test_another_version_is_refused(self, version: Any) -> None:
        reason = refused(protocol=2, manifest_spec="ductile.plugin", manifest_version=version)
        assert "manifest_version is " in reason


class TestEntrypoint:
    @pytest.mark.parametrize("entrypoint", ["run.py", "./run.py", "bin/run", "run..py", "a b"])
    def test_a_file_inside_is_accepted(self, entrypoint: str) -> None:
        assert manifest(entrypoint=entrypoint).entrypoint == entrypoint

    @pytest.mark.parametrize("entrypoint", ["..", "../run.py", "bin/../../run.py", "bin/.."])
    def test_two_dots_are_refused(self, entrypoint: str) -> None:
        assert "'..' is refused" in refused(entrypoint=entrypoint)

    def test_an_absolute_one_is_refused(self) -> None:
        assert "must be relative" in refused(entrypoint="/bin/sh")

    @pytest.mark.parametrize("entrypoint", ["", ".", "./", "a\0b", "a\nb"])
    def test_one_that_names_no_file_is_refused(self, entrypoint: str) -> None:
        assert "must name a file" in refused(entrypoint=entrypoint)

    def test_a_missing_one_is_refused(self) -> None:
        assert "entrypoint is missing" in refused(entrypoint=...)


class TestName:
    @pytest.mark.parametrize("name", ["echo", "py-greet", "_template", "a.b", "7zip"])
    def test_a_single_path_component_is_accepted(self, name: str) -> None:
        assert manifest(name=name).name == name

    @pytest.mark.parametrize(
        "name", ["", ".", "..", ".hidden", "-x", "a/b", "a b", "é", "a\n", "x" * 129]
    )
    def test_anything_else_is_refused(self, name: str) -> None:
        assert "name is " in refused(name=name)

    def test_the_gateways_own_names_are_refused(self) -> None:
        assert "the gateway's own" in refused(name="core.switch")

    def test_a_missing_one_is_refused(self) -> None:
        assert "name is missing" in refused(name=...)


class TestReasons:
    def test_all_problems_are_told_at_once(self) -> None:
        reason = refused(name="a/b", protocol=3, entrypoint="..")
        assert all(key in reason for key in ("name is ", "protocol is ", "entrypoint is "))

    def test_a_reason_is_never_long(self) -> None:
        assert len(refused(commands=[{"name": "poll", "type": "x" * 999}] * 999)) < 2000


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
def test_whatever_stands_at_a_key_it_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        found, _ = read(changes)
    except ManifestError:
        return
    assert found.commands


class TestSchema:
    def test_it_names_every_key_as_it_is_written(self) -> None:
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
        }
        assert "from" in schema["$defs"]["FactOutput"]["properties"]

    def test_it_requires_what_the_reader_requires(self) -> None:
        schema = manifest_schema()
        assert schema["required"] == ["name", "protocol", "entrypoint", "commands"]
        assert schema["then"]["required"] == ["manifest_spec", "manifest_version"]

    def test_it_knows_the_shapes_of_commands(self) -> None:
        shapes = manifest_schema()["properties"]["commands"]["anyOf"]
        assert [shape["type"] for shape in shapes] == ["array", "object"]
