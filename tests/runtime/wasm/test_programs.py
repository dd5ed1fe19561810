"""The compiled sandboxes of a process."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import pytest
from wasmtime import wat2wasm

from toolexec.errors import SandboxUnavailableError
from toolexec.process.steps import BuildStep
from toolexec.runtime.wasm import programs
from toolexec.runtime.wasm.cache import ComponentCache
from toolexec.runtime.wasm.instance import Program
from toolexec.runtime.wasm.programs import load_program


def test_each_is_loaded_once() -> None:
    """All backends of a process share it."""
    first = load_program()
    assert isinstance(first, Program)
    assert load_program(()) is first
    assert load_program(folder=ComponentCache().directory) is first


def test_a_cache_that_cannot_be_used(tmp_path: Path) -> None:
    """The error says why."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SandboxUnavailableError, match="the embedded sandbox is not ready") as caught:
        load_program(folder=tmp_path / "file")
    assert caught.value.__cause__ is not None


def test_without_wasmtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setitem(sys.modules, "toolexec.runtime.wasm.engine", None)
    with pytest.raises(SandboxUnavailableError, match="pip install wasmtime"):
        load_program(folder=tmp_path)


def test_what_is_compiled_can_be_loaded(tmp_path: Path) -> None:
    """In the form that a cache keeps."""
    compiled = programs._compile(wat2wasm("(component)"))
    assert compiled.startswith(b"\x7fELF")


def test_a_build_is_announced_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without a progress display, one line says why nothing happens for a while."""
    say = programs._LogOnce()
    with caplog.at_level(logging.WARNING):
        for text in ("one", "two"):
            say(BuildStep(name="build", fraction=0.5, message=text))
    assert [record.getMessage() for record in caplog.records] == [
        "preparing the embedded sandbox for its first use; this takes up to a minute, once"
    ]
