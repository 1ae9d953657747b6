#!/usr/bin/env python3
"""Converts GitHub webhooks to small events; the gateway verifies the signature. See README.md."""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from events import ACTIONS, BUILDERS, EVENT_NAMES, name_event, text
from protocol import ConfigError, Failure, Request, Response, serve
from settings import read_texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_REMEMBERED = 500


class Filter:
    """The configured filter of events, repositories and branches."""

    def __init__(self, config: dict[str, Any]) -> None:
        wanted = read_texts(config, "events") or list(BUILDERS)
        unknown = [name for name in wanted if name not in BUILDERS and name not in EVENT_NAMES]
        if unknown:
            known = ", ".join(dict.fromkeys((*BUILDERS, *EVENT_NAMES)))
            raise ConfigError(f"events: {unknown[0]!r} is not a known event; known: {known}")
        self._events = {
            f"{name}.{action}" if action else name
            for name in wanted
            for action in (ACTIONS.get(name, ("",)))
        }
        self._repositories = read_texts(config, "repositories")
        self._branches = read_texts(config, "branches")

    def find_reason_to_ignore(self, name: str, hook: dict[str, Any]) -> str | None:
        """Why the delivery is ignored; None if it is not."""
        from fnmatch import fnmatchcase

        if name not in self._events:
            return f"the event {name} is not configured"
        repository = text(hook, "repository", "full_name") or ""
        if self._repositories and not any(
            fnmatchcase(repository.lower(), wanted.lower()) for wanted in self._repositories
        ):
            return "the repository is not configured"
        branch = (text(hook, "ref") or "").removeprefix("refs/heads/")
        if (
            name == "push"
            and self._branches
            and not any(fnmatchcase(branch, wanted) for wanted in self._branches)
        ):
            return "the branch is not configured"
        return None


def handle(request: Request) -> Response:
    wanted = Filter(request.config)
    hook, event, delivery = _read_delivery(request)
    seen = request.state.get("seen")
    seen = [one for one in seen if isinstance(one, str)] if isinstance(seen, list) else []
    if delivery is not None and delivery in seen:
        return Response("skipped: this delivery was already handled")
    state = None if delivery is None else {"seen": [*seen, delivery][-MAX_REMEMBERED:]}
    name = name_event(event, hook)
    reason = wanted.find_reason_to_ignore(name, hook)
    if reason is not None:
        return Response(f"ignored: {reason}")
    payload = {
        "delivery_id": delivery,
        "repository": text(hook, "repository", "full_name"),
        "sender": text(hook, "sender", "login"),
        "url": text(hook, "repository", "html_url", longest=500),
        **BUILDERS[event](hook),
    }
    response = Response(payload["title"], state=state)
    key = None if delivery is None else f"github:{delivery}"
    response.emit(f"github.{name}", payload, key=key)
    return response


def _read_delivery(request: Request) -> tuple[dict[str, Any], str, str | None]:
    """Body, event and delivery id of the request."""
    webhook = request.context.get("webhook")
    webhook = webhook if isinstance(webhook, dict) else {}
    event = webhook.get("event")
    if not isinstance(event, str):
        raise Failure(
            "the request has no GitHub event; set `provider: github` on the webhook endpoint, "
            "and let it start this plugin",
            retry=False,
        )
    if not isinstance(request.payload, dict):
        raise Failure("the body of the delivery is not a JSON object", retry=False)
    delivery = webhook.get("delivery_id")
    return request.payload, event, delivery if isinstance(delivery, str) else None


def health(request: Request) -> Response:
    Filter(request.config)
    return Response("the configuration is valid")


if __name__ == "__main__":
    serve({"handle": handle, "health": health})
