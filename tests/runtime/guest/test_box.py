"""The guest of containers, with Python programs: from the files here, as it is shipped, and in a real container."""

from __future__ import annotations

import ast
import asyncio
import importlib
import importlib.util
import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec.errors import ConnectionClosedError
from toolexec.runtime.guest import bundle
from toolexec.runtime.guest.box import sources
from toolexec.runtime.guest.bundle import GuestSettings, boot_bytes, boot_command

WHERE = ["loose", "shipped", "bwrap"]
everywhere = pytest.mark.parametrize("where", WHERE)


@everywhere
async def test_values_prints_and_calls(box: Callable[..., Any], where: str) -> None:
    """One program after the other, whose names stay; bye ends it in peace."""
    guest = await box(where)
    assert guest.talk.capabilities[:4] == ("python", "sessions", "files", "interrupt")
    assert guest.talk.hello["undropped"] == []
    assert await guest.value("x = tools.test.echo(give=2)\nprint('hi')\nx + 1") == 3
    assert guest.output.text() == "hi\n"
    assert await guest.value("[x, tools.test.echo(give='ä')]") == [2, "ä"]
    error = await guest.error("y = 1\ntools.test.nope()")
    assert (error["line"], error["tool_error"]["code"]) == (2, "tool_not_found")
    assert await guest.end() == 0
    assert guest.said.read_text() == ""


@everywhere
async def test_gathered_calls(box: Callable[..., Any], where: str) -> None:
    """In async code, and in threads."""
    code = """
import asyncio, threading
seen = []
threads = [threading.Thread(target=lambda n=n: seen.append(tools.test.echo(give=n))) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
return [sorted(seen), await asyncio.gather(*[tools.test.echo(give=n) for n in range(50)])]
"""
    assert await (await box(where)).value(code) == [[0, 1, 2, 3], [*range(50)]]


@everywhere
async def test_all_that_is_written_comes_out_in_its_order(box: Callable[..., Any], where: str) -> None:
    """Output of Python, of its children and of the descriptors keeps its order."""
    guest = await box(where)
    code = """
import os, subprocess, sys
for n in range(3):
    print("print", n)
    subprocess.run(["sh", "-c", f"echo child {n}; echo error {n} >&2"])
    os.write(1, b"low %d\\n" % n)
print("end", file=sys.stderr)
sys.__stdout__.write("late\\n")
"""
    assert await guest.value(code) == 5
    lines = [f"{word} {n}" for n in range(3) for word in ("print", "child", "low")]
    assert guest.output.text().splitlines() == [*lines, "late"]
    assert guest.output.text("stderr").splitlines() == ["error 0", "error 1", "error 2", "end"]


@everywhere
async def test_a_flood_of_a_child_is_bounded_and_counted(box: Callable[..., Any], where: str) -> None:
    """A flood blocks no other process; half a character at the end is shown as such."""
    guest = await box(where)
    code = 'import os\nos.system(\'head -c 3000000 /dev/zero | tr "\\\\0" x; printf "\\\\303" >&2\')\n1'
    assert await guest.value(code, limit=1000) == 1
    assert guest.output.text().startswith("x" * 1000)
    assert guest.output.dropped == 2_999_000
    assert guest.output.text("stderr") == "�"
    assert await guest.value("print('next')", limit=1000) is None
    assert guest.output.text() == "next\n"


async def test_characters_are_whole_however_they_are_written(box: Callable[..., Any]) -> None:
    """Byte by byte."""
    guest = await box()
    code = "import os, time\nfor byte in 'aä€😀'.encode():\n    os.write(1, bytes([byte])); time.sleep(0.002)"
    await guest.value(code)
    assert guest.output.text() == "aä€😀"


async def test_output_comes_while_a_program_runs(box: Callable[..., Any]) -> None:
    """The host has it before a call that follows."""
    guest = await box()
    running = asyncio.create_task(guest.run("import os\nos.system('echo early')\ntools.test.hold()"))
    await until(lambda: guest.output.text() == "early\n")
    running.cancel()
    await asyncio.wait({running})


async def test_input_environment_and_arguments(box: Callable[..., Any]) -> None:
    """Input, environment and arguments belong to one run; the directory is where each run begins."""
    guest = await box()
    code = """
import os, subprocess, sys
os.chdir("/")
[sys.stdin.read(), os.environ.get("MINE"), sys.argv[1:]]
"""
    assert await guest.value(code, stdin=b"in\n", env={"MINE": "x", "HOME": "/h"}, args=["a"]) == ["in\n", "x", ["a"]]
    work = guest.said.parent / "work"
    code = "import os, sys\n[sys.stdin.read(), os.environ.get('MINE'), os.environ['HOME'], os.getcwd()]"
    assert await guest.value(code) == ["", None, str(work), str(work)]
    assert await guest.value("import subprocess\nsubprocess.run(['cat'], stdout=-1).stdout.decode()", stdin=b"i") == "i"


async def test_the_environment_of_the_image_stays_but_for_what_is_dangerous(
    box: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables that would change how Python, node or bash start are removed."""
    for name in ("PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV", "BASH_FUNC_x%%", "IMAGE_SAYS"):
        monkeypatch.setenv(name, "1")
    names = await (await box("shipped")).value("import os\nsorted(os.environ)")
    assert "IMAGE_SAYS" in names
    assert not {"PYTHONSTARTUP", "NODE_OPTIONS", "BASH_ENV", "BASH_FUNC_x%%"} & {*names}


@everywhere
async def test_bounds_of_16_mib(box: Callable[..., Any], where: str) -> None:
    """Values, calls and prints that are larger are refused or come in parts; the guest goes on."""
    guest = await box(where)
    assert "put it into a file" in (await guest.error("'x' * (17 << 20)"))["message"]
    assert await guest.value("len(tools.test.echo(give='x' * (15 << 20)))") == 15 << 20
    code = "try:\n    tools.test.echo(give='x' * (17 << 20))\nexcept ToolError as error:\n    code = error.code\ncode"
    assert await guest.value(code) == "protocol"
    await guest.value("print('x' * (17 << 20))")
    assert len(guest.output.text()) > 1 << 20
    assert await guest.value("1") == 1


@everywhere
async def test_files_go_in_and_out(box: Callable[..., Any], where: str) -> None:
    """The host is told when there is nothing to take."""
    guest = await box(where)
    assert (await guest.run("1")).result == {"value": 1, "files": False}
    await guest.talk.put_files({"in.txt": b"given"})
    ending = await guest.run("open('out.txt', 'w').write(open('in.txt').read() + '!')")
    assert "files" not in ending.result
    assert await guest.talk.take_files() == ({"out.txt": b"given!"}, ())
    assert (await guest.run("1 / 0")).result["files"] is False


async def test_tracebacks_have_the_lines_of_programs(box: Callable[..., Any]) -> None:
    """Though the module that keeps them is not there at first; in earlier programs, too, and in the program's own
    hands."""
    guest = await box("shipped")
    await guest.value("def first():\n    raise KeyError('x')")
    code = "import traceback\ntry:\n    first()\nexcept KeyError:\n    text = traceback.format_exc()\ntext"
    text = await guest.value(code)
    assert "raise KeyError('x')" in text
    assert "first()" in text
    await guest.value("def second():\n    raise ValueError('y')")
    assert "raise ValueError('y')" in (await guest.error("second()"))["traceback"]


async def test_little_is_imported_before_the_first_program(box: Callable[..., Any]) -> None:
    """Slow modules are imported only by programs that need them."""
    guest = await box("bwrap")
    names = {*await guest.value("import sys\nsorted(sys.modules)")}
    heavy = {"typing", "collections.abc", "linecache", "tokenize", "importlib", "subprocess", "tempfile", "pathlib"}
    assert not names & (heavy | {"queue", "base64", "warnings", "signal", "socket", "asyncio", "shutil", "traceback"})


@pytest.mark.parametrize("version", ["3.9", "3.10", "3.11", "3.12", "3.13"])
async def test_it_runs_in_every_python_from_3_9_on(
    box: Callable[..., Any], find_python: Callable[[str], str], version: str
) -> None:
    """With the compiled code of this one, or without it, all that it can do."""
    python = find_python(f"python{version}")
    if not python:
        pytest.skip(f"there is no Python {version} here")
    guest = await box("shipped", python=python, init=True, warm=True, drop=("no_new_privileges", "landlock", "seccomp"))
    code = """
import asyncio, os, sys, threading, warnings
warnings.simplefilter("error")
if os.fork() == 0:
    os._exit(0)
os.wait()
seen = []
thread = threading.Thread(target=lambda: seen.append(tools.test.echo(give=1)))
thread.start()
thread.join()
os.system("echo child")
return [*seen, *await asyncio.gather(tools.test.echo(give=3), tools.test.echo(give=4)), "%d.%d" % sys.version_info[:2]]
"""
    assert await guest.value(code) == [1, 3, 4, version]
    assert guest.output.text() == "child\n"
    assert guest.talk.hello["python"].startswith(version)
    await guest.talk.put_files({"a": b"1"})
    assert await guest.value("import os\nos.rename('a', 'b')\n1") == 1
    assert await guest.talk.take_files() == ({"b": b"1"}, ())
    assert await guest.value("tool run test:echo '{\"give\": 5}'; tool return 6", "bash") == 6
    assert guest.output.text() == "5\n"
    error = await guest.error("def f():\n    return tools.test.nope()\nf()")
    assert (error["line"], "toolexec" in error["traceback"]) == (2, False)
    assert await guest.end() == 0


@pytest.mark.parametrize("where", ["loose", "bwrap"])
async def test_a_warm_guest_has_imported_what_is_usual(box: Callable[..., Any], where: str) -> None:
    """A warm guest leaves no trace of its warm-up."""
    guest = await box(where, warm=True)
    code = "import sys\n[{'asyncio', 'json', 're'} <= {*sys.modules}, [n for n in globals() if n in 'x']]"
    assert await guest.value(code) == [True, []]
    assert guest.order == []
    assert await guest.value("await tools.test.echo(give=1)") == 1
    assert (await guest.error("1 / 0"))["source"] == "1 / 0"


async def test_seeds_make_numbers_repeat(box: Callable[..., Any]) -> None:
    """Only for those who ask."""
    code = "import random\nrandom.random()"
    first, second = [await (await box("shipped", warm=True)).value(code, seed=1) for _ in range(2)]
    assert first == second
    assert await (await box("shipped", warm=True)).value(code) != first


async def test_a_language_that_is_not_there_is_an_error(box: Callable[..., Any]) -> None:
    """Of the run; the guest goes on."""
    guest = await box("bwrap", language="cobol")
    assert "nothing in the image that runs cobol" in (await guest.error("1", "cobol"))["message"]
    assert await guest.value("1") == 1


@pytest.mark.parametrize("where", ["loose", "shipped"])
async def test_a_guest_that_cannot_begin_says_why(box: Callable[..., Any], tmp_path: Path, where: str) -> None:
    """On the stderr that it was given."""
    with pytest.raises(ConnectionClosedError):
        await box(where, work=str(tmp_path / "nowhere"))
    assert "FileNotFoundError" in (tmp_path / "said").read_text()


async def test_a_host_that_hangs_up_at_once_leaves_nothing(tmp_path: Path) -> None:
    """In the middle of the guest's own text."""
    command = boot_command(GuestSettings(work=str(tmp_path)), sys.executable)
    process = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
    said, _ = await process.communicate(boot_bytes()[:1000])
    assert (process.returncode, said) == (1, b"")


def test_its_files_are_for_python_3_9() -> None:
    """Without a module of ours from outside, in what is shipped and in its sources."""
    for name, (text, _) in bundle._sources(bundle._BOXED).items():
        ast.parse(text, feature_version=(3, 9))
        assert "from toolexec" not in text, name
        assert "import toolexec" not in text, name


def test_its_command_has_no_secret_and_its_text_is_made_once() -> None:
    """The settings are readable for everybody."""
    command = boot_command(GuestSettings(work="/w", drop=("seccomp",)), "python3.9")
    assert command[:4] == ("python3.9", "-I", "-X", "utf8")
    assert json.loads(command[-1])["drop"] == ["seccomp"]
    assert len(command[-2]) < 500
    assert boot_bytes() is boot_bytes()
    assert len(boot_bytes()) < 550_000  # each start sends it


async def test_a_proxy_is_there_when_it_is_asked_for(box: Callable[..., Any]) -> None:
    """On its port of the loopback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    guest = await box("loose", proxy_port=port)
    assert "proxy" in guest.talk.capabilities
    assert await guest.value(f"import socket\nsocket.create_connection(('127.0.0.1', {port})).close()") is None


async def test_an_image_with_nothing_but_python(box: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Says so."""
    monkeypatch.setenv("PATH", "/nowhere")
    guest = await box("loose", language="javascript")
    assert guest.talk.capabilities == ("python", "sessions", "files", "interrupt")
    assert "nothing in the image that runs bash" in (await guest.error("1", "bash"))["message"]


async def test_a_working_directory_that_is_gone_is_an_error(box: Callable[..., Any]) -> None:
    """Of the next run; the guest goes on."""
    guest = await box("loose")
    await guest.value("import os\nos.rmdir(os.getcwd())")
    assert (await guest.error("1"))["kind"] == "FileNotFoundError"
    (guest.said.parent / "work").mkdir()
    assert await guest.value("1") == 1


def test_the_lines_of_programs_wait_for_the_module_that_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are there at the first import of linecache, and after that at once."""
    monkeypatch.delitem(sys.modules, "linecache")
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    before = len(sys.meta_path)
    sources.keep("<one>", (1, None, ["1\n"], "<one>"))
    sources.keep("<two>", (1, None, ["2\n"], "<two>"))
    assert len(sys.meta_path) == before + 1
    assert importlib.util.find_spec("colorsys") is not None
    linecache = importlib.import_module("linecache")
    assert (linecache.getline("<one>", 1), linecache.getline("<two>", 1)) == ("1\n", "2\n")
    assert len(sys.meta_path) == before
    sources.keep("<three>", (1, None, ["3\n"], "<three>"))
    assert linecache.getline("<three>", 1) == "3\n"
    assert "exec_module" not in vars(linecache.__spec__.loader)


def test_a_module_that_nobody_finds_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The import fails as it would have done."""
    monkeypatch.delitem(sys.modules, "linecache")
    monkeypatch.setattr(sys, "meta_path", [])
    sources.keep("<one>", (1, None, ["1\n"], "<one>"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("linecache")
