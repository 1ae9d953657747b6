"""What a Python plugin needs: its `# /// script` block, shebang line or `requirements.txt`."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.model import Json
from ductile.plugins.environments.python_version import InvalidSpecifier, is_satisfied
from ductile.plugins.environments.script_block import InvalidBlock, read_block

REQUIREMENTS_NAME = "requirements.txt"
MAX_SCRIPT = 1024 * 1024
"""A block has to be in this part of a file."""
MAX_DEPENDENCIES = 500
MAX_REQUIREMENT = 1000

_INTERPRETER = re.compile(r"python[0-9.]*")
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?\s*(?:\[[A-Za-z0-9._,\s-]*\])?\s*"
    r"(?:\(?\s*(?:~=|===?|!=|<=|>=|<|>)[^;@]*)?(?:;.*)?"
)
"""A name with extras, versions and a marker. pip would read other lines as options or paths."""
_HASH = re.compile(r"\s--hash=sha(?:256|384|512):[0-9a-f]{64,128}(?=\s|$)")
_UV_FLAGS = re.compile(
    r"-q+|-v|-s|-n|--(?:quiet|verbose|script|no-project|isolated|offline|frozen|locked|no-cache"
    r"|no-progress|no-config|exact|native-tls|no-env-file)"
)
_UV_VALUES = {"--with": "--with", "-w": "--with", "--python": "--python", "-p": "--python"}


class InvalidRequirements(ValueError):
    """The declared dependencies cannot be used; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PythonRequirements:
    """The packages and the Python version that a plugin needs."""

    source: str
    """The file that declares them."""
    dependencies: tuple[str, ...]
    requires_python: str = ""
    """A version specifier; empty if every version is allowed."""

    @property
    def digest(self) -> str:
        """Changes if the plugin needs something else; not if lines are moved."""
        lines = (self.requires_python.replace(" ", ""), *sorted(self.dependencies))
        return blake3("\n".join(lines).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class _Shebang:
    """A shebang line that starts Python, directly or through `uv run`."""

    interpreter: str
    """As written; relative if `env` searches for it."""
    is_uv: bool = False
    dependencies: tuple[str, ...] = ()
    requires_python: str = ""


def starts_python(program: bytes) -> bool:
    """Whether the first line of a file names a Python, or `uv run` with known options."""
    return _read_shebang(program) is not None


def named_interpreter(program: bytes) -> str | None:
    """The Python that the first line of a file names, as written."""
    shebang = _read_shebang(program)
    return shebang.interpreter if shebang is not None and not shebang.is_uv else None


def read_requirements(
    name: str, program: bytes, requirements: bytes | None
) -> PythonRequirements | None:
    """What a plugin needs, from the beginning of its entrypoint and its `requirements.txt`.

    None for a plugin in another language, and for one that declares nothing. A block takes
    precedence over `requirements.txt`. Raises `InvalidRequirements`.
    """
    shebang = _read_shebang(program)
    if shebang is None:
        return None
    try:
        block = read_block(program.decode("utf-8", "replace"))
    except InvalidBlock as error:
        raise InvalidRequirements(str(error)) from None
    if block is not None:
        source = name
        dependencies, requires_python = _read_table(block)
    elif requirements is not None and (lines := _read_lines(requirements)):
        source, dependencies, requires_python = REQUIREMENTS_NAME, lines, ""
    elif shebang.is_uv:
        source, dependencies, requires_python = name, (), ""
    else:
        return None
    dependencies = (*dependencies, *shebang.dependencies)
    if len(dependencies) > MAX_DEPENDENCIES:
        raise InvalidRequirements(f"{source} names more than {MAX_DEPENDENCIES} dependencies")
    versions = ",".join(filter(None, (requires_python, shebang.requires_python)))
    try:
        is_satisfied(versions, (3, 0, 0))
    except InvalidSpecifier as error:
        raise InvalidRequirements(f"requires-python in {source}: {error}") from None
    checked = tuple(_check(source, requirement) for requirement in dependencies)
    return PythonRequirements(source, checked, versions)


def _read_table(block: dict[str, Json]) -> tuple[tuple[str, ...], str]:
    dependencies, versions = block.get("dependencies", []), block.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(d, str) for d in dependencies):
        raise InvalidRequirements("`dependencies` in its `# /// script` block must be strings")
    if not isinstance(versions, str):
        raise InvalidRequirements("`requires-python` in its `# /// script` block must be a string")
    return tuple(" ".join(d.split()) for d in dependencies), versions.strip()


def _read_lines(data: bytes) -> tuple[str, ...]:
    """The requirements in a file: without comments, with continued lines joined."""
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^\s*#.*\n", "", text)).split("\n")
    stripped = (" ".join(re.sub(r"(^|\s)#.*", "", line).split()) for line in lines)
    return tuple(line for line in stripped if line)


def _check(source: str, requirement: str) -> str:
    shown = repr(requirement[:80])
    if len(_HASH.sub("", requirement)) > MAX_REQUIREMENT or not requirement.isprintable():
        raise InvalidRequirements(f"{source}: {shown} is not a valid requirement")
    if requirement.startswith("-"):
        raise InvalidRequirements(
            f"{source}: the option {shown} is not supported; list packages only, and set the "
            "index in the configuration of pip or uv, or use --wheelhouse"
        )
    named = _HASH.sub("", requirement).rstrip()
    if "@" in named.partition(";")[0]:
        raise InvalidRequirements(
            f"{source}: {shown} names an address; publish the package to an index or a "
            "wheelhouse, and name its version"
        )
    if not _REQUIREMENT.fullmatch(named):
        raise InvalidRequirements(
            f"{source}: {shown} is not a package with versions, such as httpx>=0.27"
        )
    return requirement


def _read_shebang(program: bytes) -> _Shebang | None:
    line = program.partition(b"\n")[0].rstrip(b"\r")
    if not line.startswith(b"#!"):
        return None
    words = line[2:].decode("utf-8", "replace").split()
    if words and PurePosixPath(words[0]).name == "env":
        words = [word.removeprefix("-S") for word in words[1:]]
        words = [word for word in words if word]
    if not words:
        return None
    name = PurePosixPath(words[0]).name
    if _INTERPRETER.fullmatch(name):
        return _Shebang(words[0])
    return _read_uv(words) if name == "uv" else None


def _read_uv(words: list[str]) -> _Shebang | None:
    """The meaning of `uv run` with options that describe what a script needs; None for others,
    which only uv itself understands."""
    dependencies: list[str] = []
    versions: list[str] = []
    has_run = False
    rest = iter(words[1:])
    for word in rest:
        option, given, value = word.partition("=")
        if word == "run" and not has_run:
            has_run = True
        elif option in _UV_VALUES:
            value = value if given else next(rest, "")
            if _UV_VALUES[option] == "--with":
                dependencies += filter(None, value.split(","))
            elif re.fullmatch(r"\d+(\.\d+)*", value):
                versions.append(f"=={value}" if value.count(".") > 1 else f"=={value}.*")
            else:
                return None
        elif not _UV_FLAGS.fullmatch(word):
            return None
    if not has_run:
        return None
    return _Shebang(words[0], True, tuple(dependencies), ",".join(versions))
