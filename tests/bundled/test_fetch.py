"""The plugin `fetch` through a real gateway, against a web server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bundled.house import PLUGINS, BundledSite, emitted, ledger_text
from tests.bundled.standins.pages import Page, Pages
from tests.bundled.standins.server import Asked, Told
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


def changes(house: Running) -> list[dict[str, Any]]:
    return [event["payload"] for event in emitted(house, "fetch")]


def test_the_address_rule_is_the_gateways_own() -> None:
    own = PLUGINS.parent / "src" / "ductile" / "core" / "delivery" / "ssrf.py"
    assert (PLUGINS / "lib" / "address.py").read_bytes() == own.read_bytes()


# Polling


def test_a_resource_is_told_when_it_changes(site: BundledSite, web: Pages) -> None:
    site.use("fetch", {"url": web.at("/a"), "name": "prices", "bearer_token": TOKEN, **LOOPBACK})
    with site.running() as house:
        assert house.run("fetch")["result"]["result"] == "changed: 8 bytes"
        assert house.run("fetch")["result"]["result"] == "unchanged"
        web.pages["/a"] = Page(b'{"n": 1}', "application/json", etag='"2"')
        assert house.run("fetch")["result"]["result"] == "unchanged"
        web.pages["/a"] = Page(b'{"n": 2}', "application/json", etag='"3"')
        assert house.run("fetch")["result"]["result"] == "changed: 8 bytes"
        told = changes(house)
    assert [payload["json"] for payload in told] == [{"n": 1}, {"n": 2}]
    assert told[0]["name"] == "prices"
    assert told[0]["host"] == f"127.0.0.1:{web.port}"
    matches = [asked.headers.get("if-none-match") for asked in web.asked]
    assert matches == [None, '"1"', '"1"', '"2"']
    assert {asked.bearer for asked in web.asked} == {TOKEN}


def test_without_a_tag_the_time_is_asked_for(site: BundledSite, web: Pages) -> None:
    modified = "Sun, 08 Feb 2026 10:00:00 GMT"
    web.pages["/t"] = Page("grüß".encode(), modified=modified)
    site.use("fetch", {"url": web.at("/t"), **LOOPBACK})
    with site.running() as house:
        for _ in range(2):
            house.run("fetch")
        [payload] = changes(house)
    assert payload["body"] == "grüß"
    assert web.asked[-1].headers["if-modified-since"] == modified


def test_another_url_is_another_resource(site: BundledSite, web: Pages) -> None:
    web.pages["/b"] = Page(b'{"n": 1}', "application/json", etag='"1"')
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    state = site.direct("fetch", "poll").answer["state_updates"]
    site.use("fetch", {"url": web.at("/b"), **LOOPBACK})
    again = site.direct("fetch", "poll", state=state).answer
    assert again["events"][0]["type"] == "fetch.changed"
    assert "if-none-match" not in web.asked[-1].headers


def test_bytes_that_are_no_text_come_whole(site: BundledSite, web: Pages) -> None:
    web.pages["/i"] = Page(b"\x89PNG\xff", "image/png")
    site.use("fetch", {"url": web.at("/i"), **LOOPBACK})
    payload = site.direct("fetch", "poll").answer["events"][0]["payload"]
    assert payload["body_base64"] == "iVBOR/8="
    assert "body" not in payload


# For events


def test_an_events_values_are_parts_of_the_url_and_the_body(site: BundledSite, web: Pages) -> None:
    web.pages["/x%2F..%3Fa%3D1/tickets"] = Page(b"")
    config = {
        "url": web.at("/{payload.project}/tickets?q={payload.q|none}"),
        "method": "POST",
        "json": {"title": "{payload.title}", "deep": [{"n": 5, "t": "a{event.type}"}]},
        **LOOPBACK,
    }
    site.use("fetch", config)
    with site.running() as house:
        job = house.run("fetch", "handle", {"project": "x/..?a=1", "title": 'He said "hi"'})
        [payload] = changes(house)
    assert job["status"] == "succeeded"
    [(method, body)] = web.done
    assert method == "POST"
    assert json.loads(body) == {
        "title": 'He said "hi"',
        "deep": [{"n": 5, "t": "aapi.trigger"}],
    }
    assert web.asked[0].query == {"q": "none"}
    assert (payload["status"], payload["json"]) == (201, {"ok": True})


@pytest.mark.parametrize("value", [".", ".."])
def test_a_value_cannot_lead_out_of_its_place(site: BundledSite, web: Pages, value: str) -> None:
    site.use("fetch", {"url": web.at("/{payload.x}/a"), **LOOPBACK})
    done = site.direct("fetch", "handle", payload={"x": value})
    assert done.answer["retry"] is False
    assert web.asked == []


def test_a_url_that_an_event_names_gets_no_credentials(site: BundledSite, web: Pages) -> None:
    site.use("fetch", {"url": "{payload.url}", "bearer_token": TOKEN, **LOOPBACK})
    assert site.direct("fetch", "handle", payload={"url": web.at("/a")}).code == 78
    site.use("fetch", {"url": "{payload.url}", **LOOPBACK})
    done = site.direct("fetch", "handle", payload={"url": web.at("/a")})
    assert done.answer["events"][0]["payload"]["json"] == {"n": 1}
    assert len(web.asked) == 1


# Where it may connect to


@pytest.mark.parametrize(
    "url",
    [
        "{http}/a",
        "http://localhost:{port}/a",
        "http://[::1]:{port}/a",
        "http://127.1:{port}/a",
        "http://2130706433:{port}/a",
        "http://0x7f000001:{port}/a",
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/",
        "http://[::ffff:127.0.0.1]:{port}/a",
        "http://user:pass@127.0.0.1:{port}/a",
        "file:///etc/passwd",
        "gopher://127.0.0.1:{port}/",
    ],
)
def test_only_public_addresses_are_reached(site: BundledSite, web: Pages, url: str) -> None:
    whole = url.replace("{http}", web.at("")).replace("{port}", str(web.port))
    site.use("fetch", {"url": whole})
    done = site.direct("fetch", "poll")
    assert done.answer["retry"] is False
    assert web.asked == []


def test_health_reports_a_url_that_is_not_allowed(site: BundledSite, web: Pages) -> None:
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    assert site.direct("fetch", "health").answer["status"] == "ok"
    site.use("fetch", {"url": "https://localhost/a"})
    assert site.direct("fetch", "health").answer["status"] == "error"


def test_http_to_the_world_has_to_be_allowed(site: BundledSite) -> None:
    site.use("fetch", {"url": "http://192.0.32.7/"})
    done = site.direct("fetch", "poll")
    assert "without TLS" in done.answer["error"]


def test_a_name_is_judged_by_all_its_addresses(site: BundledSite, web: Pages) -> None:
    """`localhost` is 127.0.0.1 and ::1 here or there; only one of them is allowed."""
    site.mutate(
        "fetch/client.py",
        "socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)",
        '[(0, 0, 0, "", ("127.0.0.1", 0)), (0, 0, 0, "", ("10.1.1.1", 0))]',
    )
    site.use("fetch", {"url": web.at("/a", "localhost"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert "forbidden address" in done.answer["error"]
    assert web.asked == []


def test_a_name_is_looked_up_once(site: BundledSite, web: Pages) -> None:
    """The connection goes to what was looked up: nobody else knows this name."""
    site.mutate(
        "fetch/client.py",
        "socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)",
        '[(0, 0, 0, "", ("127.0.0.1", 0))]',
    )
    site.use("fetch", {"url": web.at("/a", "rebound.example"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert done.answer["status"] == "ok"
    assert web.asked[0].headers["host"] == f"rebound.example:{web.port}"


def test_proxies_of_the_environment_are_not_used(site: BundledSite, web: Pages) -> None:
    dead = dict.fromkeys(("http_proxy", "HTTP_PROXY", "ALL_PROXY"), "http://127.0.0.1:9")
    site.environ |= dead
    site.settings["service"]["plugin_env_passthrough"] = list(dead)
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK})
    with site.running() as house:
        assert house.run("fetch")["status"] == "succeeded"


def test_redirects_are_followed_only_where_that_is_said(site: BundledSite, web: Pages) -> None:
    web.next("/r", *[Told(b"", 302, {"Location": "/a"})] * 2)
    site.use("fetch", {"url": web.at("/r"), **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert (done.answer["error"], done.answer["retry"]) == ("the server answered 302", False)
    site.use("fetch", {"url": web.at("/r"), "max_redirects": 1, **LOOPBACK})
    assert site.direct("fetch", "poll").answer["status"] == "ok"


def test_a_redirect_is_judged_anew_and_takes_no_credentials_along(
    site: BundledSite, web: Pages
) -> None:
    config = {"url": web.at("/r"), "max_redirects": 3, "bearer_token": TOKEN, **LOOPBACK}
    config["headers"] = {"X-Api-Key": TOKEN}
    with Pages() as other:
        other.pages["/b"] = Page(b"there")
        web.next("/r", Told(b"", 302, {"Location": other.at("/b")}))
        site.use("fetch", config)
        assert site.direct("fetch", "poll").answer["status"] == "ok"
        assert TOKEN not in json.dumps(dict(other.asked[0].headers))
    web.next("/r", Told(b"", 302, {"Location": "http://169.254.169.254/"}))
    done = site.direct("fetch", "poll")
    assert "forbidden address" in done.answer["error"]
    web.next("/r", *[Told(b"", 302, {"Location": "/r"})] * 9)
    assert "redirects more than 3 times" in site.direct("fetch", "poll").answer["error"]


def test_tls_is_verified(site: BundledSite, authority: CertificateAuthority) -> None:
    with Pages(authority.server()) as web:
        web.pages["/a"] = Page(b"safe")
        config = {"url": web.at("/a", "localhost"), "allowed_networks": ["127.0.0.0/8", "::1/128"]}
        site.use("fetch", config)
        done = site.direct("fetch", "poll")
        assert "is not who it says" in done.answer["error"]
        assert web.asked == []
        site.use("fetch", {**config, "ca_file": str(authority.certificate)})
        assert site.direct("fetch", "poll").answer["status"] == "ok"


# Trouble


@pytest.mark.parametrize(
    ("told", "retry", "said"),
    [
        (Told(b"", 404), False, "answered 404"),
        (Told(b"", 401), False, "answered 401"),
        (Told(b"", 429, {"Retry-After": "120"}), True, "answered 429, asking us to wait 120 s"),
        (Told(b"", 503), True, "answered 503"),
        (Told(b"", 304), False, "answered 304"),
        (Told(b"{", headers={"Content-Type": "application/json"}), True, "broken JSON"),
        (Told(b"[" * 500 + b"]" * 500), True, "broken JSON"),
        (Told(b'{"n": 99999999999999999999}'), True, "broken JSON"),
        (Told(b"x" * 2000), False, "more than max_body"),
        (Told(b"x", headers={"Content-Encoding": "gzip"}), False, "compressed"),
    ],
    ids=str,
)
def test_answers_that_are_no_good(
    site: BundledSite, web: Pages, told: Told, retry: bool, said: str
) -> None:
    web.next("/a", told)
    site.use("fetch", {"url": web.at("/a"), "max_body": "1KB", **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert said in done.answer["error"]
    assert done.answer["retry"] is retry


@pytest.mark.parametrize("how", ["hangs", "drips"])
def test_one_clock_runs_over_all_of_it(site: BundledSite, web: Pages, how: str) -> None:
    web.next("/a", Told(b"{}", **{how: True}))
    site.use("fetch", {"url": web.at("/a"), "timeout": "300ms", **LOOPBACK})
    done = site.direct("fetch", "poll")
    assert "did not answer in time" in done.answer["error"]
    assert done.answer["retry"] is True


def test_the_gateway_tries_again_what_may_pass(site: BundledSite, web: Pages) -> None:
    web.next("/a", Told(b"", 502), Told(b"<html>", headers={"Content-Type": "application/json"}))
    site.use("fetch", {"url": web.at("/a"), **LOOPBACK}, retry=SOON)
    with site.running() as house:
        assert house.run("fetch")["attempt"] == 3
        assert len(changes(house)) == 1


def test_a_post_whose_answer_is_lost_is_not_sent_again(site: BundledSite, web: Pages) -> None:
    web.pages["/p"] = Page(b"")

    def acts_and_hangs(asked: Asked) -> Told:
        web.answer(asked)
        return Told(b"{}", hangs=True)

    web.next("/p", acts_and_hangs)
    config = {"url": web.at("/p"), "method": "POST", "timeout": "300ms", **LOOPBACK}
    site.use("fetch", config, retry=SOON)
    with site.running() as house:
        job = house.run("fetch", "handle", {})
    assert (job["status"], job["attempt"]) == ("failed", 1)
    assert "may have been acted on" in job["last_error"]
    assert len(web.done) == 1


@pytest.mark.parametrize(("status", "attempts"), [(429, 2), (503, 2), (500, 1)])
def test_a_post_that_was_surely_not_acted_on_is_sent_again(
    site: BundledSite, web: Pages, status: int, attempts: int
) -> None:
    web.pages["/p"] = Page(b"")
    web.next("/p", Told(b"", status))
    site.use("fetch", {"url": web.at("/p"), "method": "POST", **LOOPBACK}, retry=SOON)
    with site.running() as house:
        job = house.run("fetch", "handle", {})
    assert job["attempt"] == attempts
    keys = {asked.headers["idempotency-key"] for asked in web.asked}
    assert len(keys) == 1
    assert len(web.done) == attempts - 1


def test_a_job_that_has_acted_does_not_act_again(site: BundledSite, web: Pages) -> None:
    web.pages["/p"] = Page(b"")
    site.use("fetch", {"url": web.at("/p"), "method": "DELETE", "idempotent": False, **LOOPBACK})
    first = site.direct("fetch", "handle").answer
    again = site.direct("fetch", "handle", state=first["state_updates"]).answer
    assert "events" not in again
    assert len(web.done) == 1


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"method": "BREW"}, "method must be"),
        ({"url": "https://{payload.host}/x"}, "host must be written out"),
        ({"body": "x"}, "GET takes no body"),
        ({"body": 7, "method": "POST"}, "body must be text"),
        ({"headers": {"Host": "a"}}, "headers must be"),
        ({"headers": {"X": "a\r\nY: b"}}, "headers must be"),
        ({"allowed_networks": ["everywhere"]}, "is no network"),
        ({"timeout": "soon"}, "timeout must be a duration"),
        ({"parse": "xml"}, "parse must be"),
        ({"max_redirects": 99}, "max_redirects must be"),
        ({"url": "https://a.example/{payload.x}"}, "only be fetched for an event"),
    ],
)
def test_a_config_that_cannot_work_is_refused(
    site: BundledSite, config: dict[str, Any], said: str
) -> None:
    site.use("fetch", {"url": "https://a.example/", **config})
    done = site.direct("fetch", "poll")
    assert done.code == 78
    assert said in done.answer["error"]


def test_no_secret_is_told(site: BundledSite, web: Pages) -> None:
    web.pages["/a"] = Page(b"fine")
    url = web.at(f"/a?key={TOKEN}")
    config = {"url": url, "username": "me", "password": TOKEN, "headers": {"X-Key": TOKEN}}
    site.use("fetch", {**config, **LOOPBACK})
    with site.running() as house:
        assert house.run("fetch")["status"] == "succeeded"
        web.next("/a", Told(b"", 500))
        house.run("fetch")
        assert TOKEN not in ledger_text(house)
    web.next("/a", Told(TOKEN.encode(), 500))
    assert TOKEN not in json.dumps(site.direct("fetch", "poll").answer)
