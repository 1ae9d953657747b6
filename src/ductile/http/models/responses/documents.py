"""Responses that describe the API: skills, OpenAPI, the agents' manifest, pages and metrics."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import RootModel

from ductile.http.models.responses.fields import OMITTED, ResponseModel


class SkillModel(ResponseModel):
    """A command or pipeline that an agent can run."""

    name: str
    kind: Literal["command", "pipeline"]
    description: str
    type: str
    method: str
    path: str
    input_schema: Any = OMITTED
    output_schema: Any = OMITTED


class SkillsModel(ResponseModel):
    """Commands and pipelines."""

    skills: list[SkillModel]


class OpenApiModel(ResponseModel):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
    tags: list[dict[str, Any]] = OMITTED


class AiPluginModel(ResponseModel):
    """The plugin manifest for agents."""

    schema_version: str
    name_for_human: str
    name_for_model: str
    description_for_human: str
    description_for_model: str
    auth: dict[str, str]
    api: dict[str, str]


class MetricsTextModel(RootModel[str]):
    """Samples in the Prometheus text format."""

    media_type: ClassVar[str] = "text/plain"


class DocsPageModel(RootModel[str]):
    """A page that shows this document and can call the routes."""

    media_type: ClassVar[str] = "text/html"
