"""Executed by path, in an isolated interpreter: `__main__.py VERSION CONTROL WITNESS LOCK`.

After the gateway's version come inherited descriptors, or -1 for none: the control socket, the
witness's file, and the instance lock, which is held until the end. Kept short because a script is
compiled anew at every start.
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
