"""`ductile token`, with and without a running gateway."""

from __future__ import annotations

import pytest

from tests.cli.runner import CliRunner
from tests.waiting import until


def test_a_token_is_created_rotated_and_revoked(cli: CliRunner) -> None:
    created = cli("token", "create", "ci", "--scope", "jobs:ro", "--expires", "30d")
    assert created.code == 0
    assert created.out.startswith("dtk_")
    assert "not shown again" in created.err
    (row,) = cli("token", "list", "--json").json["tokens"]
    assert (row["name"], row["scopes"]) == ("ci", ["jobs:ro"])
    assert created.out.strip() not in cli("token", "list").out
    rotated = cli("token", "rotate", "ci", "--json").json
    assert rotated["token"] != created.out.strip()
    assert "replace the secret" in cli("token", "rotate", "ci", "--dry-run").out
    assert "The old secret works until" in cli("token", "rotate", "ci", "--overlap", "1h").err
    assert cli("token", "revoke", "ci").out == "revoked ci\n"
    for command, what in (
        ("revoke", "was already revoked at 20"),
        ("rotate", "was revoked at 20"),
    ):
        for option in ((), ("--dry-run",)):
            refused = cli("token", command, "ci", *option)
            assert refused.code == 1
            assert f"token 'ci' {what}" in refused.err
    assert "there is no token 'cl'" in cli("token", "rotate", "cl").err


def test_list_says_that_a_token_has_expired(cli: CliRunner) -> None:
    assert cli("token", "create", "ci", "--scope", "jobs:ro", "--expires", "1s").code == 0
    assert cli("token", "create", "other", "--scope", "jobs:ro", "--expires", "1h").code == 0
    until(lambda: " (expired)" in cli("token", "list").out)
    assert cli("token", "list").out.count("(expired)") == 1


def test_create_dry_run_changes_nothing(cli: CliRunner) -> None:
    planned = cli("token", "create", "ci", "--scope", "*", "--dry-run")
    assert planned.code == 0
    assert "would create" in planned.out
    assert cli("token", "list", "--json").json == {"tokens": []}


def test_an_invalid_scope_exits_2(cli: CliRunner) -> None:
    assert cli("token", "create", "ci", "--scope", "everything").code == 2
    assert cli("token", "create", "ci").code == 2


def test_comma_separated_scopes_are_refused_with_a_hint(cli: CliRunner) -> None:
    refused = cli("token", "create", "ci", "--scope", "agents:rw,jobs:ro")
    assert (refused.code, refused.out) == (2, "")
    assert "--scopes agents:rw,jobs:ro" in refused.err


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_scope_of_an_unknown_plugin_gives_a_warning(
    cli: CliRunner, more: tuple[str, ...]
) -> None:
    created = cli("token", "create", "ci", "--scope", "helo:rw", "--scope", "jobs:ro", *more)
    assert created.code == 0
    messages = [line for line in created.err.splitlines() if line.startswith("warning: ")]
    assert messages == [
        "warning: helo:rw grants nothing: there is no plugin 'helo'; did you mean 'hello'?"
    ]
    for scope in ("hello:rw", "*", "read:jobs", "plugin:rw"):
        assert "warning" not in cli("token", "create", f"t{scope}", "--scope", scope).err


def test_lease_shows_what_is_left_and_what_it_did(cli: CliRunner) -> None:
    limits = ("--expires", "2h", "--scopes", "hello:rw,jobs:ro", "--budget", "runs=20,retries=5")
    created = cli("token", "create", "--for", "agent", *limits, "--json").json
    assert (created["lease"], created["scopes"]) == (True, ["hello:rw", "jobs:ro"])
    assert "runs 20/20 retries 5/5" in cli("token", "list").out
    assert cli("audit", "--token", "agent", "--json").json["entries"] == []
    assert cli("audit", "--token", "agent", "--actor", "user:me").code == 2
    assert "old secret: " not in cli("token", "list").out
    assert cli("token", "rotate", "agent", "--overlap", "1h").code == 0
    assert "old secret: " in cli("token", "list").out
    assert cli("token", "revoke", "agent").code == 0
    assert "old secret: " not in cli("token", "list").out


@pytest.mark.parametrize(
    "words",
    [
        ("--scope", "jobs:ro"),
        ("a", "--for", "b", "--scope", "jobs:ro"),
        ("a",),
        ("a", "--scope", "jobs:ro", "--budget", "runs"),
        ("a", "--scope", "jobs:ro", "--budget", "jobs=3"),
        ("--for", "a", "--scope", "jobs:ro"),
    ],
)
def test_incomplete_token_or_lease_exits_2(cli: CliRunner, words: tuple[str, ...]) -> None:
    assert cli("token", "create", *words).code == 2
