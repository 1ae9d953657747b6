"""`api`, `webhooks` and `tokens`: who may knock at which door."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from ductile.config.models.fields import (
    Address,
    Bytes,
    Flag,
    Name,
    Section,
    Span,
    Text,
    UrlPath,
    Whole,
    Word,
    span,
    split_address,
    volume,
)

HEALTH = "/healthz"
"""Where each listener answers how the gateway is."""
DEFAULT_SIGNATURE_HEADER = "X-Hub-Signature-256"


class ApiTokenSettings(Section):
    token: Name = Field(
        description="The bearer token.", examples=["${ADMIN_API_TOKEN}"], repr=False
    )
    scopes: tuple[Name, ...] = Field(default=(), description="What it may do.", examples=[["*"]])
    name: Name | None = Field(default=None, description="How logs call it.")


class AuthSettings(Section):
    tokens: tuple[ApiTokenSettings, ...] = Field(
        default=(), description="Bearer tokens of the API."
    )


class ApiSettings(Section):
    enabled: Flag = Field(default=False, description="Whether the API listens on TCP.")
    listen: Address = Field(default="127.0.0.1:8080", description="Where it listens.")
    auth: AuthSettings = Field(
        default_factory=AuthSettings.model_construct, description="Who may call it."
    )
    max_concurrent_sync: Annotated[Whole, Field(ge=1)] = Field(
        default=10, description="Callers that may wait for a synchronous pipeline at once."
    )
    max_sync_timeout: Span = span("5m", "The longest that any of them waits.")
    allowed_origins: tuple[Name, ...] = Field(
        default=(), description="Web origins that browsers may call from."
    )
    allowed_hosts: tuple[Name, ...] = Field(
        default=(), description="Host names it answers to, besides its own address."
    )
    metrics: Annotated[Literal["private", "public"], Word] = Field(
        default="private", description="Whether /metrics needs the scope system:ro."
    )

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self.listen)


class EndpointSettings(Section):
    """A door for one sender; `secret` or `secret_ref` is mandatory."""

    path: UrlPath = Field(description="The URL's path.", examples=["/hook/github"])
    plugin: Name = Field(description="The plugin whose `handle` gets the event.")
    name: Name | None = Field(
        default=None, description="The event is `webhook.<name>`; unset, the path's last part."
    )
    secret: Name | None = Field(
        default=None,
        description="The key of the signature.",
        examples=["${GITHUB_WEBHOOK_SECRET}"],
        repr=False,
    )
    secret_ref: Name | None = Field(default=None, description="The token entry whose `key` it is.")
    signature_header: Name | None = Field(
        default=None,
        description=f"Where the signature is; by default the provider's, "
        f"else {DEFAULT_SIGNATURE_HEADER}.",
    )
    max_body_size: Bytes = volume("1MB", "A larger body is refused.")
    provider: (
        Annotated[Literal["github", "stripe", "slack", "shopify", "standard"], Word] | None
    ) = Field(default=None, description="Whose conventions of signing hold.")

    @classmethod
    def completed(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "provider" in data:
            return data
        return {"signature_header": DEFAULT_SIGNATURE_HEADER, **data}

    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterator[str]:
        if "secret" not in data and "secret_ref" not in data:
            yield "needs secret or secret_ref: every webhook is signed"

    @property
    def event_name(self) -> str:
        """What its events are called after `webhook.`."""
        return self.name or self.path.rstrip("/").rpartition("/")[2] or "root"


class WebhooksSettings(Section):
    listen: Address = Field(default="127.0.0.1:8081", description="Where webhooks arrive.")
    endpoints: tuple[EndpointSettings, ...] = Field(default=(), description="The doors.")
    allowed_hosts: tuple[Name, ...] = Field(
        default=(), description="Host names it answers to, besides its own address."
    )

    @property
    def address(self) -> tuple[str, int]:
        return split_address(self.listen)


class TokenSettings(Section):
    """An entry of tokens.yaml: a bearer token, a shared secret, or both."""

    name: Name = Field(description="The entry's name, for `secret_ref` and logs.")
    key: Name = Field(description="The secret itself.", examples=["${ADMIN_API_KEY}"], repr=False)
    scopes_file: Name | None = Field(
        default=None, description="A JSON file of scopes.", examples=["scopes/admin-cli.json"]
    )
    scopes_hash: Name | None = Field(
        default=None, description="The BLAKE3 hash of that file.", examples=["blake3:a3f8c2d9..."]
    )
    scopes: tuple[Name, ...] = Field(default=(), description="Scopes, in place of a file.")
    created_at: Text | None = Field(default=None, description="For people.")
    description: Text | None = Field(default=None, description="For people.")
