"""`manifest.yaml`: what a plugin says of itself.

Three shapes of `commands` mean the same: a list of names, a map of names to bodies, and a
list of bodies that carry their name. Unknown keys are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from ductile.errors import Path, dotted
from ductile.model import CORE_PREFIX, Json
from ductile.plugins.document import DocumentError, read_document

MANIFEST_NAME = "manifest.yaml"
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
COMMAND_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,127}$"
MAX_PROBLEMS = 10

_AS_WRITTEN = ("name", "version", "description", "entrypoint")
_SCHEMA_WORDS = frozenset(
    ("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not")
)


class ManifestError(ValueError):
    """The manifest is refused; the message says why and what it should hold."""

    def __init__(self, message: str, problems: Iterable[tuple[Path, str]] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems) or (((), message),)
        """Each alone, with the path of the key that it is about."""


def _own_name(name: str) -> str:
    if name.startswith(CORE_PREFIX):
        raise ValueError(
            f"is {name!r}, but names that begin with {CORE_PREFIX!r} are the gateway's own"
        )
    return name


def _inside(entrypoint: str) -> str:
    path = PurePosixPath(entrypoint)
    if path.is_absolute():
        raise ValueError(f"is {entrypoint!r}, it must be relative to the plugin's directory")
    if ".." in path.parts:
        raise ValueError(f"is {entrypoint!r}; '..' is refused, name a file inside the directory")
    if not path.parts or not entrypoint.isprintable():
        raise ValueError(f"is {entrypoint!r}, it must name a file")
    return entrypoint


def _whole_schema(schema: Json) -> Json:
    """Write out the short form `{url: string}`, which names properties and their types."""
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


def _listed(commands: Json) -> list[Json]:
    """Any of the three shapes as a list of bodies with names."""
    if isinstance(commands, dict):
        for name, body in commands.items():
            if not isinstance(body, dict | None):
                raise ValueError(f"holds {name}: {_shown(body)}, which must be a mapping")
        listed = [{**(body or {}), "name": name} for name, body in commands.items()]
    elif isinstance(commands, list):
        for item in commands:
            if not isinstance(item, dict | str):
                raise ValueError(f"holds {_shown(item)}, which must be a name or a mapping")
        listed = [{"name": item} if isinstance(item, str) else item for item in commands]
    else:
        raise ValueError(f"is {_shown(commands)}, it must be a list or a mapping")
    if not listed:
        raise ValueError("is empty; declare at least one command")
    return listed


def _whole_number(value: Json) -> Json:
    """Python holds `true` and `1.0` for equal to 1; a version number is neither."""
    if isinstance(value, bool | float):
        raise ValueError(f"is {value!r}, it must be a whole number")
    return value


class CommandType(StrEnum):
    READ = "read"
    """No side effects outside: `plugin:ro` is enough."""
    WRITE = "write"


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", coerce_numbers_to_str=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_absence(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return {key: value for key, value in data.items() if value is not None}
        return data


Text = Annotated[str, Field(min_length=1)]
Texts = tuple[Text, ...]
SchemaOf = Annotated[Any, AfterValidator(_whole_schema)]


class Emission(_Part):
    """The names of the values in one event that a command emits."""

    event: Text
    values: Texts = ()


class Values(_Part):
    """The names that a command reads and writes; for people and agents, not enforced."""

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
    """Makes a command's `state_updates` a durable fact."""

    when: When
    source: Literal["state_updates"] = Field(alias="from")
    fact_type: Text
    compatibility_view: Literal["mirror_object"] = "mirror_object"


class ConfigKeys(_Part):
    required: Texts = ()
    optional: Texts = ()


class Manifest(_Part):
    model_config = ConfigDict(
        title="Ductile plugin manifest",
        json_schema_extra={
            "if": {"properties": {"protocol": {"const": 2}}},
            "then": {"required": ["manifest_spec", "manifest_version"]},
        },
    )

    manifest_spec: Literal["ductile.plugin"] | None = None
    manifest_version: Annotated[Literal[1] | None, BeforeValidator(_whole_number)] = None
    name: Annotated[str, Field(pattern=NAME_PATTERN), AfterValidator(_own_name)]
    version: str = ""
    protocol: Annotated[Literal[1, 2], BeforeValidator(_whole_number)]
    entrypoint: Annotated[str, AfterValidator(_inside)]
    description: str = ""
    concurrency_safe: bool = True
    commands: Annotated[
        tuple[Command, ...],
        BeforeValidator(
            _listed,
            json_schema_input_type=list[str | Command] | dict[str, CommandBody | None],
        ),
    ]
    fact_outputs: tuple[FactOutput, ...] = ()
    config_keys: ConfigKeys = ConfigKeys.model_construct()

    @model_validator(mode="after")
    def _versioned(self) -> Self:
        if self.protocol == 2 and self.manifest_spec is None:
            raise ValueError("manifest_spec is missing; protocol 2 needs 'ductile.plugin'")
        if self.protocol == 2 and self.manifest_version is None:
            raise ValueError("manifest_version is missing; protocol 2 needs 1")
        return self

    @model_validator(mode="after")
    def _facts_of_known_commands(self) -> Self:
        known = {command.name for command in self.commands}
        for index, rule in enumerate(self.fact_outputs):
            if rule.when.command not in known:
                raise ValueError(
                    f"fact_outputs[{index}].when.command is {rule.when.command!r}, "
                    "which is not among the commands"
                )
        return self

    def command(self, name: str) -> Command | None:
        return next((command for command in self.commands if command.name == name), None)

    def fact_output(self, command: str) -> FactOutput | None:
        """The rule for a command's `state_updates`; the first, where several are declared."""
        return next((rule for rule in self.fact_outputs if rule.when.command == command), None)


def read_manifest(data: bytes) -> tuple[Manifest, tuple[str, ...]]:
    """The manifest in a file's bytes, and warnings. Raises `ManifestError`."""
    try:
        document = read_document(data, as_written=_AS_WRITTEN)
    except DocumentError as error:
        raise ManifestError(f"{MANIFEST_NAME} cannot be used: {error}") from None
    twice = [path for path in document.repeated if len(path) != 2 or path[0] != "commands"]
    if twice:
        keys = ", ".join(dotted(path) for path in twice)
        problems = [(path, f"{dotted(path)} stands here twice") for path in twice]
        raise ManifestError(f"{MANIFEST_NAME} holds a key twice: {keys}", problems)
    try:
        manifest = Manifest.model_validate(document.root)
    except ValidationError as error:
        problems = [_said(detail, document.root) for detail in error.errors()]
        first = "; ".join(text for _, text in problems[:MAX_PROBLEMS])
        raise ManifestError(f"{MANIFEST_NAME}: {first}", problems) from None
    unique: dict[str, Command] = {}
    repeated = [f"the command {path[1]} is declared" for path in document.repeated]
    for command in manifest.commands:
        if unique.setdefault(command.name, command) is not command:
            repeated.append(f"the command {command.name} is declared")
    ruled = set()
    for rule in manifest.fact_outputs:
        if rule.when.command in ruled:
            repeated.append(f"the command {rule.when.command} has fact_outputs")
        ruled.add(rule.when.command)
    warnings = tuple(f"{what} twice, the first counts" for what in dict.fromkeys(repeated))
    return manifest.model_copy(update={"commands": tuple(unique.values())}), warnings


def manifest_schema() -> dict[str, Json]:
    """The JSON Schema of `manifest.yaml`, in any of its shapes."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Manifest.model_json_schema(by_alias=True, mode="validation"),
    }


def is_plugin_name(name: str) -> bool:
    """Whether a name can be a plugin's: one path component, and not the gateway's own."""
    return re.fullmatch(NAME_PATTERN, name) is not None and not name.startswith(CORE_PREFIX)


_MUST_BE = {
    "tuple_type": "a list",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_type": "text",
    "string_too_short": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
}


def _said(detail: ErrorDetails, root: dict[str, Json]) -> tuple[Path, str]:
    """A validation error in the words of the manifest's author, and where it is."""
    path = named = tuple(detail["loc"])
    if path[:1] == ("commands",) and len(path) > 1 and isinstance(path[1], int):
        name = _listed(root["commands"])[path[1]].get("name")
        named = (path[0], name if isinstance(name, str) else path[1], *path[2:])
        path = named if isinstance(root["commands"], dict) else path
    return path, _worded(detail, dotted(named))


def _worded(detail: ErrorDetails, key: str) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "missing":
        return f"{key} is missing"
    if kind == "value_error":
        return f"{key} {context['error']}".strip()
    must_be = _MUST_BE.get(kind) or context.get("expected")
    if kind == "string_pattern_mismatch":
        must_be = f"text that matches {context['pattern']}"
    if must_be is None:
        return f"{key}: {detail['msg']}"
    return f"{key} is {_shown(detail['input'])}, it must be {must_be}"


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
