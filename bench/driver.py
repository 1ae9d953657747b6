"""A gateway in the foreground, for a tree that has no `ductile system start` yet."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from ductile.config import load
from ductile.http.server.run import serve

if __name__ == "__main__":
    sys.exit(serve(load(Path(sys.argv[1]), environ=os.environ), environ=os.environ))
