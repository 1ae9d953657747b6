from __future__ import annotations

from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.graph import Branch, NodeKind, Target
from ductile.core.pipelines.pipeline import Compiled, Pipeline

PLUGINS = {
    name: frozenset({"handle", "poll"})
    for name in ("a", "b", "c", "d", "notify", "check", "publish", "my.plugin")
} | {"silent": frozenset({"poll"})}
IF = {"path": "payload.x", "op": "exists"}


def compiled(*pipelines, **options) -> Compiled:
    result = compile_pipelines(pipelines, PLUGINS, **options)
    assert isinstance(result, Compiled), [str(problem) for problem in result]
    return result


def one(*steps, **keys) -> Pipeline:
    pipeline = {"name": "p", "on": "go", "steps": list(steps), **keys}
    return compiled(pipeline).pipelines["p"]


def chain(pipeline: Pipeline) -> list[str]:
    """The paths from the first step on, by `next`."""
    paths, path = [], pipeline.entry
    while path is not None:
        paths.append(path)
        path = pipeline.nodes[path].next
    return paths


def test_steps_follow_each_other_and_get_numbers_where_they_have_no_id():
    pipeline = one({"uses": "a"}, {"id": "mine", "uses": "b.poll"}, {"uses": "c"})
    assert chain(pipeline) == ["step_1", "mine", "step_2"]
    assert [(n.plugin, n.command) for n in pipeline.nodes.values()] == [
        ("c", "handle"),
        ("b", "poll"),
        ("a", "handle"),
    ]
    assert pipeline.nodes["step_2"].next is None
    assert (pipeline.longest, pipeline.max_depth) == (3, 3)


def test_a_number_that_an_id_has_taken_is_left_out():
    assert chain(one({"id": "step_1", "uses": "a"}, {"uses": "b"})) == ["step_1", "step_2"]


def test_a_plugin_whose_name_has_a_dot_is_found_before_a_command():
    pipeline = one({"uses": "my.plugin"}, {"uses": "my.plugin.poll"})
    assert [pipeline.nodes[path].command for path in chain(pipeline)] == ["handle", "poll"]


def test_nested_steps_and_calls_are_inlined_under_their_callers_path():
    inner = {"name": "inner", "on": "x", "steps": [{"uses": "b"}, {"id": "last", "uses": "c"}]}
    outer = {
        "name": "p",
        "on": "go",
        "steps": [
            {"id": "group", "steps": [{"uses": "a"}, {"steps": [{"uses": "a"}]}]},
            {"id": "called", "call": "inner"},
            {"call": "inner"},
            {"uses": "d"},
        ],
    }
    pipeline = compiled(inner, outer).pipelines["p"]
    assert chain(pipeline) == [
        "group.step_1",
        "group.step_2.step_1",
        "called.step_1",
        "called.last",
        "step_1.step_1",
        "step_1.last",
        "step_2",
    ]


def test_a_split_is_a_node_with_branches_and_a_join():
    pipeline = one(
        {"uses": "a"},
        {
            "id": "delivery",
            "join": "always",
            "split": [
                {"uses": "b"},
                {"steps": [{"uses": "c"}, {"uses": "d"}]},
                {"id": "named", "uses": "a"},
            ],
        },
        {"id": "after", "uses": "b"},
    )
    split = pipeline.nodes["delivery"]
    assert split.kind is NodeKind.SPLIT
    assert split.branches == (
        Branch("0", "delivery.0.step_1"),
        Branch("1", "delivery.1.step_1"),
        Branch("named", "delivery.2.named"),
    )
    assert (split.next, split.join_always) == ("after", True)
    assert pipeline.nodes["delivery.1.step_1"].next == "delivery.1.step_2"
    assert pipeline.nodes["delivery.1.step_2"].next is None
    assert pipeline.longest == 4


def test_pipeline_that_begins_with_a_split_has_several_first_jobs():
    pipeline = one({"split": [{"uses": "a"}, {"split": [{"uses": "b"}, {"uses": "c"}]}]})
    assert [node.plugin for node in pipeline.first_jobs()] == ["a", "b", "c"]
    assert [node.plugin for node in one({"uses": "a"}).first_jobs()] == ["a"]


def test_if_is_a_switch_before_its_step_and_false_continues_after_it():
    pipeline = one({"id": "x", "uses": "a", "if": IF}, {"id": "y", "uses": "b"})
    switch = pipeline.nodes["x__switch"]
    assert pipeline.entry == "x__switch"
    assert (switch.plugin, switch.command, switch.kind) == (
        "core.switch",
        "handle",
        NodeKind.SWITCH,
    )
    assert (switch.next, switch.otherwise, switch.config_of) == ("x", "y", "a")
    assert pipeline.nodes["x"].next == "y"
    assert pipeline.longest == 3


def test_an_if_guards_groups_calls_splits_and_branches():
    inner = {"name": "inner", "on": "x", "steps": [{"uses": "a"}]}
    outer = {
        "name": "p",
        "on": "go",
        "steps": [
            {"id": "g", "if": IF, "steps": [{"uses": "a"}, {"uses": "b"}]},
            {"id": "c", "if": IF, "call": "inner"},
            {"id": "s", "if": IF, "split": [{"uses": "a", "if": IF}]},
            {"id": "end", "uses": "d"},
        ],
    }
    nodes = compiled(inner, outer).pipelines["p"].nodes
    assert (nodes["g__switch"].next, nodes["g__switch"].otherwise) == ("g.step_1", "c__switch")
    assert (nodes["c__switch"].next, nodes["c__switch"].otherwise) == ("c.step_1", "s__switch")
    assert (nodes["s__switch"].next, nodes["s__switch"].otherwise) == ("s", "end")
    assert nodes["g.step_2"].next == "c__switch"
    branch = nodes["s.0.step_1__switch"]
    assert (branch.next, branch.otherwise) == ("s.0.step_1", None)


def test_on_events_leads_to_steps_then_pipelines_then_plugins():
    other = {"name": "check", "on": "x", "steps": [{"uses": "a"}]}
    mine = {
        "name": "p",
        "on": "go",
        "steps": [
            {
                "id": "v",
                "uses": "check",
                "on_events": {"ok": ["fix", "publish.poll"], "bad": "check", "odd": ["b"]},
            },
            {"id": "fix", "steps": [{"uses": "c", "if": IF}, {"uses": "d"}]},
            {"id": "b", "uses": "b"},
            {"id": "end", "uses": "d"},
        ],
    }
    pipeline = compiled(other, mine).pipelines["p"]
    events = pipeline.nodes["v"].on_events
    assert events["ok"] == (Target("p", "fix.step_1__switch"), Target("p", "v@publish.poll"))
    assert events["bad"] == (Target("check", None),)
    assert events["odd"] == (Target("p", "b"),)
    assert pipeline.nodes["v@publish.poll"].command == "poll"
    assert chain(pipeline) == ["v", "end"]
    assert pipeline.nodes["b"].next is None
    assert pipeline.nodes["fix.step_2"].next is None


def test_on_events_of_a_group_or_call_is_about_what_leaves_it():
    inner = {
        "name": "inner",
        "on": "x",
        "steps": [{"uses": "a"}, {"uses": "b", "on_events": {"own": ["c"], "both": ["c"]}}],
    }
    outer = {
        "name": "p",
        "on": "go",
        "steps": [
            {"id": "c", "call": "inner", "on_events": {"both": ["late"], "out": ["late"]}},
            {"id": "late", "uses": "d"},
        ],
    }
    nodes = compiled(inner, outer).pipelines["p"].nodes
    assert nodes["c.step_1"].on_events == {}
    assert nodes["c.step_2"].on_events == {
        "both": (Target("p", "c.step_2@c"),),
        "out": (Target("p", "late"),),
        "own": (Target("p", "c.step_2@c"),),
    }


def test_a_target_in_a_called_pipeline_is_looked_up_there():
    inner = {
        "name": "inner",
        "on": "x",
        "steps": [{"uses": "a", "on_events": {"e": ["fix"]}}, {"id": "fix", "uses": "b"}],
    }
    outer = {"name": "p", "on": "go", "steps": [{"id": "fix", "uses": "c"}, {"call": "inner"}]}
    nodes = compiled(inner, outer).pipelines["p"].nodes
    assert nodes["step_1.step_1"].on_events == {"e": (Target("p", "step_1.fix"),)}


def test_branch_whose_step_is_named_elsewhere_is_not_a_branch():
    pipeline = one(
        {"split": [{"uses": "a", "on_events": {"e": ["late"]}}, {"id": "late", "uses": "b"}]}
    )
    assert [branch.label for branch in pipeline.nodes["step_1"].branches] == ["0"]


def test_a_relay_is_a_node_of_its_own_plugin():
    relay = {"to": "lab", "event": "ready", "with": {"x": "payload.x"}, "dedupe_key": "k"}
    pipeline = one({"relay": relay})
    node = pipeline.nodes["step_1"]
    assert (node.kind, node.plugin, node.command) == (NodeKind.RELAY, "core.relay", "handle")
    assert node.relay is not None
    assert (node.relay.to, node.relay.event) == ("lab", "ready")


def test_a_pipelines_own_settings_are_kept():
    pipeline = one(
        {"uses": "a"},
        **{
            "from_plugin": "b",
            "if": IF,
            "execution_mode": "synchronous",
            "timeout": 12.5,
            "workspace": True,
            "max_depth": 9,
        },
    )
    assert (pipeline.on, pipeline.hook, pipeline.from_plugin) == ("go", None, "b")
    assert (pipeline.execution_mode, pipeline.timeout, pipeline.workspace) == (
        "synchronous",
        12.5,
        True,
    )
    assert (pipeline.max_depth, pipeline.longest) == (9, 1)
    assert str(pipeline.condition) == "payload.x exists"


def test_hop_limit_is_raised_by_an_explicit_depth_and_zero_makes_room():
    long = [{"uses": "a"}] * 30
    assert one({"uses": "a"}).hop_limit(20) == 20
    assert one(*long, max_depth=40).hop_limit(20) == 40
    assert one({"uses": "a"}, max_depth=5).hop_limit(20) == 20
    assert (one(*long, max_depth=0).hop_limit(20), one(*long, max_depth=0).max_depth) == (30, 0)


def test_absent_keys_may_be_written_as_null_or_empty():
    step = {"uses": "a", "call": None, "steps": [], "with": {}, "baggage": {}, "on_events": None}
    assert one({**step, "if": None, "id": None}, **{"on-hook": None}).entry == "step_1"
