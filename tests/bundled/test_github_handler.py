"""The plugin `github-handler`: every event, filters, and malformed deliveries."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bundled.bundled_site import BundledSite, find_undeclared
from tests.bundled.fakes import github
from tests.bundled.load_module import load_module
from tests.bundled.test_manifests import get_manifest

EVERY = {
    "ping": github.ping(),
    "push": github.push(),
    "pull_request": github.pull_request(),
    "pull_request_review": github.review(),
    "issues": github.issues(),
    "issue_comment": github.issue_comment(),
    "release": github.release(),
    "create": github.ref(),
    "delete": github.ref(),
    "workflow_run": github.workflow_run(),
    "deployment_status": github.deployment_status(),
    "star": github.star(),
    "fork": github.fork(),
}


def handle(
    site: BundledSite, event: str, hook: Any, *, delivery: str | None = "d-1", **more: Any
) -> dict[str, Any]:
    webhook = {"name": "github", "event": event, "delivery_id": delivery}
    context = {"webhook": {key: value for key, value in webhook.items() if value}}
    done = site.direct("github-handler", "handle", payload=hook, context=context, **more)
    return done.response


@pytest.mark.parametrize("event", EVERY)
def test_every_event_has_its_documented_fields(site: BundledSite, event: str) -> None:
    site.use("github-handler")
    response = handle(site, event, EVERY[event])
    [emitted] = response["events"]
    manifest = get_manifest("github-handler")
    assert find_undeclared(manifest, "handle", emitted) is None
    [declared] = [
        set(one.values) for one in manifest.commands[0].values.emit if one.event == emitted["type"]
    ]
    assert set(emitted["payload"]) == declared
    assert emitted["payload"]["repository"] == "octo/engine"
    assert emitted["payload"]["sender"] == "mona"
    assert emitted["dedupe_key"] == "github:d-1"
    assert "None" not in emitted["payload"]["title"] + emitted["payload"]["message"]
    assert len(json.dumps(emitted)) < 4000


def test_push_has_its_commits(site: BundledSite) -> None:
    site.use("github-handler")
    payload = handle(site, "push", github.push(count=50))["events"][0]["payload"]
    assert (payload["branch"], payload["tag"]) == ("main", None)
    assert payload["commit_count"] == 50
    assert len(payload["commits"]) == 20
    assert payload["commits"][0]["subject"] == "Fix part 1"
    assert payload["title"] == "octo/engine: push to main (50 commits)"


@pytest.mark.parametrize(
    ("action", "merged", "kind"),
    [
        ("opened", False, "github.pull_request.opened"),
        ("closed", False, "github.pull_request.closed"),
        ("closed", True, "github.pull_request.merged"),
        ("labeled", False, None),
        ("../../etc", False, None),
    ],
)
def test_actions_that_are_reported(
    site: BundledSite, action: str, merged: bool, kind: str | None
) -> None:
    site.use("github-handler")
    response = handle(site, "pull_request", github.pull_request(action, merged=merged))
    assert [event["type"] for event in response.get("events", [])] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("config", "emitted"),
    [
        ({"events": ["push"]}, True),
        ({"events": ["issues", "pull_request.opened"]}, False),
        ({"repositories": ["OCTO/*"]}, True),
        ({"repositories": ["other/*", "octo/eng"]}, False),
        ({"branches": ["release/*", "main"]}, True),
        ({"branches": ["release/*"]}, False),
    ],
)
def test_filtered_deliveries_are_ignored(
    site: BundledSite, config: dict[str, Any], emitted: bool
) -> None:
    site.use("github-handler", config)
    response = handle(site, "push", github.push())
    assert ("events" in response) is emitted
    assert emitted or response["result"].startswith("ignored: ")


def test_unknown_events_are_ignored(site: BundledSite) -> None:
    site.use("github-handler")
    assert handle(site, "gollum", {"pages": []})["result"].startswith("ignored: the event gollum")


@pytest.mark.parametrize("config", [{"events": ["pushes"]}, {"events": 5}, {"branches": [5]}])
def test_invalid_configuration_is_rejected(site: BundledSite, config: dict[str, Any]) -> None:
    site.use("github-handler", config)
    assert site.direct("github-handler", "health").code == 78


def test_delivery_is_emitted_once(site: BundledSite) -> None:
    site.use("github-handler")
    first = handle(site, "push", github.push())
    again = handle(site, "push", github.push(), state=first["state_updates"])
    assert again["result"] == "skipped: this delivery was already handled"
    other = handle(site, "push", github.push(), delivery="d-2", state=first["state_updates"])
    assert other["state_updates"]["seen"] == ["d-1", "d-2"]


def test_number_of_remembered_deliveries_is_limited(site: BundledSite) -> None:
    site.use("github-handler")
    seen = [f"old-{number}" for number in range(900)]
    state = handle(site, "push", github.push(), state={"seen": seen})["state_updates"]
    assert len(state["seen"]) == 500
    assert state["seen"][-1] == "d-1"


def test_delivery_without_its_event_fails(site: BundledSite) -> None:
    site.use("github-handler")
    done = site.direct("github-handler", "handle", payload=github.push())
    assert "provider: github" in done.response["error"]
    assert done.response["retry"] is False
    response = handle(site, "push", "no object")
    assert response["retry"] is False


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), st.just("x" * 9999)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["title", "number", "user", "login", "ref", "commits", "message", "labels", "name"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=80)
@given(data=st.data())
def test_malformed_bodies_are_handled(data: st.DataObject) -> None:
    events = load_module("github-handler", "events")
    name = data.draw(st.sampled_from(sorted(EVERY)))
    hook = {key: data.draw(ANYTHING) if data.draw(st.booleans()) else value
            for key, value in EVERY[name].items()}  # fmt: skip
    payload = events.BUILDERS[name](hook)
    text = json.dumps(payload, allow_nan=False)
    assert len(text) < 200_000
    assert all(c.isprintable() for c in payload["title"])
