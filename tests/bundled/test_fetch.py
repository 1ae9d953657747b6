"""The plugin `fetch` with a web server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bundled.bundled_site import PLUGINS, BundledSite, ledger_text, list_events
from tests.bundled.fakes.pages import Page, Pages
from tests.bundled.fakes.server import FakeReply, ReceivedRequest
from tests.bundled.load_module import load_module
from tests.engine.receiver import CertificateAuthority
from tests.engine.site import Running

LOOPBACK = {"allowed_networks": ["127.0.0.0/8"]}
TOKEN = "canary-fetch-bearer-token"
SOON = {"max_attempts": 3, "backoff_base": "10ms"}


@pytest.fixture
def web() -> Iterator[Pages]:
    with Pages() as pages:
        pages.pages["/a"] = Page(b'{"n": 1}', "application/json", etag='"1"')
        yield pages


def list_payloads(running: Running) -> list[dict[str, Any]]:
    return [event["payload"] for event in list_events(running, "fetch")]


def test_ssrf_module_is_identical_to_that_of_the_gateway() -> None:
    own = PLUGINS.parent / "src" / "ductile" / "core" / "delivery" / "ssrf.py"
    assert (PLUGINS / "lib" / "ssrf.py").read_bytes() == own.read_bytes()


# Polling


def test_resource_is_emitted_when_it_changes(site: BundledSite, web: Pages) -> None:
    site.use("fetch", {"url": web.at("/a"), "name": "prices", "bearer_token": TOKEN, **LOOPBACK})
    with site.running() as running:
        assert running.run("fetch")["result"]["result"] == "changed: 8 bytes"
        assert running.run("fetch")["result"]["result"] == "unchanged"
        web.pages["/a"] = Page(b'{"n": 1}', "application/json", etag='"2"')
        assert running.run("fetch")["result"]["result"] == "unchanged"
        web.pages["/a"] = Page(b'{"n": 2}', "application/json", etag='"3"')
        assert running.run("fetch")["result"]["result"] == "changed: 8 bytes"
        payloads = list_payloads(running)
    assert [payload["json"] for payload in payloads] == [{"n": 1}, {"n": 2}]
    assert payloads[0]["name"] == "prices"
    assert payloads[0]["host"] == f"127.0.0.1:{web.port}"
    matches = [request.headers.get("if-none-match") for request in web.requests]
    assert matches == [None, '"1"', '"1"', '"2"']
    assert {request.bearer for request in web.requests} == {TOKEN}


def test_last_modified_is_used_without_an_etag(site: BundledSite, web: Pages) -> None:
    modified = "Sun, 08 Feb 2026 10:00:00 GMT"
    web.pages["/t"] = Page("grüß".encode(), modified=modified)
    site.use("fetch", {"url": web.at("/t"), **LOOPBACK})
    with site.running() as running:
        for _ in range(2):
            running.run("fetch")
        [payload] = list_payloads(running)
    assert payload["body"] == "grüß"
    assert web.requests[-1].headers["if-modified-since"] == modified


def test_changed_url_discards_the_stored_state(site: BundledSite, web: Pages) -> None:
    web.pages["/b"] = Page(b'{"n": 1}', "application/json", etag='"1"')
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    state = site.direct("fetch", "poll").response["state_updates"]
    site.use("fetch", {"url": web.at("/b"), **LOOPBACK})
    again = site.direct("fetch", "poll", state=state).response
    assert again["events"][0]["type"] == "fetch.changed"
    assert "if-none-match" not in web.requests[-1].headers


def test_binary_body_is_emitted_in_base64(site: BundledSite, web: Pages) -> None:
    web.pages["/i"] = Page(b"\x89PNG\xff", "image/png")
    site.use("fetch", {"url": web.at("/i"), **LOOPBACK})
    payload = site.direct("fetch", "poll").response["events"][0]["payload"]
    assert payload["body_base64"] == "iVBOR/8="
    assert "body" not in payload


# Events


def test_values_of_an_event_are_used_in_url_and_body(site: BundledSite, web: Pages) -> None:
    web.pages["/x%2F..%3Fa%3D1/tickets"] = Page(b"")
    config = {
        "url": web.at("/{payload.project}/tickets?q={payload.q|none}"),
        "method": "POST",
        "json": {"title": "{payload.title}", "deep": [{"n": 5, "t": "a{event.type}"}]},
        **LOOPBACK,
    }
    site.use("fetch", config)
    with site.running() as running:
        job = running.run("fetch", "handle", {"project": "x/..?a=1", "title": 'He said "hi"'})
        [payload] = list_payloads(running)
    assert job["status"] == "succeeded"
    [(method, body)] = web.done
    assert method == "POST"
    assert json.loads(body) == {
        "title": 'He said "hi"',
        "deep": [{"n": 5, "t": "aapi.trigger"}],
    }
    assert web.requests[0].query == {"q": "none"}
    assert (payload["status"], payload["json"]) == (201, {"ok": True})


@pytest.mark.parametrize("value", [".", ".."])
def test_value_cannot_change_the_path_of_the_url(site: BundledSite, web: Pages, value: str) -> None:
    site.use("fetch", {"url": web.at("/{payload.x}/a"), **LOOPBACK})
    done = site.direct("fetch", "handle", payload={"x": value})
    assert done.response["retry"] is False
    assert web.requests == []


def test_url_from_an_event_gets_no_credentials(site: BundledSite, web: Pages) -> None:
    site.use("fetch", {"url": "{payload.url}", "bearer_token": TOKEN, **LOOPBACK})
    assert site.direct("fetch", "handle", payload={"url": web.at("/a")}).code == 78
    site.use("fetch", {"url": "{payload.url}", **LOOPBACK})
    done = site.direct("fetch", "handle", payload={"url": web.at("/a")})
    assert done.response["events"][0]["payload"]["json"] == {"n": 1}
    assert len(web.requests) == 1


# Allowed hosts


@pytest.mark.parametrize(
    "url",
    [
        "{http}/a",
        "http://localhost:{port}/a",
        "http://2130706433:{port}/a",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
    ],
)
def test_private_addresses_are_rejected(site: BundledSite, web: Pages, url: str) -> None:
    whole = url.replace("{http}", web.at("")).replace("{port}", str(web.port))
    site.use("fetch", {"url": whole})
    done = site.direct("fetch", "poll")
    assert done.response["retry"] is False
    assert web.requests == []


def test_health_reports_a_url_that_is_not_allowed(site: BundledSite, web: Pages) -> None:
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    assert site.direct("fetch", "health").response["status"] == "ok"
    site.use("fetch", {"url": "https://localhost/a"})
    assert site.direct("fetch", "health").response["status"] == "error"


def test_plain_http_to_public_hosts_must_be_allowed(site: BundledSite) -> None:
    site.use("fetch", {"url": "http://192.0.32.7/"})
    done = site.direct("fetch", "poll")
    assert "without TLS" in done.response["error"]


def test_name_with_any_private_address_is_rejected(site: BundledSite, web: Pages) -> None:
    site.mutate(
        "fetch/client.py",
        "socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)",
        '[(0, 0, 0, "", ("127.0.0.1", 0)), (0, 0, 0, "", ("10.1.1.1", 0))]',
    )
    site.use("fetch", {"url": web.at("/a", "localhost"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert "not in a network of allowed_networks" in done.response["error"]
    assert web.requests == []


def test_name_is_resolved_once(site: BundledSite, web: Pages) -> None:
    """The connection goes to the resolved address: the name does not exist."""
    site.mutate(
        "fetch/client.py",
        "socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)",
        '[(0, 0, 0, "", ("127.0.0.1", 0))]',
    )
    site.use("fetch", {"url": web.at("/a", "rebound.example"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert done.response["status"] == "ok"
    assert web.requests[0].headers["host"] == f"rebound.example:{web.port}"


def test_proxy_variables_are_ignored(site: BundledSite, web: Pages) -> None:
    dead = dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    site.environ |= dead
    site.settings["service"]["plugin_env_passthrough"] = list(dead)
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    with site.running() as running:
        assert running.run("fetch")["status"] == "succeeded"


def test_redirects_are_followed_only_if_configured(site: BundledSite, web: Pages) -> None:
    web.next("/r", *[FakeReply(b"", 302, {"Location": "/a"})] * 2)
    site.use("fetch", {"url": web.at("/r"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert (done.response["error"], done.response["retry"]) == (
        "the server returned status 302",
        False,
    )
    site.use("fetch", {"url": web.at("/r"), "max_redirects": 1, **LOOPBACK})
    assert site.direct("fetch", "poll").response["status"] == "ok"


def test_redirect_is_checked_and_gets_no_credentials(site: BundledSite, web: Pages) -> None:
    config = {"url": web.at("/r"), "max_redirects": 3, "bearer_token": TOKEN, **LOOPBACK}
    config["headers"] = {"X-Api-Key": TOKEN}
    with Pages() as other:
        other.pages["/b"] = Page(b"there")
        web.next("/r", FakeReply(b"", 302, {"Location": other.at("/b")}))
        site.use("fetch", config)
        assert site.direct("fetch", "poll").response["status"] == "ok"
        assert TOKEN not in json.dumps(dict(other.requests[0].headers))
    web.next("/r", FakeReply(b"", 302, {"Location": "http://169.254.169.254/"}))
    done = site.direct("fetch", "poll")
    assert "not in a network of allowed_networks" in done.response["error"]
    web.next("/r", *[FakeReply(b"", 302, {"Location": "/r"})] * 9)
    assert "redirects more than 3 times" in site.direct("fetch", "poll").response["error"]


def test_certificate_is_verified(site: BundledSite, authority: CertificateAuthority) -> None:
    with Pages(authority.server()) as web:
        web.pages["/a"] = Page(b"safe")
        config = {"url": web.at("/a", "localhost"), "allowed_networks": ["127.0.0.0/8", "::1/128"]}
        site.use("fetch", config)
        done = site.direct("fetch", "poll")
        assert "the certificate of localhost is not valid" in done.response["error"]
        assert web.requests == []
        site.use("fetch", {**config, "ca_file": str(authority.certificate)})
        assert site.direct("fetch", "poll").response["status"] == "ok"


# Errors


@pytest.mark.parametrize(
    ("reply", "retry", "message"),
    [
        (FakeReply(b"", 404), False, "status 404"),
        (
            FakeReply(b"", 429, {"Retry-After": "120"}),
            True,
            "status 429 and asks to wait for 120 s",
        ),
        (FakeReply(b"", 503), True, "status 503"),
        (FakeReply(b"", 304), False, "status 304"),
        (FakeReply(b"{", headers={"Content-Type": "application/json"}), True, "not valid JSON"),
        (FakeReply(b"[" * 500 + b"]" * 500), True, "not valid JSON"),
        (FakeReply(b'{"n": 99999999999999999999}'), True, "not valid JSON"),
        (FakeReply(b"x" * 2000), False, "more than max_body"),
        (FakeReply(b"x", headers={"Content-Encoding": "gzip"}), False, "compressed"),
    ],
    ids=str,
)
def test_invalid_replies_fail_the_job(
    site: BundledSite, web: Pages, reply: FakeReply, retry: bool, message: str
) -> None:
    web.next("/a", reply)
    site.use("fetch", {"url": web.at("/a"), "max_body": "1KB", **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert message in done.response["error"]
    assert done.response["retry"] is retry


@pytest.mark.parametrize("how", ["hangs", "drips"])
def test_timeout_covers_the_whole_request(site: BundledSite, web: Pages, how: str) -> None:
    web.next("/a", FakeReply(b"{}", **{how: True}))
    site.use("fetch", {"url": web.at("/a"), "timeout": "300ms", **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert "did not reply in time" in done.response["error"]
    assert done.response["retry"] is True


def test_transient_errors_are_retried(site: BundledSite, web: Pages) -> None:
    web.next(
        "/a",
        FakeReply(b"", 502),
        FakeReply(b"<html>", headers={"Content-Type": "application/json"}),
    )
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK}, retry=SOON)
    with site.running() as running:
        assert running.run("fetch")["attempt"] == 3
        assert len(list_payloads(running)) == 1


def test_post_without_a_reply_is_not_sent_again(site: BundledSite, web: Pages) -> None:
    web.pages["/p"] = Page(b"")

    def acts_and_hangs(request: ReceivedRequest) -> FakeReply:
        web.reply_to(request)
        return FakeReply(b"{}", hangs=True)

    web.next("/p", acts_and_hangs)
    config = {"url": web.at("/p"), "method": "POST", "timeout": "300ms", **LOOPBACK}
    site.use("fetch", config, retry=SOON)
    with site.running() as running:
        job = running.run("fetch", "handle", {})
    assert (job["status"], job["attempt"]) == ("failed", 1)
    assert "the server may have processed it" in job["last_error"]
    assert len(web.done) == 1


@pytest.mark.parametrize(("status", "attempts"), [(503, 2), (500, 1)])
def test_post_that_was_not_processed_is_sent_again(
    site: BundledSite, web: Pages, status: int, attempts: int
) -> None:
    web.pages["/p"] = Page(b"")
    web.next("/p", FakeReply(b"", status))
    site.use("fetch", {"url": web.at("/p"), "method": "POST", **LOOPBACK}, retry=SOON)
    with site.running() as running:
        job = running.run("fetch", "handle", {})
    assert job["attempt"] == attempts
    keys = {request.headers["idempotency-key"] for request in web.requests}
    assert len(keys) == 1
    assert len(web.done) == attempts - 1


def test_job_does_not_send_its_request_twice(site: BundledSite, web: Pages) -> None:
    web.pages["/p"] = Page(b"")
    site.use("fetch", {"url": web.at("/p"), "method": "DELETE", "idempotent": False, **LOOPBACK})
    first = site.direct("fetch", "handle").response
    again = site.direct("fetch", "handle", state=first["state_updates"]).response
    assert "events" not in again
    assert len(web.done) == 1


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"method": "BREW"}, "method must be"),
        ({"url": "https://{payload.host}/x"}, "must not contain placeholders"),
        ({"body": "x"}, "not allowed with GET"),
        ({"body": 7, "method": "POST"}, "body must be text"),
        ({"headers": {"Host": "a"}}, "headers must map"),
        ({"headers": {"X": "a\r\nY: b"}}, "headers must map"),
        ({"allowed_networks": ["everywhere"]}, "is not a valid network"),
        ({"timeout": "soon"}, "timeout must be a duration"),
        ({"parse": "xml"}, "parse must be"),
        ({"max_redirects": 99}, "max_redirects must be"),
    ],
)
def test_invalid_configuration_is_rejected(config: dict[str, Any], message: str) -> None:
    module = load_module("fetch", "run")
    with pytest.raises(module.ConfigError, match=message):
        module.Resource({"url": "https://a.example/", **config})


def test_url_with_placeholders_cannot_be_polled(site: BundledSite) -> None:
    site.use("fetch", {"url": "https://a.example/{payload.x}"})
    done = site.direct("fetch", "poll")
    assert done.code == 78
    assert "can only be used by `handle`" in done.response["error"]


def test_secrets_are_not_revealed(site: BundledSite, web: Pages) -> None:
    web.pages["/a"] = Page(b"fine")
    url = web.at(f"/a?key={TOKEN}")
    config = {"url": url, "username": "me", "password": TOKEN, "headers": {"X-Key": TOKEN}}
    site.use("fetch", {**config, **LOOPBACK})
    with site.running() as running:
        assert running.run("fetch")["status"] == "succeeded"
        web.next("/a", FakeReply(b"", 500))
        running.run("fetch")
        assert TOKEN not in ledger_text(running)
    web.next("/a", FakeReply(TOKEN.encode(), 500))
    assert TOKEN not in json.dumps(site.direct("fetch", "poll").response)
