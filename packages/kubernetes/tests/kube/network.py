"""The network of the node: a bridge that pods are on, or not, as the NetworkPolicies say and the switch lets them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from packages.kubernetes.tests.kube.linux import command
from packages.kubernetes.tests.kube.objects import Object, selector_matches

Policies = Callable[[str], Awaitable[list[Object]]]
"""Gives the NetworkPolicies of a namespace."""


@dataclass
class PodNetwork:
    """A pod's network namespace: `path` is what containers join; `link` is its end on the host."""

    name: str
    link: str
    address: str
    path: str = ""
    is_up: bool = field(default=False)


def egress_of(pod: Object, policies: list[Object]) -> list[str] | None:
    """Return what *pod* may reach by the policies of its namespace: None for everything, else networks (CIDR).

    Rules that select pods and namespaces let nothing out here, and ports are not looked at: no test has them.
    """
    labels = pod["metadata"].get("labels") or {}
    isolating = [each["spec"] for each in policies if _isolates(each["spec"], labels)]
    if not isolating:
        return None
    reached: list[str] = []
    for spec in isolating:
        for rule in spec.get("egress") or []:
            if not rule.get("to"):
                return None
            reached += [peer["ipBlock"]["cidr"] for peer in rule["to"] if "ipBlock" in peer]
    return reached


def _isolates(spec: Object, labels: dict[str, str]) -> bool:
    types = spec.get("policyTypes") or (["Ingress"] + (["Egress"] if "egress" in spec else []))
    return "Egress" in types and selector_matches(spec.get("podSelector") or {}, labels)


class Network:
    """The bridge of one node, for addresses that begin with *prefix*; *policies* gives those that are to hold."""

    def __init__(self, prefix: str, policies: Policies) -> None:
        self.mark = secrets.token_hex(2)
        self._prefix = prefix
        self._bridge = f"txk{self.mark}"
        self._policies = policies
        self._next = 1
        self._pods: dict[str, tuple[Object, PodNetwork]] = {}
        self._making: dict[str, asyncio.Future[PodNetwork]] = {}
        self._lock = asyncio.Lock()
        self.is_enforcing = True

    @property
    def address(self) -> str:
        """Return the address of the node for pods."""
        return f"{self._prefix}.1"

    async def open(self) -> None:
        """Make the bridge; raises OSError."""
        # Without an address of its own it would take that of a pod, and with another pod another one: ARP would be wrong.
        own = f"02:00:0a:{self.mark[:2]}:{self.mark[2:]}:01"
        lines = f"link add {self._bridge} address {own} type bridge\naddr add {self.address}/24 dev {self._bridge}\n"
        await command("ip", "-batch", "-", stdin=f"{lines}link set {self._bridge} up\n")

    async def connect(self, pod: Object) -> PodNetwork | None:
        """Return the network of a new pod; None for one container that may reach nothing, whose namespace runc makes.

        A cancelled one is made all the same: `disconnect` removes it.
        """
        reached = await self._egress(pod)
        if reached == [] and len(pod["spec"]["containers"]) == 1:
            return None
        making = asyncio.ensure_future(self._connect(pod, reached))
        self._making[pod["metadata"]["uid"]] = making
        return await asyncio.shield(making)

    async def _connect(self, pod: Object, reached: list[str] | None) -> PodNetwork:
        async with self._lock:
            self._next += 1
            number = self._next
        name = f"txk{self.mark}-{number}"
        found = PodNetwork(name, f"tx{self.mark}{number}", f"{self._prefix}.{number % 250 + 2}", f"/run/netns/{name}")
        await command("ip", "netns", "add", name)
        try:
            await self._wire(found, reached)
        except OSError:
            await self._delete(found)
            raise
        found.is_up = reached != []
        self._pods[pod["metadata"]["uid"]] = (pod, found)
        return found

    async def _wire(self, found: PodNetwork, reached: list[str] | None) -> None:
        if reached == []:  # its containers reach each other
            await command("ip", "-n", found.name, "link", "set", "lo", "up")
            return
        ends = f"link add {found.link} type veth peer name eth0 netns {found.name}\n"
        await command("ip", "-batch", "-", stdin=f"{ends}link set {found.link} master {self._bridge} up\n")
        lines = ["link set lo up", f"addr add {found.address}/32 dev eth0", "link set eth0 up"]
        if reached is None:
            lines += [f"route add {self.address} dev eth0", f"route add default via {self.address}"]
        else:
            lines += [f"route add {each} dev eth0" for each in reached]
        await command("ip", "-n", found.name, "-batch", "-", stdin="\n".join(lines) + "\n")
        await command("ip", "route", "replace", f"{found.address}/32", "dev", self._bridge)

    async def _egress(self, pod: Object) -> list[str] | None:
        return egress_of(pod, await self._policies(pod["metadata"]["namespace"])) if self.is_enforcing else None

    async def refresh(self) -> None:
        """Cut off, or connect again, the pods that run: policies hold from the moment that they are there."""
        for pod, found in [*self._pods.values()]:
            wanted = await self._egress(pod) != []
            if wanted != found.is_up:
                found.is_up = wanted
                with suppress(OSError):
                    await command("ip", "link", "set", found.link, "up" if wanted else "down")

    async def disconnect(self, uid: str) -> None:
        """Remove the network of a pod."""
        making = self._making.pop(uid, None)
        if making is not None:
            with suppress(OSError):
                await making
        _, found = self._pods.pop(uid, (None, None))
        if found is not None:
            await self._delete(found)

    async def _delete(self, found: PodNetwork) -> None:
        with suppress(OSError):
            await command("ip", "link", "del", found.link)
        with suppress(OSError):
            await command("ip", "netns", "del", found.name)

    async def close(self) -> None:
        """Remove everything."""
        for uid in [*self._pods]:
            await self.disconnect(uid)
        with suppress(OSError):
            await command("ip", "link", "del", self._bridge)

    def left(self) -> list[str]:
        """Return the namespaces and links of this node that are there beside those of pods that run."""
        known = {each.name for _, each in self._pods.values()} | {each.link for _, each in self._pods.values()}
        found = [path.name for path in Path("/run/netns").glob(f"txk{self.mark}-*")]
        found += [path.name for path in Path("/sys/class/net").glob(f"tx{self.mark}*")]
        return [each for each in found if each not in known]
