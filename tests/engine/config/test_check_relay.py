"""Relay settings that can never work are reported when the configuration is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.engine.config.compiled import build
from ductile.errors import ConfigError, Problem
from tests.engine.site import Site

LAB = {
    "name": "lab",
    "base_url": "https://lab.example",
    "ingress_path": "/ingest/peer/home",
    "secret": "a-shared-secret-of-two",
}


def problems(site: Site, *, name: str = "home", **settings: Any) -> list[Problem]:
    """Warnings, or what makes the configuration refused."""
    site.settings["service"]["name"] = name
    site.settings |= settings
    try:
        built = build(site.load(), boot_marker="m:b", environ=site.environ)
    except ConfigError as error:
        return list(error.problems)
    return list(built.warnings)


def relaying(event: str = "made") -> list[dict[str, Any]]:
    step = {"relay": {"to": "lab", "event": event}}
    return [{"name": "p", "on": "go", "steps": [step]}]


def test_matching_relay_settings_have_no_problem(site: Site) -> None:
    assert problems(site, instances=[LAB], pipelines=relaying()) == []


def test_an_event_type_that_may_not_leave_is_refused(site: Site) -> None:
    lab = {**LAB, "allow": ["other"]}
    [problem] = problems(site, instances=[lab], pipelines=relaying())
    assert "does not allow this event type" in problem.message
    assert problem.path == ("pipelines", 0, "steps", 0, "relay", "event")
    assert problem.line is not None


def test_a_step_to_a_disabled_instance_is_warned_about(site: Site) -> None:
    lab = {**LAB, "enabled": False}
    [problem] = problems(site, instances=[lab], pipelines=relaying())
    assert "is disabled" in problem.message


@pytest.mark.parametrize(
    "change",
    [
        {"base_url": "http://[lab"},
        {"base_url": "https://somebody@lab.example"},
        {"base_url": "https://lab.example:99999"},
        {"base_url": "https://läb.example"},
        {"ingress_path": "/ingest/péer/home"},
    ],
)
def test_an_address_that_nothing_can_be_sent_to_is_refused(
    site: Site, change: dict[str, str]
) -> None:
    [problem] = problems(site, instances=[{**LAB, **change}])
    assert problem.message.startswith("nothing can be sent there: ")
    assert problem.path == ("instances", 0, "base_url")


@pytest.mark.parametrize(
    "base_url", ["http://localhost:8080", "http://10.0.0.7", "http://nas.lan/"]
)
def test_an_address_of_our_own_network_is_fine(site: Site, base_url: str) -> None:
    assert problems(site, instances=[{**LAB, "base_url": base_url}]) == []


def test_disabled_instance_is_not_checked(site: Site) -> None:
    lab = {**LAB, "enabled": False, "base_url": "http://[lab"}
    assert problems(site, name="zuhausé", instances=[lab]) == []


def test_a_name_that_no_header_can_carry_is_refused(site: Site) -> None:
    lab = {**LAB, "ingress_path": "/ingest/peer/zuhaus%C3%A9"}
    [problem] = problems(site, name="zuhausé", instances=[lab])
    assert problem.path == ("service", "name")


def test_a_key_id_that_no_header_can_carry_is_refused(site: Site) -> None:
    [problem] = problems(site, instances=[{**LAB, "key_id": "a\nb"}])
    assert problem.path == ("instances", 0, "key_id")


def test_without_instances_any_name_will_do(site: Site) -> None:
    assert problems(site, name="zuhausé") == []


def test_a_path_that_does_not_end_in_our_name_is_warned_about(site: Site) -> None:
    [problem] = problems(site, name="ductile", instances=[LAB])
    assert "not service.name (ductile)" in problem.message
    assert problem.path == ("instances", 0, "ingress_path")


def test_warning_about_a_shared_secret_does_not_show_it(site: Site) -> None:
    secret = "a-shared-secret-of-two"
    names = [{"name": name, "secret": secret} for name in ("a", "b")]
    asleep = {"name": "c", "secret": secret, "enabled": False}
    [problem] = problems(site, remote_ingress={"peers": [*names, asleep]})
    assert "peer a has the same secret" in problem.message
    assert problem.path == ("remote_ingress", "peers", 1, "secret")
    assert secret not in str(problem)
