"""The plugin `github-handler`: every event that it knows, and deliveries that lie."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.bundled.house import BundledSite, undeclared
from tests.bundled.inside import inside
from tests.bundled.standins import github
from tests.bundled.test_manifests import manifest_of

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


def handled(
    site: BundledSite, event: str, hook: Any, *, delivery: str | None = "d-1", **more: Any
) -> dict[str, Any]:
    told = {"name": "github", "event": event, "delivery_id": delivery}
    context = {"webhook": {key: value for key, value in told.items() if value}}
    done = site.direct("github-handler", "handle", payload=hook, context=context, **more)
    return done.answer


@pytest.mark.parametrize("event", EVERY)
def test_each_event_has_its_stable_fields(site: BundledSite, event: str) -> None:
    site.use("github-handler")
    answer = handled(site, event, EVERY[event])
    [told] = answer["events"]
    manifest = manifest_of("github-handler")
    assert undeclared(manifest, "handle", told) is None
    [declared] = [
        set(one.values) for one in manifest.commands[0].values.emit if one.event == told["type"]
    ]
    assert set(told["payload"]) == declared
    assert told["payload"]["repository"] == "octo/engine"
    assert told["payload"]["sender"] == "mona"
    assert told["dedupe_key"] == "github:d-1"
    assert "None" not in told["payload"]["title"] + told["payload"]["message"]
    assert len(json.dumps(told)) < 4000


def test_a_push_tells_its_commits(site: BundledSite) -> None:
    site.use("github-handler")
    payload = handled(site, "push", github.push(count=50))["events"][0]["payload"]
    assert (payload["branch"], payload["tag"]) == ("main", None)
    assert payload["commit_count"] == 50
    assert len(payload["commits"]) == 20
    assert payload["commits"][0]["subject"] == "Mend part 1"
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
def test_actions(site: BundledSite, action: str, merged: bool, kind: str | None) -> None:
    site.use("github-handler")
    answer = handled(site, "pull_request", github.pull_request(action, merged=merged))
    assert [event["type"] for event in answer.get("events", [])] == ([kind] if kind else [])


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"events": ["push"]}, True),
        ({"events": ["issues", "pull_request.opened"]}, False),
        ({"repositories": ["OCTO/*"]}, True),
        ({"repositories": ["other/*", "octo/eng"]}, False),
        ({"branches": ["release/*", "main"]}, True),
        ({"branches": ["release/*"]}, False),
    ],
)
def test_what_the_config_does_not_want_is_ignored(
    site: BundledSite, config: dict[str, Any], told: bool
) -> None:
    site.use("github-handler", config)
    answer = handled(site, "push", github.push())
    assert ("events" in answer) is told
    assert told or answer["result"].startswith("ignored: ")


def test_events_it_does_not_know_are_ignored(site: BundledSite) -> None:
    site.use("github-handler")
    assert handled(site, "gollum", {"pages": []})["result"].startswith("ignored: gollum")


@pytest.mark.parametrize("config", [{"events": ["pushes"]}, {"events": 5}, {"branches": [5]}])
def test_a_config_that_cannot_work(site: BundledSite, config: dict[str, Any]) -> None:
    site.use("github-handler", config)
    assert site.direct("github-handler", "health").code == 78


def test_a_delivery_is_told_once(site: BundledSite) -> None:
    site.use("github-handler")
    first = handled(site, "push", github.push())
    again = handled(site, "push", github.push(), state=first["state_updates"])
    assert again["result"] == "this delivery was handled already"
    other = handled(site, "push", github.push(), delivery="d-2", state=first["state_updates"])
    assert other["state_updates"]["seen"] == ["d-1", "d-2"]


def test_what_is_remembered_is_bounded(site: BundledSite) -> None:
    site.use("github-handler")
    seen = [f"old-{number}" for number in range(900)]
    state = handled(site, "push", github.push(), state={"seen": seen})["state_updates"]
    assert len(state["seen"]) == 500
    assert state["seen"][-1] == "d-1"


def test_without_its_headers_a_delivery_says_nothing(site: BundledSite) -> None:
    site.use("github-handler")
    done = site.direct("github-handler", "handle", payload=github.push())
    assert "provider: github" in done.answer["error"]
    assert done.answer["retry"] is False
    answer = handled(site, "push", "no object")
    assert answer["retry"] is False


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
def test_a_body_that_lies_breaks_nothing(data: st.DataObject) -> None:
    events = inside("github-handler", "events")
    name = data.draw(st.sampled_from(sorted(EVERY)))
    hook = {key: data.draw(ANYTHING) if data.draw(st.booleans()) else value
            for key, value in EVERY[name].items()}  # fmt: skip
    told = events.TELLERS[name](hook)
    text = json.dumps(told, allow_nan=False)
    assert len(text) < 200_000
    assert all(c.isprintable() for c in told["title"])
