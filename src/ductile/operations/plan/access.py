"""The webhook endpoints and tokens that a configuration opens, closes or changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ductile.config import Settings
from ductile.config.models.http import EndpointSettings, TokenSettings

T = TypeVar("T")


def compare_webhooks(old: Settings, new: Settings) -> list[dict[str, Any]]:
    """By path; the endpoints of a configuration without a `webhooks` section are closed."""
    before, after = _endpoints(old), _endpoints(new)

    def list_fields(was: EndpointSettings, will: EndpointSettings) -> list[str]:
        # The loader has replaced `secret_ref` by the secret that it names.
        names = EndpointSettings.model_fields
        return [name for name in names if getattr(was, name) != getattr(will, name)]

    return _compare(before, after, "path", list_fields)


def compare_tokens(old: Settings, new: Settings) -> list[dict[str, Any]]:
    """By name: tokens that open or close, and those whose key or scopes differ."""
    before = _by(old.all_tokens, lambda token: token.name)
    after = _by(new.all_tokens, lambda token: token.name)

    def list_fields(was: TokenSettings, will: TokenSettings) -> list[str]:
        fields = ["key"] if was.key != will.key else []
        if set(was.scopes) != set(will.scopes):
            fields.append("scopes")
        return fields

    found = _compare(before, after, "token", list_fields)
    for row in found:
        was, will = before.get(row["token"]), after.get(row["token"])
        row["scopes_before"] = None if was is None else sorted(was.scopes)
        row["scopes_after"] = None if will is None else sorted(will.scopes)
    return found


def _endpoints(settings: Settings) -> dict[str, EndpointSettings]:
    return _by(settings.webhooks.endpoints, lambda endpoint: endpoint.path)


def _by(items: Iterable[T], name_of: Callable[[T], str]) -> dict[str, T]:
    return {name_of(item): item for item in items}


def _compare(
    old: Mapping[str, T], new: Mapping[str, T], noun: str, list_fields: Callable[[T, T], list[str]]
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            change = "opens" if name in new else "closes"
            found.append({noun: name, "change": change, "fields": []})
        elif fields := list_fields(old[name], new[name]):
            found.append({noun: name, "change": "changed", "fields": fields})
    return found
