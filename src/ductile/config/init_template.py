"""`config init`: write a first configuration that runs, with commented examples."""

from __future__ import annotations

import os
from pathlib import Path

from ductile.errors import Refused
from ductile.files import create, write_new

CONFIG = """\
# Ductile. `ductile config check` validates this file, `ductile config schema` prints its JSON
# Schema for an editor. ${VAR} and ${VAR:-default} are replaced by environment variables.

service:
  name: ductile
  log_level: info            # debug | info | warn | error
  # max_workers: 4           # jobs that run at once; default: number of cores minus one

state:
  path: ./data/state.db      # relative to the directory of this file

plugin_roots:
  - ./plugins                # your plugins
  - "bundled:"               # plugins of ductile; each is loaded if it is listed below

include:
  - pipelines.yaml

plugins: {}
#   echo:
#     schedules:
#       - every: 15m
#         jitter: 1m
#         only_between: "08:00-22:00"
#     config:
#       message: hello
#     retry: {max_attempts: 4, backoff_base: 30s}
#     timeouts: {poll: 60s}

# Alerts: what the gateway reports by itself. Needs only a target: a plugin with `handle`, such as
# `notify: {config: ...}` above, or a pipeline. `ductile alert test broken` sends a test message.
# alerts:
#   - name: broken
#     on: [job.dead, run.failed, breaker.open, schedule.missed]
#     to: notify             # <- your plugin or pipeline
#     wait: 30s              # collect failures into one message
#     repeat: 24h            # remind while it fails

# The API needs a first token: any long secret, for example the output of `openssl rand -hex 32`.
# Create more tokens with `ductile token create`.
# api:
#   enabled: true
#   listen: 127.0.0.1:8080
#   auth:
#     tokens:
#       - token: ${DUCTILE_API_TOKEN}
#         scopes: ["*"]

# Webhooks are signed. Keep secrets in the environment, not in this file.
# webhooks:
#   listen: 127.0.0.1:8081
#   endpoints:
#     - path: /hook/github
#       plugin: github-handler
#       provider: github
#       secret: ${GITHUB_WEBHOOK_SECRET}
"""

PIPELINES = """\
# Pipelines that events start. `ductile pipeline visualize NAME` draws one.

pipelines: []
#   - name: greet
#     on: echo.done
#     steps:
#       - id: shout
#         uses: echo
#         with:
#           message: "{payload.message}!"

routes: []
#   - from: echo
#     event_type: echo.done
#     to: notify
"""


FILES = {"config.yaml": CONFIG, "pipelines.yaml": PIPELINES}


def init(directory: Path, *, dry: bool = False, backup_suffix: str | None = None) -> list[Path]:
    """Write a first configuration and return the new paths.

    Existing files are an error or, with `backup_suffix`, are renamed. With `dry`, return the paths
    without writing them.
    """
    files = {directory / name: text for name, text in FILES.items()}
    existing = [path for path in files if os.path.lexists(path)]
    if existing and backup_suffix is None:
        raise Refused(f"{existing[0]} already exists; nothing was written", path=str(existing[0]))
    folders = [path for path in (directory, directory / "plugins") if not path.is_dir()]
    try:
        for folder in () if dry else folders:
            create(folder)
        for path in () if dry else existing:
            path.rename(f"{path}{backup_suffix}")
        for path, text in () if dry else files.items():
            write_new(path, text.encode())
    except OSError as error:
        raise Refused(f"cannot write {error.filename}: {error.strerror}") from error
    return [*folders, *files]
