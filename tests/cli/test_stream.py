"""Server-sent events that the gateway should not have sent."""

from __future__ import annotations

from http.client import HTTPResponse
from typing import cast

import pytest

from ductile.cli.client import ApiError
from ductile.cli.stream import _parse


def test_event_that_is_not_json_is_an_error_with_a_message() -> None:
    lines = [b"id: 1\n", b"event: x\n", b'data: {"a":[REDACTED]}\n', b"\n"]
    with pytest.raises(ApiError, match="not JSON"):
        list(_parse(cast(HTTPResponse, lines)))
