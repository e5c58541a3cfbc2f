"""Logins of the management process, for itself and in the name of users."""

from __future__ import annotations

import pytest

from flintmq.auth import Accepted, Refused, User, Users
from flintmq.broker.services.acting import MANAGEMENT, internal_login


def test_the_process_itself_and_a_user() -> None:
    users = Users()
    ada = User("ada")
    users.put(ada)
    assert internal_login(users, b"\0\0") == Accepted(MANAGEMENT)
    assert internal_login(users, b"\0ada\0") == Accepted(ada)


@pytest.mark.parametrize(
    "response", [b"", b"\0", b"\0ada", b"\0ada\0\0", b"\0a\0da\0", b"\0\0001", b"\0eve\0"]
)
def test_whatever_is_malformed_is_nobodys(response: bytes) -> None:
    """A NUL in a name must not make its owner the process itself."""
    assert isinstance(internal_login(Users(), response), Refused)
