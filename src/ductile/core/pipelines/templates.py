"""`with`: values with references, compiled at load and rendered at run time.

`{payload.x}` alone is the value itself with its type; inside text it becomes text (text unchanged,
other values as JSON). `{{payload.x}}` is the text `{payload.x}`. A
brace that does not open a path of payload, context or config is literal. Lists and maps are
rendered recursively; keys are never references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from ductile._fast_dataclass import dataclass
from ductile.core.values.json_values import MISSING, ROOTS, Failure, Ref, StepValues, parse_ref
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity
from ductile.model import Json

_ROOT = "|".join(ROOTS)
_REFERENCE = re.compile(
    rf"\{{(?P<escaped>\{{\s*(?:{_ROOT})(?:\.[^{{}}]*)?\s*\}})\}}"
    rf"|\{{(?P<path>\s*(?:{_ROOT})(?:\.[^{{}}]*)?\s*)\}}"
)
_DOUBLED = re.compile(rf"\{{\{{(?P<path>\s*(?:{_ROOT})\.[^{{}}]*)\}}\}}")
_PATH = re.compile(rf"(?:{_ROOT})\.[^\s{{}}]+")
_LOOKALIKE = re.compile(r"(?<!\{)\{\s*(?P<root>\w+)\.[^{}]*\}")
_UNFINISHED = re.compile(rf"\{{\s*(?:{_ROOT})\.")


@dataclass(frozen=True, slots=True)
class Literal:
    value: Json


@dataclass(frozen=True, slots=True)
class Text:
    """Text with references in it."""

    parts: tuple[str | Ref, ...]


@dataclass(frozen=True, slots=True)
class Items:
    items: tuple[Template, ...]


@dataclass(frozen=True, slots=True)
class Entries:
    entries: tuple[tuple[str, Template], ...]


Template = Literal | Ref | Text | Items | Entries


def compile_template(
    raw: Json, path: Path, *, bare_paths: bool = False
) -> Template | list[Problem]:
    """Compile a value with references; `bare_paths` also accepts the text `payload.x`."""
    problems: list[Problem] = []
    template = _compile(raw, path, problems, bare_paths)
    return problems or template


def find_mistakes(raw: Json, path: Path) -> Iterator[Problem]:
    """A warning for each text in `raw` that was probably meant as a reference."""
    if isinstance(raw, Mapping):
        if (unquoted := _unquoted_reference(raw)) is not None:
            message = "without quotes, YAML reads this as a mapping"
            yield _corrected(message, f"{{{unquoted}}}", path)
            return
        for key, value in raw.items():
            yield from find_mistakes(value, (*path, key))
    elif isinstance(raw, list | tuple):
        for index, item in enumerate(raw):
            yield from find_mistakes(item, (*path, index))
    elif isinstance(raw, str):
        for match in _LOOKALIKE.finditer(raw):
            if match["root"] not in ROOTS:
                close = nearest(match["root"], ROOTS)
                if close is not None:
                    yield _just_text(match[0], path, close)
        if any(_is_meant_as_reference(match) for match in _DOUBLED.finditer(raw)):
            message = "doubled braces write the text in them, not its value"
            yield _corrected(message, raw, path)


def _is_meant_as_reference(match: re.Match[str]) -> bool:
    """Whether doubled braces are those of another template language.

    Without spaces and inside other text, they are the documented escape.
    """
    return match["path"] != match["path"].strip() or match[0] == match.string.strip()


def correct_template(text: str) -> str:
    """A text that was meant as a template, with its references in the form that is replaced."""
    return _DOUBLED.sub(lambda match: f"{{{match['path'].strip()}}}", text)


def _unquoted_reference(raw: Mapping[str, Json]) -> str | None:
    """The path in `{payload.x}` without quotes, which YAML reads as a key without a value."""
    keys = list(raw)
    is_reference = len(keys) == 1 and raw[keys[0]] is None and _PATH.fullmatch(keys[0])
    return keys[0] if is_reference else None


def _corrected(message: str, text: str, path: Path) -> Problem:
    value = json.dumps(correct_template(text), ensure_ascii=False)
    key = path[-1] if path else None
    if key == "with":
        name = text.strip("{} ").rpartition(".")[2]
        line = f"with: {{{name}: {value}}}"
    else:
        line = f"{key}: {value}" if isinstance(key, str) else f"- {value}"
    return Problem(f"{message}; write: {line}", path, severity=Severity.WARNING)


def _just_text(found: str, path: Path, meant: str) -> Problem:
    message = "this is not a reference and stays text"
    return Problem(message, path, found=found, nearest=meant, severity=Severity.WARNING)


def render(template: Template, scope: StepValues) -> Json | Failure:
    """Render a template; a path that does not exist is a failure that names it."""
    match template:
        case Literal(value):
            return value
        case Ref():
            found = template.read(scope)
            return Failure(f"{template} does not exist") if found is MISSING else found
        case Text(parts):
            return _render_text(parts, scope)
        case Items(items):
            filled = [render(item, scope) for item in items]
            return next((item for item in filled if isinstance(item, Failure)), filled)
        case Entries(entries):
            values = {key: render(value, scope) for key, value in entries}
            return next((v for v in values.values() if isinstance(v, Failure)), values)


def _render_text(parts: tuple[str | Ref, ...], scope: StepValues) -> str | Failure:
    texts = []
    for part in parts:
        value = part if isinstance(part, str) else render(part, scope)
        if isinstance(value, Failure):
            return value
        texts.append(as_text(value))
    return "".join(texts)


def as_text(value: Json) -> str:
    """A value inside text: text unchanged, other values as JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _compile(raw: Json, path: Path, problems: list[Problem], bare_paths: bool) -> Template:
    if isinstance(raw, Mapping):
        return Entries(
            tuple(
                (str(key), _compile(value, (*path, key), problems, bare_paths))
                for key, value in raw.items()
            )
        )
    if isinstance(raw, list | tuple):
        return Items(
            tuple(_compile(item, (*path, i), problems, bare_paths) for i, item in enumerate(raw))
        )
    if not isinstance(raw, str):
        return Literal(raw)
    if bare_paths and isinstance(ref := parse_ref(raw), Ref):
        return ref
    return _compile_text(raw, path, problems)


def _compile_text(text: str, path: Path, problems: list[Problem]) -> Template:
    parts: list[str | Ref] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        parts.append(_plain(text[end : match.start()], path, problems))
        end = match.end()
        if match["escaped"] is not None:
            parts.append(match["escaped"])
            continue
        ref = parse_ref(match["path"])
        if isinstance(ref, Failure):
            problems.append(Problem(ref.reason, path, found=match[0]))
        else:
            parts.append(ref)
    parts.append(_plain(text[end:], path, problems))
    parts = [part for part in parts if part != ""]
    if len(parts) == 1 and isinstance(parts[0], Ref):
        return parts[0]
    if any(isinstance(part, Ref) for part in parts):
        return Text(tuple(parts))
    return Literal("".join(map(str, parts)))


def _plain(text: str, path: Path, problems: list[Problem]) -> str:
    if _UNFINISHED.search(text):
        problems.append(Problem("a reference is not closed", path, found=text))
    return text
