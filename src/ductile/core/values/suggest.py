"""What somebody probably meant, who wrote a word that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The one of `known` that is closest to `word`, whatever the case of either."""
    # Slow to import, and wanted only where somebody has erred.
    from difflib import get_close_matches

    folded = {name.casefold(): name for name in known}
    return next((folded[name] for name in get_close_matches(word.casefold(), folded, 1)), None)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` to end a message with, or nothing where nothing is close."""
    close = nearest(word, known)
    return f"; did you mean {close!r}?" if close else ""
