"""The compiled sandboxes of a process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.waiting import until_blocking
from wasmtime import Store, wat2wasm
from wasmtime.component import Component, Linker

from toolexec.errors import SandboxUnavailableError
from toolexec.runtime.wasm import programs
from toolexec.runtime.wasm.cache import ComponentCache
from toolexec.runtime.wasm.engine import compile_component, new_engine
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
    compiled = compile_component(wat2wasm("(component)"))
    assert compiled.startswith(b"\x7fELF")


@pytest.mark.parametrize(("quick", "lacks"), [(True, True), (True, False), (False, True)])
def test_a_quick_start(*, quick: bool, lacks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that was compiled quickly is compiled again in the background; nothing is where it was not asked for."""
    optimised: list[object] = []

    class Cache:
        """A cache that loads nothing."""

        def __init__(self, _: object) -> None:
            self.directory = tmp_path

        def load(self, load: object, **options: object) -> object:
            assert (options["quick"] is not None) == quick
            return self

        def lacks(self, **_: object) -> bool:
            return lacks

    monkeypatch.setattr(programs, "ComponentCache", Cache)
    monkeypatch.setattr(programs, "_programs", {})
    monkeypatch.setattr(programs, "_optimise_in_background", lambda *job: optimised.append(job))
    load_program(["a"], quick=quick)
    assert optimised == ([(tmp_path, ["a"])] if quick and lacks else [])


def test_in_the_background(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work is done by a process that is not ours, with our modules, the cache's directory and the packages."""
    (tmp_path / "made_for_this.py").write_text("VALUE = 5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    work = "from made_for_this import VALUE; Path(directory, 'done').write_text(f'{VALUE} {packages} {os.nice(0)}')"
    script, _, _ = programs._OPTIMISE.partition("from toolexec")
    monkeypatch.setattr(programs, "_OPTIMISE", script + work)
    programs._optimise_in_background(tmp_path, ["a", "b"])
    until_blocking(lambda: (tmp_path / "done").exists() and (tmp_path / "done").read_text() != "")
    assert (tmp_path / "done").read_text() == "5 ['a', 'b'] 19"


@pytest.mark.parametrize("executable", ["/usr/bin/uwsgi", "", None])
def test_not_by_another_program(executable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with Python in it is not started again."""
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(programs.subprocess, "run", lambda *_, **__: pytest.fail("something was started"))
    programs._optimise_in_background(tmp_path, [])


def test_all_compiled_code_behaves_alike(tmp_path: Path) -> None:
    """Code of the quick compiler, and portable code, runs in any engine of ours, and burns the same fuel."""
    text = """(component (core module $m (func (export "f") (result i32) (local i32)
        (loop (local.set 0 (i32.add (local.get 0) (i32.const 1))) (br_if 0 (i32.lt_u (local.get 0) (i32.const 1000))))
        (local.get 0))) (core instance $i (instantiate $m))
        (func (export "f") (result u32) (canon lift (core func $i "f"))))"""
    left: list[tuple[int, int]] = []
    for options in ({}, {"quick": True}, {"portable": True}):
        engine = new_engine()
        component = Component.deserialize(engine, compile_component(bytes(wat2wasm(text)), **options))
        store = Store(engine)
        store.set_fuel(100_000)
        store.set_epoch_deadline(1)
        function = Linker(engine).instantiate(store, component).get_func(store, "f")
        assert function is not None
        left.append((function(store), store.get_fuel()))
    assert left[0] == left[1] == left[2]
    assert left[0][0] == 1000
