#!/usr/bin/env python3
"""Turns GitHub's webhooks into small events. The gateway has verified the signature."""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from events import ACTIONS, KINDS, TELLERS, kind, text
from protocol import Answer, Failure, Misconfigured, Request, serve
from quantities import texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REMEMBERED = 500


class Filter:
    """What the config wants to hear of."""

    def __init__(self, config: dict[str, Any]) -> None:
        wanted = texts(config, "events") or list(TELLERS)
        unknown = [name for name in wanted if name not in TELLERS and name not in KINDS]
        if unknown:
            known = ", ".join(dict.fromkeys((*TELLERS, *KINDS)))
            raise Misconfigured(f"events: {unknown[0]!r} is not known; known are: {known}")
        self._kinds = {
            f"{name}.{action}" if action else name
            for name in wanted
            for action in (ACTIONS.get(name, ("",)))
        }
        self._repositories = texts(config, "repositories")
        self._branches = texts(config, "branches")

    def refuses(self, name: str, hook: dict[str, Any]) -> str | None:
        """Why this is not told, if so."""
        from fnmatch import fnmatchcase

        if name not in self._kinds:
            return f"{name} is not among the events"
        repository = text(hook, "repository", "full_name") or ""
        if self._repositories and not any(
            fnmatchcase(repository.lower(), wanted.lower()) for wanted in self._repositories
        ):
            return "the repository is not among the repositories"
        branch = (text(hook, "ref") or "").removeprefix("refs/heads/")
        if (
            name == "push"
            and self._branches
            and not any(fnmatchcase(branch, wanted) for wanted in self._branches)
        ):
            return "the branch is not among the branches"
        return None


def handle(request: Request) -> Answer:
    wanted = Filter(request.config)
    hook, event, delivery = _delivery(request)
    seen = request.state.get("seen")
    seen = [one for one in seen if isinstance(one, str)] if isinstance(seen, list) else []
    if delivery is not None and delivery in seen:
        return Answer("this delivery was handled already")
    state = None if delivery is None else {"seen": [*seen, delivery][-REMEMBERED:]}
    name = kind(event, hook)
    reason = wanted.refuses(name, hook)
    if reason is not None:
        return Answer(f"ignored: {reason}")
    payload = {
        "delivery_id": delivery,
        "repository": text(hook, "repository", "full_name"),
        "sender": text(hook, "sender", "login"),
        "url": text(hook, "repository", "html_url", longest=500),
        **TELLERS[event](hook),
    }
    answer = Answer(payload["title"], state=state)
    key = None if delivery is None else f"github:{delivery}"
    answer.emit(f"github.{name}", payload, key=key)
    return answer


def _delivery(request: Request) -> tuple[dict[str, Any], str, str | None]:
    """Body, event and delivery id, as the endpoint told them."""
    told = request.context.get("webhook")
    told = told if isinstance(told, dict) else {}
    event = told.get("event")
    if not isinstance(event, str):
        raise Failure(
            "the delivery does not say which event it is; "
            "give the endpoint `provider: github`, and start this plugin by it",
            retry=False,
        )
    if not isinstance(request.payload, dict):
        raise Failure("the delivery is no JSON object", retry=False)
    delivery = told.get("delivery_id")
    return request.payload, event, delivery if isinstance(delivery, str) else None


def health(request: Request) -> Answer:
    Filter(request.config)
    return Answer("the configuration is good")


if __name__ == "__main__":
    serve({"handle": handle, "health": health})
