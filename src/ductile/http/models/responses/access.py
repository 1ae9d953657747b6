"""Responses about callers: tokens, dashboard sessions and the audit log."""

from __future__ import annotations

from typing import Any

from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp


class TokenModel(ResponseModel):
    """A token of the ledger."""

    id: str
    name: str
    scopes: list[str]
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    rotated_at: Timestamp | None
    previous_until: Timestamp | None
    """The end of the secret before the last rotation."""
    lease: bool
    """Whether every run is recorded in the audit log."""
    budget: TokenBudgetModel | None
    """Null without a limit."""


class SpendingModel(ResponseModel):
    """A limit of a budget; null is no limit."""

    limit: int | None
    left: int | None


class TokenBudgetModel(ResponseModel):
    """How often a token may start jobs and retry them."""

    runs: SpendingModel
    retries: SpendingModel


class TokensModel(ResponseModel):
    """The tokens of the ledger."""

    tokens: list[TokenModel]


class TokenCreatedModel(TokenModel):
    """The token is created; its secret is shown this once."""

    token: str
    warnings: list[str]
    """Scopes that allow nothing."""


class TokenPlanModel(ResponseModel):
    """With `dry_run`: the token that would be created."""

    dry_run: bool
    name: str
    scopes: list[str]
    warnings: list[str]


class TokenChangedModel(TokenModel):
    """The token is changed; with `dry_run`, it would be."""

    token: str = OMITTED
    """The new secret, shown this once."""
    dry_run: bool = OMITTED


class UiGatewayModel(ResponseModel):
    """The gateway that the dashboard shows."""

    name: str
    version: str
    timezone: str


class UiSessionModel(ResponseModel):
    """The caller, what it may do, and the end of its session."""

    name: str
    scopes: list[str]
    expires_at: Timestamp | None
    """Null if the request is authenticated by a token."""
    gateway: UiGatewayModel


class UiCodeModel(ResponseModel):
    """The code is valid for a minute and opens one session."""

    code: str
    url: str
    """The dashboard's address with the code."""


class UiSessionClosedModel(ResponseModel):
    """The session has ended."""

    closed: bool


class UiSessionsClosedModel(ResponseModel):
    """The sessions of all users were ended."""

    closed: int


class AuditEntryModel(ResponseModel):
    """An action of an operator, or a failed login."""

    id: int
    created_at: Timestamp
    actor: str
    """`token:NAME`, `user:NAME` on this machine, `session:local`, `signal` or `anonymous`."""
    source: str
    """The address, `local socket`, `command line` or `signal`."""
    action: str
    """A noun and a verb: `token.create`."""
    target: str | None
    """What it acted on."""
    details: dict[str, Any] | None
    """The arguments."""


class AuditPageModel(ResponseModel):
    """Entries of the audit log, newest first."""

    entries: list[AuditEntryModel]
    cursor: int | None
    """For the next page; null on the last one."""
