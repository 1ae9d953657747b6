"""Run a gateway that tests kill: `python driver.py CONFIG_DIR`."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    from ductile.config import load
    from ductile.http.server.run import serve

    environ = dict(os.environ)
    return serve(load(Path(sys.argv[1]), environ=environ), environ=environ)


if __name__ == "__main__":
    sys.exit(main())
