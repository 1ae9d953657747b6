"""Which values are secrets, and how they are redacted."""

from __future__ import annotations

import json

from ductile.config import redact_settings
from ductile.config.redact import fingerprint_secrets
from ductile.core.values.redact import REDACTED
from tests.config.conftest import ConfigDir

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


def test_secrets_are_recognized(config_dir: ConfigDir) -> None:
    assert config_dir.load(TEXT, **ENV).secrets == {
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


def test_passwords_in_the_query_of_a_url_are_secrets(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(f"state: {{url: '{QUERY}'}}")
    assert loaded.secrets == {"Leaky%21Passw0rd", "Leaky!Passw0rd", "other-one"}


def test_passwords_of_urls_are_redacted_at_any_length(config_dir: ConfigDir) -> None:
    document = redact_settings(
        config_dir.load(f"state: {{url: '{QUERY}&password=short'}}").settings
    )
    assert document["state"]["url"] == (
        f"postgresql://me:@/db?host=/run&password={REDACTED}&sslpassword={REDACTED}"
        f"&password={REDACTED}"
    )


def test_url_with_a_password_in_its_query_has_a_fingerprint(config_dir: ConfigDir) -> None:
    settings = config_dir.load("state: {url: 'postgresql://db/d?password=short'}").settings
    assert [item["purpose"] for item in fingerprint_secrets(settings, b"k" * 32)] == ["state.url"]


def test_percent_encoded_password_is_a_secret_in_both_forms(config_dir: ConfigDir) -> None:
    loaded = config_dir.load("state: {url: 'postgresql://me:Leaky%21Passw0rd@db/d'}")
    assert loaded.secrets == {"Leaky%21Passw0rd", "Leaky!Passw0rd"}


def test_variable_within_a_secret_is_a_secret(config_dir: ConfigDir) -> None:
    loaded = config_dir.load("plugins: {p: {config: {auth: 'Basic ${WHO}'}}}", WHO="user:pass")
    assert loaded.secrets == {"Basic user:pass", "user:pass"}


def test_secrets_are_redacted(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(TEXT, **ENV)
    document = json.dumps(redact_settings(loaded.settings))
    assert not [secret for secret in loaded.secrets if secret in document]


def test_other_values_are_not_redacted(config_dir: ConfigDir) -> None:
    document = redact_settings(config_dir.load(TEXT, **ENV).settings)
    assert document["plugins"]["p"]["config"]["client_id"] == "public-client"
    assert document["plugins"]["p"]["config"]["nested"] == {"api_keys": [REDACTED] * 2, "max": 5}
    assert document["webhooks"]["endpoints"][0]["secret_ref"] == "shared-secret"
    assert document["api"]["auth"]["tokens"][0]["scopes"] == ["plugin:rw"]
    assert document["state"]["url"] == f"postgresql://ductile:{REDACTED}@db/ductile"
    assert document["pipelines"][0]["steps"][0]["uses"] == "p"


NESTED = """
plugins:
  auth-proxy:
    parallelism: 3
    config:
      auth: {user: joe, n: 5, again: [{name: somebody-else, since: 20260208101112}]}
      user: jane
"""


def test_everything_below_a_secret_key_of_plugin_config_is_redacted(config_dir: ConfigDir) -> None:
    document = redact_settings(config_dir.load(NESTED).settings)["plugins"]["auth-proxy"]
    assert document["parallelism"] == 3
    again = [{"name": REDACTED, "since": REDACTED}]
    assert document["config"] == {
        "auth": {"user": REDACTED, "n": REDACTED, "again": again},
        "user": "jane",
    }


def test_text_below_a_secret_key_is_a_secret_but_not_numbers(config_dir: ConfigDir) -> None:
    assert config_dir.load(NESTED).secrets == {"somebody-else"}


def test_number_with_a_secret_key_is_a_secret(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(
        "plugins: {p: {config: {auth: {pin: ${PIN}, key: 12345678}}}}", PIN="9" * 9
    )
    assert loaded.secrets == {"12345678"}


def test_redacted_values_have_fingerprints(config_dir: ConfigDir) -> None:
    prints = fingerprint_secrets(config_dir.load(NESTED).settings, b"k" * 32)
    assert [item["purpose"] for item in prints] == [
        "plugins.auth-proxy.config.auth.user",
        "plugins.auth-proxy.config.auth.n",
        "plugins.auth-proxy.config.auth.again[0].name",
        "plugins.auth-proxy.config.auth.again[0].since",
    ]


def test_fingerprints_depend_on_the_key(config_dir: ConfigDir) -> None:
    settings = config_dir.load(TEXT, **ENV).settings
    prints = {
        item["purpose"]: item["fingerprint"] for item in fingerprint_secrets(settings, b"k" * 32)
    }
    assert "plugins.p.config.client_secret" in prints
    assert "api.auth.tokens[0].token" in prints
    assert prints != {
        i["purpose"]: i["fingerprint"] for i in fingerprint_secrets(settings, b"x" * 32)
    }
    assert all(len(value) == 64 for value in prints.values())


def test_repr_of_settings_does_not_show_secrets(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(TEXT, **ENV)
    text = repr(loaded.settings)
    found = [secret for secret in loaded.secrets - {"fixed-password"} if secret in text]
    assert found == []
