"""The details of failures: output of programs and providers, without secrets."""

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
from tests.bundled.bundled_site import PLUGINS, BundledSite, job_logs
from tests.bundled.fakes.garmin import Garmin
from tests.bundled.fakes.google import Google
from tests.bundled.fakes.pages import Pages
from tests.bundled.fakes.server import FakeReply, ReceivedRequest
from tests.bundled.fakes.withings import Withings
from tests.bundled.load_module import load_module
from tests.bundled.providers import Providers
from tests.bundled.test_lib import POLL, served

sys.path.append(str(PLUGINS / "lib"))
import redact

SECRET = "canary-failure-secret"
MAX_STDERR = 64 * 1024
LOOPBACK = {"allowed_networks": ["127.0.0.0/8"]}
PAGE = b"<h1>Bad Gateway</h1><p>the cache is on fire</p>"


@pytest.fixture
def web() -> Iterator[Pages]:
    with Pages() as pages:
        yield pages


def use_shell(site: BundledSite, script: str, **config: Any) -> None:
    site.use("exec", {"command": ["sh", "-c", script], **config})


def run_failing(site: BundledSite) -> tuple[str, str]:
    """The error and the stderr of one failed run of exec."""
    done = site.direct("exec", "poll")
    assert done.response["status"] == "error", done.response
    return done.response["error"], done.stderr


# Commands


def test_output_of_a_failed_command_is_stored_with_the_attempt(site: BundledSite) -> None:
    use_shell(
        site, "echo begun; echo 'Traceback:' >&2; echo '  line 7' >&2; echo KeyError >&2; exit 1"
    )
    with site.running() as running:
        job = running.run("exec")
        [row] = job_logs(running, "exec")
    assert job["last_error"] == "exit code 1: KeyError"
    assert row["stderr"] == (
        "stdout of the command:\nbegun\n"
        "stderr of the command:\nTraceback:\n  line 7\nKeyError\n"
    )  # fmt: skip


def test_error_has_the_last_line_of_stdout_if_stderr_is_empty(site: BundledSite) -> None:
    use_shell(site, "echo 3 failed; exit 1")
    assert run_failing(site) == ("exit code 1: 3 failed", "stdout of the command:\n3 failed\n")


def test_command_without_output_has_no_details(site: BundledSite) -> None:
    use_shell(site, "exit 1")
    assert run_failing(site) == ("exit code 1", "")


def test_timed_out_command_has_its_output_as_details(site: BundledSite) -> None:
    use_shell(site, "echo step 1; exec sleep 300", timeout="300ms")
    error, details = run_failing(site)
    assert error.endswith(": step 1")
    assert details == "stdout of the command:\nstep 1\n"


@pytest.mark.parametrize(
    ("script", "more", "error"),
    [
        ("echo oops", {}, "not valid JSON"),
        ("echo '[1,2,3,4]'", {"max_output": 4}, "more JSON than"),
    ],
)
def test_output_that_is_not_valid_json_is_stored(
    site: BundledSite, script: str, more: dict[str, Any], error: str
) -> None:
    use_shell(site, f"{script}; echo hint >&2", parse="json", **more)
    message, details = run_failing(site)
    assert error in message
    assert details.startswith("stdout of the command")
    assert details.endswith("stderr of the command:\nhint\n" if not more else "int\n")


def test_ends_of_long_outputs_are_stored(site: BundledSite) -> None:
    """Also if they are not text."""
    noise = "head -c 300000 /dev/zero | tr '\\0' '\\377'"
    use_shell(site, f"{noise}; echo; echo last out; ({noise}; echo; echo last err) >&2; exit 1")
    with site.running() as running:
        running.run("exec")
        [row] = job_logs(running, "exec")
    assert row["last_error"] == "exit code 1: last err"
    assert "last out\nstderr of the command (" in row["stderr"]
    assert row["stderr"].endswith("last err\n")
    assert "bytes before this omitted)" in row["stderr"]
    assert len(row["stderr"].encode()) <= MAX_STDERR


def test_stored_output_is_limited_by_max_output(site: BundledSite) -> None:
    use_shell(site, "echo 0123456789; exit 1", max_output=4)
    assert run_failing(site)[1] == "stdout of the command (7 bytes before this omitted):\n789\n"
    use_shell(site, "echo 0123456789; exit 1", max_output=0)
    assert "789" not in "".join(run_failing(site))


def test_stored_output_of_a_failed_command_has_no_secret(site: BundledSite) -> None:
    script = 'printf "%s\\n" "$PASSWORD" out; echo "err $PASSWORD" >&2; exit 1'
    use_shell(site, script, env={"PASSWORD": SECRET})
    error, details = run_failing(site)
    assert error == "exit code 1: err [REDACTED]"
    assert details == (
        "stdout of the command:\n[REDACTED]\nout\nstderr of the command:\nerr [REDACTED]\n"
    )


@pytest.mark.parametrize("kept", [1, 3, 4, 10, len(SECRET) - 1])
def test_truncated_secret_is_removed_completely(kept: int) -> None:
    stream = load_module("exec", "process").Stream(kept + 2)
    stream.append(f"ab{SECRET}".encode())
    assert stream.text([SECRET]) == "ab" + (SECRET[:kept] if kept < redact.SHORTEST_PART else "")
    stream = load_module("exec", "process").Stream(kept + 2)
    stream.append(f"{SECRET}yz".encode())
    assert stream.end([SECRET]) == (
        SECRET[-kept:] if kept < redact.SHORTEST_PART else ""
    ) + "yz"  # fmt: skip


def test_error_names_a_missing_directory(site: BundledSite) -> None:
    site.use("exec", {"command": ["true"], "cwd": "/no/such/folder"})
    error, _ = run_failing(site)
    assert error == "'true' could not be started in /no/such/folder: No such file or directory"


# Web servers


def test_body_of_an_error_reply_is_stored(site: BundledSite, web: Pages) -> None:
    web.next("/a", FakeReply(PAGE, 502))
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    with site.running() as running:
        assert running.run("fetch")["last_error"] == "the server returned status 502"
        [row] = job_logs(running, "fetch")
    assert row["stderr"] == PAGE.decode()


def test_body_with_invalid_json_is_stored(site: BundledSite, web: Pages) -> None:
    web.next("/a", FakeReply(PAGE, headers={"Content-Type": "application/json"}))
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert "not valid JSON: Expecting value" in done.response["error"]
    assert done.stderr == PAGE.decode()


@pytest.mark.parametrize(
    "reply",
    [FakeReply(b"x" * 5000, 503), FakeReply(b"x", 503, {"Content-Encoding": "gzip"})],
    ids=["long", "compressed"],
)
def test_error_status_is_reported_even_if_its_body_is_invalid(
    site: BundledSite, web: Pages, reply: FakeReply
) -> None:
    web.next("/a", reply)
    site.use("fetch", {"url": web.at("/a"), "max_body": "1KB", **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert (done.response["error"], done.response["retry"]) == (
        "the server returned status 503",
        True,
    )
    assert len(done.stderr) <= 1024


def test_server_that_echoes_the_request_does_not_leak_secrets(
    site: BundledSite, web: Pages
) -> None:
    def echo(request: ReceivedRequest) -> FakeReply:
        return FakeReply(
            {"url": [request.path, dict(request.query)], "headers": dict(request.headers)}, 400
        )

    path = f"/{SECRET}-in-its-path"
    web.next(path, echo)
    url = web.at(f"{path}?key={SECRET}-in/the?query")
    headers = {"Cookie": f"session={SECRET}-cookie", "X-Key": f"{SECRET}-header"}
    site.use("fetch", {"url": url, "username": "me", "password": f"{SECRET}-password",
                       "headers": headers, **LOOPBACK})  # fmt: skip
    done = site.direct("fetch", "poll")
    assert done.stderr.count("[REDACTED]") == 5
    assert SECRET not in done.stderr
    assert b64encode(f"me:{SECRET}-password".encode()).decode() not in done.stderr


def test_resolver_error_is_reported(site: BundledSite) -> None:
    site.use("fetch", {"url": "https://name.invalid/"})
    error = site.direct("fetch", "poll").response["error"]
    assert error.startswith("name.invalid cannot be resolved: ")
    assert not error.endswith(": ")


# Providers


def test_error_of_withings_is_stored(site: BundledSite, withings: Withings) -> None:
    connect_withings(site, withings, client_secret="a-wrong-one")
    done = site.direct("withings", "poll")
    assert "status 503" in done.response["error"]
    assert done.stderr == "Invalid Params: invalid client_secret"


def test_error_of_garmin_is_stored(site: BundledSite, garmin: Garmin) -> None:
    connect_garmin(site, garmin, refresh_token="canary-spent")
    done = site.direct("garmin", "poll")
    assert "Garmin rejects the tokens (status 400)" in done.response["error"]
    assert json.loads(done.stderr) == {"error": "invalid_grant"}


def test_error_of_google_is_stored(site: BundledSite, google: Google) -> None:
    connect_google(site, google, client_secret="a-wrong-one")
    done = site.direct("google-calendar", "poll")
    assert "rejects the client: invalid_client" in done.response["error"]
    assert json.loads(done.stderr) == {"error": "invalid_client"}


def test_provider_that_echoes_the_request_does_not_leak_secrets(
    site: BundledSite, garmin: Garmin
) -> None:
    def echo(request: ReceivedRequest) -> FakeReply:
        return FakeReply({"form": dict(request.form), "headers": dict(request.headers)}, 503)

    connect_garmin(site, garmin)
    token = site.settings["plugins"]["garmin"]["config"]["refresh_token"]
    garmin.next("/di-oauth2-service/oauth/token", echo)
    done = site.direct("garmin", "poll")
    assert "[REDACTED]" in done.stderr
    assert token not in done.stderr


def test_body_of_a_successful_reply_is_never_quoted() -> None:
    """It may contain a new token."""
    reply = load_module("withings", "run").Reply
    assert reply("host", 200, {}, PAGE).quote([]) == ""
    assert reply("host", 400, {}, PAGE).quote([]) == PAGE.decode()


def test_failure_after_a_token_refresh_logs_the_error_of_the_provider(
    site: BundledSite, withings: Withings
) -> None:
    connect_withings(site, withings)
    withings.next("/measure", *[FakeReply(PAGE, 502)] * 3)
    response = site.direct("withings", "poll").response
    assert response["status"] == "ok"
    assert PAGE.decode() in [line["message"] for line in response["logs"]]


def test_unreadable_credentials_file_is_reported(site: BundledSite) -> None:
    site.use("google-calendar", {"credentials_file": "/no/such/file"})
    error = site.direct("google-calendar", "poll").response["error"]
    assert error == "config.credentials_file cannot be read: No such file or directory"


@pytest.mark.parametrize("body", [PAGE, b'{"unexpected": "the cache is on fire"}'])
def test_unexpected_error_body_of_a_chat_is_quoted(
    site: BundledSite, providers: Providers, body: bytes
) -> None:
    providers.provider("ntfy").next("/", FakeReply(body, 502))
    site.use("notify", {"channels": [providers.settings("ntfy")]})
    error = site.direct("notify", "handle", payload={"text": "hello"}).response["error"]
    assert "status 502" in error
    assert "the cache is on fire" in error


# Files


def test_unreadable_file_causes_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "letter").write_text("text")
    watch = load_module("folder-watch", "run")
    hasher = watch.Hasher(
        0, SimpleNamespace(largest=100), SimpleNamespace(remaining=lambda: 60.0)
    )  # fmt: skip

    def deny(root: int, path: str) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(watch, "open_below", deny)
    with pytest.raises(watch.FileChanging):
        hasher("letter")
    assert hasher.refused == ["letter"]


def test_invalid_weigh_ins_are_counted(site: BundledSite, garmin: Garmin) -> None:
    connect_garmin(site, garmin)
    garmin.next(
        "/weight-service/weight/dateRange", FakeReply({"dateWeightList": [None, {"date": 1}]})
    )
    response = site.direct("garmin", "poll").response
    assert {"level": "warn", "message": "2 weigh-ins are not valid and were skipped"} in response[
        "logs"
    ]


# All plugins


def test_details_are_limited_in_size() -> None:
    body = "def poll(r): raise Failure('f', details='x' * 200_000)\nserve({'poll': poll})"
    _, _, details = served(body, POLL)
    assert len(details) == MAX_STDERR


@pytest.mark.parametrize("secret", ["se/cret-value", 'quo"ted-value', "ümlaut-value"])
@pytest.mark.parametrize(
    "written",
    [lambda s: s, json.dumps, lambda s: json.dumps(s, ensure_ascii=False),
     lambda s: s.replace("/", "\\/")],
    ids=["plain", "json", "json as it is", "json of PHP"],
)  # fmt: skip
def test_secret_is_redacted_in_every_encoding(secret: str, written: Any) -> None:
    text = redact.redact(f"a {written(secret)} b", [secret])
    assert "value" not in text
    assert text.startswith("a ")
    assert text.endswith(" b")
