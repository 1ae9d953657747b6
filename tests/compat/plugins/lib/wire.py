"""What the Python plugins here share; no plugin itself."""

import json
import sys


def serve(commands):
    request = json.load(sys.stdin)
    response = commands[request["command"]](request)
    json.dump({"status": "ok", **response}, sys.stdout)
