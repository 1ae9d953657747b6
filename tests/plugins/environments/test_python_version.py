from __future__ import annotations

import pytest

from ductile.plugins.environments.python_version import (
    InvalidSpecifier,
    is_satisfied,
    may_satisfy,
)

VERSION = (3, 11, 7)


@pytest.mark.parametrize(
    ("specifier", "expected"),
    [
        ("", True),
        (">=3.11", True),
        (">=3.12", False),
        (">=3.9,<4", True),
        (">=3.9, <3.11", False),
        ("==3.11.*", True),
        ("==3.1.*", False),
        ("!=3.11.*", False),
        ("==3.11", False),
        ("==3.11.7", True),
        ("===3.11.7", True),
        ("!=3.11.7", False),
        ("~=3.10", True),
        ("~=3.11.2", True),
        ("~=3.10.2", False),
        (">3.11.6", True),
        ("<=3.11.7", True),
        (">=3.12.0rc1", False),
    ],
)
def test_a_specifier(specifier: str, expected: bool) -> None:
    assert is_satisfied(specifier, VERSION) is expected


@pytest.mark.parametrize("specifier", ["3.11", "=>3.11", ">=three", "~=3", ">=3.*", ">=3.11 <4"])
def test_an_invalid_specifier_is_refused(specifier: str) -> None:
    with pytest.raises(InvalidSpecifier):
        is_satisfied(specifier, VERSION)


def test_minor_version_may_satisfy_a_specifier_by_one_of_its_patches() -> None:
    assert may_satisfy(">=3.12.4,<3.13", 3, 12)
    assert not may_satisfy(">=3.12.4,<3.13", 3, 13)
