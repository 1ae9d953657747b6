"""Tables, text and JSON on stdout."""

from __future__ import annotations

import io
import json
import time
from datetime import datetime
from typing import Any

import click
import pytest

from ductile.cli import options, output, progress
from ductile.cli.commands.plugin.group import show_response
from ductile.cli.commands.system import gateway
from ductile.cli.display import print_attempt_output
from tests.waiting import until


def test_a_table_without_a_terminal_is_plain(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"id": "hello", "state": "ready"}, {"id": "b", "state": None}]
    output.print_table(rows, {"name": "id", "state": lambda row: row["state"]})
    assert capsys.readouterr().out == "NAME   STATE\nhello  ready\nb      -\n"


def test_an_empty_table_prints_a_note(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table([], {"name": "name"}, empty="no plugins")
    assert capsys.readouterr().out == "no plugins\n"


def test_rows_on_a_terminal_are_coloured_and_cut() -> None:
    row = output._row(["hello", "failed", "a long story"], [5, 6, 12], 20)
    assert row == "hello  \x1b[31mfailed\x1b[0m  a lo…"


IDS = [f"01a1e59a-8918-76af-939f-448d6e9c0f{n:02x}" for n in range(2)]
HEADINGS = ("job", "plugin", "command", "status", "attempt", "created", "note")
VALUES = ("weather", "handle", "failed", "4/4", "2026-11-16 18:24:32", "it broke")
ROWS = [dict(zip(HEADINGS, (id, *VALUES), strict=True)) for id in IDS]


def print_rows(rows: list[dict[str, Any]]) -> None:
    """Print a table with the keys of the rows as headings."""
    output.print_table(rows, {key: key for key in rows[0]})


def print_on_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> tuple[list[str], str]:
    monkeypatch.setattr(output, "_terminal_width", lambda: columns)
    print_rows(ROWS)
    done = capsys.readouterr()
    return [click.unstyle(line) for line in done.out.splitlines()], done.err


def test_a_wide_terminal_shows_whole_ids(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, notes = print_on_terminal(capsys, monkeypatch, 120)
    assert [line.split()[0] for line in lines[1:]] == IDS
    assert notes == ""


@pytest.mark.parametrize("columns", [80, 100])
def test_narrow_terminal_shows_all_columns_and_the_ends_of_the_ids(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    lines, notes = print_on_terminal(capsys, monkeypatch, columns)
    assert lines[0].split() == [heading.upper() for heading in HEADINGS]
    assert [line.split()[0] for line in lines[1:]] == ["…448d6e9c0f00", "…448d6e9c0f01"]
    assert notes == ""


def test_columns_without_room_are_marked_and_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in range(20, 80):
        lines, notes = print_on_terminal(capsys, monkeypatch, columns)
        titles = lines[0].split()
        assert max(map(len, lines)) <= columns
        if titles[-1] == "NOTE":
            continue
        assert lines[2::2] == ["  it broke"] * len(ROWS)
        if len(titles) == len(HEADINGS) - 1:
            continue
        assert titles.pop() == "…"
        missing = ", ".join(HEADINGS[len(titles) : -1])
        assert notes.startswith(f"not shown: {missing} (")
    lines, notes = print_on_terminal(capsys, monkeypatch, 56)
    assert lines[0].split() == ["JOB", "PLUGIN", "COMMAND", "STATUS", "ATTEMPT", "…"]
    assert "created (" in notes


def test_note_without_room_is_below_its_row_with_its_start_and_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line of stderr, at the end of an error, is usually its reason."""
    monkeypatch.setattr(output, "_terminal_width", lambda: 60)
    error = f"exit code 3; stdout is empty; {'x' * 20} {'y ' * 80}; stderr: no such host"
    print_rows(
        [
            {"job": "a", "plugin": "b", "note": error},
            {"job": "c", "plugin": "d", "note": None},
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["JOB", "PLUGIN"]
    assert lines[2].startswith("  exit code 3;")
    assert " … " in "".join(lines)
    assert lines[-2].endswith("stderr: no such host")
    assert (len(lines) <= 6, lines[-1].split()) == (True, ["c", "d"])


def test_narrow_terminal_shows_no_columns_without_values_and_short_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_terminal_width", lambda: 40)
    now = f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S}"
    rows: list[dict[str, Any]] = [
        {"job": id, "created": now, "pipeline": None, "note": note}
        for id, note in zip(IDS, ("it broke", None), strict=True)
    ]
    print_rows(rows)
    first = capsys.readouterr().out.splitlines()[1]
    assert first.split() == ["…448d6e9c0f00", now[11:], "it", "broke"]
    older = {"created": "2026-11-16 18:24:32", "note": "it broke"}
    print_rows([*({"job": id, "pipeline": None, **older} for id in IDS), rows[0]])
    assert "…448d6e9c0f00  11-16 18:24" in capsys.readouterr().out


def test_times_within_a_text_are_local() -> None:
    at = "2026-11-16T18:24:32.009353Z"
    text = output.format_times(f"its retry is due at {at}; then it waits")
    assert text == f"its retry is due at {output.format_time(at)}; then it waits"


def test_text_that_is_not_a_time_is_printed_as_it_is() -> None:
    assert output.format_time("soon") == "soon"
    assert output.format_time(None) == "-"


@pytest.mark.parametrize("text", ["\x9b2J", "\x7f", "\u202egnp.exe", "\u2066", "\ud800"])
def test_json_is_printed_without_control_characters(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_json({"a": text})
    shown = capsys.readouterr().out
    assert all(character.isprintable() for character in shown if character != "\n")
    assert json.loads(shown) == {"a": text}


@pytest.mark.parametrize("text", ["\x9b2J", "\u202egnp.exe", "\u2066", "\ud800"])
def test_wide_and_bidirectional_controls_are_escaped(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.print_line(text)
    output.print_section("stderr", text)
    print_rows([{"x": text}])
    shown = capsys.readouterr().out
    assert all(character.isprintable() for character in shown if character != "\n")


def test_control_characters_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_section("stderr", "one\x1b[2J\ntwo\a")
    print_rows([{"x": "a\x1b]0;title\a\nb"}])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\a" not in shown
    assert "  one\\x1b[2J\n  two\\x07\n" in shown


def test_text_from_outside_starts_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "evt\nok: all is well\u2028\x85"
    output.print_line(f"event {forged}")
    output.print_line(forged, fg="red")
    output.print_stderr(f"error: {forged}", fg="red")
    output.print_table([], {"x": "x"}, empty=f"no {forged}")
    output.print_table([{"type": forged}], {"event": "type", "note": "type"})
    output.print_section(forged, "text")
    click.echo(output.format_status(forged))
    shown = capsys.readouterr()
    assert shown.out.count("\n") == len(shown.out.splitlines()) == 8
    assert not any(line.startswith("ok:") for line in shown.out.splitlines())
    assert shown.err.splitlines() == ["error: evt\\nok: all is well\\u2028\\x85"]


def test_further_lines_of_an_error_are_indented(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_error("error: unknown name 'a\nerror: b'", err=True)
    assert capsys.readouterr().err == "error: unknown name 'a\n  error: b'\n"


def test_event_and_log_lines_of_a_plugin_start_no_line_of_their_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_response({"result": "done", "events": [{"type": "a\nok", "payload": {"b": "c\nok"}}]})
    print_attempt_output(
        {
            "last_error": None,
            "logs": [{"level": "info", "message": "trace\nerror forged"}],
            "stdout": None,
            "stderr": None,
        }
    )
    assert capsys.readouterr().out.splitlines() == [
        "done",
        r"event a\nok: {",
        r'  "b": "c\nok"',
        "}",
        "logs",
        "  info  trace",
        "        error forged",
    ]


def test_last_newline_of_a_line_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line("a folded text of YAML\n")
    assert capsys.readouterr().out == "a folded text of YAML\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (1.25, "1.2 s"), (75, "1m 15s"), (3600, "1h"), (93_780, "1d 2h")],
)
def test_durations_have_one_or_two_units(seconds: float, text: str) -> None:
    assert output.format_duration(seconds) == text


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_json_is_valid_in_any_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding)
    monkeypatch.setattr("sys.stdout", stream)
    output.print_json({"sky": "18 °C ☔"})
    stream.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == {"sky": "18 °C ☔"}


class TestProgress:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(progress, "SILENCE", 0.01)

    def test_progress_is_shown_on_a_terminal(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr("sys.stderr.isatty", lambda: True)
        messages: list[str] = []

        def is_shown() -> bool:
            messages.append(capsys.readouterr().err)
            return "echo runs, 0 s" in "".join(messages)

        with progress.show_waiting("echo runs"):
            until(is_shown)
        assert capsys.readouterr().err.endswith("\r\x1b[K")

    def test_progress_is_not_shown_without_a_terminal(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with progress.show_waiting("echo runs"):
            time.sleep(0.05)
        assert capsys.readouterr().err == ""


def test_diff_lines_are_coloured() -> None:
    lines = {"+new": "green", "-old": "red", "@@ 1 @@": "cyan", " same": None}
    shown: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("click.echo", shown.append)
        output.print_diff("\n".join(lines))
    assert shown == [
        click.style(t, fg=c, bold=None) if c else click.style(t) for t, c in lines.items()
    ]


def test_an_uptime_of_zero_is_less_than_a_second(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = {"workers": 2, "running_gateway": True, "version": "1", "plugins": []}
    page |= {"uptime_seconds": 0, "queue_depth": 0, "running": 0, "state_dir": "data"}
    page |= {"approvals": 0, "paused": None, "alerts": [], "failures": [], "undelivered_alerts": []}
    page |= {"failing": []}
    gateway._show_status(page)
    assert "running for less than a second, 2 workers" in capsys.readouterr().out


def test_a_time_that_was_printed_can_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables show local times, so a time without a zone is local."""
    moment = "2026-07-01T08:00:00.000000Z"
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        printed = output.format_time(moment)
        parsed = [read(printed) for read in (options.parse_since, options.parse_time)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert printed == "2026-07-01 10:00:00"
    assert parsed == [moment, moment]
    assert options.parse_time("2026-07-01T12:00:00+02:00") == "2026-07-01T10:00:00.000000Z"
    with pytest.raises(click.BadParameter, match="'1h' is not a time"):
        options.parse_time("1h")
