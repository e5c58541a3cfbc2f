"""SASL mechanisms: responses that log in, and the ways they can be wrong."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flintmq.auth import (
    Accepted,
    Authentication,
    Challenge,
    Refused,
    Tag,
    User,
    Users,
    Verification,
    authentication,
)
from flintmq.auth.backend import Identity, Login
from flintmq.auth.mechanisms import Step, mechanism
from flintmq.auth.passwords import PasswordPolicy, hash_password_quickly
from flintmq.clock import Clock
from flintmq.config import Auth
from flintmq.errors import ConnectionFault
from flintmq.scram import ClientExchange

ALL = ("PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS")
POLICY = PasswordPolicy(has_scram=True)
CERTIFICATE = {
    "subject": ((("organizationName", "Flint, Ltd"),), (("commonName", "alice"),)),
    "subjectAltName": (("DNS", "alice.example"), ("URI", "spiffe://x/alice"), ("email", "alice@example")),
}


@pytest.fixture(scope="module")
def users() -> Users:
    users = Users(POLICY)
    users.put(User("alice", hash_password_quickly(b"s\xc3\xa9cret")))
    users.put(User("scram,=", POLICY.hash_quickly("s\u00e9cret".encode())))
    users.put(User("home", POLICY.hash_quickly(b"home"), is_loopback_only=True))
    return users


@pytest.fixture(scope="module")
def door(users: Users) -> Authentication:
    return Authentication(Auth(mechanisms=ALL, anonymous_user="alice"), users, Clock())


def settled(step: Step) -> Step:
    while isinstance(step, Verification):
        step = step.finish(step.run())
    return step


def log_in(door: Authentication, name: str, response: bytes) -> Step:
    return settled(mechanism(name, door, "127.0.0.1").start(response))


def long_string(text: bytes) -> bytes:
    return b"S" + len(text).to_bytes(4, "big") + text


def login_table(login: bytes = b"alice", password: bytes = b"s\xc3\xa9cret") -> bytes:
    return b"\x05LOGIN" + long_string(login) + b"\x08PASSWORD" + long_string(password)


def test_what_is_offered(users: Users, door: Authentication) -> None:
    assert Authentication(Auth(), users, Clock()).mechanisms_offered() == "PLAIN AMQPLAIN"
    assert door.mechanisms_offered() == " ".join(ALL)


@pytest.mark.parametrize("response", [b"\0alice\0s\xc3\xa9cret", b"alice\0alice\0s\xc3\xa9cret"])
def test_plain_logs_in(users: Users, door: Authentication, response: bytes) -> None:
    assert log_in(door, "PLAIN", response) == Accepted(users.get("alice"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"\0alice\0wrong", "wrong password for user 'alice'"),
        (b"\0bob\0wrong", "no user 'bob'"),
        (b"", "PLAIN response is not three texts with NUL between them"),
        (b"alice\0secret", "PLAIN response is not three texts with NUL between them"),
        (b"\0alice\0s\0cret", "PLAIN response is not three texts with NUL between them"),
        (b"root\0alice\0s\xc3\xa9cret", "PLAIN response asks to act for another user"),
        (b"\0al\xffice\0secret", "PLAIN user name is not UTF-8"),
        (bytes(4097), "PLAIN response of 4097 octets, 4096 allowed"),
    ],
)
def test_plain_refuses(users: Users, door: Authentication, response: bytes, reason: str) -> None:
    assert log_in(door, "PLAIN", response) == Refused(reason)


def test_amqplain_logs_in(users: Users, door: Authentication) -> None:
    assert log_in(door, "AMQPLAIN", login_table()) == Accepted(users.get("alice"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (login_table(password=b"wrong"), "wrong password for user 'alice'"),
        (login_table(password=b"\xff\xfe"), "wrong password for user 'alice'"),
        (login_table(login=b"bob"), "no user 'bob'"),
        (login_table(login=b"\xff"), "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (b"", "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (b"\x05LOGIN" + long_string(b"alice"), "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (b"\x05LOGINt\x01\x08PASSWORDt\x01", "AMQPLAIN response lacks LOGIN or PASSWORD as text"),
        (bytes(5000), "AMQPLAIN response of 5000 octets, 4096 allowed"),
    ],
)
def test_amqplain_refuses(users: Users, door: Authentication, response: bytes, reason: str) -> None:
    assert log_in(door, "AMQPLAIN", response) == Refused(reason)


@pytest.mark.parametrize(
    "response", [login_table()[:-1], b"\xff", b"\x05LOGIN?", b"\x05LOGINS\xff\xff\xff\xff"]
)
def test_amqplain_refuses_what_is_no_table(users: Users, door: Authentication, response: bytes) -> None:
    step = log_in(door, "AMQPLAIN", response)
    assert isinstance(step, Refused)
    assert step.reason.startswith("AMQPLAIN response is no field table: ")


@given(response=st.binary(max_size=64) | st.binary(max_size=32).map(lambda tail: login_table()[:9] + tail))
@example(response=b"\x05LOGINF\x00\x00\x00\x00")
@pytest.mark.parametrize("name", ["PLAIN", "AMQPLAIN"])
def test_no_octets_do_more_than_fail(door: Authentication, name: str, response: bytes) -> None:
    step = mechanism(name, door, "127.0.0.1").start(response)
    assert isinstance(step, Refused | Verification)


@pytest.mark.parametrize("name", ["PLAIN", "AMQPLAIN"])
def test_there_is_no_second_step(door: Authentication, name: str) -> None:
    assert mechanism(name, door, "::1").answer(b"") == Refused(f"{name} has no second step")


def test_an_unknown_mechanism_is_told_what_there_is(door: Authentication) -> None:
    with pytest.raises(ConnectionFault) as caught:
        mechanism("GSSAPI" * 50, door, "::1")
    assert caught.value.code == 403
    assert caught.value.reply_text == (
        "ACCESS_REFUSED - no SASL mechanism 'GSSAPIGSSAPIGSSAPIGSSAPIGSSAPIGS' here, "
        "choose from: PLAIN AMQPLAIN EXTERNAL SCRAM-SHA-256 ANONYMOUS"
    )


def test_a_mechanism_that_is_not_configured_is_refused(users: Users) -> None:
    door = Authentication(Auth(mechanisms=("SCRAM-SHA-256",)), users, Clock())
    with pytest.raises(ConnectionFault, match="no SASL mechanism 'PLAIN' here"):
        mechanism("PLAIN", door, "::1")


# EXTERNAL


@pytest.mark.parametrize(
    ("chosen", "user"),
    [
        ("common_name", "alice"),
        ("distinguished_name", "CN=alice,O=Flint\\, Ltd"),
        ("san_dns", "alice.example"),
        ("san_uri", "spiffe://x/alice"),
        ("san_email", "alice@example"),
    ],
)
def test_a_certificate_names_the_user(chosen: str, user: str) -> None:
    users = Users()
    users.put(User(user))
    door = Authentication(Auth(mechanisms=ALL, certificate_user=chosen), users, Clock())  # type: ignore[arg-type]
    for said in (b"", user.encode()):
        step = mechanism("EXTERNAL", door, "192.0.2.1", CERTIFICATE).start(said)
        assert step == Accepted(users.get(user))  # type: ignore[arg-type]
    other = mechanism("EXTERNAL", door, "192.0.2.1", CERTIFICATE).start(b"root")
    assert other == Refused(f"EXTERNAL response asks to act for another user than {user!r}")


@pytest.mark.parametrize(
    ("certificate", "chosen", "why"),
    [
        (None, "common_name", "the client has shown no certificate"),
        ({}, "common_name", "the certificate has no common name"),
        ({}, "distinguished_name", "the certificate has no subject"),
        ({"subject": ((("commonName", ""),),)}, "common_name", "the certificate has no common name"),
        (
            {"subject": ((("commonName", "a\0b"),),)},
            "common_name",
            "the common name of the certificate has letters that do not print",
        ),
        (
            {"subject": ((("commonName", "a"),), (("commonName", "b"),))},
            "common_name",
            "the certificate has 2 common names",
        ),
        (
            CERTIFICATE | {"subjectAltName": ()},
            "san_uri",
            "the certificate has no alternative name of the kind URI",
        ),
    ],
)
def test_a_certificate_that_names_nobody_is_refused_and_said_so(
    users: Users, certificate: dict[str, object] | None, chosen: str, why: str
) -> None:
    door = Authentication(Auth(mechanisms=ALL, certificate_user=chosen), users, Clock())  # type: ignore[arg-type]
    step = mechanism("EXTERNAL", door, "::1", certificate).start(b"")
    assert step == Refused(f"EXTERNAL: {why}", told=why)


def test_a_certificate_of_an_unknown_user_is_refused(door: Authentication) -> None:
    step = mechanism("EXTERNAL", door, "::1", {"subject": ((("commonName", "eve"),),)}).start(b"")
    assert step == Refused("no user 'eve'")


def test_distinguished_names_are_escaped() -> None:
    from flintmq.auth.certificates import user_of

    subject = ((("domainComponent", "org"),), (("commonName", " a+b#"), ("userId", "#1 ")))
    found = user_of({"subject": subject}, "distinguished_name")
    assert found == "CN=\\ a\\+b#+UID=\\#1\\ ,DC=org"


# ANONYMOUS


def test_anonymous_is_the_user_of_the_settings(users: Users, door: Authentication) -> None:
    assert log_in(door, "ANONYMOUS", b"trace") == Accepted(users.get("alice"))  # type: ignore[arg-type]


# SCRAM-SHA-256


def scram(door: Authentication, client: ClientExchange, peer: str = "127.0.0.1") -> Step:
    login = mechanism("SCRAM-SHA-256", door, peer)
    step = login.start(client.first())
    while isinstance(step, Challenge):
        step = settled(login.answer(client.answer(step.octets)))
    return step


def test_scram_logs_in_and_proves_the_server(users: Users, door: Authentication) -> None:
    client = ClientExchange("scram,=", "s\u00e9cret")
    assert scram(door, client) == Accepted(users.get("scram,="))  # type: ignore[arg-type]
    assert client.is_proven


def test_scram_refuses_a_wrong_password_and_nobody_in_the_same_way(door: Authentication) -> None:
    wrong, nobody = ClientExchange("scram,=", "wrong"), ClientExchange("nobody", "wrong")
    assert scram(door, wrong) == Refused("wrong password for user 'scram,='")
    assert scram(door, nobody) == Refused("no user 'nobody'")
    shapes = []
    for name in ("scram,=", "nobody", "nobody", "alice"):
        step = mechanism("SCRAM-SHA-256", door, "::1").start(ClientExchange(name, "x").first())
        assert isinstance(step, Challenge)
        nonce, salt, iterations = step.octets.split(b",")
        shapes.append((len(nonce), len(salt), iterations, salt))
    assert len({each[:3] for each in shapes}) == 1
    assert shapes[1] == shapes[2], "whoever is not there has the same salt each time"
    assert shapes[0][3] != shapes[1][3]


class Rights:
    """A back end that knows what some users may do, and nobody's password."""

    timeout_s, cache_s, can_renew = 1.0, 1.0, False

    def authenticate(self, login: Login) -> Identity | None:
        return Identity("scram,=", frozenset({Tag.MONITORING})) if login.name == "scram,=" else None


@pytest.mark.parametrize(
    ("backends", "scram_user", "home_user"),
    [
        (("mine",), None, None),
        (("mine/internal",), None, None),
        (("mine", "internal"), "", ""),
        (("internal/mine",), "mine", None),
        (("mine", "internal/mine"), "mine", None),
        (("internal/mine", "internal"), "mine", ""),
    ],
)
def test_scram_goes_by_the_chain_of_back_ends(
    users: Users,
    monkeypatch: pytest.MonkeyPatch,
    backends: tuple[str, ...],
    scram_user: str | None,
    home_user: str | None,
) -> None:
    """The keys are those of `internal`; where that one checks no passwords nobody is let in by them."""
    monkeypatch.setattr(authentication, "backend", lambda name, auth, clock: Rights())
    door = Authentication(Auth(mechanisms=ALL, backends=backends), users, Clock())
    found = []
    for client in (ClientExchange("scram,=", "s\u00e9cret"), ClientExchange("home", "home")):
        step = scram(door, client)
        found.append(step.user.backend if isinstance(step, Accepted) else None)
    assert found == [scram_user, home_user]


def test_scram_needs_keys_that_plain_makes(door: Authentication) -> None:
    users = Users(POLICY)
    users.put(User("old", PasswordPolicy().hash(b"secret")))
    door = Authentication(Auth(mechanisms=ALL), users, Clock())
    assert scram(door, ClientExchange("old", "secret")) == Refused(
        "user 'old' has no keys for SCRAM-SHA-256 yet: they are made when the password is set, "
        "or at the next login by PLAIN"
    )
    renewed: list[User] = []
    users.on_renewed = renewed.append
    assert isinstance(log_in(door, "PLAIN", b"\0old\0secret"), Accepted)
    assert [user.name for user in renewed] == ["old"]
    assert isinstance(scram(door, ClientExchange("old", "secret")), Accepted)
    assert isinstance(scram(door, ClientExchange("old", "Secret")), Refused)


def test_scram_heeds_a_change_of_the_user_and_where_the_peer_is(users: Users, door: Authentication) -> None:
    assert isinstance(scram(door, ClientExchange("home", "home")), Accepted)
    assert scram(door, ClientExchange("home", "home"), "192.0.2.1") == Refused(
        "user 'home' may log in from this machine only, not 192.0.2.1"
    )
    users.put(User("leaving", POLICY.hash_quickly(b"secret")))
    client, login = ClientExchange("leaving", "secret"), mechanism("SCRAM-SHA-256", door, "::1")
    step = login.start(client.first())
    assert isinstance(step, Challenge)
    users.change_password("leaving", POLICY.hash_quickly(b"other"))
    assert settled(login.answer(client.answer(step.octets))) == Refused(
        "user 'leaving' was changed during the login"
    )


def test_scram_knows_a_user_who_was_added_anew_for_another(users: Users, door: Authentication) -> None:
    users.put(User("leaving", POLICY.hash_quickly(b"secret")))
    client, login = ClientExchange("leaving", "secret"), mechanism("SCRAM-SHA-256", door, "::1")
    step = login.start(client.first())
    assert isinstance(step, Challenge)
    users.delete("leaving")
    users.put(User("leaving", POLICY.hash_quickly(b"other")))
    assert settled(login.answer(client.answer(step.octets))) == Refused(
        "user 'leaving' was changed during the login"
    )


def test_scram_goes_on_while_the_user_is_given_something(users: Users, door: Authentication) -> None:
    client, login = ClientExchange("home", "home"), mechanism("SCRAM-SHA-256", door, "::1")
    step = login.start(client.first())
    assert isinstance(step, Challenge)
    users.change_tags("home", [])
    assert isinstance(settled(login.answer(client.answer(step.octets))), Challenge)


def test_scram_is_what_another_implementation_says(door: Authentication, users: Users) -> None:
    from scramp import ScramClient

    client = ScramClient(["SCRAM-SHA-256"], "scram,=", "s\u00e9cret")
    login = mechanism("SCRAM-SHA-256", door, "::1")
    step = login.start(client.get_client_first().encode())
    assert isinstance(step, Challenge)
    client.set_server_first(step.octets.decode())
    step = settled(login.answer(client.get_client_final().encode()))
    assert isinstance(step, Challenge)
    client.set_server_final(step.octets.decode())
    assert login.answer(b"") == Accepted(users.get("scram,="))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"", "the first message is not of the form n,,n=user,r=nonce"),
        (b"p=tls-unique,,n=a,r=b", "channel binding is not offered"),
        (b"n,a=root,n=scram,r=x", "the first message asks to act for another user"),
        (b"n,,m=x,n=scram,r=x", "the first message is not of the form n,,n=user,r=nonce"),
        (b"n,,n=a=2Fb,r=x", "the user's name is not escaped by =2C and =3D"),
        (b"n,,n=a,r=" + b"x" * 257, "a nonce of 257 characters, 256 allowed"),
        (b"n,,n=\xff,r=x", "a message is not UTF-8"),
    ],
)
def test_what_is_no_scram_is_refused(door: Authentication, first: bytes, why: str) -> None:
    assert log_in(door, "SCRAM-SHA-256", first) == Refused(f"SCRAM-SHA-256: {why}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda final: final.replace(b"c=biws", b"c=eSws"),
            "the final message has another channel binding than the first",
        ),
        (lambda final: final.replace(b",r=", b",r=x"), "the final message has another nonce"),
        (lambda final: final.rpartition(b"p=")[0] + b"p=AAAA", "the proof has not 32 octets"),
        (lambda final: final.rpartition(b"p=")[0] + b"p=A", "a value is not base64"),
        # The same octets, written in another way.
        (
            lambda final: final[:-2] + bytes((final[-2] + 1,)) + b"=",
            "a value is not base64 as it should be",
        ),
        (lambda final: b"", "the final message is not of the form c=biws,r=nonce,p=proof"),
    ],
)
def test_a_changed_final_message_is_refused(door: Authentication, change: object, why: str) -> None:
    client, login = ClientExchange("scram,=", "s\u00e9cret"), mechanism("SCRAM-SHA-256", door, "::1")
    step = login.start(client.first())
    assert isinstance(step, Challenge)
    final = change(client.answer(step.octets))  # type: ignore[operator]
    assert settled(login.answer(final)) == Refused(f"SCRAM-SHA-256 of user 'scram,=': {why}")


@given(responses=st.lists(st.binary(max_size=64) | st.just(b"n,,n=scram,r=abc"), min_size=1, max_size=4))
@pytest.mark.parametrize("name", ALL[1:])
def test_no_conversation_does_more_than_fail(door: Authentication, name: str, responses: list[bytes]) -> None:
    login = mechanism(name, door, "127.0.0.1")
    steps = [login.start(responses[0]), *[login.answer(each) for each in responses[1:]]]
    for step in steps:
        assert isinstance(step, Refused | Verification | Challenge) or name == "ANONYMOUS"
