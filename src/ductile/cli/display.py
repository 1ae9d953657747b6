"""Output that several commands share: job tables, attempts, routing, configuration values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ductile.cli import output
from ductile.cli.client import GatewayApi

Row = Mapping[str, Any]
RELOAD = "ductile system reload"


def print_reload_hint(api: GatewayApi) -> None:
    """Explain that a running gateway does not load a fixed plugin by itself."""
    if api.running:
        output.print_stderr(f"after fixing a refused plugin, run: {RELOAD}")


def is_refusal(reason: str | None) -> bool:
    """Return whether a job waits because its plugin is refused."""
    return reason is not None and " is refused: " in reason


def print_jobs(rows: list[Row], *, empty: str) -> None:
    output.print_table(
        rows,
        {
            "job": "job_id",
            "plugin": "plugin",
            "command": "command",
            "status": "status",
            "attempt": lambda row: f"{row['attempt']}/{row['max_attempts']}",
            "created": output.time_of("created_at"),
            "pipeline": lambda row: (
                f"{row['pipeline']}/{row['step_path']}" if row["pipeline"] else None
            ),
            "note": job_note,
        },
        empty=empty,
    )


BAR_LENGTH = 10


def format_progress(progress: Row | None, elapsed: float = 0.0) -> str:
    """Return a bar, the message and the estimated time left of a job's progress.

    The progress was requested `elapsed` seconds ago.
    """
    if progress is None:
        return ""
    percent, left = progress["percent"], progress["seconds_left"]
    filled = int(percent * BAR_LENGTH / 100)
    text = f"{'█' * filled}{'░' * (BAR_LENGTH - filled)} {percent:.0f} % {progress['message']}"
    if left is None:
        return text.rstrip()
    return f"{text.rstrip()}, about {output.format_whole_seconds(left - elapsed)} left"


def job_note(row: Row) -> str:
    """Return the job's progress, what it waits for, and its last error."""
    progress = format_progress(row.get("progress"))
    waits = output.format_times(row.get("waits_for") or "")
    return "; ".join(filter(None, (progress, waits, row.get("last_error"))))


def format_log_line(line: Row) -> str:
    """Return the level and the message; further lines of the message are indented."""
    message = str(line["message"]).replace("\n", f"\n{' ' * 6}")
    return f"{output.escape(line['level']):<5} {message}"


def print_attempt_output(attempt: Row) -> None:
    """Print an attempt's error and log lines, and its stdout and stderr if they were kept."""
    if attempt["last_error"]:
        output.print_section("error", attempt["last_error"])
    lines = attempt["logs"] if isinstance(attempt["logs"], list) else []
    if lines:
        output.print_section("logs", "\n".join(map(format_log_line, lines)))
    for stream in ("stdout", "stderr"):
        if attempt[stream]:
            output.print_section(stream, attempt[stream])


def print_routing(done: Row) -> None:
    """Print where the events of a dry run would have gone."""
    for job in done["goes_to"]:
        step = f", step {job['step']} of {job['pipeline']}" if job["pipeline"] else ""
        dead = f", dead: {job['fails']}" if job["fails"] else ""
        output.print_line(
            f"{job['event']} would go to {job['plugin']}.{job['command']}{step}{dead}"
        )
    for item in done["unrouted"]:
        output.print_line(f"would not start {item['pipeline']}: {item['reason']}")


def print_config_value(found: Any) -> None:
    """Print a value of the configuration: a scalar as it is, anything else as YAML."""
    if not isinstance(found, dict | list):
        output.print_text(output.format_value(found))
        return
    import yaml

    class BlockTextDumper(yaml.SafeDumper):
        """Writes text of several lines as a block after `|`."""

        def represent_str(self, data: str) -> yaml.ScalarNode:
            style = "|" if "\n" in data else None
            return self.represent_scalar("tag:yaml.org,2002:str", data, style)

    BlockTextDumper.add_representer(str, BlockTextDumper.represent_str)
    text = yaml.dump(found, Dumper=BlockTextDumper, sort_keys=False, allow_unicode=True)
    output.print_text(text.rstrip())
