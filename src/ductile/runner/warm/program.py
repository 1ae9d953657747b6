"""The zygote's program.

`program.py VERSION CONTROL STARTED_LOG LOCK ENTRYPOINT LINE MODE [MODULE...]`; MODE is `confined`
if the jobs are sandboxed, else `free`.

Executed by path, with the Python of the plugin and the plugin's environment. See `zygote.main`.
Written for every Python 3, so that an old one can report what is wrong with it.
"""

import os
import sys


def main():  # type: ignore[no-untyped-def]
    expected, control = sys.argv[1], int(sys.argv[2])
    if sys.version_info < (3, 9):  # noqa: UP036
        version = ".".join(map(str, sys.version_info[:2]))
        os.write(control, ("C" + "Python 3.9 or later is needed, it runs with " + version).encode())
        return
    here = os.path.dirname(os.path.realpath(__file__))
    # The directory of the script is the first entry, except in an isolated interpreter.
    is_isolated = not sys.path or os.path.realpath(sys.path[0]) != here
    source = os.path.dirname(os.path.dirname(os.path.dirname(here)))
    sys.path.insert(0, source)
    import ductile

    if ductile.__version__ != expected:
        os.write(control, b"Cductile was replaced while its gateway runs: restart the gateway")
        return
    from ductile.runner.warm import zygote

    is_confined = sys.argv[7] == "confined"
    if is_confined:
        zygote.load_restrictions()
    sys.path.remove(source)
    # A plugin may have a module of this name.
    for name in [name for name in sys.modules if name.partition(".")[0] == "ductile"]:
        del sys.modules[name]
    numbers = [int(text) for text in sys.argv[2:5]]
    zygote.main(numbers, sys.argv[5], sys.argv[6], sys.argv[8:], is_isolated, is_confined)


if __name__ == "__main__":
    main()  # type: ignore[no-untyped-call]
