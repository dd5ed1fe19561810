"""Whether the embedded sandbox can be used here."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from toolexec.runtime.base import Availability
from toolexec.runtime.wasm import readiness
from toolexec.runtime.wasm.cache import ComponentCache
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.programs import load_program
from toolexec.runtime.wasm.readiness import sandbox_availability


@pytest.fixture
def empty(tmp_path: Path) -> WasmConfig:
    """A machine where nothing was built."""
    return WasmConfig(cache_folder=tmp_path / "cache")


@pytest.fixture(autouse=True)
def nothing_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This is a checkout, not a wheel."""
    monkeypatch.setattr(readiness, "SHIPPED", tmp_path / "shipped.wasm")


def test_what_is_in_the_cache_is_ready() -> None:
    """With the version of what runs it."""
    load_program()
    state = sandbox_availability(WasmConfig(cache_folder=ComponentCache().directory))
    assert (state.ok, state.reason) == (True, "")
    assert state.version.startswith("wasmtime ")


def test_other_sandboxes_in_the_cache_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the one that is asked for is looked at."""
    load_program()
    monkeypatch.setattr(ComponentCache, "list", Mock(side_effect=AssertionError("the whole cache was listed")))
    assert sandbox_availability(WasmConfig()).reason == ""
    assert sandbox_availability(WasmConfig(packages=("never-built==1",))).reason == "built at its first use"
    assert ComponentCache().has()
    assert not ComponentCache(tmp_path / "empty").has()


def test_what_can_be_built_is_available(empty: WasmConfig) -> None:
    """Checking availability builds nothing."""
    state = sandbox_availability(empty)
    assert (state.ok, state.reason) == (True, "built at its first use")
    assert empty.cache_folder is not None
    assert not empty.cache_folder.exists() or not [*empty.cache_folder.rglob("*.cwasm")]


def test_what_is_shipped_is_available(empty: WasmConfig, tmp_path: Path) -> None:
    """Without added packages."""
    (tmp_path / "shipped.wasm").write_bytes(b"")
    assert sandbox_availability(empty).reason == "compiled at its first use"
    added = WasmConfig(cache_folder=empty.cache_folder, packages=("attrs",))
    assert sandbox_availability(added).reason == "built at its first use"


def test_without_the_builder(empty: WasmConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is the extra that has it."""
    monkeypatch.setattr(readiness, "builder_version", lambda: None)
    state = sandbox_availability(empty)
    assert (state.ok, state.remedy) == (False, "pip install 'toolexec[sandbox-build]'")
    assert "componentize-py" in state.reason


def test_without_wasmtime(empty: WasmConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else matters then."""
    monkeypatch.setattr(readiness, "installed_version", lambda package, module: None)
    state = sandbox_availability(empty)
    assert (state.ok, state.reason, state.remedy) == (
        False,
        "wasmtime is not installed",
        "pip install wasmtime",
    )


def test_a_cache_that_is_no_folder(tmp_path: Path) -> None:
    """The remedy names the variable."""
    (tmp_path / "file").write_text("")
    state = sandbox_availability(WasmConfig(cache_folder=tmp_path / "file"))
    assert not state.ok
    assert "TOOLEXEC_CACHE" in state.remedy


def test_a_cache_of_another_user_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that others have put there must be looked at; one that cannot be made is just not there."""
    own, link, file = (tmp_path / name / "sandbox" for name in ("own", "link", "file"))
    own.mkdir(mode=0o700, parents=True)
    link.parent.mkdir()
    link.symlink_to(own)
    file.parent.write_text("")

    def found(directory: Path) -> Availability:
        monkeypatch.setenv("TOOLEXEC_CACHE", str(directory.parent))
        return sandbox_availability(WasmConfig())

    assert (found(link).ok, found(link).is_fault) == (False, True)
    assert (found(file).ok, found(file).is_fault) == (False, False)
    monkeypatch.setattr(os, "geteuid", lambda: own.stat().st_uid + 1)
    assert (found(own).ok, found(own).is_fault) == (False, True)
    assert f"{own}, belongs to another user" in found(own).reason
    assert "TOOLEXEC_CACHE" in found(own).reason
