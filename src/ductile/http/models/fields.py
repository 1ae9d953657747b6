"""Field types of the request models: each parses one value and describes it as JSON Schema.

A parser raises `ValueError` with a message that follows the field's name: "must be ...". In a body
null means the same as an absent key, except for a flag: one that is null was meant to be set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from ductile.clock import from_text
from ductile.config.models.units import DURATION, parse_duration

MAX_INTEGER = 2**62
_DIGITS = re.compile(r"[0-9]{1,19}")
_DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")

Schema = dict[str, Any]


class RequestModel(BaseModel):
    """Refuses unknown names. Built at its first use, which keeps the start of a gateway short."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


def value_of(member: StrEnum | None) -> str | None:
    """Return the text that the ledger stores for a filter."""
    return None if member is None else member.value


class FieldType:
    """An annotation of a model's field: `Annotated[int, QueryInteger(1, 1000)]`."""

    schema: Schema = {}

    def parse(self, value: Any) -> Any:
        raise NotImplementedError

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.parse)

    def __get_pydantic_json_schema__(
        self, _core: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> Schema:
        return dict(self.schema)


class AnyText(FieldType):
    """A text of the query, which may be empty."""

    schema: Schema = {"type": "string"}

    def parse(self, value: Any) -> str:
        return str(value)


class TextList(FieldType):
    """A query parameter that may be repeated."""

    schema: Schema = {"type": "array", "items": {"type": "string"}}

    def parse(self, value: Any) -> list[str]:
        return list(value)


class SomeOf(FieldType):
    """A query parameter that may be repeated, of members of an enumeration."""

    def __init__(self, members: type[StrEnum]) -> None:
        self._members = members
        values = [member.value for member in members]
        self.schema = {"type": "array", "items": {"type": "string", "enum": values}}

    def parse(self, value: Any) -> list[StrEnum]:
        try:
            return [self._members(each) for text in value for each in text.split(",")]
        except ValueError:
            raise ValueError(f"must be one or more of {', '.join(self._members)}") from None


class QueryInteger(FieldType):
    def __init__(self, least: int = 0, most: int = MAX_INTEGER) -> None:
        self.least, self.most = least, most
        self.schema = {"type": "integer", "minimum": least}
        if most != MAX_INTEGER:
            self.schema["maximum"] = most

    def parse(self, value: Any) -> int:
        if not _DIGITS.fullmatch(value) or not self.least <= int(value) <= self.most:
            raise ValueError(f"must be a whole number from {self.least} to {self.most}")
        return int(value)


class QuerySeconds(FieldType):
    """A number of seconds; one that is greater than `most` is `most`."""

    schema: Schema = {"type": "number", "minimum": 0}

    def __init__(self, most: float) -> None:
        self.most = most

    def parse(self, value: Any) -> float:
        if not _DECIMAL.fullmatch(value):
            raise ValueError("must be a number of seconds from 0")
        return min(float(value), self.most)


class QueryFlag(FieldType):
    schema: Schema = {"type": "boolean"}

    def parse(self, value: Any) -> bool:
        if value not in ("true", "false"):
            raise ValueError("must be true or false")
        return bool(value == "true")


class Timestamp(FieldType):
    schema: Schema = {"type": "string", "format": "date-time"}

    def parse(self, value: Any) -> datetime | None:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                return from_text(value)
            except (ValueError, OverflowError):
                pass
        raise ValueError("must be a time (ISO 8601)")


class OneOf(FieldType):
    """A member of an enumeration, by its value; `normalize` maps other spellings to it."""

    def __init__(
        self,
        members: Iterable[StrEnum],
        normalize: Callable[[str], str] | None = None,
        *,
        required: bool = False,
    ) -> None:
        self._members: dict[str, StrEnum] = {member.value: member for member in members}
        self._normalize, self._required = normalize, required
        self.schema = {"type": "string", "enum": list(self._members)}

    def parse(self, value: Any) -> StrEnum | None:
        if value is None and not self._required:
            return None
        if isinstance(value, str):
            known = self._members.get(self._normalize(value) if self._normalize else value)
            if known is not None:
                return known
        raise ValueError(f"must be one of {', '.join(self._members)}")


class BodyText(FieldType):
    """A non-empty text; with `most` a text of bounded length and printable characters."""

    schema: Schema = {"type": "string", "minLength": 1}

    def __init__(self, least: int = 1, most: int | None = None, *, required: bool = False) -> None:
        self._least, self._most, self._required = least, most, required
        if most is not None:
            self.schema = {"type": "string", "minLength": least, "maxLength": most}

    def parse(self, value: Any) -> str | None:
        if value is None and not self._required:
            return None
        text = value if isinstance(value, str) else ""
        if self._most is None:
            if not text:
                raise ValueError("must be a non-empty string")
        elif not (self._least <= len(text) <= self._most and text.isprintable()):
            raise ValueError(
                f"must be a text of {self._least} to {self._most} printable characters"
            )
        return text


class BodyFlag(FieldType):
    schema: Schema = {"type": "boolean"}

    def parse(self, value: Any) -> bool:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value


class BodyInteger(FieldType):
    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self.schema = {"type": "integer", "minimum": least, "maximum": most}

    def parse(self, value: Any) -> int:
        if type(value) is not int or not self._least <= value <= self._most:
            raise ValueError(f"must be a whole number from {self._least} to {self._most}")
        return value


class BodyDuration(FieldType):
    """Seconds, from a number or from a text such as `1h`."""

    schema: Schema = {"type": ["string", "number"]}

    def __init__(self, most: float) -> None:
        self._most = most

    def parse(self, value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, str):
            try:
                value = parse_duration(value)
            except ValueError:
                raise ValueError(f"must be {DURATION}") from None
            except OverflowError as error:
                raise ValueError(str(error)) from None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= self._most:
            raise ValueError("must be a duration of at most ten years")
        return float(value)


class Payload(FieldType):
    """Any JSON value; null is an empty object."""

    def parse(self, value: Any) -> Any:
        return {} if value is None else value


class PresentJson(FieldType):
    """Any JSON value but null, which would be taken for an absent key."""

    def parse(self, value: Any) -> Any:
        if value is None:
            raise ValueError("must not be null; leave it out instead")
        return value


class AnyJson(FieldType):
    """A value that a later check judges, with messages of its own."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def parse(self, value: Any) -> Any:
        return value
