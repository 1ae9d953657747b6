#!/usr/bin/env python3
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from wire import serve


def summarize(request):
    payload = request["payload"]
    pattern = payload.get("pattern", request["config"]["default_pattern"])
    text = f"{pattern}({payload['text']})"
    done = {"type": "fabric.done", "payload": {**payload, "text": text, "pattern": pattern}}
    return {"result": text, "events": [done]}


serve({"handle": summarize, "summarize": summarize})
