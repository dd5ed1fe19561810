"""What the wall of each engine keeps, against the recorded table: as root and as an ordinary user, one guest for each.

As root the full tier tries the same programs one by one in `test_containers`, against the same record; Podman's test of
this is beside its others, which have its service.
"""

from __future__ import annotations

import asyncio
import os

import pytest
from tests.engines.backends import (  # noqa: F401 - fixtures
    KINDS,
    containerd_daemon,
    kube_cluster,
    kube_namespace,
    maker,
)
from tests.engines.docker import docker_daemon  # noqa: F401 - a fixture
from tests.held_out.running import unknown
from tests.ordinary import ORDINARY, run_as_user
from tests.served import SERVED
from tests.wall import NAMES, PROGRAM, broken, fallen, judge

from toolexec.runtime.wasm.backend import WasmBackend

pytestmark = pytest.mark.anyio


async def test_one_program_asks_for_all() -> None:
    """Each program has its verdict, and one that gave nothing has measured nothing."""
    assert PROGRAM.count("\ndef call(") == 0
    assert await fallen(WasmBackend(pool_size=1)) == {}
    assert {*judge({}, "container")} == {*judge(None, "vm")} == {*NAMES}
    assert judge({"bpf": {"bpf": "EINVAL"}}, "container")["bpf"] == "the kernel took the call bpf: EINVAL"
    assert "bpf" not in judge({"bpf": {"bpf": "EPERM"}}, "container")
    assert broken("bubblewrap", "root", {"bpf": "it was done", "unheard_of": "x"}) == {"bpf": "it was done"}
    assert broken("unheard_of", "root", {"bpf": "it was done"}) == {}


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
async def test_the_wall_keeps_what_is_recorded(kind: str, request: pytest.FixtureRequest) -> None:
    """Started by root."""
    found = await fallen(maker(kind, request)())
    assert broken(kind, "root", found) == {}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] if kind == "qemu" else []) for kind in ORDINARY]
)
async def test_the_wall_keeps_it_for_users_too(kind: str) -> None:
    """Started by a user without rights; a machine boots for that, which takes long."""
    found = await asyncio.to_thread(run_as_user, kind, "wall", seconds=300.0)
    assert broken(kind, "user", found) == {}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize("kind", SERVED)
async def test_users_of_servers_have_the_same_wall(kind: str) -> None:
    """A user without rights who may open a daemon's socket, has a Podman of their own, or serves a runtime: all that is
    recorded as kept is, and no attack that the battery lacks gets out."""
    found = await asyncio.to_thread(run_as_user, kind, "both", seconds=300.0)
    assert broken(kind, "user", found["wall"]) == {}
    assert unknown(kind, found["held_out"]) == {}
