"""The log of a running attempt: safe at every moment, and a beginning of the stored log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.jobs.live_log import Progress, find_progress, readable_beginning
from ductile.core.values.redact import Redactor

SECRETS = ("hunter2hunter2", "hunter2hunter2-and-more", "line one\nline two", "2-and-on")
LINK = f"https://ductile.example/approve/{'Ab0_-' * 8}xyz"


@given(
    parts=st.lists(
        st.sampled_from(
            (*SECRETS, "hunter2", "line one\n", "ü€", "x", "2-a", "\n", LINK, LINK[:-1])
        ),
        max_size=12,
    ),
    cuts=st.lists(st.integers(0, 400), max_size=8),
)
def test_shown_text_is_a_growing_beginning_of_the_stored_text(
    parts: list[str], cuts: list[int]
) -> None:
    redactor, raw = Redactor(SECRETS), "".join(parts).encode()
    stored = redactor.text(raw.decode())
    shown = ""
    for cut in sorted(min(cut, len(raw)) for cut in cuts):
        text = readable_beginning(raw[:cut], redactor)
        assert text.startswith(shown)
        assert stored.startswith(text)
        shown = text


def test_text_without_secrets_is_shown_at_once() -> None:
    assert readable_beginning(b"copying\nhalf a li", Redactor()) == "copying\nhalf a li"


def test_incomplete_character_waits_for_its_rest() -> None:
    assert readable_beginning("aü".encode()[:-1], Redactor()) == "a"
    assert readable_beginning(b"a\xff\0b", Redactor()) == "a\ufffd\ufffdb"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("::progress 40 copying\n", Progress(40, "copying")),
        ("::progress 40\n", Progress(40, "")),
        ("::progress 12.5% half an eighth \r\nother\n", Progress(12.5, "half an eighth")),
        ("::progress 10 a\n::progress 20 b\n", Progress(20, "b")),
        ("::progress 10 a\n::progress 20 incompl", Progress(10, "a")),
        ("::progress 101 too much\n", None),
        ("::progress -1\n", None),
        ("progress 10\n", None),
        (" ::progress 10\n", None),
        ("", None),
    ],
)
def test_last_progress_line_counts(text: str, found: Progress | None) -> None:
    assert find_progress(text) == found


def test_long_lines_are_read_in_linear_time() -> None:
    """A quadratic search would take minutes."""
    text = f"::progress 1 a{' ' * 4_000_000}b\n"
    assert find_progress(text * 2) is not None


def test_estimate_needs_a_first_percent() -> None:
    assert Progress(0.5, "").seconds_left(10) is None
    assert Progress(25, "").seconds_left(10) == 30
    assert Progress(100, "").seconds_left(10) is None


def test_beginning_of_a_secret_is_held_back_and_nothing_more() -> None:
    redactor = Redactor(["AxxxxxxxxxxA"])
    assert readable_beginning(b"A" * 40_000, redactor) == "A" * 39_999
    assert readable_beginning(b"see AxxxxxxxxxxA", redactor) == "see [REDACTED]"


def test_token_of_an_approval_link_is_never_shown_in_parts() -> None:
    raw, redactor = f"open {LINK} now".encode(), Redactor()
    for length in range(len(raw)):
        text = readable_beginning(raw[:length], redactor)
        assert "open https://ductile.example/approve/[REDACTED] now".startswith(text)
    assert readable_beginning(raw, redactor).endswith("/approve/[REDACTED] now")
