#!/usr/bin/env python3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from wire import serve


def handle(request):
    repo = request["event"]["payload"]["repository"]["full_name"]
    return {
        "result": f"push to {repo}",
        "events": [{"type": "repo.pushed", "payload": {"repo": repo}}],
    }


serve({"handle": handle})
