"""From the name of a host to a connected socket, whose address has been looked at."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress

from toolexec.net.address import MOST_ADDRESSES, LookUp, NotAllowedAddressError, look_up
from toolexec.net.address import refusal as address_refusal
from toolexec.runtime.egress.policy import Egress


async def connect(policy: Egress, host: str, port: int, find: LookUp = look_up) -> socket.socket:
    """Return a socket that is connected to *host*, at an address that *policy* allows.

    The addresses that were looked at are those that are connected to: a name that means something else a moment later
    is not asked again. Raises NotAllowedAddressError when none is allowed, OSError when none answers in time.
    """
    try:
        async with asyncio.timeout(policy.connect_seconds):
            found = [*dict.fromkeys(await find(host, port))][:MOST_ADDRESSES]
            allowed = [address for address in found if not refusal(policy, address)]
            if found and not allowed:
                raise NotAllowedAddressError(refusal(policy, found[0]))
            return await _first(allowed, port)
    except TimeoutError:
        raise OSError(f"no connection within {policy.connect_seconds:g} s") from None


def refusal(policy: Egress, address: str) -> str:
    """Return why *address* must not be connected to; "" if it may."""
    with suppress(ValueError):
        if policy.names_address(str(ipaddress.ip_address(address))):
            return ""
    return address_refusal(address, allow_private=policy.allow_private)


async def _first(addresses: Sequence[str], port: int) -> socket.socket:
    """Return a connection to the first of them that answers."""
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
