"""A bare installation: what needs no extra works, and what needs one names it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

APP = '''
from toolexec import tool


@tool("shop:price", read_only=True)
def price(item: str, count: int = 1) -> float:
    """Tells the price of an item."""
    return {"tea": 4.5, "cake": 6.0}[item] * count
'''
WORKING = [
    ["search", "price", "-c", "app.py"],
    ["describe", "shop:price", "-c", "app.py"],
    ["run", "shop:price", "item=tea", "-c", "app.py"],
    ["run", "--stream", "shop:price", "item=tea", "-c", "app.py"],
    ["chain", "chain.json", "-c", "app.py"],
    ["list", "-c", "app.py"],
    ["backends", "-c", "app.py"],
    ["export", "-f", "openai", "-c", "app.py"],
    ["stubs", "-c", "app.py"],
    ["bench", "-c", "app.py"],
    ["runs", "list", "-c", "app.py"],
    ["trust", "list", "-c", "app.py"],
    ["tasks", "list"],
    ["config", "show", "-c", "app.py"],
    ["config", "show", "-c", "mcp.json"],
    ["config", "validate", "-c", "mcp.json"],
    ["config", "validate", "-c", "api.toml"],
    ["config", "keys"],
    ["client-config", "claude", "-c", "app.py"],
    ["init", "-o", "made.toml"],
    ["keys", "new", "ann"],
    ["sandbox", "list"],
    ["image", "list"],
]
NEEDING = [
    ("mcp", ["list", "-c", "mcp.json"]),
    ("mcp", ["run", "t:x", "-c", "mcp.json"]),
    ("mcp", ["--json", "list", "-c", "mcp.json"]),
    ("http", ["run", "api:x", "-c", "api.toml"]),
    ("serve", ["serve", "-c", "app.py"]),
    ("serve", ["serve", "-c", "app.py", "-t", "http"]),
    ("serve", ["list", "-c", "app.yaml"]),
    ("keyring", ["run", "shop:price", "-c", "keyring.py"]),
]
BLOCKED = """
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


BLOCKED = set(sys.argv.pop(1).split(","))
sys.meta_path.insert(0, Missing())
"""
COMMANDS = """
import contextlib, io, json
from toolexec.cli.app import main

done = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["toolexec", *words]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    done.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(done))
"""
NAMES = """
import importlib, json, pkgutil
import toolexec
from toolexec.errors import MissingExtraError

wrong = []
for info in pkgutil.walk_packages(toolexec.__path__, "toolexec.", onerror=lambda name: None):
    if not info.ispkg:
        continue
    module = importlib.import_module(info.name)
    for name in getattr(module, "__all__", ()):
        try:
            getattr(module, name)
        except MissingExtraError:
            pass
        except Exception as error:
            wrong.append([info.name, name, repr(error)])
for name in ["toolexec.server.app"]:
    try:
        importlib.import_module(name)
    except MissingExtraError as error:
        wrong += [] if error.details == {"extra": "serve"} else [[name, "", repr(error)]]
print(json.dumps(wrong))
"""


def optional_modules() -> set[str]:
    """The modules of everything that is installed here and does not come with a bare installation."""
    core, waiting = set[str](), ["toolexec"]
    while waiting:
        name = waiting.pop()
        if name not in core:
            core.add(name)
            requirements = [Requirement(each) for each in distribution(name).requires or ()]
            waiting += [
                each.name for each in requirements if each.marker is None or each.marker.evaluate({"extra": ""})
            ]
    core = {name.lower().replace("_", "-") for name in core}
    found = packages_distributions()
    return {name for name, owners in found.items() if not core & {owner.lower().replace("_", "-") for owner in owners}}


def bare(program: str, *arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as in a bare installation."""
    blocked = optional_modules()
    assert {"mcp", "anyio", "starlette", "yaml", "opentelemetry"} <= blocked
    assert not blocked & {"toolexec", "pydantic", "typer", "rich", "wasmtime"}
    command = [sys.executable, "-c", BLOCKED + program, ",".join(blocked), *arguments]
    env = {**os.environ, "XDG_STATE_HOME": str(directory), "HOME": str(directory), "NO_COLOR": "1"}
    return subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=80, check=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with what the commands read."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "chain.json").write_text('[{"tool": "shop:price", "args": {"item": "cake"}}]')
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"t": {"command": "nothing"}}}')
    (tmp_path / "api.toml").write_text('[providers.api]\nkind = "http"\nbase_url = "https://a.test"\n')
    (tmp_path / "app.yaml").write_text("sources: {python: [app.py]}\n")
    return tmp_path


@pytest.mark.full
def test_commands_work_without_extras(directory: Path) -> None:
    """Python functions are found, read about, run and exported with nothing but the package itself."""
    done = json.loads(bare(COMMANDS, json.dumps(WORKING), directory=directory).stdout)
    assert [(words, code, err) for words, (code, _, err) in zip(WORKING, done, strict=True) if code] == []
    assert "4.5" in done[2][1]


@pytest.mark.full
def test_commands_name_the_extra_they_need(directory: Path) -> None:
    """In one line, with exit code 2, and never with a traceback."""
    (directory / "keyring.py").write_text("import keyring\n")
    wanted = [words for _, words in NEEDING]
    done = json.loads(bare(COMMANDS, json.dumps(wanted), directory=directory).stdout)
    for (extra, words), (code, out, err) in zip(NEEDING, done, strict=True):
        if words[0] == "--json":
            assert json.loads(out)["error"]["details"] == {"extra": extra}
            continue
        assert code == 2, (words, err)
        assert len(err.strip().splitlines()) == 1
        if "keyring.py" not in words:  # a user's own import is the user's own error
            assert f"needs the '{extra}' extra; install it with: pip install 'toolexec[{extra}]'" in err, words


@pytest.mark.full
def test_a_client_is_set_up_with_a_warning(directory: Path) -> None:
    """A client that is set up before the extra is installed could not start it, so the extra is named."""
    words = ["install", "cursor", "-c", "app.py", "--yes"]
    ((code, out, err),) = json.loads(bare(COMMANDS, json.dumps([words]), directory=directory).stdout)
    assert (code, "Cursor is set up" in out) == (0, True), err
    assert "toolexec serve, which Cursor starts, needs the 'serve' extra" in err
    assert "pip install 'toolexec[serve]'" in err


@pytest.mark.full
def test_names_of_packages_work_or_name_their_extra(directory: Path) -> None:
    """No public name ends in the ImportError of another package's module."""
    assert json.loads(bare(NAMES, directory=directory).stdout) == []
