"""What an attempt's outcome means: (job, outcome, rules, now, chance) to one `Settlement`."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids
from ductile.core.delivery.relay import build_envelope
from ductile.core.jobs.live_log import MARK
from ductile.core.jobs.plugin_protocol import NO_RESULT, ProtocolError, Response, read_response
from ductile.core.jobs.prepare import Entered
from ductile.core.jobs.retry import EX_CONFIG, RetryPolicy, count_exempt_attempts, next_retry_at
from ductile.core.pipelines.baggage import control
from ductile.core.pipelines.emit import emit, emit_relay, emit_switch
from ductile.core.pipelines.intents import Routing, SendRelay
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import RelayMessage, Switched
from ductile.core.values.json_values import Failure
from ductile.core.values.redact import Redactor, hide_secret_keys
from ductile.core.waits.begin import NewWait
from ductile.model import (
    Cancellation,
    Ending,
    Job,
    JobStatus,
    Json,
    Outcome,
    Settlement,
    is_ended_on_purpose,
)

TRANSIENT_SPAWN_ERRORS = frozenset(
    {errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)
TRANSIENT_FILE_ERRORS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
)
SHORTAGE_SECONDS, LONGEST_SHORTAGE = 5.0, 300.0
"""First and longest delay of a job that lacks resources to start; it uses up no attempt."""
GIVEN_BACK = frozenset({Cancellation.STOP, Cancellation.NO_WORKER})
"""Cancellations after which the attempt is repeated and does not count."""
UNWANTED = frozenset(Cancellation) - GIVEN_BACK
"""Cancellations that end the job."""
NO_WORKSPACE = "no workspace: "
STDOUT_KEPT = 64 * 1024
"""Bytes of invalid output that the ledger keeps: the whole of it, per attempt, would fill it."""
LONGEST_LINE = 200
"""Maximum number of characters of a line of stderr in an error."""
NOTABLE_DELAY = 1.0
"""Seconds between SIGTERM and the end of a process that are mentioned in its error."""
LONGEST_ERROR = 8 * 1024

LAST_LINE = "; stderr: "
"""Precedes the last line of stderr in an error."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What configuration and manifest say about judging a job of one plugin and command."""

    retry: RetryPolicy
    redactor: Redactor
    router: Router | None = None
    fact_type: str | None = None
    mirror_fact: bool = False
    init_key: str | None = None
    protocol: int = 1
    timeout: float | None = None
    """Seconds that an attempt may take."""
    sandbox: str | None = None
    """What its sandbox holds; the first line of its log."""


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
    """Decide the next state of the job. Pure: the same arguments give the same settlement.

    With `entered` and a `base_id` for its events, a success is routed as well.
    """
    response = None
    if outcome.ending in (Ending.EXITED, Ending.LINGERED):
        response = read_response(outcome.stdout, overflowed=outcome.stdout_overflowed)
    attempt = _Attempt(job, rules, now, chance, _record(outcome, response, rules))
    if outcome.ending is Ending.CANCELLED and cancelled is not None:
        settled = attempt.cancelled(cancelled)
    elif outcome.ending is Ending.TIMED_OUT:
        settled = attempt.failed(JobStatus.TIMED_OUT, _describe_timeout(outcome, rules.timeout))
    elif outcome.ending is Ending.NOT_SPAWNED:
        settled = attempt.not_spawned(outcome)
    elif response is not None:
        settled = attempt.responded(outcome, response)
        if isinstance(response, Response) and response.retry_after is not None:
            settled = _delay(settled, now + timedelta(seconds=response.retry_after))
        routed = settled.status is JobStatus.SUCCEEDED and rules.router is not None
        if routed and entered is not None and base_id is not None:
            assert isinstance(response, Response)
            assert rules.router is not None
            emitted = emit(settled, job, response, entered, rules.router, now, Ids(base_id))
            if isinstance(emitted, Failure):
                settled = attempt.failed(JobStatus.FAILED, emitted.reason)
            else:
                settled = emitted
    else:
        settled = attempt.failed(JobStatus.FAILED, outcome.reason or "the process was lost")
    if cancelled in UNWANTED and settled.status is not JobStatus.SUCCEEDED:
        # A cancelled job is not retried, however its attempt ended.
        settled = attempt.cancelled(cancelled)
    return settled


def switch(
    job: Job,
    judged: Switched | Failure,
    entered: Entered,
    rules: Rules,
    now: datetime,
    base_id: str,
) -> Settlement:
    """Settle a job of `core.switch`: its verdict is its result and selects the next step."""
    if isinstance(judged, Failure):
        return prepare_failed(job, judged.reason, rules, now)
    response = {"status": "ok", "result": judged.result}
    record = {"result": rules.redactor.json(orjson.dumps(response).decode())}
    done = _Attempt(job, rules, now, 0.0, record).ends(JobStatus.SUCCEEDED)
    assert rules.router is not None
    return emit_switch(done, job, judged, entered, rules.router, now, Ids(base_id))


def relay(
    job: Job,
    message: RelayMessage | Failure,
    entered: Entered,
    rules: Rules,
    now: datetime,
    base_id: str,
    us: str,
) -> Settlement:
    """Settle a job of `core.relay`: it has succeeded when its message is in the outbox.

    `us` is the name of this gateway at its peers.
    """
    if isinstance(message, Failure):
        return prepare_failed(job, message.reason, rules, now)
    ids = Ids(base_id)
    event_id = ids.next()
    origin = control(entered.inherited or {}).get("origin") or {}
    body = build_envelope(
        message, instance=us, plugin=origin.get("plugin"), job_id=job.id, event_id=event_id
    )
    if isinstance(body, Failure):
        return prepare_failed(job, body.reason, rules, now)
    sent = SendRelay(job.id, message.to, event_id, message.event_type, body)
    result = {"to": sent.instance, "event": sent.event_type, "event_id": event_id}
    response = orjson.dumps({"status": "ok", "result": result}).decode()
    record = {"result": rules.redactor.json(response)}
    done = _Attempt(job, rules, now, 0.0, record).ends(JobStatus.SUCCEEDED)
    assert rules.router is not None
    return emit_relay(done, job, sent, entered, rules.router, now, ids, result)


def wait(
    job: Job, begun: NewWait | Failure, announced: Routing, rules: Rules, now: datetime
) -> Settlement:
    """Settle a job of `core.wait`: it returns to the queue, where no worker claims it.

    `announced` is what the event about it starts.
    """
    if isinstance(begun, Failure):
        return prepare_failed(job, begun.reason, rules, now)
    return _Attempt(job, rules, now, 0.0, {}).ends(
        JobStatus.QUEUED, wait=begun, intents=announced.intents, counted=False
    )


def prepare_failed(job: Job, error: str, rules: Rules, now: datetime) -> Settlement:
    """A job whose request cannot be built ends as `failed`: a retry would change nothing."""
    return _Attempt(job, rules, now, 0.0, {}).ends(JobStatus.FAILED, error=error)


def plugin_gone(job: Job, reason: str, rules: Rules, now: datetime) -> Settlement:
    """A claimed job whose plugin was removed ends as `dead`, like queued jobs of that plugin."""
    return _Attempt(job, rules, now, 0.0, {}).ends(JobStatus.DEAD, error=reason, cancelled=True)


def no_workspace(job: Job, error: OSError, rules: Rules, now: datetime) -> Settlement:
    """A job whose workspace cannot be created waits if the disk is full, and fails otherwise."""
    attempt = _Attempt(job, rules, now, 0.0, {})
    reason = f"{NO_WORKSPACE}{error.strerror if error.filename is None else error}"
    if error.errno in TRANSIENT_FILE_ERRORS:
        return attempt.waits(reason)
    return attempt.ends(JobStatus.FAILED, error=reason)


def left_to_others(job: Job, reason: str, rules: Rules, now: datetime) -> Settlement:
    """A job that cannot run on this node waits: another node may be able to run it."""
    return _Attempt(job, rules, now, 0.0, {}).waits(reason)


class _Attempt:
    """One attempt: builds the settlement for each way it can end."""

    def __init__(
        self, job: Job, rules: Rules, now: datetime, chance: float, record: dict[str, Any]
    ) -> None:
        self.job, self.rules, self.now, self.chance = job, rules, now, chance
        self.record = record

    def ends(self, *path: JobStatus, error: str | None = None, **more: Any) -> Settlement:
        return Settlement(
            job=self.job,
            path=path,
            at=self.now,
            error=None if error is None else shortened(self.rules.redactor.text(error)),
            init_key=self.rules.init_key,
            **self.record,
            **more,
        )

    def failed(self, status: JobStatus, error: str) -> Settlement:
        job = self.job
        retry_at = next_retry_at(
            job.attempt, job.max_attempts, self.rules.retry, self.now, self.chance
        )
        after = JobStatus.DEAD if retry_at is None else JobStatus.QUEUED
        return self.ends(status, after, error=error, retry_at=retry_at)

    def waits(self, error: str) -> Settlement:
        """Wait for resources or another node, twice as long each time; not counted."""
        again = min(count_exempt_attempts(self.job.max_attempts, self.rules.retry), 60)
        delay = timedelta(seconds=min(SHORTAGE_SECONDS * 2.0**again, LONGEST_SHORTAGE))
        return self.ends(JobStatus.QUEUED, error=error, retry_at=self.now + delay, counted=False)

    def cancelled(self, why: Cancellation) -> Settlement:
        if why in GIVEN_BACK:
            return self.ends(JobStatus.QUEUED, error=why.value, counted=False, cancelled=True)
        return self.ends(JobStatus.DEAD, error=why.value, cancelled=True)

    def not_spawned(self, outcome: Outcome) -> Settlement:
        if outcome.errno in TRANSIENT_SPAWN_ERRORS:
            return self.waits(outcome.reason or "the machine could not start a process")
        return self.ends(
            JobStatus.FAILED, error=outcome.reason or "the entrypoint could not be started"
        )

    def responded(self, outcome: Outcome, response: Response | ProtocolError) -> Settlement:
        code = outcome.exit_code if outcome.ending is Ending.EXITED else None
        error = _error_of(response, code)
        if isinstance(response, ProtocolError):
            error = outcome.reason or error
            text = "" if outcome.stderr_truncated else self.record.get("stderr", "")
            if code and (last := _last_line(text)):
                error = f"{error}{LAST_LINE}{last}"
        if error is None and isinstance(response, Response):
            return self.succeeded(response)
        final = code == EX_CONFIG or (isinstance(response, Response) and not response.retry)
        if final:
            return self.ends(JobStatus.FAILED, error=error)
        return self.failed(JobStatus.FAILED, error or "failed")

    def succeeded(self, response: Response) -> Settlement:
        remark = NO_RESULT if self.rules.protocol >= 2 and response.missing_result else None
        if not response.state_updates:
            return self.ends(JobStatus.SUCCEEDED, remark=remark)
        too_large = "the plugin's state would exceed 1 MiB; its update was refused"
        return self.ends(
            JobStatus.SUCCEEDED,
            state_updates=response.state_updates,
            fact_type=self.rules.fact_type,
            mirror_fact=self.rules.mirror_fact,
            otherwise=self.failed(JobStatus.FAILED, too_large),
            remark=remark,
        )


def _delay(settled: Settlement, until: datetime) -> Settlement:
    """Start no job of the same key before this time, and retry this one then."""
    retry_at = None if settled.retry_at is None else until
    return replace(settled, closed_until=until, retry_at=retry_at)


def shortened(error: str) -> str:
    """The error, shortened: it is copied to many places; result or stderr hold the full text."""
    return error if len(error) <= LONGEST_ERROR else f"{error[:LONGEST_ERROR]} … (shortened)"


def _describe_timeout(outcome: Outcome, timeout: float | None) -> str:
    """The limit, and how much longer the process needed to end after SIGTERM."""
    if timeout is None:
        return f"timed out after {outcome.duration:.1f} s"
    late = outcome.duration - timeout
    ended = f"; it ended {late:.1f} s after SIGTERM" if late >= NOTABLE_DELAY else ""
    return f"timed out after {timeout:g} s{ended}"


def _error_of(response: Response | ProtocolError, code: int | None) -> str | None:
    ended = "" if not code else f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    if isinstance(response, ProtocolError):
        return f"{ended}; {response.reason}" if ended else response.reason
    if response.status == "error":
        error = response.error or ended or "the plugin reported an error"
        # Alerts take the text of a cancellation for one.
        return f"the plugin reported: {error}" if is_ended_on_purpose(error) else error
    return f"{ended} in spite of status ok" if ended else None


def _last_line(stderr: str) -> str:
    """The last line of stderr, which is redacted already; usually it is the reason.

    Lines that report progress are none.
    """
    lines = reversed(stderr.rstrip().split("\n"))
    return next((line.strip() for line in lines if not line.startswith(MARK)), "")[:LONGEST_LINE]


def _record(
    outcome: Outcome, response: Response | ProtocolError | None, rules: Rules
) -> dict[str, Any]:
    """The redacted parts of the attempt that are stored."""
    redactor = rules.redactor
    logs: Sequence[tuple[str, str]] = ()
    record: dict[str, Any] = {"duration": outcome.duration}
    if outcome.stderr:
        hidden = redactor.truncated_text if outcome.stderr_truncated else redactor.text
        record["stderr"] = hidden(_readable(outcome.stderr))
    if isinstance(response, Response):
        record["result"] = redactor.json(orjson.dumps(_stored_response(response.raw)).decode())
        logs = response.logs
    elif outcome.stdout:
        whole = len(outcome.stdout) <= STDOUT_KEPT and not outcome.stdout_overflowed
        hidden = redactor.text if whole else redactor.truncated_text
        record["stdout"] = hidden(_readable(outcome.stdout[:STDOUT_KEPT]))
    if rules.sandbox is not None and outcome.ending is not Ending.NOT_SPAWNED:
        logs = (("info", f"sandbox: {rules.sandbox}"), *logs)
    if logs:
        lines = [{"level": level, "message": message} for level, message in logs]
        record["logs"] = redactor.json(orjson.dumps(lines).decode())
    return record


def _stored_response(raw: Mapping[str, Json]) -> Mapping[str, Json]:
    updates = raw.get("state_updates")
    return {**raw, "state_updates": hide_secret_keys(updates)} if updates else raw


def _readable(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").replace("\0", "\ufffd")
