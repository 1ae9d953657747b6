"""`manifest.yaml`: a plugin's name, entrypoint and commands.

`commands` has three equivalent forms: a list of names, a mapping of names to bodies, and a
list of bodies with a `name`. Unknown keys are ignored; `plugin validate` warns of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

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

from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import decode
from ductile.config.loader.nodes import Location, MappingNode, ScalarNode, locate, to_json
from ductile.config.loader.yaml import compose, type_of
from ductile.config.models.sandbox import SandboxSettings
from ductile.errors import Path, Problem, Severity
from ductile.model import CORE_PREFIX, Json

MANIFEST_NAME = "manifest.yaml"
NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
COMMAND_PATTERN = r"^[A-Za-z][A-Za-z0-9_-]{0,127}$"
MODULE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
MAX_PRELOAD = 50
MAX_BYTES = 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_AS_WRITTEN = ("name", "version", "description", "entrypoint")
"""Keys whose numbers stay text: version 1.10 is not 1.1."""
_SCHEMA_WORDS = frozenset(
    ("type", "properties", "items", "enum", "const", "anyOf", "oneOf", "allOf", "not")
)


class ManifestError(ValueError):
    """The manifest is rejected; `problems` has everything that is wrong, with locations."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        more = len(self.problems) - 1
        rest = f" (and {more} more; `ductile plugin validate` lists them)" if more else ""
        super().__init__(f"{self.problems[0]}{rest}")


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
                raise ValueError(f"{name} has {_shorten(body)} where a mapping is expected")
        listed = [{**(body or {}), "name": name} for name, body in commands.items()]
    elif isinstance(commands, list):
        for item in commands:
            if not isinstance(item, dict | str):
                raise ValueError(f"has {_shorten(item)} where a name or a mapping is expected")
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


@dataclass(frozen=True, slots=True)
class ManifestDocument:
    """A manifest as it is written: a mapping, not validated yet."""

    root: MappingNode
    values: dict[str, Json]
    repeated: tuple[Path, ...]
    """Commands that a mapping declares again; `values` has the first declaration."""

    def locate(self, path: Path, *, key: bool = False) -> Location:
        return locate(self.root, path, key=key)


def read_manifest(data: bytes, file: str = MANIFEST_NAME) -> tuple[Manifest, tuple[Problem, ...]]:
    """The manifest in a file's bytes, and warnings. Raises `ManifestError`."""
    return validate_manifest(read_document(data, file))


def read_document(data: bytes, file: str = MANIFEST_NAME) -> ManifestDocument:
    """Parse a file's bytes as one mapping. Raises `ManifestError`."""
    start = Location(file, 1, 1)
    if len(data) > MAX_BYTES:
        allowed = f"at most {MAX_BYTES // 1024} KiB"
        raise ManifestError([start.problem("the manifest is too large", allowed=allowed)])
    text = decode(data.removeprefix(_BOM), file)
    if isinstance(text, Problem):
        raise ManifestError([text])
    root, problems = compose(text, file)
    repeated = tuple(problem.path for problem in problems if _is_repeated_command(problem))
    if errors := [problem for problem in problems if problem.path not in repeated]:
        raise ManifestError(errors)
    if not isinstance(root, MappingNode):
        raise ManifestError([start.problem("the manifest must be a mapping of keys to values")])
    return ManifestDocument(root, _read_values(root), repeated)


def _is_repeated_command(problem: Problem) -> bool:
    match problem.path:
        case ("commands", str(name)):
            return name != "<<"
    return False


def _read_values(root: MappingNode) -> dict[str, Json]:
    problems = []

    def read_scalar(scalar: ScalarNode) -> Json:
        try:
            return type_of(scalar, scalar.text)
        except ValueError as error:
            problems.append(scalar.location.problem(f"{error}; write a JSON value, or quote it"))
            return scalar.text

    values = {key: to_json(entry.value, read_scalar) for key, entry in root.items.items()}
    if problems:
        raise ManifestError(problems)
    for key in _AS_WRITTEN:
        node = root.get(key)
        if isinstance(node, ScalarNode) and type(values[key]) in (int, float):
            values[key] = node.text
    return values


def validate_manifest(document: ManifestDocument) -> tuple[Manifest, tuple[Problem, ...]]:
    """The manifest that a document holds, and warnings. Raises `ManifestError`."""
    try:
        manifest = Manifest.model_validate(document.values)
    except ValidationError as error:
        problems = [_problem(detail, document) for detail in error.errors()]
        raise ManifestError(problems) from None
    if errors := list(_find_contradictions(manifest, document)):
        raise ManifestError(errors)
    unique: dict[str, Command] = {}
    for command in manifest.commands:
        unique.setdefault(command.name, command)
    manifest = manifest.model_copy(update={"commands": tuple(unique.values())})
    return manifest, tuple(_warn_of_repetitions(document))


def _find_contradictions(manifest: Manifest, document: ManifestDocument) -> Iterator[Problem]:
    """Errors that only several keys together show."""
    for key, value in (("manifest_spec", "ductile.plugin"), ("manifest_version", "1")):
        if manifest.protocol == 2 and getattr(manifest, key) is None:
            message = f"missing key {key!r}, which protocol 2 requires"
            yield document.locate(()).problem(message, allowed=f"{key}: {value}")
    known = {command.name for command in manifest.commands}
    for index, rule in enumerate(manifest.fact_outputs):
        if rule.when.command not in known:
            path = ("fact_outputs", index, "when", "command")
            yield document.locate(path).problem(
                "is not a command of this plugin",
                path=path,
                found=repr(rule.when.command),
                allowed=", ".join(sorted(known)),
            )


def _warn_of_repetitions(document: ManifestDocument) -> Iterator[Problem]:
    """Warnings for commands and rules that are declared more than once."""
    repeated = list(document.repeated)
    commands = document.values["commands"]
    if isinstance(commands, list):
        names = [item["name"] if isinstance(item, dict) else item for item in commands]
        repeated += [("commands", i) for i, name in enumerate(names) if name in names[:i]]
    rules = [rule["when"]["command"] for rule in document.values.get("fact_outputs") or ()]
    repeated += [("fact_outputs", i) for i, name in enumerate(rules) if name in rules[:i]]
    for path in repeated:
        yield document.locate(path, key=True).problem(
            "repeats an earlier declaration for the same command; the first one is used",
            path=path,
            severity=Severity.WARNING,
        )


def manifest_schema() -> dict[str, Json]:
    """The JSON Schema of `manifest.yaml`, in all its forms."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Manifest.model_json_schema(by_alias=True, mode="validation"),
    }


def is_plugin_name(name: str) -> bool:
    """Whether a name can be a plugin's: one path component, and not reserved."""
    return re.fullmatch(NAME_PATTERN, name) is not None and not name.startswith(CORE_PREFIX)


_MESSAGES = {
    "tuple_type": "must be a list",
    "model_type": "must be a mapping",
    "model_attributes_type": "must be a mapping",
    "string_type": "must be text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "is not a valid name",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "literal_error": "is not an allowed value",
    "enum": "is not an allowed value",
}


def _problem(detail: ErrorDetails, document: ManifestDocument) -> Problem:
    """A validation error in terms of the file."""
    path, kind, context = tuple(detail["loc"]), detail["type"], detail.get("ctx", {})
    commands = document.values.get("commands")
    if path[:1] == ("commands",) and len(path) > 1 and isinstance(commands, dict):
        # The mapping was validated as a list.
        path = ("commands", list(commands)[int(path[1])], *path[2:])
    location = document.locate(path)
    if kind == "missing":
        return location.problem(f"missing key {path[-1]!r}", path=path[:-1])
    message = str(context["error"]) if kind == "value_error" else _MESSAGES.get(kind)
    pattern = context.get("pattern")
    return location.problem(
        message or detail["msg"],
        path=path,
        found=_shorten(detail["input"]),
        allowed=f"text that matches {pattern}" if pattern else context.get("expected"),
    )


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
