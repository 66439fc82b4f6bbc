"""The tests' Hub: what its clients do to it."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest

from tests.support.hub.server import _Handler, _Listener


@pytest.mark.parametrize("reset", [False, True])
def test_a_connection_that_the_client_has_reset_can_be_ended(reset: bool) -> None:
    handler = _Handler.__new__(_Handler)
    handler.connection = socket.socket()  # not connected, as after the client's reset
    with handler.connection:
        handler._hang_up(reset=reset)
    assert handler.close_connection


def test_a_client_that_has_left_is_not_the_tests_complaint() -> None:
    complaints: list[Exception] = []
    listener = _Listener.__new__(_Listener)
    listener.owner = SimpleNamespace(hub=SimpleNamespace(complaints=complaints))
    with socket.socket() as unconnected:
        try:
            unconnected.shutdown(socket.SHUT_RDWR)
        except OSError:
            listener.handle_error(unconnected, None)
    assert complaints == []
    try:
        complaints[1]
    except IndexError:
        listener.handle_error(None, None)
    assert [type(error) for error in complaints] == [IndexError]
