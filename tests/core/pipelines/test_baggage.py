from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.jobs.limits import DEEPEST_KEPT
from ductile.core.pipelines.baggage import (
    MAX_CONTEXT,
    Claims,
    accrete,
    claimed,
    compile_claims,
    depth_at,
    depth_limit,
    root_context,
    route_depth,
    step_context,
)
from ductile.core.values.json_values import MISSING, Failure, StepValues, are_equal
from ductile.errors import Problem
from tests.core.values.test_json_values import JSON, SCALARS

AT = ("pipelines", 0, "steps", 0, "baggage")
ORIGIN = {
    "plugin": "discord",
    "event_type": "link",
    "event_id": "e1",
    "job_id": "j1",
    "submitted_by": "webhook",
}


def claims(raw) -> Claims:
    compiled = compile_claims(raw, AT)
    assert isinstance(compiled, Claims), compiled
    return compiled


def problems(raw) -> list[Problem]:
    found = compile_claims(raw, AT)
    assert isinstance(found, list)
    return found


def enter(context, step_claims, payload, hops=0):
    return step_context(context, step_claims, payload, hops=hops)


def root(**baggage):
    return root_context(instance_id="i1", max_depth=4, origin=ORIGIN, baggage=baggage)


def test_a_root_row_holds_the_instance_its_limit_and_its_origin():
    assert root() == {
        "ductile": {
            "pipeline_instance_id": "i1",
            "route_depth": 0,
            "route_max_depth": 4,
            "route_first_hop": 0,
            "origin": ORIGIN,
        }
    }


def test_root_row_can_begin_with_baggage_but_never_with_the_cores_own():
    context = root(trace="t1", ductile="mine", ductile_plugin="x")
    assert context["trace"] == "t1"
    assert context["ductile"]["origin"] == ORIGIN
    assert "ductile_plugin" not in context


def test_a_step_claims_values_by_path_and_lies_one_deeper():
    raw = {"web.url": "payload.url", "web.meta": "payload.meta", "again": "context.user"}
    context = enter(root(user="matt"), claims(raw), {"url": "http://x", "meta": {"a": [1]}})
    assert not isinstance(context, Failure)
    assert context["web"] == {"url": "http://x", "meta": {"a": [1]}}
    assert context["again"] == "matt"
    assert (route_depth(context), depth_limit(context)) == (1, 4)
    assert context["ductile"]["origin"] == ORIGIN


def test_computed_depth_is_reported_and_limits_nothing():
    context = root_context(instance_id="i", max_depth=4, origin=ORIGIN, depth_is_computed=True)
    assert context["ductile"]["route_max_depth"] == 4
    assert depth_limit(context) == 0
    deep = enter(context, None, {})
    assert not isinstance(deep, Failure)
    assert depth_limit(deep) == 0


def test_a_step_without_claims_only_lies_deeper():
    context = enter(root(user="matt"), None, {"x": 1})
    assert context == {**root(user="matt"), "ductile": {**root()["ductile"], "route_depth": 1}}


def test_depth_follows_from_the_hops_since_the_first_one():
    context = root_context(instance_id="i", max_depth=4, origin=ORIGIN, first_hop=3)
    assert [depth_at(context, hops) for hops in (3, 4, 6)] == [1, 2, 4]
    assert route_depth(enter(context, None, {}, hops=6)) == 4


def test_context_without_a_first_hop_counts_one_step_at_a_time():
    context = root()
    del context["ductile"]["route_first_hop"]
    assert depth_at(context, 7) == 1
    assert depth_at(enter(context, None, {}, hops=7), 8) == 2


def test_a_whole_object_is_claimed_under_a_namespace():
    raw = {"from": "payload.metadata", "namespace": "whisper.v1", "one": "payload.n"}
    context = enter(root(), claims(raw), {"metadata": {"lang": "en"}, "n": 1})
    assert not isinstance(context, Failure)
    assert context["whisper"] == {"v1": {"lang": "en"}}
    assert context["one"] == 1


@pytest.mark.parametrize(
    ("raw", "payload", "part"),
    [
        ({"a": "payload.x"}, {}, "payload.x does not exist"),
        ({"a": "context.x"}, {}, "context.x does not exist"),
        ({"from": "payload.m", "namespace": "n"}, {"m": [1]}, "is not an object"),
        ({"user": "payload.x"}, {"x": "eve"}, "cannot change"),
        ({"user.name": "payload.x"}, {"x": "eve"}, "cannot change"),
        ({"a": "payload.x", "a.b": "payload.x"}, {"x": 1}, "cannot change"),
        ({"from": "payload", "namespace": "user"}, {"x": 1}, "cannot change"),
    ],
)
def test_a_claim_that_cannot_be_met_fails_with_its_name(raw, payload, part):
    answer = enter(root(user="matt"), claims(raw), payload)
    assert isinstance(answer, Failure)
    assert part in answer.reason
    assert "baggage" in answer.reason


def test_the_same_value_may_be_claimed_again():
    entering = root(user={"name": "matt", "id": 1})
    again = enter(entering, claims({"user": "payload.u"}), {"u": {"id": 1.0, "age": 5}})
    assert not isinstance(again, Failure)
    assert again["user"] == {"name": "matt", "id": 1, "age": 5}


def test_null_is_a_value_that_never_changes_either():
    answer = enter(root(x=None), claims({"x": "payload.x"}), {"x": 1})
    assert isinstance(answer, Failure)


def test_claims_read_what_entered_and_not_each_other():
    answer = enter(root(), claims({"a": "payload.x", "b": "context.a"}), {"x": 1})
    assert answer == Failure("baggage b: context.a does not exist")


def test_at_most_a_mebibyte_is_carried():
    fits = enter(root(), claims({"a": "payload.x"}), {"x": "x" * (MAX_CONTEXT - 1000)})
    assert not isinstance(fits, Failure)
    over = enter(root(), claims({"a": "payload.x"}), {"x": "x" * MAX_CONTEXT})
    assert isinstance(over, Failure)
    assert "the limit of 1048576" in over.reason


def test_baggage_that_nests_without_end_fails_instead_of_breaking():
    deep: dict[str, object] = {}
    for _ in range(DEEPEST_KEPT - 2):
        deep = {"d": deep}
    assert not isinstance(enter(root(), claims({"a": "payload.x"}), {"x": deep}), Failure)
    answer = enter(root(), claims({"a": "payload.x"}), {"x": {"d": deep}})
    assert answer == Failure("baggage is nested more than 150 levels deep")


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ([], AT),
        ({}, AT),
        ({"ductile.x": "payload.x"}, (*AT, "ductile.x")),
        ({"ductile_step_id": "payload.x"}, (*AT, "ductile_step_id")),
        ({"a..b": "payload.x"}, (*AT, "a..b")),
        ({"1a": "payload.x"}, (*AT, "1a")),
        ({"a-b": "payload.x"}, (*AT, "a-b")),
        ({"a": "config.x"}, (*AT, "a")),
        ({"a": "x"}, (*AT, "a")),
        ({"a": 3}, (*AT, "a")),
        ({"from": "payload.x"}, AT),
        ({"namespace": "x"}, AT),
        ({"from": "context.x", "namespace": "n"}, (*AT, "from")),
        ({"from": "payload.x", "namespace": "ductile"}, (*AT, "namespace")),
        ({"from": "payload.x", "namespace": 3}, (*AT, "namespace")),
    ],
)
def test_a_bad_claim_is_refused_at_load(raw, path):
    assert path in [problem.path for problem in problems(raw)]


def test_all_bad_claims_are_reported_at_once():
    assert len(problems({"ductile": "payload.x", "a": "nope", "1": "payload.x"})) == 3


TREES = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def leaves(value, above=()):
    """Every path that has a value of its own, with it."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, (*above, key))
    else:
        yield above, value


def at(value, path):
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return MISSING
        value = value[key]
    return value


@settings(max_examples=300)
@given(TREES, TREES)
def test_accretion_contains_both_or_fails(inherited, added):
    before = copy.deepcopy((inherited, added))
    grown = accrete(inherited, added)
    assert (inherited, added) == before
    if isinstance(grown, Failure):
        return
    for part in (inherited, added):
        for path, value in leaves(part):
            found = at(grown, path)
            # An empty object may have been filled; nothing else may differ.
            assert are_equal(found, value) or (value == {} and isinstance(found, dict))


@given(TREES, TREES)
def test_accretion_fails_exactly_when_an_inherited_path_would_change(inherited, added):
    def clash(one, other):
        if isinstance(one, dict) and isinstance(other, dict):
            return any(clash(one[key], other[key]) for key in one.keys() & other.keys())
        return not are_equal(one, other)

    assert isinstance(accrete(inherited, added), Failure) is clash(inherited, added)


@given(TREES)
def test_accretion_is_idempotent_and_has_an_identity(tree):
    assert accrete(tree, tree) == tree
    assert accrete(tree, {}) == tree
    assert accrete({}, tree) == tree


@given(TREES, TREES, TREES)
def test_accretion_is_associative_where_it_succeeds(one, two, three):
    left = accrete(one, two)
    right = accrete(two, three)
    if isinstance(left, Failure) or isinstance(right, Failure):
        return
    ends = accrete(left, three), accrete(one, right)
    if not isinstance(ends[0], Failure):
        assert are_equal(*ends)


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from(["a", "b", "a.x", "b.y.z"]), SCALARS), max_size=6))
def test_along_a_chain_each_row_contains_its_parent_and_the_origin_stays(steps):
    context = root()
    for depth, values in enumerate(steps, 1):
        raw = {key: f"payload.v{number}" for number, key in enumerate(values)}
        payload = {f"v{number}": value for number, value in enumerate(values.values())}
        child = enter(context, claims(raw) if raw else None, payload, hops=depth - 1)
        if isinstance(child, Failure):
            return
        for path, value in leaves({k: v for k, v in context.items() if k != "ductile"}):
            assert are_equal(at(child, path), value) or value == {}
        assert child["ductile"] == {**context["ductile"], "route_depth": depth}
        context = child


def test_claims_alone_are_a_tree_for_the_wire():
    tree = claimed(claims({"trace.id": "context.t"}), StepValues({}, {"t": 7}))
    assert tree == {"trace": {"id": 7}}
