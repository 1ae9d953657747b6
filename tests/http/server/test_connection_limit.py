from __future__ import annotations

from ductile.http.server.connection_limit import ConnectionLimiter, ConnectionState


class FakeConnection:
    def __init__(self, state: ConnectionState) -> None:
        self.state = state
        self.evicted = False

    def evict(self) -> None:
        self.evicted = True


def full(*states: ConnectionState) -> tuple[ConnectionLimiter, list[FakeConnection]]:
    limiter, connections = ConnectionLimiter(len(states)), [FakeConnection(s) for s in states]
    assert all(limiter.admit(connection) for connection in connections)
    return limiter, connections


def test_nothing_is_evicted_while_there_is_room() -> None:
    limiter, connections = full(ConnectionState.IDLE, ConnectionState.IDLE)
    limiter.remove(connections[0])
    assert limiter.admit(FakeConnection(ConnectionState.AWAITING_HEAD))
    assert not any(connection.evicted for connection in connections)


def test_lowest_state_is_evicted_first_and_the_oldest_of_those() -> None:
    limiter, connections = full(*reversed(ConnectionState), *reversed(ConnectionState))
    for state in list(ConnectionState)[:-1]:
        for _ in range(2):
            oldest = next(c for c in connections if c.state is state and not c.evicted)
            assert limiter.admit(FakeConnection(ConnectionState.ACTIVE))
            assert oldest.evicted
            assert not any(c.evicted for c in connections if c.state > state)


def test_active_connections_are_never_evicted() -> None:
    limiter, connections = full(ConnectionState.ACTIVE, ConnectionState.ACTIVE)
    assert not limiter.admit(FakeConnection(ConnectionState.AWAITING_HEAD))
    assert not any(connection.evicted for connection in connections)
    limiter.remove(connections[0])
    assert limiter.admit(FakeConnection(ConnectionState.AWAITING_HEAD))


def test_removing_an_evicted_connection_frees_no_room() -> None:
    limiter, (evicted,) = full(ConnectionState.IDLE)
    assert limiter.admit(FakeConnection(ConnectionState.ACTIVE))
    limiter.remove(evicted)
    assert not limiter.admit(FakeConnection(ConnectionState.ACTIVE))
