"""The types of settings, and `Section`, the base class of all models.

A scalar of a file reaches the schema as `RawScalar`: its text, and the value that YAML gives it.
The field decides which one it uses, so `name: 1.10` stays "1.10" and `max_workers: ${N}` is a
number. Plain Python values are accepted too, so tests can build settings directly.
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

from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import absolute
from ductile.config.loader.nodes import Location
from ductile.config.loader.yaml import NotJson
from ductile.config.models import units
from ductile.core.jobs.limits import LONGEST_PRIORITY
from ductile.model import Json

_AS_WRITTEN = "as_written"


@dataclass(frozen=True, slots=True)
class RawScalar:
    """A scalar of a file: `text` after expansion, and its `value` by the rules of YAML."""

    text: str
    value: Json
    location: Location
    secret: bool = False
    """Never quote it in a problem."""


class Section(BaseModel):
    """A mapping with known keys. An empty key counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, populate_by_name=True)

    @classmethod
    def derive_defaults(cls, data: dict[str, Any]) -> dict[str, Any]:
        """`data` with the defaults that depend on other keys."""
        return data

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterable[str]:  # noqa: ARG003 - subclasses
        """Messages about keys of `data` that are not valid together."""
        return ()

    def to_document(self) -> dict[str, Json]:
        """The section in the notation of the files: durations and sizes as text."""
        return self.model_dump(mode="json", by_alias=True, context={_AS_WRITTEN: True})

    @model_validator(mode="wrap")
    @classmethod
    def _validate(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Report conflicts together with the errors of the fields, not instead of them."""
        if not isinstance(data, dict):
            return handler(data)
        given = {key: value for key, value in data.items() if value is not None}
        conflicts = [_custom_error(message) for message in cls.find_conflicts(given)]
        data = cls.derive_defaults(given)
        if not conflicts:
            return handler(data)
        errors = [InitErrorDetails(type=error, input=data) for error in conflicts]
        try:
            handler(data)
        except ValidationError as error:
            errors += map(_to_init_details, error.errors(include_url=False))
        raise ValidationError.from_exception_data(cls.__name__, errors)


def refuse(message: str, **details: object) -> NoReturn:
    """Raise an error that becomes a `Problem`; `details` may be `allowed`, `nearest` and
    `location`."""
    raise _custom_error(message, **details)


def refuse_as(error: ValueError) -> NoReturn:
    """As `refuse`, with the message of an error, which may end with `; allowed: ...`."""
    message, _, allowed = str(error).partition("; allowed: ")
    refuse(message, **({"allowed": allowed} if allowed else {}))


def _custom_error(message: str, **details: object) -> PydanticCustomError:
    return PydanticCustomError("refused", "{message}", {"message": message, **details})


def _to_init_details(error: ErrorDetails) -> InitErrorDetails:
    kind: Any = error["type"]
    context = error.get("ctx", {})
    if kind == "refused":
        kind = PydanticCustomError(kind, "{message}", context)
    return InitErrorDetails(type=kind, loc=error["loc"], input=error["input"], ctx=context)


def to_plain(value: Any) -> Json:
    """The plain values of a document that the schema does not look into."""
    if isinstance(value, RawScalar):
        if isinstance(value.value, NotJson):
            refuse(f"{value.value}, which JSON cannot represent; quote it", location=value.location)
        return value.value
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def text_of(value: Any, wanted: str = "text") -> Any:
    """The text of a scalar; plain Python values are returned unchanged."""
    if isinstance(value, dict | list):
        refuse(f"must be {wanted}")
    return value.text if isinstance(value, RawScalar) else value


def _text(value: Any) -> Any:
    return text_of(value)


def _typed(value: Any, kind: type, name: str) -> Any:
    if isinstance(value, RawScalar):
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
        return 0.0 if text == "0" else units.parse_duration(text)
    except ValueError as error:
        refuse(str(error), allowed=units.DURATION)


def _bytes(value: Any) -> Any:
    text = text_of(value, "a size")
    if not isinstance(text, str):
        return text
    try:
        return units.parse_size(text)
    except ValueError as error:
        refuse(str(error), allowed=units.SIZE)


def _serialize_as(text: Callable[[Any], str]) -> WrapSerializer:
    """Serializes a number in the notation of the files if `to_document` asks for it."""

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
        refuse("must be the path of a URL", allowed="a path such as /hook, without ? and #")
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
"""Annotates a `Literal` of words."""
InDuration = _serialize_as(units.format_duration)
"""Annotates seconds."""
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    InDuration,
    WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN}),
]
Span = Annotated[Seconds, Field(gt=0)]
Priority = Annotated[Seconds, Field(le=LONGEST_PRIORITY)]
PRIORITY = "Its jobs start as if they had been enqueued this much earlier."
Bytes = Annotated[
    int,
    BeforeValidator(_bytes),
    Field(gt=0),
    _serialize_as(units.format_size),
    WithJsonSchema({"type": ["string", "integer"], "pattern": units.SIZE_PATTERN}),
]
FilePath = Annotated[Path, BeforeValidator(_path), WithJsonSchema({"type": "string"})]
Address = Annotated[
    str, BeforeValidator(_address), WithJsonSchema({"type": "string", "pattern": r":[0-9]+$"})
]
UrlPath = Annotated[str, BeforeValidator(_url_path)]
Url = Annotated[str, BeforeValidator(_url)]
Opaque = Annotated[Any, BeforeValidator(to_plain)]
OpaqueTable = Annotated[dict[str, Any], BeforeValidator(to_plain)]
Defaulted = BeforeValidator(_empty_is_default)
"""Annotates mapping entries whose empty values mean their defaults."""


def span(default: str | float, description: str) -> Any:
    """A field of seconds; its default is documented in the notation of the files."""
    text = default if isinstance(default, str) else units.format_duration(default)
    return Field(
        default=units.parse_duration(text),
        description=description,
        json_schema_extra={"default": text},
    )


def volume(default: str, description: str) -> Any:
    """A field of bytes; its default is documented in the notation of the files."""
    return Field(
        default=units.parse_size(default),
        description=description,
        json_schema_extra={"default": default},
    )


def split_address(listen: str) -> tuple[str, int]:
    """Host and port of an address; an empty host means all interfaces."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]") or "0.0.0.0", int(port)
