"""What a failure leaves behind for whoever looks for its cause: all that was said, no secret."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bundled.accounts import connect_garmin, connect_google, connect_withings
from tests.bundled.house import PLUGINS, BundledSite, job_logs
from tests.bundled.inside import inside
from tests.bundled.standins.garmin import Garmin
from tests.bundled.standins.google import Google
from tests.bundled.standins.pages import Pages
from tests.bundled.standins.server import Asked, Told
from tests.bundled.standins.withings import Withings
from tests.bundled.test_lib import POLL, served
from tests.bundled.town import Town

sys.path.append(str(PLUGINS / "lib"))
import quoting

SECRET = "canary-failure-secret"
KEPT_BY_THE_GATEWAY = 64 * 1024
LOOPBACK = {"allowed_networks": ["127.0.0.0/8"]}
PAGE = b"<h1>Bad Gateway</h1><p>the cache is on fire</p>"


@pytest.fixture
def web() -> Iterator[Pages]:
    with Pages() as pages:
        yield pages


def shell(site: BundledSite, script: str, **config: Any) -> None:
    site.use("exec", {"command": ["sh", "-c", script], **config})


def heard(site: BundledSite) -> tuple[str, str]:
    """The error and the stderr of one failed run of exec."""
    done = site.direct("exec", "poll")
    assert done.answer["status"] == "error", done.answer
    return done.answer["error"], done.stderr


# A command


def test_all_that_a_failed_command_wrote_is_kept_with_the_attempt(site: BundledSite) -> None:
    shell(site, "echo begun; echo 'Traceback:' >&2; echo '  line 7' >&2; echo KeyError >&2; exit 1")
    with site.running() as house:
        job = house.run("exec")
        [row] = job_logs(house, "exec")
    assert job["last_error"] == "exit code 1: KeyError"
    assert row["stderr"] == (
        "stdout of the command:\nbegun\n"
        "stderr of the command:\nTraceback:\n  line 7\nKeyError\n"
    )  # fmt: skip


def test_a_command_that_is_silent_on_stderr_is_told_by_its_stdout(site: BundledSite) -> None:
    shell(site, "echo 3 failed; exit 1")
    assert heard(site) == ("exit code 1: 3 failed", "stdout of the command:\n3 failed\n")


def test_a_command_that_wrote_nothing_leaves_nothing(site: BundledSite) -> None:
    shell(site, "exit 1")
    assert heard(site) == ("exit code 1", "")


def test_a_command_whose_time_is_up_is_told_by_what_it_wrote_until_then(site: BundledSite) -> None:
    shell(site, "echo step 1; exec sleep 300", timeout="300ms")
    error, said = heard(site)
    assert error.endswith(": step 1")
    assert said == "stdout of the command:\nstep 1\n"


@pytest.mark.parametrize(
    ("script", "more", "error"),
    [("echo oops", {}, "no JSON"), ("echo '[1,2,3,4]'", {"max_output": 4}, "more JSON than")],
)
def test_output_that_is_not_the_json_it_should_be_is_kept(
    site: BundledSite, script: str, more: dict[str, Any], error: str
) -> None:
    shell(site, f"{script}; echo hint >&2", parse="json", **more)
    told, said = heard(site)
    assert error in told
    assert said.startswith("stdout of the command")
    assert said.endswith("stderr of the command:\nhint\n" if not more else "int\n")


def test_of_long_outputs_the_ends_are_kept_and_both_fit(site: BundledSite) -> None:
    """Also where the bytes are no text."""
    noise = "head -c 300000 /dev/zero | tr '\\0' '\\377'"
    shell(site, f"{noise}; echo; echo last out; ({noise}; echo; echo last err) >&2; exit 1")
    with site.running() as house:
        house.run("exec")
        [row] = job_logs(house, "exec")
    assert row["last_error"] == "exit code 1: last err"
    assert "last out\nstderr of the command (" in row["stderr"]
    assert row["stderr"].endswith("last err\n")
    assert "bytes before this are left out)" in row["stderr"]
    assert len(row["stderr"].encode()) <= KEPT_BY_THE_GATEWAY


def test_no_more_is_kept_than_max_output_allows(site: BundledSite) -> None:
    shell(site, "echo 0123456789; exit 1", max_output=4)
    assert heard(site)[1] == "stdout of the command (7 bytes before this are left out):\n789\n"
    shell(site, "echo 0123456789; exit 1", max_output=0)
    assert "789" not in "".join(heard(site))


def test_of_a_command_that_failed_no_secret_is_kept(site: BundledSite) -> None:
    script = 'printf "%s\\n" "$PASSWORD" out; echo "err $PASSWORD" >&2; exit 1'
    shell(site, script, env={"PASSWORD": SECRET})
    error, said = heard(site)
    assert error == "exit code 1: err [REDACTED]"
    assert said == (
        "stdout of the command:\n[REDACTED]\nout\nstderr of the command:\nerr [REDACTED]\n"
    )


@pytest.mark.parametrize("kept", range(1, len(SECRET)))
def test_a_secret_that_a_cut_divides_leaves_no_part_behind(kept: int) -> None:
    stream = inside("exec", "process").Stream(kept + 2)
    stream.take(f"ab{SECRET}".encode())
    assert stream.text([SECRET]) == "ab" + (SECRET[:kept] if kept < quoting.SHORTEST_PART else "")
    stream = inside("exec", "process").Stream(kept + 2)
    stream.take(f"{SECRET}yz".encode())
    assert stream.ending([SECRET]) == (
        SECRET[-kept:] if kept < quoting.SHORTEST_PART else ""
    ) + "yz"  # fmt: skip


def test_a_folder_that_is_not_there_is_named(site: BundledSite) -> None:
    site.use("exec", {"command": ["true"], "cwd": "/no/such/folder"})
    error, _ = heard(site)
    assert error == "'true' could not be started in /no/such/folder: No such file or directory"


# A web server


def test_what_a_server_says_with_its_refusal_is_kept(site: BundledSite, web: Pages) -> None:
    web.next("/a", Told(PAGE, 502))
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    with site.running() as house:
        assert house.run("fetch")["last_error"] == "the server answered 502"
        [row] = job_logs(house, "fetch")
    assert row["stderr"] == PAGE.decode()


def test_broken_json_is_kept(site: BundledSite, web: Pages) -> None:
    web.next("/a", Told(PAGE, headers={"Content-Type": "application/json"}))
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert "broken JSON: Expecting value" in done.answer["error"]
    assert done.stderr == PAGE.decode()


@pytest.mark.parametrize(
    "told",
    [Told(b"x" * 5000, 503), Told(b"x", 503, {"Content-Encoding": "gzip"})],
    ids=["long", "compressed"],
)
def test_a_refusal_whose_body_is_no_good_is_still_that_refusal(
    site: BundledSite, web: Pages, told: Told
) -> None:
    web.next("/a", told)
    site.use("fetch", {"url": web.at("/a"), "max_body": "1KB", **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert (done.answer["error"], done.answer["retry"]) == ("the server answered 503", True)
    assert len(done.stderr) <= 1024


def test_a_server_that_repeats_what_it_was_sent_betrays_nothing(
    site: BundledSite, web: Pages
) -> None:
    def repeats(asked: Asked) -> Told:
        return Told({"url": [asked.path, dict(asked.query)], "headers": dict(asked.headers)}, 400)

    path = f"/{SECRET}-in-its-path"
    web.next(path, repeats)
    url = web.at(f"{path}?key={SECRET}-in/the?query")
    headers = {"Cookie": f"session={SECRET}-cookie", "X-Key": f"{SECRET}-header"}
    site.use("fetch", {"url": url, "username": "me", "password": f"{SECRET}-password",
                       "headers": headers, **LOOPBACK})  # fmt: skip
    done = site.direct("fetch", "poll")
    assert done.stderr.count("[REDACTED]") == 5
    assert SECRET not in done.stderr
    assert b64encode(f"me:{SECRET}-password".encode()).decode() not in done.stderr


def test_a_name_without_an_address_says_what_the_resolver_said(site: BundledSite) -> None:
    site.use("fetch", {"url": "https://name.invalid/"})
    error = site.direct("fetch", "poll").answer["error"]
    assert error.startswith("name.invalid has no address that could be found: ")
    assert not error.endswith(": ")


# Providers


def test_what_withings_says_is_kept(site: BundledSite, withings: Withings) -> None:
    connect_withings(site, withings, client_secret="a-wrong-one")
    done = site.direct("withings", "poll")
    assert "status 503" in done.answer["error"]
    assert done.stderr == "Invalid Params: invalid client_secret"


def test_what_garmin_says_is_kept(site: BundledSite, garmin: Garmin) -> None:
    connect_garmin(site, garmin, refresh_token="canary-spent")
    done = site.direct("garmin", "poll")
    assert "no longer accepts these tokens (400)" in done.answer["error"]
    assert json.loads(done.stderr) == {"error": "invalid_grant"}


def test_what_google_says_is_kept(site: BundledSite, google: Google) -> None:
    connect_google(site, google, client_secret="a-wrong-one")
    done = site.direct("google-calendar", "poll")
    assert "does not accept the client: invalid_client" in done.answer["error"]
    assert json.loads(done.stderr) == {"error": "invalid_client"}


def test_a_provider_that_repeats_what_it_was_sent_betrays_nothing(
    site: BundledSite, garmin: Garmin
) -> None:
    def repeats(asked: Asked) -> Told:
        return Told({"form": dict(asked.form), "headers": dict(asked.headers)}, 503)

    connect_garmin(site, garmin)
    token = site.settings["plugins"]["garmin"]["config"]["refresh_token"]
    garmin.next("/di-oauth2-service/oauth/token", repeats)
    done = site.direct("garmin", "poll")
    assert "[REDACTED]" in done.stderr
    assert token not in done.stderr


def test_the_body_of_a_success_is_never_quoted() -> None:
    """A token that is new may stand in it."""
    web = inside("withings", "run").Reply
    assert web("host", 200, {}, PAGE).quoted([]) == ""
    assert web("host", 400, {}, PAGE).quoted([]) == PAGE.decode()


def test_a_failure_after_tokens_were_renewed_keeps_what_was_said(
    site: BundledSite, withings: Withings
) -> None:
    connect_withings(site, withings)
    withings.next("/measure", *[Told(PAGE, 502)] * 3)
    answer = site.direct("withings", "poll").answer
    assert answer["status"] == "ok"
    assert PAGE.decode() in [line["message"] for line in answer["logs"]]


def test_a_credentials_file_that_cannot_be_read_says_why(site: BundledSite) -> None:
    site.use("google-calendar", {"credentials_file": "/no/such/file"})
    error = site.direct("google-calendar", "poll").answer["error"]
    assert error == "config.credentials_file cannot be read: No such file or directory"


@pytest.mark.parametrize("body", [PAGE, b'{"unexpected": "the cache is on fire"}'])
def test_a_chat_that_explains_itself_otherwise_is_quoted(
    site: BundledSite, town: Town, body: bytes
) -> None:
    town.provider("ntfy").next("/", Told(body, 502))
    site.use("notify", {"channels": [town.settings("ntfy")]})
    error = site.direct("notify", "handle", payload={"text": "hello"}).answer["error"]
    assert "answered 502" in error
    assert "the cache is on fire" in error


# Files


def test_a_file_that_may_not_be_read_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "letter").write_text("dear")
    watch = inside("folder-watch", "run")
    hasher = watch.Hasher(
        0, SimpleNamespace(largest=100), SimpleNamespace(remaining=lambda: 60.0)
    )  # fmt: skip

    def refuse(root: int, path: str) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(watch, "open_below", refuse)
    with pytest.raises(watch.Changing):
        hasher("letter")
    assert hasher.refused == ["letter"]


def test_weigh_ins_that_cannot_be_read_are_counted(site: BundledSite, garmin: Garmin) -> None:
    connect_garmin(site, garmin)
    garmin.next("/weight-service/weight/dateRange", Told({"dateWeightList": [None, {"date": 1}]}))
    answer = site.direct("garmin", "poll").answer
    assert {"level": "warn", "message": "weigh-ins that could not be read: 2"} in answer["logs"]


# Everybody


def test_what_was_said_is_bounded_before_it_is_written() -> None:
    body = "def poll(r): raise Failure('f', said='x' * 200_000)\nserve({'poll': poll})"
    _, _, said = served(body, POLL)
    assert len(said) == KEPT_BY_THE_GATEWAY


@pytest.mark.parametrize("secret", ["se/cret-value", 'quo"ted-value', "ümlaut-value"])
@pytest.mark.parametrize(
    "written",
    [lambda s: s, json.dumps, lambda s: json.dumps(s, ensure_ascii=False),
     lambda s: s.replace("/", "\\/")],
    ids=["plain", "json", "json as it is", "json of PHP"],
)  # fmt: skip
def test_a_secret_is_found_however_it_is_written(secret: str, written: Any) -> None:
    shown = quoting.hidden(f"a {written(secret)} b", [secret])
    assert "value" not in shown
    assert shown.startswith("a ")
    assert shown.endswith(" b")
