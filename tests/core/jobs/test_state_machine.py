"""The job state machine: the table, and everything that repeats it."""

from __future__ import annotations

import itertools
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.jobs import state_machine
from ductile.core.jobs.state_machine import EDGES, ENDED, ENDED_BADLY, edges
from ductile.model import JobStatus

Q, R, S, F, T, D, K = (
    JobStatus.QUEUED,
    JobStatus.RUNNING,
    JobStatus.SUCCEEDED,
    JobStatus.FAILED,
    JobStatus.TIMED_OUT,
    JobStatus.DEAD,
    JobStatus.SKIPPED,
)
LEGAL = {
    (Q, R),
    (Q, D),
    (Q, K),
    (Q, S),
    (Q, F),
    (R, S),
    (R, F),
    (R, T),
    (R, D),
    (R, K),
    (R, Q),
    (F, Q),
    (F, D),
    (T, Q),
    (T, D),
    (D, Q),
}
"""docs/specification.md, "Jobs and states", repeated independently of the code."""


def schema() -> str:
    folder = files("ductile.store").joinpath("migrations")
    sources = sorted((file.name, file.read_text(encoding="utf-8")) for file in folder.iterdir())
    return "\n".join(text for _, text in sources)


@pytest.mark.parametrize(("start", "end"), list(itertools.product(JobStatus, JobStatus)))
def test_an_edge_is_legal_only_if_the_contract_has_it(start, end):
    assert ((start, end) in EDGES) == ((start, end) in LEGAL)


@pytest.mark.parametrize(("start", "end"), sorted(LEGAL))
def test_a_legal_edge_is_walked(start, end):
    assert edges(start, (end,)) == [(start, end)]


@pytest.mark.parametrize(
    ("start", "end"), sorted(set(itertools.product(JobStatus, JobStatus)) - LEGAL)
)
def test_an_illegal_edge_is_a_bug_that_names_both_states(start, end):
    with pytest.raises(state_machine.IllegalEdge, match=rf"{start}.*{end}"):
        edges(start, (end,))


def test_a_walk_is_checked_at_every_step_of_it():
    assert edges(R, (F, Q, R, S)) == [(R, F), (F, Q), (Q, R), (R, S)]
    with pytest.raises(state_machine.IllegalEdge):
        edges(R, (F, S))


def test_path_without_steps_is_not_an_edge():
    assert edges(R, ()) == []


@given(st.lists(st.sampled_from(list(JobStatus)), min_size=2, max_size=8))
def test_a_walk_is_legal_if_and_only_if_each_of_its_edges_is(walk):
    legal = all(edge in LEGAL for edge in itertools.pairwise(walk))
    try:
        edges(walk[0], tuple(walk[1:]))
    except state_machine.IllegalEdge:
        assert not legal
    else:
        assert legal


def test_only_a_retry_leaves_an_ended_state():
    leaving = {(start, end) for start, end in EDGES if start in ENDED}
    assert leaving == {(F, Q), (F, D), (D, Q)}
    assert {start for start, end in leaving if end is Q} == ENDED_BADLY


def test_every_state_can_be_reached_and_left():
    assert {end for _, end in EDGES} == set(JobStatus)
    assert set(JobStatus) - {start for start, _ in EDGES} <= ENDED


def test_timed_out_is_never_where_a_job_stays():
    assert T not in ENDED
    assert {Q, R}.isdisjoint(ENDED)


def test_whatever_ends_neither_in_success_nor_skipped_ends_badly():
    assert set(ENDED - ENDED_BADLY) == {S, K}


def test_every_edge_names_what_takes_it():
    assert all(isinstance(text, str) and text for text in EDGES.values())


def test_the_schema_repeats_the_states_of_a_job():
    """SQLite cannot change a CHECK, so the first table's is the one that holds."""
    table = re.search(r"CREATE TABLE job_queue \((.*?)^\);", schema(), re.DOTALL | re.MULTILINE)
    assert table is not None
    check = re.search(r"CHECK \(status IN \(([^)]*)\)\)", table[1])
    assert check is not None
    named = re.findall(r"'(\w+)'", check[1])
    assert sorted(named) == sorted(status.value for status in JobStatus)
