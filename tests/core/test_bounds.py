"""How long a text may be that rows are found by: counted in bytes, as an index counts."""

from __future__ import annotations

import pytest

from ductile.core.bounds import LONGEST_DEDUPE_KEY, dedupe_key_flaw, fits, size


@pytest.mark.parametrize("sign", ["k", "é", "€", "😀"])
def test_a_dedupe_key_is_measured_in_bytes(sign: str) -> None:
    most = LONGEST_DEDUPE_KEY // len(sign.encode())
    assert dedupe_key_flaw(sign * most) is None
    flaw = dedupe_key_flaw(sign * (most + 1))
    assert flaw == f"is {size(sign * (most + 1))} bytes long, it must be at most 1024"


def test_no_key_has_no_flaw() -> None:
    assert dedupe_key_flaw(None) is None


def test_half_a_character_can_be_measured_too() -> None:
    assert fits("\ud800" * 3, 9)
    assert not fits("\ud800" * 3, 8)
