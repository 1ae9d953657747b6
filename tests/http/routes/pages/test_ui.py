"""The dashboard's files, and its sessions: opened, limited to the page, ended with their token."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from http.client import HTTPConnection
from http.cookies import SimpleCookie
from typing import Any

import pytest

from ductile.engine.ingress.authenticator import Authenticator, LoginCodes, hash_token
from ductile.store.access import ui_sessions
from tests.conftest import FakeClock
from tests.http.client import Client
from tests.http.harness import ADMIN, CONFIG, READER, Answer, ApiHarness, running_api
from tests.http.subscriber import subscribed
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(working=False) as api:
        yield api


def page_headers(api: ApiHarness, **more: str) -> dict[str, str]:
    host, port = api.address("api")
    return {"Origin": f"http://{host}:{port}", "X-Ductile-UI": "1", **more}


def log_in(api: ApiHarness, **body: str) -> Answer:
    return api.ask("POST", "/ui/session", body, token=None, headers=page_headers(api))


def cookie_of(answer: Answer) -> str:
    assert answer.status == 200, answer.raw
    [(name, morsel)] = SimpleCookie(answer.headers["set-cookie"]).items()
    return f"{name}={morsel.value}"


def ask(api: ApiHarness, method: str, path: str, cookie: str, body: Any = None) -> Answer:
    return api.ask(method, path, body, token=None, headers=page_headers(api, Cookie=cookie))


class TestFiles:
    @pytest.mark.parametrize("path", ["/ui/", "/ui/jobs", "/ui/job/some-id"])
    def test_page_is_public_and_may_load_only_its_own_files(
        self, api: ApiHarness, path: str
    ) -> None:
        answer = api.ask("GET", path, token=None)
        assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"

    def test_page_has_no_inline_script_or_style(self, api: ApiHarness) -> None:
        page = api.ask("GET", "/ui/", token=None).raw.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=", page)

    def test_address_without_slash_redirects(self, api: ApiHarness) -> None:
        answer = api.ask("GET", "/ui", token=None)
        assert (answer.status, answer.headers["location"]) == (308, "/ui/")

    @pytest.mark.parametrize(
        "name", ["nosuch.js", "..%2findex.html", "..%2f..%2f..%2fapp.py", "%2fetc%2fpasswd"]
    )
    def test_other_files_are_not_served(self, api: ApiHarness, name: str) -> None:
        assert api.ask("GET", f"/ui/assets/{name}", token=None).status in (401, 404)

    def test_disabled_dashboard_is_not_found(self) -> None:
        config = CONFIG.replace("listen: 127.0.0.1:0", "listen: 127.0.0.1:0\n  ui: false")
        with running_api(config, working=False) as api:
            assert api.ask("GET", "/ui/", token=None).status == 404
            assert log_in(api, token=ADMIN).status == 404


class TestLogin:
    def test_session_has_the_scopes_of_its_token(self, api: ApiHarness) -> None:
        answer = log_in(api, token=READER)
        assert (answer.json["name"], answer.json["scopes"]) == ("reader", ["echo:ro", "jobs:ro"])
        cookie = cookie_of(answer)
        assert ask(api, "GET", "/jobs", cookie).status == 200
        assert ask(api, "POST", "/system/reload", cookie, {}).status == 403
        shown = ask(api, "GET", "/ui/session", cookie).json
        assert shown["gateway"].keys() == {"name", "version", "timezone"}

    def test_cookie_is_out_of_reach_of_scripts_and_other_sites(self, api: ApiHarness) -> None:
        text = log_in(api, token=ADMIN).headers["set-cookie"].lower()
        assert {"httponly", "samesite=strict", "path=/"} <= set(re.split(r";\s*", text))

    def test_cookie_over_tls_is_bound_to_the_host(self, api: ApiHarness) -> None:
        host, port = api.address("api")
        headers = page_headers(api, Origin=f"https://{host}:{port}")
        answer = api.ask("POST", "/ui/session", {"token": ADMIN}, token=None, headers=headers)
        text = answer.headers["set-cookie"]
        assert text.startswith("__Host-ductile_session=")
        assert "Secure" in text
        assert ask(api, "GET", "/jobs", cookie_of(answer)).status == 200

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ({}, 400),
            ({"token": "x", "code": "y"}, 400),
            ({"token": "x"}, 401),
            ({"code": "x"}, 401),
        ],
    )
    def test_wrong_credentials_are_refused(
        self, api: ApiHarness, body: dict[str, str], status: int
    ) -> None:
        answer = log_in(api, **body)
        assert (answer.status, "set-cookie" in answer.headers) == (status, False)

    def test_other_sites_cannot_log_in(self, api: ApiHarness) -> None:
        for headers in ({}, {"X-Ductile-UI": "1"}, {"Origin": page_headers(api)["Origin"]}):
            answer = api.ask("POST", "/ui/session", {"token": ADMIN}, token=None, headers=headers)
            assert (answer.status, answer.json["code"]) == (403, "cross_site_request")

    def test_ledger_stores_neither_cookie_nor_token(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN)).partition("=")[2]
        rows = api.gateway.ledger.read(
            lambda tx: ui_sessions.list_open(tx, api.gateway.clock.now())
        )
        assert hash_token(cookie) in {row.hash for row in rows}
        assert cookie not in str(rows)
        assert ADMIN not in str(rows)


class TestSession:
    def test_unsafe_request_needs_origin_and_header(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN))
        own = page_headers(api)
        for headers in (
            {},
            {"Origin": own["Origin"]},
            {"X-Ductile-UI": "1"},
            {**own, "X-Ductile-UI": "0"},
            {**own, "Origin": "null"},
        ):
            answer = api.ask(
                "POST", "/system/reload", {}, token=None, headers={**headers, "Cookie": cookie}
            )
            assert answer.status == 403, headers
        assert ask(api, "POST", "/system/reload", cookie, {"dry_run": True}).status == 200

    def test_explicit_token_never_falls_back_to_the_cookie(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN))
        for value in ("Bearer wrong", "Basic abc", "Bearer "):
            headers = {"Authorization": value, "Cookie": cookie}
            assert api.ask("GET", "/jobs", token=None, headers=headers).status == 401

    def test_repeated_cookie_is_void(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN))
        assert ask(api, "GET", "/jobs", f"{cookie}; {cookie}").status == 401
        assert ask(api, "GET", "/jobs", f"other=1; {cookie}").status == 200

    def test_cookies_of_both_schemes_are_tried(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN))
        secure = cookie.replace(cookie.partition("=")[0], "__Host-ductile_session")
        plain = f"ductile_session_{api.address('api')[1]}"
        for both in (f"{plain}=ended; {secure}", f"{cookie}; __Host-ductile_session=ended"):
            assert ask(api, "GET", "/jobs", both).status == 200, both
            assert ask(api, "POST", "/system/reload", both, {"dry_run": True}).status == 200
        assert ask(api, "GET", "/jobs", f"{plain}=ended; __Host-ductile_session=x").status == 401

    def test_gateways_of_one_host_have_cookies_of_their_own(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN))
        port = api.address("api")[1]
        assert cookie.startswith(f"ductile_session_{port}=")
        other = f"ductile_session_{port + 1}=other"
        assert ask(api, "GET", "/jobs", f"{other}; {cookie}").status == 200
        assert ask(api, "GET", "/jobs", cookie.replace(str(port), str(port + 1), 1)).status == 401

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_login_deletes_the_cookie_of_the_other_scheme(
        self, api: ApiHarness, scheme: str
    ) -> None:
        host, port = api.address("api")
        names = {"http": f"ductile_session_{port}", "https": "__Host-ductile_session"}
        connection = HTTPConnection(host, port, timeout=WAIT_LIMIT)
        headers = page_headers(api, Origin=f"{scheme}://{host}:{port}")
        try:
            connection.request("POST", "/ui/session", json.dumps({"token": ADMIN}), headers)
            cookies = connection.getresponse().headers.get_all("set-cookie")
        finally:
            connection.close()
        assert cookies is not None
        deleted, kept = cookies
        assert deleted.startswith(f'{names[{"http": "https", "https": "http"}[scheme]]}="";')
        assert "Max-Age=0" in deleted
        assert kept.startswith(f"{names[scheme]}=")

    def test_disabled_dashboard_refuses_cookies(self) -> None:
        with running_api(working=False) as api:
            cookie = cookie_of(log_in(api, token=ADMIN))
            assert ask(api, "GET", "/jobs", cookie).status == 200
            disabled = CONFIG.replace("listen: 127.0.0.1:0", "listen: 127.0.0.1:0\n  ui: false")
            api.write("config.yaml", disabled)
            assert api.ask("POST", "/system/reload", {}).status == 200
            assert ask(api, "GET", "/jobs", cookie).status == 401

    def test_logout_ends_it(self, api: ApiHarness) -> None:
        cookie = cookie_of(log_in(api, token=ADMIN))
        assert ask(api, "DELETE", "/ui/session", cookie).json == {"closed": True}
        assert ask(api, "GET", "/jobs", cookie).status == 401

    def test_all_sessions_can_be_ended_at_once(self, api: ApiHarness) -> None:
        cookies = [cookie_of(log_in(api, token=ADMIN)) for _ in range(2)]
        assert api.ask("DELETE", "/ui/sessions").json["closed"] >= 2
        assert {ask(api, "GET", "/jobs", cookie).status for cookie in cookies} == {401}

    @pytest.mark.parametrize("action", ["revoke", "rotate"])
    def test_void_token_ends_its_sessions_and_streams_at_once(
        self, api: ApiHarness, action: str
    ) -> None:
        body = {"name": action, "scopes": ["jobs:ro", "events:ro"]}
        token = api.ask("POST", "/tokens", body).json["token"]
        cookie = cookie_of(log_in(api, token=token))
        with subscribed(api, token=None, Cookie=cookie) as stream:
            assert api.ask("POST", f"/token/{action}/{action}", {}).status == 200
            assert b"alive" not in stream.rest()
        assert ask(api, "GET", "/jobs", cookie).status == 401


class TestLimits:
    def test_idle_session_ends_and_use_prolongs_it(self, api: ApiHarness) -> None:
        ledger, now = api.gateway.ledger, api.gateway.clock.now()
        ledger.write(lambda tx: ui_sessions.open_session(tx, "idle", None, now))
        later = now + ui_sessions.IDLE_LIMIT - timedelta(minutes=1)
        ledger.write(lambda tx: ui_sessions.touch_session(tx, "idle", later))

        def is_open(at: Any) -> bool:
            return "idle" in {s.hash for s in ledger.read(lambda tx: ui_sessions.list_open(tx, at))}

        assert is_open(now + ui_sessions.IDLE_LIMIT + timedelta(minutes=1))
        assert not is_open(later + ui_sessions.IDLE_LIMIT)

    def test_used_session_ends_after_a_week(self, api: ApiHarness) -> None:
        ledger, now = api.gateway.ledger, api.gateway.clock.now()
        session = ledger.write(lambda tx: ui_sessions.open_session(tx, "old", None, now))
        end = now + ui_sessions.TOTAL_LIMIT
        ledger.write(lambda tx: ui_sessions.touch_session(tx, "old", end - timedelta(hours=1)))
        sessions = ledger.read(lambda tx: ui_sessions.list_open(tx, end - timedelta(minutes=1)))
        [row] = [each for each in sessions if each.hash == session.hash]
        assert row.expires_at() == end

    def test_unused_session_ends_after_12_hours_and_a_used_one_after_7_days(
        self, api: ApiHarness, clock: FakeClock
    ) -> None:
        ledger, hash = api.gateway.ledger, hash_token("the cookie")
        reads, remembers = (
            Authenticator(lambda: api.gateway.compiled, ledger, clock) for _ in range(2)
        )

        def are_open() -> tuple[bool, bool]:
            """By the ledger, and by a copy that was read before."""
            reads.refresh()
            found = [each.identify_session("the cookie") for each in (reads, remembers)]
            return found[0] is not None, found[1] is not None

        ledger.write(lambda tx: ui_sessions.open_session(tx, hash, None, clock.now()))
        remembers.refresh()
        clock.advance(12 * 3600 - 1)
        assert are_open() == (True, True)
        clock.advance(1)
        assert are_open() == (False, False)
        ledger.write(lambda tx: ui_sessions.open_session(tx, hash, None, clock.now()))
        for _ in range(7 * 4):
            assert are_open()[0]
            ledger.write(lambda tx: ui_sessions.touch_session(tx, hash, clock.now()))
            remembers.refresh()
            clock.advance(6 * 3600 - 0.1)
        clock.advance(2)
        assert are_open() == (True, True)
        clock.advance(0.8)
        assert are_open() == (False, False)

    def test_ended_sessions_are_deleted_by_the_next_login(self, api: ApiHarness) -> None:
        ledger, now = api.gateway.ledger, api.gateway.clock.now()
        old = now - ui_sessions.TOTAL_LIMIT
        ledger.write(lambda tx: ui_sessions.open_session(tx, "ended", None, old))
        log_in(api, token=ADMIN)
        assert not ledger.read(
            lambda tx: [s for s in ui_sessions.list_open(tx, old) if s.hash == "ended"]
        )

    @pytest.mark.parametrize("token_hash", [None, "some-token"])
    def test_oldest_session_above_the_limit_is_dropped(
        self, api: ApiHarness, token_hash: str | None
    ) -> None:
        ledger, now = api.gateway.ledger, api.gateway.clock.now() + timedelta(minutes=1)
        ledger.write(lambda tx: ui_sessions.open_session(tx, f"kept-{token_hash}", "another", now))
        hashes = [f"{token_hash}-{n}" for n in range(ui_sessions.MAX_SESSIONS + 2)]
        for n, hash in enumerate(hashes):
            at = now + timedelta(seconds=n)
            ledger.write(lambda tx, h=hash, a=at: ui_sessions.open_session(tx, h, token_hash, a))
        found = ledger.read(lambda tx: ui_sessions.list_open(tx, now))
        assert {s.hash for s in found if s.token_hash == token_hash} == set(hashes[2:])
        assert f"kept-{token_hash}" in {session.hash for session in found}

    def test_use_is_recorded(self, api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ductile.engine.ingress.authenticator.TOUCH_AFTER", timedelta(0))
        cookie = cookie_of(log_in(api, token=ADMIN))
        hash = hash_token(cookie.partition("=")[2])

        def seen() -> Any:
            now = api.gateway.clock.now()
            rows = api.gateway.ledger.read(lambda tx: ui_sessions.list_open(tx, now))
            return next(row for row in rows if row.hash == hash).seen_at

        before = seen()
        assert ask(api, "GET", "/jobs", cookie).status == 200
        until(lambda: seen() > before)


class TestLoginCode:
    def test_code_of_the_local_socket_opens_one_session_with_every_scope(
        self, api: ApiHarness
    ) -> None:
        answer = Client(api.gateway.socket_path).request("POST", "/ui/code", {})
        assert answer.status == 201
        code = answer.json["code"]
        assert answer.json["url"] == f"http://127.0.0.1:0/ui/#code={code}"
        first = log_in(api, code=code)
        assert (first.json["name"], first.json["scopes"]) == ("local socket", ["*"])
        assert log_in(api, code=code).status == 401
        assert ask(api, "GET", "/tokens", cookie_of(first)).status == 200

    def test_code_is_refused_to_tokens(self, api: ApiHarness) -> None:
        assert api.ask("POST", "/ui/code", {}).status == 409

    def test_code_expires_and_the_oldest_gives_way(self, clock: FakeClock) -> None:
        codes = LoginCodes(clock)
        first = codes.create()
        for _ in range(LoginCodes.MAX_CODES):
            last = codes.create()
        assert not codes.redeem(first)
        clock.advance(60)
        assert not codes.redeem(last)
