"""Attacks that were written without a look at the battery: no sandbox lets one of them get anything out.

Docker, Podman, containerd and Kubernetes meet them beside their other tests too, which have their daemons.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.engines.backends import (  # noqa: F401 - fixtures
    KINDS,
    containerd_daemon,
    kube_cluster,
    kube_namespace,
    maker,
)
from tests.engines.bubblewrap import require_bwrap
from tests.engines.docker import docker_daemon  # noqa: F401 - a fixture
from tests.held_out.running import KNOWN, NAMES, escaped, judge, unknown
from tests.ordinary import ORDINARY, run_as_user

from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.testing.escapes import ESCAPES

pytestmark = pytest.mark.anyio

QUICK = ("bubblewrap", "gvisor")
"""What needs no daemon, and is started quickly."""


def test_an_attack_is_held_only_by_an_answer() -> None:
    """One that was killed or failed got nothing; one that never ran, or said something, counts against the sandbox."""
    said = dict.fromkeys(NAMES, "said ")
    assert judge(said, "container") == {}
    assert judge({**said, "ring": "killed by 31", "make_a_map": "said raised OSError: no"}, "container") == {}
    assert judge({**said, "ring": "said a ring"}, "container") == {"ring": "said a ring"}
    assert judge({**said, "ring": "said a ring", "vsock_device": "said its number is 3"}, "vm") == {
        "vsock_device": "said its number is 3"
    }
    assert {*judge(None, "container")} == {*NAMES}
    assert unknown("docker", {"ring": "x"}) == {"ring": "x"}
    assert all(unknown(kind, dict.fromkeys(KNOWN[kind], "x")) == {} for kind in KNOWN)


def test_there_are_many_and_none_is_of_the_battery() -> None:
    """Each has a name and a program of its own."""
    assert len({*NAMES}) == len(NAMES) >= 60
    assert not {*NAMES} & {each.name for each in ESCAPES}


async def test_the_embedded_sandbox_holds_them() -> None:
    """No native code can be called in it, and what the standard library has leads nowhere."""
    assert await escaped(WasmBackend(pool_size=1)) == {}


@pytest.mark.full
async def test_they_get_out_where_the_filter_is_open(tmp_path: Path) -> None:
    """All are real: without a filter of system calls a container lets many through, of each kind that it can hold."""
    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

    require_bwrap()
    profile = tmp_path / "open.json"
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}))
    found = await escaped(BubblewrapBackend(BubblewrapConfig(seccomp=str(profile))))
    assert {*found} >= {"ring", "add_a_key", "seize_a_child", "read_memory_of_its_parent", "netlink_of_all_kinds"}
    assert len(found) >= 10


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.full if kind in QUICK else pytest.mark.soak) for kind in KINDS]
)
async def test_no_sandbox_of_root_lets_them_out(kind: str, request: pytest.FixtureRequest) -> None:
    """Started by root."""
    assert unknown(kind, await escaped(maker(kind, request)())) == {}


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.soak] if kind not in ("wasm", "bubblewrap") else []) for kind in ORDINARY],
)
async def test_no_sandbox_of_a_user_lets_them_out(kind: str) -> None:
    """Started by a user without rights."""
    assert unknown(kind, await asyncio.to_thread(run_as_user, kind, "held_out", seconds=300.0)) == {}
