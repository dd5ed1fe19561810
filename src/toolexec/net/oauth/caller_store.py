"""Where the logins of callers are kept: in files that are encrypted, each for its caller alone."""

from __future__ import annotations

import base64
import binascii
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import SecretError
from toolexec.errors.extras import extra_needed
from toolexec.net.oauth.store import LoginStore, asked_ring, key_of, system_ring

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_VARIABLE: Final = "TOOLEXEC_LOGIN_KEY"
"""The variable with the key that the logins of callers are encrypted with: 32 bytes in base64."""
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_SERVICE: Final = "toolexec login"
_RING_KEY: Final = "key of callers"
_MAKE: Final = "openssl rand -base64 32"


class CallerStore(LoginStore):
    """Keeps the logins of *caller* in *directory*, one encrypted file (AES-256-GCM, mode 0600) each.

    The key is that of `TOOLEXEC_LOGIN_KEY`, else one in the keyring of the system, which is made when it is needed
    first; without either nothing is kept, and nothing can be read. What was written for one caller, server or URL
    cannot be read as that of another, also where files are copied.

    Raises SecretError where there is no key, or another than that of the file, MissingExtraError where encryption
    needs the `serve` extra, and ConfigurationError where the directory cannot be used safely.
    """

    def __init__(
        self, caller: str, directory: Path | None = None, *, environment: Mapping[str, str] = os.environ
    ) -> None:
        super().__init__(directory, environment=environment)
        self.caller = caller
        self._in_files = True
        self._given = environment.get(KEY_VARIABLE, "")

    def _key(self, name: str, server: str) -> str:
        return key_of(name, server, self.caller)

    # -- in a thread --------------------------------------------------------------------------------------------

    def _load(self, key: str) -> str:
        cipher = self._cipher(make=False)  # before there is anything to read: that it is missing is known at once
        text = super()._load(key)
        if not text:
            return ""
        try:
            sealed = base64.b64decode(json.loads(text)["sealed"], validate=True)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise SecretError("the login of the caller is damaged; log out, and log in again") from None
        if cipher is None:
            raise self._no_key("the one that logins there are encrypted with is gone")
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], key.encode()).decode()
        except (InvalidTag, ValueError):
            raise SecretError(
                f"the login of the caller was encrypted with another key than {self._named()}, or for another caller; "
                "give the key that it was made with, or log out and log in again"
            ) from None

    def _write(self, key: str, text: str) -> None:
        cipher = self._cipher(make=True)
        assert cipher is not None
        nonce = secrets.token_bytes(_NONCE_BYTES)
        sealed = base64.b64encode(nonce + cipher.encrypt(nonce, text.encode(), key.encode())).decode()
        super()._write(key, json.dumps({"version": 1, "sealed": sealed}))

    def _cipher(self, *, make: bool) -> AESGCM | None:
        """Return what encrypts; None where the keyring has no key yet, unless one is to be made."""
        with extra_needed("serve", "a login of each caller, which is encrypted,"):
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        key = _read_key(self._given, KEY_VARIABLE) if self._given else self._ring_key(make=make)
        return AESGCM(key) if key else None

    def _ring_key(self, *, make: bool) -> bytes:
        """Return the key in the keyring; empty where it has none yet, unless one is to be made."""
        ring = system_ring()
        if ring is None:
            raise self._no_key("there is no keyring to have one")
        found = asked_ring(partial(ring.get_password, _SERVICE, _RING_KEY))
        if not found and make:
            found = self._made_key(ring)
        return _read_key(found, "the key in the keyring") if found else b""

    def _made_key(self, ring: Any) -> str:
        """Make the key, once among all processes."""
        file = self._lock("key")
        if file < 0:
            raise SecretError("another process is making the key of logins, and does not end")
        try:
            found = asked_ring(partial(ring.get_password, _SERVICE, _RING_KEY))
            if not found:
                found = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
                asked_ring(partial(ring.set_password, _SERVICE, _RING_KEY, found))
            return str(found)
        finally:
            with suppress(OSError):
                os.close(file)

    def _named(self) -> str:
        return KEY_VARIABLE if self._given else "the one in the keyring"

    def _no_key(self, why: str) -> SecretError:
        return SecretError(
            f"logins of callers are encrypted, and there is no key: {why}; set {KEY_VARIABLE}, to what {_MAKE} prints"
        )


def _read_key(text: str, name: str) -> bytes:
    """Return the bytes of a key; raises SecretError, which names it, for anything else."""
    try:
        key = base64.b64decode(text.strip(), altchars=b"-_" if {"-", "_"} & set(text) else None, validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != _KEY_BYTES:
        raise SecretError(f"{name} must be {_KEY_BYTES} bytes in base64, such as {_MAKE} prints")
    return key
