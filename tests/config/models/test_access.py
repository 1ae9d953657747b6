"""Settings of tokens, scopes, webhooks and relays."""

from __future__ import annotations

import pytest
from blake3 import blake3

from ductile.config import Loaded
from ductile.errors import Problem, Severity
from tests.config.conftest import ConfigDir, only

SCOPES = '{"scopes": ["read:jobs", "read:events", "github-handler:rw", "withings:ro"]}'
KEY = "key-of-a-token-0123"
SHORT = "whsec_AAAAAAAAAAAA"
HASH = blake3(SCOPES.encode()).hexdigest()


def sealed(config_dir: ConfigDir, files: dict[str, str], **env: str) -> Loaded:
    config_dir.write(files)
    config_dir.lock()
    return config_dir.load(**env)


def load_errors(config_dir: ConfigDir, files: dict[str, str]) -> Problem:
    config_dir.write(files)
    config_dir.lock()
    return only(config_dir.load_errors())


def with_token(token: str, scopes: str = SCOPES, config: str = "") -> dict[str, str]:
    return {
        "config.yaml": f"include: [tokens.yaml]\n{config}",
        "tokens.yaml": f"tokens: [{{name: t, key: {KEY}, {token}}}]",
        "scopes/t.json": scopes,
    }


class TestApi:
    @pytest.mark.parametrize(
        ("more", "address"),
        [
            ("public_url: https://home.example/", "https://home.example/ui/"),
            ("public_url: https://home.example, ui: false", None),
            ("ui: true", None),
        ],
    )
    def test_dashboard_has_the_address_for_people(
        self, config_dir: ConfigDir, more: str, address: str | None
    ) -> None:
        settings = sealed(config_dir, {"config.yaml": f"api: {{{more}}}\n"}).settings
        assert settings.api.dashboard == address

    def test_enabled_api_without_a_token_is_rejected(self, config_dir: ConfigDir) -> None:
        problem = only(config_dir.load_errors("api: {enabled: true}"))
        assert "there is no token" in problem.message
        assert problem.path == ("api", "enabled")
        assert "api.auth.tokens" in (problem.allowed or "")
        assert "`ductile token create`" in (problem.allowed or "")

    def test_inline_token_is_sufficient(self, config_dir: ConfigDir) -> None:
        text = 'api: {enabled: true, auth: {tokens: [{token: ${T}, scopes: ["*"]}]}}'
        token = config_dir.load(text, T="secret-token").settings.all_tokens[0]
        assert (token.name, token.key, token.scopes) == (
            "api.auth.tokens[0]",
            "secret-token",
            ("*",),
        )

    def test_token_of_tokens_yaml_is_sufficient(self, config_dir: ConfigDir) -> None:
        files = with_token("scopes_file: scopes/t.json", config="api: {enabled: true}")
        assert [token.name for token in sealed(config_dir, files).settings.all_tokens] == ["t"]

    def test_inline_tokens_precede_others(self, config_dir: ConfigDir) -> None:
        files = with_token(
            "scopes: [jobs:ro]", config="api: {auth: {tokens: [{token: a, name: me}]}}"
        )
        assert [token.name for token in sealed(config_dir, files).settings.all_tokens] == [
            "me",
            "t",
        ]

    def test_token_with_an_unset_variable_is_rejected(self, config_dir: ConfigDir) -> None:
        problem = only(
            config_dir.load_errors("api: {enabled: true, auth: {tokens: [{token: ${T}}]}}")
        )
        assert "T is not set" in problem.message

    def test_empty_token_is_rejected(self, config_dir: ConfigDir) -> None:
        text = "api: {enabled: true, auth: {tokens: [{token: ${T}}]}}"
        assert "missing key 'token'" in only(config_dir.load_errors(text, T="")).message


TWO = (
    "tokens: [{{name: a, key: kkkkkkkkkkkkkkkk, scopes: [{}]}},"
    " {{name: b, key: kkkkkkkkkkkkkkkk, scopes: [{}]}}]"
)


class TestEqualKeys:
    def test_second_token_with_the_same_key_causes_a_warning(self, config_dir: ConfigDir) -> None:
        problem = only(list(config_dir.load(TWO.format("jobs:ro", "'*'")).warnings))
        assert problem.message == "is the same key as that of 'a', whose scopes apply"
        assert (problem.path, problem.severity) == (("tokens", 1, "key"), Severity.WARNING)
        assert "kkkkkkkkkkkkkkkk" not in str(problem)

    def test_inline_token_has_precedence(self, config_dir: ConfigDir) -> None:
        inline = "api: {auth: {tokens: [{token: kkkkkkkkkkkkkkkk, scopes: ['*'], name: me}]}}\n"
        text = inline + "tokens: [{name: a, key: kkkkkkkkkkkkkkkk, scopes: [jobs:ro]}]"
        problem = only(list(config_dir.load(text).warnings))
        assert "is the same key as that of 'me'" in problem.message
        assert problem.path == ("tokens", 0, "key")

    @pytest.mark.parametrize(
        ("one", "other"), [("jobs:ro", "read:jobs"), ("jobs:rw", "'jobs:rw', 'jobs:ro'")]
    )
    def test_same_key_with_equal_scopes_causes_no_warning(
        self, config_dir: ConfigDir, one: str, other: str
    ) -> None:
        assert list(config_dir.load(TWO.format(one, other)).warnings) == []


class TestWithoutScopes:
    def test_inline_token_without_scopes_causes_a_warning(self, config_dir: ConfigDir) -> None:
        text = f"api: {{auth: {{tokens: [{{token: {KEY}}}]}}}}"
        problem = only(list(config_dir.load(text).warnings))
        assert "has no scopes, so requests with it are refused" in problem.message
        assert problem.path == ("api", "auth", "tokens", 0, "token")

    def test_secret_that_is_also_a_token_causes_a_warning(self, config_dir: ConfigDir) -> None:
        text = f"tokens: [{{name: hook, key: {KEY}}}, {{name: ci, key: {KEY}, scopes: ['*']}}]"
        problem = only(list(config_dir.load(text).warnings))
        assert "is a secret, but also the key of the token 'ci'" in problem.message
        assert problem.path == ("tokens", 0, "key")


class TestShortSecrets:
    @pytest.mark.parametrize(
        ("text", "path"),
        [
            (
                "api: {auth: {tokens: [{token: abc, scopes: ['*']}]}}",
                ("api", "auth", "tokens", 0, "token"),
            ),
            ("tokens: [{name: t, key: abcdefghijklmno}]", ("tokens", 0, "key")),
            (
                "webhooks: [{path: /h, plugin: p, secret: abc}]",
                ("webhooks", "endpoints", 0, "secret"),
            ),
            (
                f"webhooks: [{{path: /h, plugin: p, provider: standard, secret: {SHORT}}}]",
                ("webhooks", "endpoints", 0, "secret"),
            ),
            (
                "instances: [{name: a, base_url: http://h, ingress_path: /i, secret: abc}]",
                ("instances", 0, "secret"),
            ),
            (
                "remote_ingress: {peers: [{name: a, secret: abc, accept: [x]}]}",
                ("remote_ingress", "peers", 0, "secret"),
            ),
        ],
    )
    def test_short_secret_causes_a_warning(
        self, config_dir: ConfigDir, text: str, path: tuple[str | int, ...]
    ) -> None:
        problem = only(list(config_dir.load(text).warnings))
        assert "is short enough to be guessed" in problem.message
        assert (problem.path, problem.severity) == (path, Severity.WARNING)
        assert "abc" not in problem.message

    def test_secret_of_sixteen_characters_causes_no_warning(self, config_dir: ConfigDir) -> None:
        text = "webhooks: [{path: /h, plugin: p, secret: abcdefghijklmnop}]"
        assert list(config_dir.load(text).warnings) == []

    def test_secret_that_ends_with_a_line_break_is_reported(self, config_dir: ConfigDir) -> None:
        text = 'webhooks: [{path: /h, plugin: p, secret: "abcdefghijklmnop\\n"}]'
        problem = only(list(config_dir.load(text).warnings))
        assert "ends with a space or a line break" in problem.message
        assert problem.severity is Severity.WARNING
        assert "abcdefgh" not in str(problem)

    @pytest.mark.parametrize("key", ["secret: whsec_", "secret_ref: gh"])
    def test_empty_key_is_rejected(self, config_dir: ConfigDir, key: str) -> None:
        hooks = f"webhooks: [{{path: /h, plugin: p, provider: standard, {key}}}]"
        problem = only(config_dir.load_errors(f"{hooks}\ntokens: [{{name: gh, key: whsec_}}]"))
        assert "is an empty key" in problem.message
        assert problem.path == ("webhooks", "endpoints", 0, key.partition(":")[0])


class TestScopes:
    def test_scopes_are_read_from_the_file(self, config_dir: ConfigDir) -> None:
        token = sealed(config_dir, with_token("scopes_file: scopes/t.json")).settings.tokens[0]
        assert token.scopes == ("jobs:ro", "events:ro", "github-handler:rw", "withings:ro")

    def test_scopes_file_may_be_a_list(self, config_dir: ConfigDir) -> None:
        files = with_token("scopes_file: scopes/t.json", '["*"]')
        assert sealed(config_dir, files).settings.tokens[0].scopes == ("*",)

    def test_matching_hash_is_accepted(self, config_dir: ConfigDir) -> None:
        files = with_token(f"scopes_file: scopes/t.json, scopes_hash: 'blake3:{HASH}'")
        assert len(sealed(config_dir, files).settings.tokens[0].scopes) == 4

    @pytest.mark.parametrize("file", ["scopes/t.json", "scopes/gone.json"])
    def test_token_with_a_wrong_hash_has_no_scopes(self, config_dir: ConfigDir, file: str) -> None:
        files = with_token(f"scopes_file: {file}, scopes_hash: 'blake3:{'1' * 64}'")
        loaded = sealed(config_dir, files)
        assert (loaded.settings.tokens[0].scopes, loaded.settings.tokens[0].key) == ((), KEY)
        assert only(list(loaded.warnings)).severity is Severity.WARNING

    def test_wrong_hash_is_reported_with_the_actual_one(self, config_dir: ConfigDir) -> None:
        files = with_token(f"scopes_file: scopes/t.json, scopes_hash: 'blake3:{'1' * 64}'")
        assert (
            f"set scopes_hash to blake3:{HASH}"
            in only(list(sealed(config_dir, files).warnings)).message
        )

    def test_wrong_hash_is_an_error_in_strict_mode(self, config_dir: ConfigDir) -> None:
        files = with_token(
            f"scopes_file: scopes/t.json, scopes_hash: {'1' * 64}",
            config="service: {strict_mode: true}",
        )
        assert "does not match its scopes_hash" in load_errors(config_dir, files).message

    def test_missing_scopes_file_is_an_error(self, config_dir: ConfigDir) -> None:
        files = with_token("scopes_file: scopes/gone.json")
        assert "there is no file" in load_errors(config_dir, files).message

    @pytest.mark.parametrize("scopes", ["not json", '{"scope": []}', "[" * 100_000])
    def test_invalid_scopes_file_is_an_error(self, config_dir: ConfigDir, scopes: str) -> None:
        assert (
            "is not a valid scope file"
            in load_errors(config_dir, with_token("scopes_file: scopes/t.json", scopes)).message
        )

    def test_invalid_scopes_are_dropped_with_warnings(self, config_dir: ConfigDir) -> None:
        files = with_token("scopes_file: scopes/t.json", '["jobs:r0", 5, "jobs:ro"]')
        loaded = sealed(config_dir, files)
        assert loaded.settings.tokens[0].scopes == ("jobs:ro",)
        assert len(loaded.warnings) == 2

    @pytest.mark.parametrize("scope", ["a b:ro", "a\\u0007:ro", ":ro", "a:b:ro"])
    def test_invalid_plugin_names_in_scopes_are_dropped(
        self, config_dir: ConfigDir, scope: str
    ) -> None:
        loaded = sealed(config_dir, with_token("scopes_file: scopes/t.json", f'["{scope}"]'))
        assert loaded.settings.tokens[0].scopes == ()
        assert "is not a valid scope" in only(list(loaded.warnings)).message

    def test_scopes_file_must_not_contain_variables(self, config_dir: ConfigDir) -> None:
        config_dir.write(with_token("scopes_file: ${F}"))
        problem = only(config_dir.load_errors(seal=False, F="scopes/t.json"))
        assert "must not contain variables" in problem.message

    def test_repeated_token_name_is_rejected(self, config_dir: ConfigDir) -> None:
        problem = only(config_dir.load_errors("tokens: [{name: a, key: x}, {name: a, key: y}]"))
        assert "already used" in problem.message


class TestWebhooks:
    def test_endpoint_at_the_health_path_causes_a_warning(self, config_dir: ConfigDir) -> None:
        endpoint = "{path: /healthz, plugin: echo, secret: a-secret-0123456789}"
        problem = only(list(config_dir.load(f"webhooks: {{endpoints: [{endpoint}]}}").warnings))
        assert "no webhook arrives" in problem.message
        assert problem.severity is Severity.WARNING
        assert problem.path == ("webhooks", "endpoints", 0, "path")

    def test_secret_is_expanded(self, config_dir: ConfigDir) -> None:
        loaded = config_dir.load(
            "webhooks: [{path: /h, plugin: p, secret: ${S}}]", S="s3cret-value"
        )
        assert loaded.settings.webhooks.endpoints[0].secret == "s3cret-value"

    def test_secret_ref_is_resolved(self, config_dir: ConfigDir) -> None:
        files = {
            "config.yaml": "include: [tokens.yaml, hooks.yaml]",
            "hooks.yaml": "webhooks: [{path: /h, plugin: p, secret_ref: gh}]",
            "tokens.yaml": "tokens: [{name: gh, key: ${K}}]",
        }
        assert (
            sealed(config_dir, files, K="the-key").settings.webhooks.endpoints[0].secret
            == "the-key"
        )

    def test_unknown_secret_ref_suggests_the_nearest(self, config_dir: ConfigDir) -> None:
        hooks = "webhooks: [{path: /h, plugin: p, secret_ref: githup}]"
        problem = only(config_dir.load_errors(f"{hooks}\ntokens: [{{name: github, key: k}}]"))
        assert problem.nearest == "github"
        assert problem.path == ("webhooks", "endpoints", 0, "secret_ref")

    def test_endpoint_without_a_secret_is_rejected(self, config_dir: ConfigDir) -> None:
        problem = only(config_dir.load_errors("webhooks: [{path: /h, plugin: p}]"))
        assert "needs secret or secret_ref" in problem.message

    def test_defaults_of_an_endpoint(self, config_dir: ConfigDir) -> None:
        endpoint = config_dir.load(
            "webhooks: [{path: /hook/x/, plugin: p, secret: s}]"
        ).settings.webhooks.endpoints[0]
        assert (endpoint.max_body_size, endpoint.signature_header) == (
            1048576,
            "X-Hub-Signature-256",
        )
        assert endpoint.event_name == "x"

    def test_provider_has_its_own_header(self, config_dir: ConfigDir) -> None:
        text = "webhooks: [{path: /h, plugin: p, secret: s, provider: stripe}]"
        endpoint = config_dir.load(text).settings.webhooks.endpoints[0]
        assert (endpoint.provider, endpoint.signature_header) == ("stripe", None)

    def test_repeated_endpoint_path_is_rejected(self, config_dir: ConfigDir) -> None:
        one = "{path: /h, plugin: p, secret: s}"
        assert "already used" in only(config_dir.load_errors(f"webhooks: [{one}, {one}]")).message


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

    def test_secret_ref_is_resolved_on_both_sides(self, config_dir: ConfigDir) -> None:
        settings = config_dir.load(self.TEXT).settings
        instance, peer = settings.instances[0], settings.remote_ingress.peers[0]
        assert (instance.secret, peer.secret) == ("shared", "shared")
        assert (instance.enabled, instance.timeout, peer.baggage.allow) == (True, 10, ("trace_id",))
        assert settings.remote_ingress.listen_path == "/ingest/peer"

    def test_disabled_instance_needs_no_secret(self, config_dir: ConfigDir) -> None:
        one = "{name: a, enabled: false, base_url: http://h, ingress_path: /i, secret_ref: x}"
        text = f"instances: [{one}]"
        assert config_dir.load(text).settings.instances[0].secret is None

    def test_instance_without_a_secret_is_rejected(self, config_dir: ConfigDir) -> None:
        text = "instances: [{name: a, base_url: http://h, ingress_path: /i}]"
        assert "every relay must be signed" in only(config_dir.load_errors(text)).message

    @pytest.mark.parametrize("url", ["lab.example", "ftp://x", "https://", "https://h?x=1"])
    def test_base_url_must_be_absolute(self, config_dir: ConfigDir, url: str) -> None:
        text = f"instances: [{{name: a, base_url: '{url}', ingress_path: /i, secret: x}}]"
        assert "absolute URL" in only(config_dir.load_errors(text)).message


LISTENERS = """
api: {enabled: true, listen: "API", auth: {tokens: [{token: a-token-0123456789, scopes: ['*']}]}}
webhooks: {listen: "HOOKS"}
"""


@pytest.mark.parametrize(
    ("api", "hooks"),
    [
        ("127.0.0.1:9000", "127.0.0.1:9000"),
        ("localhost:9000", "127.0.0.1:9000"),
        (":9000", "127.0.0.1:9000"),
        ("127.0.0.1:9000", "[::]:9000"),
    ],
)
def test_two_listeners_on_one_port_are_rejected(
    config_dir: ConfigDir, api: str, hooks: str
) -> None:
    text = LISTENERS.replace("API", api).replace("HOOKS", hooks)
    problem = only(config_dir.load_errors(text))
    assert problem.path == ("webhooks", "listen")
    assert "use the same port" in problem.message


@pytest.mark.parametrize(
    ("api", "hooks"),
    [
        ("127.0.0.1:9000", "127.0.0.1:9001"),
        ("127.0.0.1:9000", "127.0.0.2:9000"),
        ("127.0.0.1:0", "127.0.0.1:0"),
    ],
)
def test_listeners_that_do_not_meet_are_accepted(
    config_dir: ConfigDir, api: str, hooks: str
) -> None:
    config_dir.load(LISTENERS.replace("API", api).replace("HOOKS", hooks))


def test_port_of_an_api_that_is_not_enabled_may_be_used(config_dir: ConfigDir) -> None:
    config_dir.load("api: {listen: 127.0.0.1:9}\nwebhooks: {listen: 127.0.0.1:9}")
