"""The API of Proxmox VE in the process of a test, with rights that commands of `pveum` set up, and no real containers."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any, Final

from packages.remote.tests.pve.access import Access
from packages.remote.tests.pve.plain import PlainNode
from packages.remote.tests.pve.server import Api, answering
from tests.engines.certificates import make_certificates

from toolexec.remote import ProxmoxSettings
from toolexec_remote.proxmox.client import ProxmoxClient
from toolexec_remote.proxmox.clones import ClonePool
from toolexec_remote.proxmox.containers import Containers

_PAGE: Final = Path(__file__).parents[2] / "proxmox.md"
ONE: dict[str, Any] = {"vmid": 101}
CLONES: dict[str, Any] = {"template": 101, "pool": "sandboxes"}


def documented(kind: str) -> list[str]:
    """Return the commands of `pveum` that the page has for `container` or for `clones`."""
    blocks = re.findall(r"^```console$(.*?)^```$", _PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    found = [re.findall(r"^\$ (pveum .*)$", block, re.MULTILINE) for block in blocks]
    container, clones = [each for each in found if each]
    return {"container": container, "clones": clones}[kind]


@asynccontextmanager
async def plain_api(
    directory: Path, commands: Iterable[str], **fields: Any
) -> AsyncGenerator[tuple[Api, ProxmoxSettings]]:
    """Give the API with the container or template 101 and these rights, and the settings of a client."""
    tls = directory / "tls"
    if not tls.exists():
        make_certificates(tls)
    node = PlainNode()
    node.create(101, template="template" in fields)
    api = Api(node)
    api.access = Access([*commands])
    async with answering(api, tls) as port:
        given: dict[str, Any] = {
            "url": f"https://localhost:{port}",
            "token_id": "agents@pve!toolexec",
            "token_secret": api.access.tokens["agents@pve!toolexec"],
            "ca_file": str(tls / "ca.pem"),
            "node": "pve",
            "key_id": "tests",
            "runtime_token": "a token of the tests",
            "poll": 0.05,
            "watch": 0.05,
        }
        yield api, ProxmoxSettings(**{**given, **fields})


async def live_as_container(settings: ProxmoxSettings) -> None:
    """Do with a container all that the backend does. Raises ProxmoxError."""
    client, ends = ProxmoxClient(settings), monotonic() + 30.0
    try:
        containers = Containers(client)
        assert await containers.status(101) == "stopped"
        await containers.start(101, ends)
        assert await containers.address(101, "", ends) == "127.0.0.1"
        await containers.shutdown(101, 1.0, ends)
        assert await containers.status(101) == "stopped"
    finally:
        await client.aclose()


async def live_as_clone(settings: ProxmoxSettings) -> None:
    """Do with a clone all that the backend does, from the look at its template to its removal. Raises ProxmoxError."""
    client, ends = ProxmoxClient(settings), monotonic() + 30.0
    try:
        containers = Containers(client)
        await ClonePool(containers, "proxmox_lxc").verify()
        pool = {"pool": settings.pool} if settings.pool else {}
        vmid = await containers.clone(101, ends, lambda _: None, hostname="toolexec-0a", full=False, **pool)
        assert "toolexec-0a" in [each.name for each in await containers.list()]
        await containers.start(vmid, ends)
        assert await containers.address(vmid, "", ends) == "127.0.0.1"
        await containers.describe(vmid, "in use")
        assert (await containers.config(vmid))["description"] == "in use"
        await containers.remove(vmid, ends)
        assert await containers.status(vmid) == "gone"
    finally:
        await client.aclose()
