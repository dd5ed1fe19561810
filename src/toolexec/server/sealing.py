"""Records of a server's state that who reads the whole store cannot read.

Each is encrypted with a key made of a secret that its caller has, which the store does not, and of the server's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import zlib
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

logger: logging.Logger = logging.getLogger(__name__)
_NONCE: Final = 12


def sealed(data: bytes, key: str, secret: str, about: Sequence[str]) -> str:
    """Return *data* encrypted with *key* and *secret*; what it is *about* is not in it, and is needed to read it."""
    own, plain = _key(key, secret, about), zlib.compress(data, 1)
    # The same for the same data, so that pieces that are written again fit those that were there.
    nonce = hashlib.blake2b(plain, key=own, digest_size=_NONCE).digest()
    return base64.b64encode(nonce + AESGCM(own).encrypt(nonce, plain, None)).decode()


def opened(text: str, keys: Sequence[str], secret: str, about: Sequence[str]) -> bytes | None:
    """Return what was `sealed` with one of *keys*; None for what was not, or is not whole."""
    try:
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found = b""
    for key in keys:
        try:
            return zlib.decompress(AESGCM(_key(key, secret, about)).decrypt(found[:_NONCE], found[_NONCE:], None))
        except (InvalidTag, ValueError):
            continue
    logger.warning("a record of a server's state cannot be read: it is not whole, or was sealed with another key")
    return None


def _key(key: str, secret: str, about: Sequence[str]) -> bytes:
    facts = json.dumps(["toolexec", *about]).encode()
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=facts)
    return derived.derive(f"{key}\0{secret}".encode(errors="surrogatepass"))
