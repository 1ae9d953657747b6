from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bundled.house import BundledSite
from tests.bundled.standins.garmin import Garmin
from tests.bundled.standins.google import Google
from tests.bundled.standins.withings import Withings
from tests.bundled.town import Town
from tests.engine.receiver import CertificateAuthority


@pytest.fixture
def site() -> Iterator[BundledSite]:
    """A gateway's home with the bundled plugins; nothing of it outlives the test."""
    folder = Path(tempfile.mkdtemp(prefix="db-"))
    site = BundledSite(folder)
    yield site
    site.close()
    left = site.alive()
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """Whose certificate `localhost` has."""
    return CertificateAuthority(tmp_path_factory.mktemp("tls"), "DNS:localhost", "IP:127.0.0.1")


@pytest.fixture
def town(authority: CertificateAuthority) -> Iterator[Town]:
    """Every provider of notifications; one opens when it is first asked for."""
    with ExitStack() as stack:
        yield Town(stack, authority)


@pytest.fixture
def withings() -> Iterator[Withings]:
    with Withings() as standin:
        yield standin


@pytest.fixture
def google() -> Iterator[Google]:
    with Google() as standin:
        yield standin


@pytest.fixture
def garmin() -> Iterator[Garmin]:
    with Garmin() as standin:
        yield standin
