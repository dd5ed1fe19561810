"""An issuer of tokens, with keys that are served over HTTP."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from tests.server.http.conftest import serve

from toolexec.server.auth import JwtSettings

__all__ = ["serve"]

ISSUER = "https://issuer.example"
AUDIENCE = "https://tools.example.com/mcp"
_RSA = [rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)]
_EC = ec.generate_private_key(ec.SECP256R1())


class Issuer:
    """Signs tokens with the key `rsa0`, `rsa1` or `ec`, and says which public keys it has."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"rsa0": _RSA[0], "ec": _EC}
        self.asked = 0
        self.broken = False
        self.document: bytes | None = None
        self.url = ""

    def jwks(self) -> bytes:
        if self.document is not None:
            return self.document
        keys = []
        for kid, key in self.keys.items():
            algorithm = ECAlgorithm if kid.startswith("ec") else RSAAlgorithm
            keys.append({**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"})
        return json.dumps({"keys": keys}).encode()

    def rotate(self) -> None:
        """Have another key in place of `rsa0`."""
        self.keys = {"rsa1": _RSA[1]}

    def token(self, kid: str | None = "rsa0", *, key: Any = None, alg: str = "", **claims: Any) -> str:
        """A token that holds for a minute; a claim of None is left out."""
        now = int(time.time())
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 60} | claims
        body = {name: value for name, value in body.items() if value is not None}
        private = key or {"rsa0": _RSA[0], "rsa1": _RSA[1], "ec": _EC}[kid or "rsa0"]
        algorithm = alg or ("ES256" if kid == "ec" else "RS256")
        return jwt.encode(body, private, algorithm=algorithm, headers={"kid": kid} if kid else None)

    def settings(self, **more: Any) -> JwtSettings:
        return JwtSettings(**({"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": self.url} | more))

    def file(self, directory: Path) -> str:
        path = directory / "jwks.json"
        path.write_bytes(self.jwks())
        return str(path)


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """An issuer whose keys are at `issuer.url`."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked += 1
            body = issuer.jwks()
            self.send_response(500 if issuer.broken else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    issuer.url = f"http://127.0.0.1:{server.server_address[1]}/jwks.json"
    try:
        yield issuer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
