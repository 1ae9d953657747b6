"""`ductile webhook`, with and without a running gateway."""

from __future__ import annotations

import shlex
from typing import Any

import apsw
import pytest

from tests.cli.runner import CliRunner
from tests.engine.receiver import receiving
from tests.waiting import until

SECRET = "a secret from elsewhere"


def add(cli: CliRunner, *more: str, event: str = "push") -> int:
    created = cli("webhook", "config", "add", "github", event, "--session", "s-1", "--json", *more)
    assert created.code == 0, created
    return int(created.json["id"])


def spoil(cli: CliRunner, sql: str) -> None:
    connection = apsw.Connection(str(cli.state / "state.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def secret_of(cli: CliRunner, id: int) -> str:
    connection = apsw.Connection(str(cli.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    (row,) = connection.execute("SELECT secret FROM webhook_configs WHERE id = ?", (id,)).fetchall()
    connection.close()
    return str(row[0])


def test_a_generated_secret_is_shown_once(cli: CliRunner) -> None:
    created = cli("webhook", "config", "add", "github", "push", "--session", "s-1")
    assert created.code == 0
    first, secret = created.out.splitlines()
    assert first == "added webhook 1 for github/push"
    assert secret.startswith("whsec_")
    assert "not shown again" in created.err
    assert secret == secret_of(cli, 1)
    listed = cli("webhook", "config", "list")
    assert "github" in listed.out
    assert secret not in listed.out
    assert secret not in cli("webhook", "config", "list", "--json").out


@pytest.mark.parametrize("way", ["--secret-env", "--secret-file"])
def test_a_secret_is_read_from_the_environment_or_a_file(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    file = cli.write("secret.txt", f"{SECRET}\n")
    place = "HOOK_SECRET" if way == "--secret-env" else str(file)
    created = cli("webhook", "config", "add", "github", "push", "--session", "s", way, place)
    assert created.code == 0
    assert SECRET not in created.out + created.err
    assert secret_of(cli, 1) == SECRET


def test_a_secret_is_read_from_stdin(cli: CliRunner) -> None:
    line = ("webhook", "config", "add", "github", "push", "--session", "s", "--secret-file", "-")
    assert cli.process(*line, input=f"{SECRET}\n").code == 0
    assert secret_of(cli, 1) == SECRET
    assert cli.process(*line, input="\n").code == 2


@pytest.mark.parametrize(
    "more",
    [
        ("--secret-env", "NOT_SET_ANYWHERE"),
        ("--secret-env", "HOME", "--secret-file", "x"),
        ("--url", "ftp://example.com"),
        ("--url", "https://10.0.0.1/"),
        ("--url", "https://example.com/", "--plugin", "hello"),
        ("--plugin", "nobody"),
    ],
)
def test_invalid_webhooks_exit_2(cli: CliRunner, more: tuple[str, ...]) -> None:
    done = cli("webhook", "config", "add", "github", "push", "--session", "s", *more)
    assert done.code == 2, done


def test_there_is_no_option_for_the_secret_itself(cli: CliRunner) -> None:
    done = cli("webhook", "config", "add", "a", "b", "--session", "s", "--secret", SECRET)
    assert done.code == 2


def test_webhooks_are_listed_and_removed(cli: CliRunner) -> None:
    plain = add(cli)
    add(cli, "--plugin", "hello", event="deploy")
    add(cli, "--url", "https://example.com/hook", "--intent", "tell", event="release")
    listed = cli("webhook", "config", "list").out
    assert "session only" in listed
    assert "plugin hello" in listed
    assert "https://example.com/[REDACTED]" in listed
    planned = cli("webhook", "config", "remove", str(plain), "--dry-run")
    assert planned.out == f"would remove webhook {plain}: github/push\n"
    assert cli("webhook", "config", "remove", str(plain)).out.startswith("removed webhook")
    assert cli("webhook", "config", "remove", str(plain)).code == 1
    assert len(cli("webhook", "config", "list", "--json").json["webhooks"]) == 2


def test_a_second_webhook_for_the_same_event_is_refused(cli: CliRunner) -> None:
    add(cli)
    done = cli("webhook", "config", "add", "github", "push", "--session", "s-2")
    assert done.code == 1
    assert "already" in done.err


def test_a_delivery_without_a_gateway_stays_pending(cli: CliRunner) -> None:
    id = add(cli, "--url", "https://example.com/hook")
    planned = cli("webhook", "send", str(id), "--payload", '{"a": 1}', "--dry-run")
    assert planned.out == f"would send 7 bytes by webhook {id} to https://example.com/[REDACTED]\n"
    assert cli("webhook", "deliveries").out == "no deliveries\n"
    sent = cli("webhook", "send", str(id), "--payload", '{"a": 1}')
    assert sent.out == "queued delivery 1 to https://example.com/[REDACTED]\n"
    named = cli("webhook", "send", "--source", "github", "--event", "push", "--json")
    assert named.json["delivery_id"] == 2
    page = cli("webhook", "deliveries", "--status", "pending", "--json").json["deliveries"]
    assert [row["delivery_id"] for row in page] == [2, 1]
    shown = cli("webhook", "show", "1")
    assert "status: pending" in shown.out
    assert '"a": 1' in shown.out
    assert cli("webhook", "show", "9").code == 1


@pytest.mark.parametrize(
    "line",
    [
        ("webhook", "send"),
        ("webhook", "send", "1", "--source", "a", "--event", "b"),
        ("webhook", "send", "--source", "a"),
        ("webhook", "send", "1", "--payload", "{"),
        ("webhook", "retry"),
        ("webhook", "retry", "1", "--all-dead"),
        ("webhook", "retry", "1", "--since", "2h"),
        ("webhook", "discard"),
        ("webhook", "discard", "1", "--all-dead"),
        ("webhook", "discard", "1", "--until", "2h"),
        ("webhook", "deliveries", "--status", "lost"),
        ("webhook", "deliveries", "--since", "soon"),
    ],
)
def test_wrong_usage_exits_2(cli: CliRunner, line: tuple[str, ...]) -> None:
    assert cli(*line).code == 2


def test_dead_deliveries_are_listed_and_retried(cli: CliRunner) -> None:
    id = add(cli, "--url", "https://example.com/hook")
    for _ in range(3):
        cli("webhook", "send", str(id))
    spoil(cli, "UPDATE webhook_deliveries SET status = 'dead', error_detail = 'HTTP 500'")
    listed = cli("webhook", "deliveries", "--status", "dead", "--since", "2h")
    assert listed.out.count("HTTP 500") == 3
    assert cli("webhook", "retry", "1", "--dry-run").out == ("would retry delivery 1 (was dead)\n")
    assert cli("webhook", "retry", "1").out == "retrying delivery 1 (was dead)\n"
    old = "UPDATE webhook_deliveries SET created_at = '2000-01-01T00:00:00.000000Z' WHERE id = 2"
    spoil(cli, old)
    assert cli("webhook", "retry", "--webhook", "99").code == 1
    chosen = ("webhook", "retry", "--webhook", str(id), "--since", "2h", "--dry-run")
    assert cli(*chosen).out == "would retry 1 delivery\n"
    many = ("webhook", "retry", "--all-dead", "--since", "2h")
    assert cli(*many, "--dry-run").out == "would retry 1 delivery\n"
    assert cli(*many).out == "retrying 1 delivery\n"
    assert cli("webhook", "retry", "--all-dead").out == "retrying 1 delivery\n"
    assert cli("webhook", "retry", "--all-dead").out == "retrying 0 deliveries\n"
    assert "only dead ones can be discarded" in cli("webhook", "discard", "1").err
    spoil(cli, "UPDATE webhook_deliveries SET status = 'dead'")
    assert cli("webhook", "discard", "1", "--dry-run").out == "would discard 1 delivery\n"
    assert cli("webhook", "discard", "1").out == "discarded 1 delivery\n"
    assert cli("webhook", "discard", "--all-dead", "--until", "2h").out == "discarded 1 delivery\n"
    assert cli("webhook", "discard", "--all-dead", "--json").json["deliveries"] == [3]


def test_deliveries_are_paged(cli: CliRunner) -> None:
    id = add(cli)
    for _ in range(3):
        cli("webhook", "send", str(id))
    page = cli("webhook", "deliveries", "--limit", "2")
    assert "--before 2" in page.err
    rest = cli("webhook", "deliveries", "--limit", "2", "--before", "2", "--json").json
    assert [row["delivery_id"] for row in rest["deliveries"]] == [1]


def test_a_running_gateway_delivers_at_once(cli: CliRunner) -> None:
    config = (cli.root / "config.yaml").read_text()
    cli.write("config.yaml", config + "gateway: {allowed_networks: [127.0.0.0/8]}\n")
    with receiving() as receiver, cli.gateway():
        id = add(cli, "--url", receiver.url)
        assert cli("webhook", "send", str(id), "--payload", '"hello"').code == 0
        (request,) = receiver.wait(1)
        assert request.body == b'"hello"'
        until(lambda: "delivered" in cli("webhook", "deliveries").out)
        assert cli("webhook", "retry", "1").code == 1
        assert cli("webhook", "config", "remove", str(id)).code == 0


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_retry_of_an_unknown_webhook_is_refused(cli: CliRunner, dry: tuple[str, ...]) -> None:
    refused = cli("webhook", "retry", "--webhook", "7", *dry)
    run = f"ductile webhook config list --config {cli.root}"
    assert refused.code == 1
    assert refused.err == f"error: there is no webhook 7\n  run: {run}\n"
    assert cli("webhook", "retry", "--webhook", str(add(cli)), *dry).code == 0


def test_private_receiver_is_refused_with_the_command_that_allows_it(cli: CliRunner) -> None:
    def add(url: str) -> Any:
        line = ("webhook", "config", "add", "github", "push", "--session", "s", "--url", url)
        return cli(*line, "--json")

    with cli.gateway():
        refused = add("http://127.0.0.1:9/hook")
        assert refused.code == 2
        parts = refused.json["run"].split(" && ")
        assert parts[0].startswith(
            "ductile config set gateway.allowed_networks '[\"127.0.0.1/32\"]'"
        )
        for part in parts:
            assert cli(*shlex.split(part)[1:]).code == 0
        assert add("http://127.0.0.1:9/hook").code == 0
        for url in ("https://169.254.169.254/", "https://[fd00:ec2::254]/", "https://x.internal/"):
            assert "config set" not in add(url).out
