"""How many jobs run at once and how often they start."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ductile.config.models.fields import Section, Span, Whole, Word, refuse, text_of


def _check_key(value: Any) -> Any:
    text = text_of(value, "a key")
    if isinstance(text, str):
        from ductile.core.flow.keys import compile_key
        from ductile.core.values.json_values import Failure

        found = compile_key(text)
        if isinstance(found, Failure):
            refuse(found.reason, allowed="text with references, such as {payload.account}")
    return text


LimitKey = Annotated[str, BeforeValidator(_check_key)]


class ConcurrencySettings(Section):
    """How many jobs with the same key run at once, on all nodes."""

    key: LimitKey | None = Field(
        default=None,
        description="Jobs with the same key count together; default: all jobs of the plugin. "
        "A value that the payload does not have is empty.",
        examples=["{payload.account}"],
    )
    limit: Annotated[Whole, Field(ge=1)] = Field(
        default=1, description="Maximum number of running jobs per key."
    )
    on_full: Annotated[Literal["queue", "skip", "cancel"], Word] = Field(
        default="queue",
        description="What happens to a job whose turn comes while its key is full: it waits; it "
        "is skipped; or it waits and the older jobs with its key are cancelled.",
    )


class RateSettings(Section):
    """How often jobs start, on all nodes."""

    limit: Annotated[Whole, Field(ge=1)] = Field(description="Number of starts per period.")
    per: Span = Field(description="The period.", examples=["1m"])
    burst: Annotated[Whole, Field(ge=1)] = Field(
        default=1,
        description="Number of starts that may follow each other without a delay.",
    )
    key: LimitKey | None = Field(
        default=None,
        description="Each key has its own rate; default: one for the plugin.",
        examples=["{payload.account}"],
    )
