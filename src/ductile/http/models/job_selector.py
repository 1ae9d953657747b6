"""The filter of a bulk action."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from ductile.core.jobs.state_machine import status_named
from ductile.http.models.fields import BodyFlag, BodyText, OneOf, RequestModel, Timestamp
from ductile.model import JobStatus, SubmittedBy

Text = Annotated[str | None, BodyText()]


class JobSelector(RequestModel):
    """A filter with at least one key."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    plugin: Text = Field(None, description="Jobs of this plugin.")
    command: Text = Field(None, description="Jobs of this command.")
    pipeline: Text = Field(None, description="Steps of this pipeline.")
    status: Annotated[JobStatus | None, OneOf(JobStatus, status_named)] = Field(
        None, description="Jobs in this state."
    )
    submitted_by: Annotated[SubmittedBy | None, OneOf(SubmittedBy)] = Field(
        None, description="Jobs of this producer."
    )
    acknowledged: Annotated[bool | None, BodyFlag()] = Field(
        None,
        description="Jobs that an operator has acknowledged or ended, or a newer job or run has"
        " ended; a retry leaves them out without this filter.",
    )
    since: Annotated[datetime | None, Timestamp()] = Field(
        None, description="Jobs created at or after this time."
    )
    until: Annotated[datetime | None, Timestamp()] = Field(
        None, description="Jobs created before this time; `before` means the same."
    )

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, value: Any) -> Any:
        names = ", ".join(cls.model_fields)
        if not isinstance(value, dict) or not value:
            raise ValueError(f"must name at least one of {names}")
        # A key that is null selects more jobs than the caller means.
        if None in value.values():
            raise ValueError("must not contain null")
        if any("\0" in text for text in value.values() if isinstance(text, str)):
            raise ValueError("must not contain U+0000")
        if "before" in value:
            if "until" in value:
                raise ValueError("must not contain both until and before")
            value = {("until" if key == "before" else key): value[key] for key in value}
        return value
