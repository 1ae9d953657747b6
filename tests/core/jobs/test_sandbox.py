from __future__ import annotations

import pytest

from ductile.core.jobs.sandbox import SandboxPlan, SandboxSpec, is_inside, narrow


@pytest.mark.parametrize(
    ("author", "operator", "rule", "level"),
    [
        (None, None, "off", "off"),
        (None, None, "enforce", "enforce"),
        (SandboxSpec(), None, "off", "best_effort"),
        (None, SandboxSpec(), "off", "best_effort"),
        (SandboxSpec(level="enforce"), SandboxSpec(), "off", "enforce"),
        (SandboxSpec(level="enforce"), SandboxSpec(level="off"), "off", "off"),
        (SandboxSpec(level="off"), SandboxSpec(level="enforce"), "off", "enforce"),
        (SandboxSpec(level="best_effort"), SandboxSpec(level="off"), "enforce", "enforce"),
    ],
)
def test_operator_chooses_the_level_and_the_rule_is_the_least(author, operator, rule, level):
    assert narrow(author, operator, rule).level == level


@pytest.mark.parametrize(
    ("author", "operator", "read"),
    [
        (None, None, None),
        (("/a",), None, ("/a",)),
        (None, ("/a",), ("/a",)),
        (("/a",), ("/a/b", "/c"), ("/a/b",)),
        (("/a/b",), ("/a",), ("/a/b",)),
        (("/a",), ("/ab",), ()),
        (("/a",), (), ()),
        (("/",), ("/x",), ("/x",)),
    ],
)
def test_only_paths_that_both_name_are_granted(author, operator, read):
    spec = narrow(SandboxSpec(read=author), SandboxSpec(read=operator), "off")
    assert spec.read == read
    assert narrow(SandboxSpec(write=author), SandboxSpec(write=operator), "off").write == read


@pytest.mark.parametrize(
    ("author", "operator", "network"),
    [
        (None, None, "none"),
        ("all", None, "all"),
        ("all", "none", "none"),
        ("all", (443,), (443,)),
        ((443, 80), (80, 22), (80,)),
        ((443,), (22,), "none"),
        ((443,), "all", (443,)),
    ],
)
def test_the_narrower_network_access_counts(author, operator, network):
    spec = narrow(SandboxSpec(network=author), SandboxSpec(network=operator), "off")
    assert spec.network == network


def test_the_smaller_limit_counts():
    author = SandboxSpec(memory=5, processes=1, cpu_time=2.0)
    spec = narrow(author, SandboxSpec(memory=3, processes=4), "off")
    assert (spec.memory, spec.processes, spec.cpu_time, spec.file_size) == (3, 1, 2.0, None)


def test_a_folder_with_the_same_beginning_is_not_inside():
    assert is_inside("/a/b", "/a")
    assert is_inside("/a", "/a")
    assert is_inside("/a", "/")
    assert not is_inside("/ab", "/a")


def test_only_an_enforced_sandbox_refuses_what_the_kernel_does_not_hold():
    gaps = {"signals": "needs Landlock ABI 6, the kernel has ABI 4"}
    plans = {
        level: SandboxPlan(SandboxSpec(level=level), b"", ("files",), gaps)
        for level in ("best_effort", "enforce")
    }
    assert plans["best_effort"].refusal is None
    assert "signals (needs Landlock ABI 6" in (plans["enforce"].refusal or "")
    assert "enforced: files; not enforced: signals" in plans["best_effort"].summary
    assert SandboxPlan(SandboxSpec(level="enforce"), b"", ("files",), {}).refusal is None
