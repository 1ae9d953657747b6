"""Executed by path in an isolated interpreter: `python -I -S __main__.py CONTROL [HELD...]`.

The arguments are inherited descriptors: the control socket, then those to hold until the
end (the instance lock). Kept short because a script is compiled anew at every start.
"""

import os
import sys


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(here)))
    from ductile.runner.runner import main as serve

    serve([int(argument) for argument in sys.argv[1:]])


if __name__ == "__main__":
    main()
