"""The difference of configurations that were in force, by their snapshots."""

from __future__ import annotations

import json

import pytest

from ductile.core.values.redact import Redactor
from ductile.errors import NotFound
from ductile.operations.plan.history import diff_snapshots
from ductile.store import snapshots
from tests.engine.site import OK, Site


def test_diff_shows_settings_and_the_places_of_changed_secrets(site: Site) -> None:
    site.plugin("echo", OK, config={"api_key": "first-secret-value-1", "colour": "blue"})
    with site.opened() as running:
        ledger, gateway = running.gateway.ledger, running.gateway
        alone = ledger.read(lambda tx: diff_snapshots(tx, None, None, Redactor()))
        assert (alone["settings"], alone["secrets"]) == ([], [])
        site.settings["plugins"]["echo"]["config"] = {
            "api_key": "second-secret-value-2",
            "colour": "green-and-yellow",
        }
        site.write()
        gateway.reload()
        found = ledger.read(
            lambda tx: diff_snapshots(tx, None, None, Redactor(["green-and-yellow"]))
        )
        path = "plugins.echo.config.colour"
        assert found["settings"] == [{"setting": path, "before": "blue", "after": "[REDACTED]"}]
        assert found["secrets"] == ["plugins.echo.config.api_key"]
        assert "secret-value" not in json.dumps(found)
        rows = ledger.read(lambda tx: snapshots.list_snapshots(tx, 10))
        assert [found["to"], found["from"]] == [row["id"] for row in rows]
        with pytest.raises(NotFound):
            ledger.read(lambda tx: diff_snapshots(tx, "unknown", None, Redactor()))


def test_entries_of_lists_are_compared_by_their_names(site: Site) -> None:
    site.plugin("echo", OK, schedules=[{"id": "a", "every": "1h"}, {"id": "b", "every": "2h"}])
    with site.opened() as running:
        entries = site.settings["plugins"]["echo"]["schedules"]
        entries[:] = [{"id": "new", "every": "3h"}, {"id": "b", "every": "5h"}, entries[0]]
        site.write()
        running.gateway.reload()
        found = running.gateway.ledger.read(lambda tx: diff_snapshots(tx, None, None, Redactor()))
        changed = {row["setting"] for row in found["settings"] if row["before"] is not None}
        assert changed == {"plugins.echo.schedules.b.every"}
        added = {row["setting"] for row in found["settings"] if row["before"] is None}
        assert all(path.startswith("plugins.echo.schedules.new.") for path in added)
