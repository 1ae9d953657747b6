"""`ductile audit`, with and without a running gateway."""

from __future__ import annotations

import os
import pwd

from tests.cli.runner import CliRunner

USER = f"user:{pwd.getpwuid(os.getuid()).pw_name}"


def test_actions_are_listed_with_their_actor(cli: CliRunner) -> None:
    assert cli("audit").out == "no entries\n"
    cli("token", "create", "ci", "--scope", "jobs:ro")
    cli("token", "revoke", "ci")
    cli("token", "create", "planned", "--scope", "*", "--dry-run")
    revoked, created = cli("audit", "--json").json["entries"]
    assert (created["action"], created["target"]) == ("token.create", "ci")
    assert created["details"] == {"scopes": ["jobs:ro"]}
    assert (revoked["action"], revoked["target"]) == ("token.revoke", "ci")
    assert {created["actor"], revoked["actor"]} == {USER}
    assert created["source"] in ("local socket", "command line")
    table = cli("audit").out
    assert USER in table
    assert "token.revoke" in table
    assert "dtk_" not in table


def test_entries_are_filtered(cli: CliRunner) -> None:
    cli("token", "create", "ci", "--scope", "jobs:ro")

    def count(*options: str) -> int:
        return len(cli("audit", "list", "--json", *options).json["entries"])

    assert count("--action", "token") == count("--action", "token.create") == 1
    assert count("--action", "tok") == count("--actor", "token:ci") == 0
    assert count("--actor", USER, "--since", "1h") == 1
    assert count("--since", "2099-01-01") == 0


def test_token_without_entries_is_not_a_wrong_name(cli: CliRunner) -> None:
    cli("token", "create", "ci", "--scope", "jobs:ro")
    assert cli("audit", "--token", "ci").out == "no entries\n"
    assert cli("token", "revoke", "ci").code == 0
    assert cli("audit", "--token", "ci", "--action", "job").out == "no entries\n"
    for option in ((), ("--json",)):
        refused = cli("audit", "--token", "cl", *option)
        assert refused.code == 1
        assert (
            "there is no token 'cl', and none of this name has acted" in refused.err + refused.out
        )


def test_job_names_the_local_user_that_submitted_it(cli: CliRunner) -> None:
    job_id = cli("plugin", "run", "hello", "--json").json["job_id"]
    assert f"submitter:     {USER}" in cli("job", "inspect", job_id).out
