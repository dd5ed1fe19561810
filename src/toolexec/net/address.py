"""IP addresses of hosts: how they are looked up, and which must not be connected to."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
LookUp: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Gives the IP addresses of a host; raises OSError when it has none."""

MOST_ADDRESSES: Final = 8
"""How many addresses of one host are tried."""
_METADATA: Final = frozenset(
    map(ipaddress.ip_address, ("169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"))
)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")


class NotAllowedAddressError(Exception):
    """No address of a host may be connected to; the message says why."""


async def look_up(host: str, port: int) -> Sequence[str]:
    """Return the addresses that the system has for *host*; raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in found]


def refusal(address: str, *, allow_private: bool = False) -> str:
    """Return why *address* must not be connected to; "" if it may.

    Services of the cloud's metadata, link-local, multicast and unspecified addresses are always refused; private ones
    and those of this machine unless *allow_private*.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:  # with the name of a network interface, for example
        return "its address is not a plain one"
    for form in _forms(found):
        if form in _METADATA or form.is_link_local or form.is_multicast or form.is_unspecified or _is_odd(form):
            return "its address is for this network or machine only"
        if not form.is_global and not allow_private:
            return "its address is a private one"
    return ""


def _is_odd(address: Address) -> bool:
    """Return whether no host has the address: it is reserved, or for broadcasts."""
    return address.is_reserved and not address.is_loopback


def _forms(address: Address) -> list[Address]:
    """Return the address, and the IPv4 address in it if it is a way to write or to reach one."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    inside: list[Address | None] = [address.sixtofour, address.teredo[1] if address.teredo else None]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return [address, *(form for form in inside if form is not None)]
