"""The types that settings are made of, and the section that holds them.

A scalar of a file reaches the schema as `Found`: its text, and the value that YAML gives it.
The field decides which it wants, so `name: 1.10` stays "1.10" and `max_workers: ${N}` is a
number. Plain Python values are taken as they are, so tests can build settings by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    WrapSerializer,
    model_validator,
)
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from ductile.config.loader.files import absolute
from ductile.config.loader.nodes import Place
from ductile.config.loader.yaml import NotJson
from ductile.config.models import units
from ductile.model import Json
from ductile.record import dataclass

_AS_WRITTEN = "as_written"


@dataclass(frozen=True, slots=True)
class Found:
    """A scalar as a file has it: `value` by YAML's rules, `text` as it stands after expansion."""

    text: str
    value: Json
    place: Place
    secret: bool = False
    """Never quoted in a problem."""


class Section(BaseModel):
    """A mapping of known keys. A key that is left empty is as good as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)

    @classmethod
    def completed(cls, data: dict[str, Any]) -> dict[str, Any]:
        """`data` with what follows from other keys filled in."""
        return data

    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterable[str]:  # noqa: ARG003 - for heirs
        """What is wrong with the keys of `data`, as given, taken together."""
        return ()

    def written(self) -> dict[str, Json]:
        """The section as a file could have it: by its keys, durations and sizes as text."""
        return self.model_dump(mode="json", by_alias=True, context={_AS_WRITTEN: True})

    @model_validator(mode="wrap")
    @classmethod
    def _judge(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Complaints come with the errors of the fields, not instead of them."""
        if not isinstance(data, dict):
            return handler(data)
        given = {key: value for key, value in data.items() if value is not None}
        complaints = [_refusal(message) for message in cls.complaints(given)]
        data = cls.completed(given)
        if not complaints:
            return handler(data)
        errors = [InitErrorDetails(type=error, input=data) for error in complaints]
        try:
            handler(data)
        except ValidationError as error:
            errors += map(_restated, error.errors(include_url=False))
        raise ValidationError.from_exception_data(cls.__name__, errors)


def refuse(message: str, **details: object) -> NoReturn:
    """Raise what becomes a Problem; `details` may be `allowed` and `place`."""
    raise _refusal(message, **details)


def refuse_as(error: ValueError) -> NoReturn:
    """The same from an error whose message may end with `; allowed: ...`."""
    message, _, allowed = str(error).partition("; allowed: ")
    refuse(message, **({"allowed": allowed} if allowed else {}))


def _refusal(message: str, **details: object) -> PydanticCustomError:
    return PydanticCustomError("refused", "{message}", {"message": message, **details})


def _restated(error: ErrorDetails) -> InitErrorDetails:
    kind: Any = error["type"]
    context = error.get("ctx", {})
    if kind == "refused":
        kind = PydanticCustomError(kind, "{message}", context)
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"], ctx=context)


def plain(value: Any) -> Json:
    """The values of a document that the schema does not look into."""
    if isinstance(value, Found):
        if isinstance(value.value, NotJson):
            refuse(f"{value.value}, which JSON cannot carry; quote it", place=value.place)
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def text_of(value: Any, wanted: str = "text") -> Any:
    """The text of a scalar; other Python values than collections are left to the field."""
    if isinstance(value, dict | list):
        refuse(f"must be {wanted}")
    return value.text if isinstance(value, Found) else value


def _text(value: Any) -> Any:
    return text_of(value)


def _typed(value: Any, kind: type, name: str) -> Any:
    if isinstance(value, Found):
        value = value.value
    if type(value) is not kind:
        refuse(f"must be {name}")
    return value


def _whole(value: Any) -> Any:
    return _typed(value, int, "a whole number")


def _flag(value: Any) -> Any:
    return _typed(value, bool, "true or false")


def _seconds(value: Any) -> Any:
    text = text_of(value, "a duration")
    if not isinstance(text, str):
        return text
    try:
        return 0.0 if text == "0" else units.duration(text)
    except ValueError as error:
        refuse(str(error), allowed=units.DURATION)


def _bytes(value: Any) -> Any:
    text = text_of(value, "a size")
    if not isinstance(text, str):
        return text
    try:
        return units.size(text)
    except ValueError as error:
        refuse(str(error), allowed=units.SIZE)


def _noted(text: Callable[[Any], str]) -> WrapSerializer:
    """Shows a number in the notation of the files where that is wanted, else as it is."""

    def shown(value: Any, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> Any:
        wanted = info.context and not isinstance(value, str)
        return text(value) if wanted else handler(value)

    return WrapSerializer(shown, when_used="json")


def _path(value: Any, info: ValidationInfo) -> Any:
    text = text_of(value, "a path")
    if not isinstance(text, str):
        return text
    if not text or "\0" in text:
        refuse("must be a path")
    context = info.context or {}
    home = context.get("home")
    if home and (text == "~" or text.startswith("~/")):
        text = home + text[1:]
    base = context.get("config_dir")
    return absolute(Path(base), text) if base else Path(text)


def _address(value: Any) -> Any:
    text = text_of(value, "an address")
    if not isinstance(text, str):
        return text
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]*):([0-9]{1,5})", text)
    if match is None or int(match[2]) > 65_535:
        refuse("must be an address", allowed="host:port, such as 127.0.0.1:8080 or [::1]:8080")
    return text


def _url_path(value: Any) -> Any:
    text = text_of(value, "the path of a URL")
    if isinstance(text, str) and not re.fullmatch(r"/[^\s?#]*", text):
        refuse("must be the path of a URL", allowed="/ and what follows, no ? or #")
    return text


def _url(value: Any) -> Any:
    text = text_of(value, "an absolute URL")
    if isinstance(text, str) and not re.match(r"https?://[^\s/?#]+[^\s?#]*\Z", text):
        refuse("must be an absolute URL", allowed="http:// or https:// with a host")
    return text


def _empty_is_default(value: Any) -> Any:
    return {} if value is None else value


Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_text), Field(min_length=1)]
Whole = Annotated[int, BeforeValidator(_whole)]
Flag = Annotated[bool, BeforeValidator(_flag)]
Word = BeforeValidator(_text)
"""Annotates a Literal of words."""
InDuration = _noted(units.duration_text)
"""Annotates seconds."""
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    InDuration,
    WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN}),
]
Span = Annotated[Seconds, Field(gt=0)]
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(gt=0),
    _noted(units.size_text),
    WithJsonSchema({"type": ["string", "integer"], "pattern": units.SIZE_PATTERN}),
]
FilePath = Annotated[Path, BeforeValidator(_path), WithJsonSchema({"type": "string"})]
Address = Annotated[
    str, BeforeValidator(_address), WithJsonSchema({"type": "string", "pattern": r":[0-9]+$"})
]
UrlPath = Annotated[str, BeforeValidator(_url_path)]
Url = Annotated[str, BeforeValidator(_url)]
Opaque = Annotated[Any, BeforeValidator(plain)]
OpaqueTable = Annotated[dict[str, Any], BeforeValidator(plain)]
Defaulted = BeforeValidator(_empty_is_default)
"""Annotates the entries of a map whose empty ones take their defaults."""


def span(default: str | float, description: str) -> Any:
    """A field of seconds whose default is told as people write it."""
    text = default if isinstance(default, str) else units.duration_text(default)
    return Field(
        default=units.duration(text),
        description=description,
        json_schema_extra={"default": text},
    )


def volume(default: str, description: str) -> Any:
    """A field of bytes whose default is told as people write it."""
    return Field(
        default=units.size(default),
        description=description,
        json_schema_extra={"default": default},
    )


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of an address; no host means all interfaces."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]") or "0.0.0.0", int(port)
