"""A component built once for all tests of building, with packages from files and a guest program of a few lines."""

from __future__ import annotations

import json
import textwrap
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from wasmtime import Config, Engine, Store
from wasmtime.component import Component as Compiled
from wasmtime.component import Linker

from toolexec.process.steps import BuildStep
from toolexec.runtime.wasm.component import Component, build_component
from toolexec.runtime.wasm.engine import new_engine
from toolexec.runtime.wasm.guest import InstanceSettings
from toolexec.runtime.wasm.instance import Instance, Program

SMALL_GUEST = {
    "__init__.py": (
        "import json\n"
        "def start(frame, exchange, post):\n"
        "    names = {'exchange': exchange, 'post': post, '__name__': 'guest'}\n"
        "    exec(frame, names)\n"
        "    return json.dumps(names.get('value'))\n"
    ),
    "inner/__init__.py": "",
    "inner/later.py": "WORD = 'later'\n",
}
SAMPLE = {
    "sample_tools/__init__.py": "from sample_needed import NEEDED\nimport sample_tools.side\nVALUE = NEEDED + 1\n",
    "sample_tools/__main__.py": "raise SystemExit('never imported')\n",
    "sample_tools/side.py": "def fail():\n    raise ValueError('from the side')\n",
    "sample_tools/broken.py": "import sample_missing\n",
    "sample_tools/tests/__init__.py": "raise RuntimeError('never imported')\n",
    "sample_tools/data/words.txt": "één\ntwee\n",
}


def write_wheel(
    directory: Path, name: str, files: Mapping[str, str], *, tag: str = "py3-none-any", needs: str = ""
) -> None:
    """Put a wheel of package *name* 1.0 with *files* into *directory*."""
    directory.mkdir(parents=True, exist_ok=True)
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n" + (f"Requires-Dist: {needs}\n" if needs else "")
    written = {
        **files,
        f"{info}/METADATA": metadata,
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(f"{path},,\n" for path in [*written, f"{info}/RECORD"])
    with zipfile.ZipFile(directory / f"{name}-1.0-{tag}.whl", "w") as wheel:
        for path, text in {**written, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


def write_guest(directory: Path, files: Mapping[str, str]) -> Path:
    """Put a guest program into *directory*."""
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text, "utf-8")
    return directory


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of wheels: `sample_tools` with all that a package may have, what it needs, and some that are refused."""
    directory = tmp_path_factory.mktemp("wheels")
    write_wheel(directory, "sample_tools", SAMPLE, needs="sample_needed")
    write_wheel(directory, "sample_needed", {"sample_needed.py": "NEEDED = 41\n"})
    write_wheel(directory, "sample_native", {"sample_native.py": ""}, tag="cp314-cp314-manylinux_2_28_x86_64")
    write_wheel(directory, "sample_liar", {"sample_liar/__init__.py": "", "sample_liar/fast.so": "machine code"})
    write_wheel(directory, "sample_asks", {"sample_asks.py": ""}, needs="sample_native")
    write_wheel(directory, "sample_fails", {"sample_fails.py": "raise OSError('no such device')\n"})
    return directory


@pytest.fixture
def offline(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages come from `wheels` alone."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))


@dataclass(frozen=True, slots=True)
class Built:
    """A component, what was said of it, and the steps of its making."""

    path: Path
    about: Component
    steps: tuple[BuildStep, ...]
    guest: Path
    run: Callable[..., Any]


EMPTY_WORLD: dict[str, dict[str, Callable[..., Any]]] = {
    "wasi:cli/environment": {
        "get-environment": lambda _store: [],
        "get-arguments": lambda _store: [],
        "initial-cwd": lambda _store: None,
    },
    "wasi:random/random": {"get-random-bytes": lambda _store, count: bytes(count)},
    "wasi:filesystem/preopens": {"get-directories": lambda _store: []},
    "wasi:cli/terminal-stdin": {"get-terminal-stdin": lambda _store: None},
    "wasi:cli/terminal-stdout": {"get-terminal-stdout": lambda _store: None},
    "wasi:cli/terminal-stderr": {"get-terminal-stderr": lambda _store: None},
    "wasi:clocks/monotonic-clock": {"now": lambda _store: 0},
}
AT_START = {"get-environment", "get-arguments", "initial-cwd", "get-random-bytes"}


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory, wheels: Path) -> Built:
    """A component with `sample_tools`; `run(code)` runs code in a fresh instance and gives what it names `value`.

    It has `EMPTY_WORLD` of WASI, in which random bytes are zero and time stands still; whoever asks for more ends the
    instance. With a list as *asked* it gets the names of the functions that were called after the start.
    """
    directory = tmp_path_factory.mktemp("component")
    guest = write_guest(directory / "guest", SMALL_GUEST)
    steps: list[BuildStep] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(wheels))
        about = build_component(
            directory / "python.wasm", packages=["Sample.Tools"], guest=guest, progress=steps.append
        )
    config = Config()
    config.cranelift_opt_level = "none"
    engine = Engine(config)
    compiled = Compiled(engine, (directory / "python.wasm").read_bytes())
    with compiled.type as kind:
        imports = {name.partition("@")[0]: name for name in kind.imports(engine)}

    def _noting(asked: list[str], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def _noted(*arguments: Any) -> Any:
            asked.append(name)
            return function(*arguments)

        return _noted

    def _run(
        code: str,
        exchange: Callable[..., str] = lambda *_: "",
        post: Callable[..., None] = lambda *_: None,
        asked: list[str] | None = None,
    ) -> Any:
        noted: list[str] = []
        linker = Linker(engine)
        linker.define_unknown_imports_as_traps(compiled)
        linker.allow_shadowing = True
        with linker.root() as root:
            for interface, functions in EMPTY_WORLD.items():
                with root.add_instance(imports[interface]) as instance:
                    for name, function in functions.items():
                        instance.add_func(name, _noting(noted, name, function))
            root.add_func("exchange", exchange)
            root.add_func("post", post)
        store = Store(engine)
        start = linker.instantiate(store, compiled).get_func(store, "start")
        assert start is not None
        value = json.loads(start(store, code))
        if asked is not None:
            asked.extend(name for name in noted if name not in AT_START)
        return value

    return Built(directory / "python.wasm", about, tuple(steps), guest, _run)


class TestHost:
    """A host that answers with the frame in capitals, and keeps what was posted and printed."""

    __test__ = False

    def __init__(self, exchange: Callable[[str], str] = str.upper) -> None:
        self.posted: list[str] = []
        self.printed: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self._exchange = exchange

    def exchange(self, frame: str) -> str:
        """The answer."""
        return self._exchange(frame)

    def post(self, frame: str) -> None:
        """Keep it."""
        self.posted.append(frame)

    def on_output(self, stream: str, data: bytes) -> None:
        """Keep it."""
        self.printed[stream] += data


@dataclass(frozen=True, slots=True)
class Sandbox:
    """An instance with its host; `run(code)` gives what the code names `value`."""

    instance: Instance
    host: TestHost

    def run(self, code: str) -> Any:
        """Run code in `/workspace`, with the usual modules imported."""
        modules = "os, sys, time, re, json, select, socket, random, errno"
        return json.loads(self.instance.run(f"import {modules}\nos.chdir('/workspace')\n{textwrap.dedent(code)}"))


@pytest.fixture(scope="session")
def program(built: Built) -> Program:
    """The small component, compiled as the sandbox compiles it."""
    engine = new_engine()
    return Program(engine, Compiled(engine, built.path.read_bytes()))


@pytest.fixture
def sandbox(program: Program) -> Iterator[Callable[..., Sandbox]]:
    """Makes prepared instances from settings, and closes them in the end."""
    made: list[Sandbox] = []

    def _make(host: TestHost | None = None, **settings: Any) -> Sandbox:
        host = host or TestHost()
        made.append(Sandbox(Instance(program), host))
        made[-1].instance.prepare(InstanceSettings(**settings), host, host.on_output)
        return made[-1]

    yield _make
    for one in made:
        one.instance.close()


class Stuck:
    """A host whose answers come when it is let go."""

    def __init__(self) -> None:
        self.asked = threading.Event()
        self.answer = threading.Event()

    def exchange(self, frame: str) -> str:
        """The frame itself, in the end."""
        self.asked.set()
        assert self.answer.wait(60)
        return frame

    def post(self, frame: str) -> None:
        """Only note it."""
        self.asked.set()


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], Any]], tuple[threading.Thread, list[Any]]]]:
    """Runs something in a thread; the list gets its result or exception."""
    threads: list[threading.Thread] = []

    def _start(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
        ends: list[Any] = []

        def body() -> None:
            try:
                ends.append(work())
            except BaseException as error:
                ends.append(error)

        threads.append(threading.Thread(target=body))
        threads[-1].start()
        return threads[-1], ends

    yield _start
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
