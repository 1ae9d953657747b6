"""Values of options that more than one command takes."""

from __future__ import annotations

import click

from ductile.model import JobStatus

STATUS = click.Choice([status.value for status in JobStatus])
LIMIT = click.IntRange(1, 1000)


def seconds(text: str) -> float:
    """`90s`, `5m`, `1h30m`."""
    from ductile.config.quantities import DURATION, duration

    try:
        return duration(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not {DURATION}") from None


def since(text: str) -> str:
    """A moment, or a duration before now, in the ledger's form."""
    from datetime import timedelta

    from ductile.clock import SystemClock, from_text, to_text
    from ductile.config.quantities import duration

    try:
        return to_text(SystemClock().now() - timedelta(seconds=duration(text)))
    except ValueError:
        pass
    try:
        return to_text(from_text(text))
    except (ValueError, OverflowError):
        wanted = "a duration (1h) nor a time (ISO 8601)"
        raise click.BadParameter(f"{text!r} is neither {wanted}") from None
