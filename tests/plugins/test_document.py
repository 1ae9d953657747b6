"""What text a manifest can be at all, whatever it says."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.plugins.manifest import ManifestError, read_manifest


def refused(text: str | bytes) -> str:
    with pytest.raises(ManifestError) as refusal:
        read_manifest(text if isinstance(text, bytes) else text.encode())
    return str(refusal.value)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n", "text"])
def test_no_mapping(text: str) -> None:
    assert "must be a mapping" in refused(text)


def test_no_utf_8() -> None:
    assert "not UTF-8 (byte 3)" in refused(b"a: \xff")


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "a: \x01", "a: 1\n---\nb: 2\n", "a: *b"])
def test_no_yaml(text: str) -> None:
    assert "not YAML" in refused(text)


def test_more_than_a_mebibyte() -> None:
    assert "larger than 1024 KiB" in refused(b"a: " + b"x" * 1024**2)


@pytest.mark.parametrize("bracket", ["[", "{a: "])
def test_deep_nesting(bracket: str) -> None:
    assert "levels deep" in refused("a: " + bracket * 100_000)


def test_an_alias_bomb() -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    for last, this in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{this}: &{this} [{', '.join([f'*{last}'] * 9)}]")
    assert "aliases" in refused("\n".join(lines))


def test_an_alias_inside_itself() -> None:
    assert "aliases" in refused("a: &a [*a]")


@pytest.mark.parametrize("tag", ["!!python/object:os.system {}", "!!binary aGk=", "!x y"])
def test_a_tag(tag: str) -> None:
    assert "cannot be used" in refused(f"a: {tag}")


@pytest.mark.parametrize("number", ["9" * 30, "9" * 5000, "1e999", "!!int x", "!!bool x"])
def test_a_number_that_is_none(number: str) -> None:
    assert "cannot be read as" in refused(f"a: {number}")


def test_a_key_that_is_no_text() -> None:
    assert "a key is no text" in refused("? [a]\n: b")


def test_a_key_twice() -> None:
    assert refused("entrypoint: run.py\nentrypoint: other\n").endswith("twice: entrypoint")


@settings(deadline=None)
@given(st.binary() | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_whatever_it_holds_only_a_manifest_error_is_raised(data: bytes) -> None:
    with pytest.raises(ManifestError):
        read_manifest(data)
