"""`ductile approval`, and how other commands show what a run waits for."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.cli.commands.pipeline import approval
from tests.cli.runner import CliRunner
from tests.waiting import until

CONFIG = """\
service: {shutdown_grace: 0s}
state: {path: ./data/state.db}
pipelines:
  - name: pay
    on: invoice
    steps:
      - id: ask
        wait: {approval: {title: "Pay {payload.n}?", description: To Bob}, timeout: 3d}
      - {id: later, wait: 1h}
"""


@pytest.fixture
def bank(cli: CliRunner) -> CliRunner:
    cli.write("config.yaml", CONFIG)
    return cli


def start(bank: CliRunner) -> dict[str, Any]:
    """Start a run; returns its approval."""
    known = len(list_waiting(bank))
    started = bank("pipeline", "run", "pay", "--async", "--payload", '{"n": 7}')
    assert started.code == 0, started.err
    until(lambda: len(list_waiting(bank)) > known)
    return list_waiting(bank)[0]


def list_waiting(bank: CliRunner) -> list[dict[str, Any]]:
    return list(bank("approval", "list", "--json").json["approvals"])


def test_approvals_are_listed_shown_and_decided(bank: CliRunner) -> None:
    with bank.gateway():
        row = start(bank)
        id = row["id"]
        assert "Pay 7?" in bank("approval", "list").out
        shown = bank("approval", "show", id[:18]).out
        assert shown.startswith("Pay 7?\nstatus:   waiting\npipeline: pay, step ask\n")
        assert f"To Bob\n\ndecide: ductile approval approve {id}" in shown
        planned = bank("approval", "approve", id, "--dry-run")
        assert planned.out == f"approval {id} would be approved\n"
        assert list_waiting(bank) == [row]
        assert bank("approval", "approve", id, "--comment", "yes").out == (
            f"approval {id} is approved\n"
        )
        assert bank("approval", "list").out == "no approvals\n"
        assert "comment:  yes" in bank("approval", "show", id).out
        again = bank("approval", "reject", id, "--json")
        assert (again.code, again.json["code"]) == (1, "refused")
        assert [row["id"] for row in bank("approval", "list", "--all", "--json").json["approvals"]]
        unknown = bank("approval", "show", "nothing", "--json")
        assert (unknown.code, unknown.json["code"]) == (1, "not_found")


def test_other_commands_name_the_wait_and_the_decision(bank: CliRunner) -> None:
    with bank.gateway():
        row = start(bank)
        decide = f"`ductile approval approve {row['id']}`"
        for line in (
            ("job", "why", row["job_id"]),
            ("queue", "list"),
            ("pipeline", "runs", row["instance_id"]),
        ):
            assert decide in bank(*line).out, line
        assert "1 approval to decide: ductile approval list" in bank("status").out
        planned = bank("pipeline", "dry-run", "pay", "--payload", '{"n": 7}').out
        assert "ask: waits for approval until " in planned
        assert "ask: wait approval, at most 3d, then fail" in bank("pipeline", "show", "pay").out


def test_decision_without_a_gateway_is_kept_for_the_next_start(bank: CliRunner) -> None:
    with bank.gateway():
        row = start(bank)
    assert bank("approval", "approve", row["id"]).code == 0
    with bank.gateway():
        shown: Any = lambda: bank("pipeline", "runs", row["instance_id"]).out  # noqa: E731
        until(lambda: "later: its step waits since" in shown())


def test_wait_without_an_end_in_a_synchronous_pipeline_is_refused(bank: CliRunner) -> None:
    synchronous = CONFIG.replace("on: invoice", "on: invoice\n    execution_mode: synchronous")
    endless = synchronous.replace(", timeout: 3d", "")
    bank.write("config.yaml", endless)
    checked = bank("config", "check")
    assert checked.code == 78
    assert "config.yaml:9:" in checked.err + checked.out
    assert "the wait has no end, and pipeline pay is synchronous" in checked.err + checked.out


def test_approval_whose_step_fails_names_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The pipeline may have been removed since: the approval counts, and its step fails."""
    approval._show_decision(
        {"id": "a1", "status": "approved", "job_id": "j1", "job_status": "failed"}
    )
    done = capsys.readouterr()
    assert done.out == "approval a1 is approved\n"
    assert done.err == "its step failed nevertheless: ductile job why j1\n"
