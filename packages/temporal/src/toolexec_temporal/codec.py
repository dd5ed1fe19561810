"""What Temporal's server gets to see of a payload: it is compressed, encrypted, and kept elsewhere when it is large."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from toolexec.errors import ConfigurationError, JournalError
from toolexec.journal import replace_files
from toolexec_temporal.settings import TemporalSettings

_COMPRESSED: Final = b"binary/toolexec-zlib"
_ENCRYPTED: Final = b"binary/toolexec-aes-gcm"
_LARGE: Final = b"binary/toolexec-file"
_WORTH_COMPRESSING: Final = 4 << 10
_NONCE_BYTES: Final = 12
_MAX_BYTES: Final = 256 << 20
"""How long a payload may be once it is unpacked."""


class RunCodec(PayloadCodec):
    """Compresses payloads over 4 KiB, encrypts all of them with AES-GCM if there is a key, and keeps those that are
    still large as files, named by their SHA-256.

    Decoding raises JournalError for a payload of another key or, where there is one, of none, one that was changed, or
    one whose file is gone.
    """

    def __init__(self, keys: Sequence[str], large_bytes: int, directory: Path | None) -> None:
        """*keys* are the one to encrypt with and older ones; none of them: nothing is encrypted."""
        ciphers = [_cipher_of(key) for key in keys]
        self._ciphers = dict(ciphers)
        self._first = ciphers[0] if ciphers else None
        self._large_bytes = large_bytes
        self._directory = directory

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Implement `PayloadCodec.encode`."""
        return [await self._packed(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Implement `PayloadCodec.decode`."""
        return [await self._unpacked(payload) for payload in payloads]

    async def _packed(self, payload: Payload) -> Payload:
        if len(payload.data) > _WORTH_COMPRESSING:
            compressed = zlib.compress(payload.SerializeToString(), 1)
            if len(compressed) < len(payload.data):
                payload = _wrapped(_COMPRESSED, compressed)
        if self._first is not None:
            name, cipher = self._first
            nonce = secrets.token_bytes(_NONCE_BYTES)
            data = nonce + cipher.encrypt(nonce, payload.SerializeToString(), name)
            payload = _wrapped(_ENCRYPTED, data, key=name)
        if self._directory is not None and len(payload.data) > self._large_bytes:
            payload = _wrapped(_LARGE, await asyncio.to_thread(_kept, self._directory, payload.SerializeToString()))
        return payload

    async def _unpacked(self, payload: Payload) -> Payload:
        """Take the wrappings off: a payload has each of the three at most once."""
        for encoding in (_LARGE, _ENCRYPTED, _COMPRESSED):
            if encoding == _ENCRYPTED:
                self._check_sealed(payload)
            if payload.metadata.get("encoding") != encoding:
                continue
            if encoding == _LARGE:
                data = await asyncio.to_thread(self._read, payload.data)
            elif encoding == _ENCRYPTED:
                data = self._decrypted(payload)
            else:
                data = _inflated(payload.data)
            payload = Payload.FromString(data)
        return payload

    def _check_sealed(self, payload: Payload) -> None:
        """Raise JournalError for a payload in plain text where a key is set: a client that can write to the server
        could make up the answers of calls."""
        if self._first is not None and payload.metadata.get("encoding") != _ENCRYPTED:
            raise JournalError(
                "a payload is not encrypted, and a key of Temporal is set; set the same key for all callers and "
                "workers, and end the runs that were begun without one first"
            )

    def _read(self, name: bytes) -> bytes:
        digest = name.decode("ascii", "replace")
        if self._directory is None or not digest.isalnum():
            raise JournalError("a payload is kept as a file; set large_directory to where its writer keeps them")
        try:
            data = (self._directory / digest).read_bytes()
        except OSError as error:
            raise JournalError(
                f"the large payload {digest} cannot be read from {self._directory}: {error.strerror or error}"
            ) from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise JournalError(f"the file of the large payload {digest} was changed")
        return data

    def _decrypted(self, payload: Payload) -> bytes:
        name = payload.metadata.get("key", b"")
        cipher = self._ciphers.get(name)
        if cipher is None:
            raise JournalError("a payload was encrypted with a key that is not here; set key, or old_keys, of Temporal")
        try:
            return cipher.decrypt(payload.data[:_NONCE_BYTES], payload.data[_NONCE_BYTES:], name)
        except InvalidTag:
            raise JournalError("a payload cannot be decrypted: it was changed") from None


def codec_of(settings: TemporalSettings) -> RunCodec:
    """Return the codec of *settings*; raises ConfigurationError for a directory that cannot be made."""
    keys = [settings.key, *settings.old_keys] if settings.key else []
    directory = Path(settings.large_directory).expanduser() if settings.large_directory else None
    if directory is not None:
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"large_directory cannot be used: {error}") from error
    return RunCodec(keys, settings.large_bytes, directory)


def _cipher_of(key: str) -> tuple[bytes, AESGCM]:
    """Return the cipher of a secret, and a name that says nothing about it."""
    derived = HKDF(SHA256(), 40, salt=None, info=b"toolexec temporal payloads").derive(key.encode())
    return derived[32:].hex().encode(), AESGCM(derived[:32])


def _wrapped(encoding: bytes, data: bytes, **metadata: bytes) -> Payload:
    return Payload(metadata={"encoding": encoding, **metadata}, data=data)


def _kept(directory: Path, data: bytes) -> bytes:
    """Write a file that appears as a whole; the same payload again is the same file."""
    digest = hashlib.sha256(data).hexdigest()
    target = directory / digest
    if not target.exists():
        try:
            replace_files({target: data})
        except OSError as error:
            raise JournalError(f"a large payload cannot be kept in {directory}: {error.strerror or error}") from error
    return digest.encode()


def _inflated(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    unpacked = unpacker.decompress(data, _MAX_BYTES)
    if unpacker.unconsumed_tail:
        raise JournalError(f"a payload has more than {_MAX_BYTES:,} bytes")
    return unpacked
