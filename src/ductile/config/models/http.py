"""`api`, `webhooks` and `tokens`: the HTTP listeners and their credentials."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from ductile.config.models.debounce import DEBOUNCE, DebounceSettings
from ductile.config.models.fields import (
    Address,
    Bytes,
    Flag,
    Name,
    Section,
    Span,
    Text,
    Url,
    UrlPath,
    Whole,
    Word,
    span,
    split_address,
    volume,
)

HEALTH = "/healthz"
"""The path of the health endpoint on every listener."""
DEFAULT_SIGNATURE_HEADER = "X-Hub-Signature-256"


class ApiTokenSettings(Section):
    token: Name = Field(
        description="The bearer token.", examples=["${ADMIN_API_TOKEN}"], repr=False
    )
    scopes: tuple[Name, ...] = Field(
        default=(), description="Scopes of the token.", examples=[["*"]]
    )
    name: Name | None = Field(default=None, description="Name in logs.")


class AuthSettings(Section):
    tokens: tuple[ApiTokenSettings, ...] = Field(default=(), description="Bearer tokens.")


class ApiSettings(Section):
    enabled: Flag = Field(default=False, description="Serve the API on a TCP port.")
    listen: Address = Field(default="127.0.0.1:8080", description="Address of the listener.")
    auth: AuthSettings = Field(
        default_factory=AuthSettings.model_construct, description="Authentication."
    )
    max_concurrent_sync: Annotated[Whole, Field(ge=1)] = Field(
        default=10, description="Maximum number of requests that wait for a synchronous pipeline."
    )
    max_sync_timeout: Span = span("5m", "Maximum time that such a request waits.")
    allowed_origins: tuple[Name, ...] = Field(
        default=(), description="Origins that browsers may send requests from (CORS)."
    )
    allowed_hosts: tuple[Name, ...] = Field(
        default=(), description="Accepted `Host` names, in addition to the listener's address."
    )
    public_url: Url | None = Field(
        default=None,
        description="URL at which people reach the API; links in notifications begin with it.",
        examples=["https://ductile.example"],
    )
    metrics: Annotated[Literal["private", "public"], Word] = Field(
        default="private",
        description="`private`: /metrics requires the scope system:ro. `public`: no token needed.",
    )
    ui: Flag = Field(default=True, description="Serve the dashboard at `/ui/`.")
    mcp: Flag = Field(
        default=False,
        description="Serve the Model Context Protocol for agents at `/mcp`; needs the extra `mcp`.",
    )

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self.listen)

    @property
    def dashboard(self) -> str | None:
        """The address of the dashboard for people; None if there is none."""
        base = self.public_url if self.ui else None
        return base and f"{base.rstrip('/')}/ui/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The accepted `Host` names; people reach the gateway by that of `public_url`."""
        own = urlsplit(self.public_url or "").hostname
        return (*self.allowed_hosts, own) if own else self.allowed_hosts


class EndpointSettings(Section):
    """An endpoint for one sender; it needs `plugin` or `pipeline`, and `secret` or `secret_ref`."""

    path: UrlPath = Field(description="Path of the URL.", examples=["/hook/github"])
    plugin: Name | None = Field(
        default=None, description="Plugin whose `handle` command receives the event."
    )
    pipeline: Name | None = Field(
        default=None, description="Pipeline that the event starts, instead of a plugin."
    )
    name: Name | None = Field(
        default=None,
        description="The event type is `webhook.<name>`; default: last part of the path.",
    )
    secret: Name | None = Field(
        default=None,
        description="Key of the signature.",
        examples=["${GITHUB_WEBHOOK_SECRET}"],
        repr=False,
    )
    secret_ref: Name | None = Field(
        default=None, description="Name of the token whose `key` is the secret."
    )
    signature_header: Name | None = Field(
        default=None,
        description="Header with the signature; default: that of the provider, "
        f"otherwise {DEFAULT_SIGNATURE_HEADER}.",
    )
    max_body_size: Bytes = volume("1MB", "Maximum size of a request body.")
    provider: (
        Annotated[Literal["github", "stripe", "slack", "shopify", "standard"], Word] | None
    ) = Field(default=None, description="Provider whose signature scheme is used.")
    debounce: DebounceSettings | None = Field(default=None, description=DEBOUNCE)

    @classmethod
    def derive_defaults(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "provider" in data:
            return data
        return {"signature_header": DEFAULT_SIGNATURE_HEADER, **data}

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        if "secret" not in data and "secret_ref" not in data:
            yield "needs secret or secret_ref, because every webhook must be signed"
        if ("plugin" in data) == ("pipeline" in data):
            yield "needs either plugin or pipeline"

    @property
    def event_name(self) -> str:
        """The part of its event type after `webhook.`."""
        return self.name or self.path.rstrip("/").rpartition("/")[2] or "root"


class WebhooksSettings(Section):
    listen: Address = Field(default="127.0.0.1:8081", description="Address of the listener.")
    endpoints: tuple[EndpointSettings, ...] = Field(
        default=(), description="Endpoints, one per sender."
    )
    allowed_hosts: tuple[Name, ...] = Field(
        default=(), description="Accepted `Host` names, in addition to the listener's address."
    )

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self.listen)


class TokenSettings(Section):
    """An entry of tokens.yaml: a bearer token; without scopes a shared secret, not a token."""

    name: Name = Field(description="Name of the token, for `secret_ref` and logs.")
    key: Name = Field(
        description="Secret value of the token.", examples=["${ADMIN_API_KEY}"], repr=False
    )
    scopes_file: Name | None = Field(
        default=None, description="JSON file with the scopes.", examples=["scopes/admin-cli.json"]
    )
    scopes_hash: Name | None = Field(
        default=None, description="BLAKE3 hash of the scopes file.", examples=["blake3:a3f8c2d9..."]
    )
    scopes: tuple[Name, ...] = Field(default=(), description="Scopes, instead of a scopes file.")
    created_at: Text | None = Field(default=None, description="Note; not used.")
    description: Text | None = Field(default=None, description="Note; not used.")
