"""Redaction of secrets in text and documents."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote, quote_plus

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.values.redact import (
    REDACTED,
    SHORTEST_PART,
    Redactor,
    hide_secret_keys,
    names_a_secret,
    names_a_secret_parameter,
)

CANARIES = [
    "hunter2hunter2",
    'with "quotes" and \\ backslash',
    "line one\nline two\ttabbed",
    "übergeheim€𝄞",
    "p@ss/w+rd?&=%20",
    "(regex|.*)+[a-z]{8}$^",
    "\x01\x1f control",
    "-----BEGIN KEY-----\nabc/def+ghi==\n-----END KEY-----\n",
]
SECRETS = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=40)


@pytest.mark.parametrize("secret", CANARIES)
@pytest.mark.parametrize(
    "spell",
    [
        pytest.param(str, id="plain"),
        pytest.param(json.dumps, id="json"),
        pytest.param(lambda s: json.dumps(s, ensure_ascii=False), id="json-utf8"),
        pytest.param(lambda s: orjson.dumps({"v": s}).decode(), id="orjson"),
        pytest.param(lambda s: f"https://h/?q={quote(s, safe='')}", id="url"),
        pytest.param(lambda s: f"https://h/{quote(s)}", id="url-path"),
        pytest.param(lambda s: f"q={quote_plus(s)}", id="form"),
        pytest.param(
            lambda s: re.sub("%..", lambda m: m[0].lower(), quote(s, safe="")), id="url-lower-case"
        ),
        pytest.param(lambda s: base64.b64encode(s.encode()).decode(), id="base64"),
        pytest.param(lambda s: base64.b64encode(f"u:{s}".encode()).decode(), id="basic-auth"),
        pytest.param(lambda s: base64.b64encode(f"me:{s}\n".encode()).decode(), id="basic-auth-3"),
        pytest.param(lambda s: base64.urlsafe_b64encode(s.encode()).decode(), id="base64-url"),
        pytest.param(lambda s: f"before{s}after{s}", id="twice"),
    ],
)
def test_secret_is_redacted_in_every_encoding(secret, spell):
    text = spell(secret)
    shown = Redactor([secret]).text(text)
    assert REDACTED in shown
    for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe="")):
        assert form not in shown
    encoded = base64.b64encode(secret.encode()).decode()
    assert encoded[:-4] not in shown


@given(st.lists(SECRETS, min_size=1, max_size=4), st.text(max_size=20), st.text(max_size=20))
def test_no_secret_remains_in_any_text(secrets, before, after):
    redactor = Redactor(secrets)
    for secret in secrets:
        shown = redactor.text(f"{before}{secret}{after}")
        assert secret not in shown.replace(REDACTED, "\uffff")


@given(st.lists(SECRETS, max_size=4), st.text())
def test_redaction_is_idempotent(secrets, text):
    redactor = Redactor([secret for secret in secrets if secret not in REDACTED])
    once = redactor.text(text)
    assert redactor.text(once) == once


def test_secret_with_an_escaped_slash_is_redacted():
    assert Redactor(["top/secret/path"]).text('{"a":"top\\/secret\\/path"}') == '{"a":"[REDACTED]"}'


@pytest.mark.parametrize("secret", CANARIES)
def test_truncated_secret_is_redacted(secret):
    redactor = Redactor([secret])
    for kept in range(SHORTEST_PART, len(secret)):
        shown = redactor.truncated_text(f"before {secret} between {secret[:kept]}")
        assert shown == f"before {REDACTED} between {REDACTED}"
    assert redactor.truncated_text(f"before {secret}") == f"before {REDACTED}"


def test_truncated_secret_before_a_replacement_character_is_redacted():
    raw = f"before {CANARIES[3]}".encode()
    for kept in range(len(raw) - len("€𝄞".encode()), len(raw)):
        shown = Redactor([CANARIES[3]]).truncated_text(raw[:kept].decode(errors="replace"))
        assert shown == f"before {REDACTED}"


def test_other_text_at_the_end_is_kept():
    redactor = Redactor(["hunter2hunter2"])
    assert redactor.truncated_text("an ordinary end") == "an ordinary end"
    assert redactor.truncated_text("of a hun") == "of a hun"
    assert redactor.truncated_text("") == ""
    assert Redactor().truncated_text("anything") == "anything"


def test_secret_with_surrogates_is_redacted():
    secret = b"caf\xe9-1234".decode(errors="surrogateescape")
    assert Redactor([secret]).text(f"x{secret}x") == f"x{REDACTED}x"


def test_longest_of_overlapping_secrets_is_redacted():
    assert Redactor(["password", "password-extended"]).text("password-extended") == REDACTED


@pytest.mark.parametrize("short", ["", "a", "1234567"])
def test_values_under_eight_characters_are_not_redacted(short):
    assert Redactor([short]).text(f"x{short}x") == f"x{short}x"


def test_value_of_eight_characters_is_redacted():
    assert Redactor(["12345678"]).text("12345678") == REDACTED


def test_text_without_secrets_is_unchanged():
    assert Redactor().text("anything") == "anything"
    document = {"a": [1, None]}
    assert Redactor().document(document) == document


def test_none_stays_none():
    assert Redactor(["12345678"]).optional_text(None) is None
    assert Redactor(["12345678"]).optional_text("12345678") == REDACTED


def test_document_is_redacted_in_keys_and_values():
    secret = CANARIES[0]
    document = {"a": [secret, {"b": f"x{secret}"}], secret: 1, "n": 5, "none": None, "t": True}
    assert Redactor([secret]).document(document) == {
        "a": [REDACTED, {"b": f"x{REDACTED}"}],
        REDACTED: 1,
        "n": 5,
        "none": None,
        "t": True,
    }


def test_numbers_of_a_document_are_not_redacted():
    assert Redactor(["1234567890"]).document({"pin": "1234567890"}) == {"pin": REDACTED}


@pytest.mark.parametrize(
    "key",
    [
        "secret",
        "client_secret",
        "clientSecret",
        "API_KEY",
        "api-key",
        "apiKey",
        "APIKey",
        "keys",
        "token",
        "access_tokens",
        "password",
        "db.password",
        "passwd",
        "credentials",
        "auth",
        "authToken",
        "x-auth",
        "AUTH",
        "Secrets",
        "Authorization",
        "Proxy-Authorization",
        "Cookie",
        "set_cookie",
        "apikey",
        "apiKeys",
        "accesstoken",
        "CLIENTSECRET",
        "passphrase",
        "pwd",
        "db_pwd",
        "pat",
        "GITHUB_PAT",
        "jwt",
        "bearer",
    ],
)
def test_keys_that_name_a_secret(key):
    assert names_a_secret(key)


@pytest.mark.parametrize(
    "key",
    [
        "dedupe_key",
        "key_id",
        "require_key_id",
        "secret_ref",
        "monkey",
        "author",
        "keyboard",
        "tokenizer",
        "passwordless",
        "path",
        "pattern",
        "authorized_by",
        "signature_header",
        "url",
        "",
        "123",
    ],
)
def test_keys_that_do_not_name_a_secret(key):
    assert not names_a_secret(key)


@pytest.mark.parametrize(
    ("name", "secret"),
    [("api_key", True), ("sig", True), ("X-Amz-Signature", True), ("q", False), ("page", False)],
)
def test_parameters_that_name_a_secret(name, secret):
    assert names_a_secret_parameter(name) is secret


def test_scalars_below_secret_keys_are_redacted():
    document = {
        "url": "https://h",
        "token": "t",
        "nested": [{"password": 5, "user": "u"}],
        "api_keys": ["a", "b"],
        "auth": {"user": "u", "secret": "s", "more": [{"n": 5}]},
        "empty_token": None,
    }
    assert hide_secret_keys(document) == {
        "url": "https://h",
        "token": REDACTED,
        "nested": [{"password": REDACTED, "user": "u"}],
        "api_keys": [REDACTED, REDACTED],
        "auth": {"user": REDACTED, "secret": REDACTED, "more": [{"n": REDACTED}]},
        "empty_token": None,
    }


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(st.sampled_from(["token", "a", "api_key", "b"]), inner)
        ),
    )
)
def test_hiding_keeps_the_structure(document):
    def check(before, after, secret):
        if isinstance(before, dict):
            assert before.keys() == after.keys()
            for key, value in before.items():
                check(value, after[key], secret or names_a_secret(key))
        elif isinstance(before, list):
            for one, other in zip(before, after, strict=True):
                check(one, other, secret)
        else:
            assert after == (REDACTED if secret and before is not None else before)

    check(document, hide_secret_keys(document), False)


@pytest.mark.parametrize(
    ("secret", "text", "shown"),
    [
        ("123456789", '{"chat_id":123456789}', {"chat_id": REDACTED}),
        ("123456789", '{"chat_id":-123456789,"n":1}', {"chat_id": REDACTED, "n": 1}),
        ("123456789", '["to 123456789", 123456789.0]', [f"to {REDACTED}", REDACTED]),
        ("nabcdefg", '{"a":"\\nabcdefg"}', {"a": "\nabcdefg"}),
        ("abcdefg\\", '{"a":"abcdefg\\"","b":1}', {"a": 'abcdefg"', "b": 1}),
        ('{"key":"value"}', '{"a":{"key":"value"}}', {"a": REDACTED}),
        ("hunter2hunter2", '{"hunter2hunter2":"x hunter2hunter2"}', {REDACTED: f"x {REDACTED}"}),
    ],
)
def test_redacted_json_is_json(secret: str, text: str, shown: object) -> None:
    assert json.loads(Redactor([secret]).json(text)) == shown


@given(SECRETS, st.recursive(st.none() | st.integers() | st.text(), st.lists))
def test_json_stays_json_and_shows_no_secret(secret: str, other: object) -> None:
    for encode in (json.dumps, lambda value: orjson.dumps(value).decode()):
        try:
            text = encode({"a": [secret, other, f"x{secret}y"], secret: 1})
        except TypeError:  # orjson has no integers of more than 64 bits
            continue
        assert secret not in json.dumps(json.loads(Redactor([secret]).json(text))["a"][0])


def test_text_that_is_not_json_is_redacted_too() -> None:
    redactor = Redactor(["hunter2hunter2"])
    assert "hunter2" not in redactor.json('"open hunter2hunter2')
    assert "hunter2" not in redactor.json('{"a": "hunter2hunter2" "')


TOKEN = "Ab0_-" * 8 + "xyz"


@pytest.mark.parametrize("slash", ["/", "\\/", "\\\\\\/", "%2F", "%2f", "%252F"])
def test_token_of_an_approval_link_is_hidden(slash):
    text = f'{{"said": "see {slash}approve{slash}{TOKEN}?a=b"}}'
    hidden = text.replace(TOKEN, REDACTED)
    for redactor in (Redactor(), Redactor(["hunter2hunter2"])):
        assert redactor.text(text) == redactor.json(text) == hidden
        assert redactor.document({"a": [text]}) == {"a": [hidden]}


@pytest.mark.parametrize(
    "secret",
    ["https://ductile.example/", "https://ductile.example/approve", f"/approve/{TOKEN}/and-more"],
)
def test_secret_next_to_an_approval_link_does_not_uncover_either(secret):
    shown = Redactor([secret]).text(f"https://ductile.example/approve/{TOKEN}/and-more")
    assert TOKEN not in shown
    assert secret not in shown
    assert ("and-more" in shown) is ("and-more" not in secret)


def test_end_of_a_truncated_text_hides_part_of_a_token():
    for length in range(1, 43):
        assert Redactor().truncated_text(f"/approve/{TOKEN[:length]}") == f"/approve/{REDACTED}"
    assert Redactor().truncated_text("we approve/reject it") == "we approve/reject it"
    assert Redactor().text("we approve/reject it") == "we approve/reject it"
