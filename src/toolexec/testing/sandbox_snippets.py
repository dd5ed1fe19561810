"""The programs that the sandbox suite runs, by language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from toolexec.model.json_value import JSONObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippets:
    """One program for each thing that the suite looks at; "" where the language has no such thing.

    The tools are `suite:add(a, b)` (sync), `suite:slow(a)` (async), `suite:fail()`, `suite:meet(guests)` (answers once
    so many calls are under way), `suite:wait()` (for ever), `suite:hold()` (blocks its thread for a while) and
    `suite:gate()` (until the check opens it).
    """

    language: str
    values: JSONObject
    """Programs and their values: the conventions of the language."""
    prints: str = ""
    """Prints `one`, calls suite:gate, prints `two`, and `bad` to stderr."""
    fails: str = ""
    """Prints `before`, makes the file `kept.txt`, calls suite:add, then fails with `boom`."""
    failing_line: int = 0
    """The line where `fails` does; 0 where the sandbox cannot know."""
    no_syntax: str = ""
    call: str = ""
    """Gives suite:add(a=1, b=2)."""
    call_async: str = ""
    """Gives suite:slow(a=5)."""
    gather: str = ""
    """Gives the sum of three suite:meet(guests=3) that are under way at the same time."""
    catches: str = ""
    """Gives the code of the error of suite:fail()."""
    fails_uncaught: str = ""
    """Calls suite:fail() and does not catch it."""
    swallows: str = ""
    """Calls suite:add ten times whatever happens, and gives how many succeeded."""
    chains: str = ""
    """Runs a chain of three calls of suite:add, and catches what comes of it."""
    spins: str = ""
    sleeps: str = ""
    waits: str = ""
    """Calls suite:wait."""
    holds: str = ""
    """Calls suite:hold."""
    hogs: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the field of LimitsEnforced: a program that uses up what that one limits."""
    files: str = ""
    """Gives the text of `in.txt`, writes it twice into `sub/out.txt`."""
    env: str = ""
    """Gives the environment variable GREETING."""
    no_json: str = ""
    """Its value is not JSON."""
    remember: str = ""
    """Leaves something behind, in memory and as a file."""
    remembers: str = ""
    """Gives whether there is something of that: false in a clean sandbox."""
    name: str = ""
    """Gives its own argument NAME, after some work with a tool; `@NAME@` is replaced."""


PYTHON: Final = Snippets(
    language="python",
    values={
        "return 5": 5,
        "__out = 6": 6,
        "3 + 4": 7,
        "__out = 6\n7": 6,
        "__out = 6\nreturn 8": 8,
        "x = 1": None,
        "return None": None,
        'return {"a": [1, 2.5, "ü", None, True], "b": {}}': {"a": [1, 2.5, "ü", None, True], "b": {}},
        "2 ** 70": 2**70,
        "print('__OUT__:1')": None,
    },
    prints='print("one")\ntools.suite.gate()\nprint("two")\nimport sys\nprint("bad", file=sys.stderr)',
    fails='print("before")\nopen("kept.txt", "w").write("kept")\ntools.suite.add(a=1, b=2)\nraise ValueError("boom")',
    failing_line=4,
    no_syntax="x = 1\nif x\n  y",
    call="tools.suite.add(a=1, b=2)",
    call_async="await tools.suite.slow(a=5)",
    gather="import asyncio\nsum(await asyncio.gather(*[tools.suite.meet(guests=3) for _ in range(3)]))",
    catches="try:\n    tools.suite.fail()\nexcept ToolError as error:\n    code = error.code\ncode",
    fails_uncaught="tools.suite.fail()",
    swallows="""
made = 0
for _ in range(10):
    try:
        tools.suite.add(a=1, b=1)
        made += 1
    except BaseException:
        pass
made
""",
    chains="""
try:
    tools.run_chain([{"tool": "suite:add", "args": {"a": 1}}] * 3)
except BaseException: pass
""",
    spins="while True: pass",
    sleeps="import time\ntime.sleep(1000)",
    waits="tools.suite.wait()",
    holds="tools.suite.hold()",
    hogs={
        "memory": "x = []\nwhile True: x.append(bytearray(1 << 20))",
        "cpu": "while True: pass",
        "pids": """
import os, time
made = 0
try:
    for _ in range(50):
        if os.fork() == 0:
            time.sleep(2)
            os._exit(0)
        made += 1
except BaseException: pass
if made < 50: raise RuntimeError("stopped")
time.sleep(1)
""",
        "disk": 'f = open("big", "wb")\nfor _ in range(64):\n    f.write(b"x" * (1 << 20))\n    f.flush()',
    },
    files="""
import os
text = open("in.txt").read()
os.makedirs("sub", exist_ok=True)
open("sub/out.txt", "w").write(text * 2)
text
""",
    env='import os\nos.environ["GREETING"]',
    no_json="object()",
    remember='import builtins\nbuiltins.left = 1\nleft_too = 1\nopen("left.txt", "w").write("x")',
    remembers=(
        'import builtins, os\nhasattr(builtins, "left") or "left_too" in globals() or os.path.exists("left.txt")'
    ),
    name='for _ in range(5): tools.suite.add(a=1, b=1)\nprint("@NAME@")\n"@NAME@"',
)

JAVASCRIPT: Final = Snippets(
    language="javascript",
    values={
        "return 5": 5,
        "return {a: [1, 2.5, 'ü', null, true]}": {"a": [1, 2.5, "ü", None, True]},
        "var x = 1;": None,
    },
    prints='console.log("one"); await tools.run("suite:gate"); console.log("two"); console.error("bad");',
    fails='console.log("before");\nawait tools.run("suite:add", {a: 1, b: 2});\nthrow new Error("boom");',
    failing_line=3,
    no_syntax="let x = ;",
    call='return await tools.run("suite:add", {a: 1, b: 2})',
    call_async='return await tools.run("suite:slow", {a: 5})',
    gather=(
        "const all = await Promise.all([1, 2, 3].map(() => tools.run('suite:meet', {guests: 3})));\n"
        "return all.reduce((a, b) => a + b)"
    ),
    catches='try { await tools.run("suite:fail"); } catch (e) { return e.code; }',
    fails_uncaught='await tools.run("suite:fail")',
    swallows=(
        "let made = 0;\nfor (let i = 0; i < 10; i++) "
        'try { await tools.run("suite:add", {a: 1, b: 1}); made++; } catch (e) {}\nreturn made'
    ),
    spins="for (;;) {}",
    waits='await tools.run("suite:wait")',
    holds='await tools.run("suite:hold")',
    hogs={"memory": "const x = []; for (;;) x.push('y'.repeat(1 << 20) + x.length);", "cpu": "for (;;) {}"},
    remember="globalThis.left = 1; Object.prototype.left = 1;",
    remembers="return 'left' in globalThis",
    name='for (let i = 0; i < 5; i++) await tools.run("suite:add", {a: 1});\nconsole.log("@NAME@");\nreturn "@NAME@"',
)

BASH: Final = Snippets(
    language="bash",
    values={"true": None, "tool return 5": 5, "tool return '{\"a\": [1, 2.5, null]}'": {"a": [1, 2.5, None]}},
    prints="echo one; tool run suite:gate >/dev/null; echo two; echo bad >&2",
    fails='echo before\necho -n kept > kept.txt\ntool run suite:add \'{"a": 1, "b": 2}\' >/dev/null\nexit 3',
    no_syntax="if true; then",
    call='tool return "$(tool run suite:add \'{"a": 1, "b": 2}\')"',
    call_async='tool return "$(tool run suite:slow \'{"a": 5}\')"',
    fails_uncaught="set -e\ntool run suite:fail",
    swallows=(
        "made=0\nfor i in 1 2 3 4 5 6 7 8 9 10; do "
        'tool run suite:add \'{"a": 1, "b": 1}\' >/dev/null 2>&1 && made=$((made + 1)); done\ntool return $made'
    ),
    spins="while :; do :; done",
    sleeps="sleep 1000",
    waits="tool run suite:wait",
    holds="tool run suite:hold",
    hogs={"cpu": "while :; do :; done"},
    files='mkdir -p sub; cat in.txt in.txt > sub/out.txt; tool return --text "$(cat in.txt)"',
    env='tool return --text "$GREETING"',
    remember="export left=1; echo x > left.txt",
    remembers='if [ -n "$left" ] || [ -e left.txt ]; then tool return true; else tool return false; fi',
    name="for i in 1 2; do tool run suite:add '{\"a\": 1}' >/dev/null; done; echo @NAME@; tool return --text @NAME@",
)
