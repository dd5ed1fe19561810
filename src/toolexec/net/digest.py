"""Digest authentication that also covers the body of a request."""

from __future__ import annotations

import hashlib
import os
from typing import Any, Final

import httpx2

_HASHES: Final = {"MD5": "md5", "SHA": "sha1", "SHA-256": "sha256", "SHA-512": "sha512"}
_SESSION: Final = "-SESS"


class DigestAuth(httpx2.DigestAuth):
    """Answers challenges as httpx2 does, and those with no other quality of protection than `auth-int` (RFC 7616).

    No nonce is used twice with the same count, also where a server sends one nonce to several requests.
    """

    _counted: bytes = b""
    _count: int = 0

    def _build_auth_header(self, request: httpx2.Request, challenge: Any) -> str:
        if challenge.nonce != self._counted:
            self._counted, self._count = challenge.nonce, 0
        self._count += 1
        self._nonce_count = self._count
        offered = {each.strip().lower() for each in (challenge.qop or b"").split(b",")}
        if b"auth-int" not in offered or b"auth" in offered:
            return super()._build_auth_header(request, challenge)
        return self._with_body(request, challenge)

    def _with_body(self, request: httpx2.Request, challenge: Any) -> str:
        """Return the header with the digest of the method, the target and the body."""
        algorithm: str = challenge.algorithm
        name = _HASHES.get(algorithm.upper().removesuffix(_SESSION), "")
        if not name:
            raise httpx2.ProtocolError(f"Unsupported digest auth algorithm {algorithm!r}", request=request)

        def digest(*parts: bytes) -> bytes:
            return hashlib.new(name, b":".join(parts)).hexdigest().encode()

        count = b"%08x" % self._nonce_count
        cnonce = os.urandom(16).hex().encode()
        user = digest(self._username, challenge.realm, self._password)
        if algorithm.upper().endswith(_SESSION):
            user = digest(user, challenge.nonce, cnonce)
        target = request.url.raw_path
        what = digest(request.method.encode(), target, digest(request.content))
        fields = {
            "username": self._username,
            "realm": challenge.realm,
            "nonce": challenge.nonce,
            "uri": target,
            "response": digest(user, challenge.nonce, count, cnonce, b"auth-int", what),
            "algorithm": algorithm.encode(),
            "qop": b"auth-int",
            "nc": count,
            "cnonce": cnonce,
        }
        if challenge.opaque:
            fields["opaque"] = challenge.opaque
        return "Digest " + self._get_header_value(fields)
