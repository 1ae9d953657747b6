from __future__ import annotations

import re

from hypothesis import given, settings

from ductile.core.pipelines.diagram import mermaid, tree
from tests.core.pipelines.compiler.test_compile import compiled, one
from tests.core.pipelines.random_steps import steps_strategy
from tests.core.pipelines.test_router import pipeline

IF = {"path": "payload.x", "op": "eq", "value": 'a "b"'}


def sample():
    return compiled(
        pipeline({"uses": "a"}, name="other"),
        pipeline(
            {"id": "v", "uses": "check", "on_events": {"bad": ["fix", "other"]}},
            {"id": "fix", "uses": "b", "on_events": {"bad": ["fix"]}},
            {"id": "s", "if": IF, "join": "always", "split": [{"uses": "c"}, {"uses": "d"}]},
            {"id": "out", "relay": {"to": "lab", "event": "ready"}},
            on="go",
            from_plugin="a",
            max_depth=9,
        ),
    ).pipelines["p"]


def test_a_tree_hangs_what_is_nested_below_what_it_depends_on():
    assert tree(sample()) == (
        "p (on go from a)\n"
        "├─ v: check.handle\n"
        "│  └─ on bad\n"
        "│     ├─ fix: b.handle\n"
        "│     │  └─ on bad\n"
        "│     │     └─ fix, as above\n"
        "│     └─ pipeline other\n"
        '├─ if payload.x eq "a \\"b\\""\n'
        "│  └─ s: split, join always\n"
        "│     ├─ branch 0\n"
        "│     │  └─ s.0.step_1: c.handle\n"
        "│     └─ branch 1\n"
        "│        └─ s.1.step_1: d.handle\n"
        "└─ out: relay ready to lab\n"
    )


def test_a_flowchart_has_a_shape_a_node_and_an_arrow_a_way():
    tx_config = mermaid(sample())
    assert tx_config == (
        "flowchart TD\n"
        '    start(["on go from a"]) --> n1\n'
        '    n1["v: check.handle"]\n'
        "    n1 --> n2\n"
        '    n1 -->|"bad"| n3\n'
        '    n1 -->|"bad"| p1\n'
        '    n2{"if payload.x eq #quot;a \\#quot;b\\#quot;#quot;"}\n'
        "    n2 -->|true| n4\n"
        "    n2 -->|false| n5\n"
        '    n3["fix: b.handle"]\n'
        '    n3 -->|"bad"| n3\n'
        '    n4{{"s: split, join always"}}\n'
        '    n4 -->|"0"| n6\n'
        '    n4 -->|"1"| n7\n'
        "    n4 -.->|join| n5\n"
        '    n5>"out: relay ready to lab"]\n'
        '    n6["s.0.step_1: c.handle"]\n'
        '    n7["s.1.step_1: d.handle"]\n'
        '    p1[["pipeline other"]]\n'
    )


def test_trigger_of_a_handler_names_its_pipeline():
    raw = {"name": "p", "on": "go", "steps": [{"uses": "a"}], "on_failure": [{"uses": "b"}]}
    drawn = tree(compiled(raw).pipelines["p.on_failure"])
    assert drawn == "p.on_failure (on-hook run.failed from p)\n└─ step_1: b.handle\n"


@settings(max_examples=50, deadline=None)
@given(steps_strategy())
def test_every_node_is_drawn_once(steps):
    drawn = one(*steps, max_depth=0)
    tx_config = mermaid(drawn)
    assert len(re.findall(r"^    n\d+[\[{>]", tx_config, re.MULTILINE)) == len(drawn.nodes)
    lines = tree(drawn).splitlines()[1:]
    assert len([line for line in lines if "branch " not in line]) == len(drawn.nodes)
