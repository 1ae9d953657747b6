"""What a Python plugin needs, by its block, its shebang line or `requirements.txt`."""

from __future__ import annotations

import pytest

from ductile.plugins.environments.requirements import (
    InvalidRequirements,
    PythonRequirements,
    read_requirements,
)

UV = "#!/usr/bin/env -S uv run --script\n"
PYTHON = "#!/usr/bin/env python3\n"


def block(*lines: str) -> str:
    return "".join(f"{line}\n" for line in ("# /// script", *(f"# {x}" for x in lines), "# ///"))


def read(program: str, requirements: str | None = None) -> PythonRequirements | None:
    listed = None if requirements is None else requirements.encode()
    return read_requirements("run.py", program.encode(), listed)


def needed(program: str, requirements: str | None = None) -> PythonRequirements:
    found = read(program, requirements)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "line",
    [
        "#!/usr/bin/env -S uv run --script",
        "#!/usr/bin/env -S uv run -s",
        "#!/usr/bin/env -S uv run --quiet --script",
        "#!/usr/bin/env -Suv run -q -s",
        "#!/usr/bin/env -S uv --quiet run --script",
        "#!/usr/local/bin/uv run --script",
        "#!/usr/bin/env python3",
        "#!/usr/bin/python3.11 -u",
    ],
)
def test_a_block_is_read_whatever_starts_the_program(line: str) -> None:
    program = f"{line}\n" + block('dependencies = ["httpx>=0.27"]', 'requires-python = ">=3.11"')
    expected = PythonRequirements("run.py", ("httpx>=0.27",), ">=3.11")
    assert read(program) == expected


@pytest.mark.parametrize("line", ["#!/bin/sh", "#!/usr/bin/env node", "", "#!/usr/bin/env"])
def test_a_program_in_another_language_needs_nothing(line: str) -> None:
    assert read(f"{line}\n" + block('dependencies = ["httpx"]'), "httpx\n") is None


@pytest.mark.parametrize("options", ["--directory /", "--python pypy@3.10", "--env-file x"])
def test_options_that_only_uv_understands_are_left_to_uv(options: str) -> None:
    assert read(f"#!/usr/bin/env -S uv run {options} --script\n") is None


def test_options_of_uv_that_name_packages_and_versions_count() -> None:
    program = "#!/usr/bin/env -S uv run --with rich,httpx --with=idna -p 3.12 --script\n"
    found = needed(program + block('dependencies = ["h11"]', 'requires-python = ">=3.11"'))
    assert found.dependencies == ("h11", "rich", "httpx", "idna")
    assert found.requires_python == ">=3.11,==3.12.*"


def test_a_program_for_uv_without_a_block_needs_no_packages() -> None:
    assert needed(UV).dependencies == ()
    assert read(PYTHON) is None


def test_requirements_txt_is_read_without_comments() -> None:
    digest = "a" * 64
    text = f"# a comment\nhttpx >= 0.27  # why\n\nrich==13.0 \\\n    --hash=sha256:{digest}\n"
    found = needed(PYTHON, text)
    assert found.source == "requirements.txt"
    assert found.dependencies == ("httpx >= 0.27", f"rich==13.0 --hash=sha256:{digest}")


def test_a_block_takes_precedence_over_requirements_txt() -> None:
    assert needed(PYTHON + block('dependencies = ["rich"]'), "httpx\n").dependencies == ("rich",)


@pytest.mark.parametrize(
    ("requirement", "word"),
    [
        ("-r other.txt", "option"),
        ("--index-url https://example.com", "option"),
        ("-e .", "option"),
        ("httpx @ https://example.com/httpx.whl", "address"),
        ("git+https://example.com/a.git", "not a package"),
        ("./local", "not a package"),
        ("/etc/passwd", "not a package"),
        ("httpx --index-url=https://example.com", "not a package"),
        ("httpx==1\x00", "not a valid requirement"),
        ("x" * 2000, "not a valid requirement"),
    ],
)
def test_options_addresses_and_paths_are_refused(requirement: str, word: str) -> None:
    with pytest.raises(InvalidRequirements, match=word):
        read(PYTHON, requirement)


@pytest.mark.parametrize(
    "requirement",
    ["httpx", "httpx[http2,brotli]>=0.27,<1", "tomli; python_version < '3.11'", "a.b-c_d (>=1)"],
)
def test_packages_with_extras_versions_and_markers_are_accepted(requirement: str) -> None:
    assert needed(PYTHON, requirement).dependencies == (requirement,)


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (('dependencies = "httpx"',), "must be strings"),
        (("dependencies = [1]",), "must be strings"),
        (("requires-python = 3",), "must be a string"),
        (('requires-python = "python 3"',), "not a version specifier"),
        (("dependencies = [",), "not valid TOML"),
    ],
)
def test_an_invalid_block_is_refused(lines: tuple[str, ...], word: str) -> None:
    with pytest.raises(InvalidRequirements, match=word):
        read(PYTHON + block(*lines))


def test_digest_changes_with_the_needs_and_not_with_their_order() -> None:
    one = PythonRequirements("run.py", ("a", "b"), ">=3.11")
    assert one.digest == PythonRequirements("requirements.txt", ("b", "a"), ">= 3.11").digest
    assert one.digest != PythonRequirements("run.py", ("a",), ">=3.11").digest
    assert one.digest != PythonRequirements("run.py", ("a", "b"), ">=3.12").digest
