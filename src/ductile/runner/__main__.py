"""Executed by path in an isolated interpreter: `python -I -S __main__.py CONTROL WITNESS LOCK`.

The arguments are inherited descriptors, or -1 for none: the control socket, the witness's file, and
the instance lock, which is held until the end. Kept short because a script is compiled anew at
every start.
"""

import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    from ductile.runner.runner import main as serve

    control, witness, lock = map(int, sys.argv[1:])
    serve(control, witness, lock)


if __name__ == "__main__":
    main()
