"""Responses about pauses."""

from __future__ import annotations

from typing import Literal

from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp


class PauseModel(ResponseModel):
    """A pause; with `dry_run`, what would be paused."""

    kind: Literal["system", "plugin", "pipeline"]
    name: str | None
    """The plugin or pipeline; null for the gateway."""
    paused_at: Timestamp
    paused_by: str
    """`token:NAME`, `user:NAME`, `session:local` or `anonymous`."""
    reason: str | None
    until: Timestamp | None
    """When it ends by itself."""
    dry_run: bool = OMITTED


class PausesModel(ResponseModel):
    """Everything that is paused."""

    pauses: list[PauseModel]


class ResumedModel(ResponseModel):
    """A pause was ended; with `dry_run`, it would be."""

    kind: Literal["system", "plugin", "pipeline"]
    name: str | None
    resumed: bool
    """False if it was not paused."""
    dry_run: bool = OMITTED
