"""`manifest.yaml`: a plugin's name, entrypoint and commands.

`commands` has three equivalent forms: a list of names, a mapping of names to bodies, and a
list of bodies with a `name`. Unknown keys are ignored; `plugin validate` warns of them.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ductile.config.models.sandbox import SandboxSettings
from ductile.model import CORE_PREFIX, Json

MANIFEST_NAME = "manifest.yaml"
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
COMMAND_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,127}$"
MODULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
MAX_PRELOAD = 50
_SCHEMA_WORDS = frozenset(
    ("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not")
)


def _check_name(name: str) -> str:
    if name.startswith(CORE_PREFIX):
        raise ValueError(f"names that start with {CORE_PREFIX} are reserved; choose another name")
    return name


def _check_entrypoint(entrypoint: str) -> str:
    path = PurePosixPath(entrypoint)
    if path.is_absolute():
        raise ValueError("must be a path relative to the plugin's directory")
    if ".." in path.parts:
        raise ValueError("must not contain '..'; name a file inside the plugin's directory")
    if not path.parts or not entrypoint.isprintable():
        raise ValueError("must be the name of a file in the plugin's directory")
    return entrypoint


def _expand_schema(schema: Json) -> Json:
    """The JSON Schema of the short form `{url: string}`, which maps properties to types."""
    if not isinstance(schema, dict) or any(
        key in _SCHEMA_WORDS or key.startswith("$") for key in schema
    ):
        return schema
    return {
        "type": "object",
        "properties": {
            name: {"type": kind} if isinstance(kind, str) else kind for name, kind in schema.items()
        },
    }


def _list_commands(commands: Json) -> list[Json]:
    """Any of the three forms as a list of bodies with names."""
    if isinstance(commands, dict):
        for name, body in commands.items():
            if not isinstance(body, dict | None):
                raise ValueError(f"{name} has {shorten_value(body)} where a mapping is expected")
        listed = [{**(body or {}), "name": name} for name, body in commands.items()]
    elif isinstance(commands, list):
        for item in commands:
            if not isinstance(item, dict | str):
                raise ValueError(f"has {shorten_value(item)} where a name or a mapping is expected")
        listed = [{"name": item} if isinstance(item, str) else item for item in commands]
    else:
        raise ValueError("must be a list or a mapping")
    if not listed:
        raise ValueError("is empty; declare at least one command")
    return listed


def _check_whole_number(value: Json) -> Json:
    """Python compares `true` and `1.0` as equal to 1; a version number is neither."""
    if isinstance(value, bool | float):
        raise ValueError("must be a whole number")
    return value


class CommandType(StrEnum):
    READ = "read"
    """Has no external side effects; the scope `plugin:ro` is sufficient."""
    WRITE = "write"


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", coerce_numbers_to_str=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


Text = Annotated[str, Field(min_length=1)]
Texts = tuple[Text, ...]
SchemaOf = Annotated[Any, AfterValidator(_expand_schema)]


class Emission(_Part):
    """The names of the values in an event that a command emits."""

    event: Text
    values: Texts = ()


class Values(_Part):
    """The names that a command reads and writes: documentation, not enforced."""

    consume: Texts = ()
    emit: tuple[Emission, ...] = ()


class CommandBody(_Part):
    type: CommandType = CommandType.WRITE
    description: str = ""
    input_schema: SchemaOf = None
    output_schema: SchemaOf = None
    idempotent: bool | None = None
    retry_safe: bool | None = None
    values: Values = Values.model_construct()


class Command(CommandBody):
    name: Annotated[str, Field(pattern=COMMAND_PATTERN)]


class When(_Part):
    command: Text


class FactOutput(_Part):
    """Stores the `state_updates` of a command as a durable fact."""

    when: When
    source: Literal["state_updates"] = Field(alias="from")
    fact_type: Text
    compatibility_view: Literal["mirror_object"] = "mirror_object"


class ConfigKey(_Part):
    """A key of the plugin's `config`."""

    name: Text
    secret: bool | None = None
    """True: its value is redacted. False: it is public, also if it comes from a variable."""


def _name_key(key: Json) -> Json:
    return key if isinstance(key, dict) else {"name": key}


ConfigKeyList = tuple[
    Annotated[ConfigKey, BeforeValidator(_name_key, json_schema_input_type=str | ConfigKey)],
    ...,
]


class ConfigKeys(_Part):
    required: ConfigKeyList = ()
    optional: ConfigKeyList = ()

    def required_names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.required)

    def secret_marks(self) -> dict[str, bool]:
        """The keys that are marked, with whether they are secret."""
        return {
            key.name: key.secret
            for key in (*self.required, *self.optional)
            if key.secret is not None
        }


class Runtime(_Part):
    """How the processes of a Python plugin are started."""

    python: Literal["cold", "warm"] = "cold"
    """`warm`: jobs are forked from an interpreter that has imported the modules of `preload`."""
    preload: Annotated[
        tuple[Annotated[str, Field(pattern=MODULE_PATTERN)], ...], Field(max_length=MAX_PRELOAD)
    ] = ()


class Manifest(_Part):
    model_config = ConfigDict(
        title="Ductile plugin manifest",
        json_schema_extra={
            "if": {"properties": {"protocol": {"const": 2}}},
            "then": {"required": ["manifest_spec", "manifest_version"]},
        },
    )

    manifest_spec: Literal["ductile.plugin"] | None = None
    manifest_version: Annotated[Literal[1] | None, BeforeValidator(_check_whole_number)] = None
    name: Annotated[str, Field(pattern=NAME_PATTERN), AfterValidator(_check_name)]
    version: str = ""
    protocol: Annotated[Literal[1, 2], BeforeValidator(_check_whole_number)]
    entrypoint: Annotated[str, AfterValidator(_check_entrypoint)]
    description: str = ""
    concurrency_safe: bool = True
    commands: Annotated[
        tuple[Command, ...],
        BeforeValidator(
            _list_commands,
            json_schema_input_type=list[str | Command] | dict[str, CommandBody | None],
        ),
    ]
    fact_outputs: tuple[FactOutput, ...] = ()
    config_keys: ConfigKeys = ConfigKeys.model_construct()
    runtime: Runtime = Runtime.model_construct()
    sandbox: SandboxSettings | None = None

    def command(self, name: str) -> Command | None:
        return next((command for command in self.commands if command.name == name), None)

    def fact_output(self, command: str) -> FactOutput | None:
        """The rule for a command's `state_updates`; the first if several are declared."""
        return next((rule for rule in self.fact_outputs if rule.when.command == command), None)


def manifest_schema() -> dict[str, Json]:
    """The JSON Schema of `manifest.yaml`, in all its forms."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Manifest.model_json_schema(by_alias=True, mode="validation"),
    }


def is_plugin_name(name: str) -> bool:
    """Whether a name can be a plugin's: one path component, and not reserved."""
    return re.fullmatch(NAME_PATTERN, name) is not None and not name.startswith(CORE_PREFIX)


def shorten_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
