"""What can be done with the containers of a node of Proxmox VE; each waits until it is done."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

from toolexec.remote import JSONDict, JSONObject, pauses
from toolexec_remote.proxmox.client import ProxmoxClient, Value, path_of
from toolexec_remote.proxmox.failures import ProxmoxError
from toolexec_remote.proxmox.rights import MissingPrivilegeError

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 1.0
_GONE: Final = "gone"
_UNKNOWING: Final = frozenset({400, 403, 404, 501})
"""Statuses of an API that does not answer a question."""


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """A container of a node: its number, its host name and its status (`running`, `stopped`)."""

    vmid: int
    name: str
    status: str


class Containers:
    """The containers of the node that the settings of *client* name.

    *ends* is of `monotonic()`: until then a task must have ended. All methods raise what those of the client raise.
    """

    def __init__(self, client: ProxmoxClient) -> None:
        self.client = client
        self.node: str = client.settings.node
        self._cloning = asyncio.Lock()

    def _path(self, vmid: int, *parts: str) -> str:
        return path_of("nodes", self.node, "lxc", vmid, *parts)

    # -- what is there ------------------------------------------------------------------------------------------

    async def status(self, vmid: int) -> str:
        """Return `running`, `stopped`, or `gone` for a container that is not there."""
        try:
            found = await self._of(vmid, self.client.get(self._path(vmid, "status", "current")))
        except ProxmoxError as error:
            if error.reason == "no_such_container":
                return _GONE
            raise
        return str(found.get("status", ""))

    async def config(self, vmid: int) -> JSONObject:
        """Return how it is set up."""
        found: JSONDict = await self._of(vmid, self.client.get(self._path(vmid, "config")))
        return found

    async def list(self) -> Sequence[ListedContainer]:
        """Return those of the node that we may see."""
        found: list[JSONDict] = await self.client.get(path_of("nodes", self.node, "lxc"))
        return [
            ListedContainer(int(each["vmid"]), str(each.get("name", "")), str(each.get("status", ""))) for each in found
        ]

    async def addresses(self, vmid: int, interface: str = "") -> Sequence[str]:
        """Return its addresses, those of IPv4 first; of one *interface* where one is named."""
        found: list[JSONDict] = await self._of(vmid, self.client.get(self._path(vmid, "interfaces"))) or []
        addresses: list[str] = []
        for each in found:
            if each.get("name") == "lo" or (interface and each.get("name") != interface):
                continue
            for name in ("inet", "inet6"):
                address = str(each.get(name) or "").partition("/")[0]
                if address and not ipaddress.ip_address(address).is_link_local:
                    addresses.append(address)
        return sorted(addresses, key=lambda address: ":" in address)

    async def address(self, vmid: int, interface: str, ends: float) -> str:
        """Wait until it has an address, and return that."""
        waits = _waits()
        while True:
            found = await self.addresses(vmid, interface)
            if found:
                return found[0]
            if monotonic() >= ends:
                where = f"at {interface}" if interface else "of its own"
                raise ProxmoxError(
                    f"the container {vmid} runs, and has got no address {where} in time",
                    reason="no_address",
                    retryable=True,
                )
            await asyncio.sleep(next(waits))

    async def next_id(self, after: int = 0) -> int:
        """Return a free number, which another client may get as well; one above *after* where that was taken."""
        return max(int(await self.client.get(path_of("cluster", "nextid"))), after + 1)

    async def privileges(self, path: str) -> Collection[str] | None:
        """Return what we have on *path* of Proxmox's access control; None where it does not say."""
        try:
            found = await self.client.get(path_of("access", "permissions"), path=path)
        except ProxmoxError as error:
            if error.status in _UNKNOWING:
                return None
            raise
        held: JSONDict = found.get(path) or {}
        return held.keys()

    async def _of(self, vmid: int, asked: Awaitable[Any]) -> Any:
        """Return the answer to a request about a container. One that is gone is `no_such_container`.

        Our rights on a container that is removed are removed with it, and Proxmox looks at these first: it answers
        403. But everyone may ask it whether a number is in use.
        """
        try:
            return await asked
        except MissingPrivilegeError as error:
            if not await self._is_free(vmid):
                raise
            raise ProxmoxError(
                f"there is no container {vmid} on {self.node}, nor anywhere in the cluster",
                reason="no_such_container",
                status=error.status,
            ) from error

    async def _is_free(self, vmid: int) -> bool:
        try:
            await self.client.get(path_of("cluster", "nextid"), vmid=vmid)
        except ProxmoxError as error:
            if error.reason != "exists":
                raise
            return False
        return True

    # -- what is done with them ---------------------------------------------------------------------------------

    async def start(self, vmid: int, ends: float) -> None:
        """Start it; one that runs already is fine."""
        task = await self._done(vmid, self.client.post(self._path(vmid, "status", "start")), ends, "already_running")
        await self._followed(task, vmid, "running", ends)

    async def shutdown(self, vmid: int, grace: float, ends: float) -> None:
        """Shut it down; after *grace* seconds it is stopped hard. One that does not run is fine."""
        asked = self.client.post(self._path(vmid, "status", "shutdown"), timeout=max(1, round(grace)), forceStop=True)
        await self._followed(await self._done(vmid, asked, ends, "not_running"), vmid, "stopped", ends)

    async def stop(self, vmid: int, ends: float) -> None:
        """Stop it hard; one that does not run is fine."""
        task = await self._done(vmid, self.client.post(self._path(vmid, "status", "stop")), ends, "not_running")
        await self._followed(task, vmid, "stopped", ends)

    async def snapshot(self, vmid: int, name: str, ends: float) -> None:
        """Keep its present state as the snapshot *name*."""
        await self._done(vmid, self.client.post(self._path(vmid, "snapshot"), snapname=name), ends)

    async def rollback(self, vmid: int, name: str, ends: float) -> None:
        """Give it the state of the snapshot *name*; it does not run after that."""
        await self._done(vmid, self.client.post(self._path(vmid, "snapshot", name, "rollback")), ends)

    async def clone(self, template: int, ends: float, began: Callable[[int], None], **fields: Value) -> int:
        """Make a copy of *template* under a number that is free, and return that.

        *began* gets each number before it is tried: when this raises, or is cancelled, there may be a container of that
        number. One clone is made at a time, as a template is locked meanwhile; others may lock it, too: that is waited
        for.
        """
        path, vmid, waits = self._path(template, "clone"), 0, _waits()
        async with self._cloning:
            while True:
                pause = next(waits)
                vmid = await self.next_id(vmid)
                began(vmid)
                try:
                    task = await self._of(template, self.client.post(path, newid=vmid, **fields))
                    break
                except ProxmoxError as error:
                    if error.reason not in ("locked", "exists") or monotonic() + pause >= ends:
                        raise
                    vmid -= error.reason == "locked"  # then the number may still be free
                await asyncio.sleep(pause)
            await self.client.wait(task, ends)
        return vmid

    async def describe(self, vmid: int, notes: str) -> None:
        """Write its notes."""
        await self._of(vmid, self.client.put(self._path(vmid, "config"), description=notes))

    async def remove(
        self,
        vmid: int,
        ends: float,
        is_meant: Callable[[int], Awaitable[bool]] | None = None,
        *,
        in_the_making: bool = False,
    ) -> None:
        """Remove it, also while it runs; one that is not there is fine.

        *is_meant* is asked before each attempt whether the container of that number is still the one: others may have
        removed it, and given its number to another one. One that is *in_the_making* becomes a member of its pool when
        it is made, and is forbidden to us until then: that is waited for.
        """
        for pause in _waits():
            try:
                if is_meant is not None and not await is_meant(vmid):
                    return
                task = await self._of(vmid, self.client.delete(self._path(vmid), force=True, purge=True))
                await self.client.wait(task, ends)
                return
            except ProxmoxError as error:
                if error.reason == "no_such_container":
                    return
                waits = error.retryable or (in_the_making and error.reason == "forbidden")
                if not waits or monotonic() + pause >= ends:
                    raise
            await asyncio.sleep(pause)

    async def _done(self, vmid: int, asked: Awaitable[Any], ends: float, fine: str = "") -> str:
        """Wait for a task that is asked for, and return it; "" where there is nothing to do."""
        try:
            task = await self._of(vmid, asked)
            await self.client.wait(task, ends)
        except ProxmoxError as error:
            if error.reason != fine:
                raise
            return ""
        return str(task)

    async def _followed(self, task: str, vmid: int, state: str, ends: float) -> None:
        """Wait for the manager of high availability, whose tasks (`hastart`) end as soon as it knows what to do."""
        if ":hast" not in task:
            return
        waits = _waits()
        while await self.status(vmid) != state:
            if monotonic() >= ends:
                raise ProxmoxError(
                    f"the container {vmid}, which is managed for high availability, was not {state} in time",
                    reason="task_timeout",
                    retryable=True,
                    sent=True,
                )
            await asyncio.sleep(next(waits))


def _waits() -> Iterator[float]:
    return pauses(_FIRST_PAUSE, _LONGEST_PAUSE, factor=1.5)
