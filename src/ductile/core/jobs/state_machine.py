"""The job state machine, as a table. The schema's CHECK and every guarded update repeat it."""

from __future__ import annotations

from collections.abc import Sequence

from ductile.model import JobStatus

_Q, _R, _S, _F, _T, _D, _K = (
    JobStatus.QUEUED,
    JobStatus.RUNNING,
    JobStatus.SUCCEEDED,
    JobStatus.FAILED,
    JobStatus.TIMED_OUT,
    JobStatus.DEAD,
    JobStatus.SKIPPED,
)

EDGES: dict[tuple[JobStatus, JobStatus], str] = {
    (_Q, _R): "claimed",
    (_Q, _D): "cancelled, or its plugin is gone",
    (_Q, _K): "the core decided not to run it",
    (_Q, _S): "what its step waited for has come",
    (_Q, _F): "its approval was rejected, or its wait expired",
    (_R, _S): "the plugin reported ok and exited with 0",
    (_R, _F): "the plugin failed, could not be spawned, or was lost",
    (_R, _T): "its deadline passed",
    (_R, _D): "cancelled while it ran, or its plugin is gone",
    (_R, _K): "the core decided not to run it",
    (_R, _Q): "released: the attempt does not count",
    (_F, _Q): "to be tried again",
    (_F, _D): "its attempts are used up",
    (_T, _Q): "to be tried again",
    (_T, _D): "its attempts are used up",
    (_D, _Q): "an operator tries again",
}

ENDED_BADLY = frozenset({_F, _D})
"""The final states of a failure: they stop a pipeline, and an operator may retry them."""

ENDED = ENDED_BADLY | {_S, _K}
"""Final states; only an operator's retry leaves them."""


class IllegalEdge(ValueError):
    """A state change that is not in the table: a bug, never an expected failure."""


def edges(start: JobStatus, path: Sequence[JobStatus]) -> list[tuple[JobStatus, JobStatus]]:
    """The edges from `start` through `path`; `IllegalEdge` if one is not in the table."""
    walk = list(zip((start, *path), path, strict=False))
    for edge in walk:
        if edge not in EDGES:
            raise IllegalEdge(f"a job cannot go from {edge[0]} to {edge[1]}")
    return walk


_ALIASES = {"pending": _Q.value, "ok": _S.value, "error": _F.value}
"""Names of states that the Go program accepts in filters."""


def status_named(word: str) -> str:
    """The state that a filter names; an unknown name is returned unchanged."""
    plain = word.strip().lower()
    return _ALIASES.get(plain, plain)
