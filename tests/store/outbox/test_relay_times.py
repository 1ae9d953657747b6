"""Due times of relays that a script has written, on both engines."""

from __future__ import annotations

from datetime import datetime

import pytest

from ductile.store.engines.api import Ledger
from ductile.store.outbox import relays
from ductile.store.outbox.relays import MAX_IN_FLIGHT
from tests.store.conftest import execute
from tests.store.outbox.relay_harness import NOW, claim, enqueue, later


class TestTimesThatScriptsWrite:
    OTHER_FORMATS = (
        "2026-02-08 10:00:30",
        "2026-02-08T10:00:30Z",
        "2026-02-08T02:00:30-08:00",
        "2026-02-08T18:00:30.000000+08:00",
        "20260208T100030Z",
    )
    NO_TIMES = (
        "1700000000",
        "0garbage",
        "",
        "soon",
        "2026-02-30T10:00:00.000000Z",
        "9999-99-99T99:99:99.999999Z",
    )

    def put(self, ledger: Ledger, written: str | None, status: str = "pending") -> str:
        id = enqueue(ledger, f"odd-{status}-{written}")
        value = "NULL" if written is None else f"'{written}'"
        execute(
            ledger,
            f"UPDATE relay_deliveries SET status = '{status}', next_retry_at = {value}"
            f" WHERE id = '{id}'",
        )
        return id

    def foreign(self, ledger: Ledger, *instances: str) -> list[str]:
        return ledger.read(lambda tx: relays.list_foreign_times(tx, instances or ("attic", "lab")))

    def normalize(self, ledger: Ledger) -> dict[str, datetime | None]:
        """Normalize batches until none is left."""
        changed: dict[str, datetime | None] = {}
        while ids := self.foreign(ledger):
            changed |= ledger.write(lambda tx, ids=ids: relays.normalize_due_times(tx, ids, NOW))
        return changed

    def due(self, ledger: Ledger) -> datetime | None:
        return ledger.read(lambda tx: relays.next_due_by_instance(tx, ["lab"])).get("lab")

    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_time_in_another_format_is_normalized(self, ledger: Ledger, status: str) -> None:
        ids = [self.put(ledger, written, status) for written in self.OTHER_FORMATS]
        assert self.normalize(ledger) == dict.fromkeys(ids, later(30))
        assert self.due(ledger) == later(30)
        assert claim(ledger, now=later(29)) == []
        found = {found.id for found in claim(ledger, now=later(30))}
        assert len(found) == MAX_IN_FLIGHT
        assert found < set(ids)

    def test_time_in_another_format_is_not_due_before_it_is_normalized(
        self, ledger: Ledger
    ) -> None:
        for written in self.OTHER_FORMATS:
            self.put(ledger, written)
        enqueue(ledger, "ours", now=later(3))
        assert self.due(ledger) == later(3)
        assert [found.id for found in claim(ledger, now=later(29))] == ["ours"]

    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_relay_without_a_time_is_due_now(self, ledger: Ledger, status: str) -> None:
        id = self.put(ledger, None, status)
        assert self.normalize(ledger) == {id: NOW}
        assert self.due(ledger) == NOW
        assert [found.id for found in claim(ledger)] == [id]

    def test_unreadable_time_is_due_now(self, ledger: Ledger) -> None:
        for written in self.NO_TIMES:
            id = self.put(ledger, written)
            assert self.normalize(ledger) == {id: None}, written
            assert [found.id for found in claim(ledger)] == [id], written
            execute(ledger, "DELETE FROM relay_deliveries")

    def test_unreadable_time_does_not_block_others(self, ledger: Ledger) -> None:
        for written in self.NO_TIMES:
            self.put(ledger, written)
            enqueue(ledger, "ours")
            found = self.due(ledger)
            assert found is not None, written
            assert found <= NOW, written
            assert "ours" in [found.id for found in claim(ledger)], written
            execute(ledger, "DELETE FROM relay_deliveries")

    def test_relays_of_other_instances_are_not_touched(self, ledger: Ledger) -> None:
        id = self.put(ledger, "soon")
        assert self.foreign(ledger, "attic") == []
        assert self.foreign(ledger, "attic", "lab") == [id]

    @pytest.mark.parametrize("status", ["delivered", "dead"])
    @pytest.mark.parametrize("written", [None, "soon"])
    def test_finished_relay_is_not_normalized(
        self, ledger: Ledger, status: str, written: str | None
    ) -> None:
        self.put(ledger, written, status)
        assert self.foreign(ledger) == []

    def test_row_that_ended_since_is_not_normalized(self, ledger: Ledger) -> None:
        self.put(ledger, None)
        ids = self.foreign(ledger)
        execute(ledger, "UPDATE relay_deliveries SET status = 'delivered'")
        assert ledger.write(lambda tx: relays.normalize_due_times(tx, ids, NOW)) == {}
