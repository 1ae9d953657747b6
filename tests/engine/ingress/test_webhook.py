"""Which requests a webhook endpoint accepts."""

from __future__ import annotations

import hashlib
import hmac

import pytest

from ductile.config.models.http import EndpointSettings
from ductile.core.delivery.signatures import VerifiedWebhook
from ductile.core.values.json_values import Failure
from ductile.engine.ingress.webhook import verify_webhook

BODY = b"{}"
ENDPOINT = EndpointSettings(path="/hook", plugin="echo", secret="a secret of the endpoint")


def signed(key: str) -> dict[str, list[str]]:
    value = hmac.new(key.encode(), BODY, hashlib.sha256).hexdigest()
    header = str(ENDPOINT.signature_header).lower()
    return {header: [f"sha256={value}"]}


def test_request_that_is_signed_with_the_secret_is_accepted() -> None:
    headers = signed("a secret of the endpoint")
    assert isinstance(verify_webhook(ENDPOINT, headers, BODY, 0.0), VerifiedWebhook)


@pytest.mark.parametrize("secret", [None, ""])
@pytest.mark.parametrize("provider", [None, "github"])
def test_endpoint_without_a_secret_accepts_nothing(
    secret: str | None, provider: str | None
) -> None:
    endpoint = ENDPOINT.model_copy(update={"secret": secret, "provider": provider})
    judged = verify_webhook(endpoint, signed(""), BODY, 0.0)
    assert isinstance(judged, Failure)
    assert "secret" in judged.reason
