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
    """What a token must be allowed; None is open to all, `any` to every good token."""
    handler: Handler
    query: tuple[str, ...] = ()
    """The parameters that it takes after the `?`."""
    open: Callable[[Settings], bool] | None = None
    """Whether the configuration opens it to all."""
