"""The sandboxes of a runtime that are made when they are first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from toolexec import Exec
from toolexec.code.tools import Tools
from toolexec.code.types import ExecuteRequest
from toolexec.errors import ConfigurationError, SandboxUnavailableError, UnsupportedPlatformError
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.roster import Roster
from toolexec.runtime.router import Runtime
from toolexec.runtime.sandboxes import SandboxSettings, make_runtime
from toolexec.testing import ScriptedSandbox


def maker(kind: str, made: list[str]) -> Callable[[], SandboxBackend]:
    """What makes a sandbox, and says so."""

    def make() -> SandboxBackend:
        made.append(kind)
        return ScriptedSandbox({"value": 3}, kind=kind)

    return make


async def test_only_what_serves_is_made() -> None:
    """The candidates after the one that runs a program are not, until all are asked for; none is made twice."""
    made: list[str] = []
    runtime = Runtime()
    for kind in ("docker", "wasm", "bubblewrap"):
        runtime.add_later(kind, maker(kind, made))
    assert made == []
    async with Exec() as ex, runtime:
        request = ExecuteRequest(code="value", gateway=Tools(ex.index, ex.docs, ex.runner))
        assert (await runtime.execute(request)).value == 3
        assert runtime.can_repeat("value") is False
        assert made == ["wasm"]
        assert [backend.kind for backend in runtime.candidates("standard")] == ["wasm", "bubblewrap", "docker"]
    assert [backend.kind for backend in runtime.backends] == ["docker", "wasm", "bubblewrap"]
    assert sorted(made) == ["bubblewrap", "docker", "wasm"]


async def test_a_closed_runtime_makes_none() -> None:
    """Those that there are get closed; a session is refused, where one would be made that is never closed."""
    made: list[str] = []
    runtime = Runtime()
    for kind in ("wasm", "bubblewrap"):
        runtime.add_later(kind, maker(kind, made))
    first = next(runtime.offered("standard"))
    assert isinstance(first, ScriptedSandbox)
    await runtime.aclose()
    assert first.closed == 1
    async with Exec() as ex:
        request = ExecuteRequest(code="value", gateway=Tools(ex.index, ex.docs, ex.runner))
        with pytest.raises(SandboxUnavailableError, match="closed"):
            await runtime.open_session(request)
    assert runtime.backends == [first]
    assert made == ["wasm"]


def test_what_the_system_cannot_have_is_left_out() -> None:
    """The others serve; what else goes wrong is raised each time."""

    def unsupported() -> SandboxBackend:
        raise UnsupportedPlatformError("the sandbox docker needs Unix")

    def broken() -> SandboxBackend:
        raise ConfigurationError("its settings are wrong")

    roster = Roster()
    roster.add_later("docker", unsupported)
    roster.add(ScriptedSandbox(kind="wasm"))
    assert [backend.kind for backend in roster] == ["wasm"]
    assert roster.get("docker") is None
    roster.add_later("qemu", broken)
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="settings are wrong"):
            roster.get("qemu")


def test_two_of_a_kind_are_refused() -> None:
    """Those that are made later count, too."""
    roster = Roster()
    roster.add_later("wasm", maker("wasm", []))
    with pytest.raises(ConfigurationError, match="kind wasm already"):
        roster.add(ScriptedSandbox(kind="wasm"))
    with pytest.raises(ConfigurationError, match="kind wasm already"):
        roster.add_later("wasm", maker("wasm", []))


def test_threads_get_the_same_sandbox() -> None:
    """A thread that asks while another one makes it waits for that one."""
    made: list[str] = []
    making, go_on = threading.Event(), threading.Event()

    def make() -> SandboxBackend:
        making.set()
        assert go_on.wait(10)
        return maker("wasm", made)()

    roster = Roster()
    roster.add_later("wasm", make)
    got: list[SandboxBackend | None] = []
    threads = [threading.Thread(target=lambda: got.append(roster.get("wasm"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    assert making.wait(10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert made == ["wasm"]
    assert got == [roster.get("wasm")] * 3


def test_settings_that_were_given_are_checked_at_once() -> None:
    """Those of a sandbox that no program may ever need, too."""
    with pytest.raises(ConfigurationError, match="workers"):
        make_runtime(SandboxSettings(wasm_workers=-1))


def test_all_that_there_are_have_their_order() -> None:
    """The same sandboxes serve as where something was set."""
    usual, other = make_runtime(), make_runtime(SandboxSettings(warm=1))
    assert next(usual.offered("standard")).kind == "wasm"
    for profile in ("dev", "standard", "hardened"):
        kinds = [backend.kind for backend in usual.candidates(profile)]
        assert kinds == [backend.kind for backend in other.candidates(profile)]
    assert [backend.kind for backend in usual.backends] == [backend.kind for backend in other.backends]
