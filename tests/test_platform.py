"""Where the modules of Unix are missing, as on Windows: what can work does, and the rest is refused in words."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.workspace import usable

from toolexec.runtime.kinds import SANDBOXES

ELSEWHERE = """
import sys

MISSING = {"fcntl", "grp", "pty", "pwd", "resource", "termios", "tty"}


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


try:  # the SDK looks at os.name, and imports what this process still has
    import mcp.client.stdio
    import mcp.server.stdio
except ModuleNotFoundError:
    pass
for name in MISSING:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
"""
NAMES = """
import importlib, json, pkgutil
import toolexec
from toolexec.errors import ConfigurationError

wrong = []
for info in pkgutil.walk_packages(toolexec.__path__, "toolexec.", onerror=lambda name: None):
    if not info.ispkg or ".guest" in info.name or ".testing" in info.name:
        continue
    try:
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            getattr(module, name)
    except ConfigurationError as error:
        wrong += [] if "Linux" in error.message else [[info.name, error.message]]
    except Exception as error:
        wrong.append([info.name, repr(error)])
print(json.dumps(wrong))
"""
CALLS = """
import asyncio, json
from toolexec import Exec, Step, tool
from toolexec.runtime.sandboxes import SANDBOXES, SandboxSettings


@tool("math:add")
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b


@tool("math:slow", killable=True)
def slow() -> int:
    "Can be killed."
    return 1


HARDENED = ("gvisor", "qemu")


async def words(work):
    try:
        result = await work
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"{type(result.error).__name__}: {result.error}"


async def main():
    done = {}
    async with Exec() as ex:
        ex.add(add)
        ex.add(slow)
        done["run"] = (await ex.run_tool("math:add", {"a": 1, "b": 2})).value
        done["chain"] = (await ex.run_chain([Step(tool_id="math:add", args={"a": 1, "b": 2})])).value
        done["search"] = [found.id for found in await ex.search_tools("adds", 1)]
        done["killable"] = await words(ex.run_tool("math:slow"))
        done["code"] = await words(ex.execute_code("return 1"))
    for kind in SANDBOXES:
        if kind in ("proxmox_lxc", "remote"):  # which need to know where their servers are
            continue
        async with Exec(runtime_backends=SandboxSettings(use=(kind,)), unsafe_opt_in=True) as ex:
            profile = {"unsafe_host": "dev", **dict.fromkeys(HARDENED, "hardened")}.get(kind, "standard")
            done[kind] = await words(ex.execute_code("return 1", profile=profile))
    print(json.dumps(done))


asyncio.run(main())
"""
COMMANDS = """
import contextlib, io, json
from toolexec.cli.app import main

done = []
for line in json.loads(sys.argv[1]):
    sys.argv = ["toolexec", *line.split()]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as end:
            done.append([line, end.code or 0, out.getvalue()])
print(json.dumps(done))
"""
WORKING = [
    "list -c app.py",
    "search price -c app.py",
    "describe shop:price -c app.py",
    "run shop:price item=tea -c app.py",
    "export -f openai -c app.py",
    "stubs -c app.py",
    "bench -c app.py",
    "config validate -c app.py",
    "client-config claude -c app.py",
    "doctor --quick",
]
REFUSED = ["code -c app.py program.py", "sandbox build", "image list"]


def elsewhere(program: str, *arguments: str, directory: Path) -> str:
    """Run a program in a process without the modules of Unix and return its output."""
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE + program, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_public_names_are_there_or_refused_in_words(tmp_path: Path) -> None:
    """No package of toolexec ends in an ImportError."""
    assert json.loads(elsewhere(NAMES, directory=tmp_path)) == []


def test_tools_run_and_the_rest_is_refused_in_words(tmp_path: Path) -> None:
    """Functions, chains and searches need nothing of Unix; sandboxes and killable handlers say where they work."""
    (tmp_path / "program.py").write_text(CALLS)  # a killable handler must be in a file
    done = json.loads(elsewhere("import runpy; runpy.run_path('program.py', run_name='__main__')", directory=tmp_path))
    assert (done.pop("run"), done.pop("chain"), done.pop("search")) == (3, 3, ["math:add"])
    for kind in {*SANDBOXES} - {*usable(SANDBOXES)}:
        assert "pip install" in done.pop(kind, "pip install")  # of a package that is absent
    assert {name: text for name, text in done.items() if "works on Linux" not in text or "ImportError" in text} == {}


@pytest.mark.full
def test_commands_work_or_are_refused_in_words(tmp_path: Path) -> None:
    """With one line, and never with a traceback."""
    (tmp_path / "app.py").write_text(
        "from toolexec import tool\n@tool('shop:price')\ndef price(item: str) -> float:\n    'Price of an item.'\n    return 4.5\n"
    )
    (tmp_path / "program.py").write_text("return 1\n")
    done = json.loads(elsewhere(COMMANDS, json.dumps([*WORKING, *REFUSED]), directory=tmp_path))
    assert [(line, text) for line, code, text in done[: len(WORKING)] if code] == []
    refused = [(line, code, text) for line, code, text in done[len(WORKING) :]]
    wrong = [
        each for each in refused if each[1] not in (2, 3) or "works on Linux" not in each[2] or "Traceback" in each[2]
    ]
    assert wrong == []
