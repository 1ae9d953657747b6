#!/usr/bin/env python3
"""Returns its input; by configuration it is slow or fails. See README.md."""

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import ConfigError, Failure, Request, Response, serve

MAX_SLEEP = 3600


def behave(request: Request) -> None:
    """Sleep or fail as configured."""
    sleep = request.config.get("sleep") or 0
    if isinstance(sleep, bool) or not isinstance(sleep, int | float) or sleep < 0:
        raise ConfigError("sleep must be a number of seconds")
    if sleep:
        import time

        time.sleep(min(sleep, MAX_SLEEP))
    fail = request.config.get("fail")
    if fail:
        text = fail if isinstance(fail, str) else "configured to fail"
        raise Failure(text, retry=request.config.get("retry") is not False)


def get_message(request: Request) -> object:
    own = request.payload.get("message") if isinstance(request.payload, dict) else None
    return request.config.get("message", "hello") if own is None else own


def poll(request: Request) -> Response:
    behave(request)
    message = get_message(request)
    response = Response(message)
    response.emit("echo.done", {"message": message, "payload": request.payload})
    return response


def handle(request: Request) -> Response:
    behave(request)
    got = {"type": request.event.get("type"), "payload": request.payload}
    return Response({"message": get_message(request), **got})


def health(_request: Request) -> Response:
    return Response("ok")


if __name__ == "__main__":
    serve({"poll": poll, "handle": handle, "health": health})
