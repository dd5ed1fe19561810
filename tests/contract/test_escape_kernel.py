"""The programs that ask the kernel for what no sandbox may have: where they may run, and how their answers are judged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.bubblewrap import require_bwrap

from toolexec.code.types import BackendInfo, CodeResult
from toolexec.errors import CodeError
from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend
from toolexec.testing.escape_battery import may_run, run_battery
from toolexec.testing.escapes import ESCAPES, Attempt
from toolexec.testing.escapes.kernel import KERNEL_ESCAPES
from toolexec.testing.scripted_sandbox import ScriptedSandbox

BY_NAME = {escape.name: escape for escape in KERNEL_ESCAPES}
NAMED = {"vsock", "user_namespaces", "io_uring", "kernel_keys", "ptrace", "perf", "bpf", "netlink_sockets", "fanotify"}


def judged(name: str, value: Any, isolation: str = "container", error: CodeError | None = None) -> str:
    """Return what the judge of one program says of its value."""
    result = CodeResult(value=value, error=error, backend=BackendInfo(kind="cell"))
    attempt = Attempt(result=result, raised=None, tools=None, isolation=isolation)  # type: ignore[arg-type]
    return BY_NAME[name].check(attempt)


def test_all_of_them_need_something_around_them() -> None:
    """None may run on the host itself, and the well-known ways into a kernel are among them."""
    assert {*BY_NAME} > {*NAMED, "mount_api"}
    assert all(escape.isolated for escape in KERNEL_ESCAPES)
    assert all(escape in ESCAPES for escape in KERNEL_ESCAPES)
    assert len([escape for escape in ESCAPES if "python" in escape.programs]) >= 120


@pytest.mark.parametrize("isolation", ["none", "process", "", "unheard_of"])
async def test_they_are_refused_where_nothing_isolates(isolation: str) -> None:
    """A caller who asks for one by name gets an error, and by default they are left out; no program is started."""
    backend = ScriptedSandbox(default=AssertionError("it was run"), kind="cell", isolation=isolation)
    for escape in KERNEL_ESCAPES:
        assert not may_run(escape, backend)
        with pytest.raises(ValueError, match=f"cell isolates nothing, and {escape.name} may not run"):
            await run_battery(backend, escapes=[escape])
    assert not any(may_run(escape, UnsafeHostBackend()) for escape in KERNEL_ESCAPES)


@pytest.mark.parametrize(
    ("value", "isolation", "evidence"),
    [
        ({"unshare": "EPERM", "clone": "ENOSYS"}, "container", ""),
        ({"unshare": "EINVAL", "clone": "EPERM"}, "container", "the kernel took the call unshare: EINVAL"),
        ({"unshare": "it was done"}, "container", "the kernel took the call unshare: it was done"),
        ({"unshare": "there are no calls"}, "wasm", ""),
        ({"unshare": "there are no calls"}, "container", "the kernel took the call unshare: there are no calls"),
        ({"unshare": "EINVAL"}, "vm", ""),
        ({"unshare": "EINVAL"}, "gvisor", ""),
        (None, "container", "nothing was measured: the program ended with another value"),
    ],
)
def test_calls_are_judged_by_the_names_of_their_errors(value: Any, isolation: str, evidence: str) -> None:
    """Only a refusal that does not look at the arguments is one; a kernel of the sandbox's own may answer anything."""
    assert judged("user_namespaces", value, isolation) == evidence


def test_a_program_that_fails_has_measured_nothing() -> None:
    """A probe that did not end is not one that was held."""
    assert "nothing was measured" in judged("bpf", None, error=CodeError("no", op="execute"))
    assert "nothing was measured" in judged("privileges", None, error=CodeError("no", op="execute"))
    assert judged("privileges", ["CapEff is 1"]) == "CapEff is 1"
    assert judged("privileges", []) == ""


@pytest.mark.full
async def test_a_container_without_a_filter_is_found_out(tmp_path: Path) -> None:
    """With a filter that lets everything through, the kernel answers, and objects to the arguments; nothing is done."""
    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend, BubblewrapConfig

    require_bwrap()
    profile = tmp_path / "open.json"
    profile.write_text(json.dumps({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []}))
    backend = BubblewrapBackend(BubblewrapConfig(seccomp=str(profile)))
    try:
        report = await run_battery(backend, escapes=[BY_NAME[name] for name in sorted(NAMED - {"fanotify"})])
    finally:
        await backend.aclose()
    assert {outcome.name for outcome in report.escaped} == NAMED - {"fanotify"}
    assert not any("it was done" in outcome.evidence for outcome in report.outcomes)


@pytest.mark.full
async def test_bubblewrap_keeps_all_of_them() -> None:
    """With its own filter, on this machine's own /usr."""
    from toolexec.runtime.containers.bubblewrap import BubblewrapBackend

    require_bwrap()
    backend = BubblewrapBackend()
    try:
        report = await run_battery(backend, escapes=KERNEL_ESCAPES)
    finally:
        await backend.aclose()
    report.raise_for_gaps()
