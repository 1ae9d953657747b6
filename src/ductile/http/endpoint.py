"""A row of the table of routes."""

from __future__ import annotations

from collections.abc import Callable

from ductile.config import Settings
from ductile.http.responses import Handler
from ductile.record import dataclass


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    token_scope: str | None
    """The scope that a token must have; None is public, `any` takes every valid token."""
    handler: Handler
    query: tuple[str, ...] = ()
    """The query parameters that it accepts."""
    is_public: Callable[[Settings], bool] | None = None
    """Whether the configuration makes it public."""
