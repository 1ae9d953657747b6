"""The envelopes of the plugin protocol: what is sent, and what counts as an answer."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ductile.core.jobs.plugin_protocol import (
    EmittedEvent,
    LogLine,
    ProtocolError,
    Response,
    add_context,
    encode_request,
    event_of,
    read_response,
    request_context,
    without_nul,
)

DEADLINE = "2026-02-08T10:00:00.000000Z"
EVENT = {
    "type": "new_health_data",
    "payload": {"weight": 81.2},
    "dedupe_key": None,
    "source": "withings",
    "timestamp": DEADLINE,
    "event_id": "0190",
}


def request(**changes: Any) -> Any:
    values: dict[str, Any] = {
        "protocol": 2,
        "job_id": "j1",
        "command": "poll",
        "config": {"client_id": "x"},
        "state": {"last": 1},
        "context": {"ductile_plugin": "echo"},
        "deadline_at": DEADLINE,
    }
    return json.loads(encode_request(**values | changes))


def accepted(document: Any) -> Response:
    stdout = document if isinstance(document, bytes) else orjson.dumps(document)
    response = read_response(stdout, overflowed=False)
    assert isinstance(response, Response), response
    return response


def refused(document: Any) -> str:
    stdout = document if isinstance(document, bytes) else orjson.dumps(document)
    error = read_response(stdout, overflowed=False)
    assert isinstance(error, ProtocolError), error
    return error.reason


def nested(levels: int) -> bytes:
    """A response of exactly `levels` levels."""
    return b'{"status":"ok","x":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


class TestRequest:
    def test_a_poll_carries_exactly_the_fields_of_protocol_2(self) -> None:
        assert request(payload={"source": "heartbeat"}) == {
            "protocol": 2,
            "job_id": "j1",
            "command": "poll",
            "config": {"client_id": "x"},
            "state": {"last": 1},
            "context": {"ductile_plugin": "echo"},
            "payload": {"source": "heartbeat"},
            "deadline_at": DEADLINE,
        }

    def test_protocol_1_has_no_context(self) -> None:
        sent = request(protocol=1)
        assert sent["protocol"] == 1
        assert "context" not in sent

    def test_it_ends_with_a_newline_and_holds_no_other(self) -> None:
        sent = encode_request(
            protocol=2,
            job_id="j",
            command="poll",
            config={"a": "x\ny"},
            state={},
            context={},
            deadline_at=DEADLINE,
        )
        assert sent.endswith(b"}\n")
        assert sent.count(b"\n") == 1

    def test_a_handle_carries_its_event_whole(self) -> None:
        sent = request(command="handle", event=EVENT, context={})
        assert sent["event"] == EVENT

    def test_the_payload_of_a_handle_is_the_events(self) -> None:
        sent = request(command="handle", event=EVENT, context={"trace": 7})
        assert sent["payload"] == sent["event"]["payload"] == {"weight": 81.2, "trace": 7}

    def test_the_events_own_values_win_over_the_context(self) -> None:
        sent = request(command="handle", event=EVENT, context={"weight": 1})
        assert sent["event"]["payload"] == {"weight": 81.2}

    def test_context_reaches_a_protocol_1_plugin_in_the_events_payload(self) -> None:
        sent = request(protocol=1, command="handle", event=EVENT, context={"trace": 7})
        assert sent["event"]["payload"]["trace"] == 7

    def test_payload_that_is_not_an_object_gets_no_context(self) -> None:
        sent = request(command="handle", event={**EVENT, "payload": [1]}, context={"trace": 7})
        assert sent["event"]["payload"] == [1]

    def test_the_callers_event_is_left_as_it_was(self) -> None:
        event = {**EVENT, "payload": {"a": 1}}
        request(command="handle", event=event, context={"trace": 7})
        assert event["payload"] == {"a": 1}

    def test_config_and_state_may_be_encoded_already(self) -> None:
        sent = request(config=orjson.Fragment(b'{"a":[1]}'), state=orjson.Fragment('{"b":2}'))
        assert (sent["config"], sent["state"]) == ({"a": [1]}, {"b": 2})

    @pytest.mark.parametrize("field", ["config", "state", "payload"])
    def test_missing_field_is_an_empty_object(self, field: str) -> None:
        assert request(**{field: None})[field] == {}

    def test_the_workspace_is_named_only_where_there_is_one(self) -> None:
        assert request(workspace_dir="/w/1")["workspace_dir"] == "/w/1"
        assert "workspace_dir" not in request()


class TestContext:
    def test_it_is_the_baggage_and_the_jobs_place(self) -> None:
        context = request_context({"user": 1}, plugin="echo", pipeline="p", step_id="s")
        assert context == {
            "user": 1,
            "ductile_plugin": "echo",
            "ductile_pipeline": "p",
            "ductile_step_id": "s",
        }

    def test_a_job_outside_a_pipeline_has_no_pipeline_in_it(self) -> None:
        assert request_context({}, plugin="echo") == {"ductile_plugin": "echo"}

    def test_baggage_cannot_claim_to_be_another_plugin(self) -> None:
        assert request_context({"ductile_plugin": "x"}, plugin="echo")["ductile_plugin"] == "echo"

    def test_adding_it_twice_is_adding_it_once(self) -> None:
        once = add_context({"a": 1}, {"a": 2, "b": 3})
        assert once == add_context(once, {"a": 2, "b": 3}) == {"a": 1, "b": 3}


class TestEventOf:
    @staticmethod
    def event(column: Any) -> dict[str, Any]:
        return event_of(column, type="api.trigger", source="api", timestamp="t", event_id="e")

    def test_a_whole_envelope_is_taken_as_it_is(self) -> None:
        envelope = {**EVENT, "dedupe_key": "k"}
        assert self.event(envelope) == envelope

    def test_missing_fields_of_an_envelope_come_from_the_arguments(self) -> None:
        assert self.event({"type": "x"}) == {
            "type": "x",
            "payload": {},
            "dedupe_key": None,
            "source": "api",
            "timestamp": "t",
            "event_id": "e",
        }

    def test_an_object_with_neither_type_nor_payload_is_the_payload(self) -> None:
        event = self.event({"user": 1})
        assert (event["type"], event["payload"]) == ("api.trigger", {"user": 1})

    def test_an_object_with_a_payload_alone_is_an_envelope(self) -> None:
        assert self.event({"payload": {"a": 1}})["payload"] == {"a": 1}

    def test_type_that_is_not_text_is_dropped(self) -> None:
        assert self.event({"type": 5})["type"] == "api.trigger"

    @pytest.mark.parametrize(("column", "payload"), [(None, {}), ([1], [1]), ("x", "x")])
    def test_column_that_is_not_an_object_is_the_payload(self, column: Any, payload: Any) -> None:
        assert self.event(column)["payload"] == payload


class TestResponse:
    @pytest.mark.parametrize(
        ("given", "read"),
        [(1.5, 1.5), (10**9, 86_400), (0, None), (-1, None), ("30", None), (True, None)],
    )
    def test_retry_after_is_seconds_of_at_most_a_day(
        self, given: object, read: float | None
    ) -> None:
        assert accepted({"status": "error", "retry_after": given}).retry_after == read

    def test_every_field_is_read(self) -> None:
        document = {
            "status": "ok",
            "result": "3 new",
            "retry": True,
            "retry_after": 30,
            "events": [{"type": "a", "payload": {"x": 1}, "dedupe_key": "k"}],
            "state_updates": {"last": 3},
            "logs": [{"level": "warn", "message": "slow"}],
            "unknown": 1,
        }
        assert accepted(document) == Response(
            status="ok",
            result="3 new",
            error=None,
            retry=True,
            retry_after=30.0,
            events=(EmittedEvent("a", {"x": 1}, "k"),),
            state_updates={"last": 3},
            logs=(LogLine("warn", "slow"),),
            raw=document,
        )

    def test_status_alone_is_enough(self) -> None:
        response = accepted({"status": "error"})
        assert (response.error, response.retry, response.events) == (None, True, ())

    def test_an_error_may_forbid_a_retry(self) -> None:
        assert accepted({"status": "error", "retry": False}).retry is False

    @pytest.mark.parametrize(
        "field", ["result", "error", "retry", "events", "state_updates", "logs"]
    )
    def test_null_is_absence(self, field: str) -> None:
        response = accepted({"status": "ok", field: None})
        absent = accepted({"status": "ok"})
        assert (response.retry, response.events, response.state_updates, response.logs) == (
            absent.retry,
            absent.events,
            absent.state_updates,
            absent.logs,
        )

    def test_white_space_around_the_object_is_nothing(self) -> None:
        assert accepted(b' \r\n\t{"status": "ok"}\n\n').status == "ok"

    def test_the_last_of_duplicate_keys_counts(self) -> None:
        assert accepted(b'{"status":"ok","result":1,"result":2}').result == 2

    def test_an_ok_without_a_result_is_marked(self) -> None:
        assert accepted({"status": "ok"}).missing_result

    def test_an_ok_with_any_result_is_not_marked(self) -> None:
        assert not accepted({"status": "ok", "result": ""}).missing_result

    def test_an_error_needs_no_result(self) -> None:
        assert not accepted({"status": "error"}).missing_result

    def test_error_that_is_not_text_becomes_text(self) -> None:
        assert accepted({"status": "error", "error": {"code": 5}}).error == '{"code":5}'

    @pytest.mark.parametrize("event", [{"type": "a"}, {"type": "a", "payload": None}])
    def test_an_event_without_payload_has_an_empty_one(self, event: Any) -> None:
        assert accepted({"status": "ok", "events": [event]}).events[0].payload == {}

    def test_an_empty_dedupe_key_is_none(self) -> None:
        event = {"type": "a", "dedupe_key": ""}
        assert accepted({"status": "ok", "events": [event]}).events[0].dedupe_key is None

    def test_valid_log_lines_are_kept(self) -> None:
        logs = ["plain", {"message": "m"}, {"level": "WARNING", "message": "w"}, {"level": "x"}, 5]
        assert accepted({"status": "ok", "logs": logs}).logs == (
            LogLine("info", "plain"),
            LogLine("info", "m"),
            LogLine("warn", "w"),
        )

    @pytest.mark.parametrize(("logs", "count"), [("one line", 1), (5, 0), ({}, 0)])
    def test_logs_that_are_no_list_are_no_error(self, logs: Any, count: int) -> None:
        assert len(accepted({"status": "ok", "logs": logs}).logs) == count


class TestProtocolError:
    @pytest.mark.parametrize("stdout", [b"", b"  \n"])
    def test_nothing(self, stdout: bytes) -> None:
        assert "empty" in refused(stdout)

    @pytest.mark.parametrize("stdout", [b"[]", b'"ok"', b"5", b"null", b"true"])
    def test_no_object(self, stdout: bytes) -> None:
        assert "must be one JSON object" in refused(stdout)

    @pytest.mark.parametrize("stdout", [b"{", b'{"status":"ok"', b"hello", b"{'status':'ok'}"])
    def test_no_json(self, stdout: bytes) -> None:
        assert "not JSON" in refused(stdout)

    @pytest.mark.parametrize("second", [b'{"status":"ok"}', b"\nbye", b"\0", b" 1"])
    def test_anything_after_the_object(self, second: bytes) -> None:
        assert "more than one JSON object" in refused(b'{"status":"ok"}' + second)

    def test_a_byte_order_mark(self) -> None:
        assert "byte order mark" in refused(b'\xef\xbb\xbf{"status":"ok"}')

    @pytest.mark.parametrize("text", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\x80"])
    def test_bad_utf_8(self, text: bytes) -> None:
        assert "not UTF-8 (byte 25)" in refused(b'{"status":"ok","result":"' + text + b'"}')

    @pytest.mark.parametrize("text", [rb"\ud800", rb"\udc00", rb"\ud800\ud800", rb"\ude00\ud83d"])
    def test_a_lone_surrogate(self, text: bytes) -> None:
        assert "surrogate" in refused(b'{"status":"ok","result":"' + text + b'"}')

    def test_a_surrogate_pair_is_a_character(self) -> None:
        assert accepted(rb'{"status":"ok","result":"\ud83d\ude00"}').result == "😀"

    @pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1E400"])
    def test_a_number_that_is_none(self, number: bytes) -> None:
        assert "not JSON" in refused(b'{"status":"ok","result":' + number + b"}")

    @pytest.mark.parametrize(
        "number", [2**63, -(2**63) - 1, 2**64 - 1, 2**64, -(2**64), 10**19, 10**300]
    )
    def test_an_integer_beyond_64_bits(self, number: int) -> None:
        assert "64 bits" in refused(b'{"status":"ok","result":[%d]}' % number)

    def test_an_integer_of_5000_digits(self) -> None:
        assert refused(b'{"status":"ok","result":' + b"9" * 5000 + b"}")

    def test_one_too_large_integer_hidden_by_a_later_duplicate_key(self) -> None:
        assert "64 bits" in refused(b'{"status":"ok","a":%d,"a":1}' % 2**64)

    @pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 1_770_544_800_000_000_000])
    def test_the_integers_of_64_bits_are_exact(self, number: int) -> None:
        assert accepted(b'{"status":"ok","result":%d}' % number).result == number

    @pytest.mark.parametrize("value", [b'"%d"' % 2**80, b"0.%d" % 2**80, b"%d.5" % 2**80, b"1e30"])
    def test_long_digits_in_texts_and_floats_are_no_integers(self, value: bytes) -> None:
        assert accepted(b'{"status":"ok","result":' + value + b"}").status == "ok"

    def test_100_levels_pass(self) -> None:
        assert accepted(nested(100)).status == "ok"

    @pytest.mark.parametrize("levels", [101, 102, 1000])
    def test_more_than_100_levels(self, levels: int) -> None:
        assert "100 levels" in refused(nested(levels))

    @pytest.mark.parametrize("bracket", [b"[", b'{"a":'])
    def test_100_000_brackets(self, bracket: bytes) -> None:
        assert refused(b'{"status":"ok","x":' + bracket * 100_000)

    def test_many_brackets_side_by_side_are_not_deep(self) -> None:
        assert accepted({"status": "ok", "result": [[], {}, "[[["] * 500}).status == "ok"

    def test_overflow(self) -> None:
        error = read_response(b'{"status":"ok"}', overflowed=True)
        assert error == ProtocolError("stdout is larger than 10 MiB")

    def test_more_than_10_mib_however_it_came(self) -> None:
        assert "10 MiB" in refused(b'{"status":"ok"}'.ljust(10 * 1024**2 + 1))

    def test_10_mib_pass(self) -> None:
        assert accepted(b'{"status":"ok"}'.ljust(10 * 1024**2)).status == "ok"

    @pytest.mark.parametrize("document", [{}, {"status": None}])
    def test_a_missing_status(self, document: Any) -> None:
        assert refused(document) == "the response has no status"

    @pytest.mark.parametrize("status", ["OK", "", True, 0, [], {"ok": 1}, "x" * 1000])
    def test_an_unknown_status(self, status: Any) -> None:
        reason = refused({"status": status})
        assert reason.startswith("status is ")
        assert len(reason) < 120

    @pytest.mark.parametrize("retry", [0, 1, "false", []])
    def test_retry_that_is_not_a_boolean(self, retry: Any) -> None:
        assert refused({"status": "error", "retry": retry}).startswith("retry is ")

    @pytest.mark.parametrize("updates", [[], "", 0, False, "x"])
    def test_state_updates_that_are_no_object(self, updates: Any) -> None:
        assert refused({"status": "ok", "state_updates": updates}).startswith("state_updates is ")

    @pytest.mark.parametrize("events", [{}, "", 0, False, {"type": "a"}])
    def test_events_that_are_no_list(self, events: Any) -> None:
        assert refused({"status": "ok", "events": events}).startswith("events is ")

    @pytest.mark.parametrize("event", ["a", None, []])
    def test_event_that_is_not_an_object(self, event: Any) -> None:
        reason = refused({"status": "ok", "events": [{"type": "a"}, event]})
        assert reason.startswith("events[1] is ")

    @pytest.mark.parametrize("event", [{}, {"type": 1}, {"type": None}, {"type": ""}])
    def test_an_event_without_a_type(self, event: Any) -> None:
        reason = refused({"status": "ok", "events": [event]})
        assert reason.startswith("events[0].type is ")

    def test_event_whose_dedupe_key_is_not_text(self) -> None:
        reason = refused({"status": "ok", "events": [{"type": "a", "dedupe_key": 5}]})
        assert reason.startswith("events[0].dedupe_key is ")

    def test_an_event_whose_dedupe_key_is_too_long(self) -> None:
        event = {"type": "a", "dedupe_key": "€" * 341}
        assert accepted({"status": "ok", "events": [event]}).events[0].dedupe_key == "€" * 341
        event["dedupe_key"] += "€"
        reason = refused({"status": "ok", "events": [event]})
        assert reason == "events[0].dedupe_key is 1026 bytes long; the maximum is 1024"


class TestNul:
    def test_it_is_replaced_in_every_text_of_a_response(self) -> None:
        response = accepted(
            rb'{"status":"ok","result":"a\u0000b","state_updates":{"k\u0000":["\u0000"]}}'
        )
        assert response.result == "a\ufffdb"
        assert response.state_updates == {"k\ufffd": ["\ufffd"]}
        assert "\0" not in json.dumps(response.raw, ensure_ascii=False)

    def test_escaped_backslash_before_u0000_is_not_nul(self) -> None:
        assert accepted(rb'{"status":"ok","result":"\\u0000"}').result == r"\u0000"

    def test_other_values_stay_as_they_are(self) -> None:
        assert without_nul([1, 1.5, None, True, "a\0"]) == [1, 1.5, None, True, "a\ufffd"]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b'{"status":"ok","x":' + b"1" * 400 + b"}")
def test_no_bytes_make_the_reader_raise(stdout: bytes) -> None:
    assert isinstance(read_response(stdout, overflowed=False), Response | ProtocolError)


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(TEXT, JSON), st.binary(max_size=3), st.integers(0, 200))
def test_a_damaged_response_is_read_as_json_reads_it_or_refused(
    extra: dict[str, Any], damage: bytes, place: int
) -> None:
    whole = json.dumps({**extra, "status": "ok"}).encode()
    stdout = whole[:place] + damage + whole[place:]
    response = read_response(stdout, overflowed=False)
    if isinstance(response, Response):
        assert response.raw == without_nul(json.loads(stdout))


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(TEXT, JSON), JSON, st.booleans(), st.sampled_from([None, 1]))
def test_a_valid_document_is_read_as_json_reads_it(
    extra: dict[str, Any], result: Any, ascii_only: bool, indent: int | None
) -> None:
    named = {"events", "retry", "logs", "state_updates", "error"}
    document = {key: value for key, value in extra.items() if key not in named}
    document |= {"status": "ok", "result": result}
    stdout = json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode()
    response = accepted(stdout)
    assert response.raw == json.loads(stdout)
    assert response.result == result


@settings(deadline=None)
@given(st.integers())
def test_an_integer_is_exact_or_refused(number: int) -> None:
    response = read_response(b'{"status":"ok","result":%d}' % number, overflowed=False)
    fits = -(2**63) <= number < 2**63
    assert isinstance(response, Response) is fits
    if isinstance(response, Response):
        assert response.result == number


@settings(deadline=None)
@given(st.integers(2**63 - 5, 2**63 + 5), st.booleans())
def test_the_edge_of_64_bits_is_sharp(magnitude: int, negative: bool) -> None:
    number = -magnitude if negative else magnitude
    response = read_response(b'{"status":"ok","result":%d}' % number, overflowed=False)
    assert isinstance(response, Response) is (-(2**63) <= number < 2**63)
