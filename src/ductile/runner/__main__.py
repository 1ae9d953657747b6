"""Executed by path, in an isolated interpreter: `__main__.py VERSION CONTROL STARTED_LOG LOCK`.

The arguments after the gateway's version are inherited descriptors, or -1 for none: the control
socket, the file of the started log, and the instance lock, which is held until the end. Kept short
because a script is compiled at every start.
"""

import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    import ductile

    wanted, *descriptors = sys.argv[1:]
    if wanted != (found := ductile.__version__):
        sys.exit(f"ductile {wanted} was replaced by {found} under a gateway: restart it")
    from ductile.runner.supervisor import main as serve

    serve(*map(int, descriptors))


if __name__ == "__main__":
    main()
