"""From the name of a host to a connected socket, whose address has been looked at."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from toolexec.runtime.egress.policy import Egress

__all__ = ["LookUp", "NotAllowedAddressError", "connect", "look_up", "refusal"]

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the IP addresses of a host; raises OSError when it has none."""

_MOST: Final = 8
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"))
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class NotAllowedAddressError(Exception):
    """No address of a host may be connected to; the text says why."""


async def look_up(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system has for *host*; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


async def connect(policy: Egress, host: str, port: int, find: LookUp = look_up) -> socket.socket:
    """Return a socket that is connected to *host*, at an address that *policy* allows.

    The addresses that were looked at are those that are connected to: a name that means something else a moment later
    is not asked again. Raises NotAllowedAddressError when none is allowed, OSError when none answers in time.
    """
    try:
        async with asyncio.timeout(policy.connect_seconds):
            found = [*dict.fromkeys(await find(host, port))][:_MOST]
            allowed = [address for address in found if not refusal(policy, address)]
            if found and not allowed:
                raise NotAllowedAddressError(refusal(policy, found[0]))
            return await _first(allowed, port)
    except TimeoutError:
        raise OSError(f"no connection within {policy.connect_seconds:g} s") from None


def refusal(policy: Egress, address: str) -> str:
    """Return why *address* must not be connected to; "" if it may."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # with the name of a network interface, for example
        return "its address is not a plain one"
    if policy.names_address(str(found)):
        return ""
    for form in _forms(found):
        if form in _METADATA or form.is_link_local or form.is_multicast or form.is_unspecified or _is_odd(form):
            return "its address is for this network or machine only"
        if not form.is_global and not policy.allow_private:
            return "its address is a private one"
    return ""


def _is_odd(address: Address) -> bool:
    """Addresses that no host has: reserved, broadcast."""
    return address.is_reserved and not address.is_loopback


def _forms(address: Address) -> list[Address]:
    """The address, and the IPv4 address in it if it is a way to write or to reach one."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[Address | None] = [address.sixtofour, address.teredo[1] if address.teredo else None]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address, *(form for form in inside if form is not None)]


async def _first(addresses: Sequence[str], port: int) -> socket.socket:
    """A connection to the first of them that answers."""
    problem = OSError("it has no address")
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)
            with suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
        except OSError as error:
            connection.close()
            problem = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection
    raise problem
