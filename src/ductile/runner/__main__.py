"""The runner's program: `__main__.py VERSION CONTROL STARTED_LOG LOCK`.

Executed by path, in an isolated interpreter. The arguments after the gateway's version are
inherited descriptors, or -1 for none: the control socket, the file of the started log, and the
instance lock, which stays open to the end. Kept short, because Python compiles a script at every
start.
"""

import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    import ductile

    expected, *descriptors = sys.argv[1:]
    if expected != (found := ductile.__version__):
        sys.exit(
            f"ductile {expected} was replaced by {found} while its gateway runs: "
            "restart the gateway"
        )
    from ductile.runner.supervisor import main as serve

    serve(*map(int, descriptors))


if __name__ == "__main__":
    main()
