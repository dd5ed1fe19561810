"""One container of Proxmox VE: started when it is needed, shared, stopped when it is not, rolled back, taken away."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from packages.remote.tests.proxmox.stand import ONE, stand
from packages.remote.tests.pve.cluster import ProxmoxCluster
from tests.waiting import until

from toolexec.errors import (
    ClosedError,
    LimitNotEnforceableError,
    SandboxFailedError,
    SandboxUnavailableError,
    SecretError,
)
from toolexec.runtime import Runtime, doctor
from toolexec.sandbox import Limits
from toolexec_remote.proxmox.backend import ProxmoxBackend

pytestmark = pytest.mark.full

LXC = "/nodes/pve/lxc/100"


async def test_it_is_started_and_says_where_the_program_ran(proxmox_node: ProxmoxCluster) -> None:
    """Tools are here, the program is there; limits are those of the sandbox inside."""
    async with stand(proxmox_node) as there:
        result = (await there.run("print('out')\n" + ONE)).raise_for_error()
        held = there.backend.enforces(there.shop.request("return 1"))
        state = await there.state()
    assert (result.value, result.stdout, there.shop.calls) == (1, "out\n", {1: 1})
    assert result.backend is not None
    assert (result.backend.kind, result.backend.isolation) == ("proxmox_lxc", "container")
    assert result.backend.details["node"] == "pve"
    assert result.backend.details["vmid"] == 100
    assert result.backend.details["inner"]["kind"] == "bubblewrap"
    assert result.limits_enforced == held
    assert held.memory
    assert held.pids
    assert state == "running"  # never stopped, unless that is asked for
    assert await asyncio.to_thread(proxmox_node.state, 100) == "running"


async def test_many_programs_start_it_once(proxmox_node: ProxmoxCluster) -> None:
    """Twelve programs at the same time share one start and one connection, and one stop after the last."""
    async with stand(proxmox_node, auto_stop="started", linger=0.0) as there:
        results = await asyncio.gather(*(there.run(ONE) for _ in range(12)))
        assert [result.raise_for_error().value for result in results] == [1] * 12
        assert there.starts() == 1
        assert there.shop.calls == {1: 12}
    assert await asyncio.to_thread(proxmox_node.state, 100) == "stopped"
    assert sum(line.endswith("/shutdown") for line in proxmox_node.control("log")) == 1


async def test_it_is_not_stopped_while_a_program_runs(proxmox_node: ProxmoxCluster) -> None:
    """The first program that ends leaves it to the other one."""
    async with stand(proxmox_node, auto_stop="always", linger=0.0) as there:
        running = await there.begin()
        assert await there.works() == 100
        assert await there.state() == "running"
        there.shop.gate.set()
        assert (await running).raise_for_error().value == 7


@pytest.mark.parametrize(
    ("how", "ran", "after"),
    [("never", False, "running"), ("started", True, "running"), ("always", True, "stopped")],
)
async def test_it_is_stopped_as_the_settings_say(proxmox_node: ProxmoxCluster, how: str, ran: bool, after: str) -> None:
    """One that ran before is stopped only with `always`."""
    if ran:
        await asyncio.to_thread(proxmox_node.api, "POST", f"{LXC}/status/start")
    async with stand(proxmox_node, auto_stop=how) as there:
        await there.works()
        assert await there.state() == "running"  # it lingers
    assert await asyncio.to_thread(proxmox_node.state, 100) == after


async def test_one_that_lingers_is_used_again(proxmox_node: ProxmoxCluster) -> None:
    """Programs one after the other share a start; after the last one it stops by itself."""
    async with stand(proxmox_node, auto_stop="started", linger=0.3) as there:
        for _ in range(3):
            await there.works()
        assert there.starts() == 1

        async def stopped() -> bool:
            return await there.state() == "stopped"

        await until(stopped, 0.05)
        await there.works()
        assert there.starts() == 2


async def test_it_stays_while_others_run_programs_in_it(proxmox_node: ProxmoxCluster) -> None:
    """The runtime says so; the last of them stops it, if that has it stopped always."""
    async with stand(proxmox_node, auto_stop="always") as there:
        running = await there.begin()
        async with stand(proxmox_node, auto_stop="always") as other:
            await other.works()
        assert await there.state() == "running"
        there.shop.gate.set()
        assert (await running).raise_for_error().value == 7
    assert await asyncio.to_thread(proxmox_node.state, 100) == "stopped"


async def test_it_is_not_started_where_that_is_off(proxmox_node: ProxmoxCluster) -> None:
    """The container is looked at all the same: the error says that it does not run."""
    async with stand(proxmox_node, auto_start=False) as there:
        state = await there.backend.check()
        assert not state.ok
        assert "auto_start" in state.reason
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run()
        assert caught.value.details == {"reason": "not_running", "status": 0, "node": "pve", "vmid": 100}
        assert (caught.value.outcome == "not_sent", caught.value.retryable) == (True, False)
        assert there.starts() == 0
        await there.api("POST", f"{LXC}/status/start")
        await there.works()


async def test_each_program_finds_the_snapshot(proxmox_node: ProxmoxCluster) -> None:
    """Whatever was written in the container is gone; programs take turns."""
    await asyncio.to_thread(proxmox_node.api, "POST", f"{LXC}/snapshot", snapname="clean")
    marked = proxmox_node.directory / "volumes/100/rootfs/var/tmp/marked"
    async with stand(proxmox_node, rollback="clean", auto_stop="started") as there:
        await there.works()
        marked.touch()
        results = await asyncio.gather(there.run(), there.run())
        assert [result.raise_for_error().value for result in results] == [42, 42]
        assert not marked.exists()
        assert there.starts() == 3
    assert await asyncio.to_thread(proxmox_node.state, 100) == "stopped"


@pytest.mark.parametrize("how", ["stop", "shutdown"])
async def test_someone_stops_it_under_a_program(proxmox_node: ProxmoxCluster, how: str) -> None:
    """The error says so within moments, and the next program starts it again."""
    async with stand(proxmox_node) as there:
        error = await there.lost(lambda: proxmox_node.api("POST", f"{LXC}/status/{how}"))
        assert (error.details["reason"], error.retryable) == ("container_stopped", False)
        there.shop.gate.set()
        await there.works()
        assert there.starts() == 2


async def test_someone_removes_it_under_a_program(proxmox_node: ProxmoxCluster) -> None:
    """After that there is nothing to start."""
    proxmox_node.control("make", vmid=150, sandbox="bubblewrap", template=False)
    async with stand(proxmox_node, vmid=150) as there:
        error = await there.lost(lambda: proxmox_node.api("DELETE", "/nodes/pve/lxc/150", force=1))
        assert error.details["reason"] in ("container_removed", "container_stopped")  # it is stopped on the way
        with pytest.raises(SandboxUnavailableError, match="no container 150") as caught:
            await there.run()
        assert caught.value.details["reason"] == "no_such_container"


async def test_someone_stops_it_between_two_programs(proxmox_node: ProxmoxCluster) -> None:
    """The container is started again, and nothing is noticed."""
    async with stand(proxmox_node) as there:
        await there.works()
        await there.api("POST", f"{LXC}/status/stop")
        await there.works()
        assert there.starts() == 2


async def test_it_comes_back_with_another_address(proxmox_node: ProxmoxCluster) -> None:
    """Someone starts it again between two programs, and it is found where it is now."""
    async with stand(proxmox_node) as there:
        await there.works()
        await there.api("POST", f"{LXC}/status/stop")
        proxmox_node.control("move", vmid=100)
        await there.api("POST", f"{LXC}/status/start")
        await there.works()
        assert there.starts() == 2


async def test_one_that_is_managed_for_high_availability(proxmox_node: ProxmoxCluster) -> None:
    """The tasks of its manager end before it runs, or stops: that is waited for."""
    proxmox_node.control("fault", ha=0.5)
    async with stand(proxmox_node, auto_stop="started") as there:
        await there.works()
    assert await asyncio.to_thread(proxmox_node.state, 100) == "stopped"


async def test_a_secret_that_is_not_there(proxmox_node: ProxmoxCluster) -> None:
    """The error names it, for programs and for the check."""
    fields = {"token_secret": "secretref:env:PVE_SECRET_OF_TESTS", "auto_stop": "started"}
    async with stand(proxmox_node, **fields) as there:
        with pytest.raises(SecretError, match="PVE_SECRET_OF_TESTS"):
            await there.run()
        assert "PVE_SECRET_OF_TESTS" in (await there.backend.check()).reason


async def test_an_api_that_is_down_harms_no_program(proxmox_node: ProxmoxCluster) -> None:
    """The program that runs goes on; the next one cannot be sure that its container is there, and is run if it is."""
    async with stand(proxmox_node, timeout=0.3) as there:
        running = await there.begin()
        proxmox_node.control("fault", answers={"status/current": [596, "Broken pipe", 1000]})
        await there.works()
        there.shop.gate.set()
        assert (await running).raise_for_error().value == 7


@pytest.mark.parametrize(
    ("fault", "reason", "retryable"),
    [
        (
            {"answers": {"status/start": [403, "Permission check failed (/vms/100, VM.PowerMgmt)", 9]}},
            "forbidden",
            False,
        ),
        ({"answers": {"status": [401, "permission denied - invalid PVE ticket", 9]}}, "auth", False),
        ({"answers": {"": [595, "No route to host", 99]}}, "node_down", True),
        ({"delays": {"status/current": 3.0}}, "no_answer", True),
        ({"task_failures": {"vzstart": "startup for container '100' failed"}}, "task_failed", False),
        ({"task_delays": {"vzstart": 2.0}}, "task_timeout", True),
        ({"no_address": True}, "no_address", True),
    ],
    ids=["permission", "auth", "node", "slow", "task", "start", "address"],
)
async def test_what_keeps_it_from_starting_has_a_word(
    proxmox_node: ProxmoxCluster, fault: dict[str, Any], reason: str, retryable: bool
) -> None:
    """Nothing has run, a retry is worth it or not, and without the fault it works."""
    async with stand(proxmox_node, timeout=1.0, start_timeout=1.5) as there:
        proxmox_node.control("fault", **fault)
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run(ONE)
        assert (caught.value.details["reason"], caught.value.retryable) == (reason, retryable)
        assert caught.value.outcome == "not_sent"
        assert caught.value.backend == "proxmox_lxc"
        assert not there.shop.calls
    proxmox_node.control("reset")
    async with stand(proxmox_node) as there:
        await there.works()


async def test_a_lock_is_worth_another_try(proxmox_node: ProxmoxCluster) -> None:
    """A backup is under way: the error names the lock."""
    proxmox_node.control("lock", vmid=100, lock="backup")
    async with stand(proxmox_node) as there:
        with pytest.raises(SandboxUnavailableError, match="backup") as caught:
            await there.run()
        assert (caught.value.details["reason"], caught.value.retryable) == ("locked", True)
        proxmox_node.control("lock", vmid=100, lock="")
        await there.works()


@pytest.mark.parametrize(
    ("broken", "reason", "retryable"), [("silent", "runtime_silent", True), ("exits", "stopped_again", False)]
)
async def test_a_container_without_a_runtime(
    proxmox_node: ProxmoxCluster, broken: str, reason: str, retryable: bool
) -> None:
    """The container starts, and nothing listens in it, or it stops at once; it is stopped again, as we have started it."""
    vmid = {"silent": 151, "exits": 152}[broken]
    proxmox_node.control("make", vmid=vmid, sandbox="bubblewrap", template=False, broken=broken)
    async with stand(proxmox_node, vmid=vmid, start_timeout=1.5, auto_stop="started") as there:
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run()
        assert (caught.value.details["reason"], caught.value.retryable) == (reason, retryable)
    assert await asyncio.to_thread(proxmox_node.state, vmid) == "stopped"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [({"runtime_token": "x" * 20}, "runtime_refused"), ({"sandbox": "wasm"}, "runtime_unfit")],
)
async def test_a_runtime_that_is_another_one(proxmox_node: ProxmoxCluster, fields: dict[str, Any], reason: str) -> None:
    """A key that it does not know, or a sandbox that it does not have, is known before the time is over."""
    async with stand(proxmox_node, **fields) as there:
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run()
        assert (caught.value.details["reason"], caught.value.retryable) == (reason, False)
        assert not (await there.backend.check()).ok


async def test_a_caller_that_does_not_wait_leaves_the_start_to_the_next_one(proxmox_node: ProxmoxCluster) -> None:
    """The time limit of the program holds; the container comes up, once."""
    proxmox_node.control("fault", task_delays={"vzstart": 0.5})
    async with stand(proxmox_node) as there:
        with pytest.raises(SandboxUnavailableError) as caught:
            await there.run(timeout=0.2)
        assert (caught.value.details["reason"], caught.value.retryable) == ("start_timeout", True)
        await there.works()
        assert there.starts() == 1


async def test_a_caller_that_gives_up_frees_it(proxmox_node: ProxmoxCluster) -> None:
    """Cancelled while it waits, and while it runs: the count is right, and it stops after both."""
    async with stand(proxmox_node, auto_stop="started", linger=0.0) as there:
        waiting = asyncio.create_task(there.run())
        await until(lambda: there.starts() == 1, 0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        running = await there.begin()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: there.shop.stopped == 1)
    assert await asyncio.to_thread(proxmox_node.state, 100) == "stopped"


async def test_closing_ends_what_runs(proxmox_node: ProxmoxCluster) -> None:
    """The program is stopped, its caller gets an error, and the container stopped."""
    async with stand(proxmox_node, auto_stop="started") as there:
        running = await there.begin()
        await there.backend.aclose()
        with pytest.raises(ClosedError):
            await running
        with pytest.raises(SandboxUnavailableError, match="closed"):
            await there.run()
        assert not (await there.backend.check()).ok
        assert await there.state() == "stopped"


async def test_a_session_keeps_its_container(proxmox_node: ProxmoxCluster) -> None:
    """The container stays up between the programs of a session, and is lost with it."""
    async with stand(proxmox_node, auto_stop="started", linger=0.0) as there:
        session = await there.backend.open_session(there.shop.request("pass"))
        (await session.execute(there.shop.request("x = 20"))).raise_for_error()
        result = (await session.execute(there.shop.request("return x + 1"))).raise_for_error()
        assert result.value == 21
        assert result.backend is not None
        assert result.backend.kind == "proxmox_lxc"
        await there.api("POST", f"{LXC}/status/stop")
        lost = await _failed(session.execute(there.shop.request("return x")))
        assert lost.details["reason"] == "container_stopped"
        await session.aclose()
        await there.works()


async def _failed(running: Any) -> SandboxFailedError:
    try:
        error = (await running).error
    except SandboxFailedError as raised:
        error = raised
    assert isinstance(error, SandboxFailedError)
    return error


async def test_a_router_judges_it_by_the_sandbox_inside(proxmox_node: ProxmoxCluster) -> None:
    """Containers serve standard and not hardened; limits are those that the runtime enforces."""
    async with stand(proxmox_node) as there, Runtime([there.backend]) as runtime:
        request = there.shop.request("return 1", limits=Limits(memory_bytes=256 << 20, pids=64))
        result = (await runtime.execute(request)).raise_for_error()
        assert result.limits_enforced.memory
        with pytest.raises(SandboxUnavailableError):
            await runtime.execute(there.shop.request("return 1", profile="hardened"))


async def test_an_unsafe_runtime_serves_dev_alone(proxmox_node: ProxmoxCluster) -> None:
    """A container of Proxmox around it changes nothing."""
    async with stand(proxmox_node, vmid=101, sandbox="unsafe_host") as there:
        async with Runtime([there.backend], deny_unsafe=("standard", "hardened")) as runtime:
            assert there.backend.isolation == "none"
            with pytest.raises(SandboxUnavailableError):
                await runtime.execute(there.shop.request("return 1", profile="standard"))
            request = there.shop.request("return 1", profile="dev", metadata={"unsafeOptIn": True})
            result = await runtime.execute(request)
            assert result.raise_for_error().value == 1
            with pytest.raises(LimitNotEnforceableError):
                await runtime.execute(
                    there.shop.request(
                        "return 1", profile="dev", metadata={"unsafeOptIn": True}, limits=Limits(disk_bytes=1 << 20)
                    )
                )


async def test_the_doctor_says_how_it_is(proxmox_node: ProxmoxCluster) -> None:
    """The doctor starts the container, and runs programs there; where Proxmox is not there it says that."""
    async with stand(proxmox_node) as there, Runtime([there.backend]) as runtime:
        findings = {
            each.language: each for each in await doctor.examine(runtime, measure=False) if each.kind == "proxmox_lxc"
        }
        assert findings["python"].state == "ready"
        assert "Proxmox VE 8.2.4, container 100 on pve" in findings["python"].version
    settings = proxmox_node.settings(vmid=100, url="https://localhost:1")
    async with Runtime([ProxmoxBackend(settings)]) as runtime:
        (finding,) = [each for each in await doctor.examine(runtime, measure=False) if each.kind == "proxmox_lxc"]
    assert finding.state == "unavailable"
    assert "cannot be reached" in finding.reason


async def test_fifty_programs_leave_nothing(proxmox_node: ProxmoxCluster) -> None:
    """One start, one stop, fifty results; the fixture looks for what is left."""
    async with stand(proxmox_node, auto_stop="started") as there:
        for _ in range(5):
            results = await asyncio.gather(*(there.run(ONE) for _ in range(10)))
            assert [result.raise_for_error().value for result in results] == [1] * 10
        assert (there.starts(), there.shop.calls) == (1, {1: 50})
    assert await asyncio.to_thread(proxmox_node.state, 100) == "stopped"
