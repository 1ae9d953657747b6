"""`ductile token`, with and without a running gateway."""

from __future__ import annotations

import pytest

from tests.cli.running import House


def test_a_token_without_a_gateway(house: House) -> None:
    made = house("token", "create", "ci", "--scope", "jobs:ro", "--expires", "30d")
    assert made.code == 0
    assert made.out.startswith("dtk_")
    assert "not shown again" in made.err
    (row,) = house("token", "list", "--json").json["tokens"]
    assert (row["name"], row["scopes"]) == ("ci", ["jobs:ro"])
    assert made.out.strip() not in house("token", "list").out
    rotated = house("token", "rotate", "ci", "--json").json
    assert rotated["token"] != made.out.strip()
    assert house("token", "revoke", "ci").out == "revoked ci\n"
    assert house("token", "revoke", "ci").code == 1


def test_a_dry_run_makes_nothing(house: House) -> None:
    planned = house("token", "create", "ci", "--scope", "*", "--dry-run")
    assert planned.code == 0
    assert "would create" in planned.out
    assert house("token", "list", "--json").json == {"tokens": []}


def test_what_is_no_scope_is_wrong_usage(house: House) -> None:
    assert house("token", "create", "ci", "--scope", "everything").code == 2
    assert house("token", "create", "ci").code == 2


def test_scopes_in_one_word_are_refused_with_the_way_to_give_them(house: House) -> None:
    refused = house("token", "create", "ci", "--scope", "agents:rw,jobs:ro")
    assert (refused.code, refused.out) == (2, "")
    assert "--scope agents:rw --scope jobs:ro" in refused.err


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_scope_that_opens_nothing_is_told_of(house: House, more: tuple[str, ...]) -> None:
    made = house("token", "create", "ci", "--scope", "helo:rw", "--scope", "jobs:ro", *more)
    assert made.code == 0
    said = [line for line in made.err.splitlines() if line.startswith("warning: ")]
    assert said == [
        "warning: helo:rw grants nothing: there is no plugin 'helo'; did you mean 'hello'?"
    ]
    for scope in ("hello:rw", "*", "read:jobs", "plugin:rw"):
        assert "warning" not in house("token", "create", f"t{scope}", "--scope", scope).err
