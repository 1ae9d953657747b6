"""`config init`: a first configuration that runs, says what it does, and is the user's alone."""

from __future__ import annotations

import os
from pathlib import Path

from ductile.errors import Refused
from ductile.files import create, write_new

CONFIG = """\
# Ductile. `ductile config check` judges this file, `ductile config schema` teaches an editor
# its keys. ${VAR} and ${VAR:-default} are taken from the environment.

service:
  name: ductile
  log_level: info            # debug | info | warn | error
  # max_workers: 4           # jobs at once; by default one less than there are cores

state:
  path: ./data/state.db      # relative to the directory of this file

plugin_roots:
  - ./plugins                # yours
  - "bundled:"               # those that come with ductile, once they are named under plugins

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

# The API wants a first token from here: any long secret, as `openssl rand -hex 32` makes one.
# `ductile token create` makes others beside it.
# api:
#   enabled: true
#   listen: 127.0.0.1:8080
#   auth:
#     tokens:
#       - token: ${DUCTILE_API_TOKEN}
#         scopes: ["*"]

# Webhooks are signed. Put secrets into the environment, never in here.
# webhooks:
#   listen: 127.0.0.1:8081
#   endpoints:
#     - path: /hook/github
#       plugin: github-handler
#       provider: github
#       secret: ${GITHUB_WEBHOOK_SECRET}
"""

PIPELINES = """\
# What follows from an event. `ductile pipeline visualize NAME` draws one.

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


def init(directory: Path, *, dry: bool = False) -> list[Path]:
    """Write a first configuration; the paths that are new. Nothing is ever overwritten.

    With `dry` nothing is written, and they would be.
    """
    files = {directory / name: text for name, text in FILES.items()}
    for path in files:
        if os.path.lexists(path):
            raise Refused(f"{path} exists; nothing was written", path=str(path))
    folders = [path for path in (directory, directory / "plugins") if not path.is_dir()]
    try:
        for folder in () if dry else folders:
            create(folder)
        for path, text in () if dry else files.items():
            write_new(path, text.encode())
    except OSError as error:
        raise Refused(f"cannot write {error.filename}: {error.strerror}") from error
    return [*folders, *files]
