"""What a plugin can observe of itself is the same, whether it is started cold or warm."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from ductile.model import Ending
from tests.runner.warm.conftest import Zygotes

OBSERVE = """\
import json, os, signal, sys, threading
def descriptors():
    # Newer versions of libffi keep one once ctypes is imported, as it always is in a warm job.
    links = [(fd, f"/proc/self/fd/{fd}") for fd in range(64)]
    return [fd for fd, link in links if os.path.exists(link) and "libffi" not in os.readlink(link)]
stream = lambda one: [one.name, one.encoding, one.errors, one.line_buffering, one.write_through,
                      one.mode, one.seekable(), type(one.buffer).__name__, one.fileno()]
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "executable": sys.executable, "flags": list(sys.flags),
    "orig": sys.orig_argv[1:], "cwd": os.getcwd(), "env": dict(os.environ),
    "leads": os.getpgid(0) == os.getpid(), "descriptors": descriptors(),
    "signals": [str(signal.getsignal(n)).split(" at ")[0] for n in sorted(signal.valid_signals())],
    "mask": list(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "main": sorted(set(globals()) - {"f"}), "name": __name__, "file": __file__,
    "spec": repr(__spec__), "loader": type(__loader__).__name__, "is_main":
    sys.modules["__main__"].__dict__ is globals(), "builtins": type(__builtins__).__name__,
    "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "same": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__],
    "ductile": [name for name in sys.modules if name.startswith("ductile")],
    "threads": [t.name for t in threading.enumerate()],
    "umask": os.umask(0o22), "request": sys.stdin.read(),
    "dumpable": os.access("/proc/self/mem", os.R_OK),
}))
"""


def test_a_plugin_observes_the_same(zygotes: Zygotes) -> None:
    cold, warm = zygotes.both(OBSERVE, "json", request=b"the request")
    assert (warm.stderr, warm.exit_code) == (b"", 0)
    assert json.loads(warm.stdout) == json.loads(cold.stdout)


ENDINGS = {
    "returns": "print(1)",
    "exits": "import sys; sys.exit(3)",
    "exits with none": "import sys; sys.exit()",
    "exits with true": "import sys; sys.exit(True)",
    "exits with text": "import sys; print('out'); sys.exit('the reason')",
    "exits with a huge number": "import sys; sys.exit(2**40)",
    "exits with a negative number": "import sys; sys.exit(-1)",
    "exits from a function": "def f(): raise SystemExit(4)\nf()",
    "raises": "def f(): raise ValueError('the reason')\nprint('out')\nf()",
    "raises in a chain": "try: 1 / 0\nexcept Exception as e: raise KeyError('k') from e",
    "does not compile": "this is not Python",
    "warns when it is compiled": "print(1 is 1)",
    "is interrupted": "raise KeyboardInterrupt",
    "ends at once": "import os; print('lost'); os._exit(7)",
    "kills itself": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "aborts": "import os; os.abort()",
    "has exit functions": "import atexit; atexit.register(print, 'at exit')\nprint('out')",
    "waits for threads": "import threading, time\n"
    "threading.Thread(target=lambda: (time.sleep(.05), print('thread'))).start()",
    "leaves daemon threads": "import threading\n"
    "threading.Thread(target=threading.Event().wait, daemon=True).start()\nprint('out')",
    "has its own hook": "import sys\nsys.excepthook = lambda t, *_: print('hook', t)\n1 / 0",
    "closes stdout": "import sys; print('out'); sys.stdout.close()",
    "does not flush": "import sys; sys.stdout.write('out'); sys.stderr.write('err')",
    "has finalizers": "class A:\n  def __del__(self): print('del')\na = A()",
    "runs a child": "import subprocess; print(subprocess.check_output(['echo', 'child']))",
    "forks": "import os\npid = os.fork()\nprint('x') if pid else os._exit(0)\nos.waitpid(pid, 0)",
    "uses a pool": "from concurrent.futures import ThreadPoolExecutor\n"
    "with ThreadPoolExecutor(2) as e: print(list(e.map(abs, [-1, -2])))",
    "pickles its own class": "import pickle\nclass A: pass\n"
    "print(type(pickle.loads(pickle.dumps(A()))).__module__)",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_plugin_ends_the_same(zygotes: Zygotes, name: str) -> None:
    cold, warm = zygotes.both(ENDINGS[name])
    assert warm.ending is cold.ending
    assert warm.exit_code == cold.exit_code
    assert warm.stdout == cold.stdout
    assert warm.stderr == cold.stderr


def test_callbacks_of_c_code_work(zygotes: Zygotes) -> None:
    # More than libffi has prepared: for further ones it maps the descriptor that it keeps.
    text = """\
import ctypes
callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
kept = [callback(lambda value, more=more: value + more) for more in range(3000)]
print(sum(one(1) for one in kept))
"""
    cold, warm = zygotes.both(text, "ctypes")
    assert (warm.exit_code, warm.stdout) == (0, b"4501500\n")
    assert warm.stdout == cold.stdout


def test_an_open_file_is_written_at_the_end(zygotes: Zygotes, tmp_path) -> None:
    written = tmp_path / "written"
    path = zygotes.script(
        f"f = open({str(written)!r}, 'w')\nf.write('all')\n"
        "class C: pass\nc = C()\nc.c, c.f = c, f\n"
    )
    assert zygotes.slot(path).run(zygotes.launch(path)).exit_code == 0
    assert written.read_text() == "all"


def test_unbuffered_streams_are_unbuffered(zygotes: Zygotes) -> None:
    path = zygotes.script("import os\nprint('1'); os._exit(0)")
    slot = zygotes.start(path, command=(zygotes.warm(path).command[0], "-u")).fork_slot()
    assert slot is not None
    assert slot.run(zygotes.launch(path)).stdout == b"1\n"


def test_nothing_of_a_job_is_in_the_next(zygotes: Zygotes) -> None:
    path = zygotes.script(
        "import gc, json, os, random, sys\n"
        "request = sys.stdin.read()\n"
        "gc.unfreeze()\n"
        "tables = [o for o in gc.get_objects() if isinstance(o, dict)]\n"
        "seen = sum('secret-of' in str(table.get('x')) for table in tables)\n"
        "before = os.environ.get('LEFT'), hasattr(json, 'left'), 'decimal' in sys.modules, seen\n"
        "x = 'secret-of-' + request\n"
        "os.environ['LEFT'] = json.left = x\nimport decimal\nos.chdir('/')\n"
        "print(json.dumps([before, random.random(), os.urandom(4).hex()]))\n"
    )
    slot = zygotes.slot(path, "json", "random")
    found = [
        json.loads(slot.run(zygotes.launch(path, request=text)).stdout) for text in (b"a", b"b")
    ]
    assert [one[0] for one in found] == [[None, False, False, 0]] * 2
    assert found[0][1] != found[1][1]


def test_a_job_cannot_reach_what_its_slot_knows(zygotes: Zygotes) -> None:
    path = zygotes.script(
        "import _socket, gc, mmap, sys\n"
        "gc.unfreeze()\n"
        "names = 'SlotChannel', 'FrameReader', 'RunRequest', 'Supervisor'\n"
        "reached = [type(o).__name__ for o in gc.get_objects()\n"
        "           if type(o).__name__ in names\n"
        "           or isinstance(o, (_socket.socket, mmap.mmap))]\n"
        "frame, depth = sys._getframe(), 0\n"
        "while frame.f_back: frame, depth = frame.f_back, depth + 1\n"
        "print(reached, depth)\n"
    )
    assert zygotes.slot(path).run(zygotes.launch(path)).stdout == b"[] 5\n"


def test_job_is_killed_for_memory_before_the_gateway_from_its_first_line(
    zygotes: Zygotes,
) -> None:
    read = "int(open('/proc/self/oom_score_adj').read())"
    path = zygotes.script(f"import time; first = {read}; time.sleep(0.1); print(first, {read})")
    raised = min(int(Path("/proc/self/oom_score_adj").read_text()) + 500, 1000)
    outcome = zygotes.slot(path).run(zygotes.launch(path))
    assert outcome.stdout.split() == [str(raised).encode()] * 2


def test_a_timeout_ends_a_warm_job_and_all_below_it(zygotes: Zygotes) -> None:
    path = zygotes.script(
        "import os, time\nif not os.fork(): os.setsid(); time.sleep(600)\ntime.sleep(600)"
    )
    zygote = zygotes.start(path)
    slot = zygote.fork_slot()
    assert slot is not None
    outcome = slot.run(zygotes.launch(path, timeout=0.3))
    assert outcome.ending is Ending.TIMED_OUT
    # Only root sees the environments of zygotes and slots, which forbid inspection.
    assert set(zygotes.plugins.alive()) <= {zygote.pid, slot.pid}


def test_sigint_to_the_gateways_terminal_does_not_end_a_zygote(zygotes: Zygotes) -> None:
    path = zygotes.script("print(1)")
    zygote = zygotes.start(path)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(zygote.pid, number)
    slot = zygote.fork_slot()
    assert slot is not None
    assert slot.run(zygotes.launch(path)).stdout == b"1\n"
