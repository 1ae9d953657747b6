"""The observing runner: `program.py VERSION CONTROL STARTED_LOG LOCK REPORT`.

As `runner/__main__.py`, with slots that observe what they start and write it to the descriptor
REPORT.
"""

import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(here))))
    from ductile.runner.observe.spawner import serve

    serve(*map(int, sys.argv[2:]))


if __name__ == "__main__":
    main()
