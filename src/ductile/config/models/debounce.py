"""`debounce` of pipelines, routes and webhook endpoints."""

from typing import Self

from pydantic import Field, model_validator

from ductile.config.models import units
from ductile.config.models.fields import Section, Span, refuse
from ductile.config.models.limits import LimitKey
from ductile.core.flow.debounce import DEFAULT_WAITS
from ductile.core.jobs.retry import LONGEST_DELAY

DEBOUNCE = "Of events that follow each other closely, only the last one starts a job."


class DebounceSettings(Section):
    """An event starts its job after `wait`, unless another event comes first and replaces it."""

    key: LimitKey | None = Field(
        default=None,
        description="Only events with the same key replace each other; default: all events. "
        "A value that the payload does not have is empty.",
        examples=["{payload.account}"],
    )
    wait: Span = Field(description="Time without a further event.", examples=["30s"])
    max_wait: Span | None = Field(
        default=None,
        description="Maximum time between the first event and the start of the job; "
        f"default: {DEFAULT_WAITS} times `wait`.",
        examples=["5m"],
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        # A job that waits longer is taken for one whose clock was set back.
        if self.wait > LONGEST_DELAY:
            refuse(f"wait must be at most {units.format_duration(LONGEST_DELAY)}")
        if self.max_wait is not None and self.max_wait < self.wait:
            refuse("max_wait must not be less than wait")
        return self
