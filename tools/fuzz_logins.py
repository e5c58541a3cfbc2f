"""Fuzzes the login: every mechanism, with octets changed, steps left out, said twice or in another order.

    python tools/fuzz_logins.py --logins 1000000 --seed 1

A stranger says what an honest client would, by one of the mechanisms, and chance changes some of it. Whatever
is said, the broker may answer, refuse or close. It may not raise anything but a PeerFault, and it lets nobody
in who has not shown the password, the proof, the certificate or the token. A failure prints the seed and
about which login it was: nonces are drawn anew each time.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import jwt
from conversation import GREETINGS, House, Peer, frame, method_frame
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from flintmq.config import Config, parse
from flintmq.scram import ClientExchange, ScramFault
from flintmq.wire import methods
from flintmq.wire.methods import encode_method
from flintmq.wire.tables import FieldTable, encode_table

SETTINGS = """
[auth]
mechanisms = ["PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS"]
anonymous_user = "visitor"
backends = ["internal", "oauth"]
[auth.passwords]
scrypt_ln = 10
scram_iterations = 4096
[auth.oauth]
resource_server_id = "flintmq"
jwks_file = "{jwks}"
[users.alice]
password = "secret"
[users.visitor]
password = "unguessable"
"""
NAMES = ("PLAIN", "AMQPLAIN", "EXTERNAL", "SCRAM-SHA-256", "ANONYMOUS")
# Of what is said, so much is changed by chance.
CHANGED = 0.7


class LoginFuzzer:
    """Strangers at one broker. All chance is from one generator, so that a seed says it all."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        key = Ed25519PrivateKey.from_private_bytes(bytes(32))
        public = json.loads(jwt.get_algorithm_by_name("EdDSA").to_jwk(key.public_key()))
        jwks = directory / "jwks.json"
        jwks.write_text(json.dumps({"keys": [{**public, "kid": "k"}]}))
        claims = {"sub": "ada", "aud": "flintmq", "exp": 4_000_000_000, "scope": "flintmq.read:*/*"}
        self.token = jwt.encode(claims, key, "EdDSA", headers={"kid": "k"}).encode()
        self.config: Config = parse(SETTINGS.format(jwks=jwks))
        self.house = House(self.config, seed)
        self.logins = 0
        self.said = 0
        self.let_in: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    def log_in(self) -> None:
        """One stranger, from its header to its end."""
        chance = self.chance
        self.logins += 1
        peer = Peer(self.house, chance.choice((91, 91, 91, 9, 8)))
        peer.wire.peer_certificate = self.certificate  # type: ignore[method-assign]
        peer.send(GREETINGS[peer.version])
        name = chance.choice(NAMES)
        is_token = name == "PLAIN" and chance.random() < 0.3
        exchange = ClientExchange("alice", "secret")
        response, was_changed = self.changed(self.first(name, is_token, exchange))
        self.say_start_ok(peer, name, response)
        for _ in range(chance.randint(0, 4)):
            if peer.wire.session.user is not None:
                break
            heard = [each.method for each in peer.replies()]
            challenge = next((each for each in heard if isinstance(each, methods.ConnectionSecure)), None)
            honest = self.answer(exchange, challenge)
            answer, is_other = self.changed(honest)
            # The last word is empty and proves nothing: a change of its frame may make it empty again.
            was_changed = was_changed or (is_other and bool(honest))
            self.say(peer, methods.ConnectionSecureOk(response=answer))
        self.judge(peer, name, was_changed, response)
        peer.wire.drop()
        self.house.finish_pass()

    def certificate(self) -> dict[str, Any] | None:
        subject = ((("commonName", self.chance.choice(("alice", "mallory", "", "a\0b"))),),)
        return self.chance.choice((None, {}, {"subject": subject}))

    def first(self, name: str, is_token: bool, exchange: ClientExchange) -> bytes:
        if name == "PLAIN":
            return b"\0\0" + self.token if is_token else b"\0alice\0secret"
        if name == "AMQPLAIN":
            return encode_table({"LOGIN": "alice", "PASSWORD": "secret"})[4:]
        return exchange.first() if name == "SCRAM-SHA-256" else b""

    def answer(self, exchange: ClientExchange, challenge: methods.ConnectionSecure | None) -> bytes:
        if challenge is None:
            return self.chance.choice((b"", b"c=biws,r=x,p=AAAA", bytes(self.chance.randbytes(8))))
        try:
            return exchange.answer(challenge.challenge)
        except ScramFault:
            return b""

    def say_start_ok(self, peer: Peer, name: str, response: bytes) -> None:
        shown = name if self.chance.random() > 0.02 else self.chance.choice(("", "GSSAPI", name.lower()))
        properties: FieldTable = {
            "capabilities": {"authentication_failure_close": self.chance.random() < 0.5}
        }
        start_ok = methods.ConnectionStartOk(
            client_properties={} if peer.version == 8 else properties,
            mechanism=shown,
            response=response,
            locale="en_US",
        )
        self.say(peer, start_ok)
        if self.chance.random() < 0.03:
            self.say(peer, start_ok)

    def say(self, peer: Peer, method: methods.Method) -> None:
        """A method, some of them with octets of the frame changed."""
        self.said += 1
        if self.chance.random() < 0.1:
            payload = self.mutated(encode_method(peer.version, method))
            peer.send(frame(1, 0, payload))
        else:
            peer.send(method_frame(peer.version, 0, method))

    def changed(self, octets: bytes) -> tuple[bytes, bool]:
        if self.chance.random() >= CHANGED:
            return octets, False
        changed = self.mutated(octets)
        return changed, changed != octets

    def mutated(self, octets: bytes) -> bytes:
        chance, found = self.chance, bytearray(octets)
        for _ in range(chance.randint(1, 3)):
            at = chance.randint(0, len(found))
            dice = chance.random()
            if dice < 0.4 and at < len(found):
                found[at] ^= 1 << chance.randint(0, 7)
            elif dice < 0.6:
                del found[at : at + chance.randint(1, 8)]
            elif dice < 0.8:
                found[at:at] = chance.choice(
                    (b",", b"=", b"\0", b"\xff", b".", b"n=", b"r=", b"p=", b"x" * 300)
                )
            else:
                found[at:at] = found[: chance.randint(0, 40)]
        return bytes(found)

    def judge(self, peer: Peer, name: str, was_changed: bool, response: bytes) -> None:
        """Whoever was let in has shown what is asked for."""
        user = "" if peer.wire.session.user is None else peer.wire.session.user.name
        if not user:
            self.refused[name] += 1
            return
        self.let_in["token" if user == "ada" else name] += 1
        if user == "alice" and name in ("PLAIN", "AMQPLAIN") and b"secret" not in response:
            raise AssertionError(f"alice came in by {name} without the password")
        if user == "alice" and name == "SCRAM-SHA-256" and was_changed:
            raise AssertionError("alice came in by SCRAM with something else than her proof")
        if user not in ("alice", "visitor", "ada") or (user == "visitor" and name != "ANONYMOUS"):
            raise AssertionError(f"{user!r} came in by {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--logins", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        fuzzer = LoginFuzzer(options.seed, Path(directory))
        while fuzzer.logins < options.logins:
            try:
                fuzzer.log_in()
            except Exception:
                traceback.print_exc()
                print(f"seed {options.seed}, login {fuzzer.logins}")
                return 1
    took_s = time.monotonic() - began_s
    print(f"{fuzzer.logins} logins, {fuzzer.said} methods, {took_s:.0f} s; seed {options.seed}")
    print(f"let in: {dict(fuzzer.let_in)}; refused: {dict(fuzzer.refused)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
