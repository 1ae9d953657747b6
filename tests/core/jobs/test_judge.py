"""Outcomes of attempts as tables: docs/specification.md, "Judging a response"."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.jobs.judge import (
    LONGEST_SHORTAGE,
    SHORTAGE_SECONDS,
    TRANSIENT_SPAWN_ERRORS,
    Rules,
    judge,
    left_to_others,
    no_workspace,
    plugin_gone,
    prepare_failed,
)
from ductile.core.jobs.prepare import Entered
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.jobs.state_machine import ENDED, edges
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.routes import Route
from ductile.core.pipelines.step_io import MAX_COPIED
from ductile.core.values.redact import REDACTED, Redactor
from ductile.model import (
    ENDED_ON_PURPOSE,
    RUN_SUPERSEDED,
    STDERR_CAP,
    Cancellation,
    Ending,
    Job,
    JobStatus,
    Outcome,
)

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
RULES = Rules(RetryPolicy(), Redactor())
JOB = Job(
    id="job-1",
    plugin="echo",
    command="poll",
    payload={},
    status=JobStatus.RUNNING,
    attempt=1,
    max_attempts=4,
    submitted_by="cli",
    dedupe_key=None,
    created_at=NOW,
    started_at=NOW,
    completed_at=None,
    next_retry_at=None,
    last_error=None,
    parent_job_id=None,
    source_event_id=None,
    owner="boot-1",
)
OK = b'{"status": "ok", "result": "done"}'
BAD = b'{"status": "error", "error": "no luck"}'
FINAL = b'{"status": "error", "error": "never", "retry": false}'

SUCCEEDED = (JobStatus.SUCCEEDED,)
FAILED = (JobStatus.FAILED,)
RETRIED = (JobStatus.FAILED, JobStatus.QUEUED)
RELEASED = (JobStatus.QUEUED,)
DEAD = (JobStatus.DEAD,)


def verdict(outcome, *, job=JOB, rules=RULES, chance=0.5, cancelled=None):
    return judge(job, outcome, rules, NOW, chance, cancelled)


def exited(stdout=OK, code=0, **more):
    return Outcome(Ending.EXITED, exit_code=code, stdout=stdout, **more)


def lingered(stdout):
    return Outcome(Ending.LINGERED, exit_code=-9, stdout=stdout)


RESPONSES = [
    # Exit 0 and ok succeeded; status error failed whatever the exit code;
    # non-zero exit failed; 78 and `retry: false` without retry.
    (exited(OK), SUCCEEDED, None),
    (exited(OK, 1), RETRIED, "exit code 1"),
    (exited(OK, 78), FAILED, "exit code 78"),
    (exited(OK, -9), RETRIED, "signal 9"),
    (exited(BAD), RETRIED, "no luck"),
    (exited(BAD, 1), RETRIED, "no luck"),
    (exited(BAD, 78), FAILED, "no luck"),
    (exited(FINAL), FAILED, "never"),
    (exited(FINAL, 1), FAILED, "never"),
    (exited(b'{"status": "error", "retry": true}'), RETRIED, "error"),
    (exited(b'{"status": "error"}', 3), RETRIED, "exit code 3"),
    (exited(b'{"status": "ok", "retry": false, "result": 1}'), SUCCEEDED, None),
    # Protocol 2 wants `result` on ok; its absence is no failure.
    (exited(b'{"status": "ok"}'), SUCCEEDED, None),
    # A protocol error.
    (exited(b""), RETRIED, "empty"),
    (exited(b"", 1), RETRIED, "exit code 1"),
    (exited(b"", 78), FAILED, "exit code 78"),
    (exited(b"", -11), RETRIED, "signal 11"),
    (exited(b"hello"), RETRIED, "not JSON"),
    (exited(b'{"status": "ok"'), RETRIED, "not JSON"),
    (exited(b"[]"), RETRIED, "one JSON object"),
    (exited(OK + b"\n" + OK), RETRIED, "more than one"),
    (exited(b"\xef\xbb\xbf" + OK), RETRIED, "byte order mark"),
    (exited(b'{"status": "\xff"}'), RETRIED, "not UTF-8"),
    (exited(b'{"status": "ok", "result": "\\ud800"}'), RETRIED, "not JSON"),
    (exited(b'{"status": "ok", "result": NaN}'), RETRIED, "not JSON"),
    (exited(b'{"status": "ok", "result": %s}' % (b"9" * 5000)), RETRIED, "JSON"),
    (exited(b'{"status": "ok", "result": 9223372036854775808}'), RETRIED, "64 bits"),
    (exited(b'{"status": "ok", "result": %s%s}' % (b"[" * 100, b"]" * 100)), RETRIED, "levels"),
    (exited(b"[" * 100_000 + b"]" * 100_000), RETRIED, "JSON"),
    (exited(b'{"result": 1}'), RETRIED, "no status"),
    (exited(b'{"status": "fine"}'), RETRIED, "status"),
    (exited(b"x" * STDERR_CAP, stdout_overflowed=True), RETRIED, "10 MiB"),
    # stdout closed while it lived on: what it wrote is judged, our own kill is not.
    (lingered(OK), SUCCEEDED, None),
    (lingered(BAD), RETRIED, "no luck"),
    (lingered(FINAL), FAILED, "never"),
    (lingered(b""), RETRIED, "empty"),
]


@pytest.mark.parametrize(("outcome", "path", "error"), RESPONSES)
def test_a_response_and_its_exit_code_decide(outcome, path, error):
    settled = verdict(outcome)
    assert settled.path == path
    if error is None:
        assert settled.error is None
    else:
        assert error in settled.error


@pytest.mark.parametrize("text", [*sorted(ENDED_ON_PURPOSE), f"{RUN_SUPERSEDED} 7"])
def test_no_plugin_reports_the_text_of_a_cancellation(text):
    """Alerts leave out jobs with such an error."""
    settled = verdict(exited(b'{"status": "error", "error": "%s"}' % text.encode()))
    assert settled.error == f"the plugin reported: {text}"


@pytest.mark.parametrize(("outcome", "path"), [(o, p) for o, p, _ in RESPONSES if p == RETRIED])
def test_a_failure_of_the_last_attempt_is_dead(outcome, path):
    settled = verdict(outcome, job=replace(JOB, attempt=4))
    assert settled.path == (path[0], JobStatus.DEAD)
    assert settled.retry_at is None


@pytest.mark.parametrize("stdout", [OK, b"", b"junk", BAD])
def test_deadline_that_passed_is_timed_out_whatever_was_written(stdout):
    settled = verdict(Outcome(Ending.TIMED_OUT, exit_code=-15, stdout=stdout, duration=60.0))
    assert settled.path == (JobStatus.TIMED_OUT, JobStatus.QUEUED)
    assert settled.error == "timed out after 60.0 s"


@pytest.mark.parametrize(
    ("timeout", "duration", "error"),
    [
        (2.0, 2.1, "timed out after 2 s"),
        (2.0, 7.0, "timed out after 2 s; it ended 5.0 s after SIGTERM"),
        (0.05, 0.06, "timed out after 0.05 s"),
    ],
)
def test_timeout_is_reported_by_its_limit(timeout, duration, error):
    rules = replace(RULES, timeout=timeout)
    outcome = Outcome(Ending.TIMED_OUT, exit_code=-9, duration=duration)
    assert judge(JOB, outcome, rules, NOW, 0.5).error == error


def test_the_last_attempts_deadline_is_dead():
    settled = verdict(Outcome(Ending.TIMED_OUT), job=replace(JOB, attempt=4))
    assert settled.path == (JobStatus.TIMED_OUT, JobStatus.DEAD)


def test_an_attempt_that_was_lost_counts_and_waits_its_backoff():
    settled = verdict(Outcome(Ending.LOST, reason="the gateway died while this job ran"))
    assert settled.path == RETRIED
    assert settled.counted
    assert settled.retry_at == NOW + timedelta(seconds=45)
    assert settled.error == "the gateway died while this job ran"


def test_a_lost_last_attempt_is_dead():
    settled = verdict(Outcome(Ending.LOST), job=replace(JOB, attempt=4))
    assert settled.path == (JobStatus.FAILED, JobStatus.DEAD)


@pytest.mark.parametrize("code", [errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
def test_a_passing_shortage_uses_up_no_attempt(code):
    settled = verdict(Outcome(Ending.NOT_SPAWNED, errno=code), job=replace(JOB, attempt=4))
    assert settled.path == RELEASED
    assert not settled.counted
    assert settled.retry_at == NOW + timedelta(seconds=5)


def test_lasting_shortage_doubles_the_wait():
    waited, job = [], JOB
    for _ in range(100):
        settled = verdict(Outcome(Ending.NOT_SPAWNED, errno=errno.ENOMEM), job=job)
        waited.append((settled.retry_at - NOW).total_seconds())
        # As the ledger settles what does not count.
        job = replace(job, attempt=job.attempt + 1, max_attempts=job.max_attempts + 1)
    assert waited[:8] == [5, 10, 20, 40, 80, 160, 300, 300]
    assert waited[-1] == 300


def test_attempts_lost_to_a_shortage_do_not_lengthen_the_backoff():
    late = replace(JOB, attempt=31, max_attempts=34)
    assert verdict(exited(BAD), job=late).retry_at == verdict(exited(BAD)).retry_at


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "it is full"), "no workspace: it is full"),
        (
            OSError(errno.EDQUOT, "too much", "a/b"),
            f"no workspace: [Errno {errno.EDQUOT}] too much: 'a/b'",
        ),
    ],
)
def test_a_job_whose_files_have_no_room_waits_with_a_reason(error, reason):
    settled = no_workspace(JOB, error, RULES, NOW)
    assert (settled.path, settled.counted, settled.error) == (RELEASED, False, reason)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES, errno.ENOEXEC, errno.EINVAL, None])
def test_entrypoint_that_cannot_start_fails_without_retry(code):
    settled = verdict(Outcome(Ending.NOT_SPAWNED, errno=code, reason="no /bin/nosuch"))
    assert settled.path == FAILED
    assert settled.error == "no /bin/nosuch"


def test_missing_interpreter_is_reported_instead_of_the_exit_code():
    missing = "`uv` is not installed: the first line of run.py names it"
    settled = verdict(Outcome(Ending.EXITED, exit_code=127, reason=missing))
    assert settled.error == missing


@pytest.mark.parametrize("cancelled", [Cancellation.OPERATOR, Cancellation.SUPERSEDED])
@pytest.mark.parametrize("attempt", [1, 4])
def test_a_cancelled_job_is_dead_with_the_reason(cancelled, attempt):
    settled = verdict(
        Outcome(Ending.CANCELLED, exit_code=-15),
        job=replace(JOB, attempt=attempt),
        cancelled=cancelled,
    )
    assert settled.path == DEAD
    assert settled.error == cancelled.value
    assert settled.cancelled


@pytest.mark.parametrize("attempt", [1, 4])
def test_a_stop_gives_the_job_back_at_once_and_uncounted(attempt):
    settled = verdict(
        Outcome(Ending.CANCELLED), job=replace(JOB, attempt=attempt), cancelled=Cancellation.STOP
    )
    assert (settled.path, settled.counted, settled.retry_at) == (RELEASED, False, None)


@pytest.mark.parametrize("cancelled", [Cancellation.OPERATOR, Cancellation.SUPERSEDED])
@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Ending.TIMED_OUT),
        Outcome(Ending.LOST),
        Outcome(Ending.NOT_SPAWNED, errno=errno.EAGAIN),
        exited(OK, 1),
    ],
    ids=["timed out", "lost", "not spawned", "failed"],
)
def test_cancelled_job_is_not_retried_however_it_ends(outcome, cancelled):
    settled = verdict(outcome, cancelled=cancelled)
    assert settled.path == (JobStatus.DEAD,)
    assert (settled.error, settled.retry_at, settled.cancelled) == (cancelled.value, None, True)


@pytest.mark.parametrize("cancelled", [Cancellation.STOP, Cancellation.NO_WORKER])
def test_attempt_that_fails_while_the_gateway_stops_has_failed(cancelled):
    assert verdict(exited(OK, 1), cancelled=cancelled) == verdict(exited(OK, 1))


@pytest.mark.parametrize("cancelled", list(Cancellation))
def test_output_that_was_complete_before_the_cancel_wins(cancelled):
    assert verdict(exited(OK), cancelled=cancelled).path == SUCCEEDED


def test_only_success_takes_state_updates():
    body = {"status": "error", "error": "x", "state_updates": {"a": 1}}
    assert verdict(exited(json.dumps(body).encode())).state_updates is None
    body["status"] = "ok"
    assert verdict(exited(json.dumps(body).encode(), 1)).state_updates is None
    assert verdict(exited(json.dumps(body).encode())).state_updates == {"a": 1}


def test_state_update_comes_with_what_to_settle_if_it_is_refused():
    settled = verdict(exited(b'{"status": "ok", "state_updates": {"a": 1}}'))
    assert settled.otherwise.path == RETRIED
    assert "1 MiB" in settled.otherwise.error
    assert settled.otherwise.state_updates is None
    assert settled.otherwise.result is not None


def test_an_empty_state_update_changes_nothing():
    assert verdict(exited(b'{"status": "ok", "state_updates": {}}')).state_updates is None


def test_a_fact_is_of_the_type_that_the_manifest_declares():
    rules = replace(RULES, fact_type="echo.snapshot", mirror_fact=True)
    settled = verdict(exited(b'{"status": "ok", "state_updates": {"a": 1}}'), rules=rules)
    assert (settled.fact_type, settled.mirror_fact) == ("echo.snapshot", True)


def test_pair_that_an_init_was_run_for_travels_with_every_end():
    rules = replace(RULES, init_key="k")
    assert verdict(exited(b'{"status": "ok", "result": ""}'), rules=rules).init_key == "k"
    assert verdict(exited(b'{"status": "error"}', 1), rules=rules).init_key == "k"


def test_the_settlement_is_guarded_by_the_attempt_it_belongs_to():
    settled = verdict(exited(OK), job=replace(JOB, attempt=3))
    assert (settled.job_id, settled.attempt, settled.job.owner) == ("job-1", 3, "boot-1")


def test_both_streams_are_kept_where_the_protocol_was_broken():
    settled = verdict(exited(b"not json", stderr=b"a trace"))
    assert (settled.stdout, settled.stderr, settled.result) == ("not json", "a trace", None)


def test_progress_is_not_the_reason_of_a_failure():
    stderr = b"the upstream said no\n::progress 40 copying\n"
    assert verdict(exited(b"", 3, stderr=stderr)).error.endswith("; stderr: the upstream said no")
    only = verdict(exited(b"", 3, stderr=b"::progress 10 started\n"))
    assert "stderr" not in only.error


def test_the_prefix_of_an_overflow_is_kept():
    settled = verdict(exited(b"y" * STDERR_CAP, stdout_overflowed=True))
    assert settled.stdout == "y" * STDERR_CAP


def test_streams_that_are_no_text_are_kept_readable():
    settled = verdict(exited(b"\xff\x00out", stderr=b"\x00\xfeerr"))
    assert settled.stdout == "\ufffd\ufffdout"
    assert settled.stderr == "\ufffd\ufffderr"


def test_nul_in_a_response_is_replaced():
    body = b'{"status": "error", "error": "a\\u0000b", "logs": ["x\\u0000"], "result": "\\u0000"}'
    settled = verdict(exited(body))
    stored = f"{settled.error}{settled.logs}{settled.result}"
    assert "\0" not in stored
    assert "\\u0000" not in stored
    assert settled.error == "a\ufffdb"


def test_the_whole_response_is_stored():
    body = {"status": "ok", "result": {"n": 1}, "events": [{"type": "a.b"}], "extra": [1]}
    assert json.loads(verdict(exited(json.dumps(body).encode())).result) == body


def test_logs_are_stored_with_their_level():
    body = b'{"status": "ok", "logs": [{"level": "WARNING", "message": "a"}, "b", {"level": 1}]}'
    assert json.loads(verdict(exited(body)).logs) == [
        {"level": "warn", "message": "a"},
        {"level": "info", "message": "b"},
    ]


SECRET = 'hunter2"\\/ü€\nrest'
SECRETIVE = replace(RULES, redactor=Redactor([SECRET]))


def plain_pieces():
    return ["hunter2", "rest"]


def leaks(text):
    return text is not None and any(piece in text for piece in plain_pieces())


@pytest.mark.parametrize("status", ["ok", "error"])
def test_a_secret_in_a_response_is_stored_nowhere(status):
    body = {
        "status": status,
        "error": f"denied for {SECRET}",
        "result": {"said": SECRET},
        "logs": [{"level": "info", "message": SECRET}],
        SECRET: 1,
    }
    for ascii in (True, False):
        stdout = json.dumps(body, ensure_ascii=ascii).encode()
        settled = verdict(exited(stdout, stderr=SECRET.encode()), rules=SECRETIVE)
        for text in (settled.error, settled.result, settled.logs, settled.stderr):
            assert not leaks(text)
        json.loads(settled.result)


@pytest.mark.parametrize("status", ["ok", "error"])
def test_the_token_of_an_approval_link_is_stored_nowhere(status):
    """A token that may read jobs, streams or alerts may not decide approvals."""
    token = "Ab0_-" * 8 + "xyz"
    link = f"https://ductile.example/approve/{token}"
    logs = [{"level": "info", "message": link}]
    body = {"status": status, "error": f"cannot send {link}", "result": link, "logs": logs}
    settled = verdict(exited(json.dumps(body).encode(), stderr=link.encode()))
    stored = (settled.error, settled.result, settled.logs, settled.stderr)
    assert all(token not in text for text in stored if text is not None)
    assert settled.stderr == f"https://ductile.example/approve/{REDACTED}"


def test_a_number_that_equals_a_secret_is_stored_as_valid_json():
    rules = replace(RULES, redactor=Redactor(["123456789"]))
    body = {"status": "ok", "result": {"chat_id": 123456789}}
    settled = verdict(exited(json.dumps(body).encode()), rules=rules)
    assert json.loads(settled.result)["result"] == {"chat_id": REDACTED}


def test_a_secret_in_broken_output_is_not_stored():
    stdout = b"not json " + json.dumps(SECRET).encode() + SECRET.encode()
    assert not leaks(verdict(exited(stdout), rules=SECRETIVE).stdout)


def test_secret_in_a_document_inside_the_document_is_not_stored():
    """Plugins quote: a log line that holds JSON has the secret escaped twice over."""
    body = {"status": "ok", "result": json.dumps({"token": SECRET}), "logs": [json.dumps([SECRET])]}
    settled = verdict(exited(json.dumps(body).encode()), rules=SECRETIVE)
    assert not leaks(settled.result)
    assert not leaks(settled.logs)


def test_a_secret_in_a_spawn_errors_reason_is_not_stored():
    outcome = Outcome(Ending.NOT_SPAWNED, errno=errno.ENOENT, reason=f"no {SECRET}")
    assert not leaks(verdict(outcome, rules=SECRETIVE).error)


def test_secrets_in_state_updates_are_hidden_in_the_stored_result():
    updates = {"access_token": "short", "cursor": 7, "nested": {"apiKey": "abc"}}
    body = json.dumps({"status": "ok", "state_updates": updates, "result": "x"}).encode()
    settled = verdict(exited(body))
    shown = json.loads(settled.result)["state_updates"]
    assert shown == {"access_token": REDACTED, "cursor": 7, "nested": {"apiKey": REDACTED}}
    assert settled.state_updates == updates


def test_a_refused_state_update_hides_the_same_keys():
    body = b'{"status": "ok", "state_updates": {"password": "x"}}'
    assert '"x"' not in verdict(exited(body)).otherwise.result


def test_a_job_that_cannot_be_prepared_fails_without_retry():
    settled = prepare_failed(JOB, f"no such command {SECRET}", SECRETIVE, NOW)
    assert settled.path == FAILED
    assert not leaks(settled.error)


RESPONSE_BYTES = st.one_of(
    st.sampled_from([OK, BAD, FINAL, b"", b"{}", b"[]", b'{"status": null}']),
    st.binary(max_size=64),
    st.dictionaries(
        st.sampled_from(["status", "error", "retry", "events", "state_updates", "logs", "result"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["ok"]),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    ).map(lambda document: json.dumps(document).encode()),
)
OUTCOMES = st.builds(
    Outcome,
    ending=st.sampled_from(list(Ending)),
    exit_code=st.none() | st.sampled_from([0, 1, 78, 255, -9, -15]),
    stdout=RESPONSE_BYTES,
    stdout_overflowed=st.booleans(),
    stderr=st.binary(max_size=32),
    stderr_truncated=st.booleans(),
    errno=st.none() | st.sampled_from([errno.ENOENT, errno.EAGAIN, errno.EACCES]),
    reason=st.none() | st.text(st.characters(exclude_characters="\0"), max_size=8),
    duration=st.floats(0, 1e6),
)


@given(
    OUTCOMES,
    st.integers(1, 6),
    st.integers(1, 6),
    st.none() | st.sampled_from(list(Cancellation)),
    st.floats(0, 1, exclude_max=True),
)
def test_any_outcome_has_a_legal_end(outcome, attempt, most, cancelled, chance):
    job = replace(JOB, attempt=attempt, max_attempts=most)
    settled = judge(job, outcome, RULES, NOW, chance, cancelled)
    for one in filter(None, (settled, settled.otherwise)):
        edges(JobStatus.RUNNING, one.path)
        assert one.status is JobStatus.QUEUED or one.status in ENDED
        assert one.error is None or one.status is not JobStatus.SUCCEEDED
        assert one.error or one.status is JobStatus.SUCCEEDED
        if one.status is JobStatus.QUEUED and one.counted:
            assert attempt < most
            assert one.retry_at > NOW
        for text in (one.error, one.result, one.stdout, one.stderr, one.logs):
            assert text is None or "\0" not in text
    assert settled == judge(job, outcome, RULES, NOW, chance, cancelled)


def test_the_table_of_passing_shortages_is_the_contracts():
    named = {errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM, errno.EMFILE}
    assert named <= TRANSIENT_SPAWN_ERRORS
    assert not TRANSIENT_SPAWN_ERRORS & {errno.ENOENT, errno.EACCES, errno.ENOEXEC}


@pytest.mark.parametrize(
    ("protocol", "stdout", "remarked"),
    [
        (2, b'{"status": "ok"}', True),
        (2, b'{"status": "ok", "state_updates": {"a": 1}}', True),
        (2, b'{"status": "ok", "result": ""}', False),
        (2, b'{"status": "error"}', False),
        (1, b'{"status": "ok"}', False),
    ],
)
def test_success_that_lacks_what_its_protocol_wants_is_remarked_on(
    protocol: int, stdout: bytes, remarked: bool
) -> None:
    settled = verdict(exited(stdout), rules=replace(RULES, protocol=protocol))
    assert (settled.remark is not None) == remarked


BASE = "01900000-0000-7000-8000-000000000000"
ROUTED = Rules(RetryPolicy(), Redactor(), build_router([Route("echo", "x", "to")], Compiled({})))


def answered(events, result="done", **entered):
    body = {"status": "ok", "result": result, "events": events, "state_updates": {"n": 1}}
    outcome = exited(json.dumps(body).encode())
    return judge(JOB, outcome, ROUTED, NOW, 0.5, None, Entered({}, **entered), BASE)


def test_result_that_templates_would_multiply_fails_the_job():
    result = "x" * (MAX_COPIED // 10)
    few = answered([{"type": "x"}] * 9, result)
    assert (few.path, len(few.intents)) == (SUCCEEDED, 9)
    many = answered([{"type": "x"}] * 10, result)
    assert (many.path, many.intents, many.state_updates) == (RETRIED, (), None)
    assert many.error is not None
    assert "copied into 10 events" in many.error


def test_events_that_nothing_takes_are_no_copies():
    assert answered([{"type": "y"}] * 100, "x" * (MAX_COPIED // 10)).path == SUCCEEDED


def test_steps_own_context_is_that_of_the_attempt_that_succeeded():
    step = Entered({}, accumulated={"who": "ann"})
    failed = judge(JOB, exited(BAD), ROUTED, NOW, 0.5, None, step, BASE)
    assert failed.context is None
    done = replace(JOB, pipeline="p", step_path="s")
    succeeded = judge(done, exited(OK), ROUTED, NOW, 0.5, None, step, BASE)
    assert succeeded.context == '{"who":"ann"}'


def test_job_whose_plugin_is_gone_is_dead_and_counts_as_cancelled():
    gone = plugin_gone(JOB, "plugin disabled", RULES, NOW)
    assert (gone.path, gone.error) == ((JobStatus.DEAD,), "plugin disabled")
    assert gone.cancelled


def test_job_left_to_other_nodes_waits_longer_and_uses_no_attempt():
    first = left_to_others(JOB, "step s is gone", RULES, NOW)
    assert (first.path, first.counted, first.error) == (RELEASED, False, "step s is gone")
    assert first.retry_at == NOW + timedelta(seconds=SHORTAGE_SECONDS)
    late = left_to_others(replace(JOB, attempt=20, max_attempts=23), "x", RULES, NOW)
    assert late.retry_at == NOW + timedelta(seconds=LONGEST_SHORTAGE)
