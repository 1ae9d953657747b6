#!/usr/bin/env python3
"""Answers with what it got; told to, it is slow or fails."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import Answer, Failure, Misconfigured, Request, serve

LONGEST_SLEEP = 3600


def behave(request: Request) -> None:
    """Do what the config wants to be seen: take time, or fail."""
    sleep = request.config.get("sleep") or 0
    if isinstance(sleep, bool) or not isinstance(sleep, int | float) or sleep < 0:
        raise Misconfigured("sleep must be a number of seconds")
    if sleep:
        import time

        time.sleep(min(sleep, LONGEST_SLEEP))
    fail = request.config.get("fail")
    if fail:
        text = fail if isinstance(fail, str) else "told to fail"
        raise Failure(text, retry=request.config.get("retry") is not False)


def message_of(request: Request) -> object:
    own = request.payload.get("message") if isinstance(request.payload, dict) else None
    return request.config.get("message", "hello") if own is None else own


def poll(request: Request) -> Answer:
    behave(request)
    message = message_of(request)
    answer = Answer(message)
    answer.emit("echo.done", {"message": message, "payload": request.payload})
    return answer


def handle(request: Request) -> Answer:
    behave(request)
    got = {"type": request.event.get("type"), "payload": request.payload}
    return Answer({"message": message_of(request), **got})


def health(_request: Request) -> Answer:
    return Answer("well")


if __name__ == "__main__":
    serve({"poll": poll, "handle": handle, "health": health})
