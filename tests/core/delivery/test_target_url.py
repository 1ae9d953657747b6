"""The part of a target that is shown."""

from __future__ import annotations

import pytest

from ductile.core.delivery.target_url import redact_target


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, None),
        ("internal://session/s-1", "internal://session/s-1"),
        ("https://hooks.slack.com/services/T0/B0/XyZ", "https://hooks.slack.com/[REDACTED]"),
        ("https://example.com:8443/?token=x", "https://example.com:8443/[REDACTED]"),
        ("https://user:password@example.com/", "https://example.com/[REDACTED]"),
        ("https://example.com/", "https://example.com/"),
        ("https://example.com", "https://example.com/"),
        ("https://example.com?key=x", "https://example.com/[REDACTED]"),
        ("garbage", "[REDACTED]"),
        ("http://[broken", "[REDACTED]"),
    ],
)
def test_only_the_host_is_shown(url: str | None, shown: str | None) -> None:
    assert redact_target(url) == shown
