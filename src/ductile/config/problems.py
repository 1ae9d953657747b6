"""Translate errors of the schema to problems with location, found value and allowed values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ductile.config.edit.paths import get_at
from ductile.config.loader import normalize
from ductile.config.loader.nodes import Locations
from ductile.config.loader.secrets import is_limit_key
from ductile.config.models.fields import RawScalar
from ductile.config.models.plugin import PluginSettings
from ductile.config.models.schedule import ScheduleSettings
from ductile.config.models.settings import Settings
from ductile.core.values.redact import REDACTED, names_a_secret
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem

_ALSO: Mapping[type[BaseModel], Iterable[str]] = {
    Settings: normalize.ROOT_ALSO,
    PluginSettings: normalize.PLUGIN_ALSO,
    ScheduleSettings: normalize.SCHEDULE_ALSO,
}
_KINDS = {
    "model_type": "must be a mapping",
    "dict_type": "must be a mapping",
    "mapping_type": "must be a mapping",
    "tuple_type": "must be a list",
    "string_type": "must be text",
    "float_type": "must be a duration",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
}


def translate(
    error: ValidationError, data: Any, locations: Locations, broken: set[Path]
) -> list[Problem]:
    """A problem for each error in `data`, except for values in `broken`, which have one already."""
    return [
        _problem(detail, data, locations)
        for detail in error.errors(include_url=False)
        if detail["type"] == "extra_forbidden"
        or not any(detail["loc"][: len(path)] == path for path in broken)
    ]


def _problem(detail: ErrorDetails, data: Any, locations: Locations) -> Problem:
    path: Path = detail["loc"]
    context = detail.get("ctx", {})
    kind = detail["type"]
    location = context.get("location") or locations.locate(path)
    message, allowed, close = _KINDS.get(kind), context.get("allowed"), None
    value = get_at(data, path)
    if path and isinstance(only := get_at(data, path[:-1]), RawScalar):
        value = only  # One value in the place of a list.
    match kind:
        case "extra_forbidden":
            known = sorted(known_keys(path[:-1]))
            key = str(path[-1])
            return locations.locate_key(path).problem(
                f"unknown key {key!r}",
                path=path,
                allowed=", ".join(known),
                nearest=_find_in_subsection(path[:-1], key) or nearest(key, known),
            )
        case "missing":
            return location.problem(f"missing key {path[-1]!r}", path=path[:-1])
        case "literal_error":
            words = re.findall(r"'([^']*)'", str(context["expected"]))
            message, allowed = "is not an allowed value", ", ".join(words)
            close = nearest(value.text, words) if isinstance(value, RawScalar) else None
        case "greater_than" | "greater_than_equal":
            bound = context.get("gt", context.get("ge"))
            word = "more than" if kind == "greater_than" else "at least"
            message, allowed = "is too small", f"{word} {bound:g}"
        case "refused":
            message, close = str(context["message"]), context.get("nearest")
    found = describe(value, path)
    return location.problem(
        message or detail["msg"], path=path, found=found, allowed=allowed, nearest=close
    )


def describe(value: Any, path: Path) -> str | None:
    """The found value as short text; secrets are redacted, and mappings give None."""
    if isinstance(value, RawScalar):
        is_named = any(isinstance(part, str) and names_a_secret(part) for part in path)
        if value.secret or (is_named and not is_limit_key(path)):
            return REDACTED
        text = value.text if len(value.text) <= 60 else value.text[:57] + "..."
        return repr(text) if isinstance(value.value, str) else text
    return None if isinstance(value, dict) else "a list" if isinstance(value, list) else "nothing"


def known_keys(path: Path) -> set[str]:
    """The keys of the mapping at `path`; empty if the operator chooses them."""
    model, in_mapping = _walk(path)
    if model is None or in_mapping:
        return set()
    return set(_fields(model)) | set(_ALSO.get(model, ()))


def _find_in_subsection(path: Path, key: str) -> str | None:
    """The path of `key` in a subsection, if exactly one subsection has it."""
    model, in_mapping = _walk(path)
    if model is None or in_mapping:
        return None
    inner = {name: info.annotation for name, info in _fields(model).items()}
    found = [
        f"{name}.{key}"
        for name, kind in inner.items()
        if isinstance(kind, type) and issubclass(kind, BaseModel) and key in _fields(kind)
    ]
    return found[0] if len(found) == 1 else None


def default_text(path: Path) -> str | None:
    """The default of the scalar at `path` in the notation of the files, if that is different."""
    model, in_mapping = _walk(path[:-1])
    info = _fields(model).get(str(path[-1])) if model and path and not in_mapping else None
    extra = info.json_schema_extra if info else None
    text = extra.get("default") if isinstance(extra, dict) else None
    return text if isinstance(text, str) else None


def _walk(path: Path) -> tuple[type[BaseModel] | None, bool]:
    """The section at `path`, and whether it is the section of each entry of a mapping."""
    model: type[BaseModel] | None = Settings
    skip = False
    for part in path:
        if isinstance(part, int) or skip:
            skip = False
        elif model is not None:
            info = _fields(model).get(part)
            annotation = info.annotation if info else None
            skip = get_origin(annotation) is not None and issubclass(_class_of(annotation), Mapping)
            model = _model_in(annotation)
    return model, skip


def _fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {info.alias or name: info for name, info in model.model_fields.items()}


def _class_of(annotation: Any) -> type:
    origin = get_origin(annotation)
    return origin if isinstance(origin, type) else object


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in get_args(annotation):
        if (model := _model_in(argument)) is not None:
            return model
    return None
