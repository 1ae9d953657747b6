"""`instances` and `remote_ingress`: relaying events to and from other gateways."""

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


class _SignedSection(Section):
    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        if "secret" not in data and "secret_ref" not in data:
            yield "needs secret_ref or secret, because every relay must be signed"


class InstanceSettings(_SignedSection):
    """A gateway to which events are relayed."""

    name: Name = Field(description="Name for relay steps.", examples=["lab"])
    enabled: Flag = Field(default=True, description="Send events to it.")
    base_url: Url = Field(description="URL of the gateway.", examples=["https://lab.example"])
    ingress_path: UrlPath = Field(
        description="Path of its relay endpoint for this gateway.",
        examples=["/ingest/peer/home-primary"],
    )
    secret_ref: Name | None = Field(
        default=None, description="Name of the token whose `key` signs the events."
    )
    secret: Name | None = Field(
        default=None, description="Signing key, instead of `secret_ref`.", repr=False
    )
    key_id: Name | None = Field(default=None, description="Key id to send with each event.")
    timeout: Span = span("10s", "Maximum time of a request.")
    allow: tuple[Name, ...] = Field(
        default=(), description="Event types that may be sent; default: all."
    )

    @property
    def url(self) -> str:
        """The URL to which its events are sent."""
        return self.base_url.rstrip("/") + self.ingress_path


class PeerBaggageSettings(Section):
    allow: tuple[Name, ...] = Field(default=(), description="Baggage keys that are accepted.")


class PeerSettings(_SignedSection):
    """A gateway that may relay events to this one."""

    name: Name = Field(description="Name of the peer, the last part of the path.")
    enabled: Flag = Field(default=True, description="Accept events from it.")
    secret_ref: Name | None = Field(
        default=None, description="Name of the token whose `key` it signs with."
    )
    secret: Name | None = Field(
        default=None, description="Signing key, instead of `secret_ref`.", repr=False
    )
    key_id: Name | None = Field(default=None, description="Key id that it must send.")
    accept: tuple[Name, ...] = Field(
        default=(), description="Event types that it may send; default: all."
    )
    baggage: PeerBaggageSettings = Field(
        default_factory=PeerBaggageSettings.model_construct,
        description="Baggage to accept from it.",
    )


class RemoteIngressSettings(Section):
    listen_path: UrlPath = Field(
        default="/ingest/peer", description="Path of the relay endpoint on the API listener."
    )
    max_body_size: Bytes = volume("1MB", "Maximum size of a request body.")
    allowed_clock_skew: Span = span(
        "5m", "Maximum difference between the clocks of peer and gateway."
    )
    require_key_id: Flag = Field(default=False, description="Reject requests without a key id.")
    peers: tuple[PeerSettings, ...] = Field(
        default=(), description="Gateways that may relay events to this one."
    )
