"""What a webhook endpoint would pass to a plugin; no signature is verified, nothing is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.config import Settings
from ductile.config.models.http import EndpointSettings
from ductile.core.delivery.payload import parse_payload
from ductile.core.delivery.signatures import PLAIN, PROVIDERS, Headers, Scheme, find_single
from ductile.core.jobs.commands import HANDLE
from ductile.core.values.suggest import did_you_mean
from ductile.engine.ingress.webhook import describe_request, find_delivery_id, find_scheme
from ductile.errors import UsageError
from ductile.model import Json

FIELDS = ("name", "provider", "headers", "body", "event", "delivery_id")


@dataclass(frozen=True, slots=True)
class WebhookInput:
    """The payload of the job, and its context."""

    payload: Json
    context: Mapping[str, Json]


def read_webhook(settings: Settings, plugin: str, command: str, given: Any) -> WebhookInput:
    """The input of a plugin for a described request; raises `UsageError` for a wrong description.

    The endpoint is the one with this `name`, by default the only one that starts the plugin. It
    need not be configured. `event` and `delivery_id` replace what headers and body say.
    """
    if not isinstance(given, dict):
        raise UsageError("a webhook request must be an object such as {headers, body}")
    for key in given:
        if key not in FIELDS:
            hint = did_you_mean(key, FIELDS) or f"; it has: {', '.join(FIELDS)}"
            raise UsageError(f"a webhook request has no field {key!r}{hint}")
    endpoint = _find_endpoint(settings, plugin, _text(given, "name"))
    name = _text(given, "name") or (endpoint.event_name if endpoint else None)
    if name is None:
        raise UsageError(
            f"the webhook request needs a name: not exactly one endpoint starts plugin {plugin}"
        )
    scheme, headers = _find_scheme(endpoint, _text(given, "provider")), _read_headers(given)
    body = _read_body(given.get("body"), headers)
    event = _text(given, "event") or find_single(headers, scheme.event_header)
    id = _text(given, "delivery_id") or find_single(headers, scheme.id_header)
    context = describe_request(name, event, find_delivery_id(scheme, id, body))
    payload: Json = body
    if command == HANDLE:
        payload = {"type": f"webhook.{name}", "source": name, "payload": body}
    return WebhookInput(payload, context)


def _find_endpoint(settings: Settings, plugin: str, name: str | None) -> EndpointSettings | None:
    found = [
        endpoint
        for endpoint in settings.webhooks.endpoints
        if (endpoint.plugin == plugin if name is None else endpoint.event_name == name)
    ]
    return found[0] if len(found) == 1 else None


def _find_scheme(endpoint: EndpointSettings | None, provider: str | None) -> Scheme:
    if provider is None:
        return PLAIN if endpoint is None else find_scheme(endpoint)
    if provider not in PROVIDERS:
        hint = did_you_mean(provider, PROVIDERS) or f"; known: {', '.join(PROVIDERS)}"
        raise UsageError(f"unknown webhook provider {provider!r}{hint}")
    return PROVIDERS[provider]


def _text(given: Mapping[str, Any], key: str) -> str | None:
    value = given.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key} of a webhook request must be a non-empty text")
    return value


def _read_headers(given: Mapping[str, Any]) -> Headers:
    headers = given.get("headers")
    headers = {} if headers is None else headers
    if not isinstance(headers, dict) or not all(isinstance(v, str) for v in headers.values()):
        raise UsageError("headers of a webhook request must be an object of texts")
    return {name.lower(): [value] for name, value in headers.items()}


def _read_body(body: Json, headers: Headers) -> Json:
    """A text is the raw body, parsed as an endpoint parses it; other values are its JSON."""
    if body is None:
        return {}
    raw = body.encode() if isinstance(body, str) else orjson.dumps(body)
    return parse_payload(raw, headers.get("content-type", [""])[0])
