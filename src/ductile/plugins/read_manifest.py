"""Reading `manifest.yaml`: the validated manifest, or every problem with its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import decode
from ductile.config.loader.nodes import Location, MappingNode, ScalarNode, locate, to_json
from ductile.config.loader.yaml import compose, type_of
from ductile.errors import Path, Problem, Severity
from ductile.model import Json
from ductile.plugins.manifest import MANIFEST_NAME, Command, Manifest, shorten_value

MAX_BYTES = 1024 * 1024

_BOM = b"\xef\xbb\xbf"
_AS_WRITTEN = ("name", "version", "description", "entrypoint")
"""Keys whose numbers stay text: version 1.10 is not 1.1."""


class ManifestError(ValueError):
    """The manifest is rejected; `problems` has everything that is wrong, with locations."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        more = len(self.problems) - 1
        rest = f" (and {more} more; `ductile plugin validate` lists them)" if more else ""
        super().__init__(f"{self.problems[0]}{rest}")


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
        found=shorten_value(detail["input"]),
        allowed=f"text that matches {pattern}" if pattern else context.get("expected"),
    )
