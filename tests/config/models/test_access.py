"""Tokens, scopes, webhooks and relays: who may do what, and who signs with which key."""

from __future__ import annotations

import pytest
from blake3 import blake3

from ductile.config import Loaded
from ductile.errors import Problem, Severity
from tests.config.conftest import Home, only

SCOPES = '{"scopes": ["read:jobs", "read:events", "github-handler:rw", "withings:ro"]}'
HASH = blake3(SCOPES.encode()).hexdigest()


def sealed(home: Home, files: dict[str, str], **env: str) -> Loaded:
    home.write(files)
    home.lock()
    return home.load(**env)


def refused(home: Home, files: dict[str, str]) -> Problem:
    home.write(files)
    home.lock()
    return only(home.refused())


def with_token(token: str, scopes: str = SCOPES, config: str = "") -> dict[str, str]:
    return {
        "config.yaml": f"include: [tokens.yaml]\n{config}",
        "tokens.yaml": f"tokens: [{{name: t, key: k, {token}}}]",
        "scopes/t.json": scopes,
    }


class TestApi:
    def test_enabled_without_any_token_it_is_refused(self, home: Home) -> None:
        problem = only(home.refused("api: {enabled: true}"))
        assert "without any token" in problem.message
        assert problem.path == ("api", "enabled")
        assert "api.auth.tokens" in (problem.allowed or "")
        assert "`ductile token create`" in (problem.allowed or "")

    def test_a_token_of_its_own_is_enough(self, home: Home) -> None:
        text = 'api: {enabled: true, auth: {tokens: [{token: ${T}, scopes: ["*"]}]}}'
        token = home.load(text, T="secret-token").settings.all_tokens[0]
        assert (token.name, token.key, token.scopes) == (
            "api.auth.tokens[0]",
            "secret-token",
            ("*",),
        )

    def test_a_token_of_tokens_yaml_is_enough(self, home: Home) -> None:
        files = with_token("scopes_file: scopes/t.json", config="api: {enabled: true}")
        assert [token.name for token in sealed(home, files).settings.all_tokens] == ["t"]

    def test_its_own_tokens_come_first(self, home: Home) -> None:
        files = with_token(
            "scopes: [jobs:ro]", config="api: {auth: {tokens: [{token: a, name: me}]}}"
        )
        assert [token.name for token in sealed(home, files).settings.all_tokens] == ["me", "t"]

    def test_an_unset_token_is_no_token(self, home: Home) -> None:
        problem = only(home.refused("api: {enabled: true, auth: {tokens: [{token: ${T}}]}}"))
        assert "T is not set" in problem.message

    def test_an_empty_token_is_no_token(self, home: Home) -> None:
        text = "api: {enabled: true, auth: {tokens: [{token: ${T}}]}}"
        assert "missing key 'token'" in only(home.refused(text, T="")).message


TWO = "tokens: [{{name: a, key: kkkkkkkk, scopes: [{}]}}, {{name: b, key: kkkkkkkk, scopes: [{}]}}]"


class TestOneKeyTwice:
    def test_the_scopes_of_the_second_do_not_count_which_is_told(self, home: Home) -> None:
        problem = only(list(home.load(TWO.format("jobs:ro", "'*'")).warnings))
        assert problem.message == "the same as of a, whose scopes alone count"
        assert (problem.path, problem.severity) == (("tokens", 1, "key"), Severity.WARNING)
        assert "kkkkkkkk" not in str(problem)

    def test_the_apis_own_come_first(self, home: Home) -> None:
        inline = "api: {auth: {tokens: [{token: kkkkkkkk, scopes: ['*'], name: me}]}}\n"
        text = inline + "tokens: [{name: a, key: kkkkkkkk, scopes: [jobs:ro]}]"
        problem = only(list(home.load(text).warnings))
        assert "the same as of me" in problem.message
        assert problem.path == ("tokens", 0, "key")

    @pytest.mark.parametrize(
        ("one", "other"), [("jobs:ro", "read:jobs"), ("jobs:rw", "'jobs:rw', 'jobs:ro'")]
    )
    def test_where_both_may_do_the_same_there_is_nothing_to_tell(
        self, home: Home, one: str, other: str
    ) -> None:
        assert list(home.load(TWO.format(one, other)).warnings) == []


class TestScopes:
    def test_they_come_from_the_file(self, home: Home) -> None:
        token = sealed(home, with_token("scopes_file: scopes/t.json")).settings.tokens[0]
        assert token.scopes == ("jobs:ro", "events:ro", "github-handler:rw", "withings:ro")

    def test_a_bare_list_will_do(self, home: Home) -> None:
        files = with_token("scopes_file: scopes/t.json", '["*"]')
        assert sealed(home, files).settings.tokens[0].scopes == ("*",)

    def test_a_matching_hash_is_fine(self, home: Home) -> None:
        files = with_token(f"scopes_file: scopes/t.json, scopes_hash: 'blake3:{HASH}'")
        assert len(sealed(home, files).settings.tokens[0].scopes) == 4

    @pytest.mark.parametrize("file", ["scopes/t.json", "scopes/gone.json"])
    def test_a_wrong_hash_leaves_the_token_without_scopes(self, home: Home, file: str) -> None:
        files = with_token(f"scopes_file: {file}, scopes_hash: 'blake3:{'1' * 64}'")
        loaded = sealed(home, files)
        assert (loaded.settings.tokens[0].scopes, loaded.settings.tokens[0].key) == ((), "k")
        assert only(list(loaded.warnings)).severity is Severity.WARNING

    def test_a_wrong_hash_is_told_with_the_one_that_the_file_has(self, home: Home) -> None:
        files = with_token(f"scopes_file: scopes/t.json, scopes_hash: 'blake3:{'1' * 64}'")
        assert f"its hash is blake3:{HASH}" in only(list(sealed(home, files).warnings)).message

    def test_a_wrong_hash_refuses_in_strict_mode(self, home: Home) -> None:
        files = with_token(
            f"scopes_file: scopes/t.json, scopes_hash: {'1' * 64}",
            config="service: {strict_mode: true}",
        )
        assert "does not match its scopes_hash" in refused(home, files).message

    def test_a_missing_file_without_a_hash_refuses(self, home: Home) -> None:
        files = with_token("scopes_file: scopes/gone.json")
        assert "there is no file" in refused(home, files).message

    @pytest.mark.parametrize("scopes", ["not json", '{"scope": []}', "[" * 100_000])
    def test_a_file_of_a_wrong_form_refuses(self, home: Home, scopes: str) -> None:
        assert (
            "is no scope file"
            in refused(home, with_token("scopes_file: scopes/t.json", scopes)).message
        )

    def test_what_is_no_scope_allows_nothing(self, home: Home) -> None:
        files = with_token("scopes_file: scopes/t.json", '["jobs:r0", 5, "jobs:ro"]')
        loaded = sealed(home, files)
        assert loaded.settings.tokens[0].scopes == ("jobs:ro",)
        assert len(loaded.warnings) == 2

    @pytest.mark.parametrize("scope", ["a b:ro", "a\\u0007:ro", ":ro", "a:b:ro"])
    def test_no_plugin_is_named_by_what_cannot_be_shown_or_read(
        self, home: Home, scope: str
    ) -> None:
        loaded = sealed(home, with_token("scopes_file: scopes/t.json", f'["{scope}"]'))
        assert loaded.settings.tokens[0].scopes == ()
        assert "is no scope" in only(list(loaded.warnings)).message

    def test_variables_do_not_choose_scope_files(self, home: Home) -> None:
        home.write(with_token("scopes_file: ${F}"))
        problem = only(home.refused(seal=False, F="scopes/t.json"))
        assert "must not depend on variables" in problem.message

    def test_two_tokens_of_one_name_are_refused(self, home: Home) -> None:
        problem = only(home.refused("tokens: [{name: a, key: x}, {name: a, key: y}]"))
        assert "already taken" in problem.message


class TestWebhooks:
    def test_one_where_the_listener_tells_its_health_is_warned_of(self, home: Home) -> None:
        door = "{path: /healthz, plugin: echo, secret: a-secret}"
        problem = only(list(home.load(f"webhooks: {{endpoints: [{door}]}}").warnings))
        assert "no delivery arrives" in problem.message
        assert problem.severity is Severity.WARNING
        assert problem.path == ("webhooks", "endpoints", 0, "path")

    def test_a_secret_is_the_value(self, home: Home) -> None:
        loaded = home.load("webhooks: [{path: /h, plugin: p, secret: ${S}}]", S="s3cret-value")
        assert loaded.settings.webhooks.endpoints[0].secret == "s3cret-value"

    def test_a_reference_names_a_token(self, home: Home) -> None:
        files = {
            "config.yaml": "include: [tokens.yaml, hooks.yaml]",
            "hooks.yaml": "webhooks: [{path: /h, plugin: p, secret_ref: gh}]",
            "tokens.yaml": "tokens: [{name: gh, key: ${K}}]",
        }
        assert sealed(home, files, K="the-key").settings.webhooks.endpoints[0].secret == "the-key"

    def test_a_reference_into_nothing_names_the_nearest(self, home: Home) -> None:
        hooks = "webhooks: [{path: /h, plugin: p, secret_ref: githup}]"
        problem = only(home.refused(f"{hooks}\ntokens: [{{name: github, key: k}}]"))
        assert problem.nearest == "github"
        assert problem.path == ("webhooks", "endpoints", 0, "secret_ref")

    def test_without_either_it_is_refused(self, home: Home) -> None:
        problem = only(home.refused("webhooks: [{path: /h, plugin: p}]"))
        assert "needs secret or secret_ref" in problem.message

    def test_defaults(self, home: Home) -> None:
        endpoint = home.load(
            "webhooks: [{path: /hook/x/, plugin: p, secret: s}]"
        ).settings.webhooks.endpoints[0]
        assert (endpoint.max_body_size, endpoint.signature_header) == (
            1048576,
            "X-Hub-Signature-256",
        )
        assert endpoint.event_name == "x"

    def test_a_provider_brings_its_own_header(self, home: Home) -> None:
        text = "webhooks: [{path: /h, plugin: p, secret: s, provider: stripe}]"
        endpoint = home.load(text).settings.webhooks.endpoints[0]
        assert (endpoint.provider, endpoint.signature_header) == ("stripe", None)

    def test_two_endpoints_of_one_path_are_refused(self, home: Home) -> None:
        one = "{path: /h, plugin: p, secret: s}"
        assert "already taken" in only(home.refused(f"webhooks: [{one}, {one}]")).message


class TestRelay:
    TEXT = """
tokens: [{name: relay-lab-v1, key: shared}]
instances:
  - name: lab
    base_url: https://lab.example
    ingress_path: /ingest/peer/home-primary
    secret_ref: relay-lab-v1
    key_id: v1
    allow: [backup.ready]
remote_ingress:
  require_key_id: true
  allowed_clock_skew: 1m
  peers:
    - name: home-primary
      secret_ref: relay-lab-v1
      accept: [backup.ready]
      baggage: {allow: [trace_id]}
"""

    def test_both_sides_get_their_secret(self, home: Home) -> None:
        settings = home.load(self.TEXT).settings
        instance, peer = settings.instances[0], settings.remote_ingress.peers[0]
        assert (instance.secret, peer.secret) == ("shared", "shared")
        assert (instance.enabled, instance.timeout, peer.baggage.allow) == (True, 10, ("trace_id",))
        assert settings.remote_ingress.listen_path == "/ingest/peer"

    def test_a_disabled_one_needs_no_secret_yet(self, home: Home) -> None:
        one = "{name: a, enabled: false, base_url: http://h, ingress_path: /i, secret_ref: x}"
        text = f"instances: [{one}]"
        assert home.load(text).settings.instances[0].secret is None

    def test_an_unsigned_one_is_refused(self, home: Home) -> None:
        text = "instances: [{name: a, base_url: http://h, ingress_path: /i}]"
        assert "every relay is signed" in only(home.refused(text)).message

    @pytest.mark.parametrize("url", ["lab.example", "ftp://x", "https://", "https://h?x=1"])
    def test_an_instance_is_an_absolute_url(self, home: Home, url: str) -> None:
        text = f"instances: [{{name: a, base_url: '{url}', ingress_path: /i, secret: x}}]"
        assert "absolute URL" in only(home.refused(text)).message
