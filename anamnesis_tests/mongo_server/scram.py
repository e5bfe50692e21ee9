"""SCRAM-SHA-256 from the server's side: RFC 5802 and RFC 7677."""

import base64
import hashlib
import hmac
import os
from dataclasses import dataclass

from pymongo.saslprep import saslprep

from anamnesis_tests.mongo_server.refusals import Refusal

MECHANISM = "SCRAM-SHA-256"
ITERATIONS = 4096
"""The least that clients accept; MongoDB itself takes 15,000."""


@dataclass(frozen=True)
class Account:
    """A user, with what is kept instead of the password."""

    user: str
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, user: str, password: str) -> "Account":
        """The account of a user with this password."""
        salt = os.urandom(28)
        salted = hashlib.pbkdf2_hmac("sha256", saslprep(password).encode(), salt, ITERATIONS)
        client_key = _mac(salted, b"Client Key")
        return cls(user, salt, hashlib.sha256(client_key).digest(), _mac(salted, b"Server Key"))


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def _fields(message: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in message.split(",") if "=" in part)


class Conversation:
    """One client's attempt."""

    def __init__(self, account: Account, first: bytes) -> None:
        self._account = account
        self._bare = first.decode().split(",", 2)[2]
        fields = _fields(self._bare)
        self._known_user = fields["n"].replace("=2C", ",").replace("=3D", "=") == account.user
        self._nonce = fields["r"] + base64.b64encode(os.urandom(24)).decode()
        self._offer = f"r={self._nonce},s={base64.b64encode(account.salt).decode()},i={ITERATIONS}"

    def offer(self) -> bytes:
        """The server's first message."""
        return self._offer.encode()

    def verdict(self, final: bytes) -> bytes:
        """The server's last message, to a client that knows the password.

        :raises Refusal: it does not, or the user is another one.
        """
        text = final.decode()
        fields = _fields(text)
        signed = f"{self._bare},{self._offer},{text.rpartition(',p=')[0]}".encode()
        signature = _mac(self._account.stored_key, signed)
        proof = base64.b64decode(fields["p"])
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        known = hmac.compare_digest(hashlib.sha256(client_key).digest(), self._account.stored_key)
        if not (known and self._known_user and fields["r"] == self._nonce):
            raise Refusal(18, "Authentication failed.")
        return b"v=" + base64.b64encode(_mac(self._account.server_key, signed))
