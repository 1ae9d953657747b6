"""The standard variables of OpenTelemetry that turn tracing on."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import unquote

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.trace import Sampler

_PREFIX = "OTEL_EXPORTER_OTLP"
DEFAULT_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class TracingSettings:
    """Where spans are sent, and which."""

    url: str
    service: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """They often contain a key of the collector."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Of the resource, such as `deployment.environment`."""
    sampler: Sampler = field(default_factory=Sampler)
    timeout: float = DEFAULT_TIMEOUT


def read_tracing(environ: Mapping[str, str]) -> TracingSettings | None:
    """The settings; None if no endpoint is set, or if tracing is turned off or cannot work."""
    is_off = environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none" or find_flaw(environ):
        return None
    url = environ.get(f"{_PREFIX}_TRACES_ENDPOINT")
    if not url and (base := environ.get(f"{_PREFIX}_ENDPOINT")):
        url = f"{base.rstrip('/')}/v1/traces"
    if not url:
        return None
    timeout = _number(_specific(environ, "TIMEOUT"), DEFAULT_TIMEOUT * 1000) / 1000
    attributes = _pairs(environ.get("OTEL_RESOURCE_ATTRIBUTES", ""))
    service = attributes.pop("service.name", "ductile")
    return TracingSettings(
        url=url,
        service=environ.get("OTEL_SERVICE_NAME") or service,
        headers=_pairs(_specific(environ, "HEADERS")),
        attributes=attributes,
        sampler=_read_sampler(environ),
        timeout=min(max(timeout, 0.1), 60.0),
    )


def find_flaw(environ: Mapping[str, str]) -> str | None:
    """Why spans cannot be sent as the variables demand; None if they can, or if none are set."""
    protocol = _specific(environ, "PROTOCOL")
    if protocol not in ("", "http/json", "http/protobuf"):
        return f"{_PREFIX}_PROTOCOL={protocol} is not supported; use http/json (port 4318)"
    return None


def _read_sampler(environ: Mapping[str, str]) -> Sampler:
    name = environ.get("OTEL_TRACES_SAMPLER") or "parentbased_always_on"
    kind = name.removeprefix("parentbased_")
    ratio = {"always_on": 1.0, "always_off": 0.0}.get(kind)
    if ratio is None:
        ratio = _number(environ.get("OTEL_TRACES_SAMPLER_ARG", ""), 1.0)
    return Sampler(min(max(ratio, 0.0), 1.0), follows_parent=kind != name)


def _specific(environ: Mapping[str, str], name: str) -> str:
    """A variable for traces, or the one for all signals."""
    return environ.get(f"{_PREFIX}_TRACES_{name}") or environ.get(f"{_PREFIX}_{name}") or ""


def _pairs(text: str) -> dict[str, str]:
    """`a=b,c=d`, with percent encoding."""
    found = {}
    for item in text.split(","):
        key, separator, value = item.partition("=")
        if separator and key.strip():
            found[key.strip()] = unquote(value.strip())
    return found


def _number(text: str, default: float) -> float:
    with contextlib.suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) else default
    return default
