"""`instances` and `remote_ingress`: gateways that send each other events."""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from ductile.config.models.fields import (
    Bytes,
    Flag,
    Name,
    Section,
    Span,
    Url,
    UrlPath,
    span,
    volume,
)


class _Signed(Section):
    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterator[str]:
        if "secret" not in data and "secret_ref" not in data:
            yield "needs secret_ref or secret: every relay is signed"


class InstanceSettings(_Signed):
    """A gateway that events are relayed to."""

    name: Name = Field(description="What relay steps call it.", examples=["lab"])
    enabled: Flag = Field(default=True, description="Whether anything is sent.")
    base_url: Url = Field(description="Where it is.", examples=["https://lab.example"])
    ingress_path: UrlPath = Field(
        description="Its path for us.", examples=["/ingest/peer/home-primary"]
    )
    secret_ref: Name | None = Field(default=None, description="The token entry whose `key` signs.")
    secret: Name | None = Field(
        default=None, description="The key itself, in place of `secret_ref`.", repr=False
    )
    key_id: Name | None = Field(default=None, description="Which key that is, for the receiver.")
    timeout: Span = span("10s", "How long a send may take.")
    allow: tuple[Name, ...] = Field(
        default=(), description="Event types that may leave; none named, all."
    )

    @property
    def url(self) -> str:
        """Where its events are sent to."""
        return self.base_url.rstrip("/") + self.ingress_path


class PeerBaggageSettings(Section):
    allow: tuple[Name, ...] = Field(default=(), description="Baggage keys that are taken over.")


class PeerSettings(_Signed):
    """A gateway that may send us events."""

    name: Name = Field(description="Its name, the last part of the path.")
    enabled: Flag = Field(default=True, description="Whether anything is accepted.")
    secret_ref: Name | None = Field(
        default=None, description="The token entry whose `key` it signs with."
    )
    secret: Name | None = Field(
        default=None, description="The key itself, in place of `secret_ref`.", repr=False
    )
    key_id: Name | None = Field(default=None, description="The key id it must send.")
    accept: tuple[Name, ...] = Field(
        default=(), description="Event types it may send; none named, all."
    )
    baggage: PeerBaggageSettings = Field(
        default_factory=PeerBaggageSettings.model_construct,
        description="What of its baggage we keep.",
    )


class RemoteIngressSettings(Section):
    listen_path: UrlPath = Field(
        default="/ingest/peer", description="Its path on the API listener."
    )
    max_body_size: Bytes = volume("1MB", "A larger body is refused.")
    allowed_clock_skew: Span = span("5m", "How far a peer's clock may be off.")
    require_key_id: Flag = Field(default=False, description="Refuse peers that name no key.")
    peers: tuple[PeerSettings, ...] = Field(default=(), description="Who may send.")
