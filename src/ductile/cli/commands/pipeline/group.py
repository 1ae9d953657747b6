"""The noun `pipeline` and its actions."""

from __future__ import annotations

from ductile.cli.commands.pipeline.compare import compare
from ductile.cli.commands.pipeline.definitions import pipeline
from ductile.cli.commands.pipeline.dry_run import dry_run
from ductile.cli.commands.pipeline.pauses import pause, resume
from ductile.cli.commands.pipeline.run import run
from ductile.cli.commands.pipeline.runs import cancel, retry, runs

for action in (run, dry_run, compare, runs, cancel, retry, pause, resume):
    pipeline.add_command(action)
