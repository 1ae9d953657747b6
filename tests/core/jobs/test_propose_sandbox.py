from __future__ import annotations

import pytest

from ductile.core.jobs.propose_sandbox import Grants, ObservedRun, Proposal, propose

GRANTS = Grants(
    read=("/usr", "/own"),
    write=("/dev/null", "/private"),
    hidden=("/state", "/config"),
    broad=("/home/me",),
)


def proposed(*paths: tuple[str, str], **more: object) -> Proposal:
    run = ObservedRun(paths=paths, **more)  # type: ignore[arg-type]
    return propose(run, GRANTS, limits_processes=True)


def test_paths_that_every_sandbox_grants_are_not_proposed():
    found = proposed(
        ("read", "/usr/lib/x.so"),
        ("list", "/own"),
        ("read", "/private/x"),
        ("change", "/private"),
        ("write", "/dev/null"),
        ("read", "/proc/self/maps"),
    )
    assert (found.spec.read, found.spec.write, found.spec.network) == ((), (), "none")
    assert found.notes == ()


def test_writing_to_a_directory_that_is_only_readable_is_proposed():
    found = proposed(("write", "/own/cache"), ("change", "/usr/lib"))
    assert found.spec.write == ("/own/cache", "/usr/lib")


@pytest.mark.parametrize(
    ("files", "read"),
    [
        (("/data/a", "/data/b"), ("/data/a", "/data/b")),
        (("/data/a", "/data/b", "/data/c"), ("/data",)),
        (("/etc/a", "/etc/b", "/etc/c"), ("/etc/a", "/etc/b", "/etc/c")),
        (("/home/me/a", "/home/me/b", "/home/me/c"), ("/home/me/a", "/home/me/b", "/home/me/c")),
    ],
)
def test_three_files_of_a_directory_become_the_directory(files, read):
    assert proposed(*(("read", path) for path in files)).spec.read == read


def test_created_files_need_their_directory_and_nothing_inside_is_repeated():
    found = proposed(
        ("change", "/data"), ("write", "/data/x"), ("read", "/data/y"), ("list", "/data/sub")
    )
    assert (found.spec.write, found.spec.read) == (("/data",), ())


def test_files_of_the_gateway_and_of_other_processes_are_never_proposed():
    found = proposed(
        ("read", "/state/state.db"),
        ("change", "/config"),
        ("read", "/proc/PID/environ"),
        ("write", "/proc/self/oom_score_adj"),
        ("list", "/"),
    )
    assert (found.spec.read, found.spec.write) == ((), ())
    assert len(found.notes) == 5


def test_broad_directory_is_granted_only_with_a_note():
    found = proposed(("change", "/tmp"), ("list", "/etc"))
    assert (found.spec.write, found.spec.read) == (("/tmp",), ())
    assert "$TMPDIR" in found.notes[0]
    assert "lists /etc" in found.notes[1]


@pytest.mark.parametrize(
    ("run", "network"),
    [
        ({}, "none"),
        ({"tcp": {443, 80}, "udp": {53}}, (80, 443)),
        ({"udp": {53}}, (53,)),
        ({"udp": {0}}, "all"),
        ({"tcp": {443}, "needs_all": {"it accepts TCP connections"}}, "all"),
    ],
)
def test_the_network_is_as_narrow_as_a_block_can_express(run, network):
    assert proposed(**run).spec.network == network


def test_access_that_no_sandbox_permits_is_noted():
    found = proposed(unix={"/run/docker.sock"}, families={17})
    assert any("/run/docker.sock" in note for note in found.notes)
    assert any("family 17" in note for note in found.notes)


def test_limits_leave_room_for_the_next_run():
    run = ObservedRun((), memory=100 << 20, cpu_time=0.7, file_size=3 << 20, tasks=20)
    spec = propose(run, GRANTS, limits_processes=True).spec
    assert (spec.memory, spec.cpu_time) == (128 << 20, 2.0)
    assert (spec.file_size, spec.processes) == (6 << 20, 40)
    assert propose(run, GRANTS, limits_processes=False).spec.processes is None
