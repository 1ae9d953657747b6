"""Secrets: which values are known as such, and what is shown in their place."""

from __future__ import annotations

import json

from ductile.config import show
from ductile.config.redact import fingerprints
from ductile.core.values.redact import REDACTED
from tests.config.conftest import Home

TEXT = """
state: {url: "postgresql://ductile:${DB_PASS}@db/ductile"}
plugins:
  p:
    config:
      client_id: public-client
      client_secret: ${CLIENT_SECRET}
      nested: {api_keys: [first-key-value, short], max: 5}
      header: "Bearer ${GITHUB_TOKEN}"
    timeouts: {auth: 1h30m30s500ms}
api:
  auth: {tokens: [{token: ${API_TOKEN}, scopes: ["plugin:rw"]}]}
webhooks: [{path: /h, plugin: p, secret: webhook-secret, secret_ref: shared-secret}]
tokens: [{name: shared-secret, key: token-key-value}]
pipelines:
  - name: a
    on: e
    steps:
      - uses: p
        with: {token: "{payload.token_value}", password: fixed-password}
        baggage: {auth.user: payload.user_name}
        on_events: {auth.failed: [error-notifier]}
"""
ENV = {
    "DB_PASS": "database-pass",
    "CLIENT_SECRET": "client-secret-value",
    "GITHUB_TOKEN": "ghp_0123456789",
    "API_TOKEN": "api-token-value",
}


def test_exactly_these_are_secrets(home: Home) -> None:
    assert home.load(TEXT, **ENV).secrets == {
        "database-pass",
        "client-secret-value",
        "first-key-value",
        "ghp_0123456789",
        "api-token-value",
        "webhook-secret",
        "token-key-value",
        "fixed-password",
    }


QUERY = "postgresql://me:@/db?host=/run&password=Leaky%21Passw0rd&sslpassword=other-one"


def test_passwords_in_the_query_of_a_url_are_secrets_as_written_and_as_meant(home: Home) -> None:
    loaded = home.load(f"state: {{url: '{QUERY}'}}")
    assert loaded.secrets == {"Leaky%21Passw0rd", "Leaky!Passw0rd", "other-one"}


def test_nor_are_they_shown_however_short(home: Home) -> None:
    shown = show(home.load(f"state: {{url: '{QUERY}&password=short'}}").settings)
    assert shown["state"]["url"] == (
        f"postgresql://me:@/db?host=/run&password={REDACTED}&sslpassword={REDACTED}"
        f"&password={REDACTED}"
    )


def test_a_url_with_a_password_in_its_query_has_a_fingerprint(home: Home) -> None:
    settings = home.load("state: {url: 'postgresql://db/d?password=short'}").settings
    assert [item["purpose"] for item in fingerprints(settings, b"k" * 32)] == ["state.url"]


def test_an_encoded_password_before_the_host_is_a_secret_as_meant_too(home: Home) -> None:
    loaded = home.load("state: {url: 'postgresql://me:Leaky%21Passw0rd@db/d'}")
    assert loaded.secrets == {"Leaky%21Passw0rd", "Leaky!Passw0rd"}


def test_a_variable_in_a_longer_secret_counts_by_itself_too(home: Home) -> None:
    loaded = home.load("plugins: {p: {config: {auth: 'Basic ${WHO}'}}}", WHO="user:pass")
    assert loaded.secrets == {"Basic user:pass", "user:pass"}


def test_none_of_them_is_shown(home: Home) -> None:
    loaded = home.load(TEXT, **ENV)
    shown = json.dumps(show(loaded.settings))
    assert not [secret for secret in loaded.secrets if secret in shown]


def test_what_is_no_secret_is_shown(home: Home) -> None:
    shown = show(home.load(TEXT, **ENV).settings)
    assert shown["plugins"]["p"]["config"]["client_id"] == "public-client"
    assert shown["plugins"]["p"]["config"]["nested"] == {"api_keys": [REDACTED] * 2, "max": 5}
    assert shown["webhooks"]["endpoints"][0]["secret_ref"] == "shared-secret"
    assert shown["api"]["auth"]["tokens"][0]["scopes"] == ["plugin:rw"]
    assert shown["state"]["url"] == f"postgresql://ductile:{REDACTED}@db/ductile"
    assert shown["pipelines"][0]["steps"][0]["uses"] == "p"


NESTED = """
plugins:
  auth-proxy:
    parallelism: 3
    config:
      auth: {user: joe, n: 5, again: [{name: somebody-else, since: 20260208101112}]}
      user: jane
"""


def test_all_below_a_secret_name_in_a_plugins_config_is_hidden(home: Home) -> None:
    shown = show(home.load(NESTED).settings)["plugins"]["auth-proxy"]
    assert shown["parallelism"] == 3
    again = [{"name": REDACTED, "since": REDACTED}]
    assert shown["config"] == {
        "auth": {"user": REDACTED, "n": REDACTED, "again": again},
        "user": "jane",
    }


def test_text_below_a_secret_name_is_a_secret_a_number_is_none(home: Home) -> None:
    assert home.load(NESTED).secrets == {"somebody-else"}


def test_a_number_that_itself_has_a_secret_name_is_a_secret(home: Home) -> None:
    loaded = home.load("plugins: {p: {config: {auth: {pin: ${PIN}, key: 12345678}}}}", PIN="9" * 9)
    assert loaded.secrets == {"12345678"}


def test_what_is_hidden_below_a_secret_name_has_a_fingerprint(home: Home) -> None:
    prints = fingerprints(home.load(NESTED).settings, b"k" * 32)
    assert [item["purpose"] for item in prints] == [
        "plugins.auth-proxy.config.auth.user",
        "plugins.auth-proxy.config.auth.n",
        "plugins.auth-proxy.config.auth.again[0].name",
        "plugins.auth-proxy.config.auth.again[0].since",
    ]


def test_fingerprints_name_the_secret_and_hide_it(home: Home) -> None:
    settings = home.load(TEXT, **ENV).settings
    prints = {item["purpose"]: item["fingerprint"] for item in fingerprints(settings, b"k" * 32)}
    assert "plugins.p.config.client_secret" in prints
    assert "api.auth.tokens[0].token" in prints
    assert prints != {i["purpose"]: i["fingerprint"] for i in fingerprints(settings, b"x" * 32)}
    assert all(len(value) == 64 for value in prints.values())


def test_a_settings_repr_tells_no_secret(home: Home) -> None:
    loaded = home.load(TEXT, **ENV)
    text = repr(loaded.settings)
    told = [secret for secret in loaded.secrets - {"fixed-password"} if secret in text]
    assert told == []
