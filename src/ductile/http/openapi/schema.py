"""JSON Schemas of the request and response models, as OpenAPI components."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, models_json_schema

from ductile.core.agents import decision_log
from ductile.http.models import responses
from ductile.http.models.fields import RequestModel
from ductile.http.models.responses.fields import ResponseModel

Schema = dict[str, Any]
REF = "#/components/schemas/"
SUFFIX = "Model"
MODE: JsonSchemaMode = "validation"
MODULES = tuple(
    import_module(f"{responses.__name__}.{found.name}")
    for found in iter_modules(responses.__path__)
)


@cache
def response_models() -> dict[str, type[BaseModel]]:
    """Return the response models by the names of their components."""
    found: dict[str, type[BaseModel]] = {"DecisionLog": _decision_log()}
    for module in MODULES:
        for value in vars(module).values():
            is_own = inspect.isclass(value) and value.__module__ == module.__name__
            if is_own and value is not ResponseModel and value.__name__.endswith(SUFFIX):
                found[component_name(value)] = value
    return found


def _decision_log() -> type[BaseModel]:
    """Build the model of a decision log from the rules that judge one."""
    sections: dict[str, Any] = {}
    for name, rules in decision_log.SECTIONS.items():
        section_fields: dict[str, Any] = {
            field: (Any, Field(... if rule.required else None, description=rule.must_be))
            for field, rule in rules.items()
        }
        section = create_model(f"DecisionLog{name.capitalize()}", **section_fields)
        required = name in decision_log.REQUIRED
        sections[name] = (section, ...) if required else (section, None)
    config = ConfigDict(extra="allow")
    return create_model("DecisionLog", __config__=config, **sections)


def component_name(model: type[BaseModel]) -> str:
    return model.__name__.removesuffix(SUFFIX)


def describe(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring."""
    return " ".join((inspect.cleandoc(model.__doc__ or "")).split("\n\n")[0].split())


def component_schemas(models: Iterable[type[BaseModel]]) -> dict[str, Schema]:
    """Return the schemas of the models, and of the models inside them, by component name."""
    wanted = [(model, MODE) for model in models]
    _, found = models_json_schema(
        wanted, ref_template=f"{REF}{{model}}", schema_generator=GenerateJsonSchema
    )
    open_names = {model.__name__ for model in response_models().values()}
    schemas: dict[str, Schema] = {}
    for name, schema in found["$defs"].items():
        cleaned = _clean(schema)
        if name in open_names:
            # Responses may get further keys; callers must not depend on their absence.
            cleaned.pop("additionalProperties", None)
        schemas[name.removesuffix(SUFFIX)] = cleaned
    return schemas


def reference(model: type[BaseModel]) -> Schema:
    return {"$ref": f"{REF}{component_name(model)}"}


def property_schemas(model: type[RequestModel]) -> dict[str, Schema]:
    """Return the schema of each field of a model, by its public name."""
    properties: dict[str, Schema] = _clean(model.model_json_schema())["properties"]
    return properties


def _clean(schema: Any) -> Any:
    """Remove titles, which repeat names, and null defaults; shorten references."""
    if isinstance(schema, list):
        return [_clean(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    cleaned = {}
    for key, value in schema.items():
        if (key == "title" and isinstance(value, str)) or (key == "default" and value is None):
            continue
        if key == "$ref":
            value = value.removesuffix(SUFFIX)
        cleaned[key] = _clean(value)
    return cleaned
