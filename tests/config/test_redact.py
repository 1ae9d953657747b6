"""Which values are secrets, and how they are redacted."""

from __future__ import annotations

import json

import pytest

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
    loaded = config_dir.load("plugins: {p: {config: {auth: {pin: 999999999, key: 12345678}}}}")
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


VARIABLES = """
plugins:
  p:
    config:
      base_url: ${BASE_URL}
      pin: ${PIN}
      headers: {X-Custom: "id ${CUSTOM}"}
      folder: ${HOME}/inbox
      fallback: ${UNSET:-not-a-secret}
    public_config: PUBLIC
    schedules: [{every: 1h, payload: {city: "${CITY}"}}]
pipelines:
  - name: a
    on: e
    steps: [{uses: p, with: {headers: {X-Custom: "${OTHER}"}, city: "${CITY}"}}]
"""
VALUES = {
    "BASE_URL": "https://example.org",
    "PIN": "1234",
    "CUSTOM": "custom-value",
    "HOME": "/home/somebody",
    "OTHER": "other-value",
    "CITY": "Klagenfurt",
}


def test_every_variable_in_plugin_config_and_in_headers_is_a_secret(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(VARIABLES.replace("PUBLIC", "[]"), **VALUES)
    assert loaded.secrets == {"https://example.org", "custom-value", "other-value"}
    config = redact_settings(loaded.settings)["plugins"]["p"]["config"]
    assert config == {
        "base_url": REDACTED,
        "pin": REDACTED,
        "headers": {"X-Custom": REDACTED},
        "folder": "/home/somebody/inbox",
        "fallback": "not-a-secret",
    }


def test_public_config_keys_are_not_redacted(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(VARIABLES.replace("PUBLIC", "[base_url]"), **VALUES)
    settings = loaded.settings.mark_secrets({"p": {"base_url": True}})
    assert settings.secrets == {"custom-value", "other-value"}
    config = redact_settings(settings)["plugins"]["p"]["config"]
    assert (config["base_url"], config["pin"]) == ("https://example.org", REDACTED)


def test_manifest_marks_secret_and_public_keys(config_dir: ConfigDir) -> None:
    text = (
        "plugins: {p: {config: {device: 12345678, ids: [some-id, a-number], token_url: http://x}}}"
    )
    settings = config_dir.load(text).settings
    assert settings.secrets == {"http://x"}
    settings = settings.mark_secrets({"p": {"device": True, "ids": True, "token_url": False}})
    assert settings.secrets == {"12345678", "a-number"}
    assert redact_settings(settings)["plugins"]["p"]["config"] == {
        "device": REDACTED,
        "ids": [REDACTED, REDACTED],
        "token_url": "http://x",
    }
    purposes = [item["purpose"] for item in fingerprint_secrets(settings, b"k" * 32)]
    config = "plugins.p.config"
    assert purposes == [f"{config}.device", f"{config}.ids[0]", f"{config}.ids[1]"]


def test_secret_parameters_of_urls_are_secrets(config_dir: ConfigDir) -> None:
    url = "https://h/?q=weather-today&api_key=key-value&access_token=token-value&sig=abc%2Bdefgh"
    loaded = config_dir.load(f"plugins: {{p: {{config: {{url: '{url}'}}}}}}")
    assert loaded.secrets == {"key-value", "token-value", "abc%2Bdefgh", "abc+defgh"}
    assert redact_settings(loaded.settings)["plugins"]["p"]["config"]["url"] == (
        f"https://h/?q=weather-today&api_key={REDACTED}&access_token={REDACTED}&sig={REDACTED}"
    )


def test_credentials_after_the_scheme_are_a_secret(config_dir: ConfigDir) -> None:
    text = "plugins: {p: {config: {headers: {Authorization: Bearer fixed-value}}}}"
    assert config_dir.load(text).secrets == {"Bearer fixed-value", "fixed-value"}


def test_plain_word_of_a_variable_is_not_redacted_in_text(config_dir: ConfigDir) -> None:
    text = """\
plugins:
  p:
    config: {mode: "${MODE}", state: "${STATE}", password: "${WORD}", other: "${API_TOKEN}"}
"""
    values = {
        "MODE": "succeeded",
        "STATE": "Succeeded9",
        "WORD": "password",
        "API_TOKEN": "lettersonly",
    }
    loaded = config_dir.load(text, **values)
    assert loaded.secrets == {"Succeeded9", "password", "lettersonly"}
    config = redact_settings(loaded.settings)["plugins"]["p"]["config"]
    assert set(config.values()) == {REDACTED}


@pytest.mark.parametrize("id", ["0f8fad5b-d9cb-469f", "${DEAD_MAN_ID}"])
def test_url_of_the_dead_man_is_hidden(config_dir: ConfigDir, id: str) -> None:
    text = f'dead_man: {{url: "https://hc-ping.example/{id}", every: 5m}}\n'
    loaded = config_dir.load(text, DEAD_MAN_ID="0f8fad5b-d9cb-469f")
    assert loaded.settings.dead_man is not None
    assert loaded.settings.dead_man.url == "https://hc-ping.example/0f8fad5b-d9cb-469f"
    shown = redact_settings(loaded.settings)
    assert shown["dead_man"]["url"] == REDACTED
    assert "0f8fad5b" not in json.dumps(shown)
    assert "https://hc-ping.example/0f8fad5b-d9cb-469f" in loaded.secrets
