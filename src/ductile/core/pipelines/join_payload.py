"""The payload of the step after a split, from its last jobs. `Router.join` creates its job."""

from __future__ import annotations

from collections.abc import Sequence

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.core.values.json_values import size_of
from ductile.model import MIB, JobStatus, Json

MAX_JOIN = MIB
LARGE = ("result", "error")
"""The fields that may be left out of an entry."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job of a split's scope, or of a scope inside it, after all of them have ended."""

    job_id: str
    parent_job_id: str | None
    branch: str
    """Its branch of each scope around it, outermost first, joined by `/`."""
    step_path: str
    status: JobStatus
    result: Json
    """The response's `result` field."""
    joined: bool = False
    """Whether an inner scope around it has already continued with its own join."""
    error: str | None = None


def inner_branch(branch: str, label: str) -> str:
    """The branch of a job inside branch `label` of a split that is in `branch`."""
    return f"{branch}/{label}" if branch else label


def last_jobs(jobs: Sequence[EndedJob]) -> tuple[EndedJob, ...]:
    """The jobs that no other job in the scope follows."""
    parents = {job.parent_job_id for job in jobs}
    return tuple(job for job in jobs if job.job_id not in parents and not job.joined)


def join_payload(jobs: Sequence[EndedJob], *, branch: str = "") -> dict[str, Json]:
    """The payload of the join: an entry for each last job, and the number of failed ones.

    An entry has an `error` if its job failed. `jobs` are in the order of the queue, in which the
    first jobs of the branches are in the order of the branches. `branch` is that of the split
    itself. If the payload exceeds 1 MiB the largest results and errors are left out; `job_id`
    refers to them.
    """
    began = dict.fromkeys(_label(job.branch, branch) for job in jobs)
    order = {label: number for number, label in enumerate(began)}
    last = last_jobs(jobs)
    entries = [_entry(job, _label(job.branch, branch)) for job in last]
    entries.sort(key=lambda entry: (order[entry["branch"]], entry["step"], entry["job_id"]))
    failed = sum(job.status in ENDED_BADLY for job in last)
    return {"branches": _trimmed(entries), "failed": failed}


def _entry(job: EndedJob, branch: str) -> dict[str, Json]:
    entry: dict[str, Json] = {
        "branch": branch,
        "step": job.step_path,
        "job_id": job.job_id,
        "status": job.status.value,
        "result": job.result,
    }
    return {**entry, "error": job.error} if job.status in ENDED_BADLY else entry


def _label(branch: str, around: str) -> str:
    inside = branch[len(around) + 1 :] if around else branch
    return inside.partition("/")[0]


def _trimmed(entries: list[dict[str, Json]]) -> list[dict[str, Json]]:
    sizes = {
        (place, name): size_of(entry[name])
        for place, entry in enumerate(entries)
        for name in LARGE
        if name in entry
    }
    left: set[tuple[int, str]] = set()
    # Including the text around the list.
    total = size_of(entries) + 64
    for field in sorted(sizes, key=lambda field: sizes[field], reverse=True):
        if total <= MAX_JOIN:
            break
        left.add(field)
        total -= sizes[field]
    return [
        {name: value for name, value in entry.items() if (place, name) not in left}
        for place, entry in enumerate(entries)
    ]
