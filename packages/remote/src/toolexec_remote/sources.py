"""Where endpoints are written: names of DNS, and files. Each look gives those that may be used."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast
from urllib.parse import urlsplit

from toolexec.errors import ConfigurationError, SandboxDeniedError, ToolExecError
from toolexec.remote import JSONDict, is_address, refusal

if TYPE_CHECKING:
    from toolexec.remote import RemoteSettings

LookUp: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the IP addresses of a name, for a port; raises OSError when it has none."""
_MOST: Final = 1000
"""How many endpoints one name or file may have."""
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """An endpoint: the URL that it is reached at, and, where that has an address in it, the `host` that it is called by
    (by `Host` and in certificates); "" for the one in the URL. `process` is the number of one of several processes
    behind its port, which is the fragment of `endpoint` then; 0: whichever takes the connection."""

    endpoint: str
    host: str = ""
    process: int = 0

    @property
    def url(self) -> str:
        """The URL that requests are sent to."""
        return self.endpoint.partition("#")[0].rstrip("/") if self.process else self.endpoint.rstrip("/")

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that say who is called."""
        return {"Host": self.host} if self.host else {}

    def of(self, process: int) -> Member:
        """Return one of the processes behind its port."""
        return replace(self, endpoint=f"{self.endpoint}#{process}", process=process)

    @property
    def tls_name(self) -> str:
        """The name that its certificate must have; "" for the one in the URL."""
        return urlsplit(f"//{self.host}").hostname or "" if self.endpoint.startswith("https:") else ""


Look: TypeAlias = tuple[tuple[Member, ...], ToolExecError | None]
"""The endpoints that were found, and why others that were found are not used."""


class Source(Protocol):
    """Gives endpoints; `look` raises OSError, ValueError and ToolExecError when it has none that may be used."""

    async def look(self) -> Look:
        """Look once."""
        ...

    async def aclose(self) -> None:
        """Give up what is under way."""
        ...


class NameSource:
    """Every address of a name is an endpoint: `dns+https://runtime.code.svc:8090/v1/execute`."""

    def __init__(self, entry: str, settings: RemoteSettings, addresses_of: LookUp) -> None:
        self._entry = entry
        self._parts = urlsplit(entry.removeprefix("dns+"))
        self._host = self._parts.hostname or ""
        self._port = self._parts.port
        self._allowed = settings.networks
        self._addresses_of = addresses_of
        self._asking: asyncio.Task[Sequence[str]] | None = None

    async def look(self) -> Look:
        """Implement `Source.look`. A question that has no answer yet is not asked again."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._asked())
        try:
            addresses = await asyncio.shield(self._asking)
        finally:
            if self._asking.done():
                self._asking = None
        refused: JSONDict = {}
        found: list[Member] = []
        for address in sorted({*addresses}):
            if why := self._refusal(address):
                refused[address] = why
            else:
                host = f"[{address}]" if ":" in address else address
                port = f":{self._port}" if self._port is not None else ""
                url = self._parts._replace(netloc=f"{host}{port}").geturl()
                found.append(Member(url, f"{self._host}{port}"))
        problem = _denied(self._entry, refused) if refused else None
        if problem is not None and not found:
            raise problem
        if not found:
            raise OSError(f"{self._host} has no addresses")
        return tuple(found[:_MOST]), problem

    async def _asked(self) -> Sequence[str]:
        return await self._addresses_of(self._host, self._port or (443 if self._parts.scheme == "https" else 80))

    async def aclose(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    def _refusal(self, address: str) -> str:
        if why := _refusal(address, self._allowed):
            return why
        if self._allowed:
            return ""
        form = _plain(address)
        if form.is_loopback and self._host != "localhost" and not self._host.endswith(".localhost"):
            return "its address is one of this machine"
        if self._parts.scheme == "http" and form.is_global:
            return "its address is one of the internet, and http:// would show code and tokens to all in between"
        return ""


class FileSource:
    """Every line of a file is an endpoint, or every text where it is a list of JSON; a line with # says nothing."""

    def __init__(self, entry: str, settings: RemoteSettings) -> None:
        self._entry = entry
        self._path = Path(entry.removeprefix("file:"))
        self._settings = settings

    async def look(self) -> Look:
        """Implement `Source.look`. Where one line is wrong, none counts: the file may be half written."""
        return await asyncio.to_thread(self._read)

    def _read(self) -> Look:
        with self._path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{self._path} has more than {_MOST_BYTES} bytes")
        written = _entries(data.decode())
        if not written or len(written) > _MOST:
            raise ValueError(f"{self._path} has {len(written)} endpoints; 1 to {_MOST} are possible")
        if wrong := [each for each in written if each.startswith(("dns+", "file:"))]:
            raise ConfigurationError(f"{self._path} has {wrong[0]!r}; that goes into the settings themselves")
        self._settings.at(*written)  # what settings refuse is refused here
        hosts = {each: urlsplit(each).hostname or "" for each in written}
        whys = {each: _refusal(host, self._settings.networks) for each, host in hosts.items() if is_address(host)}
        refused: JSONDict = {each: why for each, why in whys.items() if why}
        problem = _denied(self._entry, refused) if refused else None
        if problem is not None and len(refused) == len(written):
            raise problem
        return tuple(Member(each) for each in written if each not in refused), problem

    async def aclose(self) -> None:
        """Do nothing: each look is over by itself."""


def _entries(text: str) -> list[str]:
    """Return what a file lists, each once; raises ValueError."""
    if text.lstrip().startswith("["):
        listed = json.loads(text)
        if not all(isinstance(each, str) for each in listed):
            raise ValueError("a list of endpoints has strings in it, and nothing else")
        return [*dict.fromkeys(cast("list[str]", listed))]
    lines = (line.strip() for line in text.splitlines())
    return [*dict.fromkeys(line for line in lines if line and not line.startswith("#"))]


def _refusal(address: str, networks: Sequence[str]) -> str:
    """Return why an address must not be an endpoint, whatever names it; "" when it may be one."""
    if "%" in address:  # with the name of a network interface
        return "its address is not a plain one"
    if why := refusal(address, allow_private=True):
        return why
    form = _plain(address)
    if networks and not any(form in ip_network(network) for network in networks):
        return f"its address is not in {', '.join(networks)}"
    return ""


def _plain(address: str) -> IPv4Address | IPv6Address:
    """Return an address; one of version 4 also where it is written as one of version 6."""
    form = ip_address(address)
    mapped = form.ipv4_mapped if isinstance(form, IPv6Address) else None
    return mapped or form


def _denied(entry: str, refused: JSONDict) -> SandboxDeniedError:
    listed = "; ".join(f"{address}: {why}" for address, why in refused.items())
    return SandboxDeniedError(
        f"{entry} leads to what is not used ({listed}); `networks` of [sandboxes.remote] says which may be",
        code="address_denied",
        details={"endpoint": entry, "addresses": refused},
    )
