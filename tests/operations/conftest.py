from __future__ import annotations

from tests.engine.conftest import another, make, site  # noqa: F401 - fixtures
