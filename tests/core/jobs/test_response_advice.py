"""Advice to an author: each breach of the protocol has its own hint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ductile.core.jobs.plugin_protocol import read_response
from ductile.core.jobs.response_advice import Advice, Expected, advise
from ductile.errors import Severity
from ductile.model import Ending, Outcome

EXPECTED = Expected("echo", "poll", 2, 60.0)
OK = b'{"status": "ok", "result": "done"}'


def advice_for(stdout: bytes, expected: Expected = EXPECTED, **outcome: Any) -> tuple[Advice, ...]:
    seen = Outcome(**{"ending": Ending.EXITED, "exit_code": 0, "stdout": stdout, **outcome})
    over = seen.stdout_overflowed
    return advise(seen, read_response(seen.stdout, overflowed=over), expected)


def only(advice: tuple[Advice, ...]) -> Advice:
    assert len(advice) == 1, advice
    return advice[0]


def test_a_good_answer_needs_no_advice() -> None:
    assert advice_for(OK) == ()


@pytest.mark.parametrize(
    ("stdout", "what", "hint"),
    [
        (b"", "stdout is empty", "write one JSON object"),
        (b"  \n", "stdout is empty", "flush"),
        (b"\xef\xbb\xbf" + OK, "byte order mark", "without a byte order mark"),
        (b"Fetching...\n" + OK, "not JSON", "'Fetching...' precedes the response"),
        (b"{loading}\n" + OK, "not JSON", "'{loading}' precedes the response"),
        (OK + b"\ndone\n", "more than one", "'done' follows the response"),
        (OK + b"\n" + OK, "more than one", "two responses"),
        (b"{'status': 'ok'}", "not JSON", "json.dumps"),
        (b'{"status": "ok", "result": NaN}', "not JSON", "no NaN"),
        (b'{"status": "ok", "result": "\\ud800"}', "surrogate", "pair of escapes"),
        (b'{"status": "ok",}', "trailing comma", "not allow a comma after the last"),
        (b'{"status": "ok"', "not JSON", "use a JSON library to write it"),
        (b'{"status": "ok", "result": "\xff"}', "not UTF-8", "reconfigure"),
        (b"just words", "not JSON", "stdout is for the response only"),
        (b"[1]", "a list", "wrap it"),
        (b'{"result": "x"}', "no status", 'add "status": "ok"'),
        (b'{"stauts": "ok"}', "no status", "not 'stauts'"),
        (b'{"success": true}', "no status", '"status": "ok" instead of \'success\''),
        (b'{"ok": false}', "no status", '"status": "error" instead of \'ok\''),
        (b'{"status": "success"}', "it must be 'ok' or 'error'", 'write "status": "ok"'),
        (b'{"status": "OK"}', "it must be 'ok' or 'error'", 'write "status": "ok"'),
        (b'{"status": "failed"}', "it must be 'ok' or 'error'", 'write "status": "error"'),
        (b'{"status": 7}', "it must be 'ok' or 'error'", '"ok" or "error"'),
        (b'{"status": "ok", "events": {}}', "events is", "it must be a list"),
        (b'{"status": "ok", "events": [{}]}', "events[0].type", "an event is"),
        (b'{"status": "ok", "state_updates": []}', "state_updates is", "it must be an object"),
        (b'{"status": "error", "retry": "no"}', "retry is", "true or false"),
        (b'{"status": "ok", "result": 99999999999999999999}', "64 bits", "as strings"),
        (b'{"status": "ok", "result": ' + b"[" * 101 + b"]" * 101 + b"}", "levels", "flatten"),
    ],
)
def test_a_breach_of_the_protocol(stdout: bytes, what: str, hint: str) -> None:
    advice = only(advice_for(stdout))
    assert advice.severity is Severity.ERROR
    assert what in advice.what
    assert hint in advice.hint


def test_too_much_output() -> None:
    advice = only(advice_for(b"{" * 100, stdout_overflowed=True))
    assert "10 MiB" in advice.what
    assert "to a file" in advice.hint


def test_a_status_too_far_away_to_look_at() -> None:
    stdout = json.dumps({"result": "x" * 300_000, "status": "done"}).encode()
    assert '"ok" or "error"' in only(advice_for(stdout)).hint


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        ({"status": "ok"}, "protocol 2 requires a result"),
        ({"status": "ok", "result": "x", "error": "y"}, "an error next to status ok"),
        ({"status": "ok", "result": "x", "state": {}}, "the key 'state' is ignored"),
        ({"status": "ok", "result": "x", "state_update": {}}, "the key 'state_update' is ignored"),
        ({"status": "ok", "result": "x", "colour": 1}, "the key 'colour' is ignored"),
        ({"status": "error"}, "there is no error text"),
        ({"status": "error", "error": "x", "events": [{"type": "a"}]}, "have no effect"),
        ({"status": "ok", "result": "x", "logs": [{"level": "info"}]}, "1 of 1 logs are dropped"),
    ],
)
def test_costly_response_is_a_warning(answer: dict[str, Any], what: str) -> None:
    advice = only(advice_for(json.dumps(answer).encode()))
    assert advice.severity is Severity.WARNING
    assert what in advice.what


def test_protocol_1_needs_no_result() -> None:
    assert advice_for(b'{"status": "ok"}', Expected("echo", "poll", 1, 60.0)) == ()


class TestEvents:
    DECLARED = Expected("echo", "poll", 2, 60.0, {"echo.done": ("payload.count", "payload.a.b")})

    def answer(self, *events: Any) -> bytes:
        return json.dumps({"status": "ok", "result": "x", "events": events}).encode()

    def test_as_declared(self) -> None:
        event = {"type": "echo.done", "payload": {"count": 1, "a": {"b": 2}}}
        assert advice_for(self.answer(event), self.DECLARED) == ()

    def test_of_another_type(self) -> None:
        advice = only(advice_for(self.answer({"type": "echo.dne"}), self.DECLARED))
        assert "not among values.emit of poll" in advice.what
        assert advice.hint == "did you mean 'echo.done'?"

    def test_without_a_value(self) -> None:
        event = {"type": "echo.done", "payload": {"count": 1, "a": 2}}
        assert "lacks payload.a.b" in only(advice_for(self.answer(event), self.DECLARED)).what

    def test_of_any_type(self) -> None:
        declared = Expected("echo", "poll", 2, 60.0, {"<config.event_type>": ()})
        assert advice_for(self.answer({"type": "whatever"}), declared) == ()

    def test_nothing_is_declared(self) -> None:
        assert advice_for(self.answer({"type": "whatever"})) == ()


class TestEnding:
    def test_a_crash(self) -> None:
        stderr = b"Traceback (most recent call last):\n  File x\nKeyError: 'name'\n"
        empty, crash = advice_for(b"", exit_code=1, stderr=stderr)
        assert "stdout is empty" in empty.what
        assert crash.what == "the program crashed: KeyError: 'name'"

    def test_another_exit_code(self) -> None:
        _, ended = advice_for(b"", exit_code=3, stderr=b"no luck\n")
        assert ended.what == "exit code 3: no luck"

    def test_a_signal(self) -> None:
        _, ended = advice_for(b"", exit_code=-11)
        assert ended.what == "killed by SIGSEGV"

    def test_the_code_for_a_wrong_configuration(self) -> None:
        _, ended = advice_for(b"", exit_code=78, stderr=b"no token\n")
        assert "not retried" in ended.hint

    def test_ok_with_an_exit_code(self) -> None:
        assert only(advice_for(OK, exit_code=2)).what == "exit code 2 in spite of status ok"

    def test_a_command_that_is_not_found(self) -> None:
        found, _ = advice_for(b"", exit_code=127, stderr=b"env: 'pyhton3': No such file\n")
        assert "a command was not found" in found.what
        assert "PATH" in found.hint

    def test_crlf(self) -> None:
        found, *_ = advice_for(
            b"", exit_code=127, reason="'run.sh' has a shebang line that ends in CRLF"
        )
        assert "LF line endings" in found.hint

    @pytest.mark.parametrize(
        ("ending", "what"),
        [
            (Ending.NOT_SPAWNED, "interpreter '/bin/nope' does not exist"),
            (Ending.TIMED_OUT, "it did not finish within 60 s"),
        ],
    )
    def test_no_answer_at_all(self, ending: Ending, what: str) -> None:
        outcome = Outcome(ending, reason="interpreter '/bin/nope' does not exist")
        assert what in only(advise(outcome, None, EXPECTED)).what

    def test_a_time_limit_names_the_key_that_sets_it(self) -> None:
        advice = only(advise(Outcome(Ending.TIMED_OUT), None, EXPECTED))
        assert "plugins.echo.timeouts.poll" in advice.hint

    def test_it_ran_on(self) -> None:
        advice = only(advice_for(OK, ending=Ending.LINGERED, exit_code=None))
        assert advice.severity is Severity.WARNING

    def test_error_precedes_the_warnings(self) -> None:
        advice = advice_for(b'{"status": "ok", "reslt": 1}', exit_code=1)
        assert [a.severity for a in advice] == [Severity.ERROR, *[Severity.WARNING] * 2]
