"""Clones of a template: one for each program, a pool of them, and what is left of processes that died."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from packages.remote.tests.proxmox.plain import documented
from packages.remote.tests.proxmox.stand import ONE, WAITS, stand
from packages.remote.tests.pve.cluster import ProxmoxCluster
from tests.waiting import until, until_blocking

from toolexec.errors import SandboxUnavailableError
from toolexec_remote.proxmox.owners import CloneNotes

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[4]
CLIENT = """
import asyncio, json, sys
from packages.remote.tests.tools import Workshop
from toolexec.remote import ProxmoxSettings
from toolexec_remote.proxmox.backend import ProxmoxBackend

async def main():
    backend = ProxmoxBackend(ProxmoxSettings(**json.loads(sys.argv[1])))
    shop = Workshop()
    running = asyncio.create_task(backend.execute(shop.request(sys.argv[2])))
    running.add_done_callback(lambda task: print("ended", task, file=sys.stderr, flush=True))
    await asyncio.wait({running, asyncio.create_task(shop.begun.wait())}, return_when=asyncio.FIRST_COMPLETED)
    print("runs", flush=True)
    await running
    await backend.aclose()

asyncio.run(main())
"""


async def test_each_program_has_a_clone(proxmox_node: ProxmoxCluster) -> None:
    """Two at the same time are in two containers, and both are removed after that."""
    async with stand(proxmox_node, template=900) as there:
        first, second = await asyncio.gather(there.works(), there.works())
        assert first != second
        await there.works()  # its clone may have a number that is free again
        assert proxmox_node.control("log").count("POST /nodes/pve/lxc/900/clone") == 3
    assert proxmox_node.clones() == []


async def test_clones_can_be_used_again_and_are_bounded(proxmox_node: ProxmoxCluster) -> None:
    """Fifty programs in two clones at a time, twenty programs each: never more than two, and nothing is left."""
    async with stand(proxmox_node, template=900, max_clones=2, runs_per_clone=20) as there:
        results = await asyncio.gather(*(there.run(ONE, timeout=110.0) for _ in range(50)))
        assert [result.raise_for_error().value for result in results] == [1] * 50
        used = {int((result.backend and result.backend.details["vmid"]) or 0) for result in results}
        assert there.shop.calls == {1: 50}
        clones = [line for line in proxmox_node.control("log") if line == "POST /nodes/pve/lxc/900/clone"]
        assert 3 <= len(clones) <= 4
        assert used
        assert len(await asyncio.to_thread(proxmox_node.clones)) <= 2
    assert proxmox_node.clones() == []


async def test_some_are_kept_warm(proxmox_node: ProxmoxCluster) -> None:
    """The next program finds one that runs."""
    async with stand(proxmox_node, template=900, warm=1, max_clones=2) as there:
        first = await there.works()

        async def is_warm() -> bool:
            return [vmid for vmid in await asyncio.to_thread(proxmox_node.clones) if vmid != first] != []

        await until(is_warm, 0.05)
        assert await there.works() != first
    assert proxmox_node.clones() == []


async def test_the_documented_rights_are_enough(proxmox_node: ProxmoxCluster) -> None:
    """Clones in a pool are made, used, kept and removed by a token that may do nothing else."""
    commands = [each.replace("/vms/101", "/vms/900") for each in documented("clones")]
    proxmox_node.control("pveum", afresh=True, commands=commands)
    async with stand(proxmox_node, template=900, pool="sandboxes", runs_per_clone=2) as there:
        assert (await there.backend.check()).ok
        first = await there.works()
        assert await there.works() == first
        await there.works()  # in another clone
        assert proxmox_node.control("log").count("POST /nodes/pve/lxc/900/clone") == 2
    assert proxmox_node.clones() == []


async def test_full_clones_need_no_template(proxmox_node: ProxmoxCluster) -> None:
    """A container that does not run is copied; where links are asked for, the error says what to set."""
    async with stand(proxmox_node, template=100, full_clones=True, storage="local") as there:
        assert await there.works() != 100
    async with stand(proxmox_node, template=100) as there:
        state = await there.backend.check()
        assert "not a template" in state.reason
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run()
        assert caught.value.details["reason"] == "no_linked_clone"
    assert proxmox_node.clones() == []


@pytest.mark.parametrize(
    ("fault", "reason", "retryable"),
    [
        ({"answers": {"clone": [403, "Permission check failed (/vms/900, VM.Clone)", 9]}}, "forbidden", False),
        (
            {"answers": {"clone": [500, "Configuration file 'nodes/pve/lxc/900.conf' does not exist", 9]}},
            "no_such_container",
            False,
        ),
        ({"task_failures": {"vzclone": "clone failed: No space left on device"}}, "no_space", True),
        ({"task_failures": {"vzstart": "startup for container failed"}}, "task_failed", False),
        ({"task_delays": {"vzclone": 3.0}}, "task_timeout", True),
        ({"cut": "clone"}, "lost", True),
        ({"no_address": True}, "no_address", True),
    ],
    ids=["permission", "gone", "space", "start", "slow", "cut", "address"],
)
async def test_what_keeps_a_clone_from_starting_leaves_nothing(
    proxmox_node: ProxmoxCluster, fault: dict[str, Any], reason: str, retryable: bool
) -> None:
    """Whatever was made until then is removed, also where the answer of Proxmox was lost."""
    async with stand(proxmox_node, template=900, start_timeout=1.5) as there:
        proxmox_node.control("fault", **fault)
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run(ONE)
        assert (caught.value.details["reason"], caught.value.retryable) == (reason, retryable)
        assert caught.value.outcome == "not_sent"
        assert not there.shop.calls
    assert proxmox_node.clones() == []


async def test_a_template_that_is_gone(proxmox_node: ProxmoxCluster) -> None:
    """The error says so before anything is made."""
    async with stand(proxmox_node, template=901) as there:
        assert "901" in (await there.backend.check()).reason
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run()
        assert (caught.value.details["reason"], caught.value.retryable) == ("no_such_container", False)


async def test_someone_removes_a_clone_under_a_program(proxmox_node: ProxmoxCluster) -> None:
    """The program is lost, and the next one gets another clone."""
    async with stand(proxmox_node, template=900) as there:

        def remove() -> None:
            (vmid,) = proxmox_node.clones()
            proxmox_node.api("DELETE", f"/nodes/pve/lxc/{vmid}", force=1)

        error = await there.lost(remove)
        assert error.details["reason"] in ("container_removed", "container_stopped")  # it is stopped on the way
        await there.works()


async def test_a_number_that_was_given_to_another_container_is_not_ours(proxmox_node: ProxmoxCluster) -> None:
    """The clone of that name is removed, and not the container that has its number now."""
    async with stand(proxmox_node, template=900) as there:
        running = await there.begin()
        (vmid,) = await asyncio.to_thread(proxmox_node.clones)
        await there.api("DELETE", f"/nodes/pve/lxc/{vmid}", force=1)
        proxmox_node.control("make", vmid=vmid, sandbox="bubblewrap", template=False)
        assert (await running).error is not None
    assert await asyncio.to_thread(proxmox_node.state, vmid) == "stopped"
    proxmox_node.api("DELETE", f"/nodes/pve/lxc/{vmid}")


async def test_a_lease_is_renewed(proxmox_node: ProxmoxCluster) -> None:
    """The notes of a clone in use are written again before its time is over, so that no other process removes it."""
    async with stand(proxmox_node, template=900, lease=1.5) as there, stand(proxmox_node, template=900) as other:
        running = await there.begin()
        (vmid,) = await asyncio.to_thread(proxmox_node.clones)
        before = await there.api("GET", f"/nodes/pve/lxc/{vmid}/config")

        async def is_renewed() -> bool:
            return bool(
                (await there.api("GET", f"/nodes/pve/lxc/{vmid}/config"))["description"] != before["description"]
            )

        await until(is_renewed, 0.05)
        assert await other.backend.sweep() == []
        there.shop.gate.set()
        assert (await running).raise_for_error().value == 7


async def test_clones_of_silent_machines_are_removed(proxmox_node: ProxmoxCluster) -> None:
    """Those whose time is over are; those of others that live, and containers of people, are not."""
    old = CloneNotes(name="toolexec-old", until=1000, owner="feedfacefeedface-1-1").text()
    alive = CloneNotes(name="toolexec-new", until=99_999_999_999, owner="feedfacefeedface-1-1").text()
    for vmid, name, notes in ((300, "toolexec-old", old), (301, "toolexec-new", alive), (302, "toolexec-x", "mine")):
        proxmox_node.api("POST", "/nodes/pve/lxc/900/clone", newid=vmid, hostname=name, description=notes)
    async with stand(proxmox_node, template=900) as there:
        assert await there.backend.sweep() == [300]
    assert sorted(proxmox_node.clones()) == [301, 302]
    for vmid in (301, 302):
        proxmox_node.api("DELETE", f"/nodes/pve/lxc/{vmid}")


async def test_what_is_left_is_removed_without_being_asked(proxmox_node: ProxmoxCluster) -> None:
    """The first program of a process has the clones looked at."""
    notes = CloneNotes(name="toolexec-old", until=1000, owner="feedfacefeedface-1-1").text()
    proxmox_node.api("POST", "/nodes/pve/lxc/900/clone", newid=300, hostname="toolexec-old", description=notes)
    async with stand(proxmox_node, template=900) as there:
        await there.works()

        async def is_gone() -> bool:
            return await there.state(300) == ""

        await until(is_gone, 0.05)


def _is_wanted(line: str, wanted: str) -> bool:
    return line.endswith(wanted) if wanted else line.startswith("DELETE")


@pytest.mark.parametrize("state", ["cloning", "starting", "connecting", "running", "removing"])
async def test_what_a_killed_client_leaves_is_removed_by_the_next_one(proxmox_node: ProxmoxCluster, state: str) -> None:
    """SIGKILL in each state: the next process removes the clone as soon as Proxmox has unlocked it."""
    delays = {"cloning": {"vzclone": 1.0}, "starting": {"vzstart": 1.0}, "removing": {"vzdestroy": 1.0}}.get(state, {})
    proxmox_node.control("fault", task_delays=delays, no_address=state == "connecting")
    settings = json.dumps(asdict(proxmox_node.settings(template=900)))
    words = [sys.executable, "-c", CLIENT, settings, "return 1" if state == "removing" else WAITS]
    process = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        if state == "running":
            assert await asyncio.to_thread(process.stdout.readline) == b"runs\n"
        else:
            wanted = {"cloning": "/clone", "starting": "/status/start", "connecting": "/interfaces", "removing": ""}[
                state
            ]
            await asyncio.to_thread(
                until_blocking, lambda: any(_is_wanted(line, wanted) for line in proxmox_node.control("log")), 0.02
            )
        assert process.poll() is None
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        process.stdout.close()
    (left,) = await asyncio.to_thread(proxmox_node.clones)
    if state == "removing":  # Proxmox goes on without us
        await asyncio.to_thread(until_blocking, lambda: not proxmox_node.clones(), 0.05)
        return
    async with stand(proxmox_node, template=900) as there:
        assert await there.backend.sweep() == [left]
    assert proxmox_node.clones() == []
