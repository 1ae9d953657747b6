from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bundled.bundled_site import BundledSite
from tests.bundled.fakes.garmin import Garmin
from tests.bundled.fakes.google import Google
from tests.bundled.fakes.withings import Withings
from tests.bundled.providers import Providers
from tests.engine.receiver import CertificateAuthority


@pytest.fixture
def site() -> Iterator[BundledSite]:
    """A site with the bundled plugins; the test fails if a process of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="db-"))
    site = BundledSite(folder)
    yield site
    site.close()
    left = site.alive()
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """The certificate authority of `localhost`."""
    return CertificateAuthority(tmp_path_factory.mktemp("tls"), "DNS:localhost", "IP:127.0.0.1")


@pytest.fixture
def providers(authority: CertificateAuthority) -> Iterator[Providers]:
    """The fake providers of notifications."""
    with ExitStack() as stack:
        yield Providers(stack, authority)


@pytest.fixture
def withings() -> Iterator[Withings]:
    with Withings() as fake:
        yield fake


@pytest.fixture
def google() -> Iterator[Google]:
    with Google() as fake:
        yield fake


@pytest.fixture
def garmin() -> Iterator[Garmin]:
    with Garmin() as fake:
        yield fake
