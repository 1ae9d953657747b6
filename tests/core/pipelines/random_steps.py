"""Random steps of a pipeline."""

from __future__ import annotations

from hypothesis import strategies as st


def steps_strategy() -> st.SearchStrategy[list[dict[str, object]]]:
    condition = {"path": "payload.n", "op": "gt", "value": 1}
    leaf = st.sampled_from("abcd").map(lambda name: {"uses": name})
    guarded = leaf.map(lambda step: {**step, "if": condition})

    def grow(inner: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
        lists = st.lists(inner, min_size=1, max_size=3)
        return (
            lists.map(lambda steps: {"steps": steps})
            | lists.map(lambda steps: {"split": steps})
            | lists.map(lambda steps: {"split": steps, "if": condition})
        )

    return st.lists(st.recursive(leaf | guarded, grow, max_leaves=5), min_size=1, max_size=3)
