"""`ductile webhook`, with and without a running gateway."""

from __future__ import annotations

import apsw
import pytest

from tests.cli.running import House
from tests.engine.receiver import receiving
from tests.waiting import until

SECRET = "a secret from elsewhere"


def add(house: House, *more: str, event: str = "push") -> int:
    made = house("webhook", "config", "add", "github", event, "--session", "s-1", "--json", *more)
    assert made.code == 0, made
    return int(made.json["id"])


def spoil(house: House, sql: str) -> None:
    connection = apsw.Connection(str(house.state / "state.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def secret_of(house: House, id: int) -> str:
    connection = apsw.Connection(str(house.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    (row,) = connection.execute("SELECT secret FROM webhook_configs WHERE id = ?", (id,)).fetchall()
    connection.close()
    return str(row[0])


def test_a_secret_is_made_and_shown_once(house: House) -> None:
    made = house("webhook", "config", "add", "github", "push", "--session", "s-1")
    assert made.code == 0
    first, secret = made.out.splitlines()
    assert first == "added webhook 1 for github/push"
    assert secret.startswith("whsec_")
    assert "not shown again" in made.err
    assert secret == secret_of(house, 1)
    listed = house("webhook", "config", "list")
    assert "github" in listed.out
    assert secret not in listed.out
    assert secret not in house("webhook", "config", "list", "--json").out


@pytest.mark.parametrize("way", ["--secret-env", "--secret-file"])
def test_a_secret_comes_from_the_environment_or_a_file(
    house: House, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    file = house.write("secret.txt", f"{SECRET}\n")
    place = "HOOK_SECRET" if way == "--secret-env" else str(file)
    made = house("webhook", "config", "add", "github", "push", "--session", "s", way, place)
    assert made.code == 0
    assert SECRET not in made.out + made.err
    assert secret_of(house, 1) == SECRET


def test_a_secret_comes_from_stdin(house: House) -> None:
    line = ("webhook", "config", "add", "github", "push", "--session", "s", "--secret-file", "-")
    assert house.process(*line, input=f"{SECRET}\n").code == 0
    assert secret_of(house, 1) == SECRET
    assert house.process(*line, input="\n").code == 2


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
def test_wrong_usage(house: House, more: tuple[str, ...]) -> None:
    done = house("webhook", "config", "add", "github", "push", "--session", "s", *more)
    assert done.code == 2, done


def test_there_is_no_way_to_give_a_secret_on_the_command_line(house: House) -> None:
    done = house("webhook", "config", "add", "a", "b", "--session", "s", "--secret", SECRET)
    assert done.code == 2


def test_webhooks_are_listed_and_removed(house: House) -> None:
    plain = add(house)
    add(house, "--plugin", "hello", event="deploy")
    add(house, "--url", "https://example.com/hook", "--intent", "tell", event="release")
    listed = house("webhook", "config", "list").out
    assert "session only" in listed
    assert "plugin hello" in listed
    assert "https://example.com/hook" in listed
    planned = house("webhook", "config", "remove", str(plain), "--dry-run")
    assert planned.out == f"would remove webhook {plain}: github/push\n"
    assert house("webhook", "config", "remove", str(plain)).out.startswith("removed webhook")
    assert house("webhook", "config", "remove", str(plain)).code == 1
    assert len(house("webhook", "config", "list", "--json").json["webhooks"]) == 2


def test_a_second_one_for_the_same_event_is_refused(house: House) -> None:
    add(house)
    done = house("webhook", "config", "add", "github", "push", "--session", "s-2")
    assert done.code == 1
    assert "already" in done.err


def test_without_a_gateway_a_delivery_waits_for_one(house: House) -> None:
    id = add(house, "--url", "https://example.com/hook")
    planned = house("webhook", "send", str(id), "--payload", '{"a": 1}', "--dry-run")
    assert planned.out == f"would send 7 bytes by webhook {id} to https://example.com/hook\n"
    assert house("webhook", "deliveries").out == "no deliveries\n"
    sent = house("webhook", "send", str(id), "--payload", '{"a": 1}')
    assert sent.out == "queued delivery 1 to https://example.com/hook\n"
    named = house("webhook", "send", "--source", "github", "--event", "push", "--json")
    assert named.json["delivery_id"] == 2
    page = house("webhook", "deliveries", "--status", "pending", "--json").json["deliveries"]
    assert [row["delivery_id"] for row in page] == [2, 1]
    shown = house("webhook", "show", "1")
    assert "status: pending" in shown.out
    assert '"a": 1' in shown.out
    assert house("webhook", "show", "9").code == 1


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
        ("webhook", "deliveries", "--status", "lost"),
        ("webhook", "deliveries", "--since", "soon"),
    ],
)
def test_what_says_too_little_or_too_much(house: House, line: tuple[str, ...]) -> None:
    assert house(*line).code == 2


def test_dead_ones_are_listed_and_retried(house: House) -> None:
    id = add(house, "--url", "https://example.com/hook")
    for _ in range(3):
        house("webhook", "send", str(id))
    spoil(house, "UPDATE webhook_deliveries SET status = 'dead', error_detail = 'HTTP 500'")
    listed = house("webhook", "deliveries", "--status", "dead", "--since", "2h")
    assert listed.out.count("HTTP 500") == 3
    assert house("webhook", "retry", "1", "--dry-run").out == (
        "would retry delivery 1 (was dead)\n"
    )
    assert house("webhook", "retry", "1").out == "retrying delivery 1 (was dead)\n"
    old = "UPDATE webhook_deliveries SET created_at = '2000-01-01T00:00:00.000000Z' WHERE id = 2"
    spoil(house, old)
    many = ("webhook", "retry", "--all-dead", "--since", "2h")
    assert house(*many, "--dry-run").out == "would retry 1 delivery\n"
    assert house(*many).out == "retrying 1 delivery\n"
    assert house("webhook", "retry", "--all-dead").out == "retrying 1 delivery\n"
    assert house("webhook", "retry", "--all-dead").out == "retrying 0 deliveries\n"


def test_a_page_says_how_to_go_on(house: House) -> None:
    id = add(house)
    for _ in range(3):
        house("webhook", "send", str(id))
    page = house("webhook", "deliveries", "--limit", "2")
    assert "--before 2" in page.err
    rest = house("webhook", "deliveries", "--limit", "2", "--before", "2", "--json").json
    assert [row["delivery_id"] for row in rest["deliveries"]] == [1]


def test_with_a_running_gateway_it_is_delivered_at_once(house: House) -> None:
    config = (house.root / "config.yaml").read_text()
    house.write("config.yaml", config + "gateway: {allowed_networks: [127.0.0.0/8]}\n")
    with receiving() as receiver, house.gateway():
        id = add(house, "--url", receiver.url)
        assert house("webhook", "send", str(id), "--payload", '"hello"').code == 0
        (request,) = receiver.wait(1)
        assert request.body == b'"hello"'
        until(lambda: "delivered" in house("webhook", "deliveries").out)
        assert house("webhook", "retry", "1").code == 1
        assert house("webhook", "config", "remove", str(id)).code == 0
