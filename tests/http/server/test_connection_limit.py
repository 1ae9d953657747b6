from __future__ import annotations

from ductile.http.server.connection_limit import Room, Standing


class Guest:
    def __init__(self, standing: Standing) -> None:
        self.standing = standing
        self.gone = False

    def give_way(self) -> None:
        self.gone = True


def filled(*standings: Standing) -> tuple[Room, list[Guest]]:
    room, guests = Room(len(standings)), [Guest(standing) for standing in standings]
    assert all(room.enter(guest) for guest in guests)
    return room, guests


def test_while_there_is_a_place_nobody_gives_way() -> None:
    room, guests = filled(Standing.IDLE, Standing.IDLE)
    room.leave(guests[0])
    assert room.enter(Guest(Standing.HEADLESS))
    assert not any(guest.gone for guest in guests)


def test_who_does_least_gives_way_and_of_those_the_oldest() -> None:
    room, guests = filled(*reversed(Standing), *reversed(Standing))
    for standing in list(Standing)[:-1]:
        for _ in range(2):
            first = next(g for g in guests if g.standing is standing and not g.gone)
            assert room.enter(Guest(Standing.AT_WORK))
            assert first.gone
            assert not any(g.gone for g in guests if g.standing > standing)


def test_where_all_are_at_work_there_is_no_place() -> None:
    room, guests = filled(Standing.AT_WORK, Standing.AT_WORK)
    assert not room.enter(Guest(Standing.HEADLESS))
    assert not any(guest.gone for guest in guests)
    room.leave(guests[0])
    assert room.enter(Guest(Standing.HEADLESS))


def test_who_leaves_after_giving_way_takes_no_place_of_another() -> None:
    room, (first,) = filled(Standing.IDLE)
    assert room.enter(Guest(Standing.AT_WORK))
    room.leave(first)
    assert not room.enter(Guest(Standing.AT_WORK))
