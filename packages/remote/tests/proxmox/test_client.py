"""The client of Proxmox VE's API: tokens, tickets, certificates, tasks, and an API that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic, time
from typing import Any

import pytest
from packages.remote.tests.pve.cluster import ProxmoxCluster

from toolexec.errors import ConfigurationError, SecretError
from toolexec_remote.proxmox.client import ProxmoxClient
from toolexec_remote.proxmox.containers import Containers
from toolexec_remote.proxmox.failures import ProxmoxError

pytestmark = pytest.mark.full

USER: dict[str, Any] = {"username": "agents@pve", "password": "pw-of-agents"}
STATUS = "/nodes/pve/lxc/100/status/current"


@asynccontextmanager
async def client(node: ProxmoxCluster, renew: float = 6000.0, **fields: Any) -> AsyncGenerator[ProxmoxClient]:
    """Give a client of the API."""
    made = ProxmoxClient(node.settings(vmid=100, **fields), renew=renew)
    try:
        yield made
    finally:
        await made.aclose()


async def refused(node: ProxmoxCluster, path: str = STATUS, **fields: Any) -> ProxmoxError:
    """Return the error of a request."""
    async with client(node, **fields) as made:
        with pytest.raises(ProxmoxError) as caught:
            await made.get(path)
    return caught.value


@pytest.mark.parametrize("trust", ["ca_file", "fingerprint"])
async def test_a_token_is_enough(proxmox_node: ProxmoxCluster, trust: str) -> None:
    """The certificate is checked by its authority, or by its fingerprint."""
    fields: dict[str, Any] = {"fingerprint": proxmox_node.fingerprint} if trust == "fingerprint" else {}
    async with client(proxmox_node, **fields) as made:
        assert (await made.get(STATUS))["status"] == "stopped"
        assert abs(made.now() - time()) < 60


@pytest.mark.parametrize("fields", [{"fingerprint": "ab" * 32}, {"ca_file": ""}], ids=["other", "system"])
async def test_another_certificate_is_not_accepted(proxmox_node: ProxmoxCluster, fields: dict[str, Any]) -> None:
    """Nothing is sent to it, least of all the secret."""
    error = await refused(proxmox_node, **fields)
    assert (error.reason, error.retryable) == ("certificate", False)
    assert proxmox_node.control("log") == []


async def test_a_user_gets_one_ticket_for_all_requests(proxmox_node: ProxmoxCluster) -> None:
    """Requests at the same time log in once; writing has the token against forgery."""
    async with client(proxmox_node, **USER) as made:
        await asyncio.gather(*(made.get(STATUS) for _ in range(8)))
        await Containers(made).describe(100, "by a ticket")
        assert made.logins == 1
    assert proxmox_node.api("GET", "/nodes/pve/lxc/100/config")["description"] == "by a ticket"


async def test_a_ticket_is_renewed_in_time(proxmox_node: ProxmoxCluster) -> None:
    """A ticket renews itself: the password is not needed again."""
    async with client(proxmox_node, renew=0.05, **USER) as made:
        await made.get(STATUS)
        proxmox_node.control("access", passwords={"root@pam": "pw-of-root"})
        await asyncio.sleep(0.06)
        await made.get(STATUS)
        assert made.logins == 2


async def test_a_ticket_that_has_expired_is_replaced(proxmox_node: ProxmoxCluster) -> None:
    """A refusal of the ticket costs one more login, and the caller notices nothing; also when it writes."""
    proxmox_node.control("access", ticket_seconds=0.2)
    async with client(proxmox_node, **USER) as made:
        await made.get(STATUS)
        await asyncio.sleep(0.3)
        await Containers(made).describe(100, "once more")
        await asyncio.sleep(0.3)
        await asyncio.gather(*(made.get(STATUS) for _ in range(4)))
        assert made.logins == 3


@pytest.mark.parametrize(
    "fields",
    [{"token_secret": "0" * 8}, {"token_id": "agents@pve!other"}, {**USER, "password": "wrong"}],
    ids=["secret", "token", "password"],
)
async def test_a_wrong_key_is_refused(
    proxmox_node: ProxmoxCluster, fields: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The error says what to look at, and no secret is in it or in the log."""
    with caplog.at_level(logging.DEBUG):
        error = await refused(proxmox_node, **fields)
    assert (error.reason, error.status, error.retryable) == ("auth", 401, False)
    for secret in ("0" * 8, "wrong", "11111111-2222"):
        assert secret not in error.message
        assert secret not in caplog.text


async def test_a_key_that_is_taken_away_is_refused(proxmox_node: ProxmoxCluster) -> None:
    """A client that has worked gets the same error from then on."""
    async with client(proxmox_node) as made:
        await made.get(STATUS)
        proxmox_node.control("access", tokens={})
        with pytest.raises(ProxmoxError, match="no such token"):
            await made.get(STATUS)


async def test_references_are_resolved_late(proxmox_node: ProxmoxCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret that is not there is an error of the first request."""
    fields: dict[str, Any] = {"token_secret": "secretref:env:PVE_SECRET_OF_TESTS"}
    async with client(proxmox_node, **fields) as made:
        with pytest.raises(SecretError, match="PVE_SECRET_OF_TESTS"):
            await made.get(STATUS)
    monkeypatch.setenv("PVE_SECRET_OF_TESTS", "11111111-2222-3333-4444-555555555555")
    async with client(proxmox_node, **fields) as made:
        await made.get(STATUS)


async def test_certificates_that_cannot_be_read_are_a_mistake(proxmox_node: ProxmoxCluster) -> None:
    """The message names them."""
    async with client(proxmox_node, ca_file=str(proxmox_node.log)) as made:
        with pytest.raises(ConfigurationError, match="certificates of Proxmox"):
            await made.get(STATUS)


@pytest.mark.parametrize("old", [False, True], ids=["message", "status line"])
async def test_refusals_are_understood(proxmox_node: ProxmoxCluster, old: bool) -> None:
    """Newer versions have the message in the body, older ones in the status line alone."""
    proxmox_node.control("fault", old=old)
    error = await refused(proxmox_node, "/nodes/pve/lxc/4711/status/current")
    assert (error.reason, error.status) == ("no_such_container", 500)
    assert "4711" in error.message
    assert (await refused(proxmox_node, "/nodes/pve9/lxc")).reason == "no_such_node"
    assert (await refused(proxmox_node, "/nodes/pve2/lxc")).reason == "node_down"
    assert (await refused(proxmox_node, "/nodes/pve/lxc/12/config")).reason == "invalid"
    assert (await refused(proxmox_node, "/no/such/path")).reason == "not_found"
    proxmox_node.control("access", denied=["VM.Audit"])
    error = await refused(proxmox_node)
    assert (error.reason, error.status) == ("forbidden", 403)
    assert "VM.Audit" in error.message


async def test_what_is_asked_is_asked_again(proxmox_node: ProxmoxCluster) -> None:
    """A node that is away for a moment does not matter to a question; to a command it does."""
    proxmox_node.control("fault", answers={"status/current": [596, "Broken pipe", 2], "start": [596, "Broken pipe", 1]})
    async with client(proxmox_node) as made:
        assert (await made.get(STATUS))["status"] == "stopped"
        with pytest.raises(ProxmoxError) as caught:
            await Containers(made).start(100, monotonic() + 30)
    assert (caught.value.reason, caught.value.retryable, caught.value.sent) == ("node_down", True, True)
    assert proxmox_node.control("log").count(f"GET {STATUS}") == 3


async def test_an_api_that_hangs_or_is_not_there(proxmox_node: ProxmoxCluster) -> None:
    """Both may be tried again; the first may have done something."""
    proxmox_node.control("fault", delays={"status/current": 5.0})
    error = await refused(proxmox_node, timeout=0.2)
    assert (error.reason, error.retryable, error.sent) == ("no_answer", True, True)
    error = await refused(proxmox_node, url="https://localhost:1")
    assert (error.reason, error.retryable, error.sent) == ("unreachable", True, False)


async def test_a_connection_that_breaks(proxmox_node: ProxmoxCluster) -> None:
    """A command that got no answer may have been carried out."""
    proxmox_node.control("fault", cut="PUT")
    async with client(proxmox_node) as made:
        with pytest.raises(ProxmoxError) as caught:
            await Containers(made).describe(100, "it was written")
    assert (caught.value.reason, caught.value.sent) == ("lost", True)
    assert proxmox_node.api("GET", "/nodes/pve/lxc/100/config")["description"] == "it was written"


async def test_tasks_are_waited_for(proxmox_node: ProxmoxCluster) -> None:
    """One that fails says why, one that takes too long that it may go on, and warnings are not failures."""
    async with client(proxmox_node) as made:
        containers = Containers(made)
        proxmox_node.control("fault", task_failures={"vzstart": "startup for container '100' failed"})
        with pytest.raises(ProxmoxError, match=r"startup for container .*its log ends: vzstart of CT 100") as caught:
            await containers.start(100, monotonic() + 30)
        assert caught.value.reason == "task_failed"
        proxmox_node.control("fault", task_failures={"vzstart": "WARNINGS: 1"})
        await containers.start(100, monotonic() + 30)
        proxmox_node.control("fault", task_failures={}, task_delays={"vzstart": 1.0})
        with pytest.raises(ProxmoxError, match="may go on") as caught:
            await containers.start(100, monotonic() + 0.1)
        assert (caught.value.reason, caught.value.retryable) == ("task_timeout", True)


async def test_a_container_from_its_clone_to_its_end(proxmox_node: ProxmoxCluster) -> None:
    """Clone, start, address, snapshot, rollback, shutdown, removal: each is done when it returns."""
    async with client(proxmox_node) as made:
        containers, ends, tried = Containers(made), monotonic() + 60, list[int]()
        vmid = await containers.clone(900, ends, tried.append, hostname="toolexec-life", full=True)
        assert tried == [vmid]
        await containers.snapshot(vmid, "clean", ends)
        await containers.start(vmid, ends)
        await containers.start(vmid, ends)  # is fine
        assert await containers.status(vmid) == "running"
        address = await containers.address(vmid, "eth0", ends)
        assert list(await containers.addresses(vmid)) == [address]
        assert await containers.addresses(vmid, "eth1") == []
        await containers.rollback(vmid, "clean", ends)
        assert await containers.status(vmid) == "stopped"
        await containers.stop(vmid, ends)  # is fine
        await containers.start(vmid, ends)
        await containers.shutdown(vmid, 5, ends)
        assert await containers.status(vmid) == "stopped"
        with pytest.raises(ProxmoxError, match="snapshot 'other' does not exist"):
            await containers.rollback(vmid, "other", ends)
        await containers.remove(vmid, ends)
        await containers.remove(vmid, ends)  # is fine
        assert await containers.status(vmid) == "gone"


async def test_clones_at_the_same_time_get_numbers_of_their_own(proxmox_node: ProxmoxCluster) -> None:
    """Two clients ask for the same number and the same template, which is locked meanwhile: both get a clone."""
    proxmox_node.control("fault", task_delays={"vzclone": 0.3})
    async with client(proxmox_node) as one, client(proxmox_node) as two:
        ends = monotonic() + 60
        made = await asyncio.gather(
            *(Containers(each).clone(900, ends, lambda _: None, hostname="toolexec-x") for each in (one, two))
        )
        assert len({*made}) == 2
        for vmid in made:
            await Containers(one).remove(vmid, ends)
