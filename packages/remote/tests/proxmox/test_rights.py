"""What the documented commands allow on Proxmox VE, and what is said and done where something is not allowed."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
from packages.remote.tests.here import serving
from packages.remote.tests.processes import KEY
from packages.remote.tests.proxmox.plain import CLONES, ONE, documented, live_as_clone, live_as_container, plain_api
from packages.remote.tests.pve.pveum import pveum
from packages.remote.tests.tools import Workshop
from tests.waiting import reached

from toolexec.errors import SandboxFailedError, SandboxUnavailableError
from toolexec.remote import ProxmoxSettings
from toolexec_remote.proxmox.backend import ProxmoxBackend
from toolexec_remote.proxmox.client import ProxmoxClient
from toolexec_remote.proxmox.containers import Containers
from toolexec_remote.proxmox.failures import ProxmoxError
from toolexec_remote.proxmox.rights import CLONE_PRIVILEGES, MissingPrivilegeError, commands, missing

Life = Callable[[ProxmoxSettings], Awaitable[None]]
KINDS: dict[str, tuple[dict[str, Any], Life]] = {
    "container": (ONE, live_as_container),
    "clones": (CLONES, live_as_clone),
}
BASE = ["pveum user add agents@pve", "pveum user token add agents@pve toolexec --privsep 1"]
GIVEN = ProxmoxSettings(
    url="https://pve.example.com:8006",
    token_id="agents@pve!toolexec",
    token_secret="very-secret",
    node="pve1",
    key_id="agents",
    runtime_token="also-secret",
    **CLONES,
)


def backend_with(settings: ProxmoxSettings, endpoint: str) -> ProxmoxBackend:
    """Return a backend for the containers of the API, whose runtime is at *endpoint*."""
    runtime = f"http://{{ip}}:{urlsplit(endpoint).port}/v1/execute"
    key = {"key_id": KEY.id, "runtime_token": KEY.token, "signing_key": KEY.secret}
    return ProxmoxBackend(replace(settings, runtime=runtime, plain_http=True, **key))


@pytest.mark.parametrize("kind", KINDS)
async def test_the_documented_commands_are_enough(tmp_path: Path, kind: str) -> None:
    """A backend looks, starts or clones, runs a program, stops or removes: with these rights and no others."""
    fields = {**KINDS[kind][0], "auto_stop": "started"}
    async with serving(tmp_path) as endpoint, plain_api(tmp_path, documented(kind), **fields) as (api, settings):
        backend, shop = backend_with(settings, endpoint), Workshop()
        try:
            found = await backend.check()
            assert found.ok, found
            result = (await backend.execute(shop.request("return tools.shop.count(item=1)"))).raise_for_error()
            assert (result.value, shop.calls) == (1, {1: 1})
        finally:
            await backend.aclose()
        assert [*api.node.containers] == [101]
        assert await api.node.pid(101) == 0


@pytest.mark.parametrize("kind", KINDS)
async def test_none_of_the_documented_commands_can_be_left_out(tmp_path: Path, kind: str) -> None:
    """Without a privilege, without the entry of the user, or that of the token: an error that names what is missing."""
    fields, live = KINDS[kind]
    lines = documented(kind)
    variants = [lines[:at] + lines[at + 1 :] for at, line in enumerate(lines) if "acl modify" in line]
    variants += [[*lines[:at], other, *lines[at + 1 :]] for at, line in enumerate(lines) for other in _weaker(line)]
    assert len(variants) > len(lines)
    async with plain_api(tmp_path, lines, **fields) as (api, settings):
        await live(settings)
        for variant in variants:
            _set_up(api.access, variant)
            with pytest.raises(MissingPrivilegeError) as caught:
                await live(settings)
            assert all(re.fullmatch(r"[A-Z]\w+(\.\w+)+", each) for each in caught.value.privileges), variant
            assert {*api.node.containers} - {101} == set(), variant
            await api.node.stop(101)


async def _refusal(living: Awaitable[None]) -> MissingPrivilegeError | None:
    try:
        await living
    except MissingPrivilegeError as error:
        return error
    return None


def _weaker(line: str) -> list[str]:
    """Return a command with less: each privilege left out, or the user, or the token."""
    if "role add" in line:
        privileges = shlex.split(line)[-1].split()
        short = [" ".join(each for each in privileges if each != absent) for absent in privileges]
        return [re.sub(r"--privs '.*'", f"--privs '{each}'", line) for each in short]
    if "acl modify" in line:
        return [line.replace("--users agents@pve ", ""), line.replace("--tokens 'agents@pve!toolexec' ", "")]
    return []


def _set_up(access: Any, lines: list[str]) -> None:
    access.rights.__init__()
    for line in lines:
        pveum(access.rights, line)


@pytest.mark.parametrize("kind", [*KINDS, "clones without a pool"])
async def test_errors_lead_to_rights_that_are_enough(tmp_path: Path, kind: str) -> None:
    """The commands of each error, one after the other, end with all that is needed: those that are documented."""
    fields, live = {**KINDS, "clones without a pool": ({"template": 101}, live_as_clone)}[kind]
    pool = ["pveum pool add sandboxes"] if "pool" in fields else []
    followed: list[str] = []
    async with plain_api(tmp_path, BASE + pool, **fields) as (api, settings):
        while (error := await _refusal(live(settings))) is not None:
            assert len(followed) < 10, f"it is still forbidden after {followed}: {error}"
            assert all(each in error.message for each in error.commands)
            for command in error.commands:
                pveum(api.rights, command)
            followed += error.commands
    if kind in KINDS:
        assert sorted(followed) == sorted(each for each in documented(kind) if "role add" in each or "acl" in each)


async def test_a_removed_container_is_gone_also_where_its_rights_went_with_it(tmp_path: Path) -> None:
    """Proxmox answers 403 for it; another container under that number, which we may not see, is forbidden."""
    async with plain_api(tmp_path, documented("container"), **ONE) as (api, settings):
        client = ProxmoxClient(settings)
        try:
            containers, ends = Containers(client), monotonic() + 30
            assert await containers.status(101) == "stopped"
            api.rights.forget(101)
            with pytest.raises(MissingPrivilegeError) as caught:
                await containers.status(101)
            assert (caught.value.path, caught.value.privileges) == ("/vms/101", ("VM.Audit",))
            del api.node.containers[101]
            assert await containers.status(101) == "gone"
            for asked in (containers.start(101, ends), containers.config(101), containers.describe(101, "x")):
                with pytest.raises(ProxmoxError, match="no container 101") as gone:
                    await asked
                assert (gone.value.reason, gone.value.status) == ("no_such_container", 403)
            await containers.remove(101, ends)  # is fine
        finally:
            await client.aclose()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_container_that_is_removed_under_a_program_is_no_matter_of_rights(tmp_path: Path, kind: str) -> None:
    """The program is lost with `container_removed`, the next one is refused, or gets another clone."""
    fields = KINDS[kind][0]
    async with serving(tmp_path) as endpoint, plain_api(tmp_path, documented(kind), **fields) as (api, settings):
        backend, shop = backend_with(settings, endpoint), Workshop()
        try:
            running = asyncio.create_task(backend.execute(shop.request("return tools.shop.wait(item=7)")))
            await reached(shop.begun, running)
            vmid = next(each for each in api.node.containers if (each == 101) == (kind == "container"))
            api.rights.forget(vmid)
            await api.node.destroy(api.node.containers[vmid])
            error = (await running).error
            assert isinstance(error, SandboxFailedError), error
            assert error.details["reason"] == "container_removed"
            shop.gate.set()
            if kind == "clones":
                (await backend.execute(shop.request("return 1"))).raise_for_error()
            else:
                with pytest.raises(SandboxUnavailableError) as caught:
                    await backend.execute(shop.request("return 1"))
                assert caught.value.details["reason"] == "no_such_container"
        finally:
            await backend.aclose()


async def test_a_clone_in_the_making_is_removed_once_its_pool_has_it(tmp_path: Path) -> None:
    """Until then Proxmox forbids us to look at it; that is waited for where it is said, and is an error elsewhere."""
    async with plain_api(tmp_path, documented("clones"), **CLONES) as (api, settings):
        client, tried = ProxmoxClient(settings), list[int]()
        try:
            containers = Containers(client)
            api.faults.task_delays["vzclone"] = 0.3
            with pytest.raises(ProxmoxError, match="did not end in time"):
                await containers.clone(101, monotonic(), tried.append, full=False, pool="sandboxes")

            async def is_meant(vmid: int) -> bool:
                return bool(await containers.config(vmid))

            with pytest.raises(MissingPrivilegeError):
                await containers.remove(tried[-1], monotonic() + 30, is_meant)
            await containers.remove(tried[-1], monotonic() + 30, is_meant, in_the_making=True)
            assert [*api.node.containers] == [101]
        finally:
            await client.aclose()


async def test_what_a_run_reports_where_a_privilege_is_missing(tmp_path: Path) -> None:
    """The details have the path, the privileges and the commands; the check says the same, and nothing was made."""
    async with plain_api(tmp_path, documented("clones"), **CLONES) as (api, settings):
        pveum(api.rights, "pveum role modify ToolexecClones --privs VM.Allocate")
        backend = ProxmoxBackend(settings)
        try:
            found = await backend.check()
            assert not found.ok
            assert "VM.Audit, VM.PowerMgmt, VM.Config.Options on /pool/sandboxes" in found.reason
            with pytest.raises(SandboxUnavailableError) as caught:
                await backend.execute(Workshop().request("return 1"))
        finally:
            await backend.aclose()
        details = caught.value.details
        assert (details["reason"], details["status"], caught.value.retryable) == ("forbidden", 403, False)
        assert (details["path"], details["privileges"][0]) == ("/pool/sandboxes", "VM.Audit")
        assert details["commands"][-1].startswith("pveum acl modify /pool/sandboxes --users agents@pve ")
        assert not any(line.startswith("POST") for line in api.log)


async def test_an_old_api_that_does_not_say_what_we_may_is_asked_for_the_clone(tmp_path: Path) -> None:
    """Then the refusal itself names what is missing; a pool that is not there is another error."""
    async with plain_api(tmp_path, documented("clones"), **CLONES) as (api, settings):
        api.faults.answers["/access/permissions"] = [501, "Method 'GET /access/permissions' not implemented", 99]
        await live_as_clone(settings)
        pveum(api.rights, "pveum role modify ToolexecClones --privs VM.Audit")
        with pytest.raises(MissingPrivilegeError) as caught:
            await live_as_clone(settings)
        assert (caught.value.path, caught.value.privileges) == ("/pool/sandboxes", ("VM.Allocate",))
        pveum(api.rights, f"pveum role modify ToolexecClones --privs '{' '.join(CLONE_PRIVILEGES)}'")
        del api.rights.pools["sandboxes"]
        with pytest.raises(ProxmoxError, match="pveum pool add") as other:
            await live_as_clone(settings)
        assert other.value.reason == "no_such_pool"


@pytest.mark.parametrize(
    ("message", "path", "privileges", "command"),
    [
        ("Permission check failed (/vms/101, VM.Clone)", "/vms/101", ("VM.Clone",), "/vms/101"),
        ("Permission check failed (/vms/205, VM.Audit)\n", "/vms/205", ("VM.Audit",), "/pool/sandboxes"),
        ("Permission check failed (/nodes/pve, Sys.Audit)", "/nodes/pve", ("Sys.Audit",), "/nodes/pve"),
        (
            "Permission check failed (/sdn/zones/localnetwork/vmbr0/5, SDN.Use)",
            "/sdn/zones/localnetwork/vmbr0/5",
            ("SDN.Use",),
            "/sdn/zones/localnetwork/vmbr0/5",
        ),
    ],
)
def test_messages_of_proxmox_are_understood(message: str, path: str, privileges: Any, command: str) -> None:
    """A privilege on a clone is granted for all clones: a number, and what is said of it, goes with its clone."""
    error = missing(message, "GET /nodes/pve/lxc", GIVEN)
    assert isinstance(error, MissingPrivilegeError)
    assert (error.reason, error.status, error.path, error.privileges) == ("forbidden", 403, path, privileges)
    assert error.commands[1].startswith(f"pveum acl modify {command} --users agents@pve --tokens 'agents@pve!toolexec'")
    assert privileges[0] in error.commands[0]


@pytest.mark.parametrize(
    "message", ["Permission check failed", "Permission check failed (/vms/1'; reboot; ', VM.Audit)", "no"]
)
def test_other_refusals_name_no_command(message: str) -> None:
    """Nothing is guessed that Proxmox does not say, and no text of a server gets into a command for a shell."""
    error = missing(message, "GET /nodes/pve/lxc", GIVEN)
    assert (type(error), error.reason, error.status) == (ProxmoxError, "forbidden", 403)
    assert "pveum" not in error.message


def test_a_user_is_granted_without_a_token() -> None:
    """With a rollback, a container needs one privilege more."""
    fields: dict[str, Any] = {name: getattr(GIVEN, name) for name in ("url", "node", "key_id", "runtime_token")}
    settings = ProxmoxSettings(**fields, username="agents@pve", password="pw", vmid=101, rollback="clean")
    assert commands("/vms/101", ["VM.Audit"], settings) == (
        "pveum role add ToolexecContainer --privs 'VM.Audit VM.PowerMgmt VM.Snapshot.Rollback'",
        "pveum acl modify /vms/101 --users agents@pve --roles ToolexecContainer",
    )
