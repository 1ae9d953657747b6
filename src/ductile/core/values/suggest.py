"""Suggest a known word for an unknown one."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The word of `known` that is most similar to `word`, ignoring case; None if none is."""
    # Slow to import, and only needed for an error message.
    from difflib import get_close_matches

    folded = {name.casefold(): name for name in known}
    return next((folded[name] for name in get_close_matches(word.casefold(), folded, 1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the end of a message; empty if no word is similar."""
    close = nearest(word, known)
    return f"; did you mean {close!r}?" if close else ""
