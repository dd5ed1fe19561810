"""Where the Docker daemon is, as the `docker` command would find it, and how to connect to it."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from toolexec.containers import JSONValue, unavailable
from toolexec.errors import ConfigurationError, SandboxUnavailableError

_P = TypeVar("_P", bound=asyncio.Protocol)
_PORT: Final = 2375
_TLS_PORT: Final = 2376
_CONNECT: Final = 10.0
_START: Final = "start it (`sudo systemctl start docker`), or say where it is with DOCKER_HOST or `host`"


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerHost:
    """The address of a daemon: the `path` of a Unix socket, or `host` and `port`, with `tls` if it speaks that."""

    address: str
    path: str = ""
    host: str = ""
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        """What requests for this daemon start with."""
        if self.path:
            return "unix://localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    async def connect(self, factory: Callable[[], _P]) -> _P:
        """Return a new connection, for a protocol that *factory* makes. Raises OSError."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT):
            if self.path:
                return (await loop.create_unix_connection(factory, self.path))[1]
            transport, protocol = await loop.create_connection(factory, self.host, self.port, ssl=self.tls)
        connection = transport.get_extra_info("socket")
        # A daemon whose machine is gone says no goodbye.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_KEEPIDLE"):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15)
        return protocol


def find_host(given: str = "", env: Mapping[str, str] = os.environ, home: Path | None = None) -> DockerHost:
    """Return the daemon to talk to: the one *given*, else that of DOCKER_HOST, of the Docker context that is in use, or
    of the usual sockets of Docker and then of Podman. Reads files.

    With DOCKER_TLS_VERIFY, or a context that says so, TLS is spoken, always verified, with the certificates in
    DOCKER_CERT_PATH (default: `~/.docker`).

    Raises ConfigurationError for an address that nothing here can talk to, and for certificates that cannot be read.
    """
    home = home or Path.home()
    address = given or env.get("DOCKER_HOST", "")
    if address:
        certificates = Path(env.get("DOCKER_CERT_PATH") or home / ".docker")
        return _host_of(address, certificates if env.get("DOCKER_TLS_VERIFY") else None)
    context = env.get("DOCKER_CONTEXT") or _current_context(home)
    if context and context != "default":
        return _host_of_context(context, home)
    sockets = _usual_sockets(env, home)
    found = next((path for path in sockets if Path(path).is_socket()), sockets[0])
    return DockerHost(address=f"unix://{found}", path=found)


def explain(host: DockerHost, error: OSError) -> tuple[str, str]:
    """Return why the daemon at *host* could not be reached, and how to fix it."""
    where = host.path or host.address
    if isinstance(error, FileNotFoundError):
        return f"there is no socket {where}: the Docker daemon does not run", _START
    if isinstance(error, PermissionError):
        return (
            f"this user may not use {where}",
            "`sudo usermod -aG docker $USER` and log in again, or use Docker or Podman in rootless mode",
        )
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {where}: the Docker daemon does not run", _START
    if isinstance(error, ssl.SSLError):
        return (
            f"no TLS connection to {where}: {error}",
            "check DOCKER_TLS_VERIFY and the files ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH",
        )
    if isinstance(error, TimeoutError):
        return f"the Docker daemon at {where} does not answer", "look at its log, and start it again"
    return f"the Docker daemon at {where} cannot be talked to: {error}", _START


def unreachable(host: DockerHost, error: OSError) -> SandboxUnavailableError:
    """Return the error of a sandbox whose daemon at *host* could not be reached."""
    return unavailable(*explain(host, error))


def _host_of(address: str, certificates: Path | None) -> DockerHost:
    scheme, separator, rest = address.partition("://")
    if scheme == "unix" and rest.startswith("/"):
        return DockerHost(address=address, path=rest)
    if scheme == "ssh":
        raise ConfigurationError(
            f"the Docker daemon at {address} is behind ssh, which is not spoken here; forward its socket with "
            "`ssh -NL /tmp/docker.sock:/var/run/docker.sock HOST`, and set DOCKER_HOST=unix:///tmp/docker.sock"
        )
    if scheme not in ("tcp", "http", "https") or not separator:
        raise ConfigurationError(f"{address!r} is no address of a Docker daemon; use unix:///path or tcp://host:port")
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{address!r} is no address of a Docker daemon: {error}") from error
    if not host or parts.username is not None or parts.path not in ("", "/"):
        raise ConfigurationError(f"the address of the Docker daemon must be like tcp://host:port, not {address!r}")
    tls: ssl.SSLContext | None = None
    if certificates is not None:
        tls = _tls(certificates / "ca.pem", certificates / "cert.pem", certificates / "key.pem")
    elif scheme == "https":
        tls = ssl.create_default_context()
    return DockerHost(address=address, host=host, port=port or (_TLS_PORT if tls else _PORT), tls=tls)


def _tls(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS as the daemon wants it: the authority and the certificate of the client are there, or left out."""
    try:
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        if certificate.exists():
            context.load_cert_chain(str(certificate), str(key))
    except OSError as error:
        raise ConfigurationError(
            f"the TLS certificates for the Docker daemon in {authority.parent} cannot be used: {error}; "
            "DOCKER_CERT_PATH must hold ca.pem, cert.pem and key.pem"
        ) from error
    return context


def _current_context(home: Path) -> str:
    with suppress(OSError, ValueError, AttributeError):
        return str(json.loads((home / ".docker/config.json").read_bytes()).get("currentContext") or "")
    return ""


def _host_of_context(name: str, home: Path) -> DockerHost:
    directory = hashlib.sha256(name.encode()).hexdigest()
    contexts = home / ".docker/contexts"
    try:
        data: JSONValue = json.loads((contexts / "meta" / directory / "meta.json").read_bytes())
        endpoint: JSONValue = data["Endpoints"]["docker"]
        address = str(endpoint["Host"])
        unverified = bool(endpoint.get("SkipTLSVerify"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigurationError(
            f"the Docker context {name!r} cannot be read: {type(error).__name__}; choose another one with "
            "`docker context use`, or set DOCKER_HOST"
        ) from error
    certificates = contexts / "tls" / directory / "docker"
    secured = certificates.is_dir()
    if secured and unverified:
        raise ConfigurationError(
            f"the Docker context {name!r} does not verify who it talks to; make one that does, or set DOCKER_HOST"
        )
    return _host_of(address, certificates if secured else None)


def _usual_sockets(env: Mapping[str, str], home: Path) -> list[str]:
    own = env.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    return [
        "/var/run/docker.sock",
        f"{own}/docker.sock",
        str(home / ".docker/run/docker.sock"),
        "/run/podman/podman.sock",
        f"{own}/podman/podman.sock",
    ]
