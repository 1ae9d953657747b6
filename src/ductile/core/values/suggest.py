"""Suggest a known word for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word of `known` that is most similar to `word`, ignoring case; None if none is.

    Of words that need equally many edits, one of the same length wins: a wrong letter is more
    likely than a superfluous one (`schedulez` is `schedules`, not `schedule`).
    """
    # Slow to import, and only needed for an error message.
    from difflib import get_close_matches

    typed = word.casefold()
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(typed, folded)
    best = min(
        close,
        key=lambda name: (count_edits(typed, name), abs(len(typed) - len(name))),
        default=None,
    )
    return None if best is None else folded[best]


def count_edits(first: str, second: str) -> int:
    """The number of inserted, deleted, replaced and swapped letters between two words."""
    rows = [list(range(len(second) + 1))]
    for index, letter in enumerate(first, 1):
        row = [index]
        for column, other in enumerate(second, 1):
            replaced = rows[-1][column - 1] + (letter != other)
            edits = min(rows[-1][column] + 1, row[-1] + 1, replaced)
            if first[index - 2 : index] == second[column - 2 : column][::-1] and column > 1 < index:
                edits = min(edits, rows[-2][column - 2] + 1)
            row.append(edits)
        rows.append(row)
    return rows[-1][-1]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the end of a message; empty if no word is similar."""
    close = nearest(word, known)
    return f"; did you mean {close!r}?" if close else ""


def list_or_suggest(word: str, known: Sequence[str]) -> str:
    """`did you mean 'x'?`, or all known words where none is similar."""
    close = nearest(word, known)
    return f"did you mean {close!r}?" if close else f"there are: {', '.join(known) or 'none'}"
