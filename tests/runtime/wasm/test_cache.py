"""Each sandbox is made once, and what is not trustworthy is made again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import wasmtime
from wasmtime import Engine, WasmtimeError
from wasmtime.component import Component as Compiled

from toolexec.errors import ConfigurationError, MissingExtraError
from toolexec.process.steps import BuildStep
from toolexec.runtime.wasm import cache as module
from toolexec.runtime.wasm.cache import ComponentCache, default_directory
from toolexec.runtime.wasm.component import Component, builder_version, inputs_digest
from toolexec.runtime.wasm.precompiled import machine

ENGINE = Engine()


def about(data: bytes, packages: Sequence[str] = (), **changes: Any) -> Component:
    """The description of *data* as if it had just been built."""
    made = Component(
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        python="3.14.0",
        inputs=inputs_digest(),
        builder=builder_version() or "",
        requirements=tuple(packages),
        packages=dict.fromkeys(packages, "1.0"),
    )
    return dataclasses.replace(made, **changes)


class Workshop:
    """Builds empty components, compiles and loads them for real, and counts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "sandbox"
        self.shipped = directory / "python.wasm"
        self.builds: list[tuple[str, ...]] = []
        self.compiles = 0
        self.text = "(component)"

    def build(self, target: Path, *, packages: Sequence[str] = (), progress: Any = None) -> Component:
        """Build a component; its packages make it another one."""
        self.builds.append(tuple(packages))
        names = "".join(f"(core module ${name.replace('-', '')})" for name in packages)
        data = bytes(wasmtime.wat2wasm(self.text[:-1] + names + ")"))
        target.write_bytes(data)
        return about(data, packages)

    def compile(self, data: bytes) -> bytes:
        """Compile a component."""
        self.compiles += 1
        return bytes(Compiled(ENGINE, data).serialize())

    @property
    def cache(self) -> ComponentCache:
        """The cache as a new process sees it."""
        return ComponentCache(self.directory, shipped=self.shipped, build=self.build)

    def load(self, fingerprint: str = "f", **options: Any) -> Compiled:
        """A loaded component."""
        return self.cache.load(
            lambda path: Compiled.deserialize_file(ENGINE, path),
            fingerprint=fingerprint,
            compile=self.compile,
            **options,
        )

    @property
    def work(self) -> tuple[int, int]:
        """Return how often something was built and compiled."""
        return len(self.builds), self.compiles

    def ship(self, **changes: Any) -> bytes:
        """Put a component where the wheel's would be."""
        data = bytes(wasmtime.wat2wasm("(component (core module))"))
        self.shipped.write_bytes(data)
        self.shipped.with_suffix(".json").write_text(json.dumps(about(data, **changes).to_json()))
        return data

    def file(self, suffix: str) -> Path:
        """The one file of this kind."""
        (path,) = self.directory.glob(f"*{suffix}")
        return path


@pytest.fixture
def shop(tmp_path: Path) -> Workshop:
    """A workshop with an empty cache."""
    return Workshop(tmp_path)


def test_made_once(shop: Workshop) -> None:
    """The first load builds and compiles, and later ones only load."""
    for _ in range(3):
        assert isinstance(shop.load(), Compiled)
    assert shop.work == (1, 1)


def test_held_open(shop: Workshop) -> None:
    """`get` gives the compiled file, its path good until it is closed, with what is known of it."""
    with shop.cache.get(fingerprint="f", compile=shop.compile, packages=["B", "a"]) as compiled:
        shop.cache.remove()
        assert isinstance(Compiled.deserialize_file(ENGINE, compiled.path), Compiled)
        assert compiled.component.requirements == ("a", "b")
    compiled.close()


def _spoil(suffix: str, harm: Callable[[Path], object]) -> Callable[[Workshop], object]:
    return lambda shop: harm(shop.file(suffix))


SPOILED: dict[str, tuple[Callable[[Workshop], object], tuple[int, int]]] = {
    "truncated": (_spoil(".cwasm", lambda path: os.truncate(path, 100)), (1, 2)),
    "zeroed": (_spoil(".cwasm", lambda path: path.write_bytes(bytes(path.stat().st_size))), (1, 2)),
    "world-writable": (_spoil(".cwasm", lambda path: path.chmod(0o666)), (1, 2)),
    "description garbage": (_spoil(".cwasm.json", lambda path: path.write_bytes(b"\xff{")), (1, 2)),
    "component gone": (_spoil(".wasm", lambda path: path.unlink()), (1, 1)),
    "component description gone": (_spoil(".wasm.json", lambda path: path.unlink()), (2, 2)),
    "component description garbage": (_spoil(".wasm.json", lambda path: path.write_text('{"about": {}}')), (2, 2)),
    "directory world-writable": (lambda shop: shop.directory.chmod(0o777), (2, 2)),
}


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled(shop: Workshop, name: str) -> None:
    """Damaged entries and those open to others are made again, and then stay; good ones are used."""
    shop.load()
    harm, work = SPOILED[name]
    harm(shop)
    shop.load()
    assert shop.work == work
    shop.load()
    assert shop.work == work


def test_spoiled_component(shop: Workshop) -> None:
    """A damaged component is not compiled but built again."""
    shop.load()
    shop.file(".wasm").write_bytes(b"\0asm something else")
    shop.load("another")
    assert shop.work == (2, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_foreign(shop: Workshop) -> None:
    """A compiled file of another user is made again."""
    shop.load()
    os.chown(shop.file(".cwasm"), 65534, 65534)
    shop.load()
    assert shop.work == (1, 2)
    assert shop.file(".cwasm").stat().st_uid == 0


def test_another_entry_under_its_name(shop: Workshop) -> None:
    """An intact entry is not taken for another one whose name it was given."""
    shop.load("one")
    one = shop.file(".cwasm")
    kept = {name: Path(f"{one}{name}").read_bytes() for name in ("", ".json")}
    shop.cache.remove()
    shop.load("two")
    two = shop.file(".cwasm")
    for name, data in kept.items():
        Path(f"{two}{name}").write_bytes(data)
    shop.load("two")
    assert shop.work == (2, 3)


def test_other_engine(shop: Workshop) -> None:
    """Another way to compile is another compiled form of the same component."""
    for fingerprint in ("one", "two", "one"):
        shop.load(fingerprint)
    assert shop.work == (1, 2)


def test_other_packages(shop: Workshop) -> None:
    """Each set of packages is a sandbox of its own, however it is spelled."""
    for packages in ((), ["Left"], ["left", "right"], ["right", "left", "LEFT"], ["left"]):
        shop.load(packages=packages)
    assert shop.builds == [(), ("left",), ("left", "right")]


def test_other_version_of_wasmtime(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machine code of another version of wasmtime, or for another processor, is not used."""
    shop.load()
    monkeypatch.setattr(module, "installed_version", lambda *_: "1.0")
    shop.load()
    monkeypatch.setattr(module, "_processor", lambda: "flags: none")
    shop.load()
    assert shop.work == (1, 3)


@pytest.mark.parametrize("change", ["inputs_digest", "builder_version"])
def test_other_version_of_what_it_is_built_from(shop: Workshop, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """When our files or the builder change, the component is built again."""
    shop.load()
    monkeypatch.setattr(module, change, lambda: "another")
    real, shop.text = shop.build, "(component (core module))"
    monkeypatch.setattr(
        shop,
        "build",
        lambda *args, **options: dataclasses.replace(
            real(*args, **options), **{change.removesuffix("_digest").removesuffix("_version"): "another"}
        ),
    )
    for _ in range(2):
        shop.load()
    assert shop.work == (2, 2)


def test_builder_gone(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A built sandbox is used even after the builder was uninstalled."""
    shop.load()
    monkeypatch.setattr(module, "builder_version", lambda: None)
    shop.load()
    assert shop.work == (1, 1)


def test_refused_by_the_loader(shop: Workshop) -> None:
    """An entry that fails to load is made once more; a second failure comes out."""
    paths: list[str] = []

    def _load(path: str) -> str:
        paths.append(path)
        if len(paths) in (1, 3, 4):
            raise WasmtimeError("another processor")
        return "loaded"

    assert shop.cache.load(_load, fingerprint="f", compile=shop.compile) == "loaded"
    assert shop.work == (1, 2)
    with pytest.raises(WasmtimeError, match="another processor"):
        shop.cache.load(_load, fingerprint="f", compile=shop.compile)
    assert shop.work == (1, 3)


class TestQuick:
    """A first use compiles quickly, and later without haste."""

    @staticmethod
    def quick(shop: Workshop, made: list[int]) -> Callable[[bytes], bytes]:
        """A compiler that counts by itself."""

        def compile(data: bytes) -> bytes:
            made.append(len(data))
            return bytes(Compiled(ENGINE, data).serialize())

        return compile

    def test_at_first_use(self, shop: Workshop) -> None:
        """The quick form serves until there is another one, and is discarded then."""
        made: list[int] = []
        quick = self.quick(shop, made)
        for _ in range(2):
            shop.load(quick=quick)
            assert (len(made), shop.work, shop.cache.lacks(fingerprint="f")) == (1, (1, 0), True)
        assert shop.cache.optimise(fingerprint="f", compile=shop.compile)
        assert not shop.cache.optimise(fingerprint="f", compile=shop.compile)
        assert not shop.cache.lacks(fingerprint="f")
        shop.load(quick=quick)
        assert (len(made), shop.work) == (1, (1, 1))
        shop.file(".cwasm")

    def test_where_no_quick_form_is_wanted(self, shop: Workshop) -> None:
        """The quick form is not taken for the other one."""
        shop.load(quick=self.quick(shop, []))
        shop.load()
        assert shop.work == (1, 1)

    def test_nothing_to_optimise(self, shop: Workshop) -> None:
        """Nothing is compiled that was never built."""
        assert not shop.cache.lacks(fingerprint="f")
        assert not shop.cache.optimise(fingerprint="f", compile=shop.compile)
        assert shop.work == (0, 0)

    def test_one_at_a_time_and_none_waits(self, shop: Workshop) -> None:
        """While one process compiles, others do not compile too, and load and build what they want."""
        shop.load(quick=self.quick(shop, []))

        def compile(data: bytes) -> bytes:
            assert not shop.cache.optimise(fingerprint="f", compile=shop.compile)
            shop.load(packages=["other"], quick=self.quick(shop, []))
            shop.cache.remove(["other"])
            return shop.compile(data)

        assert shop.cache.optimise(fingerprint="f", compile=compile)
        assert shop.compiles == 1


def test_shipped(shop: Workshop) -> None:
    """The module in the wheel is compiled, and nothing is built."""
    data = shop.ship()
    compiled: list[bytes] = []
    shop.cache.load(str, fingerprint="f", compile=lambda found: compiled.append(found) or shop.compile(found))
    shop.load()
    assert compiled == [data]
    assert shop.work == (0, 1)
    (row,) = shop.cache.list()
    assert (row.shipped, row.current, row.compiled) == (True, True, 1)


def test_shipped_and_packages(shop: Workshop) -> None:
    """A sandbox with packages is built, whatever the wheel brought."""
    shop.ship()
    shop.load(packages=["left"])
    assert shop.builds == [("left",)]


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_shipped_is_damaged(shop: Workshop, harm: str) -> None:
    """A damaged installation is not compiled, and the error says so."""
    shop.ship()
    shop.shipped.write_bytes(b"x") if harm == "damaged" else shop.shipped.unlink()
    with pytest.raises(ConfigurationError, match="reinstall toolexec"):
        shop.load()
    assert shop.work == (0, 0)


@pytest.mark.parametrize("text", ["", "{}", None])
def test_shipped_is_of_another_version(shop: Workshop, text: str | None) -> None:
    """A module that does not fit the installed files is not used: a new one is built."""
    shop.ship(inputs="of another version")
    if text is not None:
        shop.shipped.with_suffix(".json").write_text(text)
    shop.load()
    assert shop.work == (1, 1)


def test_nothing_to_build_with(shop: Workshop) -> None:
    """Without a component and without a builder the error says why and what to install."""

    def _build(*_: Any, **__: Any) -> Component:
        raise MissingExtraError("sandbox-build", needed_for="building the sandbox")

    cache = ComponentCache(shop.directory, shipped=shop.shipped, build=_build)
    with pytest.raises(ConfigurationError, match=r"a source tree does not.*pip install 'toolexec\[sandbox-build\]'"):
        cache.get(fingerprint="f", compile=shop.compile)
    with pytest.raises(MissingExtraError):
        cache.get(fingerprint="f", compile=shop.compile, packages=["left"])
    assert cache.list() == []


def test_failures_leave_nothing(shop: Workshop) -> None:
    """When compiling fails, the error comes out, nothing half-made stays, and the next try works."""

    def _fail(data: bytes) -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        shop.cache.get(fingerprint="f", compile=_fail)
    assert list(shop.directory.glob("*.cwasm*")) == []
    shop.load()
    assert shop.work == (1, 1)


def test_progress(shop: Workshop) -> None:
    """Compiling is reported, and not when there is nothing to compile."""
    steps: list[BuildStep] = []
    shop.load(progress=steps.append)
    assert steps[-1] == BuildStep(name="compile", fraction=1.0, message="compiling the sandbox for this machine")
    steps.clear()
    shop.load(progress=steps.append)
    assert steps == []


def test_directory_in_use_by_a_stranger(shop: Workshop) -> None:
    """A directory that cannot be used is an error before anything is built."""
    shop.directory.write_text("a file")
    with pytest.raises(ConfigurationError, match="TOOLEXEC_CACHE"):
        shop.load()
    assert shop.work == (0, 0)


def test_forgetful_directory(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not keep what is written is distinguished from success."""
    monkeypatch.setattr(module.PrivateDirectory, "open", lambda *_: None)
    with pytest.raises(ConfigurationError, match="does not keep what is written"):
        shop.load()


def test_list(shop: Workshop) -> None:
    """All sandboxes are listed, with their packages, what they take, and whether they would be used."""
    assert shop.cache.list() == []
    shop.load()
    shop.load("another")
    shop.load(packages=["left"])
    for path in shop.directory.glob("*.wasm"):
        os.utime(path, (100, 100))
    rows = {row.requirements: row for row in shop.cache.list()}
    assert {wanted: (row.compiled, row.shipped, row.current) for wanted, row in rows.items()} == {
        (): (2, False, True),
        ("left",): (1, False, True),
    }
    assert rows["left",].packages == {"left": "1.0"}
    assert sum(row.size for row in rows.values()) == sum(path.stat().st_size for path in shop.directory.glob("[!.]*"))
    assert all(row.used is not None and row.used.year > 2000 for row in rows.values())


def test_list_of_another_version(shop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists the entries of another version as such, and nothing that is not a sandbox."""
    shop.load()
    monkeypatch.setattr(module, "inputs_digest", lambda: "another")
    with module.PrivateDirectory(shop.directory) as directory, directory.locked():
        directory.store("note", b"x", {})
    assert [row.current for row in shop.cache.list()] == [False]


def test_remove(shop: Workshop) -> None:
    """One sandbox or all are removed, and the freed bytes are told."""
    for packages in ((), ["left"], ["right"]):
        shop.load(packages=packages)
    sizes = {row.requirements: row.size for row in shop.cache.list()}
    assert shop.cache.remove(["Left"]) == sizes["left",]
    assert shop.cache.remove(["left"]) == 0
    assert shop.cache.remove([]) == sizes[()]
    assert [row.requirements for row in shop.cache.list()] == [("right",)]
    assert shop.cache.remove() == sizes["right",]
    assert [path.name for path in shop.directory.iterdir()] == [".lock"]


def test_pruned(shop: Workshop) -> None:
    """Old compiled forms go, those last used stay."""
    for number in range(9):
        shop.load(str(number))
        os.utime(
            max(shop.directory.glob("*.cwasm"), key=lambda path: path.stat().st_mtime), (number + 100, number + 100)
        )
        shop.load("0")
    assert len(list(shop.directory.glob("*.cwasm"))) == 6
    before = shop.compiles
    shop.load("0")
    shop.load("8")
    assert shop.compiles == before
    shop.load("1")
    assert shop.compiles == before + 1


SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import importlib.util
spec = importlib.util.spec_from_file_location("parts", sys.argv[2])
parts = importlib.util.module_from_spec(spec); sys.modules["parts"] = parts; spec.loader.exec_module(parts)
directory = Path(sys.argv[3])
shop = parts.Workshop(directory)
real = shop.build
def build(*args, **options):
    with (directory / "builds").open("a") as log:
        log.write("built\\n")
    time.sleep(float(sys.argv[4]))
    return real(*args, **options)
shop.build = build
print("ready", flush=True)
sys.stdin.readline()
shop.load()
print("loaded", flush=True)
"""


def _process(directory: Path, seconds: float) -> subprocess.Popen[str]:
    source = str(Path(module.__file__).parents[3])
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, source, __file__, str(directory), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(directory)},
        text=True,
    )


def _say(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


@pytest.mark.full
def test_processes_at_once(tmp_path: Path) -> None:
    """Of several processes that start at once, one builds, and all load what it built."""
    processes = [_process(tmp_path, 0.5) for _ in range(3)]
    try:
        for process in processes:
            _say(process, "ready")
        for process in processes:
            _go(process)
        for process in processes:
            _say(process, "loaded")
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert (tmp_path / "builds").read_text() == "built\n"


@pytest.mark.full
def test_builder_is_killed(tmp_path: Path) -> None:
    """When the process that builds is killed, another one takes over."""
    with _process(tmp_path, 600) as first:
        _say(first, "ready")
        _go(first)
        while not (tmp_path / "builds").exists():
            assert first.poll() is None
        first.send_signal(signal.SIGKILL)
    shop = Workshop(tmp_path)
    shop.load()
    assert shop.work == (1, 1)


def test_threads_at_once(shop: Workshop) -> None:
    """Threads of one process share the work, too."""
    loaded: list[Compiled] = []
    threads = [threading.Thread(target=lambda: loaded.append(shop.load())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(loaded) == 4
    assert shop.work == (1, 1)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"TOOLEXEC_CACHE": "/own", "XDG_CACHE_HOME": "/xdg"}, "/own/sandbox"),
        ({"TOOLEXEC_CACHE": "~/own"}, "/home-of-tests/own/sandbox"),
        ({"TOOLEXEC_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/toolexec/sandbox"),
        ({"XDG_CACHE_HOME": "relative"}, "/home-of-tests/.cache/toolexec/sandbox"),
        ({}, "/home-of-tests/.cache/toolexec/sandbox"),
    ],
)
def test_default_directory(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    """The directory follows the variables in their order; a relative XDG_CACHE_HOME does not count."""
    monkeypatch.setenv("HOME", "/home-of-tests")
    for name in ("TOOLEXEC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert default_directory() == Path(expected)
    assert ComponentCache().directory == Path(expected)


def test_relative_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative TOOLEXEC_CACHE is taken from the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLEXEC_CACHE", "here")
    assert default_directory() == tmp_path / "here" / "sandbox"


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home directory the error says what to set."""
    monkeypatch.setenv("TOOLEXEC_CACHE", "~no-such-user-at-all/x")
    with pytest.raises(ConfigurationError, match="TOOLEXEC_CACHE"):
        default_directory()


@pytest.fixture
def bring(shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Ship a component, and install code for it as the wheel of the compiled sandbox does."""

    def install(code: bytes | None = None, *, fingerprint: str = "f", on: str = "") -> Path:
        data = shop.ship()
        compiled = bytes(Compiled(ENGINE, data).serialize())
        named = {"fingerprint": fingerprint, "sha256": hashlib.sha256(compiled).hexdigest()}
        description = shop.shipped.with_suffix(".json")
        description.write_text(json.dumps(json.loads(description.read_text()) | {"compiled": {on or machine(): named}}))
        package = tmp_path / "site" / "toolexec_sandbox"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("raise AssertionError('it must not be imported')")
        path = package / f"{machine()}.cwasm"
        path.write_bytes(compiled if code is None else code)
        monkeypatch.syspath_prepend(str(package.parent))
        return path

    return install


def test_code_from_a_wheel_is_not_compiled(shop: Workshop, bring: Callable[..., Path]) -> None:
    """The first load takes what is installed, keeps its own copy of it, and needs the wheel no more."""
    path = bring()
    assert isinstance(shop.load(), Compiled)
    path.unlink()
    assert isinstance(shop.load(), Compiled)
    assert shop.work == (0, 0)


def test_code_from_a_wheel_is_not_compiled_later_either(shop: Workshop, bring: Callable[..., Path]) -> None:
    """All optimisations are in it: nothing is left for a process in the background."""
    bring()
    assert isinstance(shop.load(quick=shop.compile), Compiled)
    assert not shop.cache.lacks(fingerprint="f")
    assert not shop.cache.optimise(fingerprint="f", compile=shop.compile)
    assert shop.work == (0, 0)


def test_code_that_is_not_the_one_named_is_not_loaded(
    shop: Workshop, bring: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Another file in the package's place: the component is compiled here, and the log says so."""
    foreign = bytes(
        Compiled(ENGINE, bytes(wasmtime.wat2wasm('(component (core module (func (export "evil"))))'))).serialize()
    )
    path = bring(foreign)
    assert isinstance(shop.load(), Compiled)
    assert shop.work == (0, 1)
    assert f"{path} is not the code" in caplog.text


@pytest.mark.parametrize("wrong", [{"fingerprint": "g"}, {"on": "plan9-vax"}])
def test_code_for_another_engine_or_machine_is_left(
    shop: Workshop, bring: Callable[..., Path], wrong: dict[str, str]
) -> None:
    """Code for another one would not be loaded by this one."""
    bring(**wrong)
    assert isinstance(shop.load(), Compiled)
    assert shop.work == (0, 1)


def test_code_that_cannot_be_loaded_here_is_compiled_once(shop: Workshop, bring: Callable[..., Path]) -> None:
    """The processor may lack what the code was made for: the second attempt does not come back to it."""
    bring()
    refused: list[str] = []

    def load(path: str) -> Compiled:
        if not refused:
            refused.append(path)
            raise WasmtimeError("compiled with features that this processor lacks")
        return Compiled.deserialize_file(ENGINE, path)

    assert isinstance(shop.cache.load(load, fingerprint="f", compile=shop.compile), Compiled)
    assert shop.work == (0, 1)
