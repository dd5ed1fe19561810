"""What can run code here, found out by trying it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.base import Availability
from toolexec.runtime.doctor import Finding, cache_state, examine, served_profiles
from toolexec.runtime.kinds import PACKAGED
from toolexec.runtime.router import CANDIDATES, Runtime
from toolexec.runtime.wasm.backend import WasmBackend


class _Few(WasmBackend):
    """The embedded sandbox with two of its languages."""

    languages = frozenset({"python", "wasm"})


class _Odd(_Few):
    """One that has something to complain about."""

    def __init__(self, state: Availability | Exception, outcome: Any = None) -> None:
        super().__init__()
        self.languages = frozenset({"python"})
        self._state = state
        self._outcome = outcome

    async def check_language(self, language: str) -> Availability:
        if isinstance(self._state, Exception):
            raise self._state
        return self._state

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        result = await super().execute(request)
        result.value = self._outcome
        return result


async def _found(backend: WasmBackend, *, measure: bool = True) -> Finding:
    runtime = Runtime([backend])
    try:
        return (await examine(runtime, measure=measure))[0]
    finally:
        await runtime.aclose()


@pytest.mark.full
async def test_every_language_is_tried() -> None:
    """Python first; the second run finds everything in place."""
    runtime = Runtime([_Few()])
    told: list[tuple[str, str]] = []
    findings = await examine(runtime, tell=lambda kind, language: told.append((kind, language)))
    await runtime.aclose()
    here = [finding for finding in findings if finding.language]
    assert told == [("wasm", "python"), ("wasm", "wasm")]
    assert [(finding.language, finding.state, finding.isolation) for finding in here] == [
        ("python", "ready", "wasm"),
        ("wasm", "ready", "wasm"),
    ]
    assert all(finding.first_seconds and finding.again_seconds for finding in here)
    assert {"firstMs", "againMs"} <= here[0].to_dict().keys()


async def test_looking_runs_nothing() -> None:
    """There are no times then."""
    finding = await _found(_Odd(Availability(ok=True, version="1"), RuntimeError("it ran")), measure=False)
    assert (finding.state, finding.version, finding.first_seconds) == ("ready", "1", None)
    assert "firstMs" not in finding.to_dict()


async def test_every_kind_is_named() -> None:
    """Those that are not there say whether they could be."""
    findings = {finding.kind: finding for finding in await examine(Runtime(), measure=False)}
    assert set(findings) == {kind for kinds in (*CANDIDATES.values(), PACKAGED) for kind in kinds}
    assert findings["proxmox_lxc"].state == "not_set_up"
    assert findings["docker"].state == "not_set_up"
    assert (findings["wasm"].state, findings["wasm"].remedy) == ("not_set_up", "add it to runtime_backends")


@pytest.mark.parametrize(
    ("state", "outcome", "found", "reason"),
    [
        (Availability(ok=False, reason="gone", remedy="install it"), None, "unavailable", "gone"),
        (OSError("broken"), None, "unavailable", "broken"),
        (Availability(ok=True), SandboxUnavailableError("not here"), "unavailable", "not here"),
        (Availability(ok=True), ValueError(), "failed", "ValueError"),
        (Availability(ok=True), 41, "failed", "its answer to 6 * 7 is 41"),
    ],
)
async def test_what_goes_wrong_is_a_finding(state: Any, outcome: Any, found: str, reason: str) -> None:
    """Nothing is raised; a wrong answer is a failure."""
    finding = await _found(_Odd(state, outcome))
    assert (finding.state, finding.reason) == (found, reason)
    assert finding.to_dict()["reason"] == reason


async def test_profiles_are_served_by_what_is_ready() -> None:
    """The first candidate for each language; what is not ready serves nothing."""
    runtime = Runtime([_Few()])
    findings = [
        Finding(kind="wasm", language="python", state="ready"),
        Finding(kind="wasm", language="wasm", state="failed"),
    ]
    served = {entry.profile: entry.to_dict()["languages"] for entry in served_profiles(runtime, findings)}
    assert served == {"dev": {}, "standard": {"python": "wasm"}, "hardened": {"python": "wasm"}}


def test_a_directory_that_is_there(tmp_path: Path) -> None:
    """Whose it is, who can get in, and what it takes."""
    tmp_path.chmod(0o700)
    state = cache_state(tmp_path)
    assert state.exists
    assert state.private
    assert state.writable
    assert state.owner
    assert (state.bytes, state.sandboxes, state.problem) == (0, 0, "")
    assert state.to_dict()["directory"] == str(tmp_path)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    """Looking does not make it."""
    state = cache_state(tmp_path / "a" / "b")
    assert (state.exists, state.writable, state.problem) == (False, True, "")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports why."""
    (tmp_path / "file").write_text("")
    assert "cannot be used" in cache_state(tmp_path / "file").problem
    assert cache_state(tmp_path / "file" / "sandbox").problem
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "cannot be written to" in cache_state(tmp_path / "new").problem
    monkeypatch.setenv("TOOLEXEC_CACHE", "~no-such-user-at-all/x")
    assert "TOOLEXEC_CACHE" in cache_state().problem


def test_an_owner_without_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number, then."""
    import pwd

    def unknown(number: int) -> Any:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert cache_state(tmp_path).owner == str(os.getuid())
