from __future__ import annotations

from ductile.http.server.connection_limit import ConnectionLimiter, ConnectionState


class Guest:
    def __init__(self, standing: ConnectionState) -> None:
        self.standing = standing
        self.gone = False

    def give_way(self) -> None:
        self.gone = True


def filled(*standings: ConnectionState) -> tuple[ConnectionLimiter, list[Guest]]:
    room, guests = ConnectionLimiter(len(standings)), [Guest(standing) for standing in standings]
    assert all(room.enter(guest) for guest in guests)
    return room, guests


def test_while_there_is_a_place_nobody_gives_way() -> None:
    room, guests = filled(ConnectionState.IDLE, ConnectionState.IDLE)
    room.leave(guests[0])
    assert room.enter(Guest(ConnectionState.HEADLESS))
    assert not any(guest.gone for guest in guests)


def test_who_does_least_gives_way_and_of_those_the_oldest() -> None:
    room, guests = filled(*reversed(ConnectionState), *reversed(ConnectionState))
    for standing in list(ConnectionState)[:-1]:
        for _ in range(2):
            first = next(g for g in guests if g.standing is standing and not g.gone)
            assert room.enter(Guest(ConnectionState.AT_WORK))
            assert first.gone
            assert not any(g.gone for g in guests if g.standing > standing)


def test_where_all_are_at_work_there_is_no_place() -> None:
    room, guests = filled(ConnectionState.AT_WORK, ConnectionState.AT_WORK)
    assert not room.enter(Guest(ConnectionState.HEADLESS))
    assert not any(guest.gone for guest in guests)
    room.leave(guests[0])
    assert room.enter(Guest(ConnectionState.HEADLESS))


def test_who_leaves_after_giving_way_takes_no_place_of_another() -> None:
    room, (first,) = filled(ConnectionState.IDLE)
    assert room.enter(Guest(ConnectionState.AT_WORK))
    room.leave(first)
    assert not room.enter(Guest(ConnectionState.AT_WORK))
