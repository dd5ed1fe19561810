"""Which server process it is: a key pair that is made at its start, and lives in no file.

A process that is started again, be it with the state of an older one, is another incarnation. What one states (that a
run never started, how one ended) has its signature, so that no other can state it in its place.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

INCARNATION_HEADER: Final = "X-Toolruntime-Incarnation"
"""Names the incarnation that a request is for: no other one takes it."""
HERE: Final = "here"
"""Says, to anyone who asks: I am here. Of a nonce of the other side."""
WELCOME: Final = "welcome"
"""Says: I have admitted you. Of the nonce of the challenge, and that of the hello, so that it holds for one connection:
what anyone may ask for proves nothing here."""
NEVER_STARTED: Final = "never-started"
"""Says: I have not started this run, and never will. Of the ID of the key that asks, and that of the run."""
ENDED: Final = "ended"
"""Says: I ran this, and it ended like this. Of the ID of the run, and the SHA-256 of the response."""
_CONTEXT: Final = "toolexec.runtime.v2"
_ID: Final = re.compile(r"[0-9a-f]{64}")


class Incarnation:
    """One server process, from its start to its end; `id` names it, and is its public key (Ed25519) in hexadecimal."""

    __slots__ = ("_key", "id")

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.id: str = self._key.public_key().public_bytes_raw().hex()

    def state(self, what: str, *of: str) -> str:
        """Return the signature (Base64) under a statement: *what* it says, and of what."""
        return base64.b64encode(self._key.sign(_statement(what, of))).decode()


def is_stated(incarnation: str, signature: object, what: str, *of: str) -> bool:
    """Return whether *signature* shows that this incarnation has stated this; False for what is not a signature."""
    if not isinstance(signature, str) or not is_incarnation(incarnation):
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(incarnation))
        key.verify(base64.b64decode(signature, validate=True), _statement(what, of))
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def is_incarnation(name: object) -> bool:
    """Return whether *name* can be that of an incarnation."""
    return isinstance(name, str) and _ID.fullmatch(name) is not None


def _statement(what: str, of: tuple[str, ...]) -> bytes:
    return json.dumps([_CONTEXT, what, *of], separators=(",", ":")).encode()
