"""`GET /docs`: a page that loads nothing from elsewhere, in a browser."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from ductile.http.route_table import ENDPOINTS
from tests.http.harness import ADMIN, CONFIG, ApiHarness, running_api
from tests.waiting import WAIT_LIMIT

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG, working=False) as api:
        api.ask("POST", "/plugin/echo/poll", "{}")
        yield api


def test_page_is_public_and_contains_nothing_of_the_gateway(api: ApiHarness) -> None:
    answer = api.ask("GET", "/docs", token=None)
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    text = answer.raw.decode()
    assert "echo" not in text
    assert str(api.root) not in text
    assert not re.search(r"/job/|/plugin/", text)


def test_content_security_policy_allows_only_the_page_itself(api: ApiHarness) -> None:
    headers = api.ask("GET", "/docs", token=None).headers
    policy = dict(
        part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert re.fullmatch(r"'sha256-[\w+/=]{44}'", policy["script-src"])
    assert re.fullmatch(r"'sha256-[\w+/=]{44}'", policy["style-src"])
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_page_loads_nothing_and_has_no_inline_handlers(api: ApiHarness) -> None:
    text = api.ask("GET", "/docs", token=None).raw.decode()
    tags = Tags()
    tags.feed(text)
    names = [tag for tag, _ in tags.found]
    assert names.count("script") == names.count("style") == 1
    for tag, attributes in tags.found:
        assert not {"src", "srcset", "style"} & attributes.keys(), tag
        assert not [name for name in attributes if name.startswith("on")], tag
        assert (attributes.get("href") or "#").startswith(("#", "/openapi.json")), tag
    assert "http://" not in text
    assert "https://" not in text
    assert "innerHTML" not in text


def test_page_has_landmarks_and_labels(api: ApiHarness) -> None:
    tags = Tags()
    tags.feed(api.ask("GET", "/docs", token=None).raw.decode())
    by_tag = dict(tags.found)
    assert by_tag["html"]["lang"] == "en"
    assert {"header", "nav", "main", "h1", "label", "noscript"} <= by_tag.keys()
    assert any(attributes.get("aria-live") for _, attributes in tags.found)
    assert ("a", {"class": "skip", "href": "#main"}) in tags.found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("there is no Chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as play:
        # Its own sandbox cannot be had by root.
        flags = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = play.chromium.launch(executable_path=BROWSER, args=flags)
        yield browser
        browser.close()


class Page:
    """The page in a browser, and the errors that it logs."""

    def __init__(self, browser: Any, api: ApiHarness, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(3 * WAIT_LIMIT * 1000)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._console)
        self.page.on("request", lambda request: self.asked.append(request.url))
        host, port = api.address("api")
        self.origin = f"http://{host}:{port}"
        self.page.goto(f"{self.origin}/docs")

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def enter(self, token: str) -> None:
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Show the routes").click()

    def says(self, text: str) -> None:
        from playwright.sync_api import TimeoutError as NotShown

        status = self.page.locator("#status")
        try:
            status.filter(has_text=text).wait_for()
        except NotShown:
            said = status.text_content()
            pytest.fail(f"expected {text!r}, found {said!r}, errors: {self.complaints}")


@pytest.fixture
def page(browser: Any, api: ApiHarness) -> Iterator[Page]:
    page = Page(browser, api)
    yield page
    page.context.close()


def test_page_without_token_shows_only_the_token_form(page: Page) -> None:
    assert page.page.locator("details.operation").count() == 0
    assert page.page.locator("nav").is_hidden()
    assert page.complaints == []


def test_invalid_token_is_reported(page: Page) -> None:
    page.enter("wrong")
    page.says("this token is not valid here")
    assert page.page.locator("details.operation").count() == 0


def test_every_route_is_listed_by_tag(page: Page) -> None:
    page.enter(ADMIN)
    page.says(f"{len(ENDPOINTS)} routes.")
    shown = page.page.locator("details.operation .path").all_text_contents()
    assert sorted(shown) == sorted(endpoint.path for endpoint in ENDPOINTS)
    jobs = page.page.locator("section", has=page.page.locator("#tag-jobs"))
    assert jobs.locator(".path", has_text="/job/{job_id}/why").count() == 1
    assert page.complaints == []


def test_route_shows_parameters_schemas_and_scope(page: Page) -> None:
    page.enter(ADMIN)
    page.says("routes.")
    route = page.page.locator("#get_jobs")
    route.locator("summary").first.click()
    route.get_by_text("scope: jobs:ro").wait_for()
    assert route.locator("td.name").all_text_contents() == [
        "status", "plugin", "command", "submitted_by", "pipeline", "since", "until",
        "acknowledged", "limit", "before",
    ]  # fmt: skip
    route.locator("ul.schema summary", has_text="jobs").click()
    route.locator("ul.schema code", has_text="max_attempts").wait_for()
    posted = page.page.locator("#post_jobs_retry")
    posted.locator("summary").first.click()
    posted.locator("td.name", has_text="Idempotency-Key").wait_for()
    assert posted.get_by_role("button", name="Try it").count() == 0
    assert page.complaints == []


def test_get_route_can_be_called(page: Page) -> None:
    page.enter(ADMIN)
    page.says("routes.")
    route = page.page.locator("#get_jobs")
    route.locator("summary").first.click()
    route.get_by_label("status").select_option("queued")
    route.get_by_label("limit").fill("1")
    route.get_by_role("button", name="Try it").click()
    route.get_by_text("GET /jobs?status=queued&limit=1").wait_for()
    assert '"plugin": "echo"' in route.locator("pre").inner_text()
    missing = page.page.locator("#get_job_job_id")
    missing.locator("summary").first.click()
    missing.get_by_role("textbox", name="job_id").fill("no/such job")
    missing.get_by_role("button", name="Try it").click()
    missing.get_by_text(re.compile(r"404 after .* GET /job/no%2Fsuch%20job")).wait_for()
    assert [c for c in page.complaints if "404" not in c] == []
    assert {url[: len(page.origin)] for url in page.asked} == {page.origin}


def test_endless_stream_is_stopped(page: Page) -> None:
    page.enter(ADMIN)
    page.says("routes.")
    route = page.page.locator("#get_events")
    route.locator("summary").first.click()
    route.get_by_label("after").fill("0")
    route.get_by_role("button", name="Try it").click()
    route.get_by_text("GET /events?after=0").wait_for()
    assert "job.queued" in route.locator("pre").inner_text()


def test_search_filters_the_routes(page: Page) -> None:
    page.enter(ADMIN)
    page.says("routes.")
    page.page.get_by_label("Search").fill("post retry jobs:rw")
    visible = page.page.locator("details.operation:visible .path").all_text_contents()
    assert "/job/{job_id}/retry" in visible
    assert "/jobs" not in visible
    assert page.page.locator("#tag-tokens").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_is_sufficient_in_both_colour_schemes(
    browser: Any, api: ApiHarness, scheme: str
) -> None:
    page = Page(browser, api, color_scheme=scheme)
    page.enter(ADMIN)
    page.says("routes.")
    for selector in ("body", ".soft", ".method.get", ".method.post", "#entry button"):
        assert contrast(page.page, selector) >= 4.5, selector
    page.context.close()


def contrast(page: Any, selector: str) -> float:
    """The contrast ratio (WCAG) of an element's text and its background."""
    colours = page.evaluate(
        """(selector) => {
            const element = document.querySelector(selector);
            const ink = getComputedStyle(element).color;
            let behind = element;
            const colour = (one) => getComputedStyle(one).backgroundColor;
            while (colour(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            return [ink, colour(behind)];
        }""",
        selector,
    )
    lights = sorted(map(luminance, colours))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_page_can_be_used_with_the_keyboard(page: Page) -> None:
    keys = page.page.keyboard
    keys.press("Tab")
    assert page.page.evaluate("document.activeElement.className") == "skip"
    keys.press("Tab")
    keys.type(ADMIN)
    keys.press("Enter")
    page.says("routes.")
    keys.press("Tab")
    keys.press("Enter")
    page.page.locator("details.operation[open]").wait_for()
