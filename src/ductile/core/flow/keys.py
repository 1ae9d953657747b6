"""Keys of limits: a text with references to the payload, such as `{payload.account}`."""

from __future__ import annotations

import hashlib
import re

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.limits import fits
from ductile.core.pipelines.templates import Literal, Text, as_text, compile_template
from ductile.core.values.json_values import MISSING, Failure, Ref, StepValues
from ductile.model import Json

LONGEST_KEY = 200
"""Bytes; a longer key is replaced by its hash."""
SEPARATOR = "\x1f"
"""Between the parts of a limit key; removed from the keys themselves."""
_BRACED = re.compile(r"\{[^{}]*\}?")


@dataclass(frozen=True, slots=True)
class FlowKey:
    """A compiled key."""

    text: str
    parts: tuple[str | Ref, ...]

    def render(self, payload: Json) -> str:
        """The key of a job with this payload; a value that the payload does not have is empty."""
        values = StepValues(payload)
        texts = [part if isinstance(part, str) else _value(part, values) for part in self.parts]
        key = "".join(texts).replace(SEPARATOR, "").replace("\0", "")
        if fits(key, LONGEST_KEY):
            return key
        return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def _value(ref: Ref, values: StepValues) -> str:
    found = ref.read(values)
    return "" if found is MISSING or found is None else as_text(found)


def compile_key(text: str) -> FlowKey | Failure:
    """Compile a key, or return why it can never be resolved."""
    if not text.strip():
        return Failure("must not be empty")
    template = compile_template(text, ())
    if isinstance(template, list):
        return Failure(template[0].message)
    parts: tuple[str | Ref, ...]
    if isinstance(template, Ref):
        parts = (template,)
    elif isinstance(template, Text):
        parts = template.parts
    elif isinstance(template, Literal):
        parts = (str(template.value),)
    else:
        return Failure("must be a text, such as {payload.account}")
    for part in parts:
        if isinstance(part, Ref):
            if part.root != "payload":
                return Failure(f"{part} is not known when a job is enqueued; use payload")
        elif found := _BRACED.search(part):
            return Failure(f"{found[0]} is not a reference; write {{payload.NAME}}")
    return FlowKey(text, parts)
