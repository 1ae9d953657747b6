"""What an attempt's outcome means: (job, outcome, policy, now, chance) to one Settlement."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import orjson

from ductile.clock import Ids
from ductile.core.emit import emit, emit_switch, with_context
from ductile.core.entering import Switched
from ductile.core.prepare import Entered
from ductile.core.protocol import ProtocolError, Response, read_response
from ductile.core.redact import Redactor, hide_secret_keys
from ductile.core.retry import EX_CONFIG, RetryPolicy, next_retry_at
from ductile.core.router import Router
from ductile.core.values import Failure
from ductile.model import (
    Cancellation,
    Ending,
    Job,
    JobStatus,
    Json,
    Outcome,
    Settlement,
)

TRANSIENT_SPAWN_ERRORS = frozenset(
    {errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)
SPAWN_RETRY_SECONDS = 5.0
STDOUT_KEPT = 64 * 1024


@dataclass(frozen=True, slots=True)
class Rules:
    """What the config and the manifest say about judging a job of one plugin and command."""

    retry: RetryPolicy
    redactor: Redactor
    router: Router | None = None
    fact_type: str | None = None
    mirror_fact: bool = False
    init_key: str | None = None


def judge(
    job: Job,
    outcome: Outcome,
    rules: Rules,
    now: datetime,
    chance: float,
    cancelled: Cancellation | None = None,
    entered: Entered | None = None,
    base_id: str | None = None,
) -> Settlement:
    """Decide what becomes of the job. Pure: the same arguments give the same settlement.

    With what `entered` it and a `base_id` for its events, a success is routed as well.
    """
    response = None
    if outcome.ending is Ending.CANCELLED and cancelled is not None:
        verdict = replace(_cancelled(job, cancelled, now), cancelled=True)
    elif outcome.ending is Ending.TIMED_OUT:
        error = f"timed out after {outcome.duration:.1f} s"
        verdict = _failed(job, rules, JobStatus.TIMED_OUT, error, now, chance)
    elif outcome.ending is Ending.NOT_SPAWNED:
        verdict = _not_spawned(job, outcome, now)
    elif outcome.ending in (Ending.EXITED, Ending.LINGERED):
        response = read_response(outcome.stdout, overflowed=outcome.stdout_overflowed)
        verdict = _responded(job, outcome, response, rules, now, chance)
    else:
        error = outcome.reason or "the process was lost"
        verdict = _failed(job, rules, JobStatus.FAILED, error, now, chance)
    settled = _with_record(verdict, outcome, response, rules)
    if settled.otherwise is not None:
        otherwise = _with_record(settled.otherwise, outcome, response, rules)
        settled = replace(settled, otherwise=otherwise)
    if entered is None:
        return settled
    routed = settled.status is JobStatus.SUCCEEDED and rules.router is not None and base_id
    if routed and isinstance(response, Response):
        assert rules.router is not None
        assert base_id is not None
        return emit(settled, job, response, entered, rules.router, now, Ids(base_id))
    return with_context(settled, entered)


def switch(
    job: Job,
    judged: Switched | Failure,
    entered: Entered,
    rules: Rules,
    now: datetime,
    base_id: str,
) -> Settlement:
    """Settle a job of `core.switch`: its verdict is its result, and leads on."""
    if isinstance(judged, Failure):
        return prepare_failed(job, judged.reason, rules, now)
    response = {"status": "ok", "result": judged.result}
    done = replace(
        _settlement(job, now, JobStatus.SUCCEEDED), result=orjson.dumps(response).decode()
    )
    assert rules.router is not None
    return emit_switch(done, job, judged, entered, rules.router, now, Ids(base_id))


def prepare_failed(job: Job, error: str, rules: Rules, now: datetime) -> Settlement:
    """A job whose request could not be made ends `failed`: trying again would change nothing."""
    return replace(
        _settlement(job, now, JobStatus.FAILED),
        error=rules.redactor.text(error),
    )


def _settlement(job: Job, now: datetime, *path: JobStatus) -> Settlement:
    return Settlement(
        job_id=job.id,
        plugin=job.plugin,
        command=job.command,
        attempt=job.attempt,
        owner=job.owner,
        path=path,
        at=now,
    )


def _failed(
    job: Job, rules: Rules, status: JobStatus, error: str, now: datetime, chance: float
) -> Settlement:
    retry_at = next_retry_at(job.attempt, job.max_attempts, rules.retry, now, chance)
    after = JobStatus.DEAD if retry_at is None else JobStatus.QUEUED
    return replace(_settlement(job, now, status, after), error=error, retry_at=retry_at)


def _cancelled(job: Job, cancelled: Cancellation, now: datetime) -> Settlement:
    if cancelled is Cancellation.STOP:
        released = _settlement(job, now, JobStatus.QUEUED)
        return replace(released, error=cancelled.value, counted=False)
    return replace(_settlement(job, now, JobStatus.DEAD), error=cancelled.value)


def _not_spawned(job: Job, outcome: Outcome, now: datetime) -> Settlement:
    if outcome.errno in TRANSIENT_SPAWN_ERRORS:
        return replace(
            _settlement(job, now, JobStatus.QUEUED),
            error=outcome.reason or "the machine could not start a process",
            retry_at=now + timedelta(seconds=SPAWN_RETRY_SECONDS),
            counted=False,
        )
    error = outcome.reason or "the entrypoint could not be started"
    return replace(_settlement(job, now, JobStatus.FAILED), error=error)


def _responded(
    job: Job,
    outcome: Outcome,
    response: Response | ProtocolError,
    rules: Rules,
    now: datetime,
    chance: float,
) -> Settlement:
    code = outcome.exit_code if outcome.ending is Ending.EXITED else None
    error = _error_of(response, code)
    if error is None and isinstance(response, Response):
        return _succeeded(job, response, rules, now, chance)
    final = code == EX_CONFIG or (isinstance(response, Response) and not response.retry)
    if final:
        return replace(_settlement(job, now, JobStatus.FAILED), error=error)
    return _failed(job, rules, JobStatus.FAILED, error or "failed", now, chance)


def _error_of(response: Response | ProtocolError, code: int | None) -> str | None:
    ended = "" if not code else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    if isinstance(response, ProtocolError):
        return f"{ended}; {response.reason}" if ended else response.reason
    if response.status == "error":
        return response.error or ended or "the plugin reported an error"
    return f"{ended} in spite of status ok" if ended else None


def _succeeded(
    job: Job, response: Response, rules: Rules, now: datetime, chance: float
) -> Settlement:
    done = replace(_settlement(job, now, JobStatus.SUCCEEDED), init_key=rules.init_key)
    if not response.state_updates:
        return done
    too_large = "the plugin's state would exceed 1 MiB; its update was refused"
    return replace(
        done,
        state_updates=response.state_updates,
        fact_type=rules.fact_type,
        mirror_fact=rules.mirror_fact,
        otherwise=_failed(job, rules, JobStatus.FAILED, too_large, now, chance),
    )


def _with_record(
    verdict: Settlement,
    outcome: Outcome,
    response: Response | ProtocolError | None,
    rules: Rules,
) -> Settlement:
    redactor = rules.redactor
    result = logs = stdout = None
    if isinstance(response, Response):
        result = redactor.text(orjson.dumps(_stored_response(response.raw)).decode())
        if response.logs:
            lines = [{"level": level, "message": message} for level, message in response.logs]
            logs = redactor.text(orjson.dumps(lines).decode())
    elif outcome.stdout:
        stdout = redactor.text(_readable(outcome.stdout[:STDOUT_KEPT]))
    return replace(
        verdict,
        error=redactor.maybe(verdict.error),
        result=result,
        logs=logs,
        stdout=stdout,
        stderr=redactor.text(_readable(outcome.stderr)) if outcome.stderr else None,
        duration=outcome.duration,
    )


def _stored_response(raw: Mapping[str, Json]) -> Mapping[str, Json]:
    updates = raw.get("state_updates")
    return {**raw, "state_updates": hide_secret_keys(updates)} if updates else raw


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\ufffd")
