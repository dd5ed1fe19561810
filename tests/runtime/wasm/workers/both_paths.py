"""Programs, each with the settings of its run, that end alike wherever they run: one for each thing that may differ."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from toolexec import Limits

MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Program:
    """A program with the settings of its run."""

    code: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def program(code: str, **settings: Any) -> Program:
    """Return a program with these settings of its run."""
    return Program(code, settings)


DETERMINED: Final[dict[str, Any]] = {"seed": 7, "now": 1_000_000_000.0}
FILES: Final = {"a.txt": b"a", "d/b.bin": bytes(range(256))}
PROGRAMS: Final[dict[str, Program]] = {
    "value": program("return {'a': [1, 2.5, None, True, 'é\U0001f600'], 'b': {}}"),
    "last line": program("x = 3\nx * 2"),
    "assigned": program("result = tools.t.add(a=1, b=2)"),
    "printed only": program("print({'a': 1})"),
    "no value": program("x = 1"),
    "not json": program("return {1, 2}"),
    "nan": program("return [float('nan'), float('inf'), -0.0, 1e300]"),
    "large int": program("return 10 ** 5000"),
    "int": program("return 2 ** 70"),
    "half a character": program("return '\\ud800'"),
    "half a character printed": program("print('\\ud800'); return 1"),
    "half a character thrown": program("raise ValueError('\\ud800')"),
    "both streams": program(
        "import sys\nfor n in range(5):\n    print(n)\n    print('e', n, file=sys.stderr)\ntools.t.add(a=1, b=1)\nprint('end')"
    ),
    "below python": program(
        "import os\nprint('a')\nos.write(1, b'b\\xff\\xc3')\nos.write(1, b'\\xa9\\n')\nos.write(2, b'c')\nprint('d')"
    ),
    "much below python": program("import os\nfor _ in range(40): os.write(1, b'x' * 65_536)\nreturn 1"),
    "much output": program("for n in range(40_000): print('x' * 100)\nreturn 1"),
    "one long line": program("print('é' * 3_000_000)"),
    "output before an error": program("print('a', end='')\nimport sys\nsys.stderr.write('b')\n1 / 0"),
    "error": program("def f(rows):\n    total = sum(rows)\n    return rows['a'] + total\nf([1, 2])"),
    "error in a tool": program("x = {'k': 1}\ntools.t.fail(why='no luck')"),
    "error in a tool that is caught": program(
        "try:\n    tools.t.fail(why='x')\nexcept ToolError as e:\n    return [e.code, str(e)]"
    ),
    "own error": program("class Mine(Exception): pass\nraise Mine('é', 3)"),
    "cause": program("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise KeyError('x') from e"),
    "syntax": program("x = (1,\ny = 2"),
    "unknown tool": program("tools.t.ad(a=1, b=2)"),
    "unknown argument": program("tools.t.add(x=1)"),
    "wrong type": program("tools.t.add(a='x', b=[])"),
    "exit": program("import sys\nprint('a')\nsys.exit(3)"),
    "exit with text": program("import sys\nsys.exit('bye')"),
    "exit now": program("import os\nprint('a')\nos._exit(3)"),
    "abort": program("import os\nos.abort()"),
    "recursion": program("def f(n): return f(n + 1) + 1\nf(0)"),
    "recursion in C": program("x = []\nfor _ in range(200_000): x = [x]\nreturn x"),
    "recursion of repr": program("x = []\nfor _ in range(100_000): x = [x]\nrepr(x)"),
    "recursion without end": program("import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()"),
    "deep value": program("x = 1\nfor _ in range(900): x = [x]\nreturn x"),
    "deep argument": program("x = 1\nfor _ in range(900): x = [x]\nreturn tools.t.echo(x=x)"),
    "system exit in a task": program("import asyncio\nasync def f(): raise SystemExit(2)\nawait asyncio.gather(f())"),
    "calls at once": program("import asyncio\nreturn await asyncio.gather(*(tools.t.later(n=n) for n in range(20)))"),
    "sync calls at once": program(
        "import asyncio\nreturn await asyncio.gather(*(tools.t.add(a=n, b=1) for n in range(20)))"
    ),
    "one of them fails": program(
        "import asyncio\nprint('a')\nawait asyncio.gather(tools.t.add(a=1, b=1), tools.t.fail(why='x'))"
    ),
    "call that is given up": program(
        "import asyncio\ntry:\n    await asyncio.wait_for(tools.t.hang(), 0.01)\nexcept asyncio.TimeoutError:\n    return 'late'"
    ),
    "not awaited": program("tools.t.later(n=1)\nreturn 1"),
    "a chain": program(
        "return tools.run_chain([{'tool': 't:add', 'args': {'a': 1, 'b': 2}}, {'tool': 't:fail', 'args': {'why': 'x'}}])"
    ),
    "search": program("return [tools.search('add', 1), str(tools.describe('t:add'))[:40]]"),
    "handle": program("x = tools.t.text(size=2_000_000)\nprint(type(x).__name__, len(str(x)))\nreturn x"),
    "handle passed on": program("x = tools.t.text(size=2_000_000)\nreturn tools.t.length(text=x)"),
    "large value": program("return ['é' * 100_000, 'x' * 2_000_000]"),
    "value over what a frame has": program("return 'x' * (17 << 20)"),
    "large argument": program("return tools.t.length(text='é' * 3_000_000)"),
    "argument over what a frame has": program("return tools.t.length(text='x' * (17 << 20))"),
    "nested": program("return tools.t.run(code='print(1)\\nreturn tools.t.add(a=1, b=2)')"),
    "nested that fails": program("return tools.t.run(code='1 / 0')"),
    "most calls": program("return [tools.t.add(a=n, b=0) for n in range(5)]", max_tool_calls=3),
    "allowed tools": program("return tools.t.add(a=1, b=2)", allowed_tools=["t:echo"]),
    "time": program("print('a')\nwhile True: pass", timeout=1.0),
    "time in sleep": program("import time\nprint('a')\ntime.sleep(60)", timeout=1.0),
    "time in a tool": program("print('a')\ntools.t.hang()", timeout=1.0),
    "time in a sync tool": program("print('a')\ntools.t.block()", timeout=1.0),
    "invalid time": program("return 1", timeout=0),
    "fuel": program("print('a')\nwhile True: pass", limits=Limits(cpu_ms=50)),
    "memory": program("print('a')\nx = bytearray(1 << 26)", limits=Limits(memory_bytes=32 * MB)),
    "memory in steps": program(
        "print('a')\nx = []\nwhile True: x.append('x' * 1000)", limits=Limits(memory_bytes=32 * MB)
    ),
    "memory that is too little": program("return 1", limits=Limits(memory_bytes=MB)),
    "disk": program("open('f', 'wb').write(b'x' * 2_000_000)", limits=Limits(disk_bytes=MB)),
    "disk that is too little for what is given": program(
        "return 1", limits=Limits(disk_bytes=10), files={"a": b"x" * 100}
    ),
    "files": program(
        "import os\nopen('a.txt', 'a').write('b')\nos.remove('d/b.bin')\nopen('n', 'w').write('é')\nreturn sorted(os.listdir('.'))",
        files=FILES,
    ),
    "files that stay": program("return open('d/b.bin', 'rb').read()[-1]", files=FILES),
    "files before an error": program("open('n', 'w').write('a')\n1 / 0"),
    "files before an exit": program("import os\nopen('n', 'w').write('a')\nos._exit(1)"),
    "deep files": program(
        "import os\nos.makedirs('/'.join('d' * 40))\nopen('/'.join('d' * 40) + '/f', 'w').write('a')\nprint('a')"
    ),
    "strange files": program(
        "for name in ('a\\\\b', 'é', ' ', 'a\\nb', '\\x01', 'x' * 255): open(name, 'w').write('a')\nreturn 1"
    ),
    "files with a long name": program("open('x' * 256, 'w')"),
    "many files": program("for n in range(5000): open(str(n), 'w').close()"),
    "files that cannot be": program("return 1", files={"../a": b""}),
    "files that cannot be here": program("return 1", files={"a\\b": b""}),
    "file and directory": program("return 1", files={"a": b"", "a/b": b""}),
    "environment": program(
        "import os\nreturn [os.environ.get('A'), os.environ.get('TZ'), sorted(os.environ)]",
        env={"A": "é", "TZ": "Europe/Oslo"},
    ),
    "arguments": program("import sys\nreturn [sys.argv[1:], sys.stdin.read()]", args=["a", "é"], stdin="né\n".encode()),
    "locale": program(
        "import sys, locale, time\nreturn [sys.flags.isolated, sys.getfilesystemencoding(), time.tzname[0], sys.platform, sys.argv, __name__]"
    ),
    "place": program("import os, tempfile\nreturn [os.getcwd(), os.listdir('/'), tempfile.gettempdir()]"),
    "determined": program(
        "import random, time, os, uuid\nreturn [random.random(), time.time(), time.monotonic(), os.urandom(4).hex(), str(uuid.uuid4()), hash('a')]",
        **DETERMINED,
    ),
    "determined sleep": program(
        "import asyncio, time\ntime.sleep(100)\nawait asyncio.sleep(50)\nreturn time.time()", **DETERMINED
    ),
    "determined files": program("import os\nopen('f', 'w').close()\nreturn os.stat('f').st_mtime", **DETERMINED),
    "determined calls": program(
        "import time, asyncio\na = await asyncio.gather(*(tools.t.later(n=n) for n in range(3)))\nreturn [a, time.time(), list({'a', 'b', 'c'})]",
        **DETERMINED,
    ),
    "time before 1970": program("return 1", now=-5.0),
    "no time at all": program("return 1", now=float("nan")),
    "endless seed": program("import random\nreturn random.random()", seed=-(2**80)),
    "forged result": program('import wit_world\nwit_world.post(\'{"type": "result"}\')\nreturn 1'),
    "forged frame": program("import wit_world\nprint('a')\nwit_world.exchange('nonsense')\nreturn 1"),
    "forged post": program(
        "import wit_world\nprint('a')\nwit_world.post('nonsense')\nprint('b')\ntools.t.add(a=1, b=1)\nreturn 1"
    ),
    "import of what is not there": program("import numpy"),
    "a thread": program("import threading\nthreading.Thread(target=print).start()"),
    "a process": program("import subprocess\nsubprocess.run(['ls'])"),
    "a socket": program("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1')"),
    "other language": program("return 1", language="python3"),
    "closed stdout": program("import sys\nsys.stdout.close()\nprint('x')"),
    "dry run": program("return tools.t.add(a=1, b=2)", dry_run=True),
    "undo": program("return tools.t.add(a=1, b=2)", on_error="undo"),
    "tool that raises what is not an Exception": program("tools.t.interrupt()"),
    "tool that gives what is not JSON": program("return tools.t.odd()"),
}


OVER_A_FRAME: Final[dict[str, Program]] = {
    "files": program("return 1", files={"a": b"x" * (50 * MB)}),
    "input": program("return 1", stdin=b"x" * (50 * MB)),
}
"""Programs that are sent more than a sandbox of 40 MiB can hold."""

STATEMENTS: Final = (
    "print('out', {n})",
    "print('err', {n}, file=sys.stderr)",
    "os.write(1, b'below {n}\\n')",
    "seen.append(await tools.t.add(a={n}, b=1))",
    "seen.append(await tools.t.later(n={n}))",
    "seen += await asyncio.gather(*(tools.t.later(n=n) for n in range({n})))",
    "seen += await asyncio.gather(*(tools.t.add(a=n, b=1) for n in range({n})))",
    "await tools.t.fail(why='{n}')",
    "try: await tools.t.fail(why='{n}')\nexcept ToolError as error: seen.append(error.code)",
    "open('f{n}', 'a').write('x' * {n})",
    "os.makedirs('d{n}/e', exist_ok=True)",
    "seen.append(sorted(os.listdir('.')))",
    "seen.append([time.time(), random.random()])",
    "time.sleep({n})",
    "await asyncio.sleep({n})",
    "seen.append(len(await tools.t.text(size={n} * 100_000)))",
    "sys.stdout.flush()",
    "seen[{n}]",
    "assert len(seen) > {n}, seen",
    "return seen",
    "sys.exit({n})",
)


def made_up(seed: int) -> Program:
    """Return a program of some statements, in an order that *seed* alone decides."""
    chance = random.Random(seed)
    lines = [chance.choice(STATEMENTS).replace("{n}", str(chance.randrange(8))) for _ in range(chance.randrange(2, 12))]
    start = "import asyncio, os, random, sys, time\nseen = []\n"
    return program(start + "\n".join(lines) + "\nreturn seen", **DETERMINED)
