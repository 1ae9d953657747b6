from __future__ import annotations

import socket
import threading

import pytest

from ductile.runner import protocol

NUMBERS = (1.5, 0.25, 10, 7, 5, 192)


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def frames(sock):
    reader = protocol.FrameReader(sock)
    while True:
        while (frame := reader.take()) is not None:
            yield frame
        if not reader.receive():
            return


def test_a_launch_is_decoded_as_it_was_encoded():
    env = {"A": "", "B": "=x", "Ü": "\udc80"}
    frame = protocol.EncodedLaunch(
        ("/bin/x", "", "ü"),
        protocol.encode_environment(env),
        b"request",
        NUMBERS,
        b"1 2 3",
        b"policy",
        b"00-a-1-01",
    ).frame(7)
    request = protocol.RunRequest(frame)
    assert protocol.frame_kind(frame) == protocol.RUN
    assert (request.seq, request.timeout, request.grace) == (7, 1.5, 0.25)
    assert (request.stdout_cap, request.stdout_prefix, request.stderr_cap) == (10, 7, 5)
    assert request.log_entry == 192
    assert request.argv == [b"/bin/x", b"", "ü".encode()]
    assert protocol.decode_environment(request.env) == {
        b"A": b"",
        b"B": b"=x",
        "Ü".encode(): b"\x80",
    }
    assert (request.stat, bytes(request.request)) == (b"1 2 3", b"request")
    assert (request.sandbox, request.traceparent) == (b"policy", b"00-a-1-01")


def test_a_cancel_is_decoded_as_it_was_encoded():
    frame = protocol.cancel_frame(9, 2.5)
    assert protocol.frame_kind(frame) == protocol.CANCEL
    assert (protocol.frame_seq(frame), protocol.cancel_grace(frame)) == (9, 2.5)


@pytest.mark.parametrize("size", [0, 1000, 70_000, 3_000_000])
def test_an_answer_is_decoded_as_it_was_encoded(pair, size):
    ours, theirs = pair
    flags = protocol.OVERFLOWED
    sender = threading.Thread(
        target=protocol.send_answer,
        args=(theirs, 3, protocol.EXITED, -9, 0, flags, 0.5, bytearray(size), b"err"),
    )
    sender.start()
    answer = protocol.decode_answer(next(frames(ours)))
    sender.join()
    flags |= protocol.HAS_EXIT_CODE
    assert answer == (3, protocol.EXITED, flags, -9, 0, 0.5, bytes(size), b"err")


def test_frames_are_read_from_chunks_of_any_size(pair):
    ours, theirs = pair
    sent = [protocol.cancel_frame(n, 0.5) for n in range(20)]
    stream = b"".join(sent)
    reader = protocol.FrameReader(ours)
    got = []
    for at in range(0, len(stream), 13):
        theirs.sendall(stream[at : at + 13])
        assert reader.receive()
        while (frame := reader.take()) is not None:
            got.append(bytes(frame))
    assert got == sent
    theirs.close()
    assert not reader.receive()


def test_a_large_frame_is_separated_from_those_behind_it(pair):
    ours, theirs = pair
    large = protocol.EncodedLaunch(("x",), b"", bytes(5_000_000), NUMBERS).frame(1)
    stream = large + protocol.cancel_frame(1, 0.0)
    sender = threading.Thread(target=theirs.sendall, args=(stream,))
    sender.start()
    received = frames(ours)
    assert len(protocol.RunRequest(next(received)).request) == 5_000_000
    assert protocol.frame_kind(next(received)) == protocol.CANCEL
    sender.join()
