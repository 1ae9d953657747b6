"""One gateway per state directory."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from ductile import files
from ductile.engine import gateway, instance_lock
from ductile.engine.instance_lock import (
    InstanceLock,
    LockHolder,
    compute_state_dir_id,
    find_holder,
)
from ductile.errors import Locked, Refused
from tests.engine.site import OK, Site
from tests.waiting import WAIT_LIMIT, process_state, until

HOLDER = """
import os, signal, sys, time
from pathlib import Path
from ductile.engine.instance_lock import InstanceLock
lock = InstanceLock(Path(sys.argv[1]))
lock.acquire(for_gateway="gateway" in sys.argv)
# Like a slot, a child keeps the descriptor of the lock for a moment longer.
if os.fork() == 0:
    signal.alarm(20)
    os.write(1, b"held\\n")
    sys.stdin.buffer.read(1)
    os._exit(0)
signal.pause()
"""


@pytest.fixture(params=["gateway"])
def holder(request: pytest.FixtureRequest, tmp_path: Path):
    """A process that holds the lock, and a child that inherits the descriptor."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path), request.param],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_lock_file_contains_the_pid_and_is_private(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path / "state")
    lock.acquire()
    assert lock.path.read_text().split()[0] == str(os.getpid())
    assert lock.path.name == "ductile.lock"
    assert stat.S_IMODE(lock.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(lock.path.parent.stat().st_mode) == 0o700
    lock.release()


def test_created_directories_are_private(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path / "a" / "b")
    lock.acquire()
    lock.release()
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


def test_second_gateway_is_refused_with_the_pid_of_the_first(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        with pytest.raises(Locked, match=str(os.getpid())), site.opened():
            pass
        assert running.run("echo")["status"] == "succeeded"


def test_refused_start_does_not_change_the_running_gateway(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        for _ in range(3):
            with pytest.raises(Locked), site.opened():
                pass
        assert find_holder(site.state) == (os.getpid(), True)
        assert running.run("echo")["status"] == "succeeded"


def test_lock_of_a_living_gateway_is_not_waited_for(tmp_path: Path, holder) -> None:
    with pytest.raises(Locked, match=rf"another gateway \(pid {holder.pid}\) uses"):
        InstanceLock(tmp_path).acquire(wait=3600)


@pytest.mark.parametrize("holder", ["command"], indirect=True)
def test_lock_of_a_command_is_waited_for(tmp_path: Path, holder) -> None:
    lock = InstanceLock(tmp_path)
    assert find_holder(tmp_path) == LockHolder(holder.pid, is_gateway=False)
    with pytest.raises(Locked, match=rf"a command \(pid {holder.pid}\) uses"):
        lock.acquire(wait=0.05)
    holder.stdin.close()
    holder.kill()
    lock.acquire(wait=WAIT_LIMIT, for_gateway=True)
    assert find_holder(tmp_path) == LockHolder(os.getpid(), is_gateway=True)
    lock.release()


def test_lock_of_a_dead_holder_is_waited_for(tmp_path: Path, holder) -> None:
    holder.kill()
    holder.wait()
    lock = InstanceLock(tmp_path)
    with pytest.raises(Locked):
        lock.acquire(wait=0.05)
    holder.stdin.close()
    lock.acquire(wait=WAIT_LIMIT)
    lock.release()


def test_lock_of_a_zombie_is_waited_for(tmp_path: Path, holder) -> None:
    """A supervisor may be slow to reap it; a zombie holds no lock."""
    holder.kill()
    until(lambda: state_of(holder.pid) == "Z")
    lock = InstanceLock(tmp_path)
    with pytest.raises(Locked):
        lock.acquire(wait=0.05)
    holder.stdin.close()
    lock.acquire(wait=WAIT_LIMIT)
    lock.release()


def test_released_lock_can_be_acquired_again(tmp_path: Path) -> None:
    for _ in range(3):
        lock = InstanceLock(tmp_path)
        lock.acquire()
        lock.release()
        lock.release()
    assert find_holder(tmp_path) is None


def test_symlink_as_lock_file_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep me")
    (tmp_path / "ductile.lock").symlink_to(target)
    with pytest.raises(Refused):
        InstanceLock(tmp_path).acquire()
    assert target.read_text() == "keep me"


@pytest.mark.parametrize("text", ["", "\n", "x", "12x", "-1", "99999999999999999999"])
def test_invalid_lock_file_does_not_prevent_a_start(tmp_path: Path, text: str) -> None:
    (tmp_path / "ductile.lock").write_text(text)
    lock = InstanceLock(tmp_path)
    lock.acquire()
    assert lock.path.read_text().split()[0] == str(os.getpid())
    lock.release()


def test_no_pid_without_a_lock_file(tmp_path: Path) -> None:
    assert find_holder(tmp_path) is None
    assert find_holder(tmp_path / "nosuch") is None


@pytest.mark.parametrize("text", ["1\n", "1 command\n", ""])
def test_pid_is_that_of_the_holder_whatever_the_file_contains(
    tmp_path: Path, holder, text: str
) -> None:
    (tmp_path / "ductile.lock").write_text(text)
    assert find_holder(tmp_path) == LockHolder(holder.pid, is_gateway=None)
    with pytest.raises(Locked, match=rf"\(pid {holder.pid}\) uses"):
        InstanceLock(tmp_path).acquire(wait=0.05)


def test_reader_of_the_lock_is_not_its_holder(tmp_path: Path) -> None:
    """Commands look at the lock for a moment; a start must wait for them."""
    lock = InstanceLock(tmp_path)
    lock.acquire()
    lock.release()
    descriptor = os.open(lock.path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    with pytest.raises(Locked) as refused:
        lock.acquire(wait=0.05)
    assert refused.value.details["pid"] is None
    os.close(descriptor)
    lock.acquire(wait=0)
    lock.release()


def test_children_of_a_dead_gateway_do_not_pass_for_it(tmp_path: Path, holder) -> None:
    holder.kill()
    holder.wait()
    found = find_holder(tmp_path)
    assert found is not None
    assert not found.is_alive


def test_state_dir_id_does_not_depend_on_the_path(tmp_path: Path) -> None:
    link = tmp_path / "link"
    (tmp_path / "real").mkdir()
    link.symlink_to(tmp_path / "real")
    assert compute_state_dir_id(link) == compute_state_dir_id(tmp_path / "real")
    assert compute_state_dir_id(tmp_path) != compute_state_dir_id(tmp_path / "real")


def test_files_of_a_gateway_are_private(site: Site) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        running.run("echo")
        for path in site.state.rglob("*"):
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path
        assert stat.S_IMODE(site.state.stat().st_mode) == 0o700


def test_removed_lock_file_is_locked_again(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "LOCK_CHECK_SECONDS", 0.02)
    path = site.state / "ductile.lock"
    with site.running() as running:
        path.unlink()
        until(lambda: find_holder(site.state) == LockHolder(os.getpid(), is_gateway=True))
        with pytest.raises(Locked, match=f"pid {os.getpid()}"):
            InstanceLock(site.state).acquire(wait=0)
        assert running.gateway.failure is None
    assert find_holder(site.state) is None


def test_gateway_stops_if_another_process_has_its_lock(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "LOCK_CHECK_SECONDS", 0.02)
    path = site.state / "ductile.lock"
    with site.running() as running:
        other = path.with_name("other")
        descriptor = os.open(other, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        other.rename(path)
        until(lambda: running.gateway.failure is not None)
        assert "two gateways" in str(running.gateway.failure)
        assert running.gateway.stopping.is_set()
    os.close(descriptor)


def test_lock_on_a_file_that_was_removed_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = InstanceLock(tmp_path)
    open_file = lock._open
    opened = []

    def open_and_remove() -> int:
        opened.append(open_file())
        if len(opened) == 1:
            lock.path.unlink()
        return opened[-1]

    monkeypatch.setattr(lock, "_open", open_and_remove)
    lock.acquire(wait=0)
    assert len(opened) == 2
    assert find_holder(tmp_path) == LockHolder(os.getpid(), is_gateway=False)
    lock.release()


def test_unreadable_directory_does_not_mean_that_the_lock_file_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = InstanceLock(tmp_path)
    lock.acquire(for_gateway=True)
    descriptor = lock.fd

    def fail(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "lstat", fail)
        assert lock.keep()
    assert lock.fd == descriptor
    lock.release()


def test_own_lock_is_not_taken_for_that_of_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file may be back at its path when it is opened."""
    lock = InstanceLock(tmp_path)
    lock.acquire(for_gateway=True)
    with monkeypatch.context() as patch:
        patch.setattr(lock, "_is_at_path", lambda _fd: False)
        assert lock.keep()
    lock.release()


def test_start_is_refused_if_the_lock_file_cannot_be_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    monkeypatch.setattr(Path, "lstat", fail)
    with pytest.raises(Refused, match="cannot be used"):
        InstanceLock(tmp_path).acquire(wait=0)


def test_lock_file_of_another_user_is_refused_with_the_command_that_fixes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a command of root that was interrupted."""

    def fail(path: Path) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "ductile.lock").touch()
    monkeypatch.setattr(files, "open_or_create", fail)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(Refused, match=f"chown -R --reference={tmp_path} {tmp_path}"):
        InstanceLock(tmp_path).acquire(wait=0)


LOCKS = "1: FLOCK  ADVISORY  WRITE 4001 {other} 0 EOF\n2: FLOCK  ADVISORY  WRITE 4002 {own} 0 EOF\n"


@pytest.mark.parametrize(
    ("own_device", "text", "pid"),
    [
        ("{device}", "4002\n", 4002),
        ("{device}", "4001\n", 4002),
        ("{device}", "", 4002),
        # The table has another device number than `stat`.
        ("00:1", "4002\n", 4002),
        ("00:1", "9\n", None),
        ("00:1", "", None),
    ],
)
def test_lock_of_another_file_system_is_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_device: str, text: str, pid: int | None
) -> None:
    path = tmp_path / "ductile.lock"
    path.write_text(text)
    found = path.stat()
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    own = own_device.format(device=device)
    table = LOCKS.format(other=f"ff:fe:{found.st_ino}", own=f"{own}:{found.st_ino}")
    read_text = Path.read_text

    def read(self: Path, encoding: str | None = None, errors: str | None = None) -> str:
        return table if str(self) == "/proc/locks" else read_text(self, encoding, errors)

    monkeypatch.setattr(Path, "read_text", read)
    # The files of both are hidden from this user.
    monkeypatch.setattr(instance_lock, "has_open", lambda _pid, _file: None)
    with path.open() as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        holder = find_holder(tmp_path)
    assert holder is not None
    assert holder.pid == pid


def test_jobs_end_at_once_if_another_process_has_the_lock(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "LOCK_CHECK_SECONDS", 0.02)
    gate = site.gate()
    site.plugin("slow", gate.script() + OK)
    path = site.state / "ductile.lock"
    with site.running() as running:
        running.put("slow")
        pid = int(gate.arrived())
        other = path.with_name("other")
        descriptor = os.open(other, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        other.rename(path)
        # `stop` was not called.
        until(lambda: process_state(pid) == "")
        until(lambda: running.gateway.failure is not None)
    os.close(descriptor)
