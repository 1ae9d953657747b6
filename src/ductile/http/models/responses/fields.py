"""What the response models share."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, WithJsonSchema

from ductile.model import JobStatus

OMITTED: Any = None
"""The default of a key that a response may leave out."""
Timestamp = Annotated[datetime, WithJsonSchema({"type": "string", "format": "date-time"})]
JobState = JobStatus


class ResponseModel(BaseModel):
    """Names every key of a response: an unknown key fails the tests, not the callers."""

    model_config = ConfigDict(extra="forbid", defer_build=True, use_attribute_docstrings=True)
    media_type: ClassVar[str] = "application/json"


class ErrorModel(ResponseModel):
    """An error; some have more keys."""

    model_config = ConfigDict(extra="allow")

    error: str
    """What is wrong, for people."""
    code: str
    """The same for programs; it does not change."""


class AgentsErrorModel(ResponseModel):
    """An error of a route under /gateway/."""

    model_config = ConfigDict(extra="allow")

    status: str
    reason: str
    """What is wrong, for programs."""
    detail: str = OMITTED
    """The same for people."""
